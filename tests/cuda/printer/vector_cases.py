"""Vectorized loops: what they read and write, and what has to come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from cuda_programs import INT32, const, split

from tilec import ir
from tilec.ir import DType

LANES = 128


class Case(NamedTuple):
    """A loop over `width` elements by each of 128 lanes.

    Attributes:
        name: of the case.
        dtypes: of the inputs, then of the output.
        width: elements of a lane.
        body: ``(buffers, lane, v) -> statement`` of the vectorized loop.
        expected: the output for the inputs and what was in the output, as values.
    """

    name: str
    dtypes: tuple[str, ...]
    width: int
    body: Callable[[Any, Any, Any], ir.Stmt]
    expected: Callable[..., Any]


def module(case: Case) -> tuple[ir.Module, list[ir.Buffer]]:
    """The program of a case; every buffer has a row of 32 elements for each lane."""
    names = [f"a{n}" for n in range(len(case.dtypes) - 1)] + ["out"]
    buffers = [ir.Buffer(n, (LANES, 32), DType(d)) for n, d in zip(names, case.dtypes, strict=True)]

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        v = ir.Var("v", INT32)
        inner = case.body(buffers, tx, v)
        return ir.For(v, const(0), const(case.width), const(1), "vectorized", {}, inner)

    return split(body, buffers), buffers


def _sum(b: Any, tx: Any, v: Any) -> ir.Stmt:
    value = ir.cast(b[0][tx, v], "float32") + ir.cast(b[1][tx, v], "float32")
    return ir.Store(b[-1], (tx, v), ir.cast(value, b[-1].dtype))


def _copy(b: Any, tx: Any, v: Any) -> ir.Stmt:
    return ir.Store(b[-1], (tx, v), b[0][tx, v])


def _guarded(b: Any, tx: Any, v: Any) -> ir.Stmt:
    store = ir.Store(b[-1], (tx, v), b[0][tx, v])
    zero = ir.Store(b[-1], (tx, v), ir.literal(0, b[-1].dtype))
    return ir.If(tx < 100, store, zero)


def _selected(b: Any, tx: Any, v: Any) -> ir.Stmt:
    value = ir.select(tx < 100, b[0][tx, v], ir.literal(7, b[0].dtype))
    return ir.Store(b[-1], (tx, v), value)


def _two_guards(b: Any, tx: Any, v: Any) -> ir.Stmt:
    first = ir.select(tx < 100, b[0][tx, v], ir.literal(7, b[0].dtype))
    second = ir.select(tx > 50, b[0][tx, v], ir.literal(1, b[0].dtype))
    return ir.Store(b[-1], (tx, v), first + second)


def _by_element(b: Any, tx: Any, v: Any) -> ir.Stmt:
    value = ir.select(v < 3, b[0][tx, v], ir.literal(7, b[0].dtype))
    return ir.Store(b[-1], (tx, v), value)


def _in_place(b: Any, tx: Any, v: Any) -> ir.Stmt:
    return ir.Store(b[-1], (tx, v), b[-1][tx, v] + b[0][tx, v])


def _written_then_read(b: Any, tx: Any, v: Any) -> ir.Stmt:
    return ir.seq(
        ir.Store(b[-1], (tx, v), b[0][tx, v]),
        ir.Store(b[-1], (tx, v), b[-1][tx, v] + b[-1][tx, v]),
    )


def _let(b: Any, tx: Any, v: Any) -> ir.Stmt:
    x = ir.Var("x", b[0].dtype)
    return ir.seq(ir.Bind(x, b[0][tx, v]), ir.Store(b[-1], (tx, v), x * x))


def _spread(b: Any, tx: Any, v: Any) -> ir.Stmt:
    return ir.Store(b[-1], (tx, v), b[0][tx, v * 2])


def _broadcast(b: Any, tx: Any, v: Any) -> ir.Stmt:
    return ir.Store(b[-1], (tx, v), b[0][tx, 3] + b[1][tx, v])


def _indices(b: Any, tx: Any, v: Any) -> ir.Stmt:
    return ir.Store(b[-1], (tx, v), ir.cast(tx * 32 + v, b[-1].dtype))


def _twice(b: Any, tx: Any, v: Any) -> ir.Stmt:
    return ir.seq(ir.Store(b[-1], (tx, v), b[0][tx, v]), ir.Store(b[-1], (tx, v), b[1][tx, v]))


def _rows(width: int, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Results of the first `width` elements of each row; the others stay."""

    def expected(*arrays: Any) -> Any:
        out = arrays[-1].copy()
        out[:, :width] = fn(*(a[:, :width] for a in arrays))
        return out

    return expected


