"""Dense matrix products: layouts, dtypes, dynamic sizes, epilogues, persistent and split forms."""

from __future__ import annotations

import tilec.language as T
from tilec import ir

from .registry import Entry


def gemm(
    M,
    N,
    K,
    dtype,
    trans_A=False,
    trans_B=False,
    out_dtype=None,
    block_M=32,
    block_N=32,
    block_K=16,
    num_stages=2,
    threads=128,
    panel=0,
) -> ir.PrimFunc:
    accum = "int32" if dtype == "int8" else "float64" if dtype == "float64" else "float32"
    out_dtype = out_dtype or (accum if dtype == "int8" else dtype)
    A_shape = (K, M) if trans_A else (M, K)
    B_shape = (N, K) if trans_B else (K, N)
    A_tile = (block_K, block_M) if trans_A else (block_M, block_K)
    B_tile = (block_N, block_K) if trans_B else (block_K, block_N)

    @T.prim_func
    def main(
        A: T.Tensor(A_shape, dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), out_dtype)
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared(A_tile, dtype)
            B_shared = T.alloc_shared(B_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum)
            T.use_swizzle(max(panel, 1), enable=panel > 0)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if trans_A:
                    T.copy(A[k * block_K, by * block_M], A_shared)
                else:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                if trans_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_A=trans_A, transpose_B=trans_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def gemm_inputs(c, draw):
    A = (c.K, c.M) if c.trans_A else (c.M, c.K)
    B = (c.N, c.K) if c.trans_B else (c.K, c.N)
    return [draw.normal(A, c.dtype), draw.normal(B, c.dtype)]


def gemm_reference(c, xp, A, B):
    A, B = xp.f64(A), xp.f64(B)
    return [(A.T if c.trans_A else A) @ (B.T if c.trans_B else B)]


