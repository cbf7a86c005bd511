"""Matrix multiplications on lane machines, lowered to thread form and run by the interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilec.language as T
from tilec import ir
from tilec.interp import run
from tilec.simt.stages import thread_stages
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities

_NUMPY = {
    "bfloat16": ml_dtypes.bfloat16, "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2, "tfloat32": np.float32,
}  # fmt: skip


def gemm_program(
    size: tuple[int, int, int],
    block: tuple[int, int, int],
    dtypes: tuple[str, str],
    swapped: tuple[bool, bool] = (False, False),
    threads: int = 128,
    num_stages: int = 0,
    policy: int = 0,
) -> ir.PrimFunc:
    """``C = op(A) @ op(B)`` as a user writes it."""
    (M, N, K), (bm, bn, bk), (dtype, acc), (ta, tb) = size, block, dtypes, swapped
    a_shape, b_shape = (K, M) if ta else (M, K), (N, K) if tb else (K, N)
    a_tile, b_tile = (bk, bm) if ta else (bm, bk), (bn, bk) if tb else (bk, bn)

    @T.prim_func
    def program(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), acc)):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=threads) as (bx, by):
            As = T.alloc_shared(a_tile, dtype)
            Bs = T.alloc_shared(b_tile, dtype)
            Cl = T.alloc_fragment((bm, bn), acc)
            T.clear(Cl)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=num_stages):
                if ta:
                    T.copy(A[k * bk, by * bm], As)
                else:
                    T.copy(A[by * bm, k * bk], As)
                if tb:
                    T.copy(B[bx * bn, k * bk], Bs)
                else:
                    T.copy(B[k * bk, bx * bn], Bs)
                T.gemm(As, Bs, Cl, transpose_A=ta, transpose_B=tb, policy=T.GemmWarpPolicy(policy))
            T.copy(Cl, C[by * bm, bx * bn])

    return program


def lowered(
    func: ir.PrimFunc, capabilities: Capabilities, **options: Any
) -> tuple[ir.PrimFunc, list[str]]:
    """Thread form with barriers, and the remarks."""
    ctx = PassContext(capabilities=capabilities)
    module = ir.Module({func.name: func})
    for stage in thread_stages(**options):
        for step in stage.passes:
            module = step.run(module, ctx)
    return module.functions[func.name], [r.message for r in ctx.remarks]


def inputs(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> np.ndarray[Any, np.dtype[Any]]:
    """Small whole numbers, which every dtype and every sum of products holds exactly."""
    low = 0 if dtype.startswith("uint") else -4
    return rng.integers(low, 5, shape).astype(_NUMPY.get(dtype, dtype))


def check_gemm(capabilities: Capabilities, *args: Any, **kwargs: Any) -> list[str]:
    """Lower and run a gemm with all checks; the remarks."""
    func, notes = lowered(gemm_program(*args, **kwargs), capabilities)
    rng = np.random.default_rng(7)
    a, b, c = func.params
    left, right = (inputs(x.shape, str(x.dtype), rng) for x in (a, b))
    result = np.zeros(c.shape, _NUMPY.get(str(c.dtype), str(c.dtype)))
    run(func, left, right, result, check=True, form="thread")
    ta, tb = args[3] if len(args) > 3 else kwargs.get("swapped", (False, False))
    wide = [x.astype(np.float64) for x in (left, right)]
    expected = (wide[0].T if ta else wide[0]) @ (wide[1].T if tb else wide[1])
    np.testing.assert_array_equal(result.astype(np.float64), expected)
    return notes
