"""Copies that run beside the lanes: of a few elements, and of whole boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import evaluate_binary, evaluate_cast
from tilec.diagnostics import InternalError, Span
from tilec.interp.groups import Array, Mask, is_array
from tilec.interp.ledger import ATOMIC, READ, WRITE
from tilec.interp.thread.barriers import barriers_of
from tilec.interp.thread.values import LaneCells, LaneValues
from tilec.interp.tiles import Box, contents
from tilec.ir import BinOp

_INT64 = ir.DType("int64")
_REDUCE = {"add": BinOp.ADD, "min": BinOp.MIN, "max": BinOp.MAX}


def _run(cells: LaneCells, flat: Array, count: int) -> tuple[Array, Array]:
    """Elements that follow given ones in their rows, and which of them exist."""
    steps = np.arange(count)
    extent = cells.extents[-1] if cells.extents else 1
    inside = (flat % extent)[:, None] + steps[None, :] < extent
    return flat[:, None] + steps[None, :], inside


def cp_async(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Start copying a few elements from global to shared memory."""
    target, source = call.args[:2]
    if target.buffer.dtype != source.buffer.dtype:
        raise InternalError("cp_async converts no elements", span=call.span)
    count = values.integer(call.args[2], mask)
    taken = values.truth(call.args[3], mask) if len(call.args) > 3 else mask
    to, where, at = values.elements(target, mask, write=True)
    places, inside = _run(to, where, count)
    if not inside.all():
        row = int(np.argmin(inside.all(axis=1)))
        index, _ = to.index_of(int(where[row]))
        values.outside(to, [*index[:-1], to.extents[-1]], call.span, int(at[row]), write=True)
        places = np.where(inside, places, where[:, None])
    data = np.zeros((len(values.group_of().lanes), count), to.array.dtype)
    start = values.watch is not None and values.clocks is not None
    lanes = values.group_of().lanes[at]
    components = times = lanes
    if start and len(at):
        assert values.clocks is not None
        components = values.engines.copy_components(lanes)
        times = values.clocks.start(components)
    if taken is not False:
        origin, flat, by = values.elements(source, taken)
        cells, exist = _run(origin, flat, count)
        data[by] = np.where(exist, origin.take(np.where(exist, cells, 0)), 0)
        if start and len(by):
            turn = np.searchsorted(at, by)
            mine = (lanes[turn], components[turn], times[turn])
            _watch(values, READ, origin, cells, exist, mine, call.span)
    if start and len(at):
        mine = (lanes, components, times)
        _watch(values, WRITE, to, places, inside, mine, call.span, data[at])
    to.put(places[inside], data[at][inside])
    return 0


def _watch(
    values: LaneValues, how: str, cells: LaneCells, places: Array, exist: Array,
    by: tuple[Array, Array, Array], span: Span, data: Array | None = None,
) -> None:  # fmt: skip
    assert values.watch is not None
    lanes, components, times = (np.broadcast_to(x[:, None], places.shape)[exist] for x in by)
    values.watch.engine(
        how, cells, places[exist], (lanes, components, times), span, asynchronous=False,
        values=None if data is None else data[exist],
    )  # fmt: skip


