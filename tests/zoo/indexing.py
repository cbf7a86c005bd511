"""Selection, scans, sorting and scattered access."""

from __future__ import annotations

import numpy as np

import tilec.language as T
from tilec import ir

from .registry import Entry


def top_k_gating(M, experts, k, dtype) -> ir.PrimFunc:
    """The router of a mixture of experts: k experts a token, weights that add up to 1."""

    @T.prim_func
    def main(
        logits: T.Tensor((M, experts), dtype),
        weights: T.Tensor((M, k), "float32"),
        chosen: T.Tensor((M, k), "int32"),
        load: T.Tensor((experts,), "int32"),
    ):
        with T.Kernel(M, threads=64) as bx:
            x = T.alloc_fragment((1, experts), "float32")
            column = T.alloc_fragment((1, experts), "int32")
            top = T.alloc_fragment((1,), "float32")
            best = T.alloc_fragment((1,), "int32")
            first = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(logits[bx, 0], x)
            T.clear(total)
            for n in T.serial(k):
                T.reduce_max(x, top, dim=1)
                for i, j in T.Parallel(1, experts):
                    column[i, j] = T.if_then_else(x[i, j] == top[i], j, experts)
                T.reduce_min(column, best, dim=1)
                for i, j in T.Parallel(1, experts):
                    if j == best[i]:
                        x[i, j] = -T.infinity("float32")
                for i in T.Parallel(1):
                    if n == 0:
                        first[i] = top[i]
                    weights[bx + i, n] = T.exp(top[i] - first[i])
                    total[i] += T.exp(top[i] - first[i])
                    chosen[bx + i, n] = best[i]
                    T.atomic_add(load[best[i]], 1)
            for i, n in T.Parallel(1, k):
                weights[bx + i, n] = weights[bx + i, n] / total[i]

    return main


def gating_reference(c, xp, logits, load):
    logits = xp.f64(logits)
    chosen = xp.order(-logits)[:, : c.k]
    picked = xp.pick(logits, chosen, 1)
    weights = xp.exp(picked - picked[:, :1])
    counts = xp.izeros((c.experts,))
    for expert in range(c.experts):
        counts[expert] = (chosen == expert).sum()
    return [weights / weights.sum(axis=1, keepdims=True), chosen, counts]


def cumsum_rows(dtype, block=32) -> ir.PrimFunc:
    """Prefix sums of rows: tiles one after the other, a tile by doubling distances."""
    M, N = T.dynamic("m, n")
    steps = block.bit_length() - 1

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=64) as bx:
            a = T.alloc_shared((block,), "float32")
            b = T.alloc_shared((block,), "float32")
            carry = T.alloc_shared((1,), "float32")
            T.clear(carry)
            for k in T.serial(T.ceildiv(N, block)):
                T.copy(X[bx, k * block : (k + 1) * block], a)
                for s in T.serial(steps):
                    for i in T.Parallel(block):
                        b[i] = T.if_then_else(i >= (1 << s), a[i] + a[i - (1 << s)], a[i])
                    T.copy(b, a)
                for i in T.Parallel(block):
                    b[i] = a[i] + carry[0]
                T.copy(b, Y[bx, k * block : (k + 1) * block])
                for i in T.Parallel(1):
                    carry[i] = b[block - 1]

    return main


def histogram(bins, block=256) -> ir.PrimFunc:
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), "int32"), counts: T.Tensor((bins,), "int32")):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < n:
                    T.atomic_add(counts[X[bx * block + i]], 1)

    return main


def histogram_reference(c, xp, X, counts):
    result, X = xp.i64(counts), xp.i64(X)
    xp.add_at(result, X, X * 0 + 1)
    return [result]


def embedding(D, dtype, block=64) -> ir.PrimFunc:
    """Rows of a table; an index of -1 gives zeros."""
    n, rows = T.dynamic("n, rows")

    @T.prim_func
    def main(
        table: T.Tensor((rows, D), dtype),
        index: T.Tensor((n,), "int32"),
        Y: T.Tensor((n, D), dtype),
    ):
        with T.Kernel(T.ceildiv(D, block), n, threads=64) as (bx, by):
            row = index[by]
            for j in T.Parallel(block):
                if bx * block + j < D:
                    Y[by, bx * block + j] = T.if_then_else(
                        row >= 0, table[T.max(row, 0), bx * block + j], 0
                    )

    return main


def embedding_reference(c, xp, table, index):
    index = xp.i64(index)
    rows = xp.f64(table)[xp.clip(index, 0, None)]
    return [xp.where((index >= 0)[:, None], rows, xp.zeros(rows.shape))]


