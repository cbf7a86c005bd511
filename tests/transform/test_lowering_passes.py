"""What each lowering pass makes of a small function, as text."""

from __future__ import annotations

import textwrap

import pytest

import tilec.language as T
from tilec import ir
from tilec.backend import Capabilities
from tilec.diagnostics import NestingError
from tilec.transform.base import Pass, PassContext
from tilec.transform.flatten import FlattenBuffers
from tilec.transform.guard import GuardAccesses
from tilec.transform.lanes import SerializeLanes
from tilec.transform.parallel import LowerParallel
from tilec.transform.pipelined import LowerPipelined
from tilec.transform.simplify import Simplify
from tilec.transform.split import SplitHostDevice
from tilec.transform.tiles import LowerTiles


def run(func: ir.PrimFunc, *passes: Pass, ctx: PassContext | None = None) -> ir.Module:
    module = ir.Module({func.name: func})
    for step in passes:
        module = step(module, ctx or PassContext())
        for result in module.functions.values():
            ir.verify(result, step.gives or "tile")
    return module


def block(func: ir.PrimFunc, *passes: Pass) -> str:
    """The body of the launch after the passes."""
    (result,) = run(func, *passes).functions.values()
    lines = result.script().splitlines()
    start = next(n for n, line in enumerate(lines) if "T.Kernel" in line)
    return "\n".join(line[8:] for line in lines[start + 1 :])


def text(expected: str) -> str:
    return textwrap.dedent(expected).strip("\n")


# --- pipelined loops -----------------------------------------------------------------------------


def test_pipelined_becomes_serial() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1):
            for k in T.Pipelined(2, n, num_stages=3):
                A[k] = 1

    assert block(f, LowerPipelined()) == text("""
        for k in T.serial(2, n):
            A[k] = T.float32(1.0)
    """)


# --- tile operations -----------------------------------------------------------------------------


def test_tiles_without_a_table_use_their_own_lowering() -> None:
    @T.prim_func
    def f(A: T.Tensor((8, 8), "float16")):
        with T.Kernel(1) as bx:
            s = T.alloc_shared((4, 8), "float32")
            T.copy(A[bx * 4, 0], s)

    assert block(f, LowerTiles()) == text("""
        s = T.alloc_shared((4, 8), "float32")
        for i, j in T.Parallel(4, 8):
            s[i, j] = T.cast(A[bx * 4 + i, j], "float32")
    """)


# --- guards --------------------------------------------------------------------------------------