def gemm_dynamic(dtype, block_M=32, block_N=32, block_K=16, num_stages=2) -> ir.PrimFunc:
    """One compiled kernel for all sizes."""
    M, N, K = T.dynamic("m, n, k")

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def gemm_bias_relu(M, N, K, dtype, block_M=32, block_N=32, block_K=16, num_stages=2) -> ir.PrimFunc:
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        bias: T.Tensor((N,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            bias_shared = T.alloc_shared((block_N,), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(bias[bx * block_N], bias_shared)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = T.max(C_local[i, j] + bias_shared[j], 0)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def gemm_gelu_residual(
    N, K, dtype, block_M=32, block_N=32, block_K=16, num_stages=2
) -> ir.PrimFunc:
    """gelu(A @ B + bias) + residual, through shared memory, for any number of rows."""
    M = T.dynamic("m")

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        bias: T.Tensor((N,), "float32"),
        residual: T.Tensor((M, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = bias[bx * block_N + j]
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(residual[by * block_M, bx * block_N], C_shared)
            for i, j in T.Parallel(block_M, block_N):
                x = C_local[i, j]
                C_local[i, j] = 0.5 * x * (1.0 + T.erf(x * 0.7071067811865476)) + C_shared[i, j]
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


def gelu(xp, x):
    """The exact GELU."""
    return 0.5 * x * (1 + xp.erf(x * 0.5**0.5))


def gemm_swiglu(M, N, K, dtype, block_M=32, block_N=32, block_K=16, num_stages=2) -> ir.PrimFunc:
    """silu(A @ gate) * (A @ up): two products that share an operand."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        gate: T.Tensor((N, K), dtype),
        up: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            gate_shared = T.alloc_shared((block_N, block_K), dtype)
            up_shared = T.alloc_shared((block_N, block_K), dtype)
            gate_local = T.alloc_fragment((block_M, block_N), "float32")
            up_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(gate_local)
            T.clear(up_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(gate[bx * block_N, k * block_K], gate_shared)
                T.copy(up[bx * block_N, k * block_K], up_shared)
                T.gemm(A_shared, gate_shared, gate_local, transpose_B=True)
                T.gemm(A_shared, up_shared, up_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                up_local[i, j] *= gate_local[i, j] * T.sigmoid(gate_local[i, j])
            T.copy(up_local, C[by * block_M, bx * block_N])

    return main


def swiglu_reference(c, xp, A, gate, up):
    A, gate, up = xp.f64(A), xp.f64(gate), xp.f64(up)
    g = A @ gate.T
    return [g / (1 + xp.exp(-g)) * (A @ up.T)]


def gemm_batched(M, N, K, dtype, block_M=32, block_N=32, block_K=16, num_stages=2) -> ir.PrimFunc:
    batch = T.dynamic("batch")

    @T.prim_func
    def main(
        A: T.Tensor((batch, M, K), dtype),
        B: T.Tensor((batch, K, N), dtype),
        C: T.Tensor((batch, M, N), "float32"),
    ):
        grid = (T.ceildiv(N, block_N), T.ceildiv(M, block_M), batch)
        with T.Kernel(*grid, threads=128) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[bz, by * block_M, k * block_K], A_shared)
                T.copy(B[bz, k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[bz, by * block_M, bx * block_N])

    return main


def gemm_grouped(
    groups, N, K, dtype, block_M=32, block_N=32, block_K=16, num_stages=2
) -> ir.PrimFunc:
    """Rows of A belong to groups of different size, each with a matrix of its own.

    The host gives every block its group and its first row; a block stops at its group's end.
    """
    M, tiles = T.dynamic("m"), T.dynamic("tiles")

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((groups, K, N), dtype),
        tile_group: T.Tensor((tiles,), "int32"),
        tile_row: T.Tensor((tiles,), "int32"),
        ends: T.Tensor((groups,), "int32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), tiles, threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            group = tile_group[by]
            row = tile_row[by]
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[row, k * block_K], A_shared)
                T.copy(B[group, k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                if row + i < ends[group] and bx * block_N + j < N:
                    C[row + i, bx * block_N + j] = C_local[i, j]

    return main


def grouped_inputs(c, draw):
    import numpy as np  # noqa: PLC0415 - beside its only use

    offsets = draw.offsets(c.groups, c.M)
    tiles = [
        (group, row)
        for group in range(c.groups)
        for row in range(offsets[group], offsets[group + 1], c.block_M)
    ]
    group, row = np.array(tiles, np.int32).T
    A, B = draw.normal((c.M, c.K), c.dtype), draw.normal((c.groups, c.K, c.N), c.dtype)
    return [A, B, group.copy(), row.copy(), offsets[1:].copy()]


def grouped_reference(c, xp, A, B, tile_group, tile_row, ends):
    A, B = xp.f64(A), xp.f64(B)
    stops = xp.item(ends)
    starts = [0, *stops[:-1]]
    return [
        xp.concatenate([A[i:j] @ B[g] for g, (i, j) in enumerate(zip(starts, stops, strict=True))])
    ]


def gemm_fragment_operand(M, N, K, dtype, block_M=32, block_N=32, block_K=16) -> ir.PrimFunc:
    """(A * row scales) @ B with the scaled tile of A in registers."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        scales: T.Tensor((M,), "float32"),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            A_local = T.alloc_fragment((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            T.copy(scales[by * block_M : (by + 1) * block_M], scale)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                for i, j in T.Parallel(block_M, block_K):
                    A_local[i, j] = A_shared[i, j] * scale[i]
                T.gemm(A_local, B_shared, C_local, policy=T.GemmWarpPolicy.FullRow)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def fragment_reference(c, xp, A, scales, B):
    scaled = xp.f64(A) * xp.f64(scales)[:, None]
    return [xp.rounded(scaled, c.dtype) @ xp.f64(B)]


def pair(c, draw):
    """A (M, K) and B (K, N)."""
    return [draw.normal((c.M, c.K), c.dtype), draw.normal((c.K, c.N), c.dtype)]


SMALL = {"M": 70, "N": 50, "K": 33}
LARGE = {"dtype": "bfloat16", "block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 3}
LARGE_SIZES = {"M": 4096, "N": 4096, "K": 4096}

ENTRIES = (
    Entry(
        gemm,
        gemm_inputs,
        gemm_reference,
        small=[
            {**SMALL, "dtype": "float32"},
            {**SMALL, "dtype": "float16", "trans_B": True, "panel": 2},
            {**SMALL, "dtype": "bfloat16", "trans_A": True, "num_stages": 3},
            {**SMALL, "dtype": "float16", "trans_A": True, "trans_B": True, "num_stages": 0},
            {**SMALL, "dtype": "float64", "trans_B": True},
            {**SMALL, "dtype": "int8", "trans_B": True},
            {**SMALL, "dtype": "float16", "out_dtype": "float32", "block_K": 32},
            {
                **SMALL,
                "dtype": "float8_e4m3fn",
                "trans_B": True,
                "out_dtype": "float32",
                "block_K": 32,
            },
            {
                **SMALL,
                "dtype": "float8_e5m2",
                "trans_B": True,
                "out_dtype": "bfloat16",
                "block_K": 32,
            },
            {"M": 64, "N": 64, "K": 64, "dtype": "bfloat16", "num_stages": 3},
        ],
        large={**LARGE_SIZES, **LARGE, "block_N": 256, "threads": 256, "panel": 8},
    ),
    Entry(
        gemm_dynamic,
        lambda c, draw: [draw.normal((c.M, c.K), c.dtype), draw.normal((c.N, c.K), c.dtype)],
        lambda c, xp, A, B: [xp.f64(A) @ xp.f64(B).T],
        small=[
            {**SMALL, "dtype": "float16"},
            {"M": 1, "N": 129, "K": 64, "dtype": "float32", "num_stages": 3},
        ],
        large={"M": 4097, "N": 4100, "K": 4104, **LARGE},
        call_sizes=("M", "N", "K"),
    ),
    Entry(
        gemm_bias_relu,
        lambda c, draw: [*pair(c, draw), draw.normal((c.N,), c.dtype)],
        lambda c, xp, A, B, bias: [xp.clip(xp.f64(A) @ xp.f64(B) + xp.f64(bias), 0, None)],
        small=[{**SMALL, "dtype": "float32"}, {**SMALL, "dtype": "bfloat16"}],
        large={**LARGE_SIZES, **LARGE},
    ),
    Entry(
        gemm_gelu_residual,
        lambda c, draw: [
            *pair(c, draw),
            draw.normal((c.N,)),
            draw.normal((c.M, c.N), c.dtype),
        ],
        lambda c, xp, A, B, bias, residual: [
            gelu(xp, xp.f64(A) @ xp.f64(B) + xp.f64(bias)) + xp.f64(residual)
        ],
        small=[{**SMALL, "dtype": "float16"}, {**SMALL, "M": 5, "dtype": "float32"}],
        large={**LARGE_SIZES, **LARGE},
        call_sizes=("M",),
    ),
    Entry(
        gemm_swiglu,
        lambda c, draw: [
            draw.normal((c.M, c.K), c.dtype),
            draw.normal((c.N, c.K), c.dtype, 0.2),
            draw.normal((c.N, c.K), c.dtype),
        ],
        swiglu_reference,
        small=[{**SMALL, "dtype": "float32"}, {**SMALL, "dtype": "float16"}],
        large={**LARGE_SIZES, **LARGE},
    ),
    Entry(
        gemm_batched,
        lambda c, draw: [
            draw.normal((c.batch, c.M, c.K), c.dtype),
            draw.normal((c.batch, c.K, c.N), c.dtype),
        ],
        lambda c, xp, A, B: [xp.f64(A) @ xp.f64(B)],
        small=[
            {**SMALL, "batch": 3, "dtype": "float16"},
            {"M": 16, "N": 16, "K": 16, "batch": 5, "dtype": "float32"},
        ],
        large={"batch": 32, "M": 1024, "N": 1024, "K": 512, **LARGE},
        call_sizes=("batch",),
    ),
    Entry(
        gemm_grouped,
        grouped_inputs,
        grouped_reference,
        small=[
            {"groups": 4, "M": 90, "N": 50, "K": 33, "dtype": "float16"},
            {"groups": 2, "M": 64, "N": 32, "K": 32, "dtype": "float32"},
        ],
        large={"groups": 16, "M": 8192, "N": 2048, "K": 1024, **LARGE},
        call_sizes=("M",),
    ),
    Entry(
        gemm_fragment_operand,
        lambda c, draw: [
            draw.normal((c.M, c.K), c.dtype),
            draw.uniform((c.M,), low=0.5, high=2),
            draw.normal((c.K, c.N), c.dtype),
        ],
        fragment_reference,
        small=[{**SMALL, "dtype": "float16"}, {**SMALL, "dtype": "float32"}],
        large={**LARGE_SIZES, "dtype": "float16", "block_M": 128, "block_N": 128, "block_K": 32},
        limits={"float16": 1e-3},
    ),
)
