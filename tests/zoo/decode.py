"""Attention of one query (split keys, pages, latents) and the gradient of attention."""

from __future__ import annotations

import math

import numpy as np

import tilec.language as T
from tilec import ir

from .attention import LIMITS, LOG2E, attend, rescaled_scores
from .registry import Entry


def decode_split(batch, heads, dim, dtype, splits=3, block_H=16, block_N=32) -> ir.PrimFunc:
    """All heads share the keys; parts of the keys are worked on apart and then joined."""
    s = T.dynamic("s")
    scale = LOG2E / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor((batch, s, dim), dtype),
        V: T.Tensor((batch, s, dim), dtype),
        part: T.Tensor((batch, splits, heads, dim), "float32"),
        lse: T.Tensor((batch, splits, heads), "float32"),
        Out: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(heads, block_H), splits, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_H, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_H, block_N), "float32")
            weights = T.alloc_fragment((block_H, block_N), dtype)
            acc = T.alloc_fragment((block_H, dim), "float32")
            row_max = T.alloc_fragment((block_H,), "float32")
            row_sum = T.alloc_fragment((block_H,), "float32")
            T.copy(Q[bz, bx * block_H, 0], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            steps = T.ceildiv(T.ceildiv(s, block_N), splits)
            for k in T.Pipelined(steps, num_stages=2):
                first = (by * steps + k) * block_N
                T.copy(K[bz, first, 0], K_shared)
                T.copy(V[bz, first, 0], V_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True)
                for i, j in T.Parallel(block_H, block_N):
                    scores[i, j] = T.if_then_else(
                        first + j < s, scores[i, j], -T.infinity("float32")
                    )
                rescaled_scores(scores, row_max, row_sum, acc, scale, block_H, block_N, dim)
                T.copy(scores, weights)
                T.gemm(weights, V_shared, acc)
            for i, j in T.Parallel(block_H, dim):
                acc[i, j] = T.if_then_else(row_sum[i] > 0, acc[i, j] / row_sum[i], 0.0)
            for i in T.Parallel(block_H):
                row_sum[i] = T.if_then_else(
                    row_sum[i] > 0,
                    T.log2(row_sum[i]) + row_max[i] * scale,
                    -T.infinity("float32"),
                )
            T.copy(acc, part[bz, by, bx * block_H, 0])
            T.copy(row_sum, lse[bz, by, bx * block_H])
        with T.Kernel(heads, batch, threads=128) as (bx, by):
            total = T.alloc_fragment((dim,), "float32")
            top = T.alloc_var("float32", init=0.0)
            weight = T.alloc_var("float32", init=0.0)
            share = T.alloc_var("float32", init=0.0)
            T.clear(total)
            top = -T.infinity("float32")
            for n in T.serial(splits):
                top = T.max(top, lse[by, n, bx])
            for n in T.serial(splits):
                share = T.exp2(lse[by, n, bx] - top)
                weight += share
                for j in T.Parallel(dim):
                    total[j] += part[by, n, bx, j] * share
            for j in T.Parallel(dim):
                Out[by, bx, j] = total[j] / weight

    return main


def decode_inputs(c, draw):
    return [
        draw.normal((c.batch, c.heads, c.dim), c.dtype),
        draw.normal((c.batch, c.s, c.dim), c.dtype),
        draw.normal((c.batch, c.s, c.dim), c.dtype),
        np.zeros((c.batch, c.splits, c.heads, c.dim), np.float32),
        np.zeros((c.batch, c.splits, c.heads), np.float32),
    ]


def decode_paged(batch, heads, dim, dtype, page=16) -> ir.PrimFunc:
    """Keys and values live in pages that a table names; lengths differ."""
    pages, longest = T.dynamic("pages, longest")
    scale = LOG2E / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor((pages, page, dim), dtype),
        V: T.Tensor((pages, page, dim), dtype),
        table: T.Tensor((batch, longest), "int32"),
        lengths: T.Tensor((batch,), "int32"),
        Out: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(batch, threads=128) as bx:
            Q_shared = T.alloc_shared((heads, dim), dtype)
            K_shared = T.alloc_shared((page, dim), dtype)
            V_shared = T.alloc_shared((page, dim), dtype)
            scores = T.alloc_fragment((heads, page), "float32")
            weights = T.alloc_fragment((heads, page), dtype)
            acc = T.alloc_fragment((heads, dim), "float32")
            row_max = T.alloc_fragment((heads,), "float32")
            row_sum = T.alloc_fragment((heads,), "float32")
            T.copy(Q[bx, 0, 0], Q_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(lengths[bx], page), num_stages=2):
                T.copy(K[table[bx, k], 0, 0], K_shared)
                T.copy(V[table[bx, k], 0, 0], V_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True)
                for i, j in T.Parallel(heads, page):
                    scores[i, j] = T.if_then_else(
                        k * page + j < lengths[bx], scores[i, j], -T.infinity("float32")
                    )
                rescaled_scores(scores, row_max, row_sum, acc, scale, heads, page, dim)
                T.copy(scores, weights)
                T.gemm(weights, V_shared, acc)
            for i, j in T.Parallel(heads, dim):
                acc[i, j] /= row_sum[i]
            T.copy(acc, Out[bx, 0, 0])

    return main


def paged_inputs(c, draw):
    lengths = draw.integers((c.batch,), 1, c.longest * c.page + 1)
    pages = c.batch * c.longest
    return [
        draw.normal((c.batch, c.heads, c.dim), c.dtype),
        draw.normal((pages, c.page, c.dim), c.dtype),
        draw.normal((pages, c.page, c.dim), c.dtype),
        draw.permutation(pages).reshape(c.batch, c.longest),
        lengths,
    ]


def paged_reference(c, xp, Q, K, V, table, lengths):
    index = xp.i64(table)
    K, V = (xp.f64(x)[index].reshape(c.batch, -1, c.dim) for x in (K, V))
    seen = xp.arange(K.shape[1])[None, None, :] < xp.i64(lengths)[:, None, None]
    return [attend(xp, xp.f64(Q), K, V, seen)[0]]


def mla_decode(batch, heads, latent, rope, dtype, block_H=16, block_N=32) -> ir.PrimFunc:
    """Keys are a latent vector, which is the value too, and a rotary part all heads share."""
    s = T.dynamic("s")
    scale = LOG2E / math.sqrt(latent + rope)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, latent), dtype),
        Q_rope: T.Tensor((batch, heads, rope), dtype),
        KV: T.Tensor((batch, s, latent), dtype),
        K_rope: T.Tensor((batch, s, rope), dtype),
        Out: T.Tensor((batch, heads, latent), dtype),
    ):
        with T.Kernel(T.ceildiv(heads, block_H), batch, threads=256) as (bx, by):
            Q_shared = T.alloc_shared((block_H, latent), dtype)
            Qr_shared = T.alloc_shared((block_H, rope), dtype)
            KV_shared = T.alloc_shared((block_N, latent), dtype)
            Kr_shared = T.alloc_shared((block_N, rope), dtype)
            weights = T.alloc_shared((block_H, block_N), dtype)
            scores = T.alloc_fragment((block_H, block_N), "float32")
            acc = T.alloc_fragment((block_H, latent), "float32")
            row_max = T.alloc_fragment((block_H,), "float32")
            row_sum = T.alloc_fragment((block_H,), "float32")
            T.copy(Q[by, bx * block_H, 0], Q_shared)
            T.copy(Q_rope[by, bx * block_H, 0], Qr_shared)
            T.clear(acc)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(s, block_N), num_stages=2):
                T.copy(KV[by, k * block_N, 0], KV_shared)
                T.copy(K_rope[by, k * block_N, 0], Kr_shared)
                T.clear(scores)
                T.gemm(
                    Q_shared, KV_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol
                )
                T.gemm(
                    Qr_shared, Kr_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol
                )
                for i, j in T.Parallel(block_H, block_N):
                    if k * block_N + j >= s:
                        scores[i, j] = -T.infinity("float32")
                rescaled_scores(scores, row_max, row_sum, acc, scale, block_H, block_N, latent)
                T.copy(scores, weights)
                T.gemm(weights, KV_shared, acc, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_H, latent):
                acc[i, j] /= row_sum[i]
            T.copy(acc, Out[by, bx * block_H, 0])

    return main


