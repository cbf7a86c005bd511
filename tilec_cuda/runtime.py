"""Tensors and outputs of the frameworks that kernels are called from.

Frameworks are used where the program has imported them; none is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tilec.backend import ForeignTensor, RuntimeShim
from tilec.diagnostics import ArgumentTypeError, OutputAllocationError
from tilec.host.packing import type_text
from tilec.ir import DType
from tilec_cuda.driver import driver
from tilec_cuda.streams import current_stream, dlpack_stream, stream_handle
from tilec_cuda.timers import TIMERS, evict

DLPACK_DEVICE = 2
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float"}


def synchronize(device: int) -> None:
    """Wait until a device is idle."""
    found = driver()
    index = found.current_device() if device < 0 else device
    with found.on(0 if index is None else index):
        found.call("cuCtxSynchronize")


def describe(value: object) -> ForeignTensor | None:
    """A tensor that only has ``__cuda_array_interface__``, such as PyCUDA's and Numba's.

    Raises:
        ArgumentTypeError: of an element type that tilec does not have, or masked.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return None
    if interface.get("mask") is not None:
        raise ArgumentTypeError("a masked array cannot be a kernel argument")
    text = str(interface["typestr"])
    kind, size = text[1], int(text[2:])
    if kind not in _KINDS or text[0] == (">" if sys.byteorder == "little" else "<"):
        raise ArgumentTypeError(f"elements of type {text!r} cannot be passed to a kernel")
    dtype = "bool" if kind == "b" else f"{_KINDS[kind]}{8 * size}"
    strides = interface.get("strides")
    if strides is not None:
        if any(step % size for step in strides):
            raise ArgumentTypeError(f"strides {tuple(strides)} are not multiples of {size} bytes")
        strides = tuple(step // size for step in strides)
    data, read_only = interface["data"]
    device = _device_of(int(data or 0))
    return ForeignTensor(
        int(data or 0), tuple(interface["shape"]), strides, dtype, device, bool(read_only)
    )


def _device_of(address: int) -> int:
    """The device that holds an address; the current one for what is empty."""
    import ctypes  # noqa: PLC0415 - only for frameworks without DLPack

    found = driver()
    found.start()
    ordinal = ctypes.c_int()
    if address and not found.function("cuPointerGetAttribute")(ctypes.byref(ordinal), 9, address):
        return ordinal.value
    return found.current_device() or 0


def allocate(like: object, shape: Sequence[int], dtype: DType, device: int) -> Any:
    """An uninitialised tensor for an output, of the framework of an argument.

    Raises:
        OutputAllocationError: the framework is not known, or lacks the dtype.
    """
    root = type(like).__module__.partition(".")[0]
    known = _MAKERS.get(root)
    if like is None and known is None:
        known = _like_torch if "torch" in sys.modules else None
    made = None if known is None else known(like, tuple(shape), dtype, device)
    if made is None:
        kind = "no tensor" if like is None else type_text(like)
        raise OutputAllocationError(
            f"an output {tuple(shape)} {dtype!s} cannot be allocated like {kind}",
            hint="pass the output as an argument",
        )
    return made


def _like_torch(like: Any, shape: tuple[int, ...], dtype: DType, device: int) -> Any:
    del like
    torch = sys.modules["torch"]
    kind = getattr(torch, "float32" if dtype.code == "tfloat" else str(dtype), None)
    if kind is None:
        return None
    return torch.empty(shape, dtype=kind, device="cuda" if device < 0 else f"cuda:{device}")


def _like_cupy(like: Any, shape: tuple[int, ...], dtype: DType, device: int) -> Any:
    del like
    cupy = sys.modules["cupy"]
    kind = _numpy_dtype(dtype)
    if kind is None:
        return None
    with cupy.cuda.Device(max(device, 0)):
        return cupy.empty(shape, dtype=kind)


def _like_jax(like: Any, shape: tuple[int, ...], dtype: DType, device: int) -> Any:
    """A fresh array; nobody else has seen its memory, so that the kernel may write it."""
    del device
    numpy = sys.modules["jax"].numpy
    kind = getattr(numpy, str(dtype), None)
    if kind is None:
        return None
    made = numpy.empty(shape, dtype=kind, device=next(iter(like.devices())))
    return made.block_until_ready()


def _like_pycuda(like: Any, shape: tuple[int, ...], dtype: DType, device: int) -> Any:
    del device
    kind = _numpy_dtype(dtype)
    return None if kind is None else type(like)(shape, kind)


def _numpy_dtype(dtype: DType) -> Any:
    import numpy as np  # noqa: PLC0415 - only for frameworks that build on it

    try:
        return np.dtype("float32" if dtype.code == "tfloat" else str(dtype))
    except TypeError:
        ml_dtypes = sys.modules.get("ml_dtypes")
        kind = getattr(ml_dtypes, str(dtype), None)
        return None if kind is None else np.dtype(kind)


_MAKERS = {
    "torch": _like_torch, "cupy": _like_cupy, "jax": _like_jax, "jaxlib": _like_jax,
    "pycuda": _like_pycuda,
}  # fmt: skip

RUNTIME = RuntimeShim(
    dlpack_device=DLPACK_DEVICE,
    torch_device="cuda",
    current_stream=current_stream,
    synchronize=synchronize,
    stream_handle=stream_handle,
    dlpack_stream=dlpack_stream,
    describe=describe,
    allocate=allocate,
    timers=TIMERS,
    evict=evict,
)