def scatter_add(D, dtype) -> ir.PrimFunc:
    """The gradient of an embedding: rows add up where their indices are equal."""
    n, rows = T.dynamic("n, rows")

    @T.prim_func
    def main(
        G: T.Tensor((n, D), dtype),
        index: T.Tensor((n,), "int32"),
        table: T.Tensor((rows, D), "float32"),
    ):
        with T.Kernel(n, threads=64) as bx:
            for j in T.Parallel(D):
                T.atomic_add(table[index[bx], j], T.cast(G[bx, j], "float32"))

    return main


def scatter_add_reference(c, xp, G, index, table):
    result = xp.f64(table)
    xp.add_at(result, xp.i64(index), xp.f64(G))
    return [result]


def scatter_rows(D, dtype) -> ir.PrimFunc:
    """Rows go where a permutation says."""
    n = T.dynamic("n")

    @T.prim_func
    def main(
        X: T.Tensor((n, D), dtype), order: T.Tensor((n,), "int32"), Y: T.Tensor((n, D), dtype)
    ):
        with T.Kernel(n, threads=64) as bx:
            row = order[bx]
            for j in T.Parallel(D):
                Y[row, j] = X[bx, j]

    return main


def scatter_rows_reference(c, xp, X, order):
    return [xp.f64(X)[xp.order(xp.i64(order))]]


def spmv_csr(dtype, block=32) -> ir.PrimFunc:
    """A sparse matrix in compressed rows times a vector."""
    M, nnz, N = T.dynamic("m, nnz, n")

    @T.prim_func
    def main(
        values: T.Tensor((nnz,), dtype),
        columns: T.Tensor((nnz,), "int32"),
        starts: T.Tensor((M + 1,), "int32"),
        x: T.Tensor((N,), dtype),
        y: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M, threads=32) as bx:
            part = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(part)
            first, last = starts[bx], starts[bx + 1]
            for k in T.serial(T.ceildiv(last - first, block)):
                for i in T.Parallel(block):
                    at = first + k * block + i
                    if at < last:
                        part[i] += T.cast(values[at], "float32") * x[columns[at]]
            T.reduce_sum(part, total, dim=0)
            T.copy(total, y[bx : bx + 1])

    return main


def csr_inputs(c, draw):
    starts = draw.offsets(c.M, c.nnz)
    return [
        draw.normal((c.nnz,), c.dtype),
        draw.integers((c.nnz,), 0, c.N),
        starts,
        draw.normal((c.N,), c.dtype),
    ]


def csr_reference(c, xp, values, columns, starts, x):
    product = xp.f64(values) * xp.f64(x)[xp.i64(columns)]
    sums = xp.concatenate([xp.zeros((1,)), xp.cumsum(product, axis=0)])
    at = xp.i64(starts)
    return [sums[at[1:]] - sums[at[:-1]]]


def small_inverse(n, dtype="float32", block=16) -> ir.PrimFunc:
    """Inverses of many n x n matrices by Gauss-Jordan, one lane each."""
    batch = T.dynamic("batch")

    @T.prim_func
    def main(A: T.Tensor((batch, n, n), dtype), B: T.Tensor((batch, n, n), dtype)):
        with T.Kernel(T.ceildiv(batch, block), threads=block) as bx:
            a = T.alloc_local((n, 2 * n), "float32")
            at = bx * block + T.get_thread_binding()
            if at < batch:
                for i, j in T.grid(n, n):
                    a[i, j] = A[at, i, j]
                    a[i, n + j] = T.if_then_else(i == j, 1.0, 0.0)
                for p in T.serial(n):
                    pivot = T.alloc_var("float32", init=1.0)
                    pivot = 1.0 / a[p, p]
                    for j in T.serial(2 * n):
                        a[p, j] = a[p, j] * pivot
                    for i in T.serial(n):
                        if i != p:
                            factor = T.alloc_var("float32", init=0.0)
                            factor = a[i, p]
                            for j in T.serial(2 * n):
                                a[i, j] = a[i, j] - factor * a[p, j]
                for i, j in T.grid(n, n):
                    B[at, i, j] = a[i, n + j]

    return main


def inverse_inputs(c, draw):
    return [(draw.normal((c.batch, c.n, c.n)) * 0.3 + 2 * np.eye(c.n)).astype(np.float32)]