def cp_commit(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """The copies that these lanes started form groups."""
    del call
    if values.clocks is None:
        return 0
    base = values.engines.copies
    for lane in values.group_of().lanes[values.positions(mask)]:
        time = 0 if base is None else values.clocks.now(base + int(lane))
        values.engines.copy_groups.commit(int(lane), time)
    return 0


def cp_wait(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """All but the newest groups are done."""
    left = values.integer(call.args[0], mask)
    base = values.engines.copies
    if values.clocks is None or base is None:
        return 0
    lanes = values.group_of().lanes[values.positions(mask)]
    times = np.array([values.engines.copy_groups.done(int(n), left) for n in lanes])
    values.clocks.finish(lanes, base + lanes, times)
    return 0


def cp_barrier(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Arrive when all copies that these lanes started are done."""
    base = values.engines.copies
    for barrier, lanes, _ in barriers_of(values, call.args[0], mask):
        barrier.use(lanes, call.span)
        if values.clocks is not None and base is not None:
            for lane in lanes:
                barrier.learn(base + int(lane), values.clocks.now(base + int(lane)))
        barrier.arrive(lanes, call.span, engine=True)
    return 0


# boxes


def _box(values: LaneValues, region: Any, at: int, mask: Mask) -> Box:
    """A region as the lane at a position sees it."""
    if not isinstance(region, ir.BufferRegion):
        raise InternalError(f"expected a region, got {ir.describe(region)}")

    def number(value: Any) -> int:
        found = value if isinstance(value, int) else values.value(value, mask)
        return int(np.asarray(found)[at]) if is_array(found) else int(found)

    cells = values.lane_cells(region.buffer)
    mins = tuple(ir.Const(number(m), _INT64) for m in region.mins)
    extents = tuple(max(number(e), 0) for e in region.extents)
    return Box(region.replace(mins=mins, extents=extents), cells, ())


def _cells(box: Box) -> LaneCells:
    assert isinstance(box.cells, LaneCells)
    return box.cells


def _whole(values: LaneValues, box: Box, at: int, span: Span, *, write: bool) -> None:
    """The shared side of a bulk copy lies inside its buffer."""
    if not box.sticks_out:
        return
    place = [
        low if low < 0 or low + count <= extent else max(low, extent)
        for low, count, extent in zip(box.lows, box.shape, box.cells.extents, strict=True)
    ]
    values.outside(_cells(box), place, span, at, write=write)


def _engine(
    values: LaneValues, how: str, box: Box, lane: int, component: int, time: int, span: Span
) -> None:
    if values.watch is None:
        return
    flat = box.flat().reshape(-1)
    if len(flat):
        who = np.full(len(flat), lane)
        by = (who, np.full_like(who, component), np.full(len(flat), time))
        values.watch.engine(how, _cells(box), flat, by, span, asynchronous=True)


def bulk_load(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Start copying a box of global memory to shared memory."""
    target, source, element = call.args
    clocks = values.clocks
    for barrier, lanes, positions in barriers_of(values, element, mask):
        barrier.use(lanes, call.span)
        for lane, at in zip(lanes, positions, strict=True):
            to, origin = (_box(values, r, int(at), mask) for r in (target, source))
            _agree(to, origin, call)
            _whole(values, to, int(at), call.span, write=True)
            component = time = 0
            if clocks is not None:
                component = clocks.engine(
                    ("bulk_load", id(barrier)), f"the bulk_load that completes on {barrier.name}",
                    generic=False,
                )  # fmt: skip
                time = int(clocks.start(np.array([component]))[0])
                _engine(values, READ, origin, int(lane), component, time, call.span)
                _engine(values, WRITE, to, int(lane), component, time, call.span)
            data = contents(origin).reshape(to.shape)[to.part]
            to.cells.array[to.inside] = data
            size = math.prod(to.shape) * to.cells.buffer.dtype.bits // 8
            barrier.complete(size, component, time)
    return 0


def _agree(to: Box, origin: Box, call: ir.Call) -> None:
    if math.prod(to.shape) != math.prod(origin.shape) or to.region.dtype != origin.region.dtype:
        raise InternalError(
            f"T.{call.name} from {origin.region.describe()} to {to.region.describe()}",
            span=call.span,
        )


def bulk_store(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Start copying a box of shared memory to global memory, or combining it with what is there."""
    target, source = call.args
    op = call.attrs.get("reduce")
    lanes = values.group_of().lanes
    for at in values.positions(mask):
        lane = int(lanes[at])
        to, origin = (_box(values, r, int(at), mask) for r in (target, source))
        _agree(to, origin, call)
        _whole(values, origin, int(at), call.span, write=False)
        if values.clocks is not None:
            engine = values.engines.store(lane, call.span)
            times = values.clocks.start(np.array(engine))
            _engine(values, READ, origin, lane, engine.read, int(times[0]), call.span)
            how = ATOMIC if op else WRITE
            _engine(values, how, to, lane, engine.write, int(times[1]), call.span)
        data = contents(origin).reshape(to.shape)[to.part]
        dtype = to.region.dtype
        if op:
            old = to.cells.array[to.inside].astype(to.cells.kind)
            data = evaluate_binary(_REDUCE[op], old, data, dtype)
        to.cells.array[to.inside] = evaluate_cast(data, dtype, dtype)
    return 0


def bulk_commit(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """The bulk stores that these lanes started form groups."""
    del call
    engines, clocks = values.engines, values.clocks
    if clocks is None:
        return 0
    for lane in values.group_of().lanes[values.positions(mask)]:
        engine = engines.stores.get(int(lane))
        engines.store_reads.commit(int(lane), clocks.now(engine.read) if engine else 0)
        engines.store_groups.commit(int(lane), clocks.now(engine.write) if engine else 0)
    return 0


def bulk_wait(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """All but the newest groups have read their sources, or are done."""
    left = values.integer(call.args[0], mask)
    engines, clocks = values.engines, values.clocks
    if clocks is None:
        return 0
    for lane in values.group_of().lanes[values.positions(mask)]:
        engine = engines.stores.get(int(lane))
        if engine is None:
            continue
        clocks.finish(lane, engine.read, engines.store_reads.done(int(lane), left))
        if not call.attrs.get("read"):
            clocks.finish(lane, engine.write, engines.store_groups.done(int(lane), left))
    return 0
