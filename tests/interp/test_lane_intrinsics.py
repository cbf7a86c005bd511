"""What each intrinsic of lanes means, against NumPy; every program passes all checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lane_kernels import C_LAYOUT, REGISTER_ATOM, SHARED_ATOM, TALL_LAYOUT

import tilec.language as T
from tilec import interp
from tilec.layout import Fragment
from tilec.transform.capabilities import MatrixAtom


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def run(func: Any, *args: Any) -> None:
    """Run without checks and with them; both have to agree, where arguments are written."""
    copies = [a.copy() for a in args]
    interp.run(func, *copies)
    interp.run(func, *args, check=True)
    for a, b in zip(args, copies, strict=True):
        np.testing.assert_array_equal(a, b)


# shuffles and votes


@pytest.mark.parametrize("width", [4, 8, 32])
@pytest.mark.parametrize("kind", ["sync", "xor", "up", "down"])
def test_shuffles(kind: str, width: int) -> None:
    shuffle = {"sync": T.shfl_sync, "xor": T.shfl_xor, "up": T.shfl_up, "down": T.shfl_down}[kind]

    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            B[t] = shuffle(A[t], 3, width)

    a, b = numbers(64), np.zeros(64, np.float32)
    run(program, a, b)
    lane = np.arange(64)
    inner, base = lane % width, lane // width * width
    moved = {"sync": 3 % width, "xor": inner ^ 3, "up": inner - 3, "down": inner + 3}[kind]
    source = np.where((moved >= 0) & (moved < width), base + moved, lane)
    np.testing.assert_array_equal(b, a[source])


def test_shuffles_of_some_warps_only_and_of_lanes_that_differ() -> None:
    @T.prim_func
    def program(A: T.Tensor((96,), "int32"), B: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96, warp=32):
            t = T.get_thread_binding()
            x = T.alloc_var("int32", init=0)
            if t // 32 != 1:
                x = T.shfl_sync(A[t], (t * 7) % 32)
            B[t] = x

    a, b = numbers(96, dtype=np.int32), np.zeros(96, np.int32)
    run(program, a, b)
    lane = np.arange(96)
    wanted = np.where(lane // 32 != 1, a[lane // 32 * 32 + lane * 7 % 32], 0)
    np.testing.assert_array_equal(b, wanted)


def test_votes_and_elections() -> None:
    @T.prim_func
    def program(A: T.Tensor((64,), "int32"), B: T.Tensor((64, 6), "int64")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            B[t, 0] = T.any_sync(A[t] > 100)
            B[t, 1] = T.all_sync(A[t] >= 0)
            B[t, 2] = T.ballot_sync(A[t] % 2 == 0)
            B[t, 3] = T.cast(T.shuffle_elect(0), "int64")
            B[t, 4] = T.cast(T.shuffle_elect(32), "int64")
            B[t, 5] = T.cast(T.shuffle_elect(16), "int64")

    a = np.abs(numbers(64, dtype=np.int32))
    a[40] = 101
    a[3] = -1
    b = np.zeros((64, 6), np.int64)
    run(program, a, b)
    halves = a.reshape(2, 32)
    lane = np.arange(64)
    even = ((halves % 2 == 0) << np.arange(32)).sum(1)
    np.testing.assert_array_equal(b[:, 0], np.repeat([0, 1], 32))
    np.testing.assert_array_equal(b[:, 1], np.repeat([0, 1], 32))
    np.testing.assert_array_equal(b[:, 2], np.repeat(even, 32))
    np.testing.assert_array_equal(b[:, 3], lane == 0)
    np.testing.assert_array_equal(b[:, 4], lane % 32 == 0)
    np.testing.assert_array_equal(b[:, 5], lane % 16 == 0)


def test_sync_warp_orders_lanes_of_a_warp() -> None:
    @T.prim_func
    def program(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            s[t] = A[t]
            T.sync_warp()
            B[t] = s[t // 32 * 32 + 31 - t % 32]

    a, b = numbers(64, dtype=np.int32), np.zeros(64, np.int32)
    run(program, a, b)
    np.testing.assert_array_equal(b, a.reshape(2, 32)[:, ::-1].reshape(-1))


# barriers of the block


def test_named_barriers_let_halves_of_a_block_go_their_own_ways() -> None:
    @T.prim_func
    def program(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), "int32")
            if t < 64:
                for i in T.serial(3):
                    s[t] = A[t] + i
                    T.sync_threads(1, 64)
                    B[t] = s[63 - t]
                    T.sync_threads(1, 64)
            else:
                s[t] = A[t]
                T.sync_threads(2, 64)
                B[t] = s[191 - t]

    a, b = numbers(128, dtype=np.int32), np.zeros(128, np.int32)
    run(program, a, b)
    np.testing.assert_array_equal(b, np.r_[a[:64][::-1] + 2, a[64:][::-1]])


def test_a_named_barrier_hands_work_over() -> None:
    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((32,), "int32")
            if t < 32:
                for i in T.serial(4):
                    s[t] = i * 100 + t
                    T.named_barrier_arrive(1, 64)  # full
                    T.sync_threads(2, 64)  # empty
            else:
                total = T.alloc_var("int32", init=0)
                for _ in T.serial(4):
                    T.sync_threads(1, 64)
                    total = total + s[63 - t]
                    T.named_barrier_arrive(2, 64)
                B[t] = total

    b = np.zeros(64, np.int32)
    run(program, b)
    np.testing.assert_array_equal(b[32:], 600 + 4 * np.arange(31, -1, -1))


# asynchronous copies of a few elements


def test_cp_async_with_predicates_outside_and_groups() -> None:
    @T.prim_func
    def program(A: T.Tensor((6, 8), "float16"), B: T.Tensor((2, 32, 8), "float16")):
        with T.Kernel(1, threads=32, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((2, 32, 8), "float16")
            T.cp_async(s[0, t, 0], A[t, 0], 8, t < 6)
            T.cp_async_commit()
            T.cp_async(s[1, t, 0], A[t, 0], 8)  # outside of A: zeros
            T.cp_async_commit()
            T.cp_async_wait(1)
            for i in T.serial(8):
                B[0, t, i] = s[0, t, i]
            T.cp_async_wait(0)
            for i in T.serial(8):
                B[1, t, i] = s[1, t, i]

    a, b = numbers(6, 8, dtype=np.float16), np.ones((2, 32, 8), np.float16)
    run(program, a, b)
    wanted = np.zeros((32, 8), np.float16)
    wanted[:6] = a
    np.testing.assert_array_equal(b, np.stack([wanted, wanted]))


def test_cp_async_arrives_at_a_barrier() -> None:
    @T.prim_func
    def program(A: T.Tensor((64, 4), "float32"), B: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64, 4), "float32")
            ready = T.alloc_barrier(64)
            T.cp_async(s[t, 0], A[t, 0], 4)
            T.cp_async_barrier_noinc(ready[0])
            T.mbarrier_wait_parity(ready[0], 0)
            for i in T.serial(4):
                B[t, i] = s[63 - t, i]

    a, b = numbers(64, 4), np.zeros((64, 4), np.float32)
    run(program, a, b)
    np.testing.assert_array_equal(b, a[::-1])


# transaction barriers and boxes


@pytest.mark.parametrize(("row", "col"), [(0, 0), (-3, 2), (4, 5), (9, 9)])
def test_boxes_are_filled_with_zeros_and_cut_off_outside(row: int, col: int) -> None:
    @T.prim_func
    def program(
        A: T.Tensor((8, 8), "float32"), B: T.Tensor((8, 8), "float32"), at: T.int32, by: T.int32
    ):
        with T.Kernel(1, threads=32, warp=32):
            s = T.alloc_shared((4, 8), "float32")
            ready = T.alloc_barrier(1)
            if T.shuffle_elect(0):
                T.mbarrier_expect_tx(ready[0], 4 * 8 * 4)
                T.bulk_load(s, A[at, by], ready[0])
                T.mbarrier_arrive(ready[0])
                T.mbarrier_wait_parity(ready[0], 0)
                T.bulk_store(B[at, by], s)
                T.bulk_commit()
                T.bulk_wait(0)

    a, b = numbers(8, 8), np.full((8, 8), 77, np.float32)
    interp.run(program, a, b, row, col, check=True)
    wanted = np.full((8, 8), 77, np.float32)
    rows = slice(max(row, 0), max(min(row + 4, 8), 0))
    cols = slice(max(col, 0), max(min(col + 8, 8), 0))
    wanted[rows, cols] = a[rows, cols]
    np.testing.assert_array_equal(b, wanted)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("op", ["add", "min", "max"])
def test_bulk_stores_that_combine(op: Any, dtype: str) -> None:
    @T.prim_func
    def program(A: T.Tensor((2, 16), dtype), B: T.Tensor((16,), dtype)):
        with T.Kernel(2, threads=32, warp=32) as bx:
            s = T.alloc_shared((16,), dtype)
            ready = T.alloc_barrier(1)
            if T.shuffle_elect(0):
                T.mbarrier_arrive_expect_tx(ready[0], 64)
                T.bulk_load(s, A[bx, 0:16], ready[0])
                T.mbarrier_wait_parity(ready[0], 0)
                T.bulk_store(B, s, reduce=op)
                T.bulk_commit()
                T.bulk_wait(0)

    a, b = numbers(2, 16, dtype=dtype), numbers(16, dtype=dtype, seed=1)
    ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum}[op]
    wanted = ufunc(ufunc(b, a[0]), a[1])
    run(program, a, b)
    np.testing.assert_array_equal(b, wanted)


def test_phases_and_parities() -> None:
    """Before anything arrives the phase before the first one counts as completed."""

    @T.prim_func
    def program(B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((1,), "int32")
            full = T.alloc_barrier(1)
            empty = T.alloc_barrier([32])
            if t < 32:
                if t == 0:
                    for i in T.serial(8):
                        T.mbarrier_wait_parity(empty[0], (i + 1) % 2)
                        s[0] = i * i
                        T.mbarrier_arrive(full[0])
            else:
                for i in T.serial(8):
                    T.mbarrier_wait_parity(full[0], i % 2)
                    if t == 40:
                        B[i] = s[0]
                    T.mbarrier_arrive(empty[0])

    b = np.zeros(8, np.int32)
    run(program, b)
    np.testing.assert_array_equal(b, np.arange(8) ** 2)


def test_two_barriers_whose_lanes_differ() -> None:
    @T.prim_func
    def program(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            ready = T.alloc_barrier([32, 32])
            s[t] = A[t]
            T.mbarrier_arrive(ready[t // 32])
            T.mbarrier_wait_parity(ready[1 - t // 32], 0)
            B[t] = s[63 - t]

    a, b = numbers(64, dtype=np.int32), np.zeros(64, np.int32)
    run(program, a, b)
    np.testing.assert_array_equal(b, a[::-1])


# matrices


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("num", [1, 2, 4])
def test_ldmatrix_and_stmatrix(num: int, transpose: bool) -> None:
    @T.prim_func
    def program(
        A: T.Tensor((32, 8), "float16"),
        B: T.Tensor((32, 8), "float16"),
        C: T.Tensor((32, 8), "float16"),
    ):
        with T.Kernel(1, threads=32, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((32, 8), "float16")
            d = T.alloc_shared((32, 8), "float16")
            r = T.alloc_local((2 * num,), "float16")
            for i in T.serial(8):
                s[t, i] = A[t, i]
                d[t, i] = T.float16(0)
            T.sync_warp()
            T.ldmatrix(r, s[t, 0], num=num, transpose=transpose)
            for i in T.serial(2 * num):
                B[t, i] = r[i]
            T.sync_warp()
            T.stmatrix(d[t, 0], r, num=num, transpose=transpose)
            T.sync_warp()
            for i in T.serial(8):
                C[t, i] = d[t, i]

    a = numbers(32, 8, dtype=np.float16)
    b, c = np.zeros((32, 8), np.float16), np.zeros((32, 8), np.float16)
    run(program, a, b, c)
    lane = np.arange(32)
    for q in range(num):
        matrix = a[8 * q : 8 * q + 8]
        matrix = matrix.T if transpose else matrix
        for e in (0, 1):
            np.testing.assert_array_equal(b[:, 2 * q + e], matrix[lane // 4, lane % 4 * 2 + e])
    np.testing.assert_array_equal(c[: 8 * num], a[: 8 * num])
    assert not c[8 * num :].any()


def _mma_program(atom: MatrixAtom, a_type: str, c_type: str, keep: bool) -> Any:
    m, n, k = atom.m, atom.n, atom.k
    a_map, b_map, c_map = atom.layouts

    @T.prim_func
    def program(
        A: T.Tensor((m, k), a_type),
        B: T.Tensor((n, k), a_type),
        C: T.Tensor((m, n), c_type),
        L: T.Tensor((3, 32, 16, 2), "int32"),
    ):
        with T.Kernel(1, threads=32, warp=32):
            t = T.get_thread_binding()
            a = T.alloc_local((a_map.register_extent,), a_type)
            b = T.alloc_local((b_map.register_extent,), a_type)
            c = T.alloc_local((c_map.register_extent,), c_type)
            for r in T.serial(a_map.register_extent):
                a[r] = A[L[0, t, r, 0], L[0, t, r, 1]]
            for r in T.serial(b_map.register_extent):
                b[r] = B[L[1, t, r, 0], L[1, t, r, 1]]
            for r in T.serial(c_map.register_extent):
                c[r] = C[L[2, t, r, 0], L[2, t, r, 1]]
            T.mma(c, a, b, keep, atom=atom)
            for r in T.serial(c_map.register_extent):
                C[L[2, t, r, 0], L[2, t, r, 1]] = c[r]

    places = np.zeros((3, 32, 16, 2), np.int32)
    for number, layout in enumerate(atom.layouts):
        for index in np.ndindex(*layout.input_shape):
            for rep in range(layout.replicate_extent):
                lane = layout.thread_table[(*index, rep)]
                places[number, lane, layout.register_table[(*index, rep)]] = index
    return program, places


WIDE = MatrixAtom(
    "i8", 16, 8, 32, "int8", "int8", "int32",
    layouts=(
        Fragment(
            (16, 32), lambda i, j: (i % 8 * 4 + j % 16 // 4, j // 16 * 8 + i // 8 * 4 + j % 4)
        ),
        Fragment((8, 32), lambda i, j: (i * 4 + j % 16 // 4, j // 16 * 4 + j % 4)),
        C_LAYOUT,
    ),
)  # fmt: skip
HALF = MatrixAtom("f16", 16, 8, 16, "float16", "float16", "float16", layouts=REGISTER_ATOM.layouts)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("atom", "a_type", "c_type"),
    [(REGISTER_ATOM, "float16", "float32"), (WIDE, "int8", "int32"), (HALF, "float16", "float16")],
    ids=["f16", "i8", "f16 accumulator"],
)
def test_mma_of_registers(atom: MatrixAtom, a_type: str, c_type: str, keep: bool) -> None:
    program, places = _mma_program(atom, a_type, c_type, keep)
    a, b = numbers(atom.m, atom.k, dtype=a_type), numbers(atom.n, atom.k, dtype=a_type, seed=1)
    c = numbers(atom.m, atom.n, dtype=c_type, seed=2)
    wanted = a.astype(np.int64) @ b.astype(np.int64).T + (c.astype(np.int64) if keep else 0)
    run(program, a, b, c, places)
    np.testing.assert_array_equal(c, wanted.astype(c_type))


def test_an_accumulator_is_rounded_once() -> None:
    """Sums are wide; the result is rounded to the accumulator's type."""
    program, places = _mma_program(HALF, "float16", "float16", True)
    a = np.full((16, 16), 0.75, np.float16)
    b = np.full((8, 16), 33.3, np.float16)
    c = np.full((16, 8), 2048, np.float16)
    wanted = (c.astype(float) + a.astype(float) @ b.astype(float).T).astype(np.float16)
    run(program, a, b, c, places)
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_mma_of_shared_operands(transpose_a: bool, transpose_b: bool) -> None:
    a_shape = (16, 64) if transpose_a else (64, 16)
    b_shape = (16, 16)

    @T.prim_func
    def program(
        A: T.Tensor(a_shape, "float16"),
        B: T.Tensor(b_shape, "float16"),
        C: T.Tensor((64, 16), "float32"),
    ):
        with T.Kernel(1, threads=128, warp=32):
            t = T.get_thread_binding()
            sa = T.alloc_shared(a_shape, "float16")
            sb = T.alloc_shared(b_shape, "float16")
            c = T.alloc_local((8,), "float32")
            for i in T.serial(8):
                at = i * 128 + t
                sa[at // a_shape[1], at % a_shape[1]] = A[at // a_shape[1], at % a_shape[1]]
            for i in T.serial(2):
                at = i * 128 + t
                sb[at // 16, at % 16] = B[at // 16, at % 16]
            T.fence_proxy_async()
            T.sync_threads()
            T.mma_fence()
            T.mma(
                c, sa, sb, False, atom=SHARED_ATOM,
                transpose_a=transpose_a, transpose_b=transpose_b,
            )  # fmt: skip
            T.mma_commit()
            T.mma_wait(0)
            for j in T.unroll(2):
                for e in T.unroll(4):
                    C[t // 32 * 16 + t % 32 // 4 + e // 2 * 8, j * 8 + t % 4 * 2 + e % 2] = c[
                        j * 4 + e
                    ]

    a, b = numbers(*a_shape, dtype=np.float16), numbers(*b_shape, dtype=np.float16, seed=1)
    c = np.zeros((64, 16), np.float32)
    run(program, a, b, c)
    left = (a.T if transpose_a else a).astype(np.float32)
    right = (b if transpose_b else b.T).astype(np.float32)
    np.testing.assert_array_equal(c, left @ right)
    assert TALL_LAYOUT.thread_extent == 128


# other things


def test_atomics_of_lanes() -> None:
    @T.prim_func
    def program(A: T.Tensor((64,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((4,), "int32")
            if t < 4:
                s[t] = 0
            T.sync_threads()
            T.atomic_add(s[t % 4], A[t])
            T.sync_threads()
            if t < 4:
                T.atomic_add(B[t], s[t])
            T.set_max_nreg(24, 0)

    a, b = numbers(64, dtype=np.int32), np.zeros(4, np.int32)
    run(program, a, b)
    np.testing.assert_array_equal(b, 2 * a.reshape(16, 4).sum(0))


def test_lanes_in_three_dimensions() -> None:
    @T.prim_func
    def program(B: T.Tensor((4, 2, 16), "int32")):
        with T.Kernel(1, threads=(16, 2, 4), warp=32):
            x, y, z = T.get_thread_bindings()
            B[z, y, x] = T.shfl_sync(x + 100 * y + 1000 * z, 31)

    b = np.zeros((4, 2, 16), np.int32)
    run(program, b)
    np.testing.assert_array_equal(b, np.broadcast_to(
        15 + 100 + 1000 * np.arange(4)[:, None, None], b.shape))  # fmt: skip
