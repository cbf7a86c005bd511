"""Simplified expressions equal the originals for every assignment, by enumeration."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tilec import ir
from tilec.arith import Simplifier, evaluate
from tilec.ir import BinOp, Const, DType, Expr, UnOp, Var

BOOL = DType("bool")
ARITH = [
    BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.FLOORDIV, BinOp.FLOORMOD, BinOp.TRUNCDIV,
    BinOp.TRUNCMOD, BinOp.MIN, BinOp.MAX, BinOp.SHL, BinOp.SHR, BinOp.BITAND, BinOp.BITOR,
    BinOp.BITXOR,
]  # fmt: skip
COMPARE = sorted(ir.COMPARISONS)
SETTINGS = settings(
    max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
INDEX_CONSTS = [0, 1, 2, 3, 4, 5, 6, 8, 12, 16, -1, -2, -3, -4, -8]


@st.composite
def expressions(
    draw: Any, dtype: DType, variables: list[Var], depth: int, consts: list[int]
) -> Expr:
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        if draw(st.booleans()):
            return draw(st.sampled_from(variables))
        return Const(draw(st.sampled_from(consts)), dtype)
    sub = lambda: draw(expressions(dtype, variables, depth - 1, consts))  # noqa: E731
    kind = draw(st.integers(0, 11))
    if kind == 0:
        return ir.Unary(UnOp.NEG, sub(), dtype)
    if kind == 1:
        cond = draw(conditions(dtype, variables, depth - 1, consts))
        return ir.Select(cond, sub(), sub(), dtype)
    # Weighted towards what index arithmetic is made of.
    op = draw(st.sampled_from(ARITH[:5] * 4 + ARITH))
    rhs = sub()
    if op in (BinOp.FLOORDIV, BinOp.FLOORMOD) and draw(st.integers(0, 3)):
        rhs = Const(draw(st.sampled_from([2, 3, 4, 8, 16])), dtype)
    return ir.Binary(op, sub(), rhs, dtype)


@st.composite
def conditions(
    draw: Any, dtype: DType, variables: list[Var], depth: int, consts: list[int]
) -> Expr:
    if depth > 0 and draw(st.integers(0, 2)) == 0:
        op = draw(st.sampled_from([BinOp.AND, BinOp.OR]))
        sub = lambda: draw(conditions(dtype, variables, depth - 1, consts))  # noqa: E731
        result: Expr = ir.Binary(op, sub(), sub(), BOOL)
        return ir.Unary(UnOp.NOT, result, BOOL) if draw(st.booleans()) else result
    a = draw(expressions(dtype, variables, max(depth - 1, 0), consts))
    b = draw(expressions(dtype, variables, max(depth - 1, 0), consts))
    return ir.Binary(draw(st.sampled_from(COMPARE)), a, b, BOOL)


def grid(variables: list[Var], ranges: list[range]) -> dict[Var, np.ndarray[Any, Any]]:
    points = np.array(list(itertools.product(*ranges)))
    return {v: points[:, n].astype(str(v.dtype)) for n, v in enumerate(variables)}


def same(expr: Expr, got: Expr, values: dict[Var, Any], keep: Any = None) -> None:
    size = len(next(iter(values.values())))
    want = np.broadcast_to(np.asarray(evaluate(expr, values)), (size,))
    have = np.broadcast_to(np.asarray(evaluate(got, values)), (size,))
    bad = want != have
    if keep is not None:
        bad = bad & keep
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        point = {v.name: int(a[at]) for v, a in values.items()}
        raise AssertionError(f"{expr} -> {got} at {point}: {want[at]} became {have[at]}")


INT32 = DType("int32")


def index_vars() -> tuple[list[Var], list[range]]:
    names = [Var(n, INT32) for n in "xyzn"]
    return names, [range(10), range(8), range(-5, 4), range(1, 6)]


@SETTINGS
@given(data=st.data())
def test_index_expressions(data: Any) -> None:
    variables, ranges = index_vars()
    expr = data.draw(expressions(INT32, variables, 4, INDEX_CONSTS))
    s = Simplifier()
    for var, values in zip(variables, ranges, strict=True):
        s.bind_range(var, values.start, values.stop - 1)
    values = grid(variables, ranges)
    wide = np.abs(intermediate(expr, values)) < 2**31
    same(expr, s.simplify(expr), values, wide)
    low, high = s.bounds(expr)
    result = np.broadcast_to(np.asarray(evaluate(expr, values)), wide.shape)[wide]
    assert ((result >= low) & (result <= high)).all()
    residue = s.residue(s.simplify(expr))
    if residue.coeff:
        assert ((result - residue.base) % residue.coeff == 0).all()
    else:
        assert (result == residue.base).all()


def intermediate(expr: Expr, values: dict[Var, Any]) -> Any:
    """The largest magnitude of any ring operation inside, over mathematical integers."""
    size = len(next(iter(values.values())))
    worst = np.zeros(size)
    wide = {v: a.astype(np.int64) for v, a in values.items()}
    for node in ir.walk(expr):
        if isinstance(node, (ir.Binary, ir.Unary)) and node.dtype == INT32:
            as64 = widen(node, wide)
            worst = np.maximum(worst, np.abs(np.broadcast_to(as64, (size,)).astype(float)))
            if isinstance(node, ir.Binary) and node.op in (BinOp.SHL, BinOp.MUL):
                # Products are re-associated, so any partial product must fit as well.
                a = np.abs(np.broadcast_to(widen(node.lhs, wide), (size,)).astype(float))
                b = np.abs(np.broadcast_to(widen(node.rhs, wide), (size,)).astype(float))
                step = np.exp2(np.minimum(b, 40)) if node.op is BinOp.SHL else b
                worst = np.maximum(worst, a * step)
    return worst


def widen(expr: Expr, values: dict[Var, Any]) -> Any:
    """The value with int64 arithmetic in place of int32."""
    wide = DType("int64")
    twins = {v: Var(v.name, wide) for v in values}

    def visit(node: Any) -> Any:
        if isinstance(node, Var):
            return twins[node]
        if isinstance(node, Const) and node.dtype == INT32:
            return node.replace(dtype=wide)
        new = ir.map_children(node, visit)
        return new.replace(dtype=wide) if getattr(node, "dtype", None) == INT32 else new

    return np.asarray(evaluate(visit(expr), {twins[v]: a for v, a in values.items()}))


@SETTINGS
@given(data=st.data())
def test_conditions_prove_only_what_holds(data: Any) -> None:
    variables, ranges = index_vars()
    guard = data.draw(conditions(INT32, variables, 1, INDEX_CONSTS))
    cond = data.draw(conditions(INT32, variables, 2, INDEX_CONSTS))
    s = Simplifier()
    for var, values in zip(variables, ranges, strict=True):
        s.bind_range(var, values.start, values.stop - 1)
    values = grid(variables, ranges)
    allowed = np.broadcast_to(np.asarray(evaluate(guard, values)), (len(values[variables[0]]),))
    fits = (np.abs(intermediate(guard, values)) < 2**31) & (
        np.abs(intermediate(cond, values)) < 2**31
    )
    with s.assume(s.simplify(guard)):
        same(cond, s.simplify(cond), values, allowed & fits)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "uint32", "int64"])
@settings(SETTINGS, max_examples=150)
@given(data=st.data())
def test_wrapping_types(name: str, data: Any) -> None:
    """Extreme values: everything that may wrap does wrap in the simplified form, too."""
    dtype = DType(name)
    low, high = dtype.int_range
    x, y = Var("x", dtype), Var("y", dtype)
    consts = [c for c in (0, 1, 2, 3, 4, 8, 64, 100, low, high, high - 1, -1, -2, -100)
              if low <= c <= high]  # fmt: skip
    expr = data.draw(expressions(dtype, [x, y], 4, consts))
    s = Simplifier()
    s.mark_data(x)
    s.mark_data(y)
    edge = sorted({low, low + 1, low // 2, 0, 1, 2, 3, 7, 8, 63, 64, high // 2, high - 1, high,
                   *([-1, -2, -7, -8] if low else [])})  # fmt: skip
    points = np.array(list(itertools.product(edge, edge)), dtype=object)
    values = {v: points[:, n].astype(name) for n, v in enumerate((x, y))}
    same(expr, s.simplify(expr), values)


@settings(SETTINGS, max_examples=300)
@given(data=st.data())
def test_simplification_settles(data: Any) -> None:
    variables, ranges = index_vars()
    expr = data.draw(expressions(INT32, variables, 4, INDEX_CONSTS))
    s = Simplifier()
    for var, values in zip(variables, ranges, strict=True):
        s.bind_range(var, values.start, values.stop - 1)
    once = s.simplify(expr)
    again = Simplifier()
    for var, values in zip(variables, ranges, strict=True):
        again.bind_range(var, values.start, values.stop - 1)
    twice = again.simplify(once)
    values = grid(variables, ranges)
    same(once, twice, values, np.abs(intermediate(once, values)) < 2**31)
    # Never larger than what went in, but for distributed products.
    count = lambda e: sum(1 for _ in ir.walk(e))  # noqa: E731
    assert count(once) <= 3 * count(expr) + 4
