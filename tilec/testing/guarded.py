"""Arguments with bytes around them that nobody may write, wherever a target wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec import ir
from tilec.interp.memory import view_of

Array = np.ndarray[Any, Any]
GUARD_BYTES = 256
_GUARD = 0xA5


class Guarded:
    """An array between two runs of guard bytes.

    Args:
        flat: the storage, gaps between strided elements included.
        shape: extents.
        strides: in elements; None for a contiguous array.
        dtype: of the elements, by name.
        device: ``cpu`` for NumPy, else a device of torch.

    Attributes:
        array: what a kernel is given.
    """

    def __init__(
        self,
        flat: Array,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: str,
        device: str = "cpu",
    ) -> None:
        self._kind = flat.dtype
        self._bytes = flat.nbytes
        raw = np.full(flat.nbytes + 2 * GUARD_BYTES, _GUARD, np.uint8)
        raw[GUARD_BYTES : GUARD_BYTES + flat.nbytes] = flat.view(np.uint8)
        self._raw: Any = raw
        inner: Any = raw[GUARD_BYTES : GUARD_BYTES + flat.nbytes]
        if device == "cpu":
            self.array: Any = strided(inner.view(flat.dtype), shape, strides)
            return
        import torch  # noqa: PLC0415  # only where a target's arguments are not in host memory

        self._raw = torch.from_numpy(raw).to(device)
        inner = self._raw[GUARD_BYTES : GUARD_BYTES + flat.nbytes]
        inner = inner.view(ir.DType(dtype).as_torch())
        steps = contiguous(shape) if strides is None else strides
        self.array = torch.as_strided(inner, shape, steps, inner.storage_offset())

    def storage(self) -> Array:
        """The storage as it is now, in host memory."""
        return self._bytes_now()[GUARD_BYTES : GUARD_BYTES + self._bytes].view(self._kind)

    def intact(self) -> bool:
        """Whether the bytes around it are as they were."""
        raw = self._bytes_now()
        after = raw[GUARD_BYTES + self._bytes :]
        return bool((raw[:GUARD_BYTES] == _GUARD).all() and (after == _GUARD).all())

    def _bytes_now(self) -> Array:
        if isinstance(self._raw, np.ndarray):
            return self._raw
        host: Array = self._raw.cpu().numpy()
        return host


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a row-major array."""
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(step)
        step *= extent
    return tuple(reversed(steps))


def strided(flat: Array, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Array:
    """A view of flat storage; strides in elements."""
    if strides is None:
        return flat.reshape(shape)
    steps = tuple(s * flat.itemsize for s in strides)
    return view_of(flat, shape, steps)
