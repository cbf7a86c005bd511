"""Reductions on the CPU: every dimension, kind, dtype, with and without the old value."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilec
import tilec.language as T

SHAPE = (3, 33, 20)
FLOATS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32,
          "float64": np.float64}  # fmt: skip
FLOAT_KINDS = ("sum", "abssum", "max", "absmax", "min")
OPS = {
    "sum": T.reduce_sum, "abssum": T.reduce_abssum, "max": T.reduce_max, "absmax": T.reduce_absmax,
    "min": T.reduce_min, "bitand": T.reduce_bitand, "bitor": T.reduce_bitor,
    "bitxor": T.reduce_bitxor,
}  # fmt: skip


def all_kinds(kinds, dtype, dims=(0, 1, 2), clear=(True, False), shape=SHAPE, **options):
    """One kernel with every combination; results in the order of the product."""
    cases = [(k, d, c) for k in kinds for d in dims for c in clear if c or k != "abssum"]
    reduced = [tuple(e for n, e in enumerate(shape) if n != d) for _, d, _ in cases]
    width = max(int(np.prod(r)) for r in reduced)

    @T.prim_func
    def kernel(
        X: T.Tensor(shape, dtype),
        Old: T.Tensor((width,), dtype),
        Out: T.Tensor((len(cases), width), dtype),
    ):
        with T.Kernel(1):
            x = T.alloc_shared(shape, dtype)
            T.copy(X, x)
            for n, (kind, dim, fresh) in enumerate(cases):
                a, b = reduced[n]
                y = T.alloc_fragment((a, b), dtype)
                for i, j in T.Parallel(a, b):
                    y[i, j] = Old[i * b + j]
                given = options if kind == "abssum" else {"clear": fresh, **options}
                OPS[kind](x, y, dim=dim, **given)
                for i, j in T.Parallel(a, b):
                    Out[n, i * b + j] = y[i, j]

    return tilec.compile(kernel, target="c"), cases, reduced, width


def expected(x, old, kind, dim, clear, nan=False):
    values = np.abs(x) if kind.startswith("abs") else x
    table = {"sum": np.add, "abssum": np.add, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
             "bitxor": np.bitwise_xor}  # fmt: skip
    best = (np.maximum, np.minimum) if nan else (np.fmax, np.fmin)
    op = table.get(kind) or best[kind == "min"]
    with np.errstate(over="ignore"):
        result = op.reduce(values, axis=dim)
        return result if clear else op(np.abs(old) if kind == "absmax" else old, result)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype: str) -> None:
    rng = np.random.default_rng(0)
    kernel, cases, reduced, width = all_kinds(FLOAT_KINDS, dtype)
    x = rng.standard_normal(SHAPE).astype(FLOATS[dtype])
    old = rng.standard_normal(width).astype(FLOATS[dtype])
    out = np.zeros((len(cases), width), FLOATS[dtype])
    kernel(x, old, out)
    tolerance = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    for n, (kind, dim, clear) in enumerate(cases):
        count = int(np.prod(reduced[n]))
        before = old[:count].reshape(reduced[n]).astype(np.float64)
        want = expected(x.astype(np.float64), before, kind, dim, clear)
        got = out[n, :count].reshape(reduced[n]).astype(np.float64)
        if "sum" in kind:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 8)
        else:
            np.testing.assert_array_equal(got, want, err_msg=f"{kind} {dim} {clear}")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
def test_integers(dtype: str) -> None:
    rng = np.random.default_rng(1)
    kinds = [k for k in OPS if not (k.startswith("abs") and dtype.startswith("u"))]
    kernel, cases, reduced, width = all_kinds(kinds, dtype)
    info = np.iinfo(dtype)
    x = rng.integers(info.min + 1, info.max, SHAPE, dtype=dtype)
    old = rng.integers(info.min + 1, info.max, width, dtype=dtype)
    out = np.zeros((len(cases), width), dtype)
    kernel(x, old, out)
    for n, (kind, dim, clear) in enumerate(cases):
        count = int(np.prod(reduced[n]))
        want = expected(x, old[:count].reshape(reduced[n]), kind, dim, clear).astype(dtype)
        got = out[n, :count].reshape(reduced[n])
        np.testing.assert_array_equal(got, want, err_msg=f"{kind} {dim} {clear}")


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_nan(dtype: str, propagate: bool) -> None:
    rng = np.random.default_rng(2)
    kinds = ("max", "min", "absmax")
    kernel, cases, reduced, width = all_kinds(kinds, dtype, nan_propagate=propagate)
    x = rng.standard_normal(SHAPE).astype(dtype)
    x[rng.random(SHAPE) < 0.02] = np.nan
    old = rng.standard_normal(width).astype(dtype)
    old[::7] = np.nan
    out = np.zeros((len(cases), width), dtype)
    kernel(x, old, out)
    for n, (kind, dim, clear) in enumerate(cases):
        count = int(np.prod(reduced[n]))
        before = old[:count].reshape(reduced[n])
        want = expected(x, before, kind, dim, clear, propagate)
        got = out[n, :count].reshape(reduced[n])
        np.testing.assert_array_equal(got, want, err_msg=f"{kind} {dim} {clear}")


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("columns", [1, 5, 1000])
def test_ragged_blocks(rows: int, columns: int) -> None:
    """Guards, row fusion and vector reductions together: rows outside take part as zeros."""

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, columns), "float32"),
        Y: T.Tensor((rows, columns), "float32"),
        Top: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, 4)) as bx:
            x = T.alloc_fragment((4, columns), "float32")
            top = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_max(x, top, dim=1)
            T.copy(top, Top[bx * 4])
            for i, j in T.Parallel(4, columns):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 4, 0])

    x = np.random.default_rng(3).standard_normal((rows, columns)).astype(np.float32)
    y, top = np.full_like(x, -1), np.full(rows, -1, np.float32)
    tilec.compile(kernel, target="c")(x, y, top)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_array_equal(top, x.max(1))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("length", [0, 1, 17])
def test_run_time_and_empty_extents(length: int) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def kernel(X: T.Tensor((4, n), "int32"), Out: T.Tensor((4,), "int32")):
        with T.Kernel(4) as bx:
            T.reduce_sum(X[bx, 0:n], Out[bx : bx + 1], dim=1)

    x = np.arange(4 * length, dtype=np.int32).reshape(4, length)
    out = np.full(4, -1, np.int32)
    tilec.compile(kernel, target="c")(x, out)
    np.testing.assert_array_equal(out, x.sum(1))


def test_in_place_over_rows() -> None:
    """The destination is a part of the source."""

    @T.prim_func
    def kernel(X: T.Tensor((8, 16), "int32"), Out: T.Tensor((8, 16), "int32")):
        with T.Kernel(1):
            x = T.alloc_shared((8, 16), "int32")
            T.copy(X, x)
            T.reduce_sum(x, x[2, 0:16], dim=0)
            T.copy(x, Out)

    x = np.random.default_rng(4).integers(-9, 9, (8, 16)).astype(np.int32)
    out = np.zeros_like(x)
    tilec.compile(kernel, target="c")(x, out)
    want = x.copy()
    want[2] = x.sum(0)
    np.testing.assert_array_equal(out, want)


def test_large_results_are_streamed_and_right() -> None:
    rows, columns = 2051, 4100  # neither whole blocks nor aligned rows; 33 MB

    @T.prim_func
    def kernel(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, 4)) as bx:
            x = T.alloc_fragment((4, columns), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, columns):
                x[i, j] = x[i, j] - total[i]
            T.copy(x, Y[bx * 4, 0])

    x = np.random.default_rng(5).integers(-9, 9, (rows, columns)).astype(np.float32)
    store = np.full(rows * columns + 3, -1, np.float32)
    y = store[1 : 1 + rows * columns].reshape(rows, columns)
    tilec.compile(kernel, target="c")(x, y)
    np.testing.assert_array_equal(y, x - x.sum(1, keepdims=True))
    assert store[0] == store[-1] == store[-2] == -1
