"""Tile form as lane code: texts of what each construct becomes."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import tilec.language as T
from tilec import ir
from tilec.backend import Stage
from tilec.diagnostics import NestingError
from tilec.simt.stages import thread_stages
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities, Memory

WIDTHS = (1, 2, 4, 8, 16)
SCOPES = ("global", "shared", "shared.dyn", "local", "local.var", "local.fragment")
TABLE = Capabilities(
    lanes=32,
    memories={scope: Memory(scope, access_bytes=WIDTHS) for scope in SCOPES},
    vector_bytes=(16,),
)


def lowered(func: ir.PrimFunc, stages: tuple[Stage, ...] | None = None) -> tuple[Any, PassContext]:
    """The function in thread form, verified, and the context with its remarks."""
    ctx = PassContext(capabilities=TABLE)
    module = ir.Module({func.name: func})
    for stage in thread_stages() if stages is None else stages:
        for step in stage.passes:
            if step.applies(ctx):
                module = step.run(module, ctx)
    (result,) = module.functions.values()
    ir.verify(result, "thread")
    return result, ctx


def body(func: ir.PrimFunc) -> str:
    """The text of the lane's code, without the frame and the launch's notes."""
    lines = lowered(func)[0].script().rstrip().splitlines()[3:]
    kept = [line[8:] for line in lines if "get_thread_binding" not in line]
    return "\n".join(line for line in kept if not line.startswith("T.annotate_launch"))


def same(func: ir.PrimFunc, text: str) -> None:
    assert body(func) == textwrap.dedent(text).strip()


def test_memory_is_accessed_sixteen_bytes_at_a_time() -> None:
    @T.prim_func
    def f(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(64, 64):
                B[i, j] = A[i, j] + T.float16(1)

    same(
        f,
        """
        for t in T.unroll(4):
            for v in T.vectorized(8):
                B[t * 16 + tx // 8, tx % 8 * 8 + v] = A[t * 16 + tx // 8, tx % 8 * 8 + v] + T.float16(1.0)
        """,  # noqa: E501
    )
    launch = next(n for n in ir.walk(lowered(f)[0].body) if isinstance(n, ir.Launch))
    assert {b.name: size for b, size in launch.annotations["alignment"]} == {"A": 16, "B": 16}
    assert launch.annotations["warp"] == 32


def test_rows_that_are_not_aligned_are_accessed_one_by_one() -> None:
    @T.prim_func
    def f(A: T.Tensor((8, 30), "float32"), B: T.Tensor((8, 30), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(8, 28):
                B[i, j] = A[i, j + 1]

    assert "vectorized" not in body(f)


def test_two_elements_where_the_row_allows_no_more() -> None:
    @T.prim_func
    def f(A: T.Tensor((64, 30), "float32"), B: T.Tensor((64, 30), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(64, 30):
                B[i, j] = A[i, j]

    same(
        f,
        """
        for t in T.unroll(30):
            for v in T.vectorized(2):
                B[(tx + t * 32) // 15, (tx + t * 32) % 15 * 2 + v] = A[(tx + t * 32) // 15, (tx + t * 32) % 15 * 2 + v]
        """,  # noqa: E501
    )


def test_a_dynamic_row_length_is_wide_where_its_stride_is_a_known_multiple() -> None:
    n = T.dynamic("n")

    @T.prim_func
    def f(A: T.Tensor((n, 64), "float32"), B: T.Tensor((n, 64), "float32")):
        with T.Kernel(T.ceildiv(n, 16), threads=64) as bx:
            tile = T.alloc_shared((16, 64), "float32")
            T.copy(A[bx * 16, 0], tile)
            T.copy(tile, B[bx * 16, 0])

    text = body(f)
    # One copy of each nest for blocks inside, one with a guard that holds for a whole vector.
    assert text.count("T.vectorized(4)") == 5
    assert "if bx * 16 + 15 < n:" in text
    for line in text.splitlines():
        assert "if_then_else" not in line


def test_guards_of_columns_hold_for_a_vector_where_the_extent_is_a_multiple() -> None:
    @T.prim_func
    def f(A: T.Tensor((16, 40), "float32"), B: T.Tensor((32, 64), "float32")):
        with T.Kernel(2, 2, threads=64) as (bx, by):
            for i, j in T.Parallel(16, 32):
                B[by * 16 + i, bx * 32 + j] = A[i, bx * 32 + j]

    text = body(f)
    assert "if tx % 8 < 2:" in text  # of the second block of columns, 8 are inside
    assert "if_then_else" not in text
    assert "T.vectorized(4)" in text


def test_asynchronous_copies() -> None:
    @T.prim_func
    def f(A: T.Tensor((64, 40), "float16"), B: T.Tensor((64, 40), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            for i, j in T.Parallel(64, 64, annotations={"async": True}):
                tile[i, j] = A[i, j]
            T.cp_async_wait(0)
            T.sync_threads()
            for i, j in T.Parallel(64, 40):
                B[i, j] = tile[i, j]

    assert (
        "T.cp_async(tile[t * 16 + tx // 8, tx % 8 * 8], A[t * 16 + tx // 8, tx % 8 * 8], 8, "
        "tx % 8 < 5)" in body(f)
    )


def test_an_asynchronous_copy_of_two_bytes_is_a_plain_one() -> None:
    @T.prim_func
    def f(A: T.Tensor((64, 63), "float16"), B: T.Tensor((64, 63), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64, 63), "float16")
            for i, j in T.Parallel(64, 63, annotations={"async": True}):
                tile[i, j] = A[i, j]
            for i, j in T.Parallel(64, 63):
                B[i, j] = tile[i, j]

    text = body(f)
    assert "cp_async" not in text
    assert "tile[(tx + t * 64) // 63, (tx + t * 64) % 63] = A[" in text


def test_a_fragment_becomes_registers_and_its_nest_follows_it() -> None:
    @T.prim_func
    def f(A: T.Tensor((16, 64), "float32"), B: T.Tensor((16, 64), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((16, 64), "float32")
            T.copy(A, tile)
            for i, j in T.Parallel(16, 64):
                tile[i, j] = tile[i, j] * 2
            T.copy(tile, B)

    same(
        f,
        """
        tile = T.alloc_local((16,), "float32")
        for t in T.unroll(4):
            for v in T.vectorized(4):
                tile[t * 4 + v] = A[tx // 16 + t * 4, tx % 16 * 4 + v]
        for t_1 in T.unroll(16):
            tile[t_1] = tile[t_1] * 2.0
        for t_2 in T.unroll(4):
            for v_1 in T.vectorized(4):
                B[tx // 16 + t_2 * 4, tx % 16 * 4 + v_1] = tile[t_2 * 4 + v_1]
        """,
    )


def test_effects_of_copied_fragments_happen_once() -> None:
    @T.prim_func
    def f(A: T.Tensor((16, 32), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((16, 32), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.copy(A, tile)
            T.reduce_sum(tile, total, dim=1)
            for i in T.Parallel(16):
                T.atomic_add(B[i], total[i])

    text = body(f)
    assert "for r" not in text.split("atomic")[0].split("shfl")[0].split("acc")[0]
    (line,) = (line for line in text.splitlines() if "atomic_add" in line)
    before = text[: text.index(line)].splitlines()[-1]
    assert before.strip() == "if tx % 8 == 0:"


def test_a_store_of_the_whole_block_is_done_by_one_lane() -> None:
    @T.prim_func
    def f(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            B[0] = A[1] + A[2]

    same(
        f,
        """
        if tx == 0:
            B[0] = A[1] + A[2]
        """,
    )


def test_code_of_a_lane_stays() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            s = T.alloc_shared((64,), "float32")
            s[tx] = A[tx]
            s[63 - tx] = s[tx] + 1
            B[tx] = s[tx]

    same(
        f,
        """
        s = T.alloc_shared((64,), "float32")
        s[tx] = A[tx]
        value = s[tx] + 1.0
        T.sync_threads()
        s[63 - tx] = value
        T.sync_threads()
        B[tx] = s[tx]
        """,
    )


def test_lanes_that_have_returned_are_under_the_opposite_condition() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            if tx >= 10:
                return
            B[tx] = A[tx]

    assert "return" not in body(f)
    assert "if tx < 10:" in body(f)


def test_a_nest_where_only_some_lanes_get_is_refused() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            if tx < 10:
                for i in T.Parallel(64):
                    B[i] = A[i]

    with pytest.raises(NestingError, match="only some lanes"):
        lowered(f)


def test_a_lane_index_in_a_nest_is_refused() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            for i in T.Parallel(64):
                A[i] = tx

    with pytest.raises(NestingError, match="the lane index"):
        lowered(f)


def test_butterflies_within_a_warp_and_shared_memory_between_warps() -> None:
    @T.prim_func
    def f(A: T.Tensor((1024,), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((1024,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A, tile)
            T.reduce_sum(tile, total)
            T.copy(total, B)

    text = body(f)
    masks = [line.split("], ")[1].split(",")[0] for line in text.splitlines() if "shfl" in line]
    assert masks == ["16", "8", "4", "2", "1"]
    assert "partial" in text
    assert text.count("sync_threads") == 1


def test_why_a_fragment_is_in_shared_memory() -> None:
    @T.prim_func
    def f(
        A: T.Tensor((64,), "float32"), at: T.Tensor((64,), "int32"), B: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((64,), "float32")
            T.copy(A, tile)
            for i in T.Parallel(64):
                B[i] = tile[at[i]]

    result, ctx = lowered(f)
    assert "alloc_shared" in result.script()
    assert any(
        "tile is in shared memory: an index of it comes from memory" in r.message
        for r in ctx.remarks
    )


def test_layouts_given_by_the_program_are_used() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((64,), "float32")
            T.annotate_layout({tile: T.Fragment((64,), lambda i: (i // 2, i % 2))})
            T.copy(A, tile)
            T.copy(tile, B)

    same(
        f,
        """
        tile = T.alloc_local((2,), "float32")
        for v in T.vectorized(2):
            tile[v] = A[tx * 2 + v]
        for v_1 in T.vectorized(2):
            B[tx * 2 + v_1] = tile[v_1]
        """,
    )


def test_a_layout_that_needs_more_lanes_is_not_used() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((64,), "float32")
            T.annotate_layout({tile: T.Fragment((64,), lambda i: (i, 0))})
            T.copy(A, tile)
            T.copy(tile, B)

    _, ctx = lowered(f)
    assert any("is not used: it needs 64 lanes" in r.message for r in ctx.remarks)


def test_hints_of_a_copy_reach_its_nest() -> None:
    layout = T.Fragment((64,), lambda i: (i % 16, i // 16))

    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((64,), "float32")
            T.copy(A, tile, loop_layout=layout)
            T.copy(tile, B)

    same(
        f,
        """
        tile = T.alloc_local((4,), "float32")
        for t in T.unroll(4):
            if tx < 16:
                tile[t] = A[tx + t * 16]
        for t_1 in T.unroll(4):
            if tx < 16:
                B[tx + t_1 * 16] = tile[t_1]
        """,
    )


def test_a_wanted_width_is_the_widest() -> None:
    @T.prim_func
    def f(A: T.Tensor((512,), "float32"), B: T.Tensor((512,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(512, coalesced_width=2):
                B[i] = A[i]

    assert "T.vectorized(2)" in body(f)
