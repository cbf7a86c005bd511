"""Vector clocks of the lanes of a block, and what was done to each element.

A *component* is something that acts in an order of its own: a lane, or an engine that works on its
own (the asynchronous copies of a lane, the bulk copies that complete on one barrier, the
asynchronous matrix instructions of a warp). A lane knows of each component up to a time; an access
is ordered before another one if whoever makes the latter knows of it. That holds or not whatever
the schedule of this run happens to be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilec.interp.groups import Array
from tilec.interp.ledger import ATOMIC, READ, WRITE

STEP = 1 << 20
"""Times are multiples of it: an *epoch* is a time plus the number of a place in the source."""


class Knowledge(NamedTuple):
    """What some lanes know: a time per component.

    Attributes:
        seen: what they are ordered after.
        visible: what of it the asynchronous proxy may access, too.
    """

    seen: Array
    visible: Array

    def joined(self, other: Knowledge | None) -> Knowledge:
        """What both know."""
        if other is None:
            return self
        return Knowledge(_longest(self.seen, other.seen), _longest(self.visible, other.visible))


def _longest(a: Array, b: Array) -> Array:
    if len(a) < len(b):
        a, b = b, a
    result = a.copy()
    np.maximum(result[: len(b)], b, out=result[: len(b)])
    return result


class Clocks:
    """The clocks of one block.

    Args:
        lanes: their number; they are the first components.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.count = lanes
        self.names: list[str] = []
        self._seen = np.zeros((lanes, lanes), np.int64)
        self._visible = np.zeros((lanes, lanes), np.int64)
        np.fill_diagonal(self._seen, STEP)
        self._now = np.zeros(lanes, np.int64)
        self._generic = np.ones(lanes, bool)
        self._engines: dict[Any, int] = {}

    @property
    def seen(self) -> Array:
        """Times by lane and component: what a lane is ordered after."""
        return self._seen[:, : self.count]

    @property
    def visible(self) -> Array:
        """Times by lane and component: what a lane has made visible to the asynchronous proxy."""
        return self._visible[:, : self.count]

    @property
    def generic(self) -> Array:
        """By component: whether what it writes needs a fence before the asynchronous proxy."""
        return self._generic

    def engine(self, key: Any, text: str, *, generic: bool) -> int:
        """The component of an engine; made when it is asked for the first time."""
        found = self._engines.get(key)
        if found is not None:
            return found
        number = self._engines[key] = self.count
        self.count += 1
        self.names.append(text)
        if self.count > self._seen.shape[1]:
            more = max(self.count * 2, 64)
            self._seen = _wider(self._seen, more)
            self._visible = _wider(self._visible, more)
            self._now = _wider(self._now, more)
            self._generic = _wider(self._generic, more)
        self._generic[number] = generic
        return number

    def start(self, components: Array) -> Array:
        """Engines start one more operation each; their new times."""
        self._now[components] += STEP
        return self._now[components]

    def now(self, component: int) -> int:
        """The time of the last operation that an engine started."""
        return int(self._now[component])

    def own(self, lanes: Array) -> Array:
        """The present time of each lane."""
        return self._seen[lanes, lanes]

    def release(self, lanes: Array) -> Knowledge:
        """What these lanes know together; what they do from now on is not part of it."""
        known = Knowledge(self.seen[lanes].max(axis=0), self.visible[lanes].max(axis=0))
        self._seen[lanes, lanes] += STEP
        return known

    def acquire(self, lanes: Array, known: Knowledge) -> None:
        """Lanes get to know something."""
        for table, row in ((self._seen, known.seen), (self._visible, known.visible)):
            table[lanes, : len(row)] = np.maximum(table[lanes, : len(row)], row)

    def finish(self, lanes: Any, components: Any, times: Any) -> None:
        """Lanes get to know that engines have come so far."""
        self._seen[lanes, components] = np.maximum(self._seen[lanes, components], times)

    def join(self, groups: Array) -> None:
        """Each row of `groups` is a set of lanes that learn all that the others know."""
        for table in (self._seen, self._visible):
            table[groups] = table[groups].max(axis=1, keepdims=True)
        lanes = groups.reshape(-1)
        self._seen[lanes, lanes] += STEP

    def expose(self, lanes: Array) -> None:
        """All that these lanes know becomes visible to the asynchronous proxy."""
        self._visible[lanes] = np.maximum(self._visible[lanes], self._seen[lanes])


