"""Streams: the current one of the framework in use, and what users give as ``stream=``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tilec.diagnostics import ArgumentTypeError
from tilec.host.packing import type_text

LEGACY_STREAM = 1
_default: ContextVar[int] = ContextVar("tilec_cuda_stream", default=0)


def _torch() -> Any:
    """torch, where it is loaded and has a device in use."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_initialized() else None


def current_stream(device: int) -> int:
    """The raw handle of a device's current stream: torch's, CuPy's, or the default stream."""
    torch = _torch()
    if torch is not None:
        ask = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        if ask is not None:
            return int(ask(torch.cuda.current_device() if device < 0 else device))
        return int(torch.cuda.current_stream(None if device < 0 else device).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None and hasattr(cupy, "cuda"):
        if device < 0 or cupy.cuda.Device().id == device:
            return int(cupy.cuda.get_current_stream().ptr)
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return _default.get()


@contextmanager
def default_stream(handle: int) -> Iterator[None]:
    """A block in which a stream is the current one where no framework has its own."""
    token = _default.set(handle)
    try:
        yield
    finally:
        _default.reset(token)


def stream_handle(given: object) -> int:
    """The raw handle of a stream: an int, or an object of torch, CuPy, PyCUDA or cuda.core.

    Raises:
        ArgumentTypeError: anything else.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    protocol = getattr(given, "__cuda_stream__", None)
    if protocol is not None:
        found = protocol() if callable(protocol) else protocol
        return int(found[1])
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(given, name, None)
        if handle is not None:
            return int(handle)
    raise ArgumentTypeError(
        f"stream= takes a CUDA stream, got {type_text(given)}",
        hint="a stream of torch, CuPy or PyCUDA, an object with __cuda_stream__, or a raw handle",
    )


def dlpack_stream(handle: int) -> int:
    """A raw handle as ``__dlpack__`` takes it, where 0 is not allowed."""
    return handle or LEGACY_STREAM
