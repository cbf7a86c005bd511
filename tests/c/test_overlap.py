"""Memory that is read and written by one operation, or shared by two arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import ArgumentValueError


def run(func: Any, *arrays: Any) -> None:
    tilec.compile(func, target="c")(*arrays)


def ints(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("shift", [-3, -1, 0, 1, 5, 31, 32])
@pytest.mark.parametrize("scope", ["global", "shared", "local.fragment"])
def test_copy_within_a_buffer(shift, scope):
    low, high = max(0, -shift), 32 + max(0, -shift)

    @T.prim_func
    def on_chip(A: T.Tensor((80,), "int32")):
        with T.Kernel(1):
            s = T.alloc_shared((80,), "int32", scope=scope)
            T.copy(A, s)
            T.copy(s[low:high], s[low + shift : high + shift])
            T.copy(s, A)

    @T.prim_func
    def in_place(A: T.Tensor((80,), "int32")):
        with T.Kernel(1):
            T.copy(A[low:high], A[low + shift : high + shift])

    a = ints(80)
    expected = a.copy()
    expected[low + shift : high + shift] = a[low:high]
    run(in_place if scope == "global" else on_chip, a)
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("size", [16, 48, 200])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("which", ["left", "right", "both"])
def test_gemm_into_an_operand(size, dtype, clear, which):
    @T.prim_func
    def f(A: T.Tensor((size, size), dtype), B: T.Tensor((size, size), dtype)):
        with T.Kernel(1):
            a = T.alloc_shared((size, size), dtype)
            b = T.alloc_shared((size, size), dtype)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(
                a if which != "right" else b,
                b if which != "left" else a,
                a,
                clear_accum=clear,
            )
            T.copy(a, A)

    a, b = ints(size, size, dtype=dtype), ints(size, size, dtype=dtype)[::-1].copy()
    left, right = (a if which != "right" else b), (b if which != "left" else a)
    expected = left @ right + (0 if clear else a)
    run(f, a, b)
    np.testing.assert_array_equal(a, expected)


def test_atomic_add_within_a_tile():
    @T.prim_func
    def f(A: T.Tensor((64,), "int32")):
        with T.Kernel(1):
            s = T.alloc_shared((64,), "int32")
            T.copy(A, s)
            T.atomic_add(s[1:33], s[0:32])
            T.copy(s, A)

    a = ints(64)
    expected = a.copy()
    expected[1:33] += a[0:32]
    run(f, a)
    np.testing.assert_array_equal(a, expected)


def test_places_and_values_are_read_before_the_result():
    @T.prim_func
    def f(A: T.Tensor((64,), "int32")):
        with T.Kernel(1):
            s = T.alloc_shared((64,), "int32")
            T.copy(A, s)
            T.fill(s[32:64], s[40] + 1)
            T.copy(A[s[3] : s[3] + 32], s[0:32])
            T.copy(s, A)

    a = np.arange(64, dtype="int32")
    a[3] = 7
    expected = np.concatenate([a[7:39], np.full(32, 41, "int32")])
    run(f, a)
    np.testing.assert_array_equal(a, expected)


def test_lanes_shift_their_own_state():
    @T.prim_func
    def f(A: T.Tensor((32, 4), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            x = T.alloc_local((4,), "int32")
            for i in T.serial(4):
                x[i] = A[tx, i]
            T.copy(x[0:3], x[1:4])
            for i in T.serial(4):
                A[tx, i] = x[i]

    a = ints(32, 4)
    expected = np.concatenate([a[:, :1], a[:, :3]], axis=1)
    run(f, a)
    np.testing.assert_array_equal(a, expected)


N = 1000


@T.prim_func
def shift(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
    with T.Kernel(1):
        for i in T.serial(N - 1):
            B[i + 1] = A[i] + 1


@pytest.mark.parametrize("distance", [0, 1, 7, N - 1, N])
def test_result_shares_memory_with_an_input(distance):
    kernel = tilec.compile(shift, target="c")
    memory = np.arange(2 * N, dtype="float32")
    before = memory.copy()
    kernel(memory[:N], memory[distance : distance + N])
    expected = before.copy()
    expected[distance + 1 : distance + N] = before[: N - 1] + 1
    np.testing.assert_array_equal(memory, expected)


def test_two_results_in_the_same_memory_are_refused():
    @T.prim_func
    def f(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(4) as bx:
            A[bx] = 1
            B[bx] = 2

    kernel = tilec.compile(f, target="c")
    a = np.zeros(2 * N, "float32")
    kernel(a[:N], a[N:])
    with pytest.raises(ArgumentValueError, match="A and B share memory and both are written"):
        kernel(a[:N], a[1 : N + 1])
    with pytest.raises(ArgumentValueError, match="share memory"):
        kernel(a[:N], a[:N])


def test_interleaved_results_do_not_meet():
    @T.prim_func
    def f(A: T.StridedTensor((N,), (2,), "float32"), B: T.StridedTensor((N,), (2,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(N):
                B[i] = A[i] + B[i]
                A[i] = 0

    a = np.arange(2 * N, dtype="float32")
    expected = np.stack([np.zeros(N, "float32"), a[0::2] + a[1::2]], axis=1).reshape(-1)
    tilec.compile(f, target="c")(a[0::2], a[1::2])
    np.testing.assert_array_equal(a, expected)
