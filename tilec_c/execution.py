"""Compiling and loading: one shared library for host and device code."""

from __future__ import annotations

import ctypes
from typing import Any

from tilec.backend import BackendContext, CompiledArtifact
from tilec.diagnostics import InternalError
from tilec.host import HostCallable
from tilec.options import options
from tilec_c.toolchain import CompileResult, Unit, compile_shared


class CpuExecutable:
    """A loaded kernel of the CPU backend.

    Attributes:
        artifact: what it was loaded from.
        build: the compiler run.
    """

    def __init__(self, artifact: CompiledArtifact, build: CompileResult) -> None:
        if artifact.host is None:
            raise InternalError("the CPU backend needs a host program")
        self.artifact = artifact
        self.build = build
        library = ctypes.CDLL(str(build.path))
        for name in artifact.device.entry_points:
            try:
                ctypes.c_int32.in_dll(library, f"{name}_threads").value = options.num_threads
            except ValueError:  # built without OpenMP: one thread
                continue
        self._call = HostCallable(
            library, artifact.host.symbol, artifact.params, artifact.out_idx, artifact.name
        )

    def __call__(self, *args: Any) -> Any:
        """Run the kernel on its inputs; see `HostCallable`."""
        return self._call(*args)


def load(artifact: CompiledArtifact, context: BackendContext) -> CpuExecutable:
    """Compile an artifact's sources and load the library."""
    assert artifact.host is not None
    units = [
        Unit(f"{artifact.name}_kernel", artifact.device.source, optimize=3),
        Unit(f"{artifact.name}_host", artifact.host.source, optimize=1),
    ]
    return CpuExecutable(
        artifact, compile_shared(units, name=artifact.name, extra_flags=context.compile_flags)
    )
