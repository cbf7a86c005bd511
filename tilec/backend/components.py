"""What a backend is made of besides its pipeline: code generators, execution backends, runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from tilec.backend.artifact import (
        CompiledArtifact,
        DeviceProgram,
        HostProgram,
        KernelParam,
        LaunchInfo,
    )
    from tilec.backend.context import BackendContext
    from tilec.backend.target import Target
    from tilec.ir import BufferRegion, Call, DType, Expr, Module

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class DeviceCodegen(NamedTuple):
    """Turns the device module into a program.

    Attributes:
        name: for messages and listings.
        emit: ``(device_mod, context) -> DeviceProgram`` with source; must not call a compiler.
        compile: ``(program, context) -> DeviceProgram`` with a binary; None where an execution
            backend compiles.
    """

    name: str
    emit: Callable[[Module, BackendContext], DeviceProgram]
    compile: Callable[[DeviceProgram, BackendContext], DeviceProgram] | None = None


class HostInput(NamedTuple):
    """What a host code generator works from.

    Attributes:
        name: of the kernel.
        module: host functions in split form.
        params: of the kernel.
        out_idx: parameters that the caller may leave out.
        launches: by device function.
        device: the device program.
        context: of the compilation.
    """

    name: str
    module: Module
    params: tuple[KernelParam, ...]
    out_idx: tuple[int, ...]
    launches: Mapping[str, LaunchInfo]
    device: DeviceProgram
    context: BackendContext


class HostCodegen(NamedTuple):
    """Turns the host module into a program with the packed entry point.

    Attributes:
        name: what ``target_host`` calls it.
        emit: generates the program; must not call a compiler.
    """

    name: str
    emit: Callable[[HostInput], HostProgram]


class HostCodegenHook(NamedTuple):
    """A backend's change to the host module before a shared host code generator sees it.

    Attributes:
        name: for messages and listings.
        prepare: ``(host_mod, context) -> host_mod``, such as lowering launches to calls of the
            runtime.
    """

    name: str
    prepare: Callable[[Module, BackendContext], Module]


class Execution(Protocol):
    """What the meaning of an intrinsic sees of a program that the interpreter runs."""

    def value(self, node: Expr | int) -> Any:
        """The number behind an argument; where lanes differ, an array over them."""

    def read(self, region: BufferRegion) -> np.ndarray[Any, Any]:
        """The contents of a region, 0 where it lies outside of its buffer."""

    def write(self, region: BufferRegion, values: np.ndarray[Any, Any]) -> None:
        """Set the contents of a region; what lies outside of its buffer is dropped."""


Meaning = Callable[[Any, "Call", Any], Any]
"""``(execution, call, mask) -> value``: what the interpreter does for an intrinsic of a backend.

`mask` is True, or an array that says which lanes take part. What all lanes of a block do together
gets an `Execution`; in thread form it is the state of the lanes
(`tilec.interp.thread.values.LaneValues`), which can do more. None stands for the value 0.
"""


class Availability(NamedTuple):
    """Whether something can be used on this machine, and why (not)."""

    ok: bool
    reason: str = ""


def _available(target: Target) -> Availability:
    del target
    return Availability(True)


class Executable(Protocol):
    """A loaded kernel.

    Calling it takes one argument per parameter that is not an output (`CompiledArtifact.inputs`),
    in the order of the source, checks them and runs the kernel on them. Outputs are allocated on
    the device of the inputs and returned: one as it is, several as a list, none as None. It raises
    `ArgumentCountError`, `ArgumentTypeError` or `ArgumentValueError` for arguments that do not
    fit, `OutputAllocationError` and, where the kernel itself fails, `KernelRuntimeError`.
    """

    @property
    def artifact(self) -> CompiledArtifact:
        """What it was loaded from, with the binaries that loading made."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Run the kernel; the outputs.

        Args:
            args: the inputs.
            keywords: ``stream=`` where the runtime has streams; nothing else is passed.
        """


class ExecutionBackendSpec(NamedTuple):
    """How an artifact is compiled, loaded and launched.

    Attributes:
        name: what ``execution_backend=`` calls it.
        load: ``(artifact, context) -> Executable``.
        available: whether it works for a target on this machine; must be quick and not raise.
        enable_host_codegen: whether it needs a host program.
        enable_device_compile: whether it needs a compiled device program.
        doc: one line for listings.
    """

    name: str
    load: Callable[[CompiledArtifact, BackendContext], Executable]
    available: Callable[[Target], Availability] = _available
    enable_host_codegen: bool = True
    enable_device_compile: bool = False
    doc: str = ""


class ToolchainInfo(NamedTuple):
    """The external compiler of a target.

    Attributes:
        name: for people, such as ``gcc 12.2``.
        identity: changes whenever generated binaries could; part of cache keys.
        flags: used by default.
        details: further facts for ``tilec doctor``, by name.
    """

    name: str
    identity: str
    flags: tuple[str, ...] = ()
    details: Mapping[str, str] = _EMPTY


def _no_stream(device_index: int) -> int:
    del device_index
    return 0


def _no_wait(device_index: int) -> None:
    del device_index


class ForeignTensor(NamedTuple):
    """A tensor of a framework without DLPack, as its backend understands it.

    Attributes:
        data: address of the first element.
        shape: extents.
        strides: in elements; None for contiguous row-major.
        dtype: name of the element type.
        device_index: where the memory is.
        read_only: whether it must not be written.
    """

    data: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device_index: int
    read_only: bool = False


class Measurement(NamedTuple):
    """What a timer measures.

    Attributes:
        fn: does the work; asynchronous work goes to the current stream.
        repeat: number of measured calls.
        before: run before each call, not measured; None for nothing.
        device: index; below 0 for the current one.
    """

    fn: Callable[[], object]
    repeat: int
    before: Callable[[], object] | None = None
    device: int = -1


Timer = Callable[[Measurement], Sequence[float]]
"""``(measurement) -> seconds of each call``, measured on the device."""


class RuntimeShim(NamedTuple):
    """What the host side needs from a device's runtime; the defaults are those of host memory.

    A device index below 0 stands for the current device.

    Attributes:
        dlpack_device: DLPack device code of the tensors that kernels take.
        torch_device: name under which torch knows the device, and messages too.
        current_stream: raw handle of the current stream of a device.
        synchronize: waits until a device is idle.
        stream_handle: the raw handle of what a user gives as ``stream=``; raises
            `ArgumentTypeError` for anything else. None where there are no streams.
        dlpack_stream: what ``__dlpack__(stream=)`` takes for a raw handle.
        describe: understands tensors without DLPack; None for what is no tensor.
        allocate: ``(like, shape, dtype, device_index) -> tensor`` for outputs, uninitialised, of
            the framework of the argument `like`; None where an ordinary array will do.
        timers: ways to measure time on the device, by name, the preferred one first; the host's
            clock is always there.
        evict: ``(bytes) -> fn``, which writes that many bytes on the current stream, so that
            nothing measured next is in a cache.
    """

    dlpack_device: int = 1
    torch_device: str = "cpu"
    current_stream: Callable[[int], int] = _no_stream
    synchronize: Callable[[int], None] = _no_wait
    stream_handle: Callable[[object], int] | None = None
    dlpack_stream: Callable[[int], object] | None = None
    describe: Callable[[object], ForeignTensor | None] | None = None
    allocate: Callable[[object, Sequence[int], DType, int], Any] | None = None
    timers: Mapping[str, Timer] = _EMPTY
    evict: Callable[[int], Callable[[], object]] | None = None
