"""Indices of neighbouring elements."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.arith.facts import Facts
from tilec.arith.forms import Form


def at(index: ir.Expr, var: ir.Var, value: int) -> ir.Expr:
    """An index for one value of a loop variable; sums with 0 disappear."""

    def visit(node: Any) -> Any:
        if node is var:
            return ir.Const(value, var.dtype)
        if not isinstance(node, ir.Node) or isinstance(node, ir.Buffer):
            return node
        new = ir.map_children(node, visit)
        if isinstance(new, ir.Binary) and new.op is ir.BinOp.ADD:
            for side, other in ((new.lhs, new.rhs), (new.rhs, new.lhs)):
                if ir.const_value(side) == 0:
                    return other
        if isinstance(new, ir.Cast) and isinstance(new.value, ir.Const):
            return ir.Const(int(new.value.value), new.dtype)
        return new

    return visit(index)  # type: ignore[no-any-return]


def step_between(facts: Facts, index: ir.Expr, var: ir.Var) -> Form:
    """How an index grows from one value of a variable to the next."""
    following = ir.substitute(index, {var: ir.as_expr(var + 1)})
    return facts.keys.form(following).plus(facts.keys.form(index), -1)
