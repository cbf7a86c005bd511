"""Attention forward: full, causal, grouped heads, windows, packed sequences, biases, log sums."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

import tilec.language as T
from tilec import ir

from .registry import Entry

LOG2E = math.log2(math.e)


@T.macro
def rescaled_scores(scores, row_max, row_sum, acc, scale, M, N, D):
    """One step of online softmax: scores become weights, what came before is scaled down."""
    before = T.alloc_fragment((M,), "float32")
    step = T.alloc_fragment((M,), "float32")
    rescale = T.alloc_fragment((M,), "float32")
    T.copy(row_max, before)
    T.reduce_max(scores, row_max, dim=1, clear=False)
    for i in T.Parallel(M):
        # A row that has seen only hidden keys has no maximum yet; nothing is scaled then.
        rescale[i] = T.if_then_else(
            row_max[i] == -T.infinity("float32"), 1.0, T.exp2((before[i] - row_max[i]) * scale)
        )
    for i, j in T.Parallel(M, N):
        scores[i, j] = T.if_then_else(
            scores[i, j] == -T.infinity("float32"),
            0.0,
            T.exp2((scores[i, j] - row_max[i]) * scale),
        )
    T.reduce_sum(scores, step, dim=1)
    for i in T.Parallel(M):
        row_sum[i] = row_sum[i] * rescale[i] + step[i]
    for i, j in T.Parallel(M, D):
        acc[i, j] *= rescale[i]


def attention_gqa(
    batch,
    heads,
    groups,
    dim,
    dtype,
    causal=False,
    window=0,
    block_M=32,
    block_N=32,
    num_stages=2,
    threads=128,
) -> ir.PrimFunc:
    """`groups` query heads share a head of keys; any lengths; keys end where queries end.

    With `window`, a query sees only the last `window` keys up to itself.
    """
    s_q, s_k = T.dynamic("s_q, s_k")
    scale = LOG2E / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, s_q, heads, dim), dtype),
        K: T.Tensor((batch, s_k, heads // groups, dim), dtype),
        V: T.Tensor((batch, s_k, heads // groups, dim), dtype),
        Out: T.Tensor((batch, s_q, heads, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(s_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            past = s_k - s_q
            last = T.min(s_k, past + (bx + 1) * block_M) if causal or window else s_k
            first = T.max(past + bx * block_M - window + 1, 0) // block_N if window else 0
            for k in T.Pipelined(first, T.ceildiv(last, block_N), num_stages=num_stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_shared)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_shared)
                T.clear(scores)
                T.gemm(
                    Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow
                )
                for i, j in T.Parallel(block_M, block_N):
                    key = k * block_N + j
                    seen = key < s_k
                    if causal or window:
                        seen = seen and key <= past + bx * block_M + i
                    if window:
                        seen = seen and key > past + bx * block_M + i - window
                    scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))
                rescaled_scores(scores, row_max, row_sum, acc, scale, block_M, block_N, dim)
                T.copy(scores, weights)
                T.gemm(weights, V_shared, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                acc[i, j] = T.if_then_else(row_sum[i] > 0, acc[i, j] / row_sum[i], 0.0)
            T.copy(acc, Out[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def attend(xp, Q, K, V, seen=None, bias=None):
    """Reference for (..., s, d) with a mask and a bias; rows without keys are 0. Also log sums."""
    scores = Q @ xp.swapaxes(K, -1, -2) / Q.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = xp.where(seen, scores, xp.full(scores.shape, -math.inf))
    top = xp.amax(scores, axis=-1, keepdims=True)
    top = xp.where(top == -math.inf, xp.zeros(top.shape), top)
    weights = xp.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    safe = xp.where(total > 0, total, total + 1)
    return weights / safe @ V, (xp.log(safe) + top)[..., 0], weights / safe


def heads_first(xp, x):
    """(b, s, h, d) to (b, h, s, d), in float64."""
    return xp.swapaxes(xp.f64(x), 1, 2)


def gqa_reference(c, xp, Q, K, V):
    Q = heads_first(xp, Q)
    K, V = (xp.repeat(heads_first(xp, x), c.groups, 1) for x in (K, V))
    row = (xp.arange(c.s_q) + (c.s_k - c.s_q))[:, None]
    key = xp.arange(c.s_k)[None, :]
    seen = None
    if c.causal or c.window:
        seen = key <= row
    if c.window:
        seen = seen & (key > row - c.window)
    return [xp.swapaxes(attend(xp, Q, K, V, seen)[0], 1, 2)]


def gqa_inputs(c, draw):
    keys = (c.batch, c.s_k, c.heads // c.groups, c.dim)
    return [
        draw.normal((c.batch, c.s_q, c.heads, c.dim), c.dtype),
        draw.normal(keys, c.dtype),
        draw.normal(keys, c.dtype),
    ]


def attention_varlen(
    heads, dim, dtype, causal=False, block_M=32, block_N=32, num_stages=1
) -> ir.PrimFunc:
    """Sequences of different length, packed one after the other."""
    tokens, sequences, longest = T.dynamic("tokens, sequences, longest")
    scale = LOG2E / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((tokens, heads, dim), dtype),
        K: T.Tensor((tokens, heads, dim), dtype),
        V: T.Tensor((tokens, heads, dim), dtype),
        starts: T.Tensor((sequences + 1,), "int32"),
        order: T.Tensor((longest,), "int32"),
        Out: T.Tensor((tokens, heads, dim), dtype),
    ):
        grid = (T.ceildiv(longest, block_M), heads, sequences)
        with T.Kernel(*grid, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            start = starts[bz]
            length = starts[bz + 1] - start
            T.copy(Q[start + bx * block_M : start + (bx + 1) * block_M, by, :], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            last = T.min(length, (bx + 1) * block_M) if causal else length
            for k in T.Pipelined(T.ceildiv(last, block_N), num_stages=num_stages):
                T.copy(K[start + k * block_N : start + (k + 1) * block_N, by, :], K_shared)
                T.copy(V[start + k * block_N : start + (k + 1) * block_N, by, :], V_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True)
                for i, j in T.Parallel(block_M, block_N):
                    seen = k * block_N + j < length
                    if causal:
                        seen = seen and k * block_N + j <= bx * block_M + i
                    scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))
                rescaled_scores(scores, row_max, row_sum, acc, scale, block_M, block_N, dim)
                T.copy(scores, weights)
                T.gemm(weights, V_shared, acc)
            for i, j in T.Parallel(block_M, dim):
                if bx * block_M + i < length:
                    Out[start + bx * block_M + i, by, j] = acc[i, j] / row_sum[i]

    return main


def varlen_inputs(c, draw):
    starts = draw.offsets(c.sequences, c.tokens)
    shape = (c.tokens, c.heads, c.dim)
    longest = int(np.diff(starts).max())
    return [
        *(draw.normal(shape, c.dtype) for _ in range(3)),
        starts,
        np.arange(longest, dtype=np.int32),
    ]


def varlen_reference(c, xp, Q, K, V, starts, order):
    out = xp.zeros(Q.shape)
    bounds = xp.item(starts)
    for i, j in pairwise(bounds):
        if i == j:
            continue
        q, k, v = (xp.swapaxes(xp.f64(x[i:j]), 0, 1) for x in (Q, K, V))
        row, key = xp.arange(j - i)[:, None], xp.arange(j - i)[None, :]
        seen = key <= row if c.causal else None
        out[i:j] = xp.swapaxes(attend(xp, q, k, v, seen)[0], 0, 1)
    return [out]


def attention_bias_lse(
    batch, heads, s, dim, dtype, block_M=32, block_N=32, num_stages=1
) -> ir.PrimFunc:
    """Causal attention with a slope per head (ALiBi); also the logarithm of each row's sum."""
    shape = (batch, heads, s, dim)
    scale = 1.0 / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        slopes: T.Tensor((heads,), "float32"),
        Out: T.Tensor(shape, dtype),
        lse: T.Tensor((batch, heads, s), "float32"),
    ):
        with T.Kernel(T.ceildiv(s, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, by, bx * block_M, 0], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            steps = T.ceildiv(T.min(s, (bx + 1) * block_M), block_N)
            for k in T.Pipelined(steps, num_stages=num_stages):
                T.copy(K[bz, by, k * block_N, 0], K_shared)
                T.copy(V[bz, by, k * block_N, 0], V_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    distance = bx * block_M + i - (k * block_N + j)
                    if distance >= 0:
                        scores[i, j] = scores[i, j] * scale - slopes[by] * distance
                    else:
                        scores[i, j] = -T.infinity("float32")
                rescaled_scores(scores, row_max, row_sum, acc, LOG2E, block_M, block_N, dim)
                T.copy(scores, weights)
                T.gemm(weights, V_shared, acc)
            for i, j in T.Parallel(block_M, dim):
                acc[i, j] /= row_sum[i]
            T.copy(acc, Out[bz, by, bx * block_M, 0])
            for i in T.Parallel(block_M):
                row_sum[i] = T.log(row_sum[i]) + row_max[i]
            T.copy(row_sum, lse[bz, by, bx * block_M : (bx + 1) * block_M])

    return main


def bias_lse_reference(c, xp, Q, K, V, slopes):
    Q, K, V = (xp.f64(x) for x in (Q, K, V))
    distance = xp.arange(c.s)[:, None] - xp.arange(c.s)[None, :]
    bias = -xp.f64(slopes)[:, None, None] * distance
    return list(attend(xp, Q, K, V, distance >= 0, bias)[:2])


def attention_block_mask(batch, heads, s, dim, dtype, block=32) -> ir.PrimFunc:
    """Block-sparse attention: tiles of scores that a mask leaves out are skipped."""
    shape = (batch, heads, s, dim)
    scale = LOG2E / math.sqrt(dim)
    tiles = -(-s // block)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        mask: T.Tensor((batch, heads, tiles, tiles), "int8"),
        Out: T.Tensor(shape, dtype),
    ):
        with T.Kernel(tiles, heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block, dim), dtype)
            K_shared = T.alloc_shared((block, dim), dtype)
            V_shared = T.alloc_shared((block, dim), dtype)
            scores = T.alloc_fragment((block, block), "float32")
            weights = T.alloc_fragment((block, block), dtype)
            acc = T.alloc_fragment((block, dim), "float32")
            row_max = T.alloc_fragment((block,), "float32")
            row_sum = T.alloc_fragment((block,), "float32")
            T.copy(Q[bz, by, bx * block, 0], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            for k in T.serial(tiles):
                if mask[bz, by, bx, k] != 0:
                    T.copy(K[bz, by, k * block, 0], K_shared)
                    T.copy(V[bz, by, k * block, 0], V_shared)
                    T.clear(scores)
                    T.gemm(Q_shared, K_shared, scores, transpose_B=True)
                    for i, j in T.Parallel(block, block):
                        if k * block + j >= s:
                            scores[i, j] = -T.infinity("float32")
                    rescaled_scores(scores, row_max, row_sum, acc, scale, block, block, dim)
                    T.copy(scores, weights)
                    T.gemm(weights, V_shared, acc)
            for i, j in T.Parallel(block, dim):
                acc[i, j] = T.if_then_else(row_sum[i] > 0, acc[i, j] / row_sum[i], 0.0)
            T.copy(acc, Out[bz, by, bx * block, 0])

    return main


def block_mask_inputs(c, draw):
    tiles = -(-c.s // c.block)
    qkv = [draw.normal((c.batch, c.heads, c.s, c.dim), c.dtype) for _ in range(3)]
    return [*qkv, draw.mask((c.batch, c.heads, tiles, tiles), 0.5, "int8")]


def block_mask_reference(c, xp, Q, K, V, mask):
    seen = xp.repeat(xp.repeat(xp.i64(mask), c.block, 2), c.block, 3)[:, :, : c.s, : c.s] != 0
    return [attend(xp, *(xp.f64(x) for x in (Q, K, V)), seen)[0]]


SHAPE = {"batch": 2, "heads": 4, "groups": 2, "dim": 16}
LARGE = {"block_M": 128, "block_N": 128, "dtype": "bfloat16", "dim": 128}
LIMITS = {"float16": 4e-3, "bfloat16": 2e-2}

ENTRIES = (
    Entry(
        attention_gqa,
        gqa_inputs,
        gqa_reference,
        small=[
            {**SHAPE, "s_q": 50, "s_k": 70, "dtype": "float16"},
            {**SHAPE, "s_q": 50, "s_k": 70, "dtype": "bfloat16", "causal": True},
            {**SHAPE, "s_q": 70, "s_k": 70, "dtype": "float32", "window": 20},
            {**SHAPE, "groups": 1, "s_q": 40, "s_k": 40, "dtype": "float32", "causal": True},
            {**SHAPE, "heads": 2, "s_q": 40, "s_k": 20, "dtype": "float16", "causal": True},
        ],
        large={
            **LARGE,
            "batch": 2,
            "heads": 32,
            "groups": 4,
            "s_q": 2048,
            "s_k": 2048,
            "causal": True,
            "threads": 256,
        },
        call_sizes=("s_q", "s_k"),
        limits=LIMITS,
    ),
    Entry(
        attention_varlen,
        varlen_inputs,
        varlen_reference,
        small=[
            {"heads": 2, "dim": 16, "sequences": 3, "tokens": 90, "dtype": "float16"},
            {
                "heads": 2,
                "dim": 32,
                "sequences": 2,
                "tokens": 50,
                "dtype": "float32",
                "causal": True,
            },
        ],
        large={
            "heads": 32,
            "sequences": 16,
            "tokens": 8192,
            "causal": True,
            **LARGE,
            "block_N": 64,
        },
        call_sizes=("sequences", "tokens"),
        limits=LIMITS,
    ),
    Entry(
        attention_bias_lse,
        lambda c, draw: [
            *(draw.normal((c.batch, c.heads, c.s, c.dim), c.dtype) for _ in range(3)),
            draw.uniform((c.heads,), low=0.01, high=0.5),
        ],
        bias_lse_reference,
        small=[
            {"batch": 1, "heads": 2, "s": 70, "dim": 16, "dtype": "float16"},
            {"batch": 2, "heads": 1, "s": 40, "dim": 24, "dtype": "float32"},
        ],
        large={"batch": 2, "heads": 16, "s": 2048, **LARGE, "block_N": 64},
        out=(-2, -1),
        limits=LIMITS,
    ),
    Entry(
        attention_block_mask,
        block_mask_inputs,
        block_mask_reference,
        small=[{"batch": 1, "heads": 2, "s": 90, "dim": 16, "dtype": "float16"}],
        large={"batch": 2, "heads": 16, "s": 2048, "dim": 128, "dtype": "bfloat16", "block": 64},
        limits=LIMITS,
    ),
)
