"""From the generated program to a binary: options, warnings, and what the kernels need."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from tilec import ir
from tilec.backend import BackendContext, DeviceProgram, PassConfigKey, ToolchainInfo
from tilec.backend.target import Target
from tilec.diagnostics import JITArgumentError, ToolchainError, warn
from tilec.host.compiler import find_stub_compiler
from tilec_cuda.capabilities import CHIPS, occupancy
from tilec_cuda.nvrtc import CubinCache, Nvrtc, Resources, complaints, find_nvrtc, resources
from tilec_cuda.target import architecture

CONTRACT = "cuda.contract"
BASE_OPTIONS: tuple[str, ...] = (
    "--minimal", "--std=c++17", "--ptxas-options=-v", "--fmad=false",
    "--diag-suppress=177,550",  # variables that a smaller kernel does not use
)  # fmt: skip
"""``--fmad=false``: ``a * b + c`` rounds twice, as NumPy does, unless a kernel asks for `fma`."""
HAS_CACHE = (12, 9)
"""NVRTC keeps images of its own from here on, and says nothing of registers when it takes one."""


class KernelReport(NamedTuple):
    """What one kernel needs.

    Attributes:
        registers: per thread.
        spill_stores, spill_loads: bytes per thread that did not fit into registers.
        stack: bytes of local memory per thread.
        static_shared, dynamic_shared: bytes per block; -1 where only the call tells.
        threads: of a block.
        blocks_per_sm: blocks that run on one multiprocessor together.
        occupancy: share of the resident threads that a multiprocessor can have.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_shared: int
    dynamic_shared: int
    threads: int
    blocks_per_sm: int
    occupancy: float

    def __str__(self) -> str:
        spills = f", {self.spill_stores} bytes spilled" if self.spill_stores else ""
        shared = self.static_shared + max(self.dynamic_shared, 0)
        return (
            f"{self.registers} registers{spills}, {shared} bytes of shared memory, "
            f"{self.blocks_per_sm} blocks of {self.threads} threads per multiprocessor "
            f"({self.occupancy:.0%})"
        )


def compile_options(context: BackendContext, compiler: Nvrtc) -> tuple[str, tuple[str, ...]]:
    """The architecture and the options that a program is compiled with."""
    config = context.pass_context()
    found = architecture(context.target)
    name = str(found.arch)
    if found.arch.number not in compiler.architectures:
        # The driver translates PTX of an older architecture for a chip that is not known here.
        known = [n for n in compiler.architectures if n <= found.known.number]
        if not known:
            raise ToolchainError(
                f"NVRTC {compiler.version[0]}.{compiler.version[1]} does not compile for {name}",
                hint="install another version of nvidia-cuda-nvrtc",
            )
        name = f"compute_{max(known)}"
    options = [*BASE_OPTIONS]
    if compiler.version >= HAS_CACHE:
        options.append("--no-cache")
    if config.flag(PassConfigKey.TL_ENABLE_FAST_MATH):
        options += ["--use_fast_math", "--fmad=true"]
    elif config.flag(CONTRACT):
        options.append("--fmad=true")
    level = config.get(PassConfigKey.TL_PTXAS_REGISTER_USAGE_LEVEL)
    if level is not None:
        options.append(f"--ptxas-options=--register-usage-level={int(level)}")
    more = config.get(PassConfigKey.TL_DEVICE_COMPILE_FLAGS)
    options += shlex.split(more) if isinstance(more, str) else [str(flag) for flag in more or ()]
    options += context.compile_flags
    for flag in options:
        if flag.startswith(("--gpu-architecture", "-arch")):
            raise JITArgumentError(
                f"the compile flag {flag} is refused: the target says what code is for",
                hint='target={"kind": "cuda", "arch": "sm_90a"}',
            )
    return name, tuple(options)


def compile_program(
    program: DeviceProgram, context: BackendContext, cache: CubinCache | None = None
) -> DeviceProgram:
    """The program with a binary, its log and what the kernels need; no device is needed.

    Raises:
        ToolchainError: there is no NVRTC.
        NativeCompileError: it refuses the source.
    """
    compiler = find_nvrtc()
    arch, options = compile_options(context, compiler)
    start = time.perf_counter()
    name = f"{program.entry_points[0] if program.entry_points else 'kernel'}.cu"
    result = compiler.compile(program.source, arch, options, name=name, cache=cache)
    found = resources(result.log)
    attrs = {
        **program.attrs,
        "compiler": f"NVRTC {compiler.version[0]}.{compiler.version[1]}",
        "options": (f"--gpu-architecture={arch}", *options),
        "compile_seconds": time.perf_counter() - start,
        "resources": found,
        "warnings": tuple(complaints(result.log)),
        "log": result.log,
    }
    return program._replace(binary=result.image, attrs=attrs)


def warn_about(program: DeviceProgram, kernel: str) -> None:
    """Warn of what makes a kernel slow: spilled registers, serialised matrix instructions."""
    for name, found in program.attrs.get("resources", {}).items():
        if found.spill_stores or found.spill_loads:
            warn(
                f"kernel {kernel}: {name} spills registers: {found.spill_stores} bytes stored, "
                f"{found.spill_loads} bytes loaded by each thread",
                hint="use smaller tiles, or more threads",
            )
    for text in program.attrs.get("warnings", ()):
        if text.startswith("ptxas"):  # those of the front end are about text that we wrote
            warn(f"kernel {kernel}: {text}")


def reports(
    program: DeviceProgram, launches: Mapping[str, Any], target: Target
) -> dict[str, KernelReport]:
    """What each kernel of a compiled program needs."""
    known = architecture(target).known
    table: dict[str, KernelReport] = {}
    for name, launch in launches.items():
        found: Resources = program.attrs.get("resources", {}).get(name, Resources())
        threads = 1
        for count in launch.threads:
            threads *= int(count)
        known_bytes = ir.fold_int(launch.shared_bytes)
        dynamic = known_bytes if isinstance(known_bytes, int) else -1
        shared = found.shared + max(dynamic, 0)
        blocks = occupancy(known, threads, found.registers, shared)
        table[name] = KernelReport(
            found.registers,
            found.spill_stores,
            found.spill_loads,
            found.stack,
            found.shared,
            dynamic,
            threads,
            blocks,
            blocks * threads / CHIPS[known.number].threads,
        )
    return table


def toolchain(target: Target) -> ToolchainInfo:
    """NVRTC, and the C compiler of host functions."""
    del target
    compiler = find_nvrtc()
    try:
        host = " ".join(find_stub_compiler().argv)
        identity = find_stub_compiler().identity
    except ToolchainError:
        host, identity = "none: kernels are launched from Python", "python"
    version = f"{compiler.version[0]}.{compiler.version[1]}"
    return ToolchainInfo(
        f"NVRTC {version}",
        f"{compiler.identity}; {identity}",
        BASE_OPTIONS,
        {"host compiler": host},
    )
