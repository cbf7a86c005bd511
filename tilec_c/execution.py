"""Compiling and loading: one shared library for host and device code."""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from typing import Any

from tilec.backend import BackendContext, CompiledArtifact
from tilec.diagnostics import InternalError
from tilec.host import HostCallable
from tilec.host.compiler import CompileResult, Unit
from tilec.options import options
from tilec_c.toolchain import compile_shared


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
        self._thread_counts = []
        for name in artifact.device.entry_points:
            try:
                self._thread_counts.append(ctypes.c_int32.in_dll(library, f"{name}_threads"))
            except ValueError:  # built without OpenMP: one thread
                continue
        loaded = _loaded()
        self.use_threads(1 if loaded.forked else options.num_threads)
        loaded.kernels.add(self)
        self._call = HostCallable(
            library, artifact.host.symbol, artifact.params, artifact.out_idx, artifact.name
        )

    def use_threads(self, count: int) -> None:
        """Use that many threads from the next call on; 0 for as many as OpenMP likes."""
        for variable in self._thread_counts:
            variable.value = count

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


class _Loaded:
    """The kernels of this process.

    OpenMP's pool of threads does not survive a fork: a parallel region in the child would wait for
    threads that are not there. So a forked child of a process that has kernels runs them, and its
    own, on one thread.
    """

    def __init__(self) -> None:
        self.kernels: weakref.WeakSet[CpuExecutable] = weakref.WeakSet()
        self.forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        if self.kernels:
            self.forked = True
        for kernel in self.kernels:
            kernel.use_threads(1)


@functools.cache
def _loaded() -> _Loaded:
    return _Loaded()
