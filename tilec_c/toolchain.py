"""The C compiler: find it, know it, call it, explain its failures.

One probe per process and compiler answers everything that decides how kernels are built: the
version, whether ``-march=native`` is accepted and whether an OpenMP program compiles, links *and
loads*. The answers make up :attr:`Toolchain.identity`, the part of a cache key that the tool chain
owns.

Flags, and why:

* ``-O3 -std=gnu11``: vector extensions and statement expressions are GNU C.
* ``-ffp-contract=off``: ``a * b + c`` rounds twice, as NumPy does; the matrix micro-kernel asks
  for fused operations by itself.
* ``-fno-math-errno -fno-trapping-math``: ``sqrt`` and selects vectorise; results do not change.
* ``-fwrapv``: signed overflow wraps, as the language says, so generated code needs no casts.
* ``-fno-strict-aliasing``: scratch memory is one byte array that holds many types in turn.
* never ``-ffast-math`` or one of its parts: at the link it would switch the whole process to
  flush-to-zero, and in the code it would break infinities used as masks.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilec.diagnostics import ToolchainError
from tilec.host.compiler import (
    CompileResult,
    Unit,
    candidates,
    checked,
    deliver,
    last_line,
    run,
)
from tilec.options import options
from tilec_c.cpu import CpuInfo, Isa, host_cpu

BASE_FLAGS: tuple[str, ...] = (
    "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-fwrapv", "-fno-strict-aliasing",
    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
LIBRARIES: tuple[str, ...] = ("-lm",)

# Generated code must round like NumPy, and a library linked with these sets flush-to-zero.
_FORBIDDEN = re.compile(
    r"-Ofast|-ffast-math|-funsafe-math-optimizations|-ffinite-math-only|-fassociative-math|"
    r"-freciprocal-math|-mdaz-ftz|-fno-signed-zeros"
)
_PROBE = """\
int tilec_probe(void) {
  int n = 0;
#pragma omp parallel for reduction(+ : n)
  for (int i = 0; i < 8; ++i) n += i;
  return n;
}
"""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One usable C compiler and what it can do on this machine.

    Attributes:
        argv: How to call it (``("/usr/bin/gcc",)``, or several words for ``python -m ziglang cc``).
        version: First line of its version report.
        family: ``"gcc"``, ``"clang"`` or ``"other"``.
        native: Whether ``-march=native`` is accepted (and used).
        openmp: Whether an OpenMP program compiled, linked and loaded.
        cpu: The processor code is generated for.
        binary: Size and modification time of the compiler's executable.
    """

    argv: tuple[str, ...]
    version: str
    family: str
    native: bool
    openmp: bool
    cpu: CpuInfo
    binary: str

    @property
    def isa(self) -> Isa:
        """The vector unit that generated code may assume."""
        return self.cpu.isa if self.native else self.cpu.baseline_isa

    def flags(self, optimize: int = 3) -> tuple[str, ...]:
        """Flags that compile one C file at the given optimisation level."""
        native = ("-march=native",) if self.native else ()
        openmp = ("-fopenmp",) if self.openmp else ()
        return (f"-O{optimize}", *BASE_FLAGS, *native, *openmp)

    @property
    def identity(self) -> str:
        """Cache-key text: differs whenever the same C source may become different code."""
        cpu = self.cpu.identity if self.native else self.cpu.machine
        text = "\n".join((*self.argv, self.version, self.binary, *self.flags(), *LIBRARIES, cpu))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{self.family} {self.version} [{cpu}] {digest}"

    def describe(self) -> dict[str, str]:
        """Human-readable facts, for ``tilec doctor`` and for reports."""
        return {
            "compiler": " ".join(self.argv),
            "version": self.version,
            "architecture": "native" if self.native else f"baseline {self.cpu.machine}",
            "processor": self.cpu.model,
            "vector unit": f"{self.isa.name}, {self.isa.vector_bytes * 8} bits",
            "openmp": "yes" if self.openmp else "no (kernels run on one thread)",
            "flags": " ".join(self.flags()),
        }


