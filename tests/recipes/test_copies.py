"""Public bugs of the field as tests: bounds, copies, reductions, gemm (recipes B054 to B094)."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import DTypeError, ShapeError, TilecError


def run(func, *arrays, **options):
    return tilec.compile(func, **options)(*arrays)


def ints(*shape, low=-50, high=50, dtype="int32", seed=0):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def floats(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_b055_column_shifted_region():
    @T.prim_func
    def f(A: T.Tensor((32, 32), "int32"), B: T.Tensor((32, 64), "int32")):
        with T.Kernel(1):
            s = T.alloc_shared((32, 32), "int32")
            T.copy(A, s)
            T.copy(s, B[0:32, 1:33])

    a, b = ints(32, 32), np.full((32, 64), -9, "int32")
    run(f, a, b)
    np.testing.assert_array_equal(b[:, 1:33], a)
    assert (b[:, 0] == -9).all()
    assert (b[:, 33:] == -9).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_b056_tail_keeps_what_lies_behind(dtype):
    n = 1000

    @T.prim_func
    def f(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 256)) as bx:
            s = T.alloc_shared((256,), dtype)
            T.copy(A[bx * 256], s)
            T.copy(s, B[bx * 256])

    a, store = floats(n, dtype=dtype), np.full(1024, -1, dtype)
    run(f, a, store[:n])
    np.testing.assert_array_equal(store[:n], a)
    assert (store[n:] == -1).all()


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 5), (16, 16), (33, 47), (64, 65)])
def test_tails_in_both_dimensions(m, n):
    @T.prim_func
    def f(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 16), T.ceildiv(m, 16)) as (bx, by):
            s = T.alloc_shared((16, 16), "float32")
            T.copy(A[by * 16, bx * 16], s)
            for i, j in T.Parallel(16, 16):
                s[i, j] = s[i, j] + 1
            T.copy(s, B[by * 16, bx * 16])

    a, b = floats(m, n), np.zeros((m, n), "float32")
    run(f, a, b)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.parametrize(("m", "n"), [(7, 5), (33, 47)])
def test_direct_global_access_is_guarded(m, n):
    @T.prim_func
    def f(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 16), T.ceildiv(m, 16)) as (bx, by):
            for i, j in T.Parallel(16, 16):
                B[by * 16 + i, bx * 16 + j] = A[by * 16 + i, bx * 16 + j] * 2

    a = floats(m, n)
    store = np.full((m + 3) * n, -1, "float32")
    run(f, a, store[: m * n].reshape(m, n))
    np.testing.assert_array_equal(store[: m * n].reshape(m, n), a * 2)
    assert (store[m * n :] == -1).all()


def test_reads_outside_give_zero():
    @T.prim_func
    def f(A: T.Tensor((10,), "int32"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(32):
                B[i] = A[i - 3] + 1

    a, b = ints(10), np.zeros(32, "int32")
    run(f, a, b)
    want = np.ones(32, "int32")
    want[3:13] += a
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("length", [0, 1, 100, 1024])
def test_b058_run_time_extents(length):
    n = T.dynamic("n")

    @T.prim_func
    def f(G: T.Tensor((n,), "int32"), L: T.Tensor((1,), "int32"), Out: T.Tensor((1024,), "int32")):
        with T.Kernel(1):
            s = T.alloc_shared((1024,), "int32")
            size = L[0]
            T.clear(s)
            T.copy(G[0:size], s[0:size])
            T.copy(s[0:size], Out[0:size])

    g, out = ints(1024), np.full(1024, -7, "int32")
    run(f, g, np.array([length], "int32"), out)
    np.testing.assert_array_equal(out[:length], g[:length])
    assert (out[length:] == -7).all()


def test_b059_scalar_copy_converts():
    @T.prim_func
    def f(A: T.Tensor((4,), "int64"), B: T.Tensor((4,), "int16"), C: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            T.copy(A[2], C[0])
            T.copy(B[3], C[1])

    c = np.zeros(2, "int32")
    run(f, np.arange(4) * 10, np.arange(4, dtype="int16") * -10, c)
    assert list(c) == [20, -30]


def test_b060_hints_are_checked():
    def build():
        @T.prim_func
        def f(A: T.Tensor((64,), "float16")):
            with T.Kernel(1):
                s = T.alloc_shared((64,), "float16")
                T.copy(A, s, coalesced_width=3)

        return f

    with pytest.raises(ValueError, match="coalesced_width"):
        build()


def test_b062_row_pitch():
    @T.prim_func
    def f(A: T.StridedTensor((4, 64), (96, 1), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(4) as bx:
            s = T.alloc_shared((64,), "float32")
            T.copy(A[bx, :], s)
            T.copy(s, B[bx, :])

    store, b = floats(4, 96), np.zeros((4, 64), "float32")
    run(f, store[:, :64], b)
    np.testing.assert_array_equal(b, store[:, :64])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_b069_unsigned_absolute_values(dtype):
    @T.prim_func
    def f(A: T.Tensor((1, 4), dtype), B: T.Tensor((2,), dtype)):
        with T.Kernel(1):
            x = T.alloc_fragment((1, 4), dtype)
            m = T.alloc_fragment((1,), dtype)
            s = T.alloc_fragment((1,), dtype)
            T.copy(A, x)
            T.reduce_absmax(x, m, dim=1)
            T.reduce_abssum(x, s, dim=1)
            B[0] = m[0]
            B[1] = s[0]

    b = np.zeros(2, dtype)
    run(f, np.array([[100, 10, 20, 30]], dtype), b)
    assert list(b) == [100, 160]


@pytest.mark.parametrize("clear", [False, True])
def test_b070_accumulating_reduction(clear):
    @T.prim_func
    def f(A: T.Tensor((1, 1024), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1):
            x = T.alloc_shared((1, 1024), "float32")
            s = T.alloc_shared((1,), "float32")
            T.copy(A, x)
            T.fill(s, 1024)
            T.reduce_sum(x, s, dim=1, clear=clear)
            T.copy(s, B)

    b = np.zeros(1, "float32")
    run(f, np.ones((1, 1024), "float32"), b)
    assert b[0] == (1024 if clear else 2048)


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("kind", ["max", "min", "absmax"])
def test_b071_nan_in_reductions(kind, propagate):
    reduce = {"max": T.reduce_max, "min": T.reduce_min, "absmax": T.reduce_absmax}[kind]

    @T.prim_func
    def f(A: T.Tensor((1, 3), "float16"), B: T.Tensor((1,), "float16")):
        with T.Kernel(1):
            x = T.alloc_fragment((1, 3), "float16")
            s = T.alloc_fragment((1,), "float16")
            T.copy(A, x)
            T.copy(B, s)
            reduce(x, s, dim=1, clear=False, nan_propagate=propagate)
            T.copy(s, B)

    b = np.array([-1], "float16")
    run(f, np.array([[1, np.nan, 2]], "float16"), b)
    if propagate:
        assert np.isnan(b[0])
    else:
        assert b[0] == {"max": 2, "min": -1, "absmax": 2}[kind]


def test_b072_keep_dim_destinations():
    @T.prim_func
    def f(A: T.Tensor((8, 5), "float32"), B: T.Tensor((8, 1), "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment((8, 5), "float32")
            s = T.alloc_fragment((8, 1), "float32")
            T.copy(A, x)
            T.reduce_max(x, s, dim=1)
            T.copy(s, B)

    a, b = floats(8, 5), np.zeros((8, 1), "float32")
    run(f, a, b)
    np.testing.assert_array_equal(b, a.max(1, keepdims=True))

    def wrong():
        @T.prim_func
        def g(A: T.Tensor((8, 5), "float32")):
            with T.Kernel(1):
                x = T.alloc_fragment((8, 5), "float32")
                s = T.alloc_fragment((5,), "float32")
                T.reduce_max(x, s, dim=1)

    with pytest.raises(ShapeError):
        wrong()


def test_b073_bitwise_reduction_of_floats():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8, 5), "float32")):
            with T.Kernel(1):
                x = T.alloc_fragment((8, 5), "float32")
                s = T.alloc_fragment((8,), "float32")
                T.reduce_bitand(x, s, dim=1)

    with pytest.raises(DTypeError):
        build()


@pytest.mark.parametrize("kind", ["bitand", "bitor", "bitxor"])
def test_bitwise_reductions(kind):
    reduce = {"bitand": T.reduce_bitand, "bitor": T.reduce_bitor, "bitxor": T.reduce_bitxor}[kind]
    numpy = {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}[kind]

    @T.prim_func
    def f(A: T.Tensor((8, 5), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = T.alloc_fragment((8, 5), "int32")
            s = T.alloc_fragment((8,), "int32")
            T.copy(A, x)
            reduce(x, s, dim=1)
            T.copy(s, B)

    a, b = ints(8, 5, low=0, high=1000), np.zeros(8, "int32")
    run(f, a, b)
    np.testing.assert_array_equal(b, numpy.reduce(a, axis=1))


def test_b079_reduction_of_a_reduction():
    @T.prim_func
    def f(A: T.Tensor((128, 128), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((128, 128), "float32")
            r = T.alloc_fragment((128,), "float32")
            t = T.alloc_fragment((1,), "float32")
            T.copy(A, x)
            T.reduce_sum(x, r, dim=1)
            T.reduce_sum(r, t, dim=0)
            for i in T.Parallel(128):
                B[i] = t[0]

    b = np.zeros(128, "float32")
    run(f, np.full((128, 128), 1 / 128, "float32"), b)
    np.testing.assert_allclose(b, 128.0)


@pytest.mark.parametrize("count", [256, 300])
def test_b081_counting_bools(count):
    @T.prim_func
    def f(A: T.Tensor((1, count), "bool"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            x = T.alloc_fragment((1, count), "bool")
            s = T.alloc_fragment((1,), "int32")
            T.copy(A, x)
            T.reduce_sum(x, s, dim=1)
            T.copy(s, B)

    b = np.zeros(1, "int32")
    run(f, np.ones((1, count), bool), b)
    assert b[0] == count


@pytest.mark.parametrize("dim", [0, 1])
def test_b176_reduce_axes(dim):
    @T.prim_func
    def f(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment((64, 64), "float32")
            s = T.alloc_fragment((64,), "float32")
            T.copy(A, x)
            T.reduce_sum(x, s, dim=dim)
            T.copy(s, B)

    a, b = np.arange(4096, dtype="float32").reshape(64, 64), np.zeros(64, "float32")
    run(f, a, b)
    np.testing.assert_allclose(b, a.sum(dim), rtol=1e-6)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("dtype", "acc"), [
    ("float32", "float32"), ("float16", "float32"), ("float64", "float64"), ("int8", "int32"),
    ("float16", "float16"),
])  # fmt: skip
def test_b094_gemm_transposes_and_dtypes(trans_a, trans_b, dtype, acc):
    m, n, k = 33, 40, 24

    @T.prim_func
    def f(
        A: T.Tensor((k, m) if trans_a else (m, k), dtype),
        B: T.Tensor((n, k) if trans_b else (k, n), dtype),
        C: T.Tensor((m, n), acc),
    ):
        with T.Kernel(1):
            a = T.alloc_shared((k, m) if trans_a else (m, k), dtype)
            b = T.alloc_shared((n, k) if trans_b else (k, n), dtype)
            c = T.alloc_fragment((m, n), acc)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(c, C)

    make = (
        (lambda *s, seed: ints(*s, dtype=dtype, seed=seed))
        if dtype == "int8"
        else (lambda *s, seed: floats(*s, dtype=dtype, seed=seed))
    )
    a, b = make(m, k, seed=0), make(k, n, seed=1)
    c = np.zeros((m, n), acc)
    run(
        f,
        np.ascontiguousarray(a.T) if trans_a else a,
        np.ascontiguousarray(b.T) if trans_b else b,
        c,
    )
    want = 2 * (a.astype("float64") @ b.astype("float64"))
    np.testing.assert_allclose(
        c, want, rtol=2e-2 if acc == "float16" else 1e-4, atol=1e-1 if acc == "float16" else 1e-4
    )


def test_b091_float16_products_do_not_overflow():
    @T.prim_func
    def f(
        A: T.Tensor((16, 32), "float16"),
        B: T.Tensor((32, 16), "float16"),
        C: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1):
            a = T.alloc_shared((16, 32), "float16")
            b = T.alloc_shared((32, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    c = np.zeros((16, 16), "float32")
    run(f, np.full((16, 32), 300, "float16"), np.full((32, 16), 300, "float16"), c)
    assert (c == 2_880_000).all()


def test_b093_two_products_in_one_accumulator():
    @T.prim_func
    def f(
        A: T.Tensor((32, 16), "float32"),
        B: T.Tensor((16, 32), "float32"),
        C: T.Tensor((32, 24), "float32"),
        D: T.Tensor((24, 32), "float32"),
        Out: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1):
            a = T.alloc_shared((32, 16), "float32")
            b = T.alloc_shared((16, 32), "float32")
            c = T.alloc_shared((32, 24), "float32")
            d = T.alloc_shared((24, 32), "float32")
            acc = T.alloc_fragment((32, 32), "float32")
            T.clear(acc)
            for _k in T.Pipelined(2, num_stages=2):
                T.copy(A, a)
                T.copy(B, b)
                T.copy(C, c)
                T.copy(D, d)
                T.gemm(a, b, acc)
                T.gemm(c, d, acc)
            T.copy(acc, Out)

    a, b, c, d = (
        floats(32, 16),
        floats(16, 32, seed=1),
        floats(32, 24, seed=2),
        floats(24, 32, seed=3),
    )
    out = np.zeros((32, 32), "float32")
    run(f, a, b, c, d, out)
    np.testing.assert_allclose(out, 2 * (a @ b + c @ d), rtol=1e-4, atol=1e-4)


def test_b089_symbolic_gemm_extent():
    n = T.dynamic("n")

    def build():
        @T.prim_func
        def f(A: T.Tensor((n, 32), "float32"), B: T.Tensor((32, 32), "float32")):
            with T.Kernel(1):
                c = T.alloc_fragment((32, 32), "float32")
                T.gemm(A, B, c)

    with pytest.raises(TilecError):
        build()


def test_b090_float32_gemm_is_float32():
    @T.prim_func
    def f(
        A: T.Tensor((64, 64), "float32"),
        B: T.Tensor((64, 64), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1):
            a = T.alloc_shared((64, 64), "float32")
            b = T.alloc_shared((64, 64), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    a, b, c = floats(64, 64), floats(64, 64, seed=1), np.zeros((64, 64), "float32")
    run(f, a, b, c)
    want = a.astype("float64") @ b.astype("float64")
    assert np.abs(c - want).max() / np.abs(want).max() < 1e-6


@pytest.mark.parametrize("expression", [False, True])
def test_clear_accum(expression):
    @T.prim_func
    def f(A: T.Tensor((16, 16), "float32"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.fill(c, 7)
            for k in T.serial(3):
                T.gemm(a, a, c, clear_accum=(k == 1) if expression else True)
            T.copy(c, C)

    a, c = floats(16, 16), np.zeros((16, 16), "float32")
    run(f, a, c)
    np.testing.assert_allclose(c, (2 if expression else 1) * (a @ a), rtol=1e-4, atol=1e-4)


def test_b172_atomic_tile():
    @T.prim_func
    def f(A: T.Tensor((16, 64), "float32"), G: T.Tensor((48, 192), "float32")):
        with T.Kernel(2):
            t = T.alloc_fragment((16, 64), "float32")
            T.copy(A, t)
            T.atomic_add(G[16:32, 64:128], t)

    a, g = floats(16, 64), np.zeros((48, 192), "float32")
    run(f, a, g)
    want = np.zeros_like(g)
    want[16:32, 64:128] = 2 * a
    np.testing.assert_allclose(g, want)
