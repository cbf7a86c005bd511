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

TALL_LAYOUT = Fragment(
    (64, 16),
    lambda i, j: (i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i % 16 // 8 * 2 + j % 2),
)
SHARED_ATOM = MatrixAtom(
    "m64n16k16", 64, 16, 16, "float16", "float16", "float32",
    homes=("shared", "shared", "local"), lanes=128, layouts=(None, None, TALL_LAYOUT),
    asynchronous=True,
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


def specialised_gemm(m: int, n: int, k: int, bm: int, bn: int, bk: int, stages: int) -> Any:
    """``C = A @ B.T``: warp 4 copies boxes into a ring, warps 0 to 3 multiply them."""
    wm, wn = bm // 2, bn // 2
    rows, cols = wm // 16, wn // 8
    size = (bm + bn) * bk * 2

    @T.prim_func
    def gemm(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(n // bn, m // bm, threads=160, warp=32) as (bx, by):
            t = T.get_thread_binding()
            sa = T.alloc_shared((stages, bm, bk), "float16")
            sb = T.alloc_shared((stages, bn, bk), "float16")
            out = T.alloc_shared((bm, bn), "float32")
            full = T.alloc_buffer((stages,), "uint64", scope="shared.barrier")
            empty = T.alloc_buffer((stages,), "uint64", scope="shared.barrier")
            if T.shuffle_elect(0):
                for s in T.unroll(stages):
                    T.mbarrier_init(full[s], 1)
                    T.mbarrier_init(empty[s], 128)
                T.fence_barrier_init()
            T.sync_threads()
            if t >= 128:
                T.set_max_nreg(40, 0)
                if T.shuffle_elect(32):
                    for s in T.serial(k // bk):
                        T.mbarrier_wait_parity(empty[s % stages], (s // stages + 1) % 2)
                        T.mbarrier_arrive_expect_tx(full[s % stages], size)
                        T.bulk_load(
                            sa[s % stages, 0:bm, 0:bk], A[by * bm, s * bk], full[s % stages]
                        )
                        T.bulk_load(
                            sb[s % stages, 0:bn, 0:bk], B[bx * bn, s * bk], full[s % stages]
                        )
            else:
                T.set_max_nreg(232, 1)
                lane = t % 32
                row, col = t // 64 * wm, t // 32 % 2 * wn
                a = T.alloc_local((8,), "float16")
                b = T.alloc_local((cols * 4,), "float16")
                c = T.alloc_local((rows * cols * 4,), "float32")
                for s in T.serial(k // bk):
                    T.mbarrier_wait_parity(full[s % stages], s // stages % 2)
                    for kk in T.unroll(bk // 16):
                        for j in T.unroll(cols):
                            T.ldmatrix(
                                b[j * 4 : j * 4 + 4],
                                sb[s % stages, col + j * 8 + lane % 8, kk * 16 + lane // 8 % 2 * 8],
                                num=2,
                            )
                        for i in T.unroll(rows):
                            T.ldmatrix(
                                a,
                                sa[s % stages, row + i * 16 + lane % 16, kk * 16 + lane // 16 * 8],
                                num=4,
                            )
                            for j in T.unroll(cols):
                                at = (i * cols + j) * 4
                                T.mma(
                                    c[at : at + 4], a, b[j * 4 : j * 4 + 4], s + kk > 0,
                                    atom=REGISTER_ATOM,
                                )  # fmt: skip
                    T.mbarrier_arrive(empty[s % stages])
                for i in T.unroll(rows):
                    for j in T.unroll(cols):
                        for e in T.unroll(4):
                            out[
                                row + i * 16 + lane // 4 + e // 2 * 8,
                                col + j * 8 + lane % 4 * 2 + e % 2,
                            ] = c[(i * cols + j) * 4 + e]
                T.fence_proxy_async()
                T.sync_threads(1, 128)
                if t == 0:
                    T.bulk_store(C[by * bm, bx * bn], out)
                    T.bulk_commit()
                    T.bulk_wait(0, read=True)

    return gemm


def asynchronous_gemm(m: int, n: int, k: int, stages: int) -> Any:
    """``C = A @ B.T`` by 64 x 16 tiles: copies arrive at barriers, and the mma is asynchronous."""
    bm, bn, bk = 64, 16, 32

    @T.prim_func
    def gemm(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(n // bn, m // bm, threads=128, warp=32) as (bx, by):
            t = T.get_thread_binding()
            sa = T.alloc_shared((stages, bm, bk), "float16")
            sb = T.alloc_shared((stages, bn, bk), "float16")
            full = T.alloc_barrier([128] * stages)
            c = T.alloc_local((8,), "float32")
            for s in T.serial(k // bk + stages - 1):
                if s < k // bk:
                    for r in T.unroll(2):
                        T.cp_async(
                            sa[s % stages, r * 32 + t // 4, t % 4 * 8],
                            A[by * bm + r * 32 + t // 4, s * bk + t % 4 * 8],
                            8,
                        )
                    if t < 64:
                        T.cp_async(
                            sb[s % stages, t // 4, t % 4 * 8],
                            B[bx * bn + t // 4, s * bk + t % 4 * 8],
                            8,
                        )
                    T.cp_async_barrier_noinc(full[s % stages])
                if s >= stages - 1:
                    now = s - (stages - 1)
                    T.mbarrier_wait_parity(full[now % stages], now // stages % 2)
                    T.fence_proxy_async()
                    T.mma_fence()
                    for kk in T.unroll(bk // 16):
                        T.mma(
                            c,
                            sa[now % stages, 0:bm, kk * 16 : kk * 16 + 16],
                            sb[now % stages, 0:bn, kk * 16 : kk * 16 + 16],
                            now + kk > 0,
                            atom=SHARED_ATOM,
                        )
                    T.mma_commit()
                    T.mma_wait(0)
                    T.sync_threads()
            for j in T.unroll(2):
                for e in T.unroll(4):
                    C[
                        by * bm + t // 32 * 16 + t % 32 // 4 + e // 2 * 8,
                        bx * bn + j * 8 + t % 4 * 2 + e % 2,
                    ] = c[j * 4 + e]

    return gemm


def attention(length: int, dim: int) -> Any:
    """``softmax(Q @ K.T) @ V`` for 64 queries a block, tiles of 32 keys; a warp has 16 queries."""
    keys = 32

    @T.prim_func
    def attend(
        Q: T.Tensor((length, dim), "float16"),
        K: T.Tensor((length, dim), "float16"),
        V: T.Tensor((length, dim), "float16"),
        O: T.Tensor((length, dim), "float32"),  # noqa: E741
    ):
        with T.Kernel(length // 64, threads=128, warp=32) as bx:
            t = T.get_thread_binding()
            lane = t % 32
            row = t // 32 * 16
            sq = T.alloc_shared((64, dim), "float16")
            sk = T.alloc_shared((keys, dim), "float16")
            sv = T.alloc_shared((keys, dim), "float16")
            q = T.alloc_local((dim // 16 * 8,), "float16")
            b = T.alloc_local((4,), "float16")
            p = T.alloc_local((keys // 16 * 8,), "float16")
            s = T.alloc_local((keys // 8 * 4,), "float32")
            o = T.alloc_local((dim // 8 * 4,), "float32")
            top = T.alloc_local((2,), "float32")
            old = T.alloc_local((2,), "float32")
            total = T.alloc_local((2,), "float32")
            for i in T.serial(64 * dim // 128):
                sq[(i * 128 + t) // dim, (i * 128 + t) % dim] = Q[
                    bx * 64 + (i * 128 + t) // dim, (i * 128 + t) % dim
                ]
            T.sync_threads()
            for i in T.unroll(dim // 16):
                T.ldmatrix(
                    q[i * 8 : i * 8 + 8], sq[row + lane % 16, i * 16 + lane // 16 * 8], num=4
                )
            for i in T.serial(dim // 8 * 4):
                o[i] = 0.0
            for i in T.unroll(2):
                top[i] = -1e30
                total[i] = 0.0
            for step in T.serial(length // keys):
                for i in T.serial(keys * dim // 128):
                    sk[(i * 128 + t) // dim, (i * 128 + t) % dim] = K[
                        step * keys + (i * 128 + t) // dim, (i * 128 + t) % dim
                    ]
                    sv[(i * 128 + t) // dim, (i * 128 + t) % dim] = V[
                        step * keys + (i * 128 + t) // dim, (i * 128 + t) % dim
                    ]
                T.sync_threads()
                for j in T.unroll(keys // 8):
                    for i in T.unroll(dim // 16):
                        T.ldmatrix(b, sk[j * 8 + lane % 8, i * 16 + lane // 8 % 2 * 8], num=2)
                        T.mma(
                            s[j * 4 : j * 4 + 4], q[i * 8 : i * 8 + 8], b, i > 0,
                            atom=REGISTER_ATOM,
                        )  # fmt: skip
                for h in T.unroll(2):
                    old[h] = top[h]
                    for j in T.unroll(keys // 8):
                        for e in T.unroll(2):
                            top[h] = T.max(top[h], s[j * 4 + h * 2 + e])
                    top[h] = T.max(top[h], T.shfl_xor(top[h], 1))
                    top[h] = T.max(top[h], T.shfl_xor(top[h], 2))
                    total[h] = total[h] * T.exp(old[h] - top[h])
                    for j in T.unroll(dim // 8):
                        for e in T.unroll(2):
                            o[j * 4 + h * 2 + e] = o[j * 4 + h * 2 + e] * T.exp(old[h] - top[h])
                    for j in T.unroll(keys // 8):
                        for e in T.unroll(2):
                            s[j * 4 + h * 2 + e] = T.exp(s[j * 4 + h * 2 + e] - top[h])
                            total[h] = total[h] + s[j * 4 + h * 2 + e]
                for i in T.serial(keys // 8 * 4):
                    p[i] = T.cast(s[i], "float16")
                for j in T.unroll(dim // 8):
                    for i in T.unroll(keys // 16):
                        T.ldmatrix(b, sv[i * 16 + lane % 16, j * 8], num=2, transpose=True)
                        T.mma(
                            o[j * 4 : j * 4 + 4], p[i * 8 : i * 8 + 8], b, True,
                            atom=REGISTER_ATOM,
                        )  # fmt: skip
                T.sync_threads()
            for h in T.unroll(2):
                total[h] = total[h] + T.shfl_xor(total[h], 1)
                total[h] = total[h] + T.shfl_xor(total[h], 2)
                for j in T.unroll(dim // 8):
                    for e in T.unroll(2):
                        O[bx * 64 + row + lane // 4 + h * 8, j * 8 + lane % 4 * 2 + e] = (
                            o[j * 4 + h * 2 + e] / total[h]
                        )

    return attend


def reduction(count: int) -> Any:
    """Sums of `count` numbers a block: shuffles, shared memory, and a barrier few wait at."""

    @T.prim_func
    def sums(A: T.Tensor((4, count), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=128, warp=32) as bx:
            t = T.get_thread_binding()
            parts = T.alloc_shared((4,), "float32")
            turned = T.alloc_shared((4, 32), "float32")
            x = T.alloc_var("float32", init=0.0)
            for i in T.serial(count // 128):
                x = x + A[bx, i * 128 + t]
            # Through shared memory within the warp, which sync_warp orders, then by shuffles.
            turned[t // 32, t % 32] = x
            T.sync_warp()
            x = turned[t // 32, 31 - t % 32]
            for i in T.unroll(5):
                x = x + T.shfl_xor(x, T.int32(16) >> i)
            if t % 32 == 0:
                parts[t // 32] = x
            if t < 32:
                T.sync_threads(1, 128)
                y = T.if_then_else(t < 4, parts[t % 4], T.float32(0))
                z = y + T.shfl_down(y, 2)
                w = z + T.shfl_down(z, 1)
                if t == 0:
                    B[bx] = w
            else:
                T.named_barrier_arrive(1, 128)

    return sums


def matrices(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands of ``A @ B.T`` whose products are exact, and the result."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (m, k)).astype(np.float16)
    b = rng.integers(-4, 5, (n, k)).astype(np.float16)
    return a, b, (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