def mla_reference(c, xp, Q, Q_rope, KV, K_rope):
    query = xp.concatenate([xp.f64(Q), xp.f64(Q_rope)], axis=-1)
    keys = xp.concatenate([xp.f64(KV), xp.f64(K_rope)], axis=-1)
    return [attend(xp, query, keys, xp.f64(KV))[0]]


def attention_delta(heads, dim, dtype, block=32) -> ir.PrimFunc:
    """Row sums of output times its gradient, which both gradient kernels need."""
    s = T.dynamic("s")

    @T.prim_func
    def main(
        Out: T.Tensor((heads, s, dim), dtype),
        dOut: T.Tensor((heads, s, dim), dtype),
        delta: T.Tensor((heads, s), "float32"),
    ):
        with T.Kernel(T.ceildiv(s, block), heads, threads=128) as (bx, by):
            o = T.alloc_fragment((block, dim), "float32")
            do = T.alloc_fragment((block, dim), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(Out[by, bx * block, 0], o)
            T.copy(dOut[by, bx * block, 0], do)
            for i, j in T.Parallel(block, dim):
                o[i, j] *= do[i, j]
            T.reduce_sum(o, total, dim=1)
            T.copy(total, delta[by, bx * block])

    return main


def attention_backward(heads, s, dim, dtype, causal=False, block_M=32, block_N=32) -> ir.PrimFunc:
    """A block owns some keys, walks over the queries, and adds to their gradient by atomics."""
    scale = LOG2E / math.sqrt(dim)
    shape = (heads, s, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        dOut: T.Tensor(shape, dtype),
        lse: T.Tensor((heads, s), "float32"),
        delta: T.Tensor((heads, s), "float32"),
        dQ: T.Tensor(shape, "float32"),
        dK: T.Tensor(shape, dtype),
        dV: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(s, block_N), heads, threads=128) as (bx, by):
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            dO_shared = T.alloc_shared((block_M, dim), dtype)
            P_shared = T.alloc_shared((block_M, block_N), dtype)
            dS_shared = T.alloc_shared((block_M, block_N), dtype)
            P = T.alloc_fragment((block_M, block_N), "float32")
            dP = T.alloc_fragment((block_M, block_N), "float32")
            dq = T.alloc_fragment((block_M, dim), "float32")
            dk = T.alloc_fragment((block_N, dim), "float32")
            dv = T.alloc_fragment((block_N, dim), "float32")
            T.copy(K[by, bx * block_N, 0], K_shared)
            T.copy(V[by, bx * block_N, 0], V_shared)
            T.clear(dk)
            T.clear(dv)
            first = bx * block_N // block_M if causal else 0
            for k in T.Pipelined(first, T.ceildiv(s, block_M), num_stages=1):
                T.copy(Q[by, k * block_M, 0], Q_shared)
                T.copy(dOut[by, k * block_M, 0], dO_shared)
                T.clear(P)
                T.gemm(Q_shared, K_shared, P, transpose_B=True)
                T.clear(dP)
                T.gemm(dO_shared, V_shared, dP, transpose_B=True)
                for i, j in T.Parallel(block_M, block_N):
                    row, key = k * block_M + i, bx * block_N + j
                    seen = row < s and key < s
                    if causal:
                        seen = seen and key <= row
                    P[i, j] = T.if_then_else(
                        seen, T.exp2(P[i, j] * scale - lse[by, row] * LOG2E), 0.0
                    )
                    dP[i, j] = P[i, j] * (dP[i, j] - delta[by, row]) * (scale / LOG2E)
                T.copy(P, P_shared)
                T.copy(dP, dS_shared)
                T.gemm(P_shared, dO_shared, dv, transpose_A=True)
                T.gemm(dS_shared, Q_shared, dk, transpose_A=True)
                T.gemm(dS_shared, K_shared, dq, clear_accum=True)
                T.atomic_add(dQ[by, k * block_M, 0], dq)
            T.copy(dk, dK[by, bx * block_N, 0])
            T.copy(dv, dV[by, bx * block_N, 0])

    return main


def backward_inputs(c, draw):
    from .arrays import Numpy  # noqa: PLC0415 - beside its only use

    xp = Numpy()
    Q, K, V, dOut = (draw.normal((c.heads, c.s, c.dim), c.dtype) for _ in range(4))
    seen = np.tril(np.ones((c.s, c.s), bool)) if c.causal else None
    out, lse, _ = attend(xp, xp.f64(Q), xp.f64(K), xp.f64(V), seen)
    delta = (out * xp.f64(dOut)).sum(-1)
    dQ = np.zeros(Q.shape, np.float32)
    return [Q, K, V, dOut, lse.astype(np.float32), delta.astype(np.float32), dQ]


def backward_reference(c, xp, Q, K, V, dOut, lse, delta, dQ):
    Q, K, V, dOut = (xp.f64(x) for x in (Q, K, V, dOut))
    seen = xp.arange(c.s)[None, :] <= xp.arange(c.s)[:, None] if c.causal else None
    out, _, P = attend(xp, Q, K, V, seen)
    dP = dOut @ xp.swapaxes(V, 1, 2)
    dS = P * (dP - (out * dOut).sum(axis=-1, keepdims=True)) / c.dim**0.5
    return [xp.swapaxes(dS, 1, 2) @ Q, xp.swapaxes(P, 1, 2) @ dOut, dS @ K]


def triple(c, draw):
    """Q, K and V of (heads, s, dim)."""
    return [draw.normal((c.heads, c.s, c.dim), c.dtype) for _ in range(3)]


LARGE_BACKWARD = {"heads": 32, "s": 2048, "dim": 128, "dtype": "bfloat16"}

ENTRIES = (
    Entry(
        decode_split,
        decode_inputs,
        lambda c, xp, Q, K, V, part, lse: [attend(xp, xp.f64(Q), xp.f64(K), xp.f64(V))[0]],
        small=[{"batch": 2, "heads": 5, "dim": 16, "s": 150, "dtype": "float16"}],
        large={
            "batch": 16,
            "heads": 32,
            "dim": 128,
            "s": 8192,
            "dtype": "bfloat16",
            "splits": 8,
            "block_N": 64,
        },
        call_sizes=("s",),
        limits=LIMITS,
    ),
    Entry(
        decode_paged,
        paged_inputs,
        paged_reference,
        small=[{"batch": 3, "heads": 16, "dim": 16, "longest": 4, "dtype": "float16"}],
        large={
            "batch": 64,
            "heads": 16,
            "dim": 128,
            "longest": 64,
            "page": 64,
            "dtype": "bfloat16",
        },
        call_sizes=("longest",),
        limits=LIMITS,
    ),
    Entry(
        mla_decode,
        lambda c, draw: [
            draw.normal((c.batch, c.heads, c.latent), c.dtype),
            draw.normal((c.batch, c.heads, c.rope), c.dtype),
            draw.normal((c.batch, c.s, c.latent), c.dtype),
            draw.normal((c.batch, c.s, c.rope), c.dtype),
        ],
        mla_reference,
        small=[{"batch": 1, "heads": 20, "latent": 32, "rope": 8, "s": 70, "dtype": "float16"}],
        large={
            "batch": 32,
            "heads": 128,
            "latent": 512,
            "rope": 64,
            "s": 4096,
            "dtype": "bfloat16",
            "block_H": 64,
            "block_N": 64,
        },
        call_sizes=("s",),
        limits=LIMITS,
    ),
    Entry(
        attention_delta,
        lambda c, draw: triple(c, draw)[:2],
        lambda c, xp, Out, dOut: [(xp.f64(Out) * xp.f64(dOut)).sum(axis=-1)],
        small=[{"heads": 2, "s": 50, "dim": 16, "dtype": "float16"}],
        large=LARGE_BACKWARD,
        call_sizes=("s",),
    ),
    Entry(
        attention_backward,
        backward_inputs,
        backward_reference,
        small=[
            {"heads": 2, "s": 50, "dim": 16, "dtype": "float32"},
            {"heads": 1, "s": 70, "dim": 16, "dtype": "float16", "causal": True},
        ],
        large={**LARGE_BACKWARD, "heads": 4, "causal": True, "block_M": 64, "block_N": 64},
        out=(-2, -1),
        updates=(6,),
        limits={"float16": 5e-3, "bfloat16": 3e-2, "float32": 1e-5},
    ),
)
