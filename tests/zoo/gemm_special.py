"""Matrix products with structure: block-sparse, triangular, complex."""

from __future__ import annotations

import numpy as np

import tilec.language as T
from tilec import ir

from .gemm import LARGE_SIZES, SMALL, pair
from .registry import Entry


def gemm_lower(N, K, dtype, block=32, block_K=16) -> ir.PrimFunc:
    """The lower triangle of A @ A.T; blocks above the diagonal only write zeros."""

    @T.prim_func
    def main(A: T.Tensor((N, K), dtype), C: T.Tensor((N, N), "float32")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(N, block), threads=128) as (bx, by):
            rows = T.alloc_shared((block, block_K), dtype)
            columns = T.alloc_shared((block, block_K), dtype)
            C_local = T.alloc_fragment((block, block), "float32")
            T.clear(C_local)
            if bx <= by:
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                    T.copy(A[by * block, k * block_K], rows)
                    T.copy(A[bx * block, k * block_K], columns)
                    T.gemm(rows, columns, C_local, transpose_B=True)
                for i, j in T.Parallel(block, block):
                    if bx * block + j > by * block + i:
                        C_local[i, j] = 0
            T.copy(C_local, C[by * block, bx * block])

    return main


def gemm_complex(M, N, K, dtype="float32", block=32, block_K=16) -> ir.PrimFunc:
    """Complex product from real and imaginary planes, four real products a step."""

    @T.prim_func
    def main(
        A: T.Tensor((2, M, K), dtype), B: T.Tensor((2, K, N), dtype), C: T.Tensor((2, M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((2, block, block_K), dtype)
            B_shared = T.alloc_shared((2, block_K, block), dtype)
            minus = T.alloc_fragment((block, block), "float32")
            real = T.alloc_fragment((block, block), "float32")
            imag = T.alloc_fragment((block, block), "float32")
            T.clear(minus)
            T.clear(real)
            T.clear(imag)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[0, by * block, k * block_K], A_shared)
                T.copy(B[0, k * block_K, bx * block], B_shared)
                T.gemm(A_shared[0, :, :], B_shared[0, :, :], real)
                T.gemm(A_shared[1, :, :], B_shared[1, :, :], minus)
                T.gemm(A_shared[0, :, :], B_shared[1, :, :], imag)
                T.gemm(A_shared[1, :, :], B_shared[0, :, :], imag)
            for i, j in T.Parallel(block, block):
                real[i, j] -= minus[i, j]
            T.copy(real, C[0, by * block, bx * block])
            T.copy(imag, C[1, by * block, bx * block])

    return main


def complex_reference(c, xp, A, B):
    A, B = xp.f64(A), xp.f64(B)
    return [xp.stack([A[0] @ B[0] - A[1] @ B[1], A[0] @ B[1] + A[1] @ B[0]])]


def gemm_block_sparse(M, N, K, dtype, block_M=32, block_N=32, block_K=16) -> ir.PrimFunc:
    """Blocks of A that a mask calls empty are skipped."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        present: T.Tensor((T.ceildiv(M, block_M), T.ceildiv(K, block_K)), "bool"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=1):
                if present[by, k]:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def block_sparse_inputs(c, draw):
    shape = (-(-c.M // c.block_M), -(-c.K // c.block_K))
    return [*pair(c, draw), draw.mask(shape, 0.4)]


def block_sparse_reference(c, xp, A, B, present):
    full = xp.repeat(xp.repeat(xp.f64(present), c.block_M, 0), c.block_K, 1)
    return [(xp.f64(A) * full[: c.M, : c.K]) @ xp.f64(B)]


def gemm_block_list(N, K, dtype, block_M=32, block_N=32, block_K=16) -> ir.PrimFunc:
    """Block-sparse A in compressed rows: the list of its blocks' columns, and the blocks."""
    rows, blocks = T.dynamic("rows"), T.dynamic("blocks")

    @T.prim_func
    def main(
        values: T.Tensor((blocks, block_M, block_K), dtype),
        columns: T.Tensor((blocks,), "int32"),
        starts: T.Tensor((rows + 1,), "int32"),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((rows * block_M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), rows, threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for n in T.serial(starts[by], starts[by + 1]):
                T.copy(values[n, :, :], A_shared)
                T.copy(B[columns[n] * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def block_list_inputs(c, draw):
    present = draw.mask((c.rows, c.K // c.block_K), 0.4)
    columns = np.nonzero(present)[1].astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(present.sum(1))]).astype(np.int32)
    values = draw.normal((len(columns), c.block_M, c.block_K), c.dtype)
    return [values, columns, starts, draw.normal((c.K, c.N), c.dtype)]


def block_list_reference(c, xp, values, columns, starts, B):
    A = xp.zeros((c.rows, c.block_M, c.K))
    first, column = xp.item(starts), xp.item(columns)
    for row in range(c.rows):
        for n in range(first[row], first[row + 1]):
            A[row, :, column[n] * c.block_K : (column[n] + 1) * c.block_K] = xp.f64(values[n])
    return [A.reshape(c.rows * c.block_M, c.K) @ xp.f64(B)]


ENTRIES = (
    Entry(
        gemm_lower,
        lambda c, draw: [draw.normal((c.N, c.K), c.dtype)],
        lambda c, xp, A: [xp.tril(xp.f64(A) @ xp.f64(A).T)],
        small=[{"N": 70, "K": 33, "dtype": "float16"}],
        large={"N": 4096, "K": 4096, "dtype": "bfloat16", "block": 128, "block_K": 64},
    ),
    Entry(
        gemm_complex,
        lambda c, draw: [
            draw.normal((2, c.M, c.K), c.dtype),
            draw.normal((2, c.K, c.N), c.dtype),
        ],
        complex_reference,
        small=[{**SMALL}, {**SMALL, "dtype": "float16"}],
        large={**LARGE_SIZES, "dtype": "float16", "block": 64, "block_K": 32},
    ),
    Entry(
        gemm_block_sparse,
        block_sparse_inputs,
        block_sparse_reference,
        small=[{**SMALL, "K": 90, "dtype": "float16"}],
        large={
            **LARGE_SIZES,
            "dtype": "bfloat16",
            "block_M": 128,
            "block_N": 128,
            "block_K": 64,
        },
    ),
    Entry(
        gemm_block_list,
        block_list_inputs,
        block_list_reference,
        small=[{"rows": 3, "N": 50, "K": 96, "dtype": "float16"}],
        large={
            "rows": 32,
            "N": 4096,
            "K": 4096,
            "dtype": "bfloat16",
            "block_M": 128,
            "block_N": 128,
            "block_K": 64,
        },
        call_sizes=("rows",),
    ),
)