def _late(value: Any, low: int, other: Any) -> Any:
    keep = np.arange(LANES)[:, None] < low
    return np.where(keep, value, other)


def cases() -> list[Case]:
    """All of them."""
    found = []
    for dtypes, width in (
        (("bfloat16", "float32", "bfloat16"), 8), (("float16", "float16", "float16"), 8),
        (("float16", "bfloat16", "float32"), 4), (("float32", "float32", "float32"), 4),
        (("float32", "float32", "float16"), 2), (("float8_e4m3", "float8_e5m2", "float32"), 16),
        (("float32", "float32", "float8_e4m3"), 16), (("float32", "float32", "float8_e5m2"), 8),
        (("float64", "float32", "float32"), 2), (("float16", "float16", "float16"), 3),
        (("int8", "uint8", "bfloat16"), 16), (("bfloat16", "bfloat16", "float8_e4m3fnuz"), 4),
    ):  # fmt: skip
        found.append(Case(f"sum-{'-'.join(dtypes)}-{width}", dtypes, width, _sum,
                          _rows(width, lambda a, b, c: a.astype(np.float32) + b)))  # fmt: skip
    for dtype, width in (("float16", 8), ("int8", 16), ("bool", 4), ("float64", 2), ("int64", 4),
                         ("float8_e4m3", 16), ("float32", 8), ("uint16", 6)):  # fmt: skip
        found.append(Case(f"copy-{dtype}-{width}", (dtype, dtype), width, _copy,
                          _rows(width, lambda a, b: a)))  # fmt: skip
    i4, f4 = ("int32", "int32"), ("float32", "float32", "float32")
    found += [
        Case("guarded", i4, 4, _guarded, _rows(4, lambda a, b: _late(a, 100, 0))),
        Case("selected", i4, 4, _selected, _rows(4, lambda a, b: _late(a, 100, 7))),
        Case("two-guards", i4, 4, _two_guards, _rows(
            4, lambda a, b: _late(a, 100, 7) + np.where(np.arange(LANES)[:, None] > 50, a, 1)
        )),
        Case("by-element", i4, 4, _by_element,
             _rows(4, lambda a, b: np.where(np.arange(4) < 3, a, 7))),
        Case("in-place", ("float16", "float16"), 8, _in_place,
             _rows(8, lambda a, b: a.astype(np.float32) + b)),
        Case("written-then-read", i4, 4, _written_then_read, _rows(4, lambda a, b: a + a)),
        Case("let", i4, 4, _let, _rows(4, lambda a, b: a * a)),
        Case("spread", i4, 4, _spread,
             lambda a, b: np.concatenate([a[:, :8:2], b[:, 4:]], axis=1)),
        Case("broadcast", f4, 4, _broadcast, lambda a, b, c: np.concatenate(
            [a[:, 3:4] + b[:, :4], c[:, 4:]], axis=1
        )),
        Case("indices", ("float16",), 8, _indices,
             _rows(8, lambda a: np.arange(LANES)[:, None] * 32 + np.arange(8))),
        Case("twice", ("float32", "float32", "float32"), 4, _twice, _rows(4, lambda a, b, c: b)),
    ]  # fmt: skip
    return found
