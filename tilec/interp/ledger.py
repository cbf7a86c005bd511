"""Who touched which element, to find accesses that nothing orders."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilec.diagnostics import Span
from tilec.interp.groups import Array

READ, WRITE, ATOMIC = "read", "write", "atomic"
_PAGE = 1 << 16
_DENSE = 1 << 20

# Per kind of access: what it clashes with. The second reader is one that differs from the first,
# so that two readers are enough to know whether somebody else reads.
_CLASHES = {
    READ: (WRITE, ATOMIC),
    WRITE: (WRITE, READ, "reader", ATOMIC),
    ATOMIC: (WRITE, READ, "reader"),
}
_VERBS = {READ: "reads", "reader": "reads", WRITE: "writes", ATOMIC: "updates"}


class Numbers:
    """One number per element, 0 where none was set; memory is taken where it is touched."""

    def __init__(self, size: int) -> None:
        self._page = max(size, 1) if size <= _DENSE else _PAGE
        self._pages: dict[int, Array] = {}

    def get(self, flat: Array) -> Array:
        """Numbers of elements."""
        result = np.zeros(len(flat), np.int64)
        for page, chosen, inside in self._split(flat):
            found = self._pages.get(page)
            if found is not None:
                result[chosen] = found[inside]
        return result

    def put(self, flat: Array, numbers: Any) -> None:
        """Set numbers of elements; of several for one element the last one stays."""
        values = np.broadcast_to(numbers, flat.shape)
        for page, chosen, inside in self._split(flat):
            found = self._pages.get(page)
            if found is None:
                found = self._pages[page] = np.zeros(self._page, np.int64)
            found[inside] = values[chosen]

    def _split(self, flat: Array) -> list[tuple[int, Any, Array]]:
        if not len(flat):
            return []
        low, high = int(flat.min()) // self._page, int(flat.max()) // self._page
        if low == high:
            return [(low, slice(None), flat - low * self._page)]
        pages = flat // self._page
        parts = []
        for page in np.unique(pages):
            chosen = np.flatnonzero(pages == page)
            parts.append((int(page), chosen, flat[chosen] - page * self._page))
        return parts


class Clash(NamedTuple):
    """Two accesses to one element by different owners.

    Attributes:
        position: in the arrays of the access that was recorded last.
        owner: of that access.
        other: owner of the earlier one.
        verb: what the earlier one does.
        span: of the earlier one.
    """

    position: int
    owner: int
    other: int
    verb: str
    span: Span


class Ledger:
    """Accesses to one buffer by owners with numbers from 0 on (blocks, or iterations)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._owners: dict[str, Numbers] = {}
        self._places: dict[str, Numbers] = {}
        self._spans: list[Span] = []
        self._known: dict[Span, int] = {}

    def record(
        self, how: str, flat: Array, owners: Any, span: Span, changes: Array | None = None
    ) -> Clash | None:
        """Note an access; the first clash with an earlier one, if there is one.

        Args:
            how: READ, WRITE or ATOMIC.
            flat: numbers of the elements.
            owners: one per element, or one for all.
            span: of the access.
            changes: where a write changes the element; others do not clash.
        """
        mine = np.broadcast_to(np.asarray(owners, np.int64) + 1, flat.shape)
        for kind in _CLASHES[how]:
            if kind not in self._owners:
                continue
            theirs = self._owners[kind].get(flat)
            wrong = (theirs != 0) & (theirs != mine)
            if changes is not None:
                wrong &= changes
            if wrong.any():
                at = int(np.argmax(wrong))
                place = int(self._places[kind].get(flat[at : at + 1])[0])
                return Clash(
                    at, int(mine[at]) - 1, int(theirs[at]) - 1, _VERBS[kind], self._spans[place - 1]
                )
        self._note(how, flat, mine, span)
        return None

    def _note(self, how: str, flat: Array, mine: Array, span: Span) -> None:
        place = self._known.get(span)
        if place is None:
            self._spans.append(span)
            place = self._known[span] = len(self._spans)
        if how == READ:
            first = self._numbers(READ)[0].get(flat)
            fresh = first == 0
            self._set(READ, flat[fresh], mine[fresh], place)
            # Of several readers in this very access all but one come second.
            other = self._numbers(READ)[0].get(flat) != mine
            if other.any():
                self._set("reader", flat[other], mine[other], place)
            return
        self._set(how, flat, mine, place)

    def _numbers(self, kind: str) -> tuple[Numbers, Numbers]:
        if kind not in self._owners:
            self._owners[kind] = Numbers(self._size)
            self._places[kind] = Numbers(self._size)
        return self._owners[kind], self._places[kind]

    def _set(self, kind: str, flat: Array, mine: Array, place: int) -> None:
        owners, places = self._numbers(kind)
        owners.put(flat, mine)
        places.put(flat, place)
