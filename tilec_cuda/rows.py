"""Indices of neighbouring elements."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.arith import evaluate_binary
from tilec.arith.facts import Facts
from tilec.arith.forms import Form

_INT64 = ir.DType("int64")
_SUMS = (ir.BinOp.ADD, ir.BinOp.SUB, ir.BinOp.MUL)


def at(index: ir.Expr, var: ir.Var, value: int) -> ir.Expr:
    """An index for one value of a loop variable, constants folded."""

    def visit(node: Any) -> Any:
        if node is var:
            return ir.Const(value, var.dtype)
        if not isinstance(node, ir.Node) or isinstance(node, ir.Buffer):
            return node
        new = ir.map_children(node, visit)
        if isinstance(new, ir.Binary) and new is not node:
            return _folded(new)
        if isinstance(new, ir.Cast) and isinstance(new.value, ir.Const):
            return ir.Const(int(new.value.value), new.dtype)
        return new

    return visit(index)  # type: ignore[no-any-return]


def _folded(node: ir.Binary) -> ir.Expr:
    lhs, rhs = node.lhs, node.rhs
    if isinstance(lhs, ir.Const) and isinstance(rhs, ir.Const):
        result = evaluate_binary(node.op, lhs.value, rhs.value, lhs.dtype)
        return ir.Const(result, node.dtype, span=node.span)
    if node.op in (ir.BinOp.ADD, ir.BinOp.BITXOR):
        for side, other in ((lhs, rhs), (rhs, lhs)):
            if ir.const_value(side) == 0:
                return other
    return node


def step_between(facts: Facts, index: ir.Expr, var: ir.Var) -> Form:
    """How an index grows from one value of a variable to the next."""
    following = ir.substitute(index, {var: ir.as_expr(var + 1)})
    here, there = _spread(facts, index), _spread(facts, following)
    return facts.keys.form(there).plus(facts.keys.form(here), -1)


def _spread(facts: Facts, expr: ir.Expr) -> ir.Expr:
    """An index with its casts at the leaves, where they hide no sum."""
    if isinstance(expr, ir.Cast) and expr.dtype == _INT64 and facts.is_index(expr.value):
        inner = expr.value
        if isinstance(inner, ir.Const):
            return ir.Const(int(inner.value), _INT64)
        if isinstance(inner, ir.Binary) and inner.op in _SUMS:
            lhs, rhs = (_spread(facts, ir.cast(x, _INT64)) for x in (inner.lhs, inner.rhs))
            return ir.Binary(inner.op, lhs, rhs, _INT64)
        return expr
    if isinstance(expr, ir.Binary) and expr.op in _SUMS:
        return expr.replace(lhs=_spread(facts, expr.lhs), rhs=_spread(facts, expr.rhs))
    return expr
