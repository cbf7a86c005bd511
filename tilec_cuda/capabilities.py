"""What each architecture can do, as data."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple

from tilec.backend import Capabilities, CopyEngine, MatrixAtom, Memory
from tilec.diagnostics import TargetError
from tilec_cuda.arch import Arch

LANES = 32
_KIB = 1024


class Chip(NamedTuple):
    """Sizes of one architecture; those of one multiprocessor where nothing else is said.

    Attributes:
        block_shared: shared memory that one block can have.
        shared: shared memory of all blocks.
        threads: resident threads.
        blocks: resident blocks.
        reserved: shared memory that the system takes from each block.
        registers: 32-bit registers.
    """

    block_shared: int
    shared: int
    threads: int
    blocks: int
    reserved: int = 1 * _KIB
    registers: int = 64 * _KIB


CHIPS: Mapping[int, Chip] = MappingProxyType(
    {
        75: Chip(64 * _KIB, 64 * _KIB, 1024, 16, 0),
        80: Chip(163 * _KIB, 164 * _KIB, 2048, 32),
        86: Chip(99 * _KIB, 100 * _KIB, 1536, 16),
        87: Chip(163 * _KIB, 164 * _KIB, 1536, 16),
        88: Chip(99 * _KIB, 100 * _KIB, 1536, 16),
        89: Chip(99 * _KIB, 100 * _KIB, 1536, 24),
        90: Chip(227 * _KIB, 228 * _KIB, 2048, 32),
        100: Chip(227 * _KIB, 228 * _KIB, 2048, 32),
        103: Chip(227 * _KIB, 228 * _KIB, 2048, 32),
        110: Chip(227 * _KIB, 228 * _KIB, 1536, 24),
        120: Chip(99 * _KIB, 100 * _KIB, 1536, 24),
        121: Chip(99 * _KIB, 100 * _KIB, 1536, 24),
    }
)
"""By architecture number."""

SPECIFIC = (90, 100, 103, 110, 120, 121)
"""Architectures with features that only code for exactly this chip may use (suffix ``a``)."""

ARCHITECTURES: tuple[str, ...] = tuple(
    name for n in CHIPS for name in ((f"sm_{n}", f"sm_{n}a") if n in SPECIFIC else (f"sm_{n}",))
)
_NAME = re.compile(r"sm_(\d{2,3})([af]?)")

_DTYPES = frozenset(
    {"bool", "float16", "bfloat16", "float32", "float64", "tfloat32"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {
        f"float8_{form}"
        for form in ("e3m4", "e4m3", "e4m3fn", "e4m3fnuz", "e4m3b11fnuz", "e5m2", "e5m2fnuz")
    }
)


class Resolved(NamedTuple):
    """What is known of an architecture.

    Attributes:
        arch: as it was asked for.
        known: the one whose capabilities are used; another one where `arch` is newer than the
            table.
    """

    arch: Arch
    known: Arch

    @property
    def notice(self) -> str:
        """What a user should know about the choice; empty where there is nothing."""
        if self.arch == self.known:
            return ""
        return (
            f"{self.arch} is newer than this version of tilec; it is used like {self.known}, "
            "without what is new in it"
        )


def resolve(name: str) -> Resolved:
    """An architecture and the one whose table is used.

    Raises:
        TargetError: malformed, or older than what is supported.
    """
    match = _NAME.fullmatch(name.strip().lower())
    choices = f"architectures: {', '.join(ARCHITECTURES)}"
    if match is None:
        raise TargetError(f"{name!r} is not the name of an architecture", hint=choices)
    arch = Arch(int(match[1]), match[2])
    if arch.number in CHIPS:
        if arch.suffix and arch.number not in SPECIFIC:
            raise TargetError(f"there is no architecture {arch}", hint=choices)
        return Resolved(arch, arch)
    older = [n for n in CHIPS if n < arch.number]
    if not older:
        raise TargetError(f"architecture {arch} is older than sm_{min(CHIPS)}", hint=choices)
    # Code for a chip runs on later ones of its generation, if it uses nothing specific.
    return Resolved(arch, Arch(max(older)))


def of_device(major: int, minor: int) -> str:
    """The name of the architecture of a device, with what is specific to it."""
    number = 10 * major + minor
    return f"sm_{number}a" if number in SPECIFIC else f"sm_{number}"


@functools.cache
def capabilities(arch: Arch) -> Capabilities:
    """The table of an architecture in `CHIPS`."""
    chip = CHIPS[arch.number]
    wide = (1, 2, 4, 8, 16, 32) if arch.number >= 100 else (1, 2, 4, 8, 16)
    shared = {"alignment": 1024, "access_bytes": (1, 2, 4, 8, 16), "banks": 32}
    own = {"alignment": 16, "access_bytes": (1, 2, 4, 8, 16), "per_lane": True}
    memories = {
        "global": Memory("global", alignment=256, access_bytes=wide),
        "shared": Memory("shared", chip.block_shared, **shared),  # type: ignore[arg-type]
        "shared.dyn": Memory("shared.dyn", chip.block_shared, **shared),  # type: ignore[arg-type]
        "shared.barrier": Memory("shared.barrier", chip.block_shared, alignment=8),
        "local": Memory("local", **own),  # type: ignore[arg-type]
        "local.fragment": Memory("local.fragment", **own),  # type: ignore[arg-type]
        "local.var": Memory("local.var", **own),  # type: ignore[arg-type]
    }
    return Capabilities(
        lanes=LANES,
        max_threads=1024,
        max_grid=(2**31 - 1, 65535, 65535),
        memories=memories,
        vector_bytes=tuple(size for size in reversed(wide) if size >= 4),
        dtypes=_DTYPES,
        native_dtypes=frozenset({"float32", "float64", "int32", "int64", "uint32", "uint64"}),
        copy_engines=_copy_engines(arch),
        matrix_atoms=_matrix_atoms(arch),
        barriers=_barriers(arch),
        features={
            "default_threads": 128,
            "dlpack_device": 2,
            "arch": str(arch),
            "cluster": arch.number >= 90,
            "programmatic_launch": arch.number >= 90,
            "register_handover": arch.has_setmaxnreg,
            "registers": chip.registers,
            "registers_per_lane": 255,
        },
    )


def _copy_engines(arch: Arch) -> tuple[CopyEngine, ...]:
    engines = []
    if arch.has_bulk:
        engines += [
            CopyEngine("bulk", "global", "shared", True, granularity=16, alignment=16),
            CopyEngine("bulk", "shared", "global", True, granularity=16, alignment=16),
        ]
    if arch.number >= 80:
        engines.append(CopyEngine("cp_async", "global", "shared", True, granularity=4, alignment=4))
    return tuple(engines)


def _barriers(arch: Arch) -> frozenset[str]:
    kinds = {"block", "named", "warp"}
    if arch.number >= 80:
        kinds.add("arrive")
    if arch.has_bulk:
        kinds |= {"transaction", "cluster"}
    return frozenset(kinds)


def _matrix_atoms(arch: Arch) -> tuple[MatrixAtom, ...]:
    try:
        atoms = import_module("tilec_cuda.atoms")  # its layouts take time to make
    except ImportError:
        return ()
    return tuple(atoms.matrix_atoms(str(arch)))


def occupancy(arch: Arch, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks that fit on one multiprocessor together.

    Args:
        arch: in `CHIPS`.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.
    """
    chip = CHIPS[arch.number]
    warps = -(-threads // LANES)
    limits = [chip.blocks, chip.threads // (warps * LANES)]
    if registers:
        of_warp = -(-registers * LANES // 256) * 256  # registers are handed out in units of 256
        # Each of four parts of a multiprocessor has its own registers and takes whole warps.
        limits.append(4 * (chip.registers // 4 // of_warp) // warps)
    if shared_bytes or chip.reserved:
        unit = 128 if arch.number >= 80 else 256
        need = -(-(shared_bytes + chip.reserved) // unit) * unit
        if need:
            limits.append(chip.shared // need)
    return max(min(limits), 0)
