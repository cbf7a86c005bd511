"""Call arguments as packed values, without copying data.

A tensor argument becomes the address of a `DLTensor`. Mostly that is the one of a DLPack capsule,
which is only borrowed: the capsule is not consumed, so it frees its tensor when it dies, after the
call. For arrays that cannot export a capsule, such as read-only ones, a description is made here.
What the stub checks is not checked again.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec import ir
from tilec.diagnostics import ArgumentTypeError, ArgumentValueError, DTypeError, TilecError
from tilec.host.abi import HOST_MEMORY, TypeIndex, device_name, dlpack_dtype
from tilec.ir import DType

if TYPE_CHECKING:
    from tilec.backend.artifact import KernelParam
    from tilec.backend.components import ForeignTensor, RuntimeShim

Keep = list[Any]
"""What must stay alive until the call returns."""

_READ_ONLY, _COPIED = 1, 2  # flags of versioned DLPack tensors
_VERSIONED_TENSOR_OFFSET = 32
_MAJOR_VERSION = 1
_DEVICE_ID = 3  # position in a DLTensor, counted in int32


@functools.cache
def ffi() -> Any:
    """The cffi instance that knows the ABI; cffi is imported by the first kernel call only."""
    from tilec.host._cffi_abi import ffi as parsed  # noqa: PLC0415 - `import tilec` spends nothing

    return parsed


@functools.cache
def tensor_type() -> Any:
    """The cffi type of a pointer to a tensor's description."""
    return ffi().typeof("DLTensor*")


def _capsule_function(name: str, result: Any, *args: Any) -> Any:
    # A fresh object: the attributes of `ctypes.pythonapi` itself are shared with other libraries.
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, *args)((name, ctypes.pythonapi))


capsule_pointer = _capsule_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_char_p)
_capsule_name = _capsule_function("PyCapsule_GetName", ctypes.c_char_p)
_DLTENSOR, _VERSIONED = b"dltensor", b"dltensor_versioned"


class Frame:
    """Memory for the packed arguments of one call; used by one call at a time.

    Attributes:
        args: the array of packed values.
        heads: the same memory as int32: the type index of argument ``i`` is at ``4 * i``.
        ints, floats: the same memory as int64 and double: its value is at ``2 * i + 1``.
        result: the packed result. Our own caller hands the stream over in it, as a pointer.
        stream: the same memory: the raw handle of the stream is at 1.
        dirty: whether an argument has another kind than its parameter.
    """

    __slots__ = (
        "_cast", "_kinds", "_words", "args", "dirty", "floats", "heads", "ints", "result", "stream",
    )  # fmt: skip

    def __init__(self, kinds: Sequence[TypeIndex]) -> None:
        c = ffi()
        self.args = c.new("TVMFFIAny[]", max(len(kinds), 1))
        self.heads = c.cast("int32_t*", self.args)
        self.ints = c.cast("int64_t*", self.args)
        self.floats = c.cast("double*", self.args)
        self.result = c.new("TVMFFIAny*")
        self.result.type_index = TypeIndex.OPAQUE_POINTER
        self.stream = c.cast("int64_t*", self.result)
        self._kinds = kinds
        self._cast, self._words = c.cast, c.typeof("int32_t*")
        self.dirty = False
        self.reset()

    def reset(self) -> None:
        """Give every argument the kind of its parameter."""
        for position, kind in enumerate(self._kinds):
            self.heads[4 * position] = kind
        self.dirty = False

    def clear(self, position: int) -> None:
        """Make an argument None, for this call."""
        self.heads[4 * position] = TypeIndex.NONE
        self.ints[2 * position + 1] = 0
        self.dirty = True

    def device_of(self, position: int) -> int:
        """The device index of a packed tensor; -1 for None."""
        address = self.ints[2 * position + 1]
        return self._cast(self._words, address)[_DEVICE_ID] if address else -1


def type_text(value: object) -> str:
    """What messages call the type of an argument."""
    kind = type(value)
    if value is None:
        return "None"
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


