"""Operands of a tile operation that overlap its result are read before it is written.

A tile operation reads all of its operands before it writes. Lowered to a loop, one that reads what
it writes would see its own results; so what it reads is kept in a tile of its own first, and so is
a scalar that is read from the result's buffer.

Before::

    T.copy(s[0:32], s[1:33])
    T.fill(s[0:64], s[5])

After::

    s_before = T.alloc_fragment((32,), "float32")
    T.copy(s[0:32], s_before)
    T.copy(s_before, s[1:33])
    value = s[5]
    T.fill(s[0:64], value)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec import ir
from tilec.diagnostics import OperandError
from tilec.ops import Copy, TileOp
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.scoped import ScopedRewriter


class SeparateOperands(FunctionPass):
    """Copies operands that may overlap the result; leaves what is provably apart."""

    name = "separate_operands"
    purpose = "read operands that overlap the result before it is written"
    needs = "tile"
    gives = "tile"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Separate the operands of every tile operation of a function."""
        del ctx
        return _Separator().function(func)


class _Separator(ScopedRewriter):
    def leaf(self, node: Any) -> Any:
        """A tile operation whose operands do not depend on what it writes."""
        if not isinstance(node, TileOp):
            return node
        results = node.writes()
        written = {region.buffer for region in results}
        before: list[ir.Stmt] = []
        changes: dict[str, Any] = {}
        for key in node._fields:
            old = getattr(node, key)
            new = old
            if isinstance(old, ir.Expr):
                new = _settled(old, "value", written, before)
            elif isinstance(old, ir.BufferRegion):
                mins = tuple(_settled(m, "start", written, before) for m in old.mins)
                extents = tuple(
                    _settled(e, "extent", written, before) if isinstance(e, ir.Expr) else e
                    for e in old.extents
                )
                if any(a is not b for a, b in zip((*mins, *extents), (*old.mins, *old.extents),
                                                  strict=True)):  # fmt: skip
                    new = old.replace(mins=mins, extents=extents)
                if not any(old is region for region in results) and any(
                    self._may_overlap(new, region) for region in results
                ):
                    new = _kept(new, node, before)
            if new is not old:
                changes[key] = new
        if not changes:
            return node
        return ir.Seq((*before, node.replace(**changes)), span=node.span)

    def _may_overlap(self, a: ir.BufferRegion, b: ir.BufferRegion) -> bool:
        if a.buffer is not b.buffer:
            return False
        for low_a, size_a, low_b, size_b in zip(a.mins, a.extents, b.mins, b.extents, strict=True):
            if ir.const_value(size_a) == 0 or ir.const_value(size_b) == 0:
                return False
            # A difference that wraps around is far from the extents in either direction.
            gap = self.facts.bounds(self.facts.simplify(ir.binary(ir.BinOp.SUB, low_a, low_b)))
            if isinstance(size_b, int) and gap.lo >= size_b:
                return False
            if isinstance(size_a, int) and gap.hi <= -size_a:
                return False
        return True


def _settled(
    expr: ir.Expr, name: str, written: Iterable[ir.Buffer], before: list[ir.Stmt]
) -> ir.Expr:
    """`expr`, evaluated beforehand if it reads a buffer that is written or has an effect."""
    for item in ir.walk(expr):
        reads = isinstance(item, ir.Load) and item.buffer in written
        if reads or (isinstance(item, ir.Call) and not ir.is_pure(item.name)):
            var = ir.Var(name, expr.dtype, span=expr.span)
            before.append(ir.Bind(var, expr, span=expr.span))
            return var
    return expr


def _kept(region: ir.BufferRegion, op: TileOp, before: list[ir.Stmt]) -> ir.BufferRegion:
    """A tile with the contents of `region`, filled by statements that go to `before`."""
    source = region.buffer
    shape = []
    for extent in region.extents:
        if not isinstance(extent, int):
            raise OperandError(
                f"T.{op.script_name}: {region.describe()} may overlap the result, and its extent "
                f"`{extent!r}` is not constant",
                span=op.span,
                hint="copy it into a tile of its own first",
            )
        shape.append(extent)
    scope = ir.LOCAL if source.scope() in (ir.LOCAL, ir.LOCAL_VAR) else ir.FRAGMENT
    tile = ir.Buffer(f"{source.name}_before", tuple(shape), source.dtype, scope, span=source.span)
    zero = tuple(ir.Const(0, ir.DType("int32")) for _ in shape)
    whole = ir.BufferRegion(tile, zero, tuple(shape), span=region.span)
    before.append(ir.Alloc(tile, span=op.span))
    before.append(Copy(region, whole, span=op.span))
    return whole