def _wider(array: Array, columns: int) -> Array:
    result = np.zeros((*array.shape[:-1], columns), array.dtype)
    result[..., : array.shape[-1]] = array
    return result


class Conflict(NamedTuple):
    """An access that nothing orders after an earlier one.

    Attributes:
        position: in the arrays of the later access.
        component: that made the earlier one.
        how: READ, WRITE or ATOMIC; what the earlier one was.
        place: number of its place in the source.
        fence: whether the two are ordered and only a fence is missing.
        twice: whether both are part of one statement and write different values.
    """

    position: int
    component: int
    how: str
    place: int
    fence: bool = False
    twice: bool = False


class History:
    """Who wrote, read and updated the elements of one buffer last.

    Args:
        size: number of elements.
        clocks: of the block.
        sparse: whether only a few of very many elements will be touched.
    """

    def __init__(self, size: int, clocks: Clocks, *, sparse: bool) -> None:
        self._clocks = clocks
        self._rows = np.zeros(size, np.int32) if sparse else None
        self._used = 0
        room = 64 if sparse else size
        self._write = np.zeros(room, np.int64)
        self._writer = np.zeros(room, np.int32)
        # By element and component; only what is there at all is allocated.
        self._others: dict[str, Array] = {}

    def access(
        self, how: str, flat: Array, lanes: Array, components: Array, epochs: Array, *,
        asynchronous: bool = False,
    ) -> Conflict | None:  # fmt: skip
        """Check an access and note it.

        Args:
            how: READ, WRITE or ATOMIC.
            flat: numbers of elements.
            lanes: whose knowledge counts, one per element.
            components: that make the accesses.
            epochs: of the accesses.
            asynchronous: whether they go through the asynchronous proxy.
        """
        rows = self._place(flat)
        conflict = self._conflict(how, rows, lanes, asynchronous)
        if conflict is not None:
            return conflict
        if how == WRITE:
            self._write[rows] = epochs
            self._writer[rows] = components
            for table in self._others.values():
                table[rows] = 0
        else:
            self._table(how, components)[rows, components] = epochs
        return None

    def _place(self, flat: Array) -> Array:
        if self._rows is None:
            return flat
        rows = self._rows[flat]
        missing = rows == 0
        if missing.any():
            new = np.unique(flat[missing])
            self._rows[new] = np.arange(self._used + 1, self._used + 1 + len(new))
            self._used += len(new)
            room = len(self._write)
            if self._used >= room:
                more = max(2 * room, self._used + 1) - room
                self._write = np.pad(self._write, (0, more))
                self._writer = np.pad(self._writer, (0, more))
                for key, table in self._others.items():
                    self._others[key] = np.pad(table, ((0, more), (0, 0)))
            rows = self._rows[flat]
        return rows

    def _table(self, how: str, components: Array) -> Array:
        table = self._others.get(how)
        width = max(int(components.max()) + 1, self._clocks.lanes)
        if table is None:
            table = self._others[how] = np.zeros((len(self._write), width), np.int64)
        elif table.shape[1] < width:
            table = self._others[how] = _wider(table, self._clocks.count)
        return table

    def _conflict(self, how: str, rows: Array, lanes: Array, asynchronous: bool) -> Conflict | None:
        clocks = self._clocks
        written, writers = self._write[rows], self._writer[rows]
        late = written >= clocks.seen[lanes, writers] + STEP
        if late.any():
            at = int(np.argmax(late))
            return Conflict(at, int(writers[at]), WRITE, int(written[at]) % STEP)
        if asynchronous:
            hidden = written >= clocks.visible[lanes, writers] + STEP
            hidden &= clocks.generic[writers]
            if hidden.any():
                at = int(np.argmax(hidden))
                return Conflict(at, int(writers[at]), WRITE, int(written[at]) % STEP, fence=True)
        against = {READ: (ATOMIC,), WRITE: (READ, ATOMIC), ATOMIC: (READ,)}[how]
        for kind in against:
            table = self._others.get(kind)
            if table is None:
                continue
            seen = clocks.seen[:, : table.shape[1]]
            if (lanes == lanes[0]).all() and not (
                table[rows].max(axis=0) >= seen[lanes[0]] + STEP
            ).any():
                continue
            late = table[rows] >= seen[lanes] + STEP
            if late.any():
                at, component = (int(i) for i in np.unravel_index(int(np.argmax(late)), late.shape))
                return Conflict(at, component, kind, int(table[rows[at], component]) % STEP)
        return None
