"""Evaluation of scalar expressions on Python numbers or, elementwise, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilec.arith.intrinsics import evaluate_call
from tilec.arith.semantics import (
    canonical_const,
    evaluate_binary,
    evaluate_cast,
    evaluate_unary,
)
from tilec.diagnostics import InternalError
from tilec.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var


def evaluate(
    expr: Expr,
    values: Mapping[Var, Any],
    load: Callable[[Load, tuple[Any, ...]], Any] | None = None,
) -> Any:
    """The value of `expr`.

    Args:
        expr: no calls with effects. Both sides of a `Select` are evaluated.
        values: numbers or arrays (broadcasting) for the variables.
        load: gives the element of a buffer at evaluated indices.

    Raises:
        InternalError: a variable without value, or a node that has none here.
    """
    memo: dict[int, Any] = {}

    def visit(node: Any) -> Any:
        found = memo.get(id(node), memo)
        if found is not memo:
            return found
        result = memo[id(node)] = compute(node)
        return result

    def compute(node: Any) -> Any:
        if isinstance(node, Const):
            return canonical_const(node).value
        if isinstance(node, Var):
            if node not in values:
                raise InternalError(f"variable `{node.name}` has no value here", span=node.span)
            return values[node]
        if isinstance(node, Binary):
            return evaluate_binary(node.op, visit(node.lhs), visit(node.rhs), node.lhs.dtype)
        if isinstance(node, Unary):
            return evaluate_unary(node.op, visit(node.value), node.value.dtype)
        if isinstance(node, Cast):
            return evaluate_cast(visit(node.value), node.value.dtype, node.dtype)
        if isinstance(node, Select):
            cond, then, other = visit(node.cond), visit(node.then), visit(node.other)
            if any(isinstance(v, np.ndarray) for v in (cond, then, other)):
                return np.where(cond, then, other)
            return then if cond else other
        if isinstance(node, Call) and node.args:
            args = [visit(a) for a in node.args]
            return evaluate_call(node.name, args, node.dtype, node.args[0].dtype)
        if isinstance(node, Load) and load is not None:
            return load(node, tuple(visit(i) for i in node.indices))
        raise InternalError(f"{type(node).__name__} cannot be evaluated here", span=node.span)

    return visit(expr)
