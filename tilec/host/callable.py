"""A packed host function as something that Python can call."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilec.diagnostics import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    KernelRuntimeError,
    TilecError,
    ToolchainError,
)
from tilec.host.abi import CPU
from tilec.host.outputs import OutputAllocator
from tilec.host.packing import (
    Frame,
    Packer,
    ScalarPacker,
    TensorPacker,
    capsule_pointer,
    ffi,
    packed_kinds,
    packers,
)
from tilec.host.support import CALLER, ERROR_KIND, ERROR_MESSAGE

if TYPE_CHECKING:
    from tilec.backend.artifact import KernelParam
    from tilec.backend.components import RuntimeShim

_ERRORS: dict[str, type[TilecError]] = {
    "TypeError": ArgumentTypeError,
    "ValueError": ArgumentValueError,
}
_FIELD = re.compile(r"argument (?P<name>\S+): (?P<field>device|strides|dtype|data)")

Slot = tuple[int, int, TensorPacker | None, ScalarPacker | None]
"""Position of a parameter, that of its value in a frame, and what packs it."""


class Entry(Protocol):
    """A packed host function.

    Attributes:
        name: what messages call it where nothing else is known.
    """

    name: str

    def call(self, args: Any, count: int, result: Any) -> int:
        """Call it with cffi pointers to packed values; its status."""

    def error(self) -> tuple[str, str]:
        """Kind and message of this thread's last failure."""


class NativeEntry:
    """A packed function of a shared library.

    Attributes:
        name: of the kernel.
    """

    def __init__(self, library: str | Path | ctypes.CDLL, symbol: str, name: str = "") -> None:
        """Look it up.

        Raises:
            ToolchainError: the library cannot be loaded or lacks the function.
        """
        self.name = name or symbol.removeprefix("__tvm_ffi_")
        self._library = _load(library)
        c, find = ffi(), self._find
        self._function = c.cast("int32_t(*)(void*, TVMFFIAny*, int32_t, TVMFFIAny*)", find(symbol))
        self._self = c.cast("void*", find(CALLER))
        self._kind = c.cast("const char*(*)(void)", find(ERROR_KIND))
        self._message = c.cast("const char*(*)(void)", find(ERROR_MESSAGE))

    def _find(self, symbol: str) -> int:
        try:
            address = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        except AttributeError:
            address = None
        if address is None:
            raise ToolchainError(f"the library of kernel {self.name} has no symbol {symbol}")
        return address

    def call(self, args: Any, count: int, result: Any) -> int:
        """Call it; the interpreter is free meanwhile."""
        return self._function(self._self, args, count, result)  # type: ignore[no-any-return]

    def error(self) -> tuple[str, str]:
        """What the stub recorded."""
        c = ffi()
        message = c.string(self._message()).decode(errors="replace")
        return c.string(self._kind()).decode(), message


