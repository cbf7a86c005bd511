"""Execution backends: compiling, loading and launching."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from tilec.backend import Availability, BackendContext, CompiledArtifact, Target
from tilec.diagnostics import (
    InternalError,
    KernelRuntimeError,
    ToolchainError,
    warn,
)
from tilec.host import HostCallable
from tilec.host.callable import Entry, NativeEntry
from tilec.host.compiler import CompileResult, build_stub
from tilec_cuda.build import KernelReport, compile_program, reports, warn_about
from tilec_cuda.driver import LIBRARY, driver, why_unusable
from tilec_cuda.host import PREPARE, SET_DRIVER, SET_IMAGE
from tilec_cuda.runtime import RUNTIME


class CudaExecutable:
    """A loaded kernel.

    Attributes:
        artifact: what it was loaded from, with the binary.
        stub: the build of the host function; None where it is interpreted.
        resource_usage: by device function.
    """

    def __init__(
        self, artifact: CompiledArtifact, entry: Entry, stub: CompileResult | None, image: Any
    ) -> None:
        self.artifact = artifact
        self.stub = stub
        self.resource_usage: dict[str, KernelReport] = reports(
            artifact.device, artifact.launches, artifact.target
        )
        self._image = image  # the driver reads it at the first call
        self._call = HostCallable(
            entry, "", artifact.params, artifact.out_idx, artifact.name, runtime=RUNTIME
        )

    def __call__(self, *args: Any, stream: Any = None) -> Any:
        """Run the kernel on its inputs; see `HostCallable`."""
        return self._call(*args, stream=stream)


def load(artifact: CompiledArtifact, context: BackendContext) -> CudaExecutable:
    """Compile both sides at the same time where needed, and load them.

    Nothing is loaded on a device yet, unless one is in use: there, the first call may be inside of
    a graph capture.
    """
    if artifact.host is None:
        raise InternalError("the CUDA backend needs a host program")
    program = artifact.device
    with ThreadPoolExecutor(1, thread_name_prefix="tilec-stub") as pool:
        build = partial(build_stub, artifact.host.source, f"{artifact.name}_host")
        building = pool.submit(copy_context().run, build)  # with the options of this block
        if program.binary is None:
            program = compile_program(program, context)
        artifact = artifact.replace(device=program)
        warn_about(program, artifact.name)
        assert program.binary is not None
        try:
            stub = building.result()
        except ToolchainError as error:
            return _without_compiler(artifact, error)
    entry, image = _native(artifact, stub, program.binary)
    return CudaExecutable(artifact, entry, stub, image)


def _native(
    artifact: CompiledArtifact, stub: CompileResult, binary: bytes
) -> tuple[NativeEntry, Any]:
    assert artifact.host is not None
    library = ctypes.CDLL(str(stub.path))
    image = ctypes.create_string_buffer(binary, len(binary) + 1)  # PTX ends in 0
    path = driver().path
    paths = ctypes.c_char_p(path.encode())
    if path != LIBRARY:
        _void(library, SET_DRIVER)(paths)
    _void(library, SET_IMAGE)(image)
    entry = NativeEntry(library, artifact.host.symbol, artifact.name)
    device = _device_in_use()
    if device is not None and getattr(library, PREPARE)(device) != 0:
        raise KernelRuntimeError(entry.error()[1])
    return entry, (image, paths)


def _void(library: ctypes.CDLL, name: str) -> Any:
    function = getattr(library, name)
    function.restype = None
    return function


def _device_in_use() -> int | None:
    """The device of the current context, if it can take new code now."""
    found = driver()
    device = found.current_device()
    if device is None:
        return None
    for stream in (RUNTIME.current_stream(device), 0):
        capturing = ctypes.c_int()
        status = found.function("cuStreamIsCapturing")(stream, ctypes.byref(capturing))
        if status or capturing.value:
            return None
    return device


def _without_compiler(artifact: CompiledArtifact, error: ToolchainError) -> CudaExecutable:
    from tilec.host.interpreted import Refused  # noqa: PLC0415 - only without a C compiler
    from tilec_cuda.launcher import PythonEntry  # noqa: PLC0415 - as above

    warn(
        f"kernel {artifact.name} is launched from Python, which takes longer per call: "
        f"{error.message}",
        hint=error.hint,
    )
    entry = PythonEntry(artifact, driver())
    device = _device_in_use()
    if device is not None:
        try:
            entry.prepare(device)
        except Refused as refused:
            raise KernelRuntimeError(refused.message) from refused
    return CudaExecutable(artifact, entry, None, None)


def available(target: Target) -> Availability:
    """Whether kernels can be compiled and run here."""
    from tilec_cuda.nvrtc import find_nvrtc  # noqa: PLC0415 - loads a large library

    del target
    reason = why_unusable()
    if reason:
        return Availability(False, reason)
    try:
        find_nvrtc()
    except ToolchainError as error:
        return Availability(False, error.message)
    return Availability(True)


def pycuda_available(target: Target) -> Availability:
    """Whether PyCUDA is there as well."""
    try:
        import pycuda.driver  # noqa: PLC0415, F401 - optional, asked for by name
    except ImportError as error:
        return Availability(False, f"pycuda cannot be imported ({error})")
    return available(target)


def load_for_pycuda(artifact: CompiledArtifact, context: BackendContext) -> CudaExecutable:
    """Load a kernel into the context that PyCUDA has made current.

    Raises:
        KernelRuntimeError: there is no current context.
    """
    if driver().current_device() is None:
        raise KernelRuntimeError(
            f"kernel {artifact.name}: PyCUDA has no current context",
            hint="import pycuda.autoprimaryctx first, or push a context of your own",
        )
    return load(artifact, context)


__all__ = [
    "CudaExecutable", "available", "load", "load_for_pycuda", "pycuda_available",
]  # fmt: skip
