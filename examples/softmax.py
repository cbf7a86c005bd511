"""Softmax over the rows of a matrix.

Each block owns `block_M` rows and keeps them in a fragment, so a row is read once and written
once. python examples/softmax.py
"""

import math
import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def make_kernel(M: int, N: int, block_M: int = 4, dtype: str = "float32"):
    accum_dtype = "float32"
    log2e = math.log2(math.e)  # exp(x) = 2 ** (x * log2e), and exp2 is what machines are good at

    @T.prim_func
    def softmax(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), accum_dtype)
            row_max = T.alloc_fragment((block_M,), accum_dtype)
            row_sum = T.alloc_fragment((block_M,), accum_dtype)

            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp2((x[i, j] - row_max[i]) * log2e)
            T.reduce_sum(x, row_sum, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / row_sum[i]
            T.copy(x, Y[bx * block_M, 0])

    return softmax


def reference(X: np.ndarray) -> np.ndarray:
    X = X.astype(np.float32)
    E = np.exp(X - X.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def run(M: int, N: int, dtype: str, seed: int = 0) -> bool:
    X = normal(np.random.default_rng(seed), (M, N), dtype)
    kernel = make_kernel(M, N, dtype=dtype)
    Y = kernel(X)
    ms = best_ms(lambda: kernel(X))
    return report(f"softmax {M}x{N}", dtype, Y, reference(X), ms)


def main(M: int = 1001, N: int = 3000) -> int:
    results = [run(M, N, dtype) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