class HostCallable:
    """One kernel of a loaded library.

    Calling it takes the parameters that are not outputs, by position, and returns the outputs: None
    without any, a tensor if there is one, else a list. `launch` takes all parameters.

    Several threads may call one object at the same time; the interpreter is free during the call.

    Attributes:
        name: of the kernel.
        params: of the kernel.
        out_idx: positions of the parameters that are allocated and returned.
    """

    def __init__(
        self,
        library: str | Path | ctypes.CDLL | Entry,
        symbol: str,
        params: Sequence[KernelParam],
        out_idx: Sequence[int] = (),
        name: str = "",
        *,
        device_type: int = CPU,
        runtime: RuntimeShim | None = None,
    ) -> None:
        """Look a packed function up.

        Args:
            library: a shared library built from `generate_host_source`, or its path; or a packed
                function that was found otherwise.
            symbol: name of the packed function.
            params: of the kernel, with their IR nodes.
            out_idx: positions of the outputs to allocate.
            name: of the kernel, for messages; by default that of the symbol.
            device_type: DLPack's number of the device that runs the kernel.
            runtime: of that device; it has the last word on the number.

        Raises:
            ToolchainError: the library cannot be loaded or lacks the function.
            ShapeError: an output whose shape no input determines.
        """
        if isinstance(library, (str, Path, ctypes.CDLL)):
            library = NativeEntry(library, symbol, name)
        self.name = name or library.name
        self.params = tuple(params)
        self.out_idx = tuple(sorted(out_idx))
        self._entry = library
        self._call = library.call
        self._runtime = runtime
        if runtime is not None:
            device_type = runtime.dlpack_device
        self._packers = packers(self.name, self.params, device_type, runtime)
        self._kinds = tuple(packed_kinds(self._packers))
        self._slots = [_slot(i, packer) for i, packer in enumerate(self._packers)]
        self._tensors = [i for i, p in enumerate(self._packers) if isinstance(p, TensorPacker)]
        self._streams = runtime is not None and runtime.stream_handle is not None
        self._outputs = OutputAllocator(self.name, self.params, self.out_idx, runtime)
        self._inputs = tuple(i for i in range(len(self.params)) if i not in self.out_idx)
        self._input_slots = [self._slots[i] for i in self._inputs]
        self._output_slots = [self._slots[i] for i in self.out_idx]
        # Frames are handed out and taken back by atomic list operations, so that no two calls
        # share one, whichever threads they come from and however they nest.
        self._frames: list[Frame] = [Frame(self._kinds)]

    def __repr__(self) -> str:
        names = ", ".join(self.params[i].name for i in self._inputs)
        return f"<kernel {self.name}({names})>"

    def __call__(self, *args: Any, stream: Any = None) -> Any:
        """Run the kernel on its inputs and return its outputs.

        Args:
            args: the inputs.
            stream: on which the device runs it; the current stream of the tensors' device by
                default.

        Raises:
            ArgumentCountError, ArgumentTypeError, ArgumentValueError: arguments that do not fit.
            OutputAllocationError: an output cannot be allocated.
            KernelRuntimeError: the kernel failed.
        """
        if len(args) != len(self._inputs):
            raise self._count_error(len(args), self._inputs)
        if not self.out_idx:
            self._run(args, stream=stream)
            return None
        values: list[Any] = [None] * len(self.params)
        for position, value in zip(self._inputs, args, strict=True):
            values[position] = value
        results = self._run(values, allocate=True, stream=stream)
        return results[0] if len(results) == 1 else results

    def launch(self, *args: Any, stream: Any = None) -> None:
        """Run the kernel on all its parameters, outputs included.

        Args:
            args: the parameters.
            stream: see `__call__`.

        Raises:
            ArgumentCountError, ArgumentTypeError, ArgumentValueError: arguments that do not fit.
            KernelRuntimeError: the kernel failed.
        """
        if len(args) != len(self.params):
            raise self._count_error(len(args), range(len(self.params)))
        self._run(args, stream=stream)

    def _count_error(self, given: int, wanted: Sequence[int]) -> ArgumentCountError:
        names = ", ".join(self.params[i].name for i in wanted)
        return ArgumentCountError(
            f"Kernel expected {len(wanted)} inputs, but {given} are provided",
            notes=(f"{self.name}({names})",),
        )

    def _run(
        self, values: Sequence[Any], *, allocate: bool = False, stream: Any = None
    ) -> list[Any]:
        keep: list[Any] = []
        results: list[Any] = []
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self._kinds)
        if frame.dirty:
            frame.reset()
        if allocate:
            self._pack(frame, self._input_slots, values, keep)
            results = self._outputs.allocate(values, frame)
            full = list(values)
            for position, result in zip(self.out_idx, results, strict=True):
                full[position] = result
            self._pack(frame, self._output_slots, full, keep)
        else:
            self._pack(frame, self._slots, values, keep)
        if self._streams or stream is not None:
            frame.stream[1] = self._stream(frame, stream)
        status = self._call(frame.args, len(self._slots), frame.result)
        if status != 0:
            raise self._error(values)
        self._frames.append(frame)
        return results

    def _stream(self, frame: Frame, given: Any) -> int:
        """The raw handle of the stream to run on."""
        runtime = self._runtime
        if runtime is None or runtime.stream_handle is None:
            raise ArgumentTypeError(f"kernel {self.name} runs on the host, which has no streams")
        if given is not None:
            return runtime.stream_handle(given)
        for position in self._tensors:
            device = frame.device_of(position)
            if device >= 0:
                return runtime.current_stream(device)
        return runtime.current_stream(-1)

    def _pack(
        self, frame: Frame, slots: Sequence[Slot], values: Sequence[Any], keep: list[Any]
    ) -> None:
        """Write values into a frame; a loop without calls for plain arrays."""
        ints, array = frame.ints, np.ndarray
        for position, word, tensor, scalar in slots:
            value = values[position]
            if tensor is not None:
                if type(value) is array:
                    try:
                        capsule = value.__dlpack__()
                    except (BufferError, TypeError, ValueError):
                        ints[word] = tensor(value, keep)
                    else:
                        keep.append(capsule)
                        ints[word] = capsule_pointer(capsule, b"dltensor")
                elif value is None:  # the stub knows whether it may be
                    frame.clear(position)
                else:
                    ints[word] = tensor(value, keep)
            elif scalar is not None:
                if scalar.is_float:
                    frame.floats[word] = scalar.real(value)
                else:
                    ints[word] = scalar.integer(value)

    def _error(self, values: Sequence[Any]) -> TilecError:
        """The stub's last error in this thread as an exception."""
        kind, message = self._entry.error()
        error = _ERRORS.get(kind, KernelRuntimeError)(message)
        found = _FIELD.search(message)
        if found is not None and not isinstance(error, KernelRuntimeError):
            error.hint = self._hint(found["name"], found["field"], message, values)
        return error

    def _hint(self, name: str, field: str, message: str, values: Sequence[Any]) -> str | None:
        value = next((v for p, v in zip(self.params, values, strict=True) if p.name == name), None)
        if field == "device":
            device = getattr(value, "device", None)
            return None if device is None else f"{name} is on {device}"
        if field == "data" and "aligned" in message:
            return f"the kernel reads several elements at once: pass a copy of {name}"
        if field == "strides":
            if isinstance(value, np.ndarray):
                return f"nothing is copied silently: pass numpy.ascontiguousarray({name})"
            if hasattr(value, "contiguous"):
                return f"nothing is copied silently: pass {name}.contiguous()"
        return None


def _slot(position: int, packer: Packer) -> Slot:
    if isinstance(packer, TensorPacker):
        return position, 2 * position + 1, packer, None
    return position, 2 * position + 1, None, packer


def _load(library: str | Path | ctypes.CDLL) -> ctypes.CDLL:
    if isinstance(library, ctypes.CDLL):
        return library
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ToolchainError(f"the kernel library cannot be loaded: {error}") from error
