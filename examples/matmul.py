"""C = A @ B for any sizes, B as (K, N) or (N, K), with block sizes and stages to choose.

python examples/matmul.py
"""

import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T


@tilec.jit
def make_kernel(
    M: int,
    N: int,
    K: int,
    trans_B: bool = False,
    block_M: int = 64,
    block_N: int = 64,
    block_K: int = 32,
    num_stages: int = 2,
    threads: int = 128,
    dtype: str = "float32",
    out_dtype: str | None = None,
):
    B_shape = (N, K) if trans_B else (K, N)
    B_tile = (block_N, block_K) if trans_B else (block_K, block_N)

    @T.prim_func
    def matmul(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor(B_shape, dtype),
        C: T.Tensor((M, N), out_dtype or dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(B_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(8)  # neighbouring blocks share tiles, so let them run together

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                if trans_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=trans_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return matmul


def reference(A: np.ndarray, B: np.ndarray, trans_B: bool = False) -> np.ndarray:
    A, B = A.astype(np.float32), B.astype(np.float32)
    return A @ (B.T if trans_B else B)


def run(M: int, N: int, K: int, dtype: str, trans_B: bool = False, seed: int = 0) -> bool:
    rng = np.random.default_rng(seed)
    A, B = normal(rng, (M, K), dtype), normal(rng, (N, K) if trans_B else (K, N), dtype)
    C = np.empty((M, N), A.dtype)
    kernel = make_kernel(M, N, K, trans_B, dtype=dtype)
    kernel(A, B, C)
    ms = best_ms(lambda: kernel(A, B, C))
    what = f"matmul M={M} N={N} K={K}, B as {'(N, K)' if trans_B else '(K, N)'}"
    return report(what, dtype, C, reference(A, B, trans_B), ms)


def main(M: int = 500, N: int = 300, K: int = 400) -> int:
    results = [run(M, N, K, dtype, trans) for trans in (False, True) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
