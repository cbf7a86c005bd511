"""Barriers: of the block, named ones, and transaction barriers in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import ir
from tilec.diagnostics import BarrierError, MissingFenceError, RaceError, Span
from tilec.interp.groups import Array, Mask, is_array
from tilec.interp.thread.clocks import Clocks, Knowledge
from tilec.interp.thread.tasks import LaneGroup, lanes_text
from tilec.interp.thread.values import LaneCells, LaneValues

BLOCK = 0
"""The number of the barrier of the whole block."""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


class NamedBarrier:
    """A barrier at which a number of lanes arrive, some of them without waiting.

    Attributes:
        number: its name; 0 is the barrier of the block.
        wanted: lanes that arrive before it opens; None between its uses.
    """

    def __init__(self, number: int, values: LaneValues) -> None:
        self.number = number
        self.wanted: int | None = None
        self._values = values
        self._arrived: list[tuple[Array, Span]] = []
        self._known: Knowledge | None = None
        self._waits: list[SyncWait] = []

    @property
    def name(self) -> str:
        """For people."""
        return "the barrier of the block" if self.number == BLOCK else f"barrier {self.number}"

    @property
    def arrived(self) -> int:
        """Lanes that have arrived."""
        return sum(len(lanes) for lanes, _ in self._arrived)

    def arrive(self, lanes: Array, wanted: int, span: Span) -> None:
        """Lanes arrive.

        Raises:
            BarrierError: they are more than it waits for, or disagree with others about it.
        """
        if self.wanted is None:
            self.wanted = wanted
        warp = self._values.group_of().warp
        if self.wanted != wanted:
            others, where = self._arrived[0]
            raise BarrierError(
                f"{self.name} is used for {wanted} lanes by {lanes_text(lanes, warp)}, and for "
                f"{self.wanted} by {lanes_text(others, warp)}",
                span=span,
                hint="all lanes that meet at a named barrier give the same count",
                notes=[self._values.where(), f"the other use is at {where}"],
            )
        self._arrived.append((lanes, span))
        if self.arrived > wanted:
            raise BarrierError(
                f"{self.name} is used for {_count(wanted, 'lane')}, but {self.arrived} arrive",
                span=span,
                hint="the count is the number of lanes of all warps that sync or arrive",
                notes=[
                    self._values.where(),
                    *(f"{lanes_text(x, warp)} at {where}" for x, where in self._arrived),
                ],
            )
        clocks = self._values.clocks
        if clocks is not None:
            self._known = clocks.release(lanes).joined(self._known)
        if self.arrived == wanted:
            self._open(clocks)

    def wait(self, wait: SyncWait) -> None:
        """Lanes that have arrived wait for the others."""
        self._waits.append(wait)

    def _open(self, clocks: Clocks | None) -> None:
        waits, self._waits = self._waits, []
        for wait in waits:
            wait.done = True
            if clocks is not None and self._known is not None:
                clocks.acquire(wait.lanes, self._known)
        self.wanted, self._arrived, self._known = None, [], None


class SyncWait:
    """Lanes that wait at a named barrier."""

    def __init__(self, barrier: NamedBarrier, lanes: Array, span: Span) -> None:
        self.barrier = barrier
        self.lanes = lanes
        self.span = span
        self.done = False

    def over(self) -> bool:
        """Whether it has opened."""
        return self.done

    def describe(self) -> str:
        """What is missing."""
        barrier = self.barrier
        return f"{barrier.name}: {barrier.arrived} of {barrier.wanted} lanes have arrived"


class TransactionBarrier:
    """One element of a `shared.barrier` buffer.

    Attributes:
        name: such as ``full[0]``.
        phase: phases that have completed.
    """

    def __init__(self, name: str, cells: LaneCells, values: LaneValues) -> None:
        self.name = name
        self.cells = cells
        self.count = 0
        self.phase = 0
        self.pending = 0
        self.bytes = 0
        self._values = values
        self._known: Knowledge | None = None
        self._done: Knowledge | None = None
        self._made: tuple[int, int, Span] | None = None
        self._fenced: int | None = None

    def init(self, lane: int, count: int, span: Span) -> None:
        """Set up; a barrier may be set up again once nobody uses it."""
        if count < 1:
            raise BarrierError(
                f"{self.name} is initialised for {count} arrivals", span=span,
                hint="a phase needs at least one arrival", notes=[self._values.where()],
            )  # fmt: skip
        clocks = self._values.clocks
        self.count = self.pending = count
        self.phase = self.bytes = 0
        self._made = (lane, 0 if clocks is None else int(clocks.own(np.array([lane]))[0]), span)
        self._known = self._done = None
        self._fenced = None

    def fence(self, lane: int) -> None:
        """The lane that initialised it makes that visible."""
        if self._made is not None and self._made[0] == lane and self._fenced is None:
            clocks = self._values.clocks
            self._fenced = 0 if clocks is None else int(clocks.own(np.array([lane]))[0])

    def use(self, lanes: Array, span: Span) -> None:
        """Lanes are about to use it.

        Raises:
            BarrierError: it is not initialised.
            RaceError, MissingFenceError: that is not ordered before, or not visible.
        """
        warp = self._values.group_of().warp
        notes = [self._values.where(), self.cells.buffer.describe()]
        if self._made is None:
            raise BarrierError(
                f"{lanes_text(lanes, warp)} use {self.name}, which is not initialised"
                if len(lanes) > 1
                else f"{lanes_text(lanes, warp)} uses {self.name}, which is not initialised",
                span=span,
                hint="one lane calls T.mbarrier_init(bar, count) and T.fence_barrier_init(), then "
                "all lanes T.sync_threads()",
                notes=notes,
            )
        clocks = self._values.clocks
        if clocks is None:
            return
        lane, time, where = self._made
        notes.insert(1, f"it is initialised at {where}")
        late = lanes[clocks.seen[lanes, lane] < time]
        if len(late):
            raise RaceError(
                f"{lanes_text(late[:1], warp)} uses {self.name}, which "
                f"{lanes_text([lane], warp)} initialises",
                span=span,
                hint="put T.sync_threads() behind the initialisation",
                notes=notes,
            )
        fenced = self._fenced
        if fenced is None or (clocks.seen[lanes, lane] < fenced).any():
            raise MissingFenceError(
                f"{self.name} is used, but no fence makes its initialisation visible",
                span=span,
                hint=f"call T.fence_barrier_init() behind T.mbarrier_init({self.name}, ...), "
                "before T.sync_threads()",
                notes=notes,
            )

    def arrive(self, lanes: Array, span: Span, *, engine: bool = False) -> None:
        """Lanes arrive, once each.

        Args:
            lanes: that arrive.
            span: where.
            engine: whether their copies do it for them, which says nothing about the lanes.

        Raises:
            BarrierError: more arrivals than a phase has.
        """
        number = len(lanes)
        if number > self.pending:
            raise BarrierError(
                f"{self.name} takes {_count(self.count, 'arrival')} a phase, but "
                f"{lanes_text(lanes[-1:], self._values.group_of().warp)} makes one more",
                span=span,
                hint="T.mbarrier_init gives the number of arrivals of each phase",
                notes=[self._values.where(), self.cells.buffer.describe(), self.describe()],
            )
        clocks = self._values.clocks
        if clocks is not None and not engine:
            self._known = clocks.release(lanes).joined(self._known)
        self.pending -= number
        self._settle()

    def expect(self, amount: int) -> None:
        """The phase also waits for so many bytes."""
        self.bytes += amount
        self._settle()

    def complete(self, amount: int, component: int, time: int) -> None:
        """A copy engine has written so many bytes."""
        self.learn(component, time)
        self.bytes -= amount
        self._settle()

    def learn(self, component: int, time: int) -> None:
        """Whoever waits for the phase is ordered after this time of an engine."""
        if self._values.clocks is not None:
            row = np.zeros(component + 1, np.int64)
            row[component] = time
            self._known = Knowledge(row, np.zeros(0, np.int64)).joined(self._known)

    def _settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            if self._known is not None:
                self._done = self._known.joined(self._done)
            self._known = None

    def passed(self, parity: int) -> bool:
        """Whether the phase with this parity has completed."""
        return self.phase % 2 != parity % 2

    def acquire(self, lanes: Array) -> None:
        """Lanes are ordered after what completed."""
        clocks = self._values.clocks
        if clocks is not None and self._done is not None:
            clocks.acquire(lanes, self._done)

    def describe(self) -> str:
        """Its state, for reports."""
        return (
            f"phase {self.phase}, {self.count - self.pending} of {self.count} arrivals, "
            f"{self.bytes} bytes outstanding"
        )


class PhaseWait:
    """Lanes that wait for phases of transaction barriers."""

    def __init__(self, parts: list[tuple[TransactionBarrier, int, Array]], span: Span) -> None:
        self._parts = parts
        self.span = span

    def over(self) -> bool:
        """Whether every lane has seen its phase completed."""
        left = []
        for barrier, parity, lanes in self._parts:
            if barrier.passed(parity):
                barrier.acquire(lanes)
            else:
                left.append((barrier, parity, lanes))
        self._parts = left
        return not left

    def describe(self) -> str:
        """What is missing."""
        barrier, parity, _ = self._parts[0]
        return f"parity {parity} of {barrier.name}: {barrier.describe()}"


class Barriers:
    """The barriers of one block."""

    def __init__(self, values: LaneValues) -> None:
        self._values = values
        self._named: dict[int, NamedBarrier] = {}
        self._elements: dict[ir.Buffer, dict[int, TransactionBarrier]] = {}

    def named(self, number: int) -> NamedBarrier:
        """A named barrier."""
        found = self._named.get(number)
        if found is None:
            found = self._named[number] = NamedBarrier(number, self._values)
        return found

    def element(self, cells: LaneCells, number: int) -> TransactionBarrier:
        """A transaction barrier."""
        table = self._elements.setdefault(cells.buffer, {})
        found = table.get(number)
        if found is None:
            index, _ = cells.index_of(number)
            text = ", ".join(map(str, index))
            found = table[number] = TransactionBarrier(
                f"{cells.buffer.name}[{text}]", cells, self._values
            )
        return found

    def all(self) -> list[TransactionBarrier]:
        """All transaction barriers that were touched."""
        return [b for table in self._elements.values() for b in table.values()]

    def sync(self, call: ir.Call, group: LaneGroup) -> SyncWait:
        """Lanes arrive at a barrier and wait."""
        number, wanted = BLOCK, self._values.total
        if call.args:
            number, wanted = (self._values.integer(a) for a in call.args)
        barrier = self.named(number)
        wait = SyncWait(barrier, group.lanes, call.span)
        barrier.wait(wait)
        barrier.arrive(group.lanes, wanted, call.span)
        return wait

    def phase(self, call: ir.Call) -> PhaseWait:
        """Lanes wait for a phase."""
        parity = self._values.value(call.args[1], True)
        parts = []
        for barrier, lanes, at in barriers_of(self._values, call.args[0], True):
            barrier.use(lanes, call.span)
            mine = parity[at] if is_array(parity) else parity
            for one in np.unique(mine):
                chosen = lanes[np.broadcast_to(mine, lanes.shape) == one]
                parts.append((barrier, int(one), chosen))
        return PhaseWait(parts, call.span)


def barriers_of(
    values: LaneValues, element: ir.Load, mask: Mask
) -> list[tuple[TransactionBarrier, Array, Array]]:
    """The barriers that lanes name: each with the lanes and their positions in the group."""
    cells, flat, at = values.elements(element, mask)
    group = values.group_of()
    result = []
    for number in np.unique(flat):
        chosen = at[flat == number]
        barrier = values.barriers.element(cells, int(number))
        result.append((barrier, group.lanes[chosen], chosen))
    return result


# Meanings: ``(values, call, mask) -> value``.


def named_arrive(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Arrive at a named barrier without waiting."""
    group = values.group_of()
    lanes = group.lanes[values.warps(call, mask).reshape(-1)]
    if len(lanes):
        number, wanted = (values.integer(a, mask) for a in call.args)
        values.barriers.named(number).arrive(lanes, wanted, call.span)
    return 0


