"""Buffers of the interpreter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import storage_dtype, value_dtype
from tilec.interp.groups import Array, Group


class Cells:
    """Storage of one buffer.

    A private buffer has one copy for all instances of its group until something makes the copies
    differ; then every instance has its own, and the group's axes come first.

    Attributes:
        buffer: what is stored.
        array: the elements, in the dtype they are stored in.
        extents: the shape of one copy.
        owner: the group whose instances each have their own copy; None for shared storage.
        split: whether the copies are kept apart.
        defined: which elements have a value; None where all of them have, or nobody asks.
    """

    def __init__(
        self, buffer: ir.Buffer, array: Array, *, owner: Group | None = None, track: bool = False
    ) -> None:
        self.buffer = buffer
        self.array = array
        self.extents: tuple[int, ...] = array.shape
        self.owner = owner
        self.split = False
        self.defined = np.zeros(array.shape, bool) if track else None
        self.kind = value_dtype(buffer.dtype)
        self.empty = 0 in array.shape

    def separate(self) -> None:
        """Give every instance of the owner its own copy."""
        assert self.owner is not None
        if self.split:
            return
        self.split = True
        self.array = self._spread(self.array)
        if self.defined is not None:
            self.defined = self._spread(self.defined)

    def _spread(self, array: Array) -> Array:
        assert self.owner is not None
        shape = self.owner.shape
        lead = array.reshape((1,) * len(shape) + array.shape)
        # In rows: the marks of what is defined are changed through a flat view.
        return np.array(np.broadcast_to(lead, shape + array.shape), order="C")

    def element(self, index: tuple[int, ...]) -> Any:
        """One element as a Python number."""
        value = self.array[index]
        kind = self.kind.kind
        return float(value) if kind == "f" else bool(value) if kind == "b" else int(value)

    def flat(self, index: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
        """Numbers of elements within `array`, for valid indices that broadcast to `shape`."""
        total: Any = 0
        step = 1
        for at, extent in zip(reversed(index), reversed(self.array.shape), strict=True):
            total = total + np.asarray(at, np.int64) * step
            step *= extent
        return np.broadcast_to(np.asarray(total), shape)

    def index_of(self, flat: int) -> tuple[list[int], int | None]:
        """The index of an element, and the instance whose copy it is in."""
        shape = self.array.shape
        place = [int(i) for i in np.unravel_index(flat, shape)] if shape else []
        rank = len(place) - len(self.extents)
        if not rank:
            return place, None
        assert self.owner is not None
        return place[rank:], flat // max(math.prod(self.extents), 1)


def view_of(flat: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view of an array with strides in bytes; of any dtype, also those that NumPy only hosts."""
    plain = flat.view(f"u{flat.itemsize}")
    view: Array = np.lib.stride_tricks.as_strided(plain, shape, strides).view(flat.dtype)
    return view


def allocate(
    buffer: ir.Buffer, shape: tuple[int, ...], *, owner: Group | None, track: bool
) -> Cells:
    """Storage for an on-chip buffer; zeros, whose reading `track` finds."""
    return Cells(buffer, np.zeros(shape, storage_dtype(buffer.dtype)), owner=owner, track=track)
