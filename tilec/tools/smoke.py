"""The smallest kernel worth compiling: the doctor's smoke test."""

from __future__ import annotations

import tilec.language as T
from tilec import ir

N = 256


def add_one() -> ir.PrimFunc:
    """``B = A + 1`` over 256 floats, through on-chip memory."""

    @T.prim_func
    def smoke(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")) -> None:  # type: ignore[valid-type]
        with T.Kernel(2, threads=128) as block:
            tile = T.alloc_fragment((N // 2,), "float32")
            T.copy(A[block * (N // 2)], tile)
            for i in T.Parallel(N // 2):
                tile[i] = tile[i] + 1.0
            T.copy(tile, B[block * (N // 2)])

    made: ir.PrimFunc = smoke
    return made
