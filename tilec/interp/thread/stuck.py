"""What is reported when no task of a block can go on."""

from __future__ import annotations

import numpy as np

from tilec import ir
from tilec.diagnostics import DeadlockError, DivergenceError
from tilec.interp.groups import Array
from tilec.interp.thread.table import COLLECTIVE
from tilec.interp.thread.tasks import State, Task, lanes_text
from tilec.interp.thread.values import LaneValues, script_name


def stuck(tasks: list[Task], values: LaneValues) -> DeadlockError | DivergenceError:
    """Who waits for what: part of a warp for the rest of it, or lanes for a barrier."""
    apart = [t for t in tasks if t.state is State.GATHERING]
    notes = [values.where(), *_waits(tasks, values), *_ended(tasks, values)]
    if apart:
        return _divergence(apart, values, notes)
    task = next(t for t in tasks if t.waiting is not None)
    wait = task.waiting
    assert wait is not None
    return DeadlockError(
        f"{_who(task, values, 'wait')} forever for {wait.describe()}",
        span=wait.span,
        hint="every wait needs the arrivals (and bytes) that its barrier was set up for",
        notes=notes,
    )


def _who(task: Task, values: LaneValues, verb: str) -> str:
    lanes = task.group.lanes
    return f"{lanes_text(lanes, values.warp)} {verb}{'s' if len(lanes) == 1 else ''}"


def _waits(tasks: list[Task], values: LaneValues) -> list[str]:
    notes = []
    for task in tasks:
        if task.waiting is not None:
            what = task.waiting.describe()
            notes.append(f"{_who(task, values, 'wait')} at {task.waiting.span} for {what}")
    return notes


def _ended(tasks: list[Task], values: LaneValues) -> list[str]:
    alive: list[Array] = [t.group.lanes for t in tasks]
    gone = np.setdiff1d(np.arange(values.total), np.concatenate(alive))
    if not len(gone):
        return []
    return [f"{lanes_text(gone, values.warp)} {'has' if len(gone) == 1 else 'have'} ended"]


def _divergence(apart: list[Task], values: LaneValues, notes: list[str]) -> DivergenceError:
    for task in apart[1:]:
        call = _collective(task)
        if call is not None:
            notes.append(f"{_who(task, values, 'wait')} at {call.span} in {script_name(call.name)}")
    task = apart[0]
    call = _collective(task)
    stmt = task.stmt()
    name = "this" if call is None else script_name(call.name)
    return DivergenceError(
        f"{name} is done by {task.need} lanes together, but only {_who(task, values, 'get')} here",
        span=call.span if call is not None else None if stmt is None else stmt.span,
        hint="move it out of control flow that lanes of one warp disagree about",
        notes=notes,
    )


def _collective(task: Task) -> ir.Call | None:
    stmt = task.stmt()
    if stmt is None:
        return None
    calls = (n for n in ir.walk(stmt) if isinstance(n, ir.Call) and n.name in COLLECTIVE)
    return next(calls, None)
