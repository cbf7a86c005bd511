"""Public bugs of the field as tests: scalar arithmetic (recipes B095 to B105)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import LiteralRangeError

VALUES = (-128, -7, -3, -1, 0, 1, 3, 7, 127)


def run(func, *arrays, **options):
    return tilec.compile(func, **options)(*arrays)


@pytest.mark.parametrize(
    ("dtype", "value", "want"),
    [("uint8", 48, 0), ("int8", 8, -8), ("int16", 0x0800, -0x800), ("uint16", 0x3000, 0)],
)
@pytest.mark.parametrize("constant", [False, True])
def test_b095_narrow_shifts_wrap_at_every_step(dtype, value, want, constant):
    @T.prim_func
    def f(A: T.Tensor((1,), dtype), B: T.Tensor((1,), dtype)):
        with T.Kernel(1):
            x = T.Const(value, dtype) if constant else A[0]
            B[0] = (x << 4) >> 4

    b = np.zeros(1, dtype)
    run(f, np.array([value], dtype), b)
    assert b[0] == want


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "float32"])
@pytest.mark.parametrize("divisor", [None, 3, -3, 7, -7])
def test_b096_division(dtype, divisor):
    pairs = [(a, b) for a in (7, -7, -1, 0, 100) for b in (3, -3, 7, -7, 100)]
    if divisor is not None:
        pairs = [(a, divisor) for a, b in pairs if b == 3]
    count = len(pairs)
    whole = dtype != "float32"

    @T.prim_func
    def f(
        A: T.Tensor((count,), dtype), D: T.Tensor((count,), dtype), Out: T.Tensor((4, count), dtype)
    ):
        with T.Kernel(1):
            for i in T.Parallel(count):
                d = D[i] if divisor is None else T.Const(divisor, dtype)
                Out[0, i] = A[i] // d
                Out[1, i] = A[i] % d
                if whole:
                    Out[2, i] = T.truncdiv(A[i], d)
                    Out[3, i] = T.truncmod(A[i], d)

    a, d = (np.array(v, dtype) for v in zip(*pairs, strict=True))
    out = np.zeros((4, count), dtype)
    run(f, a, d, out)
    np.testing.assert_array_equal(out[0], np.array([x // y for x, y in pairs], dtype))
    np.testing.assert_array_equal(out[1], np.array([x % y for x, y in pairs], dtype))
    if whole:
        np.testing.assert_array_equal(out[2], [int(x / y) for x, y in pairs])
        np.testing.assert_array_equal(out[3], [int(math.fmod(x, y)) for x, y in pairs])


def test_b096_ceil_division():
    @T.prim_func
    def f(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32"), Out: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(4):
                Out[i] = T.ceildiv(A[i], B[i])

    pairs = [(7, 3), (-7, 3), (7, -3), (-7, -3)]
    a, b = (np.array(v, "int32") for v in zip(*pairs, strict=True))
    out = np.zeros(4, "int32")
    run(f, a, b, out)
    assert list(out) == [3, -2, -2, 3] == [T.ceildiv(x, y) for x, y in pairs]


def test_division_by_zero_and_the_smallest_number_do_not_crash():
    @T.prim_func
    def f(A: T.Tensor((3,), "int32"), B: T.Tensor((3,), "int32"), Out: T.Tensor((2, 3), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(3):
                Out[0, i] = A[i] // B[i]
                Out[1, i] = A[i] % B[i]

    out = np.zeros((2, 3), "int32")
    run(f, np.array([5, -(2**31), 0], "int32"), np.array([0, -1, 0], "int32"), out)
    assert list(out[0]) == [0, -(2**31), 0]


def test_b097_no_folding_against_ieee():
    @T.prim_func
    def f(A: T.Tensor((4,), "float32"), Out: T.Tensor((4, 4), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(4):
                Out[0, i] = A[i] * 0.0
                Out[1, i] = A[i] - A[i]
                Out[2, i] = A[i] + 0.0
                Out[3, i] = 0.0 / A[i]

    a = np.array([np.inf, np.nan, -0.0, 2.0], "float32")
    out = np.zeros((4, 4), "float32")
    run(f, a, out)
    with np.errstate(all="ignore"):
        want = np.stack([a * 0, a - a, a + np.float32(0), np.float32(0) / a])
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(np.signbit(out[2]), np.signbit(want[2]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_b098_min_and_max_ignore_nan(dtype):
    pytest.importorskip("ml_dtypes")
    from tilec.arith import storage_dtype

    kind = storage_dtype(T.dtype(dtype))

    @T.prim_func
    def f(A: T.Tensor((4,), dtype), B: T.Tensor((4,), dtype), Out: T.Tensor((4, 4), dtype)):
        with T.Kernel(1):
            for i in T.Parallel(4):
                Out[0, i] = T.max(A[i], B[i])
                Out[1, i] = T.min(A[i], B[i])
                Out[2, i] = T.max(T.Const(1.0, dtype), T.Const(math.nan, dtype))
                Out[3, i] = T.min(T.Const(math.nan, dtype), T.Const(1.0, dtype))

    a = np.array([1, np.nan, 3, np.nan], "float64").astype(kind)
    b = np.array([np.nan, 2, -3, np.nan], "float64").astype(kind)
    out = np.zeros((4, 4), kind)
    run(f, a, b, out)
    np.testing.assert_array_equal(out[0].astype("float32"), [1, 2, 3, np.nan])
    np.testing.assert_array_equal(out[1].astype("float32"), [1, 2, -3, np.nan])
    assert (out[2:].astype("float32") == 1).all()


def test_b099_constants_are_rounded_to_their_type_first():
    @T.prim_func
    def f(Out: T.Tensor((3,), "float32")):
        with T.Kernel(1):
            Out[0] = T.ceil(T.Const(8388608.5, "float32"))
            Out[1] = T.floor(T.Const(8388609.5, "float32"))
            Out[2] = T.Const(0.1, "float32") * T.Const(3.0, "float32")

    out = np.zeros(3, "float32")
    run(f, out)
    assert out[0] == 8388608
    assert out[1] == np.floor(np.float32(8388609.5))
    assert out[2] == np.float32(0.1) * np.float32(3)


def test_b100_casts_of_constants():
    @T.prim_func
    def f(
        A: T.Tensor((2,), "int8"), H: T.Tensor((1,), "float16"), U: T.Tensor((2,), "uint64"),
        F: T.Tensor((1,), "float32"),
    ):  # fmt: skip
        with T.Kernel(1):
            A[0] = T.cast(300, "int8")
            A[1] = T.cast(T.int32(300), "int8")
            H[0] = T.cast(T.Const(65510.0, "float32"), "float16")
            U[0] = T.Const(2**63 + 5, "uint64") + T.Const(7, "uint64")
            U[1] = T.Const(2**63, "uint64") * T.Const(3, "uint64")
            F[0] = T.cast(T.Const(2**60 + 2**36 + 1, "int64"), "float32")

    a, h, u, x = (
        np.zeros(2, "int8"),
        np.zeros(1, "float16"),
        np.zeros(2, "uint64"),
        np.zeros(1, "f"),
    )
    run(f, a, h, u, x)
    assert list(a) == [44, 44]
    assert h[0] == 65504
    assert list(u) == [2**63 + 12, (3 * 2**63) % 2**64]
    assert x[0] == np.float32(np.int64(2**60 + 2**36 + 1))
    with pytest.raises(LiteralRangeError):
        T.int32(1 << 31)


@pytest.mark.parametrize("shift", [0, 1, 7, 31])
def test_b174_unsigned_shifts_are_logical(shift):
    @T.prim_func
    def f(A: T.Tensor((2,), "uint32"), B: T.Tensor((2,), "uint16")):
        with T.Kernel(1):
            for i in T.Parallel(2):
                A[i] = A[i] >> shift
                B[i] = B[i] >> T.min(shift, 15)

    a, b = np.array([0x80000000, 0xFFFFFFFF], "uint32"), np.array([0x8000, 0xFFFF], "uint16")
    wa, wb = a >> shift, b >> min(shift, 15)
    run(f, a, b)
    np.testing.assert_array_equal(a, wa)
    np.testing.assert_array_equal(b, wb)


@pytest.mark.parametrize(
    "source", ["int8", "uint8", "int32", "int64", "float16", "float32", "bool"]
)
@pytest.mark.parametrize(
    "target", ["int8", "uint8", "int16", "uint32", "int64", "float16", "float32", "float64", "bool"]
)
def test_conversions_agree_with_numpy(source, target):
    @T.prim_func
    def f(A: T.Tensor((9,), source), B: T.Tensor((9,), target)):
        with T.Kernel(1):
            for i in T.Parallel(9):
                B[i] = A[i]

    low = 0 if source in ("uint8", "bool") else -128
    a = np.array(VALUES, "int64").clip(low, None).astype(source)
    if target.startswith("u") and source not in ("uint8", "bool") and source.startswith("float"):
        a = abs(a)
    b = np.zeros(9, target)
    run(f, a, b)
    np.testing.assert_array_equal(b, a.astype(target))


def test_b175_reciprocal_square_root():
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(64):
                B[i] = T.rsqrt(A[i])

    a = np.logspace(-6, 6, 64).astype("float32")
    b = np.zeros(64, "float32")
    run(f, a, b)
    np.testing.assert_allclose(b, 1 / np.sqrt(a.astype("float64")), rtol=1e-6)
