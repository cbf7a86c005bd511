"""Lanes that go different ways through code in which they wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec import interp, ir
from tilec.backend import Meaning
from tilec.diagnostics import (
    BarrierError,
    CapabilityError,
    DeadlockError,
    DivergenceError,
    InternalError,
    KernelRuntimeError,
    RaceError,
)
from tilec.interp.machine import LimitError


def run(func: Any, *args: Any, **options: Any) -> None:
    copies = [a.copy() for a in args]
    interp.run(func, *copies, **options)
    interp.run(func, *args, check=True, **options)
    for a, b in zip(args, copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_warps_leave_a_loop_at_different_trips() -> None:
    @T.prim_func
    def program(B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128, warp=32):
            t = T.get_thread_binding()
            w = t // 32
            s = T.alloc_shared((4, 32), "int32")
            x = T.alloc_var("int32", init=0)
            for i in T.serial(10):
                if i > w:
                    break
                s[w, t % 32] = i + t
                T.sync_warp()
                x = x + s[w, 31 - t % 32]
                T.sync_warp()
            B[t] = x
            T.sync_threads()

    b = np.zeros(128, np.int32)
    run(program, b)
    lane = np.arange(128)
    wanted = [sum(i + t // 32 * 32 + 31 - t % 32 for i in range(t // 32 + 1)) for t in lane]
    np.testing.assert_array_equal(b, wanted)


@pytest.mark.parametrize("jump", ["break", "continue", "none"])
def test_jumps_of_warps_around_a_barrier_of_the_others(jump: str) -> None:
    """Warp 1 leaves the loop, or a trip of it, before a barrier that only the rest counts."""

    @T.prim_func
    def program(B: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((96,), "int32")
            x = T.alloc_var("int32", init=0)
            for i in T.serial(4):
                if t // 32 == 1:
                    x = x + 1000
                    if jump == "break":
                        break
                    if jump == "continue":
                        continue
                if t // 32 != 1:
                    s[t] = i
                    T.sync_threads(1, 64)
                    x = x + s[95 - t]
                    T.sync_threads(1, 64)
            T.sync_threads()
            s[t] = x
            T.sync_threads()
            B[t] = s[95 - t]

    b = np.zeros(96, np.int32)
    run(program, b)
    assert set(b[:32]) == set(b[64:]) == {6}
    assert set(b[32:64]) == ({1000} if jump == "break" else {4000})


def test_a_while_loop_with_a_barrier_and_different_numbers_of_trips() -> None:
    @T.prim_func
    def program(N: T.Tensor((2,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            left = T.alloc_var("int32", init=N[t // 32])
            x = T.alloc_var("int32", init=0)
            if t < 32:
                while left > 0:
                    s[t] = left
                    T.sync_threads(1, 32)
                    x = x + s[31 - t]
                    T.sync_threads(1, 32)
                    left = left - 1
            else:
                while left > 0:
                    x = x + 1
                    T.sync_threads(2, 32)
                    left = left - 1
            B[t] = x

    b = np.zeros(64, np.int32)
    run(program, np.array([3, 5], np.int32), b)
    np.testing.assert_array_equal(b, np.repeat([6, 5], 32))


def test_those_that_skip_a_branch_need_not_wait_for_it() -> None:
    """The other lanes go on, also those of the same warp, and what they do ends the wait."""

    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            ready = T.alloc_barrier(63)
            if t == 0:
                T.mbarrier_wait_parity(ready[0], 0)
            if t != 0:
                T.mbarrier_arrive(ready[0])
            x = T.shfl_sync(t, 0)  # all lanes of the warp are together again
            T.sync_threads()
            B[t] = x

    b = np.zeros(64, np.int32)
    run(program, b)
    np.testing.assert_array_equal(b, np.repeat([0, 32], 32))


def test_warps_that_return_early() -> None:
    @T.prim_func
    def program(B: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            if t >= 64:
                B[t] = -1
                return
            s[t] = t
            T.sync_threads(1, 64)
            B[t] = s[63 - t]

    b = np.zeros(96, np.int32)
    run(program, b)
    np.testing.assert_array_equal(b, np.r_[np.arange(63, -1, -1), np.full(32, -1)])


def test_returned_lanes_do_not_arrive() -> None:
    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            if t >= 32:
                return
            T.sync_threads()
            B[t] = 1

    with pytest.raises(DeadlockError, match="32 of 64 lanes have arrived") as caught:
        interp.run(program, np.zeros(64, np.int32))
    assert "lanes 32 to 63 (warp 1) have ended" in caught.value.notes


def test_private_arrays_of_tasks_are_kept_apart() -> None:
    """An array that a loop allocates again belongs to the lanes that get there."""

    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            for i in T.serial(2):
                r = T.alloc_local((2,), "int32")
                r[0] = t + i
                if t < 32:
                    T.sync_threads(1, 32)
                    r[1] = r[0] * 2
                    T.sync_threads(1, 32)
                else:
                    T.sync_threads(2, 32)
                    r[1] = r[0] * 3
                B[t] = r[1]

    b = np.zeros(64, np.int32)
    run(program, b)
    lane = np.arange(64)
    np.testing.assert_array_equal(b, (lane + 1) * np.where(lane < 32, 2, 3))


def test_a_block_of_broken_warps_has_no_collectives() -> None:
    @T.prim_func
    def program(B: T.Tensor((48,), "int32")):
        with T.Kernel(1, threads=48, warp=32):
            t = T.get_thread_binding()
            B[t] = T.any_sync(t > 3)

    with pytest.raises(DivergenceError):
        interp.run(program, np.zeros(48, np.int32))


def test_without_checks_a_race_is_not_reported() -> None:
    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            s[t] = t
            B[t] = s[63 - t]

    interp.run(program, np.zeros(64, np.int32))


# what does not belong to thread form, and what a backend adds


def test_tile_form_is_told_apart() -> None:
    @T.prim_func
    def tiles(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = i

    b = np.zeros(64, np.int32)
    interp.run(tiles, b)
    np.testing.assert_array_equal(b, np.arange(64))
    with pytest.raises(InternalError, match="Parallel in thread form"):
        interp.run(tiles, b, form="thread")


def test_fragments_are_refused() -> None:
    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            f = T.alloc_fragment((64,), "int32")
            f[0] = 1
            B[0] = f[0]

    with pytest.raises(InternalError, match=r"local\.fragment in thread form"):
        interp.run(program, np.zeros(64, np.int32))


def dot4() -> tuple[ir.PrimFunc, dict[str, Meaning]]:
    """A program with an intrinsic that a backend adds, and what it means."""

    def four(x: Any, y: Any) -> ir.Call:
        return ir.Call("dummy_dot4", (ir.as_expr(x), ir.as_expr(y)), ir.DType("int32"))

    def meaning(values: Any, call: ir.Call, mask: Any) -> Any:
        x, y = (np.asarray(values.value(a, mask)) for a in call.args)
        parts = [(v[..., None] >> np.arange(0, 32, 8)) & 255 for v in (x, y)]
        return (parts[0] * parts[1]).sum(-1).astype(np.int32)

    @T.prim_func
    def program(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            B[t] = four(A[t], 0x01020304)

    return program, {"dummy_dot4": meaning}


def test_a_backend_gives_the_meaning_of_its_intrinsics() -> None:
    program, meanings = dot4()
    a, b = np.arange(64, dtype=np.int32) * 257, np.zeros(64, np.int32)
    run(program, a, b, meanings=meanings)
    parts = (a[:, None] >> np.arange(0, 32, 8)) & 255
    np.testing.assert_array_equal(b, parts @ [4, 3, 2, 1])


def test_an_intrinsic_without_a_meaning_is_refused() -> None:
    program, _ = dot4()
    with pytest.raises(InternalError, match="'dummy_dot4' has no meaning"):
        interp.run(program, np.zeros(64, np.int32), np.zeros(64, np.int32))


def _collective(name: str) -> Any:
    calls = {
        "sync_warp": lambda _: T.sync_warp(),
        "shfl": lambda t: T.shfl_xor(t, 1),
        "vote": lambda t: T.any_sync(t > 1),
        "elect": lambda _: T.shuffle_elect(32),
        "cp_async_commit": lambda _: T.cp_async_commit(),
        "named": lambda _: T.named_barrier_arrive(1, 64),
        "fence": lambda _: T.fence_proxy_async(),
    }

    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            x = T.alloc_var("int32", init=0)
            value = calls[name](t)
            if isinstance(value, ir.Expr):
                x = T.cast(value, "int32")
            B[t] = x

    return program


@pytest.mark.parametrize(
    "name", ["sync_warp", "shfl", "vote", "elect", "cp_async_commit", "named", "fence"]
)
def test_a_target_that_runs_one_lane_at_a_time_refuses_them(name: str) -> None:
    with pytest.raises(CapabilityError) as caught:
        tilec.compile(_collective(name), target="c")
    assert caught.value.span is not None
    assert caught.value.span.known


def test_a_barrier_is_initialised_by_one_lane() -> None:
    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            ready = T.alloc_buffer((1,), "uint64", scope="shared.barrier")
            T.mbarrier_init(ready[0], 64)
            T.fence_barrier_init()
            B[0] = 1

    with pytest.raises(BarrierError, match="initialised by lanes 0 to 63"):
        interp.run(program, np.zeros(64, np.int32))


def test_a_butterfly_stays_within_its_group() -> None:
    @T.prim_func
    def program(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32, warp=32):
            t = T.get_thread_binding()
            A[t] = T.shfl_xor(t, A[t], 8)

    interp.run(program, np.full(32, 7, np.int32))
    with pytest.raises(KernelRuntimeError, match="not below the width 8"):
        interp.run(program, np.full(32, 8, np.int32))


def test_steps_are_counted_where_lanes_wait() -> None:
    @T.prim_func
    def program(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            while B[0] == 0:
                T.sync_threads()

    with pytest.raises(LimitError):
        interp.Program(program, limit=1000)(np.zeros(64, np.int32))


def test_tensors_with_gaps_between_their_elements() -> None:
    @T.prim_func
    def program(
        A: T.StridedTensor((64, 4), (8, 1), "float32"),
        B: T.StridedTensor((64, 4), (8, 2), "float32"),
    ):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64, 4), "float32")
            T.cp_async(s[t, 0], A[t, 0], 4)
            T.cp_async_commit()
            T.cp_async_wait(0)
            for i in T.serial(2):
                B[t, i] = s[t, i]
            T.fence_proxy_async()
            T.sync_threads()
            if t == 0:
                T.bulk_store(B[0:64, 2:4], s[0:64, 2:4])
                T.bulk_commit()
                T.bulk_wait(0)

    a = np.arange(512, dtype=np.float32).reshape(64, 8)[:, :4]
    wide = np.zeros((64, 8), np.float32)
    interp.run(program, a, wide[:, ::2], check=True)
    np.testing.assert_array_equal(wide[:, ::2], a)
    assert not wide[:, 1::2].any()


@pytest.mark.parametrize("own", [True, False])
def test_copies_that_arrive_say_nothing_about_ordinary_stores(own: bool) -> None:
    @T.prim_func
    def program(A: T.Tensor((64, 4), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64, 4), "float32")
            plain = T.alloc_shared((64,), "float32")
            ready = T.alloc_barrier(64)
            T.cp_async(s[t, 0], A[t, 0], 4)
            plain[t] = 1.0
            T.cp_async_barrier_noinc(ready[0])
            T.mbarrier_wait_parity(ready[0], 0)
            B[t] = s[63 - t, 0] + plain[t if own else 63 - t]

    a, b = np.ones((64, 4), np.float32), np.zeros(64, np.float32)
    if own:
        interp.run(program, a, b, check=True)
        np.testing.assert_array_equal(b, np.full(64, 2))
    else:
        with pytest.raises(RaceError, match="plain"):
            interp.run(program, a, b, check=True)


def test_lanes_run_one_after_the_other_on_a_target_without_warps() -> None:
    """A body that uses no warp is an ordinary program there."""

    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            s[t] = A[t]
            T.sync_threads()
            B[t] = s[63 - t]

    a, b, c = (np.arange(64, dtype=np.float32) * n for n in (1, 0, 0))
    tilec.compile(program, target="c")(a, b)
    interp.run(program, a, c, check=True)
    np.testing.assert_array_equal(b, c)
