"""Matrix products that spread their work in other ways: split, streamed, persistent, sparse."""

from __future__ import annotations

import numpy as np

import tilec
import tilec.language as T
from tilec import ir

from .gemm import LARGE, LARGE_SIZES, SMALL, pair
from .registry import Entry


def gemm_eager(M, N, K, dtype, block_M=32, block_N=32, block_K=16) -> ir.PrimFunc:
    """Written as an eager kernel: sizes come from the arrays."""

    @tilec.jit
    def matmul(A, B):
        m, n, k = T.const("m, n, k")
        A: T.Tensor[[m, k], dtype]
        B: T.Tensor[[k, n], dtype]
        C = T.empty((m, n), dtype)
        with T.Kernel(T.ceildiv(n, block_N), T.ceildiv(m, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            for step in T.Pipelined(T.ceildiv(k, block_K), num_stages=2):
                T.copy(A[by * block_M, step * block_K], A_shared)
                T.copy(B[step * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, clear_accum=step == 0)
            T.copy(C_local, C[by * block_M, bx * block_N])
        return C

    return matmul.get_tir(m=M, n=N, k=K)


def gemm_split_k(
    M, N, K, dtype, splits=3, block_M=32, block_N=32, block_K=16, num_stages=2
) -> ir.PrimFunc:
    """K is cut into `splits` parts whose results meet by atomic additions."""
    steps = -(-K // block_K)
    each = -(-steps // splits)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")
    ):
        grid = (T.ceildiv(N, block_N), T.ceildiv(M, block_M), splits)
        with T.Kernel(*grid, threads=128) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(each, num_stages=num_stages):
                T.copy(A[by * block_M, (bz * each + k) * block_K], A_shared)
                T.copy(B[(bz * each + k) * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.atomic_add(C[by * block_M, bx * block_N], C_local)

    return main


def gemm_split_k_workspace(
    M, N, K, dtype, splits=3, block_M=32, block_N=32, block_K=16
) -> ir.PrimFunc:
    """The same without atomics: partial results, then a second launch that adds them."""
    steps = -(-K // block_K)
    each = -(-steps // splits)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        partial: T.Tensor((splits, M, N), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        grid = (T.ceildiv(N, block_N), T.ceildiv(M, block_M), splits)
        with T.Kernel(*grid, threads=128) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(each, num_stages=2):
                T.copy(A[by * block_M, (bz * each + k) * block_K], A_shared)
                T.copy(B[(bz * each + k) * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, partial[bz, by * block_M, bx * block_N])
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            piece = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for s in T.serial(splits):
                T.copy(partial[s, by * block_M, bx * block_N], piece)
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] += piece[i, j]
            T.copy(total, C[by * block_M, bx * block_N])

    return main


def gemm_stream_k(M, N, K, dtype, blocks=5, block_M=32, block_N=32, block_K=16) -> ir.PrimFunc:
    """All steps of all tiles in a row, cut into equal pieces: a block may hold parts of tiles."""
    tiles_n = -(-N // block_N)
    tiles = tiles_n * -(-M // block_M)
    steps = -(-K // block_K)
    share = -(-tiles * steps // blocks)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(blocks, threads=128) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            position = T.alloc_var("int32", init=block * share)
            end = T.min((block + 1) * share, tiles * steps)
            while position < end:
                tile = position // steps
                first = position % steps
                count = T.min(steps - first, end - position)
                row = tile // tiles_n * block_M
                column = tile % tiles_n * block_N
                T.clear(C_local)
                for k in T.Pipelined(count, num_stages=2):
                    T.copy(A[row, (first + k) * block_K], A_shared)
                    T.copy(B[(first + k) * block_K, column], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                if count == steps:
                    T.copy(C_local, C[row, column])
                else:
                    T.atomic_add(C[row, column], C_local)
                position += count

    return main


def gemm_persistent(
    M, N, K, dtype, blocks=3, group=2, block_M=32, block_N=32, block_K=16, num_stages=2
) -> ir.PrimFunc:
    """As many blocks as the machine holds; each walks over tiles, `group` tile rows at a time."""
    tiles_m, tiles_n = -(-M // block_M), -(-N // block_N)
    waves = -(-tiles_m * tiles_n // blocks)

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(blocks, threads=128) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            for wave in T.serial(waves):
                tile = wave * blocks + block
                panel = tile // (group * tiles_n)
                height = T.min(tiles_m - panel * group, group)
                inside = tile % (group * tiles_n)
                if tile < tiles_m * tiles_n:
                    row = (panel * group + inside % height) * block_M
                    column = inside // height * block_N
                    T.clear(C_local)
                    for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                        T.copy(A[row, k * block_K], A_shared)
                        T.copy(B[k * block_K, column], B_shared)
                        T.gemm(A_shared, B_shared, C_local)
                    T.copy(C_local, C_shared)
                    T.copy(C_shared, C[row, column])

    return main


def gemm_int8_scaled(M, N, K, dtype="int8", block_M=32, block_N=32, block_K=32) -> ir.PrimFunc:
    """int8 operands, int32 sums, one scale for each row and each column."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((N, K), "int8"),
        scale_A: T.Tensor((M,), "float32"),
        scale_B: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "int8")
            B_shared = T.alloc_shared((block_N, block_K), "int8")
            sums = T.alloc_fragment((block_M, block_N), "int32")
            C_local = T.alloc_fragment((block_M, block_N), "float16")
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, sums, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                scale = scale_A[by * block_M + i] * scale_B[bx * block_N + j]
                C_local[i, j] = T.cast(sums[i, j], "float32") * scale
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def gemm_fp8_blockwise(
    M, N, K, dtype="float8_e4m3fn", group=32, block_M=32, block_N=32
) -> ir.PrimFunc:
    """fp8 operands with a scale for every `group` values along K, applied after each group."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        scale_A: T.Tensor((M, T.ceildiv(K, group)), "float32"),
        scale_B: T.Tensor((T.ceildiv(N, group), T.ceildiv(K, group)), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, group), dtype)
            B_shared = T.alloc_shared((block_N, group), dtype)
            scales = T.alloc_shared((block_M,), "float32")
            step = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, group), num_stages=2):
                T.copy(A[by * block_M, k * group], A_shared)
                T.copy(B[bx * block_N, k * group], B_shared)
                for i in T.Parallel(block_M):
                    scales[i] = scale_A[by * block_M + i, k] * scale_B[bx * block_N // group, k]
                T.gemm(A_shared, B_shared, step, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] += step[i, j] * scales[i]
            T.copy(total, C[by * block_M, bx * block_N])

    return main


def fp8_blockwise_inputs(c, draw):
    groups = -(-c.K // c.group)
    return [
        draw.normal((c.M, c.K), c.dtype),
        draw.normal((c.N, c.K), c.dtype),
        draw.uniform((c.M, groups), low=0.5, high=2),
        draw.uniform((-(-c.N // c.group), groups), low=0.5, high=2),
    ]


def fp8_blockwise_reference(c, xp, A, B, scale_A, scale_B):
    scale_A = xp.repeat(xp.f64(scale_A), c.group, 1)[:, : c.K]
    scale_B = xp.repeat(xp.repeat(xp.f64(scale_B), c.group, 0), c.group, 1)[: c.N, : c.K]
    return [(xp.f64(A) * scale_A) @ (xp.f64(B) * scale_B).T]


def gemv(K, dtype, block_N=16, block_K=64) -> ir.PrimFunc:
    """W @ x: a block owns some rows and walks along them."""
    N = T.dynamic("n")

    @T.prim_func
    def main(W: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            product = T.alloc_fragment((block_N, block_K), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(product)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_N, block_K):
                    column = k * block_K + j
                    product[i, j] += T.cast(W[bx * block_N + i, column], "float32") * x[column]
            T.reduce_sum(product, total, dim=1)
            T.copy(total, y[bx * block_N])

    return main


def gemv_transposed(K, N, dtype, splits=4, block_N=64, block_K=16) -> ir.PrimFunc:
    """x @ W along the columns of W, K cut between blocks that meet by atomics."""
    each = -(-K // (splits * block_K))

    @T.prim_func
    def main(W: T.Tensor((K, N), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), splits, threads=128) as (bx, by):
            W_shared = T.alloc_shared((block_K, block_N), dtype)
            partial = T.alloc_fragment((block_K, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(partial)
            for k in T.Pipelined(each, num_stages=2):
                first = (by * each + k) * block_K
                T.copy(W[first, bx * block_N], W_shared)
                for i, j in T.Parallel(block_K, block_N):
                    partial[i, j] += T.cast(W_shared[i, j], "float32") * x[first + i]
            T.reduce_sum(partial, total, dim=0)
            for j in T.Parallel(block_N):
                if bx * block_N + j < N:
                    T.atomic_add(y[bx * block_N + j], total[j])

    return main


def zeroed(c, draw):
    """A, B and a cleared float32 C."""
    return [*pair(c, draw), np.zeros((c.M, c.N), np.float32)]


ENTRIES = (
    Entry(
        gemm_eager,
        pair,
        lambda c, xp, A, B: [xp.f64(A) @ xp.f64(B)],
        small=[{**SMALL, "dtype": "float32"}, {**SMALL, "dtype": "float16"}],
        large={**LARGE_SIZES, "dtype": "float16", "block_M": 128, "block_N": 128, "block_K": 32},
        out=(),
    ),
    Entry(
        gemm_split_k,
        zeroed,
        lambda c, xp, A, B, C: [xp.f64(A) @ xp.f64(B)],
        small=[{**SMALL, "K": 150, "dtype": "float16"}, {**SMALL, "dtype": "float32"}],
        large={"M": 1024, "N": 1024, "K": 16384, "splits": 8, **LARGE},
        out=(),
        updates=(2,),
    ),
    Entry(
        gemm_split_k_workspace,
        lambda c, draw: [*pair(c, draw), np.zeros((c.splits, c.M, c.N), np.float32)],
        lambda c, xp, A, B, partial: [xp.f64(A) @ xp.f64(B)],
        small=[{**SMALL, "K": 150, "dtype": "float16"}],
        large={
            "M": 1024,
            "N": 1024,
            "K": 16384,
            "splits": 8,
            "dtype": "bfloat16",
            "block_M": 128,
            "block_N": 128,
            "block_K": 64,
        },
    ),
    Entry(
        gemm_stream_k,
        zeroed,
        lambda c, xp, A, B, C: [xp.f64(A) @ xp.f64(B)],
        small=[{**SMALL, "K": 90, "dtype": "float16"}, {**SMALL, "dtype": "float32", "blocks": 2}],
        large={
            "M": 2304,
            "N": 2304,
            "K": 4096,
            "blocks": 132,
            "dtype": "bfloat16",
            "block_M": 128,
            "block_N": 128,
            "block_K": 64,
        },
        out=(),
        updates=(2,),
    ),
    Entry(
        gemm_persistent,
        pair,
        lambda c, xp, A, B: [xp.f64(A) @ xp.f64(B)],
        small=[
            {**SMALL, "dtype": "float16"},
            {"M": 130, "N": 70, "K": 33, "dtype": "float32", "blocks": 4},
        ],
        large={**LARGE_SIZES, "blocks": 132, "group": 8, **LARGE},
    ),
    Entry(
        gemm_int8_scaled,
        lambda c, draw: [
            draw.normal((c.M, c.K), "int8"),
            draw.normal((c.N, c.K), "int8"),
            draw.uniform((c.M,), low=0.001, high=0.01),
            draw.uniform((c.N,), low=0.001, high=0.01),
        ],
        lambda c, xp, A, B, scale_A, scale_B: [
            xp.f64(A) @ xp.f64(B).T * xp.f64(scale_A)[:, None] * xp.f64(scale_B)
        ],
        small=[{**SMALL}],
        large={**LARGE_SIZES, "block_M": 128, "block_N": 128, "block_K": 128},
    ),
    Entry(
        gemm_fp8_blockwise,
        fp8_blockwise_inputs,
        fp8_blockwise_reference,
        small=[{"M": 70, "N": 64, "K": 96}],
        large={**LARGE_SIZES, "group": 128, "block_M": 128, "block_N": 128},
    ),
    Entry(
        gemv,
        lambda c, draw: [draw.normal((c.N, c.K), c.dtype), draw.normal((c.K,), c.dtype)],
        lambda c, xp, W, x: [xp.f64(W) @ xp.f64(x)],
        small=[{"N": 50, "K": 150, "dtype": "float16"}, {"N": 16, "K": 64, "dtype": "float32"}],
        large={"N": 16384, "K": 8192, "dtype": "bfloat16", "block_K": 512},
        call_sizes=("N",),
    ),
    Entry(
        gemv_transposed,
        lambda c, draw: [
            draw.normal((c.K, c.N), c.dtype),
            draw.normal((c.K,), c.dtype),
            np.zeros(c.N, np.float32),
        ],
        lambda c, xp, W, x, y: [xp.f64(x) @ xp.f64(W)],
        small=[{"N": 70, "K": 150, "dtype": "float16"}],
        large={"N": 8192, "K": 8192, "dtype": "bfloat16", "splits": 16, "block_N": 256},
        out=(),
        updates=(2,),
    ),
)