def find_toolchain(cc: str | Sequence[str] | None = None) -> Toolchain:
    """The C compiler to use.

    Args:
        cc: A compiler command, as text split like a shell would or as words. Default: the option
            ``cc`` (``$CC``); then ``cc``, ``gcc``, ``clang``, ``python -m ziglang cc``.

    Raises:
        ToolchainError: No compiler works; the message says what was tried and why each failed.
    """
    words = options.cc if cc is None else shlex.split(cc) if isinstance(cc, str) else cc
    return _find(tuple(words), host_cpu())


def compile_shared(
    units: str | Unit | Sequence[Unit],
    output: Path | None = None,
    *,
    name: str = "kernel",
    toolchain: Toolchain | None = None,
    extra_flags: Sequence[str] = (),
    timeout: float | None = None,
) -> CompileResult:
    """Compile C text into a shared library.

    Several units are compiled at the same time and linked together. The library appears at
    ``output`` in one step (rename), so no reader ever sees half a file.

    Args:
        units: C text, or one or more :class:`Unit`.
        output: Where the library goes. Default: a private directory, removed when Python exits.
        name: File stem for plain text and for the default output.
        toolchain: Default: :func:`find_toolchain`.
        extra_flags: More compiler flags; those that change floating-point meaning are refused.
        timeout: Seconds before the compiler is stopped; default: the option
            ``compile_timeout`` (0: no limit).

    Raises:
        NativeCompileError: The compiler rejected the source, crashed or ran out of time.
        ToolchainError: No compiler, a refused flag, or the output cannot be written.
    """
    tool = toolchain or find_toolchain()
    if timeout is None:
        timeout = float(options.compile_timeout)
    refused = [flag for flag in extra_flags if _FORBIDDEN.fullmatch(flag)]
    if refused:
        raise ToolchainError(
            f"the compiler flag {refused[0]} is refused: it changes what floating-point code means",
            hint="kernels must agree with NumPy; remove the flag",
        )
    if isinstance(units, str):
        units = Unit(name, units)
    parts = (units,) if isinstance(units, Unit) else tuple(units)
    return deliver(
        lambda work: _build(tool, parts, work, tuple(extra_flags), timeout), name, output
    )


# --- finding -------------------------------------------------------------------------------------


@functools.cache
def _find(cc: tuple[str, ...], cpu: CpuInfo) -> Toolchain:
    tried: list[str] = []
    for argv in candidates(cc):
        try:
            return _probe(argv, cpu)
        except _Unusable as reason:
            tried.append(f"{' '.join(argv)}: {reason}")
    asked = f"the C compiler {shlex.join(cc)!r} does not work" if cc else None
    raise ToolchainError(
        asked or "no working C compiler was found",
        notes=tuple(tried),
        hint="install gcc or clang, or `pip install ziglang`, or set CC to a compiler",
    )


class _Unusable(Exception):
    """Why one candidate compiler cannot be used."""


