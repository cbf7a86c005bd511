"""Where shared buffers lie."""

from __future__ import annotations

from typing import Any

import pytest

import tilec.language as T
from tilec import ir
from tilec.diagnostics import CapacityError
from tilec.layout.standard import row_major
from tilec.simt.barriers import InsertBarriers
from tilec.simt.memory import PLAN, PlanSharedMemory, lifetimes
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities, Memory

N = 128


def launch_of(func: ir.PrimFunc) -> ir.Launch:
    return next(n for n in ir.walk(func.body) if isinstance(n, ir.Launch))


def planned(func: ir.PrimFunc, **notes: Any) -> ir.Launch:
    def note(node: Any) -> Any:
        if isinstance(node, ir.Launch):
            return node.replace(annotations={**node.annotations, **notes})
        return ir.map_children(node, note) if isinstance(node, ir.Stmt) else node

    func = func.replace(body=note(func.body))
    done = PlanSharedMemory()(ir.Module({func.name: func}))
    return launch_of(done.functions[func.name])


def offsets(launch: ir.Launch) -> dict[str, int]:
    return {b.name: at for b, at in launch.annotations[PLAN]}


@T.prim_func
def phases(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
    with T.Kernel(1, threads=N):
        tid = T.get_thread_binding()
        first = T.alloc_shared((N,), "float32")
        second = T.alloc_shared((N,), "float32")
        third = T.alloc_shared((64,), "float16")
        first[tid] = A[tid]
        second[tid] = first[127 - tid]
        third[tid % 64] = T.cast(second[127 - tid], "float16")
        B[tid] = T.cast(third[tid // 2], "float32")


@T.prim_func
def first_value(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
    with T.Kernel(1, threads=N):
        tid = T.get_thread_binding()
        first = T.alloc_shared((N,), "float32")
        second = T.alloc_shared((N,), "float32")
        first[tid] = A[tid]
        second[tid] = A[127 - tid]
        B[tid] = second[127 - tid]
        x = T.alloc_var("float32", init=first[127 - tid])
        B[tid] = x + B[tid]


def test_the_first_value_of_a_variable_keeps_a_buffer_alive() -> None:
    at = offsets(planned(first_value))
    assert at["first"] != at["second"]


def test_buffers_that_are_not_alive_together_share_their_place() -> None:
    launch = planned(phases)
    at = offsets(launch)
    assert at["first"] != at["second"]
    assert at["third"] == at["first"]
    assert launch.annotations["shared_bytes"] == 1024


def test_barriers_order_those_that_share() -> None:
    module = PlanSharedMemory()(ir.Module({"phases": phases}))
    text = InsertBarriers()(module).script()
    assert text.count("T.sync_threads()") == 3

    @T.prim_func
    def two(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            first = T.alloc_shared((N,), "float32")
            second = T.alloc_shared((N,), "float32")
            first[tid] = A[tid]
            B[tid] = first[tid]
            second[tid] = A[tid] + 1.0
            B[tid] = B[tid] + second[tid]

    # Every lane keeps to itself, so without sharing there is no barrier.
    assert InsertBarriers()(ir.Module({"two": two})).script().count("sync") == 0
    module = PlanSharedMemory()(ir.Module({"two": two}))
    assert set(offsets(launch_of(module.functions["two"])).values()) == {0}
    assert InsertBarriers()(module).script().count("T.sync_threads()") == 1


def test_what_a_loop_carries_lives_through_the_loop() -> None:
    @T.prim_func
    def f(A: T.Tensor((4, N), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            kept = T.alloc_shared((N,), "float32")
            other = T.alloc_shared((N,), "float32")
            for k in T.serial(4):
                if k > 0:
                    B[tid] = kept[tid]
                other[tid] = A[k, tid]
                B[tid] = other[127 - tid]
                kept[tid] = A[k, tid]

    at = offsets(planned(f))
    assert at["kept"] != at["other"]


def test_what_is_allocated_in_a_loop_does_not_outlive_a_trip() -> None:
    @T.prim_func
    def f(A: T.Tensor((4, N), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            for k in T.serial(4):
                one = T.alloc_shared((N,), "float32")
                two = T.alloc_shared((N,), "float32")
                one[tid] = A[k, tid]
                B[tid] = one[127 - tid]
                two[tid] = A[k, tid]
                B[tid] = two[127 - tid]

    assert set(offsets(planned(f)).values()) == {0}
    lives = lifetimes(launch_of(f))
    assert len(lives) == 2


def test_layouts_count_with_their_padding_and_alignment() -> None:
    @T.prim_func
    def f(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            tid = T.get_thread_binding()
            small = T.alloc_shared((8,), "float16")
            tile = T.alloc_shared((64, 64), "float16")
            small[tid % 8] = A[0, 0]
            tile[tid, 0] = A[tid, 0] + small[tid % 8]
            A[tid, 0] = tile[63 - tid, 0] + small[0]

    tile = next(n.buffer for n in ir.walk(f.body) if isinstance(n, ir.Alloc) and n.buffer.ndim == 2)
    launch = planned(f, layouts=((tile, row_major((64, 64), 72)),))
    assert offsets(launch) == {"tile": 0, "small": (63 * 72 + 64) * 2}


def test_what_does_not_fit_is_refused_with_a_list() -> None:
    table = Capabilities(memories={"shared.dyn": Memory("shared.dyn", bytes=1000)})
    with pytest.raises(CapacityError, match="needs 1024 bytes of shared memory") as caught:
        PlanSharedMemory()(ir.Module({"phases": phases}), PassContext(capabilities=table))
    text = str(caught.value)
    assert "test_memory.py:" in text
    assert "third (64,) float16: 128 bytes" in text
