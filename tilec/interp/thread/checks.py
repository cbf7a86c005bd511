"""What a checked run of thread form looks for besides what `tilec.interp.checks` does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilec import ir
from tilec.diagnostics import MissingFenceError, RaceError, Span
from tilec.interp.checks import Checker, undefined
from tilec.interp.groups import Array, Group
from tilec.interp.ledger import READ, WRITE
from tilec.interp.memory import Cells
from tilec.interp.thread.clocks import STEP, Clocks, Conflict, History
from tilec.interp.thread.engines import Engines
from tilec.interp.thread.tasks import LaneGroup, lane_text
from tilec.interp.thread.values import LaneCells

_VERB = {READ: "reads", WRITE: "writes"}


class LaneChecker(Checker):
    """Watches the accesses of lanes and of what works beside them.

    Args:
        kernel: its name.
        strict: see `Checker`.
        unchanged: buffers that the function does not write.
    """

    def __init__(self, kernel: str, *, strict: bool, unchanged: set[ir.Buffer]) -> None:
        super().__init__(kernel, strict=strict)
        self._unchanged = unchanged
        self._clocks = Clocks(1)
        self._engines: Engines | None = None
        self._warp = 1
        self._histories: dict[Cells, History] = {}
        self._spans: list[Span] = []
        self._numbers: dict[Span, int] = {}

    def start(self, clocks: Clocks, engines: Engines, warp: int) -> None:
        """A block starts."""
        self._clocks, self._engines, self._warp = clocks, engines, warp
        self._histories = {}

    def where(self) -> str:
        """Kernel, block and loops, for reports."""
        words = [self._kernel]
        if self._block is not None and math.prod(self._grid) > 1:
            words.append(self._block_name(self._block))
        loops = [f"{name}={value}" for name, value in self.loops if isinstance(value, int)]
        if loops:
            words.append(f"loop {', '.join(loops)}")
        return f"in {', '.join(words)}"

    # accesses

    def access(
        self, how: str, cells: Cells, flat: Array, instances: Any, span: Span, group: Group,
        values: Array | None = None,
    ) -> None:  # fmt: skip
        """Lanes read, write or update elements; see `Checker.access`."""
        super().access(how, cells, flat, instances, span, group, values)
        if not isinstance(group, LaneGroup) or not isinstance(cells, LaneCells):
            return
        if cells.lanes:
            self._settled(how, cells, flat, span)
            return
        if cells.buffer in self._unchanged:
            return
        lanes = group.lanes[instances]
        if how == WRITE and values is not None and len(flat) > 1:
            self._same(cells, flat, lanes, values, span)
        epochs = self._clocks.own(lanes) + self._number(span)
        conflict = self._history(cells).access(how, flat, lanes, lanes, epochs)
        if conflict is not None:
            self._report(conflict, how, cells, flat, int(lanes[conflict.position]), span)

    def engine(
        self, how: str, cells: LaneCells, flat: Array, by: tuple[Array, Array, Array],
        span: Span, *, asynchronous: bool, values: Array | None = None,
    ) -> None:  # fmt: skip
        """Engines read, write or update elements for lanes.

        Args:
            how: READ, WRITE or ATOMIC.
            cells: their buffer.
            flat: numbers of elements.
            by: per element the lane that started the operation, the engine, and its time.
            span: where they are started.
            asynchronous: whether they go through the asynchronous proxy.
            values: that are written, where lanes may write one element twice.
        """
        lanes, components, times = by
        if how != WRITE and cells.defined is not None:
            missing = ~cells.defined.reshape(-1)[flat]
            if missing.any():
                which = int(np.argmax(missing))
                self._missing(cells, int(flat[which]), span, int(lanes[which]))
        if cells.buffer.scope() == ir.GLOBAL and self._block is not None:
            self._between_blocks(how, cells, flat, span)
        if values is not None:
            self._same(cells, flat, components, values, span)
        if cells.buffer not in self._unchanged:
            conflict = self._history(cells).access(
                how, flat, lanes, components, times + self._number(span),
                asynchronous=asynchronous,
            )  # fmt: skip
            if conflict is not None:
                mine = int(components[conflict.position])
                self._report(conflict, how, cells, flat, mine, span)
        if how != READ and cells.defined is not None:
            cells.defined.reshape(-1)[flat] = True

    def _between_blocks(self, how: str, cells: Cells, flat: Array, span: Span) -> None:
        if cells.buffer not in self._unchanged:
            super()._between_blocks(how, cells, flat, span)

    def _history(self, cells: Cells) -> History:
        found = self._histories.get(cells)
        if found is None:
            sparse = cells.buffer.scope() == ir.GLOBAL
            found = self._histories[cells] = History(cells.array.size, self._clocks, sparse=sparse)
        return found

    def _number(self, span: Span) -> int:
        found = self._numbers.get(span)
        if found is None:
            found = self._numbers[span] = len(self._spans)
            self._spans.append(span)
        assert found < STEP
        return found

    def _name(self, component: int) -> str:
        lanes = self._clocks.lanes
        if component < lanes:
            return lane_text(component, self._warp)
        return self._clocks.names[component - lanes]

    # registers

    def defined(self, cells: LaneCells, flat: Array, span: Span) -> None:
        """Registers that an asynchronous instruction reads hold values."""
        if cells.defined is None:
            return
        missing = ~cells.defined.reshape(-1)[flat]
        if missing.any():
            where = int(flat[int(np.argmax(missing))])
            self._missing(cells, where, span, cells.index_of(where)[1])

    def _missing(self, cells: LaneCells, where: int, span: Span, lane: int | None) -> None:
        notes = [self.where(), cells.buffer.describe()]
        if lane is not None:
            notes.insert(1, f"by {lane_text(lane, self._warp)}")
        raise undefined(cells, cells.index_of(where)[0], span, notes)

    def _settled(self, how: str, cells: LaneCells, flat: Array, span: Span) -> None:
        """Lanes access registers: no asynchronous instruction may still do."""
        if how != READ and cells.unfenced is not None:
            cells.unfenced.reshape(-1)[flat] = True
        assert self._engines is not None
        size = math.prod(cells.extents)
        for pending, verb in ((cells.pending, "writes"), (cells.held, "reads")):
            if pending is None or (verb == "reads" and how == READ):
                continue
            times = pending.reshape(-1)[flat]
            late = times // STEP * STEP > self._engines.matrix_done[flat // size]
            if not late.any():
                continue
            at = int(np.argmax(late))
            index, lane = cells.index_of(int(flat[at]))
            assert lane is not None
            component = self._engines.matrix_of(lane)
            other = "an asynchronous mma" if component is None else self._name(component)
            earlier = self._spans[int(times[at]) % STEP]
            raise RaceError(
                f"{lane_text(lane, self._warp)} {_VERB.get(how, 'updates')} "
                f"{cells.buffer.name}{index}, which {other} {verb} as well",
                span=span,
                hint="the instruction is done after T.mma_commit() and T.mma_wait(0)",
                notes=[
                    self.where(), f"the other access is at {earlier}", cells.buffer.describe(),
                ],
            )  # fmt: skip

    def started(self, how: str, cells: LaneCells, flat: Array, times: Array, span: Span) -> None:
        """An asynchronous instruction accesses registers from now on.

        Raises:
            MissingFenceError: they were written since the last T.mma_fence.
        """
        if cells.unfenced is not None:
            late = cells.unfenced.reshape(-1)[flat]
            if late.any():
                index, lane = cells.index_of(int(flat[int(np.argmax(late))]))
                assert lane is not None
                raise MissingFenceError(
                    f"an asynchronous mma uses {cells.buffer.name}{index} of "
                    f"{lane_text(lane, self._warp)}, which no fence made ready",
                    span=span,
                    hint="call T.mma_fence() between the last write of the registers and T.mma",
                    notes=[self.where(), cells.buffer.describe()],
                )
        table = cells.pending if how == WRITE else cells.held
        if table is None:
            table = np.zeros(cells.array.shape, np.int64)
            if how == WRITE:
                cells.pending = table
            else:
                cells.held = table
        table.reshape(-1)[flat] = times.reshape(-1) + self._number(span)
        if how == WRITE and cells.defined is not None:
            cells.defined.reshape(-1)[flat] = True

    # findings

    def _same(self, cells: LaneCells, flat: Array, by: Array, values: Array, span: Span) -> None:
        """Those that write one element in the same statement write the same value."""
        order = np.argsort(flat, kind="stable")
        where = flat[order]
        again = where[1:] == where[:-1]
        if not again.any():
            return
        what, who = np.broadcast_to(values, flat.shape)[order], by[order]
        different = again & (what[1:] != what[:-1]) & (who[1:] != who[:-1])
        if what.dtype.kind not in "iub":
            different &= ~((what[1:] != what[1:]) & (what[:-1] != what[:-1]))
        if different.any():
            at = int(np.argmax(different))
            place = self._number(span)
            conflict = Conflict(int(order[at + 1]), int(who[at]), WRITE, place, twice=True)
            self._report(conflict, WRITE, cells, flat, int(who[at + 1]), span)

    def _report(
        self, conflict: Conflict, how: str, cells: LaneCells, flat: Array, by: int, span: Span
    ) -> None:
        mine = self._name(by)
        index, _ = cells.index_of(int(flat[conflict.position]))
        other = self._name(conflict.component)
        earlier = self._spans[conflict.place]
        notes = [self.where(), cells.buffer.describe()]
        if earlier.known:
            notes.insert(1, f"the other access is at {earlier}")
        verb = _VERB.get(how, "updates")
        if conflict.fence:
            raise MissingFenceError(
                f"{mine} {verb} {cells.buffer.name}{index}, which {other} writes; nothing makes "
                "that visible to it",
                span=span,
                hint="call T.fence_proxy_async() behind the write, before the barrier that orders "
                "the two",
                notes=notes,
            )
        raise RaceError(
            f"{mine} {verb} {cells.buffer.name}{index}, which {other} "
            f"{_VERB.get(conflict.how, 'updates')} as well",
            span=span,
            hint=self._advice(conflict, by),
            notes=notes,
        )

    def _advice(self, conflict: Conflict, by: int) -> str:
        """What orders two accesses, of which component `by` makes the later one."""
        if conflict.component >= self._clocks.lanes:
            return "nothing orders the two: wait until it is done, and let all lanes know of that"
        if conflict.twice:
            return "the values differ: let one lane write it, or use T.atomic_add"
        near = by < self._clocks.lanes and by // self._warp == conflict.component // self._warp
        barrier = "T.sync_warp()" if near else "T.sync_threads()"
        return f"nothing orders the two: put a barrier between them, such as {barrier}"

    def finish(self, engines: Engines) -> None:
        """The block ends; nothing may still read its shared memory."""
        for lane, engine in engines.stores.items():
            if self._clocks.now(engine.read) > self._clocks.seen[lane, engine.read]:
                raise RaceError(
                    f"the block ends while {self._name(engine.read)} may still read shared memory",
                    span=engines.store_span,
                    hint="the lane that starts it calls T.bulk_commit() and T.bulk_wait(0)",
                    notes=[self.where()],
                )
