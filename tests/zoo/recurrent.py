"""Linear attention, chunked states and recurrences."""

from __future__ import annotations

import numpy as np

import tilec.language as T
from tilec import ir

from .attention import LIMITS
from .decode import triple
from .registry import Entry


def linear_attention(heads, dim, dtype, chunk=16) -> ir.PrimFunc:
    """Causal attention without softmax: inside a chunk as matrices, between chunks by a state."""
    s = T.dynamic("s")

    @T.prim_func
    def main(
        Q: T.Tensor((heads, s, dim), dtype),
        K: T.Tensor((heads, s, dim), dtype),
        V: T.Tensor((heads, s, dim), dtype),
        Out: T.Tensor((heads, s, dim), "float32"),
        final: T.Tensor((heads, dim, dim), "float32"),
    ):
        with T.Kernel(heads, threads=128) as bx:
            q = T.alloc_shared((chunk, dim), dtype)
            k = T.alloc_shared((chunk, dim), dtype)
            v = T.alloc_shared((chunk, dim), dtype)
            state_shared = T.alloc_shared((dim, dim), dtype)
            scores_shared = T.alloc_shared((chunk, chunk), dtype)
            state = T.alloc_fragment((dim, dim), "float32")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            out = T.alloc_fragment((chunk, dim), "float32")
            T.clear(state)
            for n in T.serial(T.ceildiv(s, chunk)):
                T.copy(Q[bx, n * chunk, 0], q)
                T.copy(K[bx, n * chunk, 0], k)
                T.copy(V[bx, n * chunk, 0], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    scores_shared[i, j] = T.if_then_else(j <= i, scores[i, j], 0.0)
                T.copy(state, state_shared)
                T.gemm(q, state_shared, out, clear_accum=True)
                T.gemm(scores_shared, v, out)
                T.gemm(k, v, state, transpose_A=True)
                T.copy(out, Out[bx, n * chunk, 0])
            T.copy(state, final[bx, 0, 0])

    return main


def linear_reference(c, xp, Q, K, V):
    Q, K, V = (xp.f64(x) for x in (Q, K, V))
    scores = xp.tril(Q @ xp.swapaxes(K, 1, 2))
    return [scores @ V, xp.swapaxes(K, 1, 2) @ V]


def chunk_state(heads, dim, dtype, chunk=32) -> ir.PrimFunc:
    """The state that each chunk adds, its steps decayed to the chunk's end."""
    chunks = T.dynamic("chunks")

    @T.prim_func
    def main(
        K: T.Tensor((heads, chunks, chunk, dim), dtype),
        V: T.Tensor((heads, chunks, chunk, dim), dtype),
        decay: T.Tensor((heads, chunks, chunk), "float32"),
        states: T.Tensor((heads, chunks, dim, dim), "float32"),
    ):
        with T.Kernel(chunks, heads, threads=128) as (bx, by):
            k = T.alloc_shared((chunk, dim), dtype)
            scaled = T.alloc_shared((chunk, dim), dtype)
            v = T.alloc_shared((chunk, dim), dtype)
            state = T.alloc_fragment((dim, dim), "float32")
            T.copy(K[by, bx, 0, 0], k)
            T.copy(V[by, bx, 0, 0], v)
            for i, j in T.Parallel(chunk, dim):
                scaled[i, j] = k[i, j] * T.exp(decay[by, bx, chunk - 1] - decay[by, bx, i])
            T.clear(state)
            T.gemm(scaled, v, state, transpose_A=True)
            T.copy(state, states[by, bx, 0, 0])

    return main


def chunk_state_inputs(c, draw):
    shape = (c.heads, c.chunks, c.chunk)
    decay = -np.cumsum(draw.uniform(shape, high=0.2), axis=2)
    keys = [draw.normal((*shape, c.dim), c.dtype) for _ in range(2)]
    return [*keys, decay.astype(np.float32)]


def chunk_state_reference(c, xp, K, V, decay):
    decay = xp.f64(decay)
    K = xp.f64(K) * xp.exp(decay[..., -1:] - decay)[..., None]
    return [xp.swapaxes(K, -1, -2) @ xp.f64(V)]


def gated_recurrence(D, dtype, block=64) -> ir.PrimFunc:
    """h = a * h + x along time, each channel for itself."""
    B, L = T.dynamic("b, l")

    @T.prim_func
    def main(
        X: T.Tensor((B, L, D), dtype),
        A: T.Tensor((B, L, D), "float32"),
        H: T.Tensor((B, L, D), dtype),
    ):
        with T.Kernel(T.ceildiv(D, block), B, threads=64) as (bx, by):
            h = T.alloc_fragment((block,), "float32")
            T.clear(h)
            for t in T.serial(L):
                for j in T.Parallel(block):
                    h[j] = h[j] * A[by, t, bx * block + j] + X[by, t, bx * block + j]
                T.copy(h, H[by, t, bx * block])

    return main


def recurrence_reference(c, xp, X, A):
    X, A = xp.f64(X), xp.f64(A)
    h, out = xp.zeros((c.B, c.D)), []
    for t in range(c.L):
        h = h * A[:, t] + X[:, t]
        out.append(h)
    return [xp.stack(out, axis=1)]


ENTRIES = (
    Entry(
        linear_attention,
        triple,
        linear_reference,
        small=[{"heads": 2, "s": 50, "dim": 16, "dtype": "float16"}],
        large={"heads": 64, "s": 2048, "dim": 64, "dtype": "bfloat16", "chunk": 64},
        out=(-2, -1),
        call_sizes=("s",),
        limits=LIMITS,
    ),
    Entry(
        chunk_state,
        chunk_state_inputs,
        chunk_state_reference,
        small=[{"heads": 2, "chunks": 3, "dim": 16, "dtype": "float16"}],
        large={"heads": 64, "chunks": 16, "dim": 64, "dtype": "bfloat16", "chunk": 128},
        call_sizes=("chunks",),
        limits=LIMITS,
    ),
    Entry(
        gated_recurrence,
        lambda c, draw: [
            draw.normal((c.B, c.L, c.D), c.dtype),
            draw.uniform((c.B, c.L, c.D)),
        ],
        recurrence_reference,
        small=[{"B": 2, "L": 20, "D": 70, "dtype": "float16"}],
        large={"B": 8, "L": 1024, "D": 2048, "dtype": "bfloat16", "block": 128},
        call_sizes=("B", "L"),
    ),
)
