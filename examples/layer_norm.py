"""Layer normalisation of rows, with weight and bias.

The variance is taken from the centred values, not as mean(x^2) - mean(x)^2, which cancels.
python examples/layer_norm.py
"""

import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T

EPS = 1e-5


@tilec.jit(out_idx=[-1])
def make_kernel(M: int, N: int, block_M: int = 4, dtype: str = "float32", eps: float = EPS):
    accum_dtype = "float32"

    @T.prim_func
    def layer_norm(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        B: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), accum_dtype)
            squares = T.alloc_fragment((block_M, N), accum_dtype)
            mean = T.alloc_fragment((block_M,), accum_dtype)
            scale = T.alloc_fragment((block_M,), accum_dtype)

            T.copy(X[bx * block_M, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(block_M):
                mean[i] = mean[i] / N
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] - mean[i]
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * scale[i] * W[j] + B[j]
            T.copy(x, Y[bx * block_M, 0])

    return layer_norm


def reference(X: np.ndarray, W: np.ndarray, B: np.ndarray, eps: float = EPS) -> np.ndarray:
    X, W, B = (array.astype(np.float32) for array in (X, W, B))
    centred = X - X.mean(axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + eps) * W + B


def run(M: int, N: int, dtype: str, seed: int = 0) -> bool:
    rng = np.random.default_rng(seed)
    X = normal(rng, (M, N), dtype)
    W, B = normal(rng, (N,), dtype), normal(rng, (N,), dtype)
    kernel = make_kernel(M, N, dtype=dtype)
    Y = kernel(X, W, B)
    ms = best_ms(lambda: kernel(X, W, B))
    return report(f"layer_norm {M}x{N}", dtype, Y, reference(X, W, B), ms)


def main(M: int = 1001, N: int = 3000) -> int:
    results = [run(M, N, dtype) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
