"""The k largest entries of each row and their columns, as a mixture-of-experts router needs them.

Picks the maximum k times: reduce, find its first column, hide it. Of equal entries the one with
the lower column comes first.
python examples/topk.py
"""

import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-2, -1])
def make_kernel(M: int, N: int, k: int, block_M: int = 16, dtype: str = "float32"):
    assert 0 < k <= N

    @T.prim_func
    def topk(
        logits: T.Tensor((M, N), dtype),
        values: T.Tensor((M, k), dtype),
        columns: T.Tensor((M, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), dtype)
            candidates = T.alloc_fragment((block_M, N), "int32")
            best = T.alloc_fragment((block_M,), dtype)
            column = T.alloc_fragment((block_M,), "int32")

            T.copy(logits[bx * block_M, 0], x)
            for n in T.serial(k):
                T.reduce_max(x, best, dim=1)
                for i, j in T.Parallel(block_M, N):
                    candidates[i, j] = T.if_then_else(x[i, j] == best[i], j, N)
                T.reduce_min(candidates, column, dim=1)
                for i, j in T.Parallel(block_M, N):
                    if j == column[i]:
                        x[i, j] = -T.infinity(dtype)
                for i in T.Parallel(block_M):
                    if bx * block_M + i < M:
                        values[bx * block_M + i, n] = best[i]
                        columns[bx * block_M + i, n] = column[i]

    return topk


def reference(logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    logits = logits.astype(np.float32)
    columns = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(logits, columns, axis=1), columns.astype(np.int32)


def run(M: int, N: int, k: int, dtype: str, seed: int = 0) -> bool:
    logits = normal(np.random.default_rng(seed), (M, N), dtype)
    kernel = make_kernel(M, N, k, dtype=dtype)
    values, columns = kernel(logits)
    ms = best_ms(lambda: kernel(logits))
    expected, expected_columns = reference(logits, k)
    what = f"top {k} of {M}x{N}"
    good = report(what, dtype, values, expected, ms)
    if not np.array_equal(columns, expected_columns):
        print(f"{what}, {dtype}: WRONG columns")
        return False
    return good


def main(M: int = 1001, N: int = 120, k: int = 6) -> int:
    results = [run(M, N, k, dtype) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