def init(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Set up transaction barriers."""
    count = values.integer(call.args[1], mask)
    for barrier, lanes, _ in barriers_of(values, call.args[0], mask):
        if len(lanes) > 1:
            raise BarrierError(
                f"{barrier.name} is initialised by {lanes_text(lanes, values.warp)}",
                span=call.span,
                hint="one lane does it: if T.shuffle_elect(0): ...",
                notes=[values.where(), barrier.cells.buffer.describe()],
            )
        barrier.init(int(lanes[0]), count, call.span)
    return 0


def arrive(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """One arrival of each lane, perhaps with bytes to wait for."""
    expected = values.value(call.args[1], mask) if len(call.args) > 1 else None
    for barrier, lanes, at in barriers_of(values, call.args[0], mask):
        barrier.use(lanes, call.span)
        if expected is not None:
            barrier.bytes += _total(expected, at, len(values.group_of().lanes))
        barrier.arrive(lanes, call.span)
    return 0


def expect(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Bytes to wait for."""
    expected = values.value(call.args[1], mask)
    for barrier, lanes, at in barriers_of(values, call.args[0], mask):
        barrier.use(lanes, call.span)
        barrier.expect(_total(expected, at, len(values.group_of().lanes)))
    return 0


def _total(expected: Any, at: Array, count: int) -> int:
    return int(np.broadcast_to(expected, (count,))[at].sum())


def fence_init(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """What these lanes initialised becomes visible."""
    del call
    for lane in values.group_of().lanes[values.positions(mask)]:
        for barrier in values.barriers.all():
            barrier.fence(int(lane))
    return 0


def fence_async(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """What is ordered before becomes visible to the asynchronous proxy."""
    del call
    if values.clocks is not None:
        values.clocks.expose(values.group_of().lanes[values.positions(mask)])
    return 0
