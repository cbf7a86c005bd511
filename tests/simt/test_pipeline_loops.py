"""Software pipelining: the text before and after, the serial result in every case, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gemm_programs import check_gemm, lowered

import tilec.language as T
from tilec import ir
from tilec.interp import run
from tilec.simt.pipeline_loops import PipelineLoops
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities, CopyEngine, Memory

ENGINE = CopyEngine("cp_async", "global", "shared", True, granularity=4, alignment=4)
WIDE = (1, 2, 4, 8, 16)
SCOPES = ("global", "shared", "shared.dyn", "local", "local.var", "local.fragment")
MEMORIES = {s: Memory(s, access_bytes=WIDE) for s in SCOPES}
TARGET = Capabilities(lanes=32, copy_engines=(ENGINE,), memories=MEMORIES)


def pipelined(func: ir.PrimFunc, capabilities: Capabilities = TARGET) -> tuple[str, list[str]]:
    ctx = PassContext(capabilities=capabilities)
    new = PipelineLoops().run_function(func, ctx)
    return new.script(), [r.message for r in ctx.remarks]


def check(func: ir.PrimFunc, *args: Any, ring: bool = True) -> list[str]:
    """The serial result, without a race; whether there are rings is as expected."""
    new, notes = lowered(func, TARGET)
    calls = [n for n in ir.walk(new.body) if isinstance(n, ir.Call) and n.name == "cp_async_wait"]
    assert bool(calls) is ring, notes
    expected = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    run(func, *expected)
    run(new, *args, check=True, form="thread")
    for got, want in zip(args, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    return notes


def numbers(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(1).integers(-9, 10, shape).astype("float32")


def test_text() -> None:
    @T.prim_func
    def program(A: T.Tensor((320,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(A[k * 64], tile)
                for i in T.Parallel(64):
                    total[i] += tile[63 - i]
            T.copy(total, B)

    text, notes = pipelined(program)
    assert notes == ["3 stages of tile"]
    lines = [line.strip() for line in text.splitlines()]
    found = [
        line for line in lines
        if line.startswith(("for ", "if ", "tile[", "total[", "T.sync")) or "cp_async" in line
    ]  # fmt: skip
    assert found == [
        "for s in T.unroll(2):",
        "if s < 5:",
        "for i in T.Parallel(64, annotations={'async': True}):",
        "tile[s, i] = A[s * 64 + i]",
        "T.cp_async_commit()",
        "for k in T.serial(5):",
        "T.cp_async_wait(1)",
        "T.sync_threads()",
        "if k + 2 < 5:",
        "for i_1 in T.Parallel(64, annotations={'async': True}):",
        "tile[(k + 2) % 3, i_1] = A[(k + 2) * 64 + i_1]",
        "T.cp_async_commit()",
        "for i_2 in T.Parallel(64):",
        "total[i_2] = total[i_2] + tile[k % 3, 63 - i_2]",
    ]


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("first", [0, 2])
def test_trips(stages: int, trips: int, first: int) -> None:
    @T.prim_func
    def program(A: T.Tensor((640,), "float32"), B: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(first, n, num_stages=stages):
                T.copy(A[k * 64], tile)
                for i in T.Parallel(64):
                    total[i] += tile[63 - i]
            T.copy(total, B)

    check(program, numbers(640), numbers(64), first + trips, ring=stages > 1)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("swapped", [(False, False), (True, True)])
@pytest.mark.parametrize("depth", [16, 32, 50, 96])
def test_gemms(depth: int, swapped: tuple[bool, bool], stages: int) -> None:
    notes = check_gemm(
        TARGET, (37, 29, depth), (32, 16, 16), ("float32", "float32"), swapped, 64, stages
    )
    assert f"{stages} stages of As, Bs" in notes


def test_loops_around_loops() -> None:
    @T.prim_func
    def program(A: T.Tensor((4, 256), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            for r in range(4):
                T.clear(total)
                for k in T.Pipelined(4, num_stages=3):
                    T.copy(A[r, k * 64 : k * 64 + 64], tile)
                    for i in T.Parallel(64):
                        total[i] += tile[63 - i]
                T.copy(total, B[r, :])

    check(program, numbers(4, 256), numbers(4, 64))


def test_two_loops_share_a_tile() -> None:
    @T.prim_func
    def program(A: T.Tensor((512,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64], tile)
                for i in T.Parallel(64):
                    total[i] += tile[63 - i]
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[256 + k * 64], tile)
                for i in T.Parallel(64):
                    total[i] -= tile[(i + 1) % 64]
            T.copy(total, B)

    notes = check(program, numbers(512), numbers(64))
    assert {"2 stages of tile", "3 stages of tile"} <= set(notes)


def test_lets_and_tables_in_indices() -> None:
    @T.prim_func
    def program(
        A: T.Tensor((8, 64), "float32"), P: T.Tensor((6,), "int32"), B: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(6, num_stages=3):
                page = P[k]
                T.copy(A[page, :], tile)
                for i in T.Parallel(64):
                    total[i] += tile[63 - i] * (page + 1)
            T.copy(total, B)

    check(program, numbers(8, 64), np.array([3, 1, 7, 0, 2, 5], "int32"), numbers(64))


def test_masked_nests_are_copies() -> None:
    @T.prim_func
    def program(A: T.Tensor((100,), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32,), "float32")
            total = T.alloc_fragment((32,), "float32")
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                for i in T.Parallel(32):
                    tile[i] = T.if_then_else(k * 32 + i < 99, A[k * 32 + i], 0)
                for i in T.Parallel(32):
                    total[i] += tile[31 - i]
            T.copy(total, B)

    check(program, numbers(100), numbers(32))


def test_a_tile_that_is_carried_stays() -> None:
    @T.prim_func
    def program(A: T.Tensor((256,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            T.clear(tile)
            for k in T.Pipelined(4, num_stages=2):
                for i in T.Parallel(64):
                    B[i] = B[i] + tile[63 - i]
                T.copy(A[k * 64], tile)

    notes = check(program, numbers(256), numbers(64), ring=False)
    assert any("is used before it is filled" in n for n in notes)


def test_a_source_that_the_loop_writes_stays() -> None:
    @T.prim_func
    def program(A: T.Tensor((320,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64 : k * 64 + 64], tile)
                for i in T.Parallel(64):
                    A[k * 64 + 64 + i] = tile[63 - i] + 1

    notes = check(program, numbers(320), ring=False)
    assert any("it reads A, which the loop writes" in n for n in notes)


def test_a_tile_that_is_used_afterwards_stays() -> None:
    @T.prim_func
    def program(A: T.Tensor((256,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64], tile)
            for i in T.Parallel(64):
                B[i] = tile[63 - i]

    notes = check(program, numbers(256), numbers(64), ring=False)
    assert any("also used outside of the loop" in n for n in notes)


def test_conditional_copies_stay() -> None:
    @T.prim_func
    def program(A: T.Tensor((256,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            T.clear(tile)
            for k in T.Pipelined(4, num_stages=2):
                if k % 2 == 0:
                    T.copy(A[k * 64], tile)
                for i in T.Parallel(64):
                    B[i] = B[i] + tile[63 - i]

    check(program, numbers(256), numbers(64), ring=False)


def test_a_tile_that_is_changed_in_place_stays() -> None:
    @T.prim_func
    def program(A: T.Tensor((256,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64], tile)
                for i in T.Parallel(64):
                    tile[i] = tile[i] * 2
                for i in T.Parallel(64):
                    B[i] = B[i] + tile[63 - i]

    notes = check(program, numbers(256), numbers(64), ring=False)
    assert any("is also written otherwise" in n for n in notes)


def test_an_index_that_the_loop_changes_stays() -> None:
    @T.prim_func
    def program(A: T.Tensor((640,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            at = T.alloc_var("int32")
            at = 0
            for _ in T.Pipelined(4, num_stages=2):
                T.copy(A[at * 64], tile)
                for i in T.Parallel(64):
                    B[i] = B[i] + tile[63 - i]
                at = at * 2 + 1

    check(program, numbers(640), numbers(64), ring=False)


def test_reductions_keep_their_tiles() -> None:
    @T.prim_func
    def program(A: T.Tensor((4, 16, 32), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((16, 32), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, :, :], tile)
                T.reduce_sum(tile, total, dim=1, clear=False)
            T.copy(total, B)

    check(program, numbers(4, 16, 32), numbers(16), ring=False)


def test_jumps_make_the_loop_serial() -> None:
    @T.prim_func
    def program(A: T.Tensor((256,), "float32"), B: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                if k == n:
                    break
                T.copy(A[k * 64], tile)
                for i in T.Parallel(64):
                    B[i] = B[i] + tile[63 - i]

    notes = check(program, numbers(256), numbers(64), 2, ring=False)
    assert any("it may be left before its last trip" in n for n in notes)


def test_stages_fit_into_shared_memory() -> None:
    @T.prim_func
    def program(A: T.Tensor((4096,), "float32"), B: T.Tensor((512,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((512,), "float32")
            for k in T.Pipelined(8, num_stages=4):
                T.copy(A[k * 512], tile)
                for i in T.Parallel(512):
                    B[i] = B[i] + tile[511 - i]

    small = Memory("shared", 7000, access_bytes=WIDE)
    target = Capabilities(lanes=32, copy_engines=(ENGINE,), memories={**MEMORIES, "shared": small})
    _, notes = pipelined(program, target)
    assert notes == ["3 of 4 stages fit in shared memory", "3 stages of tile"]


def test_without_an_engine_the_loop_is_serial() -> None:
    @T.prim_func
    def program(A: T.Tensor((256,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64], tile)
                for i in T.Parallel(64):
                    B[i] = B[i] + tile[63 - i]

    text, notes = pipelined(program, Capabilities(lanes=32))
    assert "for k in T.serial(4)" in text
    assert notes == ["not pipelined: the target has no asynchronous copies by lanes"]
