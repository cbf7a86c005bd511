"""What the lanes of a warp do together: shuffles, votes, and the order of their memory accesses."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import ir
from tilec.diagnostics import KernelRuntimeError
from tilec.interp.groups import Array, Mask
from tilec.interp.thread.values import LaneValues


def sync_warp(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Order the memory accesses of the lanes of each warp."""
    rows = values.warps(call, mask)
    if values.clocks is not None and len(rows):
        values.clocks.join(values.group_of().lanes[rows])
    return 0


def _spread(values: LaneValues, rows: Array, results: Array, like: Any) -> Array:
    """Results of the lanes in `rows`, for all lanes of the group."""
    full = np.zeros(len(values.group_of().lanes), like)
    full[rows] = results
    return full


def shuffle(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """The value of another lane of the warp."""
    value, other, width = call.args
    rows = values.warps(call, mask)
    group = values.integer(width, mask)
    count = len(values.group_of().lanes)
    mine = np.broadcast_to(np.asarray(values.value(value, mask)), (count,))
    given = np.broadcast_to(np.asarray(values.value(other, mask)), (count,))[rows].astype(np.int64)
    lane = np.arange(rows.shape[1])[None, :]
    base, inner = lane - lane % group, lane % group
    if call.name == "shfl_sync":
        source = base + given % group
    elif call.name == "shfl_xor":
        if ((given < 0) | (given >= group)).any():
            raise KernelRuntimeError(
                f"T.shfl_xor: a delta is not below the width {group}", span=call.span,
                notes=[values.where()],
            )  # fmt: skip
        source = lane ^ given
    else:
        moved = inner - given if call.name == "shfl_up" else inner + given
        source = np.where((moved >= 0) & (moved < group), base + moved, lane)
    source = np.broadcast_to(source, rows.shape)
    results = np.take_along_axis(mine[rows], source, axis=1)
    return _spread(values, rows, results, mine.dtype)


def vote(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """What the lanes of a warp say together."""
    rows = values.warps(call, mask)
    count = len(values.group_of().lanes)
    said = np.broadcast_to(np.asarray(values.value(call.args[0], mask)), (count,))[rows] != 0
    if call.name == "any_sync":
        results = said.any(axis=1)
    elif call.name == "all_sync":
        results = said.all(axis=1)
    else:
        bits = np.uint64(1) << np.arange(rows.shape[1], dtype=np.uint64)
        results = (said * bits).sum(axis=1, dtype=np.uint64).astype(np.uint32)
    kind = np.uint32 if call.name == "ballot_sync" else np.int32
    return _spread(values, rows, results.astype(kind)[:, None], kind)


def elect(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """True in the first lane of every so many ones."""
    lanes = values.integer(call.args[0], mask) or values.total
    chosen: Array = values.group_of().lanes % lanes == 0
    return chosen


def nothing(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """No meaning for values."""
    del values, call, mask
    return 0
