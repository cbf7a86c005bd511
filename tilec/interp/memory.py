"""Buffers of the interpreter, with what a checked run remembers about each element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import storage_dtype, value_dtype
from tilec.diagnostics import RaceError, Span, UndefinedValueError

Array = np.ndarray[Any, Any]
NOBODY = -1


class Cells:
    """Storage of one buffer, or of one copy of it per lane or iteration.

    Attributes:
        buffer: what is stored.
        array: the elements, in the dtype they are stored in.
        copies: whether the first axis numbers lanes or iterations.
    """

    def __init__(self, buffer: ir.Buffer, array: Array, *, copies: bool, checked: bool) -> None:
        self.buffer = buffer
        self.array = array
        self.copies = copies
        on_chip = buffer.scope() != ir.GLOBAL
        self._defined = np.zeros(array.shape, bool) if checked and on_chip else None
        self._checked = checked
        self._marks: dict[str, tuple[Array, Array]] = {}

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of one copy."""
        shape: tuple[int, ...] = self.array.shape
        return shape[1:] if self.copies else shape

    def forget(self, kind: str) -> None:
        """Drop who touched what, at the end of a nest or launch."""
        self._marks.pop(kind, None)

    def read(self, at: tuple[Array, ...], span: Span) -> Array:
        """Elements at valid positions, as values."""
        if self._defined is not None:
            missing = ~self._defined[at]
            if missing.any():
                self._undefined(at, int(np.argmax(missing)), span)
        return self.array[at].astype(value_dtype(self.buffer.dtype), copy=False)

    def write(self, at: tuple[Array, ...], values: Any) -> None:
        """Store values at valid positions; of several for one position the last one stays."""
        with np.errstate(all="ignore"):
            self.array[at] = np.asarray(values).astype(self.array.dtype, copy=False)
        self.define(at)

    def define(self, at: tuple[Array, ...]) -> None:
        """Elements at these positions have a value from now on."""
        if self._defined is not None:
            self._defined[at] = True

    def _undefined(self, at: tuple[Array, ...], which: int, span: Span) -> None:
        place = tuple(int(axis[which]) for axis in at)
        place = place[1:] if self.copies else place
        raise UndefinedValueError(
            f"{self.buffer.name}{list(place)} is read before anything was written to it",
            span=span,
            hint="fill the buffer first (T.clear, T.fill, T.copy), or guard the read",
            notes=[self.buffer.describe()],
        )

    # conflicts

    def mark(
        self, kind: str, owner: Any, at: tuple[Array, ...], span: Span, *, write: bool
    ) -> None:
        """Remember that `owner` touched elements; report a conflict with somebody else.

        Args:
            kind: "block" or "iteration".
            owner: number of the block, or numbers of the iterations, one per position.
            at: positions.
            span: of the access.
            write: whether it is a write.
        """
        if not self._checked or not len(at) or not len(at[0]):
            return
        if kind not in self._marks:
            fresh = np.full(self.array.shape, NOBODY, np.int64)
            self._marks[kind] = (fresh, fresh.copy())
        writers, readers = self._marks[kind]
        for marks, verb in ((writers, "writes"), *(((readers, "reads"),) if write else ())):
            other = marks[at]
            clash = (other != NOBODY) & (other != owner)
            if clash.any():
                self._race(kind, verb, owner, other, at, int(np.argmax(clash)), span, write=write)
        if write and not np.isscalar(owner) and len(np.unique(np.stack(at), axis=1).T) < len(at[0]):
            self._twice(kind, owner, at, span)
        (writers if write else readers)[at] = owner

    def _twice(self, kind: str, owner: Any, at: tuple[Array, ...], span: Span) -> None:
        """Two owners of one statement write the same element."""
        flat = np.ravel_multi_index(at, self.array.shape)
        order = np.argsort(flat, kind="stable")
        same = flat[order][1:] == flat[order][:-1]
        first = int(np.argmax(same))
        a, b = int(order[first]), int(order[first + 1])
        if owner[a] != owner[b]:
            other = np.full(len(flat), owner[a])
            self._race(kind, "writes", owner, other, at, b, span, write=True)

    def _race(
        self,
        kind: str,
        verb: str,
        owner: Any,
        other: Array,
        at: tuple[Array, ...],
        which: int,
        span: Span,
        *,
        write: bool,
    ) -> None:
        place = tuple(int(axis[which]) for axis in at)
        place = place[1:] if self.copies else place
        mine = int(owner) if isinstance(owner, (int, np.integer)) else int(owner[which])
        raise RaceError(
            f"{kind} {mine} {'writes' if write else 'reads'} {self.buffer.name}{list(place)}, "
            f"which {kind} {int(other[which])} {verb} as well",
            span=span,
            hint="nothing orders them; let each write elements of its own, or use T.atomic_add",
            notes=[self.buffer.describe()],
        )


def new_cells(buffer: ir.Buffer, copies: int, *, checked: bool) -> Cells:
    """Storage for an on-chip buffer; `copies` of it, or 0 for a single shared one."""
    shape = tuple(int(e) for e in buffer.shape)
    full = (copies, *shape) if copies else shape
    array = np.zeros(full, storage_dtype(buffer.dtype))
    return Cells(buffer, array, copies=bool(copies), checked=checked)