def _probe(argv: tuple[str, ...], cpu: CpuInfo) -> Toolchain:
    path = shutil.which(argv[0])
    if path is None:
        raise _Unusable("not found")
    argv = (path, *argv[1:])
    try:
        code, out, err = run((*argv, "--version"), Path.cwd(), 60.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unusable(str(error)) from error
    if code != 0:
        raise _Unusable(last_line(err) or f"--version failed with status {code}")
    version = (out.strip() or err.strip()).partition("\n")[0]
    lower = (out + err).lower()
    if "clang" in lower or "ziglang" in argv:
        family = "clang"
    elif "gcc" in lower or "free software foundation" in lower:
        family = "gcc"
    else:
        family = "other"
    try:
        stat = Path(path).stat()
        binary = f"{stat.st_size}-{stat.st_mtime_ns}"
    except OSError:
        binary = ""
    tool = Toolchain(argv, version, family, native=True, openmp=True, cpu=cpu, binary=binary)
    remembered = _remembered(tool)
    if remembered is not None:
        return remembered
    # Mostly the first one passes; each later one gives up what is most likely missing.
    reason = ""
    for native, openmp in ((True, True), (True, False), (False, True), (False, False)):
        reason = _try_build(replace(tool, native=native, openmp=openmp))
        if not reason:
            found = replace(tool, native=native, openmp=openmp)
            _remember(tool, found)
            return found
    raise _Unusable(reason)


def _record(tool: Toolchain) -> Path | None:
    """Where the verdict on a compiler is kept between processes; None with caching switched off."""
    if not options.cache or not tool.binary:
        return None
    digest = hashlib.sha256(f"{tool.identity}\n{_PROBE}".encode()).hexdigest()[:32]
    return options.cache_dir / "toolchains" / f"{digest}.json"


def _remembered(tool: Toolchain) -> Toolchain | None:
    """What an earlier process found out about this very compiler on this processor."""
    path = _record(tool)
    try:
        facts = json.loads(path.read_text(encoding="utf-8")) if path is not None else None
        if facts is not None:
            return replace(tool, native=bool(facts["native"]), openmp=bool(facts["openmp"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _remember(tool: Toolchain, found: Toolchain) -> None:
    path = _record(tool)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps({"native": found.native, "openmp": found.openmp}))
        partial.replace(path)
    except OSError:
        return  # a read-only cache costs the probe again, nothing else


def _try_build(tool: Toolchain) -> str:
    """Compile, link, load and call the probe program; the reason when that fails."""
    import ctypes  # noqa: PLC0415 - once per process

    with tempfile.TemporaryDirectory(prefix="tilec-probe-") as text:
        work = Path(text)
        (work / "probe.c").write_text(_PROBE, encoding="ascii")
        flags = tuple(f for f in tool.flags(1) if f != "-fvisibility=hidden")
        command = (*tool.argv, *flags, "-shared", "-o", "probe.so", "probe.c", *LIBRARIES)
        try:
            code, _, err = run(command, work, 120.0)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if code != 0:
            return last_line(err) or f"failed with status {code}"
        try:
            probe = ctypes.CDLL(str(work / "probe.so")).tilec_probe
        except (OSError, AttributeError) as error:
            return str(error)
        # Runs the first parallel region too: a runtime that loads but cannot start is no use.
        return "" if probe() == 28 else "the probe program computed a wrong result"


# --- building ------------------------------------------------------------------------------------


def _build(
    tool: Toolchain, units: Sequence[Unit], work: Path, extra: tuple[str, ...], timeout: float
) -> tuple[Path, str, tuple[tuple[str, ...], ...]]:
    # -fopenmp at the link chooses the runtime library; optimisation flags do not belong there.
    link = ("-shared", *(("-fopenmp",) if tool.openmp else ()))
    for unit in units:
        (work / f"{unit.name}.c").write_text(unit.source, encoding="utf-8")
    if len(units) == 1:
        unit = units[0]
        command = (
            *tool.argv, *tool.flags(unit.optimize), *extra, *link,
            "-o", "out.so", f"{unit.name}.c", *LIBRARIES,
        )  # fmt: skip
        return work / "out.so", checked([command], work, timeout), (command,)
    compiles = [
        (*tool.argv, *tool.flags(u.optimize), *extra, "-c", "-o", f"{u.name}.o", f"{u.name}.c")
        for u in units
    ]
    log = checked(compiles, work, timeout)
    objects = [f"{unit.name}.o" for unit in units]
    command = (*tool.argv, *link, "-o", "out.so", *objects, *LIBRARIES)
    log += checked([command], work, timeout)
    return work / "out.so", log, (*compiles, command)
