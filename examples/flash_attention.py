"""Attention forward with online softmax (FlashAttention), full and causal.

A block computes `block_M` rows of one head. It walks over the keys in steps of `block_N` and
keeps, for each row, the largest score so far, the sum of exponentials and the unnormalised
output; when a larger score appears, the sums so far are scaled down.
python examples/flash_attention.py
"""

import math
import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def make_kernel(
    batch: int,
    heads: int,
    seq_len: int,
    dim: int,
    causal: bool = False,
    block_M: int = 64,
    block_N: int = 64,
    num_stages: int = 2,
    dtype: str = "float32",
):
    accum_dtype = "float32"
    shape = (batch, seq_len, heads, dim)
    scale = math.log2(math.e) / math.sqrt(dim)  # for exp2 in place of exp

    @T.prim_func
    def attention(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), accum_dtype)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, dim), accum_dtype)
            row_max = T.alloc_fragment((block_M,), accum_dtype)
            row_max_before = T.alloc_fragment((block_M,), accum_dtype)
            rescale = T.alloc_fragment((block_M,), accum_dtype)
            step_sum = T.alloc_fragment((block_M,), accum_dtype)
            row_sum = T.alloc_fragment((block_M,), accum_dtype)

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity(accum_dtype))

            # A causal row sees no key after itself, so later tiles are never visited.
            steps = (
                T.min(T.ceildiv(seq_len, block_N), T.ceildiv((bx + 1) * block_M, block_N))
                if causal
                else T.ceildiv(seq_len, block_N)
            )
            for k in T.Pipelined(steps, num_stages=num_stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_shared)
                # Hidden keys start at -inf and stay there; gemm adds to what is in `scores`.
                for i, j in T.Parallel(block_M, block_N):
                    if causal:
                        scores[i, j] = T.if_then_else(
                            bx * block_M + i >= k * block_N + j, 0, -T.infinity(accum_dtype)
                        )
                    else:
                        scores[i, j] = T.if_then_else(
                            k * block_N + j < seq_len, 0, -T.infinity(accum_dtype)
                        )
                T.gemm(
                    Q_shared,
                    K_shared,
                    scores,
                    transpose_B=True,
                    policy=T.GemmWarpPolicy.FullRow,
                )

                T.copy(row_max, row_max_before)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2((row_max_before[i] - row_max[i]) * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - row_max[i]) * scale)
                T.reduce_sum(scores, step_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + step_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    acc[i, j] *= rescale[i]

                T.copy(scores, weights)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_shared)
                T.gemm(weights, V_shared, acc, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_M, dim):
                acc[i, j] /= row_sum[i]
            T.copy(acc, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return attention


def reference(Q: np.ndarray, K: np.ndarray, V: np.ndarray, causal: bool = False) -> np.ndarray:
    Q, K, V = (array.astype(np.float32) for array in (Q, K, V))
    scores = np.einsum("bqhd,bkhd->bhqk", Q, K, optimize=True) / math.sqrt(Q.shape[-1])
    if causal:
        hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores = np.where(hidden, np.float32(-np.inf), scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, V, optimize=True)


def run(shape: tuple[int, int, int, int], dtype: str, causal: bool, seed: int = 0) -> bool:
    """`shape` is (batch, heads, sequence length, head dimension)."""
    batch, heads, seq_len, dim = shape
    rng = np.random.default_rng(seed)
    Q, K, V = (normal(rng, (batch, seq_len, heads, dim), dtype) for _ in range(3))
    kernel = make_kernel(batch, heads, seq_len, dim, causal=causal, dtype=dtype)
    out = kernel(Q, K, V)
    ms = best_ms(lambda: kernel(Q, K, V), repeat=3)
    what = f"{'causal' if causal else 'full'} attention b{batch} h{heads} s{seq_len} d{dim}"
    return report(what, dtype, out, reference(Q, K, V, causal), ms)


def main(shape: tuple[int, int, int, int] = (1, 4, 500, 64)) -> int:
    results = [run(shape, dtype, causal) for causal in (False, True) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
