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
    from tilec.ir import BufferRegion, Call, Expr, Module

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
        """What it was loaded from."""

    def __call__(self, *args: Any) -> Any:
        """Run the kernel; the outputs."""


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


class RuntimeShim(NamedTuple):
    """What the host side needs from a device's runtime; the defaults are those of host memory.

    Attributes:
        dlpack_device: DLPack device code of the tensors that kernels take.
        torch_device: name under which torch knows the device.
        current_stream: raw handle of the current stream of a device.
        synchronize: waits until a device is idle.
        allocate: ``(shape, dtype, device_index) -> tensor`` for outputs; None where an ordinary
            array of the arguments' framework will do.
        timer: ``(fn, repeat) -> seconds of each call`` measured on the device; None for the
            host's clock.
    """

    dlpack_device: int = 1
    torch_device: str = "cpu"
    current_stream: Callable[[int], int] = _no_stream
    synchronize: Callable[[int], None] = _no_wait
    allocate: Callable[[Sequence[int], str, int], Any] | None = None
    timer: Callable[[Callable[[], object], int], Sequence[float]] | None = None
