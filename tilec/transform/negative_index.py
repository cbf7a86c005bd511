"""Negative indices count from the end.

Constants are resolved where they are written; this pass finds the indices that are provably
negative for all values of the variables around them.

Before::

    for i in T.serial(4):
        B[i] = A[i - 4]

After, A having n elements::

    for i in T.serial(4):
        B[i] = A[i + n - 4]
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.ir import BinOp
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.scoped import ScopedRewriter


class LegalizeNegativeIndex(FunctionPass):
    """Adds the extent to every index that is provably negative."""

    name = "legalize_negative_index"
    purpose = "make provably negative indices count from the end"
    needs = "tile"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Rewrite one function."""
        del ctx
        return _Legalize().function(func)


class _Legalize(ScopedRewriter):
    def expr(self, node: Any) -> Any:
        if isinstance(node, (ir.Var, ir.Const)):
            return node
        if isinstance(node, ir.Select):
            return self._select(node)
        if isinstance(node, ir.Binary) and node.op in ir.LOGICAL:
            lhs = self.expr(node.lhs)
            with self.facts.scope():
                self.facts.add_condition(lhs, node.op is BinOp.AND)
                rhs = self.expr(node.rhs)
            same = lhs is node.lhs and rhs is node.rhs
            return node if same else node.replace(lhs=lhs, rhs=rhs)
        new = ir.map_children(node, self.operand)
        if isinstance(new, ir.Load):
            indices = self._indices(new.buffer, new.indices)
            return new if indices is new.indices else new.replace(indices=indices)
        return new

    def _select(self, node: ir.Select) -> ir.Expr:
        cond = self.expr(node.cond)
        with self.facts.assume(cond):
            then = self.expr(node.then)
        with self.facts.scope():
            self.facts.add_condition(cond, False)
            other = self.expr(node.other)
        same = cond is node.cond and then is node.then and other is node.other
        return node if same else node.replace(cond=cond, then=then, other=other)

    def operand(self, node: Any) -> Any:
        new = super().operand(node)
        if isinstance(new, ir.BufferRegion):
            mins = self._indices(new.buffer, new.mins)
            return new if mins is new.mins else new.replace(mins=mins)
        return new

    def leaf(self, node: Any) -> Any:
        new = super().leaf(node)
        if isinstance(new, ir.Store):
            indices = self._indices(new.buffer, new.indices)
            return new if indices is new.indices else new.replace(indices=indices)
        return new

    def _indices(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        if self.facts.unreachable:
            return indices
        new = tuple(map(self._index, indices, buffer.shape))
        return indices if all(a is b for a, b in zip(new, indices, strict=True)) else new

    def _index(self, index: ir.Expr, extent: Any) -> ir.Expr:
        if not index.dtype.is_int or self.facts.bounds(index).hi >= 0:
            return index
        if isinstance(extent, int):
            end: ir.Expr = ir.Const(extent, index.dtype, span=index.span)
        else:
            end = ir.cast(extent, index.dtype)
        moved = ir.Binary(BinOp.ADD, index, end, index.dtype, span=index.span)
        return self.facts.simplify(moved)
