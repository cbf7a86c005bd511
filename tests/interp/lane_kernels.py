"""Kernels in thread form, written by hand, that the tests of the interpreter run."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilec.language as T
from tilec.layout import Fragment
from tilec.transform.capabilities import MatrixAtom

WARP = 32

A_LAYOUT = Fragment(
    (16, 16), lambda i, j: (i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i // 8 * 2 + j % 2)
)
B_LAYOUT = Fragment((8, 16), lambda i, j: (i * 4 + j % 8 // 2, j // 8 * 2 + j % 2))
C_LAYOUT = Fragment((16, 8), lambda i, j: (i % 8 * 4 + j // 2, i // 8 * 2 + j % 2))
REGISTER_ATOM = MatrixAtom(
    "m16n8k16", 16, 8, 16, "float16", "float16", "float32",
    layouts=(A_LAYOUT, B_LAYOUT, C_LAYOUT),
)  # fmt: skip


def pipelined_gemm(m: int, n: int, k: int, bm: int, bn: int, bk: int, stages: int) -> Any:
    """``C = A @ B.T`` with a ring of `stages` tiles that cp.async fills; four warps."""
    wm, wn = bm // 2, bn // 2  # the tile of a warp
    rows, cols = wm // 16, wn // 8
    a_runs, b_runs = bm * bk // 8 // 128, bn * bk // 8 // 128

    @T.prim_func
    def gemm(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(n // bn, m // bm, threads=128, warp=32) as (bx, by):
            t = T.get_thread_binding()
            lane = t % 32
            row, col = t // 64 * wm, t // 32 % 2 * wn
            sa = T.alloc_shared((stages, bm, bk), "float16")
            sb = T.alloc_shared((stages, bn, bk), "float16")
            a = T.alloc_local((rows * 8,), "float16")
            b = T.alloc_local((cols * 4,), "float16")
            c = T.alloc_local((rows * cols * 4,), "float32")
            for i in T.serial(rows * cols * 4):
                c[i] = 0.0
            for p in T.unroll(stages - 1):
                for r in T.unroll(a_runs):
                    q = r * 128 + t
                    y, x = q // (bk // 8), q % (bk // 8) * 8
                    T.cp_async(sa[p, y, x], A[by * bm + y, p * bk + x], 8)
                for r in T.unroll(b_runs):
                    q = r * 128 + t
                    y, x = q // (bk // 8), q % (bk // 8) * 8
                    T.cp_async(sb[p, y, x], B[bx * bn + y, p * bk + x], 8)
                T.cp_async_commit()
            for s in T.serial(k // bk):
                T.cp_async_wait(stages - 2)
                T.sync_threads()
                ahead = s + stages - 1
                if ahead < k // bk:
                    for r in T.unroll(a_runs):
                        q = r * 128 + t
                        y, x = q // (bk // 8), q % (bk // 8) * 8
                        T.cp_async(sa[ahead % stages, y, x], A[by * bm + y, ahead * bk + x], 8)
                    for r in T.unroll(b_runs):
                        q = r * 128 + t
                        y, x = q // (bk // 8), q % (bk // 8) * 8
                        T.cp_async(sb[ahead % stages, y, x], B[bx * bn + y, ahead * bk + x], 8)
                T.cp_async_commit()
                for kk in T.unroll(bk // 16):
                    for i in T.unroll(rows):
                        T.ldmatrix(
                            a[i * 8 : i * 8 + 8],
                            sa[s % stages, row + i * 16 + lane % 16, kk * 16 + lane // 16 * 8],
                            num=4,
                        )
                    for j in T.unroll(cols):
                        T.ldmatrix(
                            b[j * 4 : j * 4 + 4],
                            sb[s % stages, col + j * 8 + lane % 8, kk * 16 + lane // 8 % 2 * 8],
                            num=2,
                        )
                    for i in T.unroll(rows):
                        for j in T.unroll(cols):
                            at = (i * cols + j) * 4
                            T.mma(
                                c[at : at + 4], a[i * 8 : i * 8 + 8], b[j * 4 : j * 4 + 4], True,
                                atom=REGISTER_ATOM,
                            )  # fmt: skip
            for i in T.unroll(rows):
                for j in T.unroll(cols):
                    for e in T.unroll(4):
                        C[
                            by * bm + row + i * 16 + lane // 4 + e // 2 * 8,
                            bx * bn + col + j * 8 + lane % 4 * 2 + e % 2,
                        ] = c[(i * cols + j) * 4 + e]

    return gemm


def matrices(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands of ``A @ B.T`` whose products are exact, and the result."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (m, k)).astype(np.float16)
    b = rng.integers(-4, 5, (n, k)).astype(np.float16)
    return a, b, (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
