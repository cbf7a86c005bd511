"""Reductions of fragments: registers of a lane, then lanes of a warp, then warps.

Every lane combines what it holds, lanes of a warp exchange their results by butterflies, and where
the lanes of a row are spread over warps their results meet in shared memory. All lanes that held a
part of a row hold its result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tilec import ir
from tilec.diagnostics import ShapeError
from tilec.ir import BinOp
from tilec.layout import Fragment, closed_form
from tilec.layout.maps import Array
from tilec.ops import Reduce, identity
from tilec.ops.base import loop_vars
from tilec.simt.grid import Grid, balanced
from tilec.simt.partition import Partition, of_fragment, with_axis
from tilec.simt.rules import Demand, LaneRule, Lanes
from tilec.simt.tiles import is_whole_fragment

_INT32 = ir.DType("int32")
_BOOL = ir.DType("bool")


class Exchange(NamedTuple):
    """How the lanes that hold parts of one result find each other.

    Attributes:
        masks: of butterflies within a warp.
        parts: results that are left after those, in different warps.
        part: which of them a lane has.
        leads: conditions under which a lane speaks for its butterfly.
    """

    masks: tuple[int, ...]
    parts: int
    part: ir.Expr
    leads: list[ir.Expr]


def rule() -> LaneRule:
    """Reductions of whole fragments."""
    return LaneRule(Reduce, "reduce in registers", _demands, _lower, _applies, 10.0, _folds)


def _applies(op: Reduce, lanes: Lanes) -> bool | str:
    del lanes
    if not is_whole_fragment(op.src) or not is_whole_fragment(op.dst):
        return "the operands are not whole fragments"
    return True if op.src.buffer is not op.dst.buffer else "it works in place"


def _folds(op: Reduce) -> Mapping[ir.Buffer, int]:
    return {op.src.buffer: op.dim}


def _demands(op: Reduce, lanes: Lanes) -> Mapping[ir.Buffer, Demand]:
    source = lanes.fragments.get(op.src.buffer)
    if source is None:
        return {}
    prepared = _prepared(source, op.dim, lanes) or _prepared(_own_layout(op, lanes), op.dim, lanes)
    assert prepared is not None
    result = prepared[0]
    if op.dst.buffer.ndim == op.src.buffer.ndim and op.src.buffer.ndim > 1:
        result = with_axis(result, op.dim)
    return {op.dst.buffer: result}


def _own_layout(op: Reduce, lanes: Lanes) -> Grid:
    shape = tuple(int(e) for e in op.src.extents if isinstance(e, int))
    return balanced(shape, lanes.count, 1, (op.dim,), lanes.warp)


def _prepared(
    source: Fragment, dim: int, lanes: Lanes
) -> tuple[Fragment, Partition, Partition, Exchange] | None:
    """Layout of the result, partitions of source and result, and the exchange; None if the
    layout of the source has no simple exchange."""
    key = ("reduce", id(source), dim)
    if key not in lanes.memo:
        lanes.memo[key] = source, _prepare(source, dim, lanes)
    found: tuple[Fragment, Partition, Partition, Exchange] | None = lanes.memo[key][1]
    return found


def _prepare(
    source: Fragment, dim: int, lanes: Lanes
) -> tuple[Fragment, Partition, Partition, Exchange] | None:
    try:
        result = source.fold(dim)
        parts = of_fragment(source, lanes.count), of_fragment(result, lanes.count)
    except (ValueError, ShapeError):
        return None
    exchange = (
        _grid_exchange(source, dim, lanes)
        if isinstance(source, Grid)
        else _table_exchange(result, lanes)
    )
    return None if exchange is None else (result, *parts, exchange)


def _grid_exchange(source: Grid, dim: int, lanes: Lanes) -> Exchange:
    axis = source.axes[dim]
    stride, count = axis.stride, axis.lanes
    low = 1
    if stride & (stride - 1) == 0 and lanes.warp % stride == 0:
        low = math.gcd(count, lanes.warp // stride)
    masks = tuple(stride << k for k in range(low.bit_length() - 1))
    lane: Any = lanes.index
    part = lane // (stride * low) % (count // low)
    leads = [] if low == 1 else [_equal(lane // stride % low, 0)]
    leads += [_equal(lane // step % copies, 0) for copies, step in source.copies]
    return Exchange(masks, count // low, ir.as_expr(part), leads)


def _table_exchange(result: Fragment, lanes: Lanes) -> Exchange | None:
    owners = np.sort(result.thread_table.reshape(-1, result.replicate_extent), axis=1)
    first = np.unique(owners[0])
    group = np.unique(first ^ first[0])
    if len(group) & (len(group) - 1) or set((group[:, None] ^ group).ravel()) != set(group):
        return None
    each = np.sort(owners[:, :1] ^ group, axis=1)
    for row, mine in zip(each, owners, strict=True):
        if not np.array_equal(row, np.unique(mine)):
            return None
    basis = _basis([int(g) for g in group])
    low = [b for b in basis if b < lanes.warp]
    high = [b for b in basis if b >= lanes.warp]
    lane: Any = lanes.index
    part: Any = ir.Const(0, _INT32)
    for k, vector in enumerate(high):
        bit = 1 << (vector.bit_length() - 1)
        part = part + lane // bit % 2 * (1 << k)
    leads = [_equal(lane // (1 << (v.bit_length() - 1)) % 2, 0) for v in low]
    return Exchange(tuple(low), 1 << len(high), part, leads)


def _basis(group: list[int]) -> list[int]:
    """Generators of a group of exclusive ors, each with a highest bit that no other has."""
    found: list[int] = []
    for value in group:
        for vector in sorted(found, reverse=True):
            value = min(value, value ^ vector)
        if value:
            bit = 1 << (value.bit_length() - 1)
            found = [v ^ value if v & bit else v for v in found]
            found.append(value)
    return sorted(found)


def _equal(value: Any, number: int) -> ir.Expr:
    return ir.Binary(BinOp.EQ, value, ir.Const(number, _INT32), _BOOL)


# code


def _lower(op: Reduce, lanes: Lanes) -> ir.Stmt:
    source = lanes.fragments[op.src.buffer]
    prepared = _prepared(source, op.dim, lanes)
    if prepared is None:
        moved = _fragment(op.src.buffer, _own_layout(op, lanes), lanes)
        copy = _elementwise(op.src.buffer, moved, op.span)
        inner = _lower(op.replace(src=moved.region()), lanes)
        return ir.seq(_alloc(moved, lanes), copy, inner)
    result = prepared[0]
    dropped = op.dst.buffer.ndim != op.src.buffer.ndim or op.src.buffer.ndim == 1
    wanted = result if dropped else with_axis(result, op.dim)
    given = lanes.fragments[op.dst.buffer]
    if given.register_extent >= result.register_extent and _holds(wanted, given):
        return _Reduction(op, lanes, *prepared[1:]).code(lanes.registers[op.dst.buffer])
    # The result is wanted elsewhere: a tile of its own, and a copy.
    tile = _fragment(op.dst.buffer, wanted, lanes)
    parts: list[ir.Stmt] = [_alloc(tile, lanes)]
    if not op.clear:
        parts.append(_elementwise(op.dst.buffer, tile, op.span))
    parts.append(_Reduction(op, lanes, *prepared[1:]).code(lanes.registers[tile]))
    parts.append(_elementwise(tile, op.dst.buffer, op.span))
    return ir.Seq(tuple(parts), span=op.span)


def _holds(mine: Fragment, other: Fragment) -> bool:
    if isinstance(mine, Grid) and isinstance(other, Grid):
        same = mine.axes == other.axes and mine.copies == other.copies
        return same or mine.contains(other)
    return mine.contains(other)


def _fragment(like: ir.Buffer, layout: Fragment, lanes: Lanes) -> ir.Buffer:
    tile = ir.Buffer(f"{like.name}_part", like.shape, like.dtype, ir.FRAGMENT, span=like.span)
    lanes.fragments[tile] = layout
    lanes.registers[tile] = ir.Buffer(
        tile.name, (layout.register_extent,), tile.dtype, ir.LOCAL, span=tile.span
    )
    return tile


def _alloc(tile: ir.Buffer, lanes: Lanes) -> ir.Stmt:
    return ir.Alloc(lanes.registers[tile], span=tile.span)


def _elementwise(source: ir.Buffer, target: ir.Buffer, span: Any) -> ir.Stmt:
    extents = tuple(ir.as_expr(e) for e in source.shape)
    variables = loop_vars(extents)
    value = ir.Load(source, variables, source.dtype, span=span)
    body = ir.Store(target, variables, value, span=span)
    return ir.Parallel(variables, extents, {}, body, span=span)


class _Reduction:
    """The code of one reduction.

    Args:
        op: what is reduced.
        lanes: who does it.
        source: partition that follows the source.
        result: partition that follows the result.
        exchange: between lanes.
    """

    def __init__(
        self, op: Reduce, lanes: Lanes, source: Partition, result: Partition, exchange: Exchange
    ) -> None:
        self._op = op
        self._lanes = lanes
        self._source = source
        self._result = result
        self._exchange = exchange
        self._acc = ir.Buffer("acc", (result.slots,), op.accumulator, ir.LOCAL, span=op.span)

    def code(self, target: ir.Buffer) -> ir.Stmt:
        """Everything, with the result in the registers `target`."""
        op, acc, span = self._op, self._acc, self._op.span
        start = identity(op.kind, acc.dtype)
        parts: list[ir.Stmt] = [
            ir.Alloc(acc, span=span),
            self._each(lambda r: ir.Store(acc, (r,), start, span=span)),
            self._registers(),
        ]
        if self._exchange.masks:
            parts.append(self._each(self._butterfly))
        if self._exchange.parts > 1:
            parts += self._across()
        parts.append(self._each(lambda r: self._finish(target, r)))
        return ir.Seq(tuple(parts), span=span)

    def _value(self, register: ir.Expr) -> ir.Load:
        return ir.Load(self._acc, (register,), self._acc.dtype, span=self._op.span)

    def _each(self, make: Any) -> ir.Stmt:
        """Something for each register of the result."""
        return _unrolled(self._result.slots, "r", make, self._op.span)

    def _registers(self) -> ir.Stmt:
        """What a lane holds, combined."""
        op, lanes = self._op, self._lanes
        targets = self._targets()
        registers = lanes.registers[op.src.buffer]

        def one(slot: ir.Expr, place: ir.Expr) -> ir.Stmt:
            item = op.element(ir.Load(registers, (slot,), registers.dtype, span=op.span))
            value = op.combine(self._value(place), item)
            store: ir.Stmt = ir.Store(self._acc, (place,), value, span=op.span)
            return _when(self._source.active(lanes.index, slot), store)

        slot = ir.Var("s", _INT32)
        place = closed_form(targets, slot)
        if place is None:
            return ir.Seq(
                tuple(
                    one(ir.Const(n, _INT32), ir.Const(int(r), _INT32))
                    for n, r in enumerate(targets)
                ),
                span=op.span,
            )
        form = place
        return _unrolled(
            self._source.slots, "s", lambda s: one(s, ir.substitute(form, {slot: s})), op.span
        )

    def _targets(self) -> Array:
        """Per register of the source the register of the result that it counts for."""
        dim = self._op.dim
        shape = [int(e) for e in self._op.src.buffer.shape if isinstance(e, int)]
        kept = [n for n in range(len(shape)) if n != dim]

        def number(table: tuple[Array, ...], extents: list[int]) -> Array:
            flat: Array = np.zeros((), np.int64)
            for at, extent in zip(table, extents, strict=True):
                flat = flat * extent + np.minimum(at, extent - 1)
            return flat

        extents = [shape[n] for n in kept]
        wanted = number(tuple(self._source.table[n] for n in kept), extents)
        wanted = np.broadcast_to(wanted, self._source.valid.shape)
        table = self._result.table if kept else ()
        have = np.broadcast_to(number(table, extents), self._result.valid.shape)
        size = math.prod(extents)
        place = np.full((self._lanes.count, size), -1, np.int64)
        who, register = np.nonzero(self._result.valid)
        place[who, have[who, register]] = register
        found = place[np.arange(self._lanes.count)[:, None], wanted]
        return np.asarray(np.where(self._source.valid, found, -1).max(axis=0))

    def _butterfly(self, register: ir.Expr) -> ir.Stmt:
        """Lanes of a warp combine with their partners."""
        op, warp = self._op, ir.Const(self._lanes.warp, _INT32)
        parts: list[ir.Stmt] = []
        for mask in reversed(self._exchange.masks):
            mine = self._value(register)
            args = (mine, ir.Const(mask, _INT32), warp)
            other = ir.Var("other", mine.dtype, span=op.span)
            call = ir.Call("shfl_xor", args, mine.dtype, span=op.span)
            parts.append(ir.Bind(other, call, span=op.span))
            value = op.combine(mine, other)
            parts.append(ir.Store(self._acc, (register,), value, span=op.span))
        return ir.Seq(tuple(parts), span=op.span)

    def _across(self) -> list[ir.Stmt]:
        """Warps combine in shared memory."""
        op, lanes, exchange = self._op, self._lanes, self._exchange
        extents = tuple(
            int(e) for n, e in enumerate(op.src.buffer.shape) if n != op.dim and isinstance(e, int)
        ) or (1,)
        scratch = ir.Buffer(
            "partial", (exchange.parts, *extents), self._acc.dtype, ir.SHARED, span=op.span
        )

        def place(register: ir.Expr) -> tuple[ir.Expr, ...]:
            return self._result.indices(lanes.index, register)

        def put(register: ir.Expr) -> ir.Stmt:
            at = (exchange.part, *place(register))
            store = ir.Store(scratch, at, self._value(register), span=op.span)
            conds = [*self._result.active(lanes.index, register), *exchange.leads]
            return _when(conds, store)

        def get(register: ir.Expr) -> ir.Stmt:
            at = place(register)
            step = ir.Var("p", _INT32)
            first = ir.Const(0, _INT32)

            def load(part: ir.Expr) -> ir.Load:
                return ir.Load(scratch, (part, *at), scratch.dtype, span=op.span)

            value = op.combine(self._value(register), load(step))
            again = ir.For(
                step, ir.Const(1, _INT32), ir.Const(exchange.parts, _INT32), ir.Const(1, _INT32),
                "unroll", {}, ir.Store(self._acc, (register,), value, span=op.span), span=op.span,
            )  # fmt: skip
            begin = ir.Store(self._acc, (register,), load(first), span=op.span)
            return _when(
                self._result.active(lanes.index, register), ir.Seq((begin, again), span=op.span)
            )

        return [ir.Alloc(scratch, span=op.span), self._each(put), self._each(get)]

    def _finish(self, target: ir.Buffer, register: ir.Expr) -> ir.Stmt:
        op = self._op
        result: ir.Expr = self._value(register)
        if not op.clear:
            old = ir.Load(target, (register,), target.dtype, span=op.span)
            result = op.combine(op.contribution(old), result)
        value = ir.cast(result, target.dtype)
        store = ir.Store(target, (register,), value, span=op.span)
        if op.clear:
            return store
        return _when(self._result.active(self._lanes.index, register), store)


def _unrolled(count: int, name: str, make: Any, span: Any) -> ir.Stmt:
    zero, one = ir.Const(0, _INT32), ir.Const(1, _INT32)
    if count == 1:
        body: ir.Stmt = make(zero)
        return body
    var = ir.Var(name, _INT32)
    return ir.For(var, zero, ir.Const(count, _INT32), one, "unroll", {}, make(var), span=span)


def _when(conds: list[ir.Expr], body: ir.Stmt) -> ir.Stmt:
    cond: ir.Expr | None = None
    for item in conds:
        if ir.const_value(item) is not True:
            cond = item if cond is None else ir.Binary(BinOp.AND, cond, item, _BOOL)
    return body if cond is None else ir.If(cond, body, span=body.span)
