"""Float predicates and arithmetic on bools, as the conformance kit found them missing or wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_predicates(name: str, dtype: str) -> None:
    predicate = getattr(T, name)

    @T.prim_func
    def kernel(A: T.Tensor((64,), dtype), B: T.Tensor((64,), "bool"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(64):
                B[i] = predicate(A[i] * 1)
                C[i] = T.if_then_else(predicate(A[i]), 1, 2)

    a = np.resize(np.array([0.0, 1.0, np.nan, np.inf, -np.inf, -3.5]), 64).astype(dtype)
    b, c = np.zeros(64, bool), np.zeros(64, np.int32)
    tilec.compile(kernel, target="c")(a, b, c)
    want = getattr(np, name)(a)
    np.testing.assert_array_equal(b, want)
    np.testing.assert_array_equal(c, np.where(want, 1, 2))


@pytest.mark.parametrize("where", [None, 0, 137, 200, 255])
@pytest.mark.parametrize("kind", ["sum", "abssum", "max", "absmax", "min"])
def test_reductions_of_bools(kind: str, where: int | None) -> None:
    """Vector loops over a sum of bools gave anything, or crashed."""
    reduce: Any = getattr(T, f"reduce_{kind}")

    @T.prim_func
    def kernel(A: T.Tensor((256,), "bool"), B: T.Tensor((1,), "bool")):
        with T.Kernel(1):
            a = T.alloc_fragment((256,), "bool")
            b = T.alloc_fragment((1,), "bool")
            T.copy(A, a)
            reduce(a, b, dim=0)
            T.copy(b, B)

    a, b = np.zeros(256, bool), np.ones(1, bool)
    if where is not None:
        a[where] = True
    tilec.compile(kernel, target="c")(a, b)
    assert b[0] == (a.all() if kind == "min" else a.any())


def test_arithmetic_of_bools() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((4,), "bool"), B: T.Tensor((4,), "bool"), C: T.Tensor((3, 4), "bool")):
        with T.Kernel(1):
            for i in T.Parallel(4):
                C[0, i] = A[i] + B[i]
                C[1, i] = A[i] - B[i]
                C[2, i] = A[i] * B[i]

    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    c = np.zeros((3, 4), bool)
    tilec.compile(kernel, target="c")(a, b, c)
    np.testing.assert_array_equal(c, [a | b, a ^ b, a & b])