def bitonic_sort(n, dtype) -> ir.PrimFunc:
    """Rows of n (a power of two) entries, ascending."""
    M = T.dynamic("m")
    stages = n.bit_length() - 1

    @T.prim_func
    def main(X: T.Tensor((M, n), dtype), Y: T.Tensor((M, n), dtype)):
        with T.Kernel(M, threads=64) as bx:
            a = T.alloc_shared((n,), dtype)
            b = T.alloc_shared((n,), dtype)
            T.copy(X[bx, 0:n], a)
            for size in T.serial(1, stages + 1):
                for back in T.serial(size):
                    distance = 1 << (size - 1 - back)
                    for i in T.Parallel(n):
                        other = i ^ distance
                        up = (i >> size) % 2 == 0
                        smaller = (i < other) == up
                        b[i] = T.if_then_else(smaller, T.min(a[i], a[other]), T.max(a[i], a[other]))
                    T.copy(b, a)
            T.copy(a, Y[bx, 0:n])

    return main


def matrix(c, draw):
    """One (M, N) matrix."""
    return [draw.normal((c.M, c.N), c.dtype)]


ENTRIES = (
    Entry(
        top_k_gating,
        lambda c, draw: [
            draw.normal((c.M, c.experts), c.dtype),
            np.zeros(c.experts, np.int32),
        ],
        gating_reference,
        small=[{"M": 11, "experts": 16, "k": 3, "dtype": "float32"}],
        large={"M": 16384, "experts": 64, "k": 6, "dtype": "float32"},
        out=(1, 2),
        updates=(1,),
    ),
    Entry(
        cumsum_rows,
        matrix,
        lambda c, xp, X: [xp.cumsum(xp.f64(X), axis=1)],
        small=[{"M": 5, "N": 70, "dtype": "float32"}],
        large={"M": 4096, "N": 4096, "dtype": "float16", "block": 128},
        call_sizes=("M", "N"),
        limits={"float16": 1e-4},
    ),
    Entry(
        histogram,
        lambda c, draw: [draw.integers((c.n,), 0, c.bins), np.zeros(c.bins, np.int32)],
        histogram_reference,
        small=[{"n": 700, "bins": 10}],
        large={"n": 2**22, "bins": 256, "block": 1024},
        out=(),
        updates=(1,),
        call_sizes=("n",),
    ),
    Entry(
        embedding,
        lambda c, draw: [
            draw.normal((c.rows, c.D), c.dtype),
            draw.integers((c.n,), -1, c.rows),
        ],
        embedding_reference,
        small=[{"rows": 20, "n": 9, "D": 70, "dtype": "float16"}],
        large={"rows": 50257, "n": 8192, "D": 4096, "dtype": "bfloat16", "block": 512},
        call_sizes=("rows", "n"),
    ),
    Entry(
        scatter_add,
        lambda c, draw: [
            draw.normal((c.n, c.D), c.dtype),
            draw.integers((c.n,), 0, c.rows),
            draw.normal((c.rows, c.D)),
        ],
        scatter_add_reference,
        small=[{"rows": 6, "n": 20, "D": 40, "dtype": "float16"}],
        large={"rows": 1000, "n": 16384, "D": 1024, "dtype": "bfloat16"},
        out=(),
        updates=(2,),
        call_sizes=("rows", "n"),
    ),
    Entry(
        scatter_rows,
        lambda c, draw: [draw.normal((c.n, c.D), c.dtype), draw.permutation(c.n)],
        scatter_rows_reference,
        small=[{"n": 20, "D": 40, "dtype": "float16"}],
        large={"n": 16384, "D": 4096, "dtype": "bfloat16"},
        call_sizes=("n",),
    ),
    Entry(
        spmv_csr,
        csr_inputs,
        csr_reference,
        small=[{"M": 9, "N": 50, "nnz": 200, "dtype": "float32"}],
        large={"M": 16384, "N": 16384, "nnz": 2**20, "dtype": "float16", "block": 64},
        call_sizes=("M", "N", "nnz"),
    ),
    Entry(
        small_inverse,
        inverse_inputs,
        lambda c, xp, A: [xp.linalg.inv(xp.f64(A))],
        small=[{"batch": 20, "n": 4}],
        large={"batch": 2**18, "n": 4, "block": 128},
        call_sizes=("batch",),
    ),
    Entry(
        bitonic_sort,
        lambda c, draw: [draw.normal((c.M, c.n), c.dtype)],
        lambda c, xp, X: [xp.sorted(xp.f64(X))],
        small=[{"M": 3, "n": 32, "dtype": "float32"}, {"M": 2, "n": 16, "dtype": "int32"}],
        large={"M": 4096, "n": 1024, "dtype": "float32"},
        call_sizes=("M",),
    ),
)
