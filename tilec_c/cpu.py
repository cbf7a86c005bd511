"""What the C backend needs to know about the processor it runs on.

Detection reads only what the operating system publishes (``/proc``, ``/sys``, ``sysctl``); nothing
is executed that the processor may not support. Every figure has a safe fallback, so an unknown
machine gets portable code, never a crash.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Isa:
    """The vector unit as the micro-kernel generator sees it.

    Attributes:
        name: Short name used in comments and reports.
        vector_bytes: Width of one vector register.
        registers: Number of vector registers.
        fma: Whether a fused multiply-add is one instruction.
    """

    name: str
    vector_bytes: int
    registers: int
    fma: bool


AVX512 = Isa("avx512", 64, 32, True)
AVX2 = Isa("avx2", 32, 16, True)
AVX = Isa("avx", 32, 16, False)
SSE2 = Isa("sse2", 16, 16, False)
NEON = Isa("neon", 16, 32, True)
GENERIC = Isa("generic", 16, 16, False)


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """One machine's processor; cache sizes in bytes per core (``l3``: per socket), 0 unknown."""

    machine: str
    model: str
    flags: frozenset[str]
    cores: int
    l1d: int
    l2: int
    l3: int

    @property
    def isa(self) -> Isa:
        """The widest vector unit that code built with ``-march=native`` may use."""
        if self.machine == "x86_64":
            if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= self.flags:
                return AVX512
            if {"avx2", "fma"} <= self.flags:
                return AVX2
            return AVX if "avx" in self.flags else SSE2
        return NEON if self.machine == "aarch64" else GENERIC

    @property
    def baseline_isa(self) -> Isa:
        """The vector unit every processor of this architecture has (no ``-march=native``)."""
        return {"x86_64": SSE2, "aarch64": NEON}.get(self.machine, GENERIC)

    @property
    def identity(self) -> str:
        """Text that differs wherever ``-march=native`` may generate different code."""
        digest = hashlib.sha256(" ".join(sorted(self.flags)).encode()).hexdigest()[:12]
        return f"{self.machine}/{self.model}/{digest}"


_MACHINES: Mapping[str, str] = {
    "amd64": "x86_64", "x86-64": "x86_64", "x86_64": "x86_64",
    "arm64": "aarch64", "aarch64": "aarch64",
}  # fmt: skip


@functools.cache
def host_cpu() -> CpuInfo:
    """The processor of this process, detected once."""
    machine = platform.machine().lower()
    machine = _MACHINES.get(machine, machine or "unknown")
    fields = _cpuinfo_fields(_read(Path("/proc/cpuinfo")))
    model = fields.get("model name") or _arm_model(fields) or _sysctl("machdep.cpu.brand_string")
    flags = frozenset((fields.get("flags") or fields.get("Features") or "").split())
    caches = _cache_sizes(Path("/sys/devices/system/cpu/cpu0/cache"))
    # A family/model/stepping triple tells apart the many machines that publish only "AMD EPYC".
    triple = [fields[k] for k in ("cpu family", "model", "stepping") if k in fields]
    if triple:
        model = f"{model} ({'.'.join(triple)})"
    return CpuInfo(
        machine=machine,
        model=model or platform.processor() or "unknown",
        flags=flags,
        cores=available_cores(),
        l1d=caches.get((1, "Data"), 32 * 1024),
        l2=caches.get((2, "Unified"), 512 * 1024),
        l3=caches.get((3, "Unified"), 0),
    )


def available_cores() -> int:
    """Number of processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpuinfo_fields(text: str) -> dict[str, str]:
    """The fields of the first processor listed in ``/proc/cpuinfo``."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() and "processor" in fields:
            break
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _arm_model(fields: Mapping[str, str]) -> str:
    keys = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision")
    return " ".join(fields[k] for k in keys if k in fields)


def _sysctl(name: str) -> str:
    if sys.platform != "darwin":
        return ""
    import subprocess  # noqa: PLC0415 - only macOS pays for it

    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _cache_sizes(root: Path) -> dict[tuple[int, str], int]:
    """Cache sizes in bytes by (level, type), as Linux publishes them."""
    sizes: dict[tuple[int, str], int] = {}
    for index in sorted(root.glob("index*")):
        level, kind = _read(index / "level").strip(), _read(index / "type").strip()
        size = _read(index / "size").strip()
        scale = {"K": 1024, "M": 1024 * 1024, "G": 1024**3}.get(size[-1:], 1)
        digits = size.rstrip("KMG")
        if level.isdigit() and digits.isdigit():
            sizes.setdefault((int(level), kind), int(digits) * scale)
    return sizes
