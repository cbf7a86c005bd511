"""Products with weights of a few bits: signed, with zero points, by table, per channel, fp4."""

from __future__ import annotations

import numpy as np

import tilec.language as T
from tilec import ir

from .registry import Entry

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def gemm_int4(
    M, N, K, dtype, scheme="zeros", group=32, block_M=32, block_N=32, block_K=32, num_stages=2
) -> ir.PrimFunc:
    """W[n, k] = (q - zero) * scale, two q in a byte; `scheme` says what zero is.

    symmetric: 8; zeros: a value per group; packed: 4 bits per group, two in a byte along N.
    """
    zero_shape = {"symmetric": (1, 1), "zeros": (N, K // group), "packed": (N // 2, K // group)}
    zero_dtype = dtype if scheme == "zeros" else "uint8"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), dtype),
        zeros: T.Tensor(zero_shape[scheme], zero_dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            packed = T.alloc_shared((block_N, block_K // 2), "uint8")
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W[bx * block_N, k * block_K // 2], packed)
                for i, j in T.Parallel(block_N, block_K):
                    row, part = bx * block_N + i, (k * block_K + j) // group
                    q = T.cast((packed[i, j // 2] >> (j % 2 * 4)) & 15, "float32")
                    if scheme == "symmetric":
                        W_shared[i, j] = (q - 8.0) * scales[row, part]
                    elif scheme == "zeros":
                        W_shared[i, j] = (q - zeros[row, part]) * scales[row, part]
                    else:
                        zero = (zeros[row // 2, part] >> (row % 2 * 4)) & 15
                        W_shared[i, j] = (q - T.cast(zero, "float32")) * scales[row, part]
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def int4_inputs(c, draw):
    groups = c.K // c.group
    if c.scheme == "symmetric":
        zeros = np.zeros((1, 1), np.uint8)
    elif c.scheme == "zeros":
        zeros = draw.uniform((c.N, groups), c.dtype, 0, 15)
    else:
        zeros = draw.integers((c.N // 2, groups), 0, 256, "uint8")
    return [
        draw.normal((c.M, c.K), c.dtype),
        draw.integers((c.N, c.K // 2), 0, 256, "uint8"),
        draw.uniform((c.N, groups), c.dtype, 0.01, 0.1),
        zeros,
    ]


def nibbles(xp, packed):
    """(n, k) bytes to (n, 2 k) values, the low half first."""
    packed = xp.i64(packed)
    return xp.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def int4_reference(c, xp, A, W, scales, zeros):
    if c.scheme == "symmetric":
        zero = 8.0
    elif c.scheme == "zeros":
        zero = xp.repeat(xp.f64(zeros), c.group, 1)
    else:
        halves = xp.stack([xp.i64(zeros) & 15, xp.i64(zeros) >> 4], axis=1)
        zero = xp.repeat(halves.reshape(c.N, -1), c.group, 1)
    weights = (nibbles(xp, W) - zero) * xp.repeat(xp.f64(scales), c.group, 1)
    return [xp.f64(A) @ weights.T]


def gemm_lookup(M, N, K, dtype, block_M=32, block_N=32, block_K=32) -> ir.PrimFunc:
    """Four bits choose one of sixteen values (as NF4 does); one scale for each row."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K // 2), "uint8"),
        table: T.Tensor((16,), "float32"),
        scales: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            packed = T.alloc_shared((block_N, block_K // 2), "uint8")
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            values = T.alloc_shared((16,), "float32")
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(table, values)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W[bx * block_N, k * block_K // 2], packed)
                for i, j in T.Parallel(block_N, block_K):
                    q = T.cast((packed[i, j // 2] >> (j % 2 * 4)) & 15, "int32")
                    W_shared[i, j] = values[q]
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] *= scales[bx * block_N + j]
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def lookup_reference(c, xp, A, W, table, scales):
    values = xp.rounded(xp.f64(table), c.dtype)[nibbles(xp, W)]
    return [xp.f64(A) @ values.T * xp.f64(scales)]


def gemm_int8_weights(N, K, dtype, block_M=32, block_N=32, block_K=32) -> ir.PrimFunc:
    """int8 weights with a scale and a zero point for each output channel, any number of rows."""
    M = T.dynamic("m")

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), "int8"),
        scales: T.Tensor((N,), "float32"),
        zeros: T.Tensor((N,), "int8"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            W_int = T.alloc_shared((block_N, block_K), "int8")
            W_local = T.alloc_fragment((block_N, block_K), dtype)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W[bx * block_N, k * block_K], W_int)
                for i, j in T.Parallel(block_N, block_K):
                    difference = T.cast(W_int[i, j], "int32") - zeros[bx * block_N + i]
                    W_local[i, j] = T.cast(difference, "float32")
                T.copy(W_local, W_shared)
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] *= scales[bx * block_N + j]
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def int8_weights_reference(c, xp, A, W, scales, zeros):
    weights = xp.rounded(xp.f64(W) - xp.f64(zeros)[:, None], c.dtype)
    return [xp.f64(A) @ weights.T * xp.f64(scales)]


def gemv_int4(N, K, dtype, group=32, block_N=8, block_K=64) -> ir.PrimFunc:
    @T.prim_func
    def main(
        W: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), dtype),
        x: T.Tensor((K,), dtype),
        y: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            part = T.alloc_fragment((block_N, block_K), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(part)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_N, block_K):
                    row, column = bx * block_N + i, k * block_K + j
                    q = (W[row, column // 2] >> (column % 2 * 4)) & 15
                    weight = (T.cast(q, "float32") - 8.0) * scales[row, column // group]
                    part[i, j] += weight * x[column]
            T.reduce_sum(part, total, dim=1)
            T.copy(total, y[bx * block_N])

    return main


def gemv_int4_reference(c, xp, W, scales, x):
    return [((nibbles(xp, W) - 8) * xp.repeat(xp.f64(scales), c.group, 1)) @ xp.f64(x)]


def dequantize_fp4(N, K, dtype, group=32, block=32) -> ir.PrimFunc:
    """e2m1 values in half bytes with a power of two (e8m0) for each group, by bit operations."""

    @T.prim_func
    def main(
        W: T.Tensor((N, K // 2), "uint8"),
        exponents: T.Tensor((N, K // group), "uint8"),
        Y: T.Tensor((N, K), dtype),
    ):
        with T.Kernel(T.ceildiv(K, block), N, threads=64) as (bx, by):
            for j in T.Parallel(block):
                column = bx * block + j
                if column < K:
                    q = T.cast((W[by, column // 2] >> (column % 2 * 4)) & 15, "int32")
                    e, m = (q >> 1) & 3, q & 1
                    size = T.if_then_else(
                        e == 0,
                        T.cast(m, "float32") * 0.5,
                        T.cast((2 + m) << T.max(e - 1, 0), "float32") * 0.5,
                    )
                    power = T.exp2(T.cast(exponents[by, column // group], "float32") - 127.0)
                    Y[by, column] = T.if_then_else(q >= 8, -size, size) * power

    return main


def fp4_reference(c, xp, W, exponents):
    q = nibbles(xp, W)
    size = xp.f64(xp.array(FP4))[q & 7]
    power = 2.0 ** (xp.f64(exponents) - 127)
    return [xp.where(q >= 8, -size, size) * xp.repeat(power, c.group, 1)]


SMALL = {"M": 40, "N": 50, "K": 96}
LARGE = {"M": 1024, "N": 8192, "K": 8192}
BLOCKS = {"block_M": 128, "block_N": 128, "block_K": 64}
LIMITS = {"float16": 3e-3, "bfloat16": 2e-2}

ENTRIES = (
    Entry(
        gemm_int4,
        int4_inputs,
        int4_reference,
        small=[
            {**SMALL, "dtype": "float16", "scheme": "symmetric"},
            {**SMALL, "dtype": "float32"},
            {**SMALL, "dtype": "float16", "scheme": "packed"},
        ],
        large={**LARGE, **BLOCKS, "dtype": "float16", "group": 128},
        limits=LIMITS,
    ),
    Entry(
        gemm_lookup,
        lambda c, draw: [
            draw.normal((c.M, c.K), c.dtype),
            draw.integers((c.N, c.K // 2), 0, 256, "uint8"),
            draw.normal((16,)),
            draw.uniform((c.N,), low=0.5, high=2),
        ],
        lookup_reference,
        small=[{**SMALL, "dtype": "float16"}],
        large={**LARGE, **BLOCKS, "dtype": "bfloat16"},
    ),
    Entry(
        gemm_int8_weights,
        lambda c, draw: [
            draw.normal((c.M, c.K), c.dtype),
            draw.normal((c.N, c.K), "int8"),
            draw.uniform((c.N,), low=0.001, high=0.01),
            draw.integers((c.N,), -20, 20, "int8"),
        ],
        int8_weights_reference,
        small=[{**SMALL, "dtype": "float16"}],
        large={**LARGE, **BLOCKS, "dtype": "float16"},
        call_sizes=("M",),
    ),
    Entry(
        gemv_int4,
        lambda c, draw: [
            draw.integers((c.N, c.K // 2), 0, 256, "uint8"),
            draw.uniform((c.N, c.K // c.group), c.dtype, 0.01, 0.1),
            draw.normal((c.K,), c.dtype),
        ],
        gemv_int4_reference,
        small=[{"N": 50, "K": 96, "dtype": "float16"}],
        large={"N": 8192, "K": 8192, "dtype": "float16", "group": 128, "block_K": 512},
    ),
    Entry(
        dequantize_fp4,
        lambda c, draw: [
            draw.integers((c.N, c.K // 2), 0, 256, "uint8"),
            draw.integers((c.N, c.K // c.group), 120, 132, "uint8"),
        ],
        fp4_reference,
        small=[{"N": 9, "K": 96, "dtype": "float16"}],
        large={"N": 8192, "K": 8192, "dtype": "bfloat16", "block": 512},
    ),
)
