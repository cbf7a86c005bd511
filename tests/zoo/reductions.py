"""Reductions along axes, of everything, and where the largest is."""

from __future__ import annotations

import numpy as np

import tilec.language as T
from tilec import ir

from .registry import Entry


def matrix(c, draw):
    """One (M, N) matrix."""
    return [draw.normal((c.M, c.N), c.dtype)]


def reduce_axis(A, B, C, axis, dtype, kind="sum") -> ir.PrimFunc:
    """A 3-D tensor reduced along one axis, whole slices at a time."""
    kept = [n for i, n in enumerate((A, B, C)) if i != axis]

    @T.prim_func
    def main(X: T.Tensor((A, B, C), dtype), Y: T.Tensor(tuple(kept), dtype)):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_fragment((A, B, C), "float32")
            y = T.alloc_fragment(tuple(kept), "float32")
            T.copy(X, x)
            if kind == "sum":
                T.reduce_sum(x, y, dim=axis)
            elif kind == "max":
                T.reduce_max(x, y, dim=axis)
            else:
                T.reduce_abssum(x, y, dim=axis)
            T.copy(y, Y)

    return main


def reduce_axis_reference(c, xp, X):
    X = xp.f64(X)
    if c.kind == "max":
        return [xp.amax(X, axis=c.axis)]
    return [(xp.abs(X) if c.kind == "abssum" else X).sum(axis=c.axis)]


def reduce_columns(N, dtype, block_M=16, block_N=32) -> ir.PrimFunc:
    """Sum and largest absolute value of each column, tile after tile."""
    M = T.dynamic("m")

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype), total: T.Tensor((N,), "float32"), top: T.Tensor((N,), "float32")
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            sums = T.alloc_fragment((block_N,), "float32")
            tops = T.alloc_fragment((block_N,), "float32")
            part = T.alloc_fragment((block_N,), "float32")
            T.clear(sums)
            T.clear(tops)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], x)
                T.reduce_sum(x, sums, dim=0, clear=False)
                T.reduce_absmax(x, part, dim=0)
                for j in T.Parallel(block_N):
                    tops[j] = T.max(tops[j], part[j])
            T.copy(sums, total[bx * block_N : (bx + 1) * block_N])
            T.copy(tops, top[bx * block_N : (bx + 1) * block_N])

    return main


def sum_of_squares(dtype, block=256) -> ir.PrimFunc:
    """One number from all blocks, by atomics."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), dtype), Y: T.Tensor((1,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            x = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx * block], x)
            for i in T.Parallel(block):
                x[i] *= x[i]
            T.reduce_sum(x, total, dim=0)
            for i in T.Parallel(1):  # once, not once for each lane
                T.atomic_add(Y[i], total[i])

    return main


def argmax(N, dtype, block_M=4) -> ir.PrimFunc:
    """The first column with the largest entry."""
    M = T.dynamic("m")

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M,), "int32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), dtype)
            column = T.alloc_fragment((block_M, N), "int32")
            top = T.alloc_fragment((block_M,), dtype)
            first = T.alloc_fragment((block_M,), "int32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(block_M, N):
                column[i, j] = T.if_then_else(x[i, j] == top[i], j, N)
            T.reduce_min(column, first, dim=1)
            T.copy(first, Y[bx * block_M])

    return main


CUBE = {"A": 5, "B": 12, "C": 9}


ENTRIES = (
    Entry(
        reduce_axis,
        lambda c, draw: [draw.normal((c.A, c.B, c.C), c.dtype)],
        reduce_axis_reference,
        small=[
            {**CUBE, "axis": 0, "dtype": "float32"},
            {**CUBE, "axis": 1, "dtype": "float16", "kind": "max"},
            {**CUBE, "axis": 2, "dtype": "float32", "kind": "abssum"},
        ],
        large={"A": 16, "B": 32, "C": 64, "axis": 1, "dtype": "float16"},
    ),
    Entry(
        reduce_columns,
        matrix,
        lambda c, xp, X: [xp.f64(X).sum(axis=0), xp.amax(xp.abs(xp.f64(X)), axis=0)],
        small=[{"M": 50, "N": 70, "dtype": "float16"}],
        large={"M": 8192, "N": 8192, "dtype": "bfloat16", "block_M": 64, "block_N": 128},
        out=(-2, -1),
        call_sizes=("M",),
    ),
    Entry(
        sum_of_squares,
        lambda c, draw: [draw.normal((c.n,), c.dtype), np.zeros(1, np.float32)],
        lambda c, xp, X, Y: [(xp.f64(X) ** 2).sum(axis=0).reshape(1)],
        small=[{"n": 1000, "dtype": "float16"}],
        large={"n": 2**22 + 5, "dtype": "bfloat16", "block": 1024},
        out=(),
        updates=(1,),
        call_sizes=("n",),
        limits={"bfloat16": 1e-4},
    ),
    Entry(
        argmax,
        matrix,
        lambda c, xp, X: [xp.order(-xp.f64(X))[:, 0]],
        small=[{"M": 13, "N": 50, "dtype": "float32"}, {"M": 5, "N": 40, "dtype": "float16"}],
        large={"M": 16384, "N": 4096, "dtype": "bfloat16", "block_M": 1},
        call_sizes=("M",),
    ),
)
