"""Matrix instructions, and the loads and stores of their operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import evaluate_cast
from tilec.diagnostics import InternalError
from tilec.interp.groups import Array, Mask, is_array
from tilec.interp.ledger import READ, WRITE
from tilec.interp.thread.values import LaneCells, LaneValues

_ROWS = 8  # of the matrices that ldmatrix and stmatrix move, of two bytes an element
_FLOAT64, _INT64 = ir.DType("float64"), ir.DType("int64")


class _Registers:
    """An operand in registers.

    Attributes:
        cells: its storage.
        flat: numbers of elements, by group of lanes and place in the layout's table.
        at: positions of the lanes that hold them, of the same shape.
        lane: their numbers within the group, by place in the table.
    """

    def __init__(
        self, values: LaneValues, region: Any, layout: Any, rows: Array, mask: Mask, *,
        copies: bool,
    ) -> None:  # fmt: skip
        self.cells, flat = values.registers(region, rows.reshape(-1), mask)
        size = flat.shape[1]
        if layout.register_extent > size:
            raise InternalError(
                f"{region.describe()} has {size} registers, the layout {layout.register_extent}",
                span=region.span,
            )
        lane, register = layout.thread_table, layout.register_table
        if not copies:
            lane, register = lane[..., :1], register[..., :1]
        slots = (lane * size + register).reshape(-1)
        self.flat = flat.reshape(len(rows), -1)[:, slots]
        self.lane = lane.reshape(-1)
        self.at = rows[:, self.lane]


def _shared(
    values: LaneValues, region: Any, shape: tuple[int, int], rows: Array, mask: Mask, *,
    swapped: bool,
) -> tuple[LaneCells, Array]:  # fmt: skip
    """An operand in shared memory: numbers of its elements by group, row and column."""
    cells = values.lane_cells(region.buffer)
    extents = [values.integer(e, mask) for e in region.extents]
    found = tuple(e for e in extents if e != 1) if len(extents) > 2 else tuple(extents)
    wanted = shape[::-1] if swapped else shape
    if len(extents) < 2 or np.prod(extents) != np.prod(shape) or found[-2:] != wanted:
        raise InternalError(
            f"{region.describe()} is not the operand {wanted} of a matrix instruction",
            span=region.span,
        )
    flat: Any = np.zeros((len(rows), 1, 1), np.int64)
    step = 1
    for axis in range(len(extents) - 1, -1, -1):
        low = values.value(region.mins[axis], mask)
        first = low[rows] if is_array(low) else np.full(rows.shape, low)
        if (first != first[:, :1]).any():
            raise InternalError("an operand differs between the lanes of an mma", span=region.span)
        if first.min() < 0 or int(first.max()) + extents[axis] > cells.extents[axis]:
            values.outside(
                cells, [int(first.flat[0])] * len(extents), region.span, None, write=False
            )
        flat = flat + first[:, :1, None] * step
        if axis >= len(extents) - 2:
            inner = np.arange(extents[axis]) * step
            flat = flat + (inner[:, None] if axis == len(extents) - 2 else inner[None, :])
        step *= cells.extents[axis]
    return cells, np.swapaxes(flat, 1, 2) if swapped else flat


def _numbers(stored: Array, dtype: ir.DType, wanted: str) -> Array:
    """Operand values as the instruction takes them, in a wide type."""
    if str(dtype) != wanted:
        stored = np.asarray(evaluate_cast(stored, dtype, ir.DType(wanted)))
    return stored.astype(np.float64 if dtype.is_float else np.int64)


def mma(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """``C = A @ B + (C if accumulate else 0)``, products and sums in float64 or int64."""
    atom = call.attrs["atom"]
    rows = values.warps(call, mask, atom.lanes)
    if not len(rows):
        return 0
    out = call.args[0]
    keep = values.value(call.args[3], mask) if len(call.args) > 3 else True
    keep = np.broadcast_to(keep, values.group.shape)[rows].astype(bool)
    if (keep != keep[:, :1]).any():
        raise InternalError("`accumulate` differs between the lanes of an mma", span=call.span)
    component = time = None
    if atom.asynchronous and values.clocks is not None:
        warps = values.group_of().lanes[rows].reshape(len(rows), -1, values.warp)
        component = np.array([[values.engines.matrix(warp) for warp in row] for row in warps])
        time = values.clocks.start(component)
    a, b = (_operand(values, call, mask, rows, number, component, time) for number in (0, 1))
    product = a @ np.swapaxes(b, 1, 2)
    layout = atom.layouts[2]
    held = _Registers(values, out, layout, rows, mask, copies=False)
    spread = _Registers(values, out, layout, rows, mask, copies=True)
    cells, keep = held.cells, keep[:, 0]
    total = product
    if keep.any():
        if values.watch is not None:
            flat, at = held.flat[keep].reshape(-1), held.at[keep].reshape(-1)
            if time is None:
                values.watch.access(READ, cells, flat, at, call.span, values.group_of())
            else:
                values.watch.defined(cells, flat, call.span)
        old = cells.take(held.flat).astype(product.dtype).reshape(product.shape)
        total = product + np.where(keep[:, None, None], old, 0)
    _registers(values, call, WRITE, spread, time)
    wide = _FLOAT64 if total.dtype.kind == "f" else _INT64
    accumulator = ir.DType(atom.accumulator)
    result = np.asarray(evaluate_cast(total, wide, accumulator))
    if accumulator != cells.buffer.dtype:
        result = np.asarray(evaluate_cast(result, accumulator, cells.buffer.dtype))
    copies = layout.replicate_extent
    cells.put(spread.flat, np.repeat(result.reshape(len(rows), -1), copies, axis=1))
    return 0


def _operand(
    values: LaneValues, call: ir.Call, mask: Mask, rows: Array, number: int, component: Any,
    time: Any,
) -> Array:  # fmt: skip
    """The values of A (0) or B (1) by group of lanes, row and k."""
    atom = call.attrs["atom"]
    region = call.args[1 + number]
    shape = (atom.n if number else atom.m, atom.k)
    dtype = atom.b_dtype if number else atom.a_dtype
    layout = atom.layouts[number]
    if layout is not None:
        operand = _Registers(values, region, layout, rows, mask, copies=False)
        cells, flat = operand.cells, operand.flat
        _registers(values, call, READ, operand, time)
        stored = cells.take(flat)
        stored = stored.reshape(len(rows), *shape)
    else:
        swapped = bool(call.attrs.get("transpose_b" if number else "transpose_a", False))
        cells, flat = _shared(values, region, shape, rows, mask, swapped=swapped)
        _read_shared(values, call, cells, flat, rows, component, time)
        stored = cells.take(flat)
    return _numbers(stored, cells.buffer.dtype, dtype)


def _registers(values: LaneValues, call: ir.Call, how: str, operand: _Registers, time: Any) -> None:
    """Check and note accesses to registers; those of an asynchronous atom last until it is done."""
    watch = values.watch
    if watch is None:
        return
    flat, at = operand.flat.reshape(-1), operand.at.reshape(-1)
    if time is None:
        watch.access(how, operand.cells, flat, at, call.span, values.group_of())
        return
    if how == READ:
        watch.defined(operand.cells, flat, call.span)
    mine = np.repeat(time, values.warp, axis=1)  # by group and lane within it
    row = np.arange(len(mine))[:, None]
    watch.started(how, operand.cells, flat, mine[row, operand.lane[None, :]], call.span)


def _read_shared(
    values: LaneValues, call: ir.Call, cells: LaneCells, flat: Array, rows: Array, component: Any,
    time: Any,
) -> None:  # fmt: skip
    watch = values.watch
    if watch is None:
        return
    for number, numbers in enumerate(flat.reshape(len(rows), -1)):
        # What every warp of the group knows counts, and each of them reads.
        for part, at in enumerate(rows[number, :: values.warp]):
            if component is None:
                watch.access(
                    READ, cells, numbers, np.full(len(numbers), at), call.span, values.group_of()
                )
                continue
            lane = np.full(len(numbers), values.group_of().lanes[at])
            engine, start = (np.full_like(lane, x[number, part]) for x in (component, time))
            watch.engine(READ, cells, numbers, (lane, engine, start), call.span, asynchronous=True)


def mma_fence(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Registers that were written are ready for asynchronous atoms."""
    lanes = values.group_of().lanes[values.warps(call, mask).reshape(-1)]
    for cells in values.cells.values():
        if isinstance(cells, LaneCells) and cells.unfenced is not None:
            cells.unfenced[lanes] = False
    return 0


