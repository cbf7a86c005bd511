"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight, for each row.

python examples/rms_norm.py
"""

import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T

EPS = 1e-6


@tilec.jit(out_idx=[-1])
def make_kernel(M: int, N: int, block_M: int = 4, dtype: str = "float32", eps: float = EPS):
    accum_dtype = "float32"

    @T.prim_func
    def rms_norm(X: T.Tensor((M, N), dtype), W: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), accum_dtype)
            squares = T.alloc_fragment((block_M, N), accum_dtype)
            scale = T.alloc_fragment((block_M,), accum_dtype)

            T.copy(X[bx * block_M, 0], x)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * scale[i] * W[j]
            T.copy(x, Y[bx * block_M, 0])

    return rms_norm


def reference(X: np.ndarray, W: np.ndarray, eps: float = EPS) -> np.ndarray:
    X, W = X.astype(np.float32), W.astype(np.float32)
    return X / np.sqrt(np.mean(X * X, axis=1, keepdims=True) + eps) * W


def run(M: int, N: int, dtype: str, seed: int = 0) -> bool:
    rng = np.random.default_rng(seed)
    X, W = normal(rng, (M, N), dtype), normal(rng, (N,), dtype)
    kernel = make_kernel(M, N, dtype=dtype)
    Y = kernel(X, W)
    ms = best_ms(lambda: kernel(X, W))
    return report(f"rms_norm {M}x{N}", dtype, Y, reference(X, W), ms)


def main(M: int = 1001, N: int = 3000) -> int:
    results = [run(M, N, dtype) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