def test_guard_only_where_needed() -> None:
    @T.prim_func
    def f(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        with T.Kernel(2) as bx:
            s = T.alloc_shared((64,), "float32")
            for i in T.Parallel(64):
                s[i] = A[bx * 64 + i]
            for i in T.Parallel(50):
                B[bx * 50 + i] = s[i]

    assert block(f, Simplify(), GuardAccesses()) == text("""
        s = T.alloc_shared((64,), "float32")
        if bx < 1:
            for i in T.Parallel(64):
                s[i] = A[bx * 64 + i]
        else:
            for i_1 in T.Parallel(64):
                s[i_1] = T.if_then_else(bx * 64 + i_1 < 100, A[bx * 64 + i_1], T.float32(0.0))
        for i_2 in T.Parallel(50):
            B[bx * 50 + i_2] = s[i_2]
    """)


def test_guard_reads_an_index_from_memory_once() -> None:
    @T.prim_func
    def f(A: T.Tensor((100,), "float32"), index: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            if index[bx] < 50:
                A[index[bx]] = A[index[index[bx]]]

    assert block(f, Simplify(), GuardAccesses()) == text("""
        if index[bx] < 50:
            index_1 = index[bx]
            index_2 = T.if_then_else(index_1 >= 0 and index_1 < 8, index[index_1], T.int32(0))
            index_3 = index[bx]
            if index_3 >= 0 and index_3 < 100:
                A[index_3] = T.if_then_else(index_2 >= 0 and index_2 < 100, A[index_2], \
T.float32(0.0))
    """)


def test_guard_in_a_branch_of_an_expression() -> None:
    @T.prim_func
    def f(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(8) as bx:
            A[bx] = T.if_then_else(bx < n, A[A[bx]], 0)

    assert block(f, Simplify(), GuardAccesses()) == text("""
        index = T.if_then_else(bx < n, A[bx], T.int32(0))
        A[bx] = T.if_then_else(bx < n, T.if_then_else(index >= 0 and index < 8, A[index], \
T.int32(0)), T.int32(0))
    """)


def test_guard_knows_conditions_and_loops() -> None:
    @T.prim_func
    def f(A: T.Tensor((100,), "int32"), n: T.int32):
        with T.Kernel(200) as bx:
            if bx < 100:
                A[bx] = 1
            if n >= 0 and n < 100:
                A[n] = 2
            for i in T.serial(99, -1, -3):
                A[i] = A[99 - i]

    module = ir.Module({"f": f})
    assert "if_then_else" not in GuardAccesses()(module).script()


def test_guard_of_an_atomic_update() -> None:
    @T.prim_func
    def f(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(8):
            T.atomic_add(A[n], 1)

    assert block(f, Simplify(), GuardAccesses()) == text("""
        if n >= 0 and n < 8:
            T.atomic_add(A[n], 1)
    """)


# --- lanes ---------------------------------------------------------------------------------------


def test_lanes_in_lock_step() -> None:
    @T.prim_func
    def f(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "int32")
            x = A[tx] + 1
            s[31 - tx] = x
            T.sync_threads()
            c = T.alloc_var("int32", 0)
            for k in T.serial(4):
                if tx > k:
                    c = c + s[tx]
            A[tx] = c

    assert block(f, Simplify(), SerializeLanes()) == text("""
        s = T.alloc_shared((32,), "int32")
        x = T.alloc_local((32,), "int32")
        for tx in T.serial(32):
            x[tx] = A[tx] + 1
        for tx_1 in T.serial(32):
            s[31 - tx_1] = x[tx_1]
        c = T.alloc_local((32,), "int32")
        for tx_2 in T.serial(32):
            c[tx_2] = T.int32(0)
        for k in T.serial(4):
            for tx_3 in T.serial(32):
                if tx_3 > k:
                    c[tx_3] = c[tx_3] + s[tx_3]
        for tx_4 in T.serial(32):
            A[tx_4] = c[tx_4]
        T.annotate_launch(one_lane=True)
    """)


def test_launch_without_lanes_stays() -> None:
    @T.prim_func
    def f(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_var("int32", 0)
            x = x + 1
            for i in T.Parallel(32):
                A[i] = x

    module = ir.Module({"f": f})
    assert SerializeLanes()(module) is module


def test_lanes_use_the_table_where_no_count_is_given() -> None:
    @T.prim_func
    def f(A: T.Tensor((32,), "int32")):
        with T.Kernel(1):
            A[T.get_thread_binding()] = 1

    table = Capabilities(features={"default_threads": 16})
    module = run(f, SerializeLanes(), ctx=PassContext(capabilities=table))
    assert "in T.serial(16):" in module.script()


@pytest.mark.parametrize("what", ["copy", "sync", "return"])
def test_lanes_refuse_collective_work_of_some(what: str) -> None:
    @T.prim_func
    def copy(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32,), "int32")
            if T.get_thread_binding() < 5:
                T.copy(A, s)

    @T.prim_func
    def sync(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for _i in T.serial(T.get_thread_binding()):
                T.sync_threads()

    @T.prim_func
    def leave(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            if T.get_thread_binding() < 5:  # noqa: SIM102
                if A[0] > 1:
                    return

    func = {"copy": copy, "sync": sync, "return": leave}[what]
    with pytest.raises(NestingError) as caught:
        run(func, SerializeLanes())
    assert "test_lowering_passes.py:" in str(caught.value)


# --- parallel nests ------------------------------------------------------------------------------


def test_parallel_is_a_vector_loop_where_iterations_are_apart() -> None:
    @T.prim_func
    def f(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            for i, j in T.Parallel(8, 64):
                A[i, j] = A[i, j] + 1
            for i, j in T.Parallel(8, 64):
                B[i] = A[i, j]

    assert block(f, LowerParallel()) == text("""
        for i in T.serial(8):
            for j in T.serial(64, annotations={'simd': True}):
                A[i, j] = A[i, j] + 1.0
        for i_1 in T.serial(8):
            for j_1 in T.serial(64):
                B[i_1] = A[i_1, j_1]
        T.annotate_launch(one_lane=True)
    """)


def test_vectorized_loop_with_a_dependence_is_a_plain_loop() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            for i in T.vectorized(63):
                A[i + 1] = A[i]
            for i in T.vectorized(64):
                B[i] = A[63 - i]

    assert block(f, LowerParallel()) == text("""
        for i in T.serial(63):
            A[i + 1] = A[i]
        for i_1 in T.serial(64, annotations={'simd': True}):
            B[i_1] = A[63 - i_1]
        T.annotate_launch(one_lane=True)
    """)


# --- host and device -----------------------------------------------------------------------------


def test_split_gives_one_device_function_per_kernel() -> None:
    m = T.dynamic("m")

    @T.prim_func
    def f(A: T.Tensor((m, 8), "float32"), B: T.Tensor((m, 8), "float32"), n: T.int32):
        k = n * 2
        with T.Kernel(m) as bx:
            A[bx, k] = 1
        if k > 3:
            with T.Kernel(m, 2) as (bx, by):
                s = T.alloc_shared((4, 6), "float32")
                s[1, 2] = A[bx, by]
                B[bx, 0] = s[1, 2]

    module = run(f, SplitHostDevice(), FlattenBuffers())
    host, first, second = module.functions.values()
    assert [host.name, first.name, second.name] == ["f", "f_kernel", "f_kernel_1"]
    assert repr(host.body) == text("""
        k = n * 2
        T.call_device('f_kernel', A, m, k)
        if k > 3:
            T.call_device('f_kernel_1', A, B, m)
    """)
    assert host.attrs["calling_conv"] == "host_packed"
    assert (host.attrs["used"], host.attrs["written"]) == (["A", "B"], ["A", "B"])
    assert repr(first.body) == ('A[T.cast(bx, "int64") * 8 + T.cast(k, "int64")] = T.float32(1.0)')
    assert first.attrs["calling_conv"] == "device_kernel"
    assert repr(second.body).splitlines() == [
        's = T.alloc_shared((24,), "float32")',
        's[T.int64(8)] = A[T.cast(bx, "int64") * 8 + T.cast(by, "int64")]',
        'B[T.cast(bx, "int64") * 8] = s[T.int64(8)]',
    ]
    assert [p.name for p in second.params] == ["A", "B", "m"]


@pytest.mark.parametrize("where", ["let", "grid", "condition", "store"])
def test_memory_outside_a_kernel_is_refused(where: str) -> None:
    @T.prim_func
    def let(A: T.Tensor((8,), "int32")):
        n = A[0]
        with T.Kernel(1):
            A[1] = n

    @T.prim_func
    def grid(A: T.Tensor((8,), "int32")):
        with T.Kernel(A[0]) as bx:
            A[bx] = 1

    @T.prim_func
    def condition(A: T.Tensor((8,), "int32")):
        if A[0] > 1:
            with T.Kernel(1):
                A[1] = 1

    @T.prim_func
    def store(A: T.Tensor((8,), "int32")):
        A[0] = 1
        with T.Kernel(1):
            A[1] = 1

    func = {"let": let, "grid": grid, "condition": condition, "store": store}[where]
    with pytest.raises(NestingError, match=r"outside T\.Kernel") as caught:
        run(func, LowerParallel(), SplitHostDevice())
    assert "A[0]" in str(caught.value)


def test_offsets_are_formed_in_64_bits() -> None:
    @T.prim_func
    def f(A: T.Tensor((70000, 70000), "int8")):
        with T.Kernel(70000) as bx:
            A[bx, 69999] = 1

    kernel = run(f, SplitHostDevice(), FlattenBuffers()).functions["f_kernel"]
    assert repr(kernel.body) == 'A[T.cast(bx, "int64") * 70000 + 69999] = T.int8(1)'
