"""Meanings of tile operations that the conformance kit found to differ from the compiled ones."""

from __future__ import annotations

import numpy as np
import pytest

import tilec.language as T
from tilec import interp
from tilec.arith import evaluate_call
from tilec.diagnostics import DTypeError, OperandError, RaceError
from tilec.ir import DType


def test_blocks_may_add_atomically_to_the_same_tile() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(5):
            a = T.alloc_shared((8,), "int32")
            T.copy(A, a)
            T.atomic_add(B, a)

    a, b = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    interp.run(kernel, a, b, check=True)
    np.testing.assert_array_equal(b, a * 5)


def test_but_not_copy_to_it() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(2):
            T.copy(A, B)

    with pytest.raises(RaceError):
        interp.run(kernel, np.zeros(8, np.int32), np.zeros(8, np.int32), check=True)


def test_absolute_values_are_taken_in_the_type_of_the_result() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int8"), B: T.Tensor((1,), "int32"), C: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            T.reduce_absmax(A, B, dim=0)
            T.reduce_abssum(A, C, dim=0)

    b, c = np.zeros(1, np.int32), np.zeros(1, np.int32)
    interp.run(kernel, np.array([-128, 5, -7, 100], np.int8), b, c)
    assert (b[0], c[0]) == (128, 240)


def test_fused_product_beyond_the_largest_number() -> None:
    assert evaluate_call("fma", [1e300, 1e300, 1.0], DType("float64")) == np.inf
    assert evaluate_call("fma", [1e300, -1e300, 1.0], DType("float64")) == -np.inf


def test_bits_are_not_reduced_into_floats() -> None:
    with pytest.raises(DTypeError, match="needs integers, got float32"):

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32"), B: T.Tensor((1,), "float32")):
            with T.Kernel(1):
                T.reduce_bitor(A, B, dim=0)


@pytest.mark.parametrize("name", ["atomic_add", "atomic_max", "atomic_min"])
def test_memory_order_of_every_atomic(name: str) -> None:
    atomic = getattr(T, name)
    with pytest.raises(OperandError, match=f"T.{name}: memory_order 'strict'"):

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                atomic(A[0], 1, memory_order="strict")


@pytest.mark.parametrize("name", ["Parallel", "grid"])
def test_nests_need_their_extents(name: str) -> None:
    nest = getattr(T, name)
    with pytest.raises(OperandError, match="None"):

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                for i in nest(None):
                    A[i] = 1
