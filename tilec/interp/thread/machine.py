"""Executes a function in thread form.

The lanes of a block run in lock step, as axes of arrays, wherever no lane waits for another one
(`tilec.interp.machine`). Statements in which lanes wait are run by *tasks* (`tasks`), one after the
other in a fixed order: a task goes on until it has to wait, and splits where its lanes part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import storage_dtype
from tilec.diagnostics import DivergenceError, InternalError, LaunchError
from tilec.interp.groups import Array, Mask, is_array, settled
from tilec.interp.machine import PRIVATE, Machine
from tilec.interp.thread.barriers import Barriers
from tilec.interp.thread.checks import LaneChecker
from tilec.interp.thread.clocks import Clocks
from tilec.interp.thread.engines import Engines
from tilec.interp.thread.stuck import stuck
from tilec.interp.thread.table import BLOCKING, COLLECTIVE, MEANINGS
from tilec.interp.thread.tasks import (
    ForFrame,
    LaneGroup,
    SeqFrame,
    State,
    Task,
    WhileFrame,
    merged,
)
from tilec.interp.thread.values import LaneCells, LaneValues, Meaning, private_cells

BARRIER_SCOPE = "shared.barrier"
_SHARED = (ir.SHARED, ir.SHARED_DYN, BARRIER_SCOPE)
_ZERO = (ir.Const(0, ir.DType("int32")),)


class ThreadMachine(Machine):
    """One execution of a function in thread form.

    Args:
        func: what to execute.
        checker: looks for mistakes, or None.
        meanings: of intrinsics that a backend adds, by name.
        limit: see `Machine`.
    """

    values: LaneValues

    def __init__(
        self,
        func: ir.PrimFunc,
        checker: LaneChecker | None,
        meanings: Mapping[str, Meaning] | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(func, checker)
        self._left = limit
        self._watch = checker
        self.values = LaneValues(checker, {**MEANINGS, **(meanings or {})})
        self._tasks: list[Task] = []
        self._waits: set[int] = set()
        self._width: dict[int, int] = {}
        self._asynchronous = False
        self._enter: dict[type, Callable[[Task, Any], None]] = {
            ir.Seq: lambda task, node: task.frames.append(SeqFrame(node)),
            ir.If: self._enter_if,
            ir.For: self._enter_for,
            ir.While: lambda task, node: task.frames.append(WhileFrame(node)),
            ir.Evaluate: self._enter_wait,
        }

    # the block

    def _launch(self, node: ir.Launch, mask: Mask) -> Mask:
        values, checker = self.values, self._watch
        grid = tuple(max(values.integer(g), 0) for g in node.grid)
        if node.threads is None:
            raise LaunchError("thread form needs the number of lanes of a block", span=node.span)
        values.total = int(np.prod(node.threads))
        values.warp = int(node.annotations.get("warp", values.total))
        self._prepare(node.body)
        outer, cells = values.group, dict(values.cells)
        for buffer, stored in cells.items():
            given = LaneCells(buffer, stored.array, track=False)
            given.defined = stored.defined
            values.cells[buffer] = cells[buffer] = given
        if checker is not None:
            checker.launch(grid, tuple(v.name for v in node.grid_vars))
        lanes, coordinates = _coordinates(node, node.threads)
        for number, place in enumerate(itertools.product(*map(range, reversed(grid)))):
            values.cells = dict(cells)
            values.clocks = Clocks(values.total) if checker is not None else None
            values.barriers = Barriers(values)
            values.engines = Engines(values)
            group = LaneGroup(lanes, values.warp, values.total, outer)
            group.values.update(zip(node.grid_vars, reversed(place), strict=True))
            group.values.update(coordinates)
            if checker is not None and values.clocks is not None:
                checker.block(number)
                checker.start(values.clocks, values.engines, values.warp)
            try:
                self._run([Task(group, [SeqFrame(node.body)])])
            finally:
                values.group = outer
            if checker is not None:
                checker.finish(values.engines)
        values.cells = cells
        if checker is not None:
            checker.block(None)
        return mask

    def _prepare(self, body: ir.Stmt) -> None:
        """Find the statements in which lanes wait, and those that lanes do together."""
        warp = self.values.warp

        def visit(node: ir.Node) -> tuple[bool, int]:
            waits, width = False, 1
            for child in node.children:
                below = visit(child)
                waits, width = waits or below[0], max(width, below[1])
            if isinstance(node, ir.Call):
                waits = waits or node.name in BLOCKING
                if node.name in COLLECTIVE:
                    width = max(width, warp)
                if node.name == "mma":
                    atom = node.attrs["atom"]
                    width = max(width, atom.lanes)
                    self._asynchronous = self._asynchronous or atom.asynchronous
            if isinstance(node, ir.Stmt):
                self._width[id(node)] = width
                if waits:
                    self._waits.add(id(node))
            return waits, width

        self._waits.clear()
        self._width.clear()
        self._asynchronous = False
        visit(body)

    def _alloc(self, node: ir.Alloc, mask: Mask) -> Mask:
        buffer, values = node.buffer, self.values
        scope = buffer.scope()
        if not isinstance(values.group, LaneGroup):
            return super()._alloc(node, mask)
        shape = tuple(values.integer(e, mask) for e in buffer.shape)
        start = None if node.init is None else values.value(node.init, mask)
        found = values.cells.get(buffer)
        track = self._checker is not None
        if scope in PRIVATE:
            if found is None or found.extents != shape:
                cells = private_cells(buffer, shape, values.total, track=track)
                if not self._asynchronous:
                    cells.unfenced = None
                values.cells[buffer] = cells
            elif found.defined is not None:
                found.defined[values.group.lanes[values.positions(mask)]] = False
        elif scope not in _SHARED:
            raise InternalError(
                f"{buffer.describe()} in thread form",
                span=node.span,
                hint="fragments become registers (scope local) or move to shared memory before",
            )
        elif found is None:
            array = np.zeros(shape, storage_dtype(buffer.dtype))
            values.cells[buffer] = LaneCells(buffer, array, track=track)
        if start is not None:
            values.write(buffer, _ZERO, start, mask, node.span)
        return mask

    def _parallel(self, node: ir.Parallel, mask: Mask) -> Mask:
        del mask
        raise InternalError("T.Parallel in thread form", span=node.span)

    def _at_once(self, node: ir.For, bounds: list[Any], mask: Mask) -> Mask:
        del bounds
        return self._for(node.replace(annotations={}), mask)

    # the scheduler

    def _run(self, tasks: list[Task]) -> None:
        """Run tasks until all have ended."""
        self._tasks = tasks
        while self._tasks:
            ready = [t for t in self._tasks if self._ready(t)]
            if not ready:
                self._unblock()
                continue
            if len(self._tasks) > 1:
                self._meet(State.READY)
            ready = [t for t in self._tasks if t.state is State.READY]
            for task in ready:
                if task in self._tasks:
                    self._advance(task)
            if len(self._tasks) > 1:
                self._meet(State.GATHERING)

    def _ready(self, task: Task) -> bool:
        if task.state is State.WAITING:
            assert task.waiting is not None
            if not task.waiting.over():
                return False
            self._go_on(task)
        return task.state is State.READY

    def _go_on(self, task: Task) -> None:
        """The wait of a task is over: it goes to the next statement."""
        task.state, task.waiting = State.READY, None
        frame = task.frames[-1]
        assert isinstance(frame, SeqFrame)
        frame.at += 1

    def _unblock(self) -> None:
        """Nobody can go on: those that wait for company only do so without it."""
        if self._meet(State.GATHERING):
            return
        parked = [t for t in self._tasks if t.state is State.PARKED]
        if not parked:
            raise stuck(self._tasks, self.values)
        self._meet(State.PARKED)
        for task in self._tasks:
            if task.state is State.PARKED:
                task.state = State.READY

    def _meet(self, state: State) -> bool:
        """Put tasks together that are at the same place; whether one of them can go on."""
        places: dict[Any, list[Task]] = {}
        for task in self._tasks:
            if task.state is state:
                places.setdefault(task.key(), []).append(task)
        progress = False
        for tasks in places.values():
            if len(tasks) == 1 and state is not State.GATHERING:
                continue
            one = merged(tasks, self.values.total)
            if len(tasks) > 1:
                self._tasks = [t for t in self._tasks if t not in tasks]
                self._tasks.append(one)
                one.state, one.need = state, max(t.need for t in tasks)
            if state is State.GATHERING and one.group.whole(one.need):
                one.state = State.READY
                progress = True
        self._tasks.sort(key=lambda t: int(t.group.lanes[0]))
        return progress

    # one task

    def _advance(self, task: Task) -> None:
        """Run a task until it waits or ends."""
        group = self.values.group = task.group
        while task.frames:
            if task.joins and len(task.frames) <= task.joins[-1]:
                exact = len(task.frames) == task.joins.pop()
                if exact and len(self._tasks) > 1:
                    task.state = State.PARKED
                    return
                continue
            frame = task.frames[-1]
            if isinstance(frame, SeqFrame):
                if frame.at >= len(frame.stmts):
                    task.frames.pop()
                    continue
                self._step(task, frame)
            elif isinstance(frame, ForFrame):
                self._trip(task, frame)
            else:
                self._test(task, frame)
            if task.state is not State.READY:
                return
            group = self.values.group = task.group
        del group
        self._tasks.remove(task)

    def _step(self, task: Task, frame: SeqFrame) -> None:
        self._count()
        stmt = frame.stmts[frame.at]
        need = self._width.get(id(stmt), 1)
        waits = id(stmt) in self._waits
        whole = need == 1 or task.group.whole(need)
        if self._watch is not None:
            self._watch.loops[:] = [
                (f.node.var.name, task.group.values.get(f.node.var))
                for f in task.frames
                if isinstance(f, ForFrame)
            ]
        if waits or not whole:
            enter = self._enter.get(type(stmt))
            compound = isinstance(stmt, (ir.Seq, ir.If, ir.For, ir.While))
            if not whole and not compound:
                if self.values.total % need:
                    raise DivergenceError(
                        f"a block of {self.values.total} lanes has no {need} lanes for this",
                        span=stmt.span,
                        hint="the number of lanes of a block is a multiple of those of a warp",
                        notes=[self.values.where()],
                    )
                task.state, task.need = State.GATHERING, need
                return
            if enter is None or (waits and not compound and not _is_wait(stmt)):
                if waits:
                    raise InternalError(
                        f"lanes wait within a {type(stmt).__name__}", span=stmt.span
                    )
            elif waits or compound:
                if compound:
                    frame.at += 1
                enter(task, stmt)
                return
        frame.at += 1
        self._leaf(task, stmt)

    def _leaf(self, task: Task, stmt: ir.Stmt) -> None:
        """A statement in which nobody waits, in lock step; lanes may leave loops in it."""
        group = task.group
        group.broken, group.dead = [False], False
        mask = self._stmt(stmt, True)
        if mask is True:
            return
        count = len(group.lanes)
        stays = np.broadcast_to(mask, (count,))
        dead = np.broadcast_to(group.dead, (count,))
        broken = np.broadcast_to(group.broken[0], (count,)) & ~dead
        again = ~(stays | dead | broken)
        group.dead, group.broken = False, []
        loop = _loop_depth(task)
        parts: list[tuple[Array, Callable[[Task], None]]] = [
            (stays, lambda _task: None),
            (broken, lambda part: _leave(part, loop)),
            (again, lambda part: _leave(part, loop + 1)),
        ]
        # Those that leave the loop come together behind it, those that go on at its next trip.
        if not broken.all() and broken.any():
            task.join(loop)
        if not again.all() and again.any():
            task.join(loop + 1)
        self._divide(task, parts)

    def _divide(self, task: Task, parts: list[tuple[Array, Callable[[Task], None]]]) -> None:
        """Split a task; each part is moved to its place. Lanes in no part have ended."""
        parts = [(which, move) for which, move in parts if which.any()]
        if len(parts) == 1 and parts[0][0].all():
            parts[0][1](task)
            return
        made = []
        for which, move in parts:
            part = task.split(which, self.values.total)
            move(part)
            made.append(part)
        if not made:
            task.frames.clear()
            return
        # The first part goes on in the place of the task.
        first = made[0]
        task.group, task.frames, task.joins = first.group, first.frames, first.joins
        at = self._tasks.index(task)
        self._tasks[at + 1 : at + 1] = made[1:]

    # statements in which somebody waits

    def _enter_wait(self, task: Task, node: ir.Evaluate) -> None:
        call = node.value
        assert isinstance(call, ir.Call)
        barriers = self.values.barriers
        wait: Any = barriers.sync(call, task.group) if call.name == "sync" else barriers.phase(call)
        task.state, task.waiting = State.WAITING, wait
        if wait.over():
            self._go_on(task)
            return

    def _enter_if(self, task: Task, node: ir.If) -> None:
        cond = settled(self.values.truth(node.cond, True))
        depth = len(task.frames)

        def branch(body: ir.Stmt | None) -> Callable[[Task], None]:
            def move(part: Task) -> None:
                if body is not None:
                    part.frames.append(SeqFrame(body))

            return move

        if not is_array(cond):
            branch(node.then if cond else node.other)(task)
            return
        task.join(depth)
        yes = np.broadcast_to(cond, (len(task.group.lanes),))
        self._divide(task, [(yes, branch(node.then)), (~yes, branch(node.other))])

    def _enter_for(self, task: Task, node: ir.For) -> None:
        values = self.values
        bounds = [values.value(v, True) for v in (node.start, node.stop, node.step)]
        task.frames.append(ForFrame(node, *bounds))

    def _trip(self, task: Task, frame: ForFrame) -> None:
        index, stop, step = frame.index, frame.stop, frame.step
        if not any(map(is_array, (index, stop, step))):
            going: Any = index < stop if step > 0 else step < 0 and index > stop
        else:
            going = np.where(
                np.asarray(step) > 0,
                np.asarray(index) < stop,
                (np.asarray(step) < 0) & (np.asarray(index) > stop),
            )
            going = settled(np.broadcast_to(going, (len(task.group.lanes),)))

        def start(part: Task) -> None:
            mine = part.frames[-1]
            assert isinstance(mine, ForFrame)
            part.group.values[mine.node.var] = mine.index
            mine.index = mine.index + mine.step
            part.frames.append(SeqFrame(mine.node.body))

        self._both_ways(task, going, start)

    def _test(self, task: Task, frame: WhileFrame) -> None:
        going = settled(self.values.truth(frame.node.cond, True))
        self._both_ways(task, going, lambda part: part.frames.append(SeqFrame(frame.node.body)))

    def _both_ways(self, task: Task, going: Any, start: Callable[[Task], None]) -> None:
        """Lanes start a trip of the innermost loop, or leave it."""
        if not is_array(going):
            if going:
                start(task)
            else:
                task.frames.pop()
            return
        task.join(len(task.frames) - 1)

        def leave(part: Task) -> None:
            part.frames.pop()

        self._divide(task, [(going, start), (~going, leave)])


def _coordinates(node: ir.Launch, threads: tuple[int, ...]) -> tuple[Array, dict[ir.Var, Any]]:
    """The linear numbers of the lanes of a block, and the values of its thread variables."""
    lanes = rest = np.arange(int(np.prod(threads)))
    values: dict[ir.Var, Any] = {}
    for var, extent in zip(node.thread_vars, threads, strict=True):
        values[var] = (rest % extent).astype(np.int32) if extent > 1 else 0
        rest = rest // extent
    return lanes, values


def _is_wait(stmt: ir.Stmt) -> bool:
    if not isinstance(stmt, ir.Evaluate) or not isinstance(stmt.value, ir.Call):
        return False
    return stmt.value.name in BLOCKING


def _loop_depth(task: Task) -> int:
    """How many frames there are outside of the innermost loop; its own is the next one."""
    for number in range(len(task.frames) - 1, -1, -1):
        if not isinstance(task.frames[number], SeqFrame):
            return number
    return 0


def _leave(task: Task, depth: int) -> None:
    """Drop the frames beyond a depth."""
    del task.frames[depth:]
