"""The reference interpreter says what programs in tile form mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec import interp
from tilec.diagnostics import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    KernelRuntimeError,
    RaceError,
    UndefinedValueError,
)


def test_gemm_of_tiles_that_do_not_divide() -> None:
    M, N, K = 70, 50, 33

    @T.prim_func
    def gemm(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=64) as (bx, by):
            a = T.alloc_shared((32, 16), "float32")
            b = T.alloc_shared((16, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 16), num_stages=2):
                T.copy(A[by * 32, k * 16], a)
                T.copy(B[k * 16, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K)).astype(np.float32)
    b = rng.standard_normal((K, N)).astype(np.float32)
    c = np.zeros((M, N), np.float32)
    interp.run(gemm, a, b, c, check=True)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def test_reads_outside_are_zero_and_writes_outside_are_dropped() -> None:
    @T.prim_func
    def shift(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(16):
                B[i - 4] = A[i] + 1

    b = np.zeros(8, np.int32)
    interp.run(shift, np.arange(8, dtype=np.int32), b)
    np.testing.assert_array_equal(b, [5, 6, 7, 8, 1, 1, 1, 1])


def test_a_provably_negative_index_counts_from_the_end() -> None:
    @T.prim_func
    def last(A: T.Tensor((8,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(4):
                B[i] = A[i - 4] * 10 + A[-1]

    b = np.zeros(4, np.int32)
    interp.run(last, np.arange(8, dtype=np.int32), b)
    np.testing.assert_array_equal(b, [47, 57, 67, 77])


@pytest.mark.parametrize(
    ("a", "b", "div", "mod"), [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1)]
)
def test_integer_division_is_pythons(a: int, b: int, div: int, mod: int) -> None:
    @T.prim_func
    def divide(A: T.Tensor((2,), "int32"), B: T.Tensor((2,), "int32")):
        with T.Kernel(1):
            B[0] = A[0] // A[1]
            B[1] = A[0] % A[1]

    out = np.zeros(2, np.int32)
    interp.run(divide, np.array([a, b], np.int32), out)
    assert out.tolist() == [div, mod]


def test_integers_wrap_in_their_own_width() -> None:
    @T.prim_func
    def add(A: T.Tensor((1,), "int8"), B: T.Tensor((1,), "int8")):
        with T.Kernel(1):
            B[0] = A[0] + A[0]

    out = np.zeros(1, np.int8)
    interp.run(add, np.array([100], np.int8), out)
    assert out[0] == -56


def test_loops_conditions_and_early_exit() -> None:
    @T.prim_func
    def collatz(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(4) as bx:
            n = T.alloc_var("int32", init=A[bx])
            steps = T.alloc_var("int32", init=0)
            while n != 1:
                if n % 2 == 0:
                    n = n // 2
                else:
                    n = n * 3 + 1
                steps = steps + 1
                if steps == 100:
                    break
            B[bx] = steps

    out = np.zeros(4, np.int32)
    interp.run(collatz, np.array([1, 6, 27, 7], np.int32), out)
    assert out.tolist() == [0, 8, 100, 16]


def test_undefined_values_are_found() -> None:
    @T.prim_func
    def partly(B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            tile = T.alloc_fragment((4,), "float32")
            for i in T.Parallel(3):
                tile[i] = 1.0
            T.copy(tile, B)

    with pytest.raises(UndefinedValueError, match="tile"):
        interp.run(partly, np.zeros(4, np.float32), check=True)


@pytest.mark.parametrize("kind", ["iterations", "blocks"])
def test_races_are_found(kind: str) -> None:
    @T.prim_func
    def clash(A: T.Tensor((2,), "float32")):
        with T.Kernel(4) as bx:
            if kind == "blocks":
                A[bx // 2] = bx
            else:
                for i in T.Parallel(4):
                    A[i // 2] = i

    with pytest.raises(RaceError, match=r"A\["):
        interp.run(clash, np.zeros(2, np.float32), check=True)


def test_atomic_additions_are_no_race() -> None:
    @T.prim_func
    def histogram(A: T.Tensor((64,), "int32"), H: T.Tensor((4,), "int32")):
        with T.Kernel(4) as bx:
            for i in T.Parallel(16):
                T.atomic_add(H[A[bx * 16 + i]], 1)

    a = np.random.default_rng(1).integers(0, 4, 64).astype(np.int32)
    h = np.zeros(4, np.int32)
    interp.run(histogram, a, h, check=True)
    np.testing.assert_array_equal(h, np.bincount(a, minlength=4))


def test_a_failed_assertion_is_located() -> None:
    @T.prim_func
    def positive(A: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                assert A[i] > 0, "not positive"

    interp.run(positive, np.ones(4, np.int32))
    with pytest.raises(KernelRuntimeError, match="not positive"):
        interp.run(positive, np.array([1, 1, 0, 1], np.int32))


def test_outputs_are_returned() -> None:
    n = T.dynamic("n")

    @T.prim_func
    def double(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 4)) as bx:
            for i in T.Parallel(4):
                B[bx * 4 + i] = A[bx * 4 + i] * 2

    a = np.arange(6, dtype=np.float32)
    func = double.with_attr("out_idx", (1,))
    np.testing.assert_array_equal(interp.run(func, a), a * 2)
    with pytest.raises(ArgumentCountError):
        interp.run(func, a, a)
    with pytest.raises(ArgumentTypeError):
        interp.run(func, a.astype(np.float64))
    with pytest.raises(ArgumentValueError):
        interp.run(func, a[None])


def test_a_compiled_kernel_can_be_interpreted() -> None:
    pytest.importorskip("tilec_c")

    @tilec.jit(out_idx=[-1])
    def scaled(n: int, factor: float):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
            with T.Kernel(T.ceildiv(n, 32)) as bx:
                for i in T.Parallel(32):
                    B[bx * 32 + i] = T.exp(A[bx * 32 + i]) * factor

        return main

    kernel = scaled(50, 3.0)
    a = np.linspace(-2, 2, 50, dtype=np.float32)
    meant = kernel.interpret(a, check=True)
    np.testing.assert_allclose(meant, np.exp(a) * 3, rtol=1e-6)
    np.testing.assert_allclose(kernel(a), meant, rtol=1e-6)


@pytest.mark.parametrize("threads", [1, 32, (4, 8), (2, 2, 8)])
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 2)])
def test_what_lanes_write_of_their_own_is_defined(threads: Any, shape: tuple[int, ...]) -> None:
    zero = (0,) * len(shape)

    @T.prim_func
    def f(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=threads):
            x = T.alloc_local(shape, "int32")
            lane = T.get_thread_binding(0)
            x[zero] = A[lane] + 1
            A[lane] = x[zero] * 2

    given = np.arange(64, dtype=np.int32)
    interp.run(f, given, check=True)
    count = threads if isinstance(threads, int) else threads[0]
    assert given[:count].tolist() == [(n + 1) * 2 for n in range(count)]
