"""Elementwise kernels, layout changes, optimiser steps, bits."""

from __future__ import annotations

import math

import numpy as np

import tilec.language as T
from tilec import ir

from .registry import Entry


def add(dtype, block=256) -> ir.PrimFunc:
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return main


def where_multiply(M, N, dtype, block_M=16, block_N=32) -> ir.PrimFunc:
    """mask ? A * row + column : A."""

    @T.prim_func
    def main(
        A: T.Tensor((M, N), dtype),
        row: T.Tensor((N,), dtype),
        column: T.Tensor((M,), dtype),
        mask: T.Tensor((M, N), "bool"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            a = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(A[by * block_M, bx * block_N], a)
            for i, j in T.Parallel(block_M, block_N):
                m, n = by * block_M + i, bx * block_N + j
                if mask[m, n]:
                    a[i, j] = a[i, j] * row[n] + column[m]
            T.copy(a, C[by * block_M, bx * block_N])

    return main


def where_reference(c, xp, A, row, column, mask):
    A = xp.f64(A)
    changed = A * xp.f64(row) + xp.f64(column)[:, None]
    return [xp.where(mask != 0, changed, A)]


def swiglu(dtype, block=128) -> ir.PrimFunc:
    """silu(X[:, :H]) * X[:, H:]."""
    M, H = T.dynamic("m, h")

    @T.prim_func
    def main(
        X: T.Tensor((M, 2 * H), dtype), half: T.Tensor((H,), "int8"), Y: T.Tensor((M, H), dtype)
    ):
        with T.Kernel(T.ceildiv(H, block), M, threads=128) as (bx, by):
            for j in T.Parallel(block):
                if bx * block + j < H:
                    gate = T.cast(X[by, bx * block + j], "float32")
                    Y[by, bx * block + j] = gate * T.sigmoid(gate) * X[by, H + bx * block + j]

    return main


def swiglu_reference(c, xp, X, half):
    gate, up = xp.f64(X[:, : c.H]), xp.f64(X[:, c.H :])
    return [gate / (1 + xp.exp(-gate)) * up]


def rotary(batch, heads, dim, dtype) -> ir.PrimFunc:
    """Rotates pairs (i, i + dim / 2) of each head by the angle of its position, in place."""
    s = T.dynamic("s")

    @T.prim_func
    def main(
        X: T.Tensor((batch, s, heads, dim), dtype),
        cos: T.Tensor((s, dim // 2), "float32"),
        sin: T.Tensor((s, dim // 2), "float32"),
    ):
        with T.Kernel(s, batch, threads=128) as (bx, by):
            for h, i in T.Parallel(heads, dim // 2):
                a = T.cast(X[by, bx, h, i], "float32")
                b = T.cast(X[by, bx, h, i + dim // 2], "float32")
                X[by, bx, h, i] = a * cos[bx, i] - b * sin[bx, i]
                X[by, bx, h, i + dim // 2] = b * cos[bx, i] + a * sin[bx, i]

    return main


def rotary_inputs(c, draw):
    angle = draw.uniform((c.s, c.dim // 2), low=-3, high=3)
    return [draw.normal((c.batch, c.s, c.heads, c.dim), c.dtype), np.cos(angle), np.sin(angle)]


def rotary_reference(c, xp, X, cos, sin):
    X, cos, sin = xp.f64(X), xp.f64(cos)[:, None, :], xp.f64(sin)[:, None, :]
    a, b = X[..., : c.dim // 2], X[..., c.dim // 2 :]
    return [xp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)]


def dropout(dtype, keep=0.8, block=256) -> ir.PrimFunc:
    """Scales what a given mask keeps and clears the rest."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), mask: T.Tensor((n,), "uint8"), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                j = bx * block + i
                Y[j] = T.if_then_else(mask[j] != 0, X[j] * (1.0 / keep), 0.0)

    return main


def transpose(dtype, block=32) -> ir.PrimFunc:
    """Through shared memory, so that both sides are read and written along rows."""
    M, N = T.dynamic("m, n")

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            tile = T.alloc_shared((block, block), dtype)
            T.copy(A[by * block, bx * block], tile)
            for i, j in T.Parallel(block, block):
                B[bx * block + i, by * block + j] = tile[j, i]

    return main


def permute(b, s, h, d, dtype) -> ir.PrimFunc:
    """(b, s, h, d) to (b, h, s, d)."""

    @T.prim_func
    def main(A: T.Tensor((b, s, h, d), dtype), B: T.Tensor((b, h, s, d), dtype)):
        with T.Kernel(s, b, threads=128) as (bx, by):
            for i, j in T.Parallel(h, d):
                B[by, i, bx, j] = A[by, bx, i, j]

    return main


def gelu_tanh(dtype, block=256) -> ir.PrimFunc:
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                x = T.cast(X[bx * block + i], "float32")
                inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
                Y[bx * block + i] = 0.5 * x * (1.0 + T.tanh(inner))

    return main


def gelu_tanh_reference(c, xp, X):
    x = xp.f64(X)
    return [0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))]


def adam(dtype, rate=1e-2, beta1=0.9, beta2=0.99, block=256) -> ir.PrimFunc:
    """One step in place: weights, momentum and scale; the step number is an argument."""
    n = T.dynamic("n")

    @T.prim_func
    def main(
        W: T.Tensor((n,), "float32"),
        M: T.Tensor((n,), "float32"),
        V: T.Tensor((n,), "float32"),
        G: T.Tensor((n,), dtype),
        step: T.Tensor((1,), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                j = bx * block + i
                if j < n:
                    g = T.cast(G[j], "float32")
                    m = beta1 * M[j] + (1.0 - beta1) * g
                    v = beta2 * V[j] + (1.0 - beta2) * g * g
                    M[j] = m
                    V[j] = v
                    m_hat = m / (1.0 - T.pow(T.float32(beta1), step[0]))
                    v_hat = v / (1.0 - T.pow(T.float32(beta2), step[0]))
                    W[j] -= rate * m_hat / (T.sqrt(v_hat) + 1e-8)

    return main


def adam_reference(c, xp, W, M, V, G, step):
    W, M, V, G, step = (xp.f64(x) for x in (W, M, V, G, step))
    M = c.beta1 * M + (1 - c.beta1) * G
    V = c.beta2 * V + (1 - c.beta2) * G * G
    m, v = M / (1 - c.beta1**step), V / (1 - c.beta2**step)
    return [W - c.rate * m / (xp.sqrt(v) + 1e-8), M, V]


def pack_bits(block=64) -> ir.PrimFunc:
    """Eight bools to a byte, the first in the lowest bit."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n, 8), "bool"), Y: T.Tensor((n,), "uint8")):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            bits = T.alloc_fragment((block, 8), "int32")
            packed = T.alloc_fragment((block,), "int32")
            for i, j in T.Parallel(block, 8):
                bits[i, j] = T.cast(X[bx * block + i, j], "int32") << j
            T.reduce_bitor(bits, packed, dim=1)
            T.copy(packed, Y[bx * block])

    return main


def pack_bits_reference(c, xp, X):
    return [(xp.i64(X) * 2 ** xp.arange(8)).sum(axis=1)]


def unpack_int4(dtype, block=64) -> ir.PrimFunc:
    """Two signed 4-bit values of a byte, the low half first."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), "uint8"), Y: T.Tensor((n, 2), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i, j in T.Parallel(block, 2):
                if bx * block + i < n:
                    q = (T.cast(X[bx * block + i], "int32") >> (4 * j)) & 15
                    Y[bx * block + i, j] = T.if_then_else(q >= 8, q - 16, q)

    return main


def unpack_reference(c, xp, X):
    q = xp.stack([xp.i64(X) & 15, xp.i64(X) >> 4], axis=1)
    return [q - 16 * (q >= 8)]


def stencil(dtype, block=16) -> ir.PrimFunc:
    """One Jacobi step of the five-point Laplacian; the rim stays."""
    H, W = T.dynamic("h, w")

    @T.prim_func
    def main(A: T.Tensor((H, W), dtype), B: T.Tensor((H, W), dtype)):
        with T.Kernel(T.ceildiv(W, block), T.ceildiv(H, block), threads=128) as (bx, by):
            tile = T.alloc_shared((block + 2, block + 2), dtype)
            T.copy(A[by * block - 1, bx * block - 1], tile)
            for i, j in T.Parallel(block, block):
                y, x = by * block + i, bx * block + j
                around = tile[i, j + 1] + tile[i + 2, j + 1] + tile[i + 1, j] + tile[i + 1, j + 2]
                inside = y > 0 and y < H - 1 and x > 0 and x < W - 1
                B[y, x] = T.if_then_else(inside, around * 0.25, tile[i + 1, j + 1])

    return main


def stencil_reference(c, xp, A):
    A = xp.f64(A)
    B = xp.f64(A)
    B[1:-1, 1:-1] = (A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:]) / 4
    return [B]


def vector(c, draw):
    """One vector of n."""
    return [draw.normal((c.n,), c.dtype)]


LARGE = {"n": 2**24 + 13, "dtype": "float16", "block": 1024}

ENTRIES = (
    Entry(
        add,
        lambda c, draw: [draw.normal((c.n,), c.dtype), draw.normal((c.n,), c.dtype)],
        lambda c, xp, A, B: [xp.f64(A) + xp.f64(B)],
        small=[{"n": 1000, "dtype": d} for d in ("float16", "float32", "bfloat16", "int32")],
        large=LARGE,
        call_sizes=("n",),
    ),
    Entry(
        where_multiply,
        lambda c, draw: [
            draw.normal((c.M, c.N), c.dtype),
            draw.normal((c.N,), c.dtype),
            draw.normal((c.M,), c.dtype),
            draw.mask((c.M, c.N), 0.5),
        ],
        where_reference,
        small=[{"M": 37, "N": 50, "dtype": "float16"}],
        large={"M": 8192, "N": 4096, "dtype": "bfloat16", "block_N": 128},
    ),
    Entry(
        swiglu,
        lambda c, draw: [draw.normal((c.M, 2 * c.H), c.dtype), np.zeros(c.H, np.int8)],
        swiglu_reference,
        small=[{"M": 5, "H": 150, "dtype": "float16"}],
        large={"M": 8192, "H": 11008, "dtype": "bfloat16", "block": 1024},
        call_sizes=("M", "H"),
    ),
    Entry(
        rotary,
        rotary_inputs,
        rotary_reference,
        small=[{"batch": 2, "s": 9, "heads": 3, "dim": 16, "dtype": "float16"}],
        large={"batch": 4, "s": 4096, "heads": 32, "dim": 128, "dtype": "bfloat16"},
        out=(),
        updates=(0,),
        call_sizes=("s",),
    ),
    Entry(
        dropout,
        lambda c, draw: [*vector(c, draw), draw.mask((c.n,), c.keep, "uint8")],
        lambda c, xp, X, mask: [xp.f64(X) * xp.f64(mask) / c.keep],
        small=[{"n": 1000, "dtype": "float16"}],
        large=LARGE,
        call_sizes=("n",),
    ),
    Entry(
        transpose,
        lambda c, draw: [draw.normal((c.M, c.N), c.dtype)],
        lambda c, xp, A: [xp.f64(A).T],
        small=[{"M": 70, "N": 50, "dtype": "bfloat16"}, {"M": 33, "N": 64, "dtype": "int8"}],
        large={"M": 8192, "N": 8192, "dtype": "bfloat16", "block": 64},
        call_sizes=("M", "N"),
    ),
    Entry(
        permute,
        lambda c, draw: [draw.normal((c.b, c.s, c.h, c.d), c.dtype)],
        lambda c, xp, A: [xp.swapaxes(xp.f64(A), 1, 2)],
        small=[{"b": 2, "s": 7, "h": 3, "d": 20, "dtype": "float16"}],
        large={"b": 4, "s": 4096, "h": 32, "d": 128, "dtype": "bfloat16"},
    ),
    Entry(
        gelu_tanh,
        vector,
        gelu_tanh_reference,
        small=[{"n": 500, "dtype": "float32"}, {"n": 500, "dtype": "bfloat16"}],
        large=LARGE,
        call_sizes=("n",),
    ),
    Entry(
        adam,
        lambda c, draw: [
            draw.normal((c.n,)),
            draw.normal((c.n,)),
            draw.uniform((c.n,)),
            draw.normal((c.n,), c.dtype),
            np.array([3], np.float32),
        ],
        adam_reference,
        small=[{"n": 300, "dtype": "float16"}],
        large=LARGE,
        out=(),
        updates=(0, 1, 2),
        call_sizes=("n",),
    ),
    Entry(
        pack_bits,
        lambda c, draw: [draw.mask((c.n, 8), 0.5)],
        pack_bits_reference,
        small=[{"n": 100}],
        large={"n": 2**20, "block": 128},
        call_sizes=("n",),
    ),
    Entry(
        unpack_int4,
        lambda c, draw: [draw.integers((c.n,), 0, 256, "uint8")],
        unpack_reference,
        small=[{"n": 100, "dtype": "int8"}, {"n": 100, "dtype": "float16"}],
        large={"n": 2**22, "dtype": "bfloat16", "block": 256},
        call_sizes=("n",),
    ),
    Entry(
        stencil,
        lambda c, draw: [draw.normal((c.H, c.W), c.dtype)],
        stencil_reference,
        small=[{"H": 40, "W": 37, "dtype": "float32"}],
        large={"H": 8190, "W": 8190, "dtype": "float32", "block": 32},
        call_sizes=("H", "W"),
    ),
)