def mma_commit(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """The asynchronous atoms that these lanes started form groups."""
    at = values.warps(call, mask).reshape(-1)
    if values.clocks is None:
        return 0
    for lane in values.group_of().lanes[at]:
        component = values.engines.matrix_of(int(lane))
        time = 0 if component is None else values.clocks.now(component)
        values.engines.matrix_groups.commit(int(lane), time)
    return 0


def mma_wait(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """All but the newest groups are done."""
    left = values.integer(call.args[0], mask)
    at = values.warps(call, mask).reshape(-1)
    if values.clocks is None:
        return 0
    for lane in values.group_of().lanes[at]:
        component = values.engines.matrix_of(int(lane))
        if component is None:
            continue
        time = values.engines.matrix_groups.done(int(lane), left)
        values.clocks.finish(lane, component, time)
        done = values.engines.matrix_done
        done[lane] = max(done[lane], time)
    return 0


# ldmatrix and stmatrix


def _places(
    values: LaneValues, call: ir.Call, element: Any, mask: Mask, *, write: bool
) -> tuple[LaneCells, Array, Array]:
    """The shared elements that lanes receive or give: numbers (warp, lane, register), and rows."""
    rows = values.warps(call, mask)
    count = int(call.attrs.get("num", 1))
    width = rows.shape[1] if rows.size else values.warp
    if width * 2 != _ROWS * _ROWS or count not in (1, 2, 4):
        raise InternalError(
            f"T.{call.name} of {count} matrices by warps of {width} lanes", span=call.span
        )
    if element.buffer.dtype.bits != 16:
        raise InternalError(f"T.{call.name} of {element.buffer.dtype!s}", span=call.span)
    place = np.zeros(len(values.group_of().lanes), bool)
    place[rows.reshape(-1)] = True
    place &= values.group_of().lanes % width < _ROWS * count
    cells, flat, at = values.elements(element, place, write=write)
    if (
        len(flat) != int(place.sum())
        or (flat % cells.extents[-1] + _ROWS > cells.extents[-1]).any()
    ):
        bad = flat[flat % cells.extents[-1] + _ROWS > cells.extents[-1]]
        index = cells.index_of(int(bad[0]))[0] if len(bad) else [0] * len(cells.extents)
        values.outside(cells, index, call.span, None, write=write)
    starts = np.zeros(len(values.group_of().lanes), np.int64)
    starts[at] = flat
    address = starts[rows][:, : _ROWS * count].reshape(len(rows), count, _ROWS)
    lane = np.arange(width)
    first, second = lane // 4, 2 * (lane % 4)
    parts = []
    for matrix in range(count):
        for extra in (0, 1):
            row, column = (
                (second + extra, first) if call.attrs.get("transpose") else (first, second + extra)
            )
            parts.append(address[:, matrix][:, row] + column)
    return cells, np.stack(parts, axis=-1), rows


def _private(
    values: LaneValues, call: ir.Call, region: Any, rows: Array, mask: Mask, size: int
) -> tuple[LaneCells, Array]:
    cells, flat = values.registers(region, rows.reshape(-1), mask)
    if flat.shape[1] != size:
        raise InternalError(
            f"T.{call.name} of {region.describe()}, which should have {size} elements",
            span=call.span,
        )
    return cells, flat.reshape(*rows.shape, size)


def ldmatrix(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """Load matrices of 8 rows of 16 bytes, each spread over the warp."""
    region, element = call.args
    source, flat, rows = _places(values, call, element, mask, write=False)
    if rows.size:
        cells, to = _private(values, call, region, rows, mask, flat.shape[-1])
        at = np.broadcast_to(rows[..., None], flat.shape)
        data = values.read(source, flat, at, call.span)
        values.write_elements(cells, to, at, data, call.span)
    return 0


def stmatrix(values: LaneValues, call: ir.Call, mask: Mask) -> Any:
    """The inverse of `ldmatrix`."""
    element, region = call.args
    target, flat, rows = _places(values, call, element, mask, write=True)
    if rows.size:
        cells, origin = _private(values, call, region, rows, mask, flat.shape[-1])
        at = np.broadcast_to(rows[..., None], flat.shape)
        data = values.read(cells, origin, at, call.span)
        values.write_elements(target, flat, at, data, call.span)
    return 0