class TensorPacker:
    """Turns one tensor argument into the address of a `DLTensor`.

    Attributes:
        name: of the parameter.
        where: ``kernel <kernel>: argument <name>``, the start of every message.
    """

    def __init__(
        self, kernel: str, param: KernelParam, device_type: int, runtime: RuntimeShim | None = None
    ) -> None:
        self.name = param.name
        self.where = f"kernel {kernel}: argument {param.name}"
        self._param = param
        self._runtime = runtime
        self._devices = HOST_MEMORY if device_type in HOST_MEMORY else (device_type,)

    def __call__(self, value: Any, keep: Keep) -> int:
        """The address of the tensor's description; what owns it is appended to `keep`.

        Raises:
            ArgumentTypeError: not a tensor, or one of a kind that kernels cannot use.
            ArgumentValueError: a tensor that is read-only, lazy, or elsewhere.
        """
        if isinstance(value, np.ndarray):
            return self._numpy(value, keep)
        torch = sys.modules.get("torch")
        # torch's own instance check is slow; its plain tensors are known by their type.
        if torch is not None and (type(value) is torch.Tensor or isinstance(value, torch.Tensor)):
            return self._torch(torch, value, keep)
        if hasattr(type(value), "__dlpack__"):
            return self._dlpack(value, keep)
        if self._runtime is not None and self._runtime.describe is not None:
            found = self._runtime.describe(value)
            if found is not None:
                keep.append(value)
                return self._foreign(found, keep)
        raise self._no_tensor(value)

    def _no_tensor(self, value: object) -> ArgumentTypeError:
        shape = ir.shape_text(self._param.shape)
        error = ArgumentTypeError(
            f"{self.where}: expected a tensor {shape} {self._param.dtype!s}, got {type_text(value)}"
        )
        if value is not None:
            error.hint = "pass a NumPy array, or an object with __dlpack__; nothing is converted"
        return error

    def _read_only(self, what: str) -> ArgumentValueError:
        return ArgumentValueError(
            f"{self.where}: the {what} is read-only, but the kernel writes it",
            hint=f"pass a writable copy of {self.name}",
        )

    # NumPy

    def _numpy(self, value: Any, keep: Keep) -> int:
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(value, masked.MaskedArray):
            raise ArgumentTypeError(
                f"{self.where}: expected a plain array, got a masked array",
                hint="kernels know no masks; pass its .filled(...) or .data",
            )
        try:
            capsule = value.__dlpack__()
        except (BufferError, TypeError, ValueError):
            return self._described(value, keep)
        keep.append(capsule)
        return capsule_pointer(capsule, _DLTENSOR)  # type: ignore[no-any-return]

    def _described(self, value: Any, keep: Keep) -> int:
        """An array that exports no capsule: read-only, of a foreign dtype, or unusable."""
        if not value.flags.writeable and self._param.written:
            raise self._read_only("array")
        dtype = self._numpy_dtype(value.dtype)
        size = value.dtype.itemsize
        strides = []
        for axis, stride in enumerate(value.strides):
            if stride % size and value.shape[axis] > 1 and value.size:
                raise ArgumentValueError(
                    f"{self.where}: strides[{axis}] expected a multiple of {size} bytes, "
                    f"got {stride}"
                )
            strides.append(stride // size)
        keep.append(value)
        address = value.__array_interface__["data"][0]
        device = (HOST_MEMORY[0], 0)
        return _describe(address, device, dtype, value.shape, strides, keep)

    def _foreign(self, found: ForeignTensor, keep: Keep) -> int:
        """A tensor that the runtime has described."""
        if found.read_only and self._param.written:
            raise self._read_only("tensor")
        try:
            dtype = DType(found.dtype)
        except DTypeError:
            raise ArgumentTypeError(
                f"{self.where}: dtype expected {self._param.dtype!s}, got {found.dtype}"
            ) from None
        device = (self._devices[0], found.device_index)
        return _describe(found.data, device, dtype, found.shape, found.strides, keep)

    def _numpy_dtype(self, dtype: Any) -> DType:
        if not dtype.isnative:
            raise ArgumentTypeError(
                f"{self.where}: dtype expected {self._param.dtype!s}, got {dtype.name} in "
                f"non-native byte order ({dtype.str})",
                hint=f'convert it: {self.name}.astype({self.name}.dtype.newbyteorder("="))',
            )
        try:
            known = DType.of(dtype)
        except DTypeError:
            known = None
        if known is None or known.lanes != 1 or known.bits != 8 * dtype.itemsize:
            raise ArgumentTypeError(
                f"{self.where}: dtype expected {self._param.dtype!s}, got {dtype.name}"
            )
        return known

    # torch

    def _torch(self, torch: Any, value: Any, keep: Keep) -> int:
        try:
            if value.requires_grad:
                raise ArgumentValueError(
                    f"{self.where}: the tensor requires grad, and kernels are not differentiated",
                    hint=f"pass {self.name}.detach()",
                )
            if value.is_neg():
                raise ArgumentValueError(
                    f"{self.where}: the tensor is a lazily negated view",
                    hint=f"pass {self.name}.resolve_neg()",
                )
            try:
                capsule = torch.utils.dlpack.to_dlpack(value)
            except (BufferError, TypeError, RuntimeError) as error:
                return self._torch_described(value, keep, error)
            keep.append(capsule)
            return capsule_pointer(capsule, _DLTENSOR)  # type: ignore[no-any-return]
        except TilecError:
            raise
        except Exception as error:
            raise self._not_exported(value, error) from error

    def _torch_described(self, value: Any, keep: Keep, error: Exception) -> int:
        """A tensor that torch does not export, such as one of a dtype that DLPack has lately."""
        where = value.device.type
        on_device = self._runtime is not None and where == self._runtime.torch_device
        if not (on_device or where == "cpu") or value.layout is not sys.modules["torch"].strided:
            raise error
        try:
            dtype = DType(str(value.dtype).removeprefix("torch."))
        except DTypeError:
            raise error from None
        keep.append(value)
        device = (self._devices[0] if on_device else HOST_MEMORY[0], value.device.index or 0)
        return _describe(value.data_ptr(), device, dtype, value.shape, value.stride(), keep)

    # anything else

    def _not_exported(self, value: Any, error: Exception) -> ArgumentTypeError:
        detail = str(error).strip().splitlines()
        return ArgumentTypeError(
            f"{self.where}: {type_text(value)} cannot be exported through DLPack: "
            f"{detail[0] if detail else type(error).__name__}"
        )

    def _dlpack(self, value: Any, keep: Keep) -> int:
        try:
            capsule = _export(value, self._check_device(value))
            name = _capsule_name(capsule)
        except TilecError:
            raise
        except Exception as error:
            raise self._not_exported(value, error) from error
        keep.append(capsule)
        if name == _DLTENSOR:
            return capsule_pointer(capsule, _DLTENSOR)  # type: ignore[no-any-return]
        if name == _VERSIONED:
            return self._versioned(capsule_pointer(capsule, _VERSIONED))
        raise ArgumentTypeError(
            f"{self.where}: {type_text(value)}.__dlpack__ returned no fresh DLPack capsule"
        )

    def _check_device(self, value: Any) -> dict[str, Any]:
        """How the object is asked for its memory.

        Objects elsewhere are refused before they are asked to synchronise or to copy.
        """
        asked = getattr(value, "__dlpack_device__", None)
        if asked is None:
            return {}
        kind, index = asked()
        if int(kind) not in self._devices:
            shown = getattr(value, "device", None)
            known = f"device type {int(kind)}, index {int(index)}"
            if int(kind) in HOST_MEMORY:
                known = "cpu"
            raise ArgumentValueError(
                f"{self.where}: device expected {self._device_text()}, got {known}",
                hint=None if shown is None else f"{self.name} is on {shown}",
            )
        runtime = self._runtime
        if runtime is None or runtime.dlpack_stream is None:
            return {}
        return {"stream": runtime.dlpack_stream(runtime.current_stream(int(index)))}

    def _device_text(self) -> str:
        if self._runtime is not None:
            return self._runtime.torch_device
        return device_name(self._devices[0])

    def _versioned(self, address: int) -> int:
        c = ffi()
        major = int(c.cast("uint32_t*", address)[0])
        if major != _MAJOR_VERSION:
            raise ArgumentTypeError(
                f"{self.where}: DLPack version {major} is not supported, only "
                f"version {_MAJOR_VERSION} is"
            )
        flags = int(c.cast("uint64_t*", address)[3])
        if self._param.written and flags & _READ_ONLY:
            raise self._read_only("tensor")
        if self._param.written and flags & _COPIED:
            raise ArgumentValueError(
                f"{self.where}: the kernel writes it, but its exporter gave a copy"
            )
        return address + _VERSIONED_TENSOR_OFFSET


def _export(value: Any, keywords: dict[str, Any]) -> Any:
    try:
        return value.__dlpack__(max_version=(1, 1), **keywords)
    except TypeError:  # an exporter from before versions
        return value.__dlpack__(**keywords)


def _describe(
    address: int,
    device: tuple[int, int],
    dtype: DType,
    shape: Sequence[int],
    strides: Sequence[int] | None,
    keep: Keep,
) -> int:
    """The address of a fresh description of a tensor; strides are in elements."""
    c = ffi()
    tensor = c.new("DLTensor*")
    shape_array = c.new("int64_t[]", list(shape) or 1)
    keep.extend((tensor, shape_array))
    if strides is not None:
        stride_array = c.new("int64_t[]", list(strides) or 1)
        keep.append(stride_array)
        tensor.strides = stride_array
    tensor.data = c.cast("void*", address)
    tensor.device.device_type, tensor.device.device_id = device
    tensor.ndim = len(shape)
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = dlpack_dtype(dtype)
    tensor.shape = shape_array
    return int(c.cast("intptr_t", tensor))


class ScalarPacker:
    """Turns one scalar argument into a Python number that fits the parameter.

    int parameters take ints and bools in range; float parameters any real number; bool parameters
    bools and ints. NumPy scalars count as what they hold.
    """

    def __init__(self, kernel: str, param: KernelParam) -> None:
        self.name = param.name
        self.where = f"kernel {kernel}: argument {param.name}"
        self.dtype = param.dtype
        self.is_float = param.dtype.is_float
        self._low, self._high = (0, 0) if self.is_float else param.dtype.int_range
        self._wraps = param.dtype == DType("uint64")

    @property
    def kind(self) -> TypeIndex:
        """How the number is packed."""
        return TypeIndex.FLOAT if self.is_float else TypeIndex.INT

    def integer(self, value: Any) -> int:
        """The value of an int or bool parameter, as the signed number that is packed.

        Raises:
            ArgumentTypeError: not an integer.
            ArgumentValueError: out of range.
        """
        number = value if isinstance(value, int) else self._index(value)
        if self.dtype.is_bool:
            return 1 if number else 0
        if not self._low <= number <= self._high:
            raise ArgumentValueError(
                f"{self.where}: expected {self.dtype!s} ({self._low} to {self._high}), "
                f"got {_number_text(number)}"
            )
        # The packed form is signed; the stub reads the bits back.
        return number - 2**64 if self._wraps and number >= 2**63 else number

    def _index(self, value: Any) -> int:
        if isinstance(value, np.bool_):
            return int(value)
        try:
            return operator.index(value)
        except Exception:  # noqa: BLE001 - a foreign __index__ may raise anything
            raise self._wrong(value) from None

    def real(self, value: Any) -> float:
        """The value of a float parameter.

        Raises:
            ArgumentTypeError: not a real number.
            ArgumentValueError: an int that no float can hold.
        """
        if type(value) is float:
            return value
        if isinstance(value, (np.bool_, np.number)) and not isinstance(value, np.complexfloating):
            return float(value)
        kind = type(value)
        if not hasattr(kind, "__float__") and not hasattr(kind, "__index__"):
            raise self._wrong(value)
        is_array = hasattr(kind, "__array__")
        if is_array and (
            getattr(value, "ndim", None) or "complex" in str(getattr(value, "dtype", ""))
        ):
            raise self._wrong(value)
        try:
            return float(value)
        except OverflowError:
            raise ArgumentValueError(
                f"{self.where}: expected {self.dtype!s}, got {_number_text(value)}"
            ) from None
        except Exception:  # noqa: BLE001 - a foreign __float__ may raise anything
            raise self._wrong(value) from None

    def _wrong(self, value: object) -> ArgumentTypeError:
        kind = "a float" if self.is_float else "a bool" if self.dtype.is_bool else "an int"
        shown = kind if self.dtype.is_bool else f"{kind} ({self.dtype!s})"
        return ArgumentTypeError(f"{self.where}: expected {shown}, got {type_text(value)}")


def _number_text(value: Any) -> str:
    """An int in words; Python refuses to print very long ones."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an int of {value.bit_length()} bits"
    return str(value)


Packer = TensorPacker | ScalarPacker


def packers(
    kernel: str,
    params: Sequence[KernelParam],
    device_type: int,
    runtime: RuntimeShim | None = None,
) -> tuple[Packer, ...]:
    """One packer per parameter."""
    return tuple(
        ScalarPacker(kernel, p) if p.by_value else TensorPacker(kernel, p, device_type, runtime)
        for p in params
    )


def packed_kinds(packed: Sequence[Packer]) -> Iterator[TypeIndex]:
    """How each argument is packed."""
    for packer in packed:
        yield TypeIndex.DLTENSOR_POINTER if isinstance(packer, TensorPacker) else packer.kind
