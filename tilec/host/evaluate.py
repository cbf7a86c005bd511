"""Integer expressions over Python ints, for shapes that the Python side has to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilec.diagnostics import InternalError
from tilec.ir import Binary, BinOp, Call, Cast, Const, Expr, Select, Unary, UnOp, Var

Evaluator = Callable[[Mapping[Var, int]], int]


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_OPERATIONS: dict[BinOp, Callable[[int, int], int]] = {
    BinOp.ADD: lambda a, b: a + b,
    BinOp.SUB: lambda a, b: a - b,
    BinOp.MUL: lambda a, b: a * b,
    BinOp.FLOORDIV: lambda a, b: a // b if b else 0,
    BinOp.FLOORMOD: lambda a, b: a % b if b else 0,
    BinOp.TRUNCDIV: lambda a, b: _truncdiv(a, b) if b else 0,
    BinOp.TRUNCMOD: lambda a, b: a - b * _truncdiv(a, b) if b else 0,
    BinOp.MIN: min,
    BinOp.MAX: max,
    BinOp.SHL: lambda a, b: a << b if 0 <= b < 64 else 0,
    BinOp.SHR: lambda a, b: a >> b if 0 <= b < 64 else min(a >> 63, 0),
    BinOp.BITAND: lambda a, b: a & b,
    BinOp.BITOR: lambda a, b: a | b,
    BinOp.BITXOR: lambda a, b: a ^ b,
    BinOp.EQ: lambda a, b: int(a == b),
    BinOp.NE: lambda a, b: int(a != b),
    BinOp.LT: lambda a, b: int(a < b),
    BinOp.LE: lambda a, b: int(a <= b),
    BinOp.GT: lambda a, b: int(a > b),
    BinOp.GE: lambda a, b: int(a >= b),
    BinOp.AND: lambda a, b: int(bool(a) and bool(b)),
    BinOp.OR: lambda a, b: int(bool(a) or bool(b)),
}


def compile_int(expr: int | Expr) -> Evaluator:
    """A function from the values of variables to the value of `expr`, without wrap-around.

    Raises:
        InternalError: the expression is not made of integer arithmetic.
    """
    if isinstance(expr, int):
        value = int(expr)
        return lambda _env: value
    rule = _RULES.get(type(expr))
    if rule is None:
        raise InternalError(f"`{expr!r}` is not an extent", span=expr.span)
    return rule(expr)


def _binary(node: Binary) -> Evaluator:
    operation = _OPERATIONS.get(node.op)
    if operation is None:
        raise InternalError(f"`{node!r}` is not an extent", span=node.span)
    lhs, rhs = compile_int(node.lhs), compile_int(node.rhs)
    return lambda env: operation(lhs(env), rhs(env))


def _unary(node: Unary) -> Evaluator:
    value = compile_int(node.value)
    if node.op is UnOp.NEG:
        return lambda env: -value(env)
    if node.op is UnOp.BITNOT and not node.dtype.is_bool:
        return lambda env: ~value(env)
    return lambda env: int(not value(env))


def _select(node: Select) -> Evaluator:
    cond, then, other = compile_int(node.cond), compile_int(node.then), compile_int(node.other)
    return lambda env: then(env) if cond(env) else other(env)


def _cast(node: Cast) -> Evaluator:
    value = compile_int(node.value)
    if node.dtype.is_bool:
        return lambda env: int(value(env) != 0)
    if not node.dtype.is_integer:
        raise InternalError(f"`{node!r}` is not an extent", span=node.span)
    return value


def _call(node: Call) -> Evaluator:
    if node.name == "abs":
        value = compile_int(node.args[0])
        return lambda env: abs(value(env))
    raise InternalError(f"`{node!r}` is not an extent", span=node.span)


_RULES: dict[type, Callable[[Any], Evaluator]] = {
    Var: lambda node: lambda env: env[node],
    Const: lambda node: compile_int(int(node.value)),
    Binary: _binary,
    Unary: _unary,
    Select: _select,
    Cast: _cast,
    Call: _call,
}
