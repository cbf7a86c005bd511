"""Small builders of lane code that rules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import Simplifier
from tilec.layout import Layout
from tilec.simt.rules import Lanes

INT32 = ir.DType("int32")


def number(value: int) -> ir.Const:
    """An int32 constant."""
    return ir.Const(value, INT32)


def loop(
    extent: int, make: Callable[[Any], ir.Stmt], span: Any, kind: str = "unroll", name: str = "i"
) -> ir.Stmt:
    """``for name in range(extent): make(name)``; without a loop where there is one trip."""
    if extent == 1:
        return make(number(0))
    var = ir.Var(name, INT32)
    return ir.For(var, number(0), number(extent), number(1), kind, {}, make(var), span=span)


def registers(name: str, count: int, dtype: ir.DType, span: Any) -> ir.Buffer:
    """A register array of each lane."""
    return ir.Buffer(name, (count,), dtype, ir.LOCAL, span=span)


def part(buffer: ir.Buffer, first: Any, count: int) -> ir.BufferRegion:
    """`count` registers from `first` on."""
    return ir.BufferRegion(buffer, (ir.as_expr(first),), (count,), span=buffer.span)


def effect(name: str, *args: Any, span: Any, **attrs: Any) -> ir.Stmt:
    """A statement that calls an intrinsic."""
    given = tuple(a if isinstance(a, ir.Node) else ir.as_expr(a) for a in args)
    return ir.Evaluate(ir.Call(name, given, INT32, attrs, span=span), span=span)


def less(value: Any, bound: int) -> ir.Expr:
    """``value < bound``."""
    return ir.Binary(ir.BinOp.LT, value, number(bound), ir.DType("bool"))


def guarded(cond: ir.Expr | None, body: ir.Stmt) -> ir.Stmt:
    """`body` under a condition, if there is one."""
    return body if cond is None else ir.If(cond, body, span=body.span)


def cleared(op: Any, registers: ir.Buffer) -> list[ir.Stmt]:
    """Zeros for the accumulator of a gemm, as far as it starts from zero."""
    if op.clear_accum is False:
        return []
    zero = ir.literal(0, registers.dtype, op.span)
    size = int(registers.shape[0])
    body = loop(size, lambda r: ir.Store(registers, (r,), zero, span=op.span), op.span, name="r")
    if op.clear_accum is True:
        return [body]
    return [ir.If(ir.truth(op.clear_accum), body, span=op.span)]


def element(region: ir.BufferRegion, row: Any, column: Any) -> ir.Load:
    """An element of a matrix (leading dimensions are 1)."""
    *lead, low, left = region.mins
    places = [_sum(low, row), _sum(left, column)]
    return ir.Load(region.buffer, (*lead, *places), region.dtype, span=region.span)


def _sum(low: ir.Expr, offset: Any) -> ir.Expr:
    if ir.const_value(low) == 0:
        return ir.as_expr(offset)
    return ir.as_expr(ir.cast(low, INT32) + offset)


def keeps_runs(region: ir.BufferRegion, lanes: Lanes, width: int) -> bool:
    """Whether `width` elements of a row, from a multiple of `width` on, are one aligned run of
    shared memory."""
    buffer = region.buffer
    columns = buffer.shape[-1]
    if not isinstance(columns, int) or columns % width or buffer.strides is not None:
        return False
    facts = Simplifier()
    if facts.residue(facts.simplify(region.mins[-1])).residue(width) != 0:
        return False
    layout = lanes.layouts.get(buffer)
    return layout is None or whole_runs(layout, width)


def whole_runs(layout: Layout, width: int) -> bool:
    """Whether aligned runs of `width` along the last dimension are stored as aligned runs."""
    offsets = layout.offsets
    if offsets.shape[-1] % width:
        return False
    groups = offsets.reshape(-1, width)
    whole = (groups == groups[:, :1] + np.arange(width)) & (groups[:, :1] % width == 0)
    return bool(whole.all())


def is_whole(region: ir.BufferRegion, scope: str) -> bool:
    """Whether a region is all of a buffer in a scope."""
    return (
        region.buffer.scope() == scope
        and all(ir.const_value(m) == 0 for m in region.mins)
        and tuple(region.extents) == tuple(region.buffer.shape)
    )
