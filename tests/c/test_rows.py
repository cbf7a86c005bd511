"""Rows of float16: converted as a whole, with the same results as one by one."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
import tilec.language as T


def every_half() -> np.ndarray:
    return np.arange(65536, dtype=np.uint16).view(np.float16)


def test_widening_and_narrowing_keep_every_value() -> None:
    n = 65536 // 64

    @T.prim_func
    def kernel(
        X: T.Tensor((64, n), "float16"),
        Y: T.Tensor((64, n), "float16"),
        Z: T.Tensor((64, n), "float32"),
    ):
        with T.Kernel(64) as bx:
            x = T.alloc_fragment((n,), "float32")
            T.copy(X[bx, 0:n], x)
            T.copy(x, Z[bx, 0:n])
            for j in T.Parallel(n):
                Y[bx, j] = T.cast(X[bx, j], "float32") * 1.0

    x = every_half().reshape(64, n)
    y, z = np.zeros_like(x), np.zeros((64, n), np.float32)
    tilec.compile(kernel, target="c")(x, y, z)
    np.testing.assert_array_equal(z, x.astype(np.float32))
    np.testing.assert_array_equal(y, x)
    plain = ~np.isnan(x)
    np.testing.assert_array_equal(y.view(np.uint16)[plain], x.view(np.uint16)[plain])


def test_narrowing_rounds_to_nearest_even() -> None:
    n = 4096
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    x *= np.exp2(np.random.default_rng(1).integers(-28, 20, n)).astype(np.float32)
    x[:6] = [65519.99, 65520, -65520, np.inf, np.nan, 2**-25]

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(1):
            for j in T.Parallel(n):
                Y[j] = X[j]

    y = np.zeros(n, np.float16)
    tilec.compile(kernel, target="c")(x, y)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, x.astype(np.float16))


@pytest.mark.parametrize("n", [1, 63, 64, 71, 1000])
def test_lengths_and_edges(n: int) -> None:
    """Rows outside, odd lengths, a value that is used after it was stored."""

    @T.prim_func
    def kernel(X: T.Tensor((5, n), "float16"), Y: T.Tensor((5, n), "float16")):
        with T.Kernel(2) as bx:
            x = T.alloc_fragment((4, n), "float32")
            h = T.alloc_fragment((4, n), "float16")
            T.copy(X[bx * 4, 0], x)
            for i, j in T.Parallel(4, n):
                h[i, j] = x[i, j] * 3.0
                x[i, j] = x[i, j] + T.cast(h[i, j], "float32")
            for i, j in T.Parallel(4, n):
                Y[bx * 4 + i, j] = x[i, j] - 1.0

    x = np.random.default_rng(2).standard_normal((5, n)).astype(np.float16)
    y = np.zeros_like(x)
    tilec.compile(kernel, target="c")(x, y)
    wide = x.astype(np.float32)
    want = wide + (wide * 3).astype(np.float16).astype(np.float32) - 1
    np.testing.assert_array_equal(y, want.astype(np.float16))


def test_the_same_row_shifted() -> None:
    """Reads of a row that the loop also writes stay in their place."""
    n = 256

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float16"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(1):
            h = T.alloc_shared((n,), "float16")
            T.copy(X, h)
            for j in T.Parallel(n):
                h[j] = T.cast(h[j], "float32") + T.cast(X[j], "float32")
            T.copy(h, Y)

    x = np.random.default_rng(3).standard_normal(n).astype(np.float16)
    y = np.zeros_like(x)
    tilec.compile(kernel, target="c")(x, y)
    np.testing.assert_array_equal(y, (x.astype(np.float32) * 2).astype(np.float16))
