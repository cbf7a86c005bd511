"""Builds small kernels: a hand-written device function behind a generated stub."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilec import ir
from tilec.backend.artifact import KernelParam
from tilec.host import HostCallable, generate_host_source, host_symbol
from tilec.ir import Buffer, Call, DType, Evaluate, PrimFunc, Var

CC = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
INT32 = DType("int32")


def host_func(
    name: str,
    params: Sequence[Buffer | Var],
    args: Sequence[Any] | None = None,
    *,
    before: Sequence[ir.Stmt] = (),
    out_idx: Sequence[int] = (),
    used: Sequence[str] | None = None,
    device_type: int = 1,
) -> PrimFunc:
    """A host function that launches ``<name>_kernel(*args)`` once."""
    args = list(params) if args is None else list(args)
    call = Evaluate(Call("call_device", (f"{name}_kernel", *args), INT32))
    names = [p.name for p in params if isinstance(p, Buffer)] if used is None else list(used)
    return PrimFunc(
        name,
        tuple(params),
        ir.seq(*before, call),
        {
            "calling_conv": "host_packed",
            "out_idx": list(out_idx),
            "used": names,
            "device_type": device_type,
        },
    )


def kernel_params(func: PrimFunc, written: Sequence[str]) -> list[KernelParam]:
    """The parameters of a host function as the Python side knows them."""
    return [
        KernelParam(p.name, p.dtype, tuple(p.shape), p.strides, written=p.name in written, node=p)
        if isinstance(p, Buffer)
        else KernelParam(p.name, p.dtype, by_value=True, node=p)
        for p in func.params
    ]


class Builder:
    """Compiles stubs into a folder, each distinct text once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def library(self, func: PrimFunc, device: str) -> Path:
        """A shared library of a stub and its device function."""
        host = generate_host_source(func)
        key = hashlib.sha256((host + device).encode()).hexdigest()[:16]
        path = self._folder / f"{key}.so"
        if not path.exists():
            sources = [self._folder / f"{key}_{part}.c" for part in ("host", "device")]
            sources[0].write_text(host)
            sources[1].write_text(f"#include <stdint.h>\n#include <math.h>\n{device}")
            flags = ["-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
            warnings = ["-Wall", "-Wextra", "-Werror"]
            subprocess.run(
                [str(CC), *flags, *warnings, *map(str, sources), "-o", str(path), "-lm"],
                check=True,
                timeout=60,
            )
        return path

    def __call__(self, func: PrimFunc, device: str, *, written: Sequence[str] = ()) -> HostCallable:
        """A loaded kernel."""
        return HostCallable(
            self.library(func, device),
            host_symbol(func.name),
            kernel_params(func, written),
            func.attrs["out_idx"],
            func.name,
            device_type=func.attrs["device_type"],
        )


def no_messages(name: str) -> str:
    """The message table of a device function that cannot fail."""
    return f"const char* const {name}_kernel_messages[] = {{0}};\n"
