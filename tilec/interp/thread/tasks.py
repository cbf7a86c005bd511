"""Tasks: lanes of a block that are at the same place of the program.

A block starts as one task. Where its lanes go different ways through code that waits, the task
splits; tasks that are at the same place again become one. Each has its own place (a stack of
frames, so that it can be copied) and its own values of variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

import numpy as np

from tilec import ir
from tilec.diagnostics import Span
from tilec.interp.groups import LANES, Array, Group, is_array


class LaneGroup(Group):
    """Lanes that run together.

    Attributes:
        lanes: their linear numbers in the block, ascending.
        warp: lanes of a warp.
        all: whether these are all lanes of the block.
    """

    def __init__(self, lanes: Array, warp: int, total: int, parent: Group | None) -> None:
        super().__init__(LANES, (len(lanes),), ("lane",), parent)
        self.lanes = lanes
        self.warp = warp
        self.all = len(lanes) == total
        self._whole: dict[int, bool] = {}

    def place(self, instance: int) -> str:
        """A lane for people."""
        return lane_text(int(self.lanes[instance]), self.warp)

    def whole(self, width: int) -> bool:
        """Whether the lanes are complete groups of `width` consecutive ones."""
        known = self._whole.get(width)
        if known is None:
            known = len(self.lanes) % width == 0
            if known:
                rows = self.lanes.reshape(-1, width)
                known = bool((rows[:, 0] % width == 0).all())
                known = known and bool((rows[:, -1] - rows[:, 0] == width - 1).all())
            self._whole[width] = known
        return known


def lane_text(lane: int, warp: int) -> str:
    """A lane for people."""
    return f"lane {lane} (warp {lane // warp})"


def lanes_text(lanes: Any, warp: int) -> str:
    """Some lanes for people, such as ``lanes 0 to 31 and 64 to 95 (warps 0 and 2)``."""
    numbers = [int(n) for n in lanes]
    if not numbers:
        return "no lane"
    if len(numbers) == 1:
        return lane_text(numbers[0], warp)
    warps = sorted({n // warp for n in numbers})
    word = "warp" if len(warps) == 1 else "warps"
    return f"lanes {_ranges(numbers)} ({word} {_ranges(warps)})"


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    parts = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    if len(parts) > 4:
        parts = [*parts[:3], f"{len(parts) - 3} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


class SeqFrame:
    """Within a sequence of statements; `at` is the next one."""

    def __init__(self, node: ir.Stmt, at: int = 0) -> None:
        self.node = node
        self.stmts: tuple[ir.Stmt, ...] = node.stmts if isinstance(node, ir.Seq) else (node,)
        self.at = at

    def key(self) -> Any:
        """Equal for equal places."""
        return (id(self.node), self.at)

    def chosen(self, which: Array, count: int) -> SeqFrame:
        """The frame of some of the lanes."""
        del which, count
        return SeqFrame(self.node, self.at)


class ForFrame:
    """Within a counted loop; `index` is that of the next trip."""

    def __init__(self, node: ir.For, index: Any, stop: Any, step: Any) -> None:
        self.node = node
        self.index, self.stop, self.step = index, stop, step

    def key(self) -> Any:
        """Equal for equal places; per-lane indices can always be put together."""
        parts = (self.index, self.stop, self.step)
        return (id(self.node), *("lanes" if is_array(p) else p for p in parts))

    def chosen(self, which: Array, count: int) -> ForFrame:
        """The frame of some of the lanes."""
        parts = (pick(p, which, count) for p in (self.index, self.stop, self.step))
        return ForFrame(self.node, *parts)


class WhileFrame:
    """Within a ``while`` loop, before its condition."""

    def __init__(self, node: ir.While) -> None:
        self.node = node

    def key(self) -> Any:
        """Equal for equal places."""
        return id(self.node)

    def chosen(self, which: Array, count: int) -> WhileFrame:
        """The frame of some of the lanes."""
        del which, count
        return WhileFrame(self.node)


Frame = SeqFrame | ForFrame | WhileFrame


def pick(value: Any, which: Array, count: int) -> Any:
    """The part of a value that belongs to some lanes; one number where they agree."""
    if not is_array(value):
        return value
    part = np.broadcast_to(value, (count,))[which]
    first = part[0]
    return first.item() if part.dtype.kind in "iub" and (part == first).all() else part.copy()


class State(Enum):
    """What a task does."""

    READY = "ready"
    PARKED = "parked"
    """Waits for others to come to the same place, but goes on without them if it has to."""
    GATHERING = "gathering"
    """Needs the other lanes of its warps at the same place."""
    WAITING = "waiting"


class Waiting(Protocol):
    """What a task waits for."""

    span: Span

    def over(self) -> bool:
        """Whether the wait has ended."""

    def describe(self) -> str:
        """What is waited for, for reports."""


class Task:
    """Lanes at one place.

    Attributes:
        group: the lanes and the values of their variables.
        frames: the place, outermost first.
        joins: depths of the frame stack at which others may come to the same place.
        state: what it does.
        waiting: for what, in state WAITING.
        need: how many consecutive lanes have to be together, in state GATHERING.
    """

    def __init__(self, group: LaneGroup, frames: list[Frame]) -> None:
        self.group = group
        self.frames = frames
        self.joins: list[int] = []
        self.state = State.READY
        self.waiting: Waiting | None = None
        self.need = 1

    def join(self, depth: int) -> None:
        """Others may come to the same place once the frame stack is that deep again."""
        if not self.joins or self.joins[-1] != depth:
            self.joins.append(depth)

    def key(self) -> Any:
        """Equal for tasks at the same place."""
        return tuple(frame.key() for frame in self.frames)

    def stmt(self) -> ir.Stmt | None:
        """The statement it is at."""
        for frame in reversed(self.frames):
            if not isinstance(frame, SeqFrame):
                return frame.node
            if frame.at < len(frame.stmts):
                return frame.stmts[frame.at]
        return None

    def split(self, which: Array, total: int) -> Task:
        """A copy for the lanes in `which` (bools over the lanes of this task)."""
        old = self.group
        count = len(old.lanes)
        group = LaneGroup(old.lanes[which], old.warp, total, old.parent)
        group.values = {v: pick(x, which, count) for v, x in old.values.items()}
        task = Task(group, [f.chosen(which, count) for f in self.frames])
        task.joins = list(self.joins)
        return task


def merged(tasks: list[Task], total: int) -> Task:
    """One task for tasks at the same place."""
    first = tasks[0]
    if len(tasks) == 1:
        return first
    lanes = np.concatenate([t.group.lanes for t in tasks])
    order = np.argsort(lanes)

    def together(values: list[Any]) -> Any:
        head = values[0]
        if not any(map(is_array, values)) and all(
            type(v) is type(head) and v == head for v in values
        ):
            return head
        parts = [np.broadcast_to(v, t.group.shape) for v, t in zip(values, tasks, strict=True)]
        return np.concatenate(parts)[order]

    group = LaneGroup(lanes[order], first.group.warp, total, first.group.parent)
    for var in first.group.values:
        if all(var in t.group.values for t in tasks):
            group.values[var] = together([t.group.values[var] for t in tasks])
    frames: list[Frame] = []
    for number, frame in enumerate(first.frames):
        if isinstance(frame, ForFrame):
            same = [t.frames[number] for t in tasks]
            parts = [
                together([getattr(f, name) for f in same]) for name in ("index", "stop", "step")
            ]
            frames.append(ForFrame(frame.node, *parts))
        else:
            frames.append(frame)
    task = Task(group, frames)
    task.joins = list(min((t.joins for t in tasks), key=lambda depths: len(list(depths))))
    return task
