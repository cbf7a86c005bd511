"""Public bugs of the field as tests: fragments, pipelining, loops (recipes B001 to B053)."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import NestingError


def run(func, *arrays, **options):
    return tilec.compile(func, **options)(*arrays)


def ints(*shape, low=-50, high=50, dtype="int32", seed=0):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def floats(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("n", [128, 192, 229, 256, 257, 384])
def test_b001_widths_that_are_no_power_of_two(n):
    @T.prim_func
    def f(A: T.Tensor((1, n), "float32"), B: T.Tensor((1, n), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((1, n), "float32")
            T.copy(A, x)
            for i, j in T.Parallel(1, n):
                x[i, j] = x[i, j] * 2
            T.copy(x, B)

    a, b = floats(1, n), np.zeros((1, n), "float32")
    run(f, a, b)
    np.testing.assert_array_equal(b, a * 2)


@pytest.mark.parametrize("w", [96, 100, 120, 127])
def test_b002_row_sums(w):
    @T.prim_func
    def f(A: T.Tensor((16, w), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((16, w), "float32")
            s = T.alloc_fragment((16,), "float32")
            T.copy(A, x)
            T.reduce_sum(x, s, dim=1)
            T.copy(s, B)

    a, b = floats(16, w), np.zeros(16, "float32")
    run(f, a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-4, atol=1e-4)


def test_b003_every_element_is_written():
    @T.prim_func
    def f(C: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((256,), "int32")
            T.fill(x, 0)
            for i in T.Parallel(100):
                x[i] = 5
            for i in T.Parallel(256):
                C[i] = x[i] + 1

    c = np.full(256, -1, "int32")
    run(f, c)
    assert (c[:100] == 6).all()
    assert (c[100:] == 1).all()


@pytest.mark.parametrize("modulus", [5, 7, 8])
@pytest.mark.parametrize("scope", ["fragment", "shared", "global"])
def test_b004_modular_broadcast(modulus, scope):
    @T.prim_func
    def f(
        A: T.Tensor((16, 64), "int32"), B: T.Tensor((8,), "int32"), C: T.Tensor((16, 64), "int32")
    ):
        with T.Kernel(1, threads=128):
            if scope == "global":
                b = B
            else:
                alloc = T.alloc_fragment if scope == "fragment" else T.alloc_shared
                b = alloc((8,), "int32")
                T.copy(B, b)
            for i, j in T.Parallel(16, 64):
                C[i, j] = A[i, j] + b[j % modulus]

    a, b, c = ints(16, 64), ints(8, seed=1), np.zeros((16, 64), "int32")
    run(f, a, b, c)
    np.testing.assert_array_equal(c, a + b[np.arange(64) % modulus])


def test_b005_group_broadcast():
    @T.prim_func
    def f(A: T.Tensor((16, 14), "int32"), B: T.Tensor((16, 448), "int32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((16, 14), "int32")
            T.copy(A, x)
            for i, j in T.Parallel(16, 448):
                B[i, j] += x[i, j // 32]

    a, b = ints(16, 14), ints(16, 448, seed=1)
    want = b + np.repeat(a, 32, axis=1)
    run(f, a, b)
    np.testing.assert_array_equal(b, want)


def test_b007_serial_walk_over_a_fragment():
    @T.prim_func
    def f(A: T.Tensor((16, 16), "float32"), B: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((16, 16), "float32")
            y = T.alloc_fragment((16, 16), "float32")
            T.copy(A, x)
            for i, j in T.grid(16, 16):
                y[i, j] = x[i, j] + 1
            T.copy(y, B)

    a, b = floats(16, 16), np.zeros((16, 16), "float32")
    run(f, a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_b008_serial_sum_over_an_accumulator():
    @T.prim_func
    def f(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            s = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.gemm(a, a, acc, clear_accum=True)
            T.clear(s)
            for i in T.Parallel(64):
                for j in T.serial(64):
                    s[i] += acc[i, j]
            T.copy(s, B)

    a, b = floats(64, 64, dtype="float16"), np.zeros(64, "float32")
    run(f, a, b)
    want = (a.astype("float64") @ a.astype("float64")).sum(1)
    np.testing.assert_allclose(b, want, rtol=1e-3, atol=1e-2)


def test_b009_gemm_operand_is_copied_on():
    @T.prim_func
    def f(
        A: T.Tensor((128, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        Out: T.Tensor((128, 64), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((128, 64), "float16")
            a_s = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((128, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(a, a_s)
            T.copy(a_s, Out)
            T.copy(c, C)

    a, b = floats(128, 64, dtype="float16"), floats(64, 64, dtype="float16", seed=1)
    out, c = np.zeros_like(a), np.zeros((128, 64), "float32")
    run(f, a, b, out, c)
    np.testing.assert_array_equal(out, a)
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)


def test_b013_broadcast_in_a_serial_loop():
    @T.prim_func
    def f(S: T.Tensor((8,), "bfloat16"), D: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((8,), "bfloat16")
            x = T.alloc_fragment((8,), "float32")
            d = T.alloc_shared((4, 64), "float32")
            T.copy(S, s)
            T.copy(s, x)
            for k in T.serial(64):
                for i in T.Parallel(4):
                    d[i, k] = x[i]
            T.copy(d, D)

    ml_dtypes = pytest.importorskip("ml_dtypes")
    s, d = floats(8).astype(ml_dtypes.bfloat16), np.zeros((4, 64), "float32")
    run(f, s, d)
    np.testing.assert_array_equal(d, np.repeat(s[:4, None].astype("float32"), 64, 1))


def test_b014_small_reductions():
    @T.prim_func
    def f(A: T.Tensor((32, 4, 4), "float32"), B: T.Tensor((32, 4), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((32, 4, 4), "float32")
            s = T.alloc_fragment((32, 4), "float32")
            y = T.alloc_fragment((32, 4), "float32")
            T.copy(A, x)
            T.reduce_sum(x, s, dim=1)
            T.copy(A[:, 0, :], y)
            for i, j in T.Parallel(32, 4):
                s[i, j] = s[i, j] / y[i, j]
            T.copy(s, B)

    a = floats(32, 4, 4) + 3
    b = np.zeros((32, 4), "float32")
    run(f, a, b)
    np.testing.assert_allclose(b, a.sum(1) / a[:, 0], rtol=1e-5)


def test_b014_reduce_of_one_element():
    @T.prim_func
    def f(A: T.Tensor((1, 1), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((1, 1), "float32")
            s = T.alloc_fragment((1,), "float32")
            T.copy(A, x)
            T.reduce_max(x, s, dim=1)
            T.copy(s, B)

    a, b = floats(1, 1), np.zeros(1, "float32")
    run(f, a, b)
    assert b[0] == a[0, 0]


@pytest.mark.parametrize("k", [1, 3, 5, 6, 7])
def test_b016_extents_not_by_a_power_of_two(k):
    @T.prim_func
    def f(A: T.Tensor((32 * k,), "int32"), B: T.Tensor((32 * k,), "int32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((32 * k,), "int32")
            T.copy(A, x)
            for i in T.Parallel(32 * k):
                x[i] = x[i] + 1
            T.copy(x, B)

    a, b = ints(32 * k), np.zeros(32 * k, "int32")
    run(f, a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_b017_local_buffer_indexed_by_a_parallel_variable():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                x = T.alloc_local((8,), "int32")
                for i in T.Parallel(8):
                    x[i] = A[i]

        return f

    with pytest.raises(NestingError, match="x"):
        tilec.compile(build(), target="c")


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
def test_b019_loop_carried_staging_buffer(stages):
    @T.prim_func
    def f(
        A: T.Tensor((8, 32), "int32"), S0: T.Tensor((32,), "int32"), Out: T.Tensor((32,), "int32")
    ):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32,), "int32")
            acc = T.alloc_fragment((32,), "int32")
            T.copy(S0, s)
            T.clear(acc)
            for k in T.Pipelined(8, num_stages=stages):
                for i in T.Parallel(32):
                    acc[i] += s[i]
                T.copy(A[k, :], s)
            T.copy(acc, Out)

    a, s0, out = ints(8, 32), ints(32, seed=1), np.zeros(32, "int32")
    run(f, a, s0, out)
    np.testing.assert_array_equal(out, s0 + a[:7].sum(0))


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 2), (3, 1), (2, 2)])
def test_b020_sibling_loops_share_staging_buffers(first, second):
    @T.prim_func
    def f(
        A: T.Tensor((128, 128), "float16"),
        B: T.Tensor((128, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(2, num_stages=first):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            for k in T.Pipelined(2, num_stages=second):
                T.copy(A[by * 64, (k + 2) * 32], a)
                T.copy(B[(k + 2) * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    a, b = floats(128, 128, dtype="float16"), floats(128, 128, dtype="float16", seed=1)
    c = np.zeros((128, 128), "float32")
    run(f, a, b, c)
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)


def test_b021_staged_buffer_after_its_loop():
    @T.prim_func
    def f(A: T.Tensor((4, 64, 32), "float32"), Out: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 32), "float32")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k, :, :], s)
            T.copy(s, Out)

    a, out = floats(4, 64, 32), np.zeros((64, 32), "float32")
    run(f, a, out)
    np.testing.assert_array_equal(out, a[3])


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("stages", [2, 3])
def test_b022_trip_counts(trips, stages):
    @T.prim_func
    def f(A: T.Tensor((4, 32), "int32"), Out: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32,), "int32")
            acc = T.alloc_fragment((32,), "int32")
            T.clear(acc)
            for k in T.Pipelined(trips, num_stages=stages):
                T.copy(A[k, :], s)
                for i in T.Parallel(32):
                    acc[i] += s[i]
            T.copy(acc, Out)

    a, out = ints(4, 32), np.full(32, -1, "int32")
    run(f, a, out)
    np.testing.assert_array_equal(out, a[:trips].sum(0))


def test_b024_gather_through_bound_indices():
    @T.prim_func
    def f(
        ids: T.Tensor((4,), "int32"),
        ids2: T.Tensor((16,), "int32"),
        KV: T.Tensor((16, 32), "float32"),
        Out: T.Tensor((4, 32), "float32"),
    ):
        with T.Kernel(1, threads=1):
            a = T.alloc_shared((32,), "float32")
            b = T.alloc_fragment((32,), "float32")
            for k in T.Pipelined(4, num_stages=1):
                row = ids[k]
                row2 = ids2[row]
                if row2 >= 0:
                    T.copy(KV[row2, :], a)
                    T.clear(b)
                    for i in T.Parallel(32):
                        b[i] += a[i]
                    T.copy(b, Out[k, :])

    ids, ids2 = np.array([3, 0, 2, 5], "int32"), np.arange(16, dtype="int32")[::-1].copy()
    ids2[2] = -1
    kv, out = floats(16, 32), np.zeros((4, 32), "float32")
    run(f, ids, ids2, kv, out)
    want = kv[ids2[ids]]
    want[2] = 0
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("k", [33, 24, 8, 20])
def test_b025_b083_k_tails(k):
    @T.prim_func
    def f(
        A: T.Tensor((128, k), "float16"),
        B: T.Tensor((k, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, ko * 32], a)
                T.copy(B[ko * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    a, b = floats(128, k, dtype="float16"), floats(k, 128, dtype="float16", seed=1)
    c = np.zeros((128, 128), "float32")
    run(f, a, b, c)
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)


def test_b026_one_operand_staged_by_a_parallel_loop():
    @T.prim_func
    def f(
        A: T.Tensor((128, 128), "float16"),
        B: T.Tensor((128, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(1, 1, threads=128) as (bx, by):
            a = T.alloc_shared((128, 32), "float16")
            b = T.alloc_shared((32, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=1):
                T.copy(A[by * 128, k * 32], a)
                for i, j in T.Parallel(32, 128):
                    b[i, j] = B[k * 32 + i, bx * 128 + j]
                T.gemm(a, b, c)
            T.copy(c, C)

    a, b = floats(128, 128, dtype="float16"), floats(128, 128, dtype="float16", seed=1)
    c = np.zeros((128, 128), "float32")
    run(f, a, b, c)
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)


def test_b029_effects_happen_once():
    @T.prim_func
    def f(counter: T.Tensor((1,), "int32"), out: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            pos = T.atomic_add(counter[0], 1, return_prev=True)
            if pos < 64:
                out[pos] = tx

    counter, out = np.zeros(1, "int32"), np.full(64, -1, "int32")
    run(f, counter, out)
    assert counter[0] == 64
    assert sorted(out) == list(range(64))


def test_b031_accumulator_before_and_in_the_loop():
    @T.prim_func
    def f(
        A: T.Tensor((64, 192), "float16"),
        B: T.Tensor((192, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.copy(A[0, 0], a)
            T.copy(B[0, 0], b)
            T.gemm(a, b, c)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, (k + 1) * 64], a)
                T.copy(B[(k + 1) * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    a, b = floats(64, 192, dtype="float16"), floats(192, 64, dtype="float16", seed=1)
    c = np.zeros((64, 64), "float32")
    run(f, a, b, c)
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)


def test_b032_guarded_write_then_guarded_read():
    @T.prim_func
    def f(out: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            if tx < 48:
                s[tx] = tx
            if tx < 48:
                out[tx] = s[47 - tx]

    out = np.full(64, -1, "int32")
    run(f, out)
    np.testing.assert_array_equal(out[:48], np.arange(47, -1, -1))
    assert (out[48:] == -1).all()


def test_b033_barrier_under_divergent_control_flow():
    @T.prim_func
    def f(out: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx % 4 == 0:
                out[tx] = 1
                T.sync_threads()

    with pytest.raises(NestingError, match="sync_threads"):
        tilec.compile(f, target="c")


def test_b034_write_by_some_read_by_all():
    @T.prim_func
    def f(out: T.Tensor((512,), "int32")):
        with T.Kernel(1, threads=512):
            tid = T.get_thread_binding()
            a = T.alloc_shared((32,), "int32")
            b = T.alloc_shared((32,), "int32")
            if tid < 32:
                a[tid] = tid
                b[tid] = tid
            out[tid] = a[tid % 32]

    out = np.zeros(512, "int32")
    run(f, out)
    np.testing.assert_array_equal(out, np.arange(512) % 32)


def test_b036_lane_dependent_trip_count():
    @T.prim_func
    def f(n: T.Tensor((32,), "int32"), out: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "int32")
            x = T.alloc_var("int32", init=0)
            s[tx] = tx + 1
            for i in T.serial(n[tx]):
                x += s[(tx + i) % 32]
            out[tx] = x

    n, out = np.arange(32, dtype="int32") % 4, np.zeros(32, "int32")
    run(f, n, out)
    want = [sum((t + i) % 32 + 1 for i in range(n[t])) for t in range(32)]
    np.testing.assert_array_equal(out, want)


def test_b039_conditions_are_evaluated_in_order():
    @T.prim_func
    def f(A: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            if A[0] > 0:
                A[0] = 0
            if A[0] > 0:
                A[1] = 1

    a = np.array([1, 7], "int32")
    run(f, a)
    assert list(a) == [0, 7]


def test_b041_select_in_a_vector_loop():
    @T.prim_func
    def f(src: T.Tensor((4,), "float16"), dst: T.Tensor((4,), "float16")):
        with T.Kernel(1):
            for i in T.vectorized(4):
                v = src[i]
                dst[i] = T.Select(v > 0, v, v + 1)

    src = np.array([-2, 0, 1, 0.5], "float16")
    dst = np.zeros_like(src)
    run(f, src, dst)
    np.testing.assert_array_equal(dst, np.where(src > 0, src, src + 1))


def test_b042_reduction_over_vector_lanes():
    @T.prim_func
    def f(A: T.Tensor((4, 16), "float32"), B: T.Tensor((4, 2), "float32")):
        with T.Kernel(1):
            for r in T.serial(4):
                B[r, 0] = 0.0
                B[r, 1] = -1e30
                for i in T.serial(2):
                    for j in T.vectorized(8):
                        B[r, 0] += A[r, 8 * i + j]
                    for j in T.vectorized(8):
                        B[r, 1] = T.max(B[r, 1], A[r, 8 * i + j])

    a, b = floats(4, 16), np.zeros((4, 2), "float32")
    run(f, a, b)
    np.testing.assert_allclose(b[:, 0], a.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(b[:, 1], a.max(1))


def test_b043_mutable_scalar_in_a_parallel_loop():
    @T.prim_func
    def f(Data: T.Tensor((2048,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(2048):
                idx = T.alloc_var("int32")
                idx = i
                Data[i] = idx

    data = np.zeros(2048, "int32")
    run(f, data)
    np.testing.assert_array_equal(data, np.arange(2048))


def test_b045_large_strides_do_not_overflow():
    n = T.dynamic("n", "int64")

    @T.prim_func
    def f(A: T.Tensor((n,), "int8"), out: T.Tensor((4,), "int8")):
        with T.Kernel(1):
            for i in T.serial(4):
                out[i] = A[i * 600_000_000]

    a = np.zeros(1_800_000_001, "int8")
    a[[0, 600_000_000, 1_200_000_000, 1_800_000_000]] = [1, 2, 3, 4]
    out = np.zeros(4, "int8")
    run(f, a, out)
    assert list(out) == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [-1, -7, -128])
def test_b046_fill_of_negative_bytes(value):
    @T.prim_func
    def f(A: T.Tensor((64,), "int8")):
        with T.Kernel(1):
            T.fill(A, value)

    a = np.zeros(64, "int8")
    run(f, a)
    assert (a == value).all()


def test_b048_atomic_add_into_shared_memory():
    @T.prim_func
    def f(out: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32,), "float32")
            T.clear(s)
            for i in T.Parallel(128):
                T.atomic_add(s[i % 32], 1.0)
            T.copy(s, out)

    out = np.zeros(32, "float32")
    run(f, out)
    assert (out == 4).all()


@pytest.mark.parametrize("guarded", [False, True])
def test_b049_loop_steps(guarded):
    @T.prim_func
    def f(flag: T.Tensor((1,), "int32"), out: T.Tensor((3, 11), "int32")):
        with T.Kernel(1):
            if flag[0] > 0 or not guarded:
                for i in T.serial(0, 6, 2):
                    out[0, i] = 1
                for i in T.unroll(1, 6, 2):
                    out[1, i] = 1
                for i in range(10, 0, -1):
                    out[2, i] = i

    out = np.zeros((3, 11), "int32")
    run(f, np.ones(1, "int32"), out)
    assert list(np.flatnonzero(out[0])) == [0, 2, 4]
    assert list(np.flatnonzero(out[1])) == [1, 3, 5]
    np.testing.assert_array_equal(out[2], np.arange(11))


@pytest.mark.parametrize("explicit", [False, True])
def test_b050_break_in_an_unrolled_loop(explicit):
    @T.prim_func
    def f(A: T.Tensor((4,), "int32"), out: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            for i in T.unroll(4, explicit=explicit):
                if A[i] < 0:
                    break
                out[0] += A[i]

    out = np.zeros(1, "int32")
    run(f, np.array([1, 2, -1, 4], "int32"), out)
    assert out[0] == 3


def test_b051_conditions_change_while_the_loop_runs():
    @T.prim_func
    def f(flag: T.Tensor((1,), "int32"), out: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                if flag[0] > 0:
                    out[i] = 1
                else:
                    out[i] = 2
                if i == 1:
                    flag[0] = 0

    out = np.zeros(4, "int32")
    run(f, np.ones(1, "int32"), out)
    assert list(out) == [1, 1, 2, 2]
