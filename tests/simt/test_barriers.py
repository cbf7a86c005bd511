"""Where barriers go, and where not."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import tilec.language as T
from tilec import ir
from tilec.diagnostics import NestingError
from tilec.simt.barriers import InsertBarriers

N = 128


def placed(func: ir.PrimFunc, **annotations: Any) -> str:
    """The body of the launch behind the pass, as text; `s` is the barrier."""

    def note(node: Any) -> Any:
        if isinstance(node, ir.Launch):
            return node.replace(annotations={**node.annotations, **annotations})
        return ir.map_children(node, note) if isinstance(node, ir.Stmt) else node

    func = func.replace(body=note(func.body))
    done = InsertBarriers()(ir.Module({func.name: func})).functions[func.name]
    lines = done.script().splitlines()
    start = next(n for n, line in enumerate(lines) if "T.Kernel" in line)
    body = textwrap.dedent("\n".join(lines[start + 1 :])).replace("tx", "tid")
    aside = ("get_thread_binding", "annotate_launch")
    return "\n".join(x for x in body.splitlines() if not any(word in x for word in aside))


def count(func: ir.PrimFunc, **annotations: Any) -> int:
    return placed(func, **annotations).count("T.sync_threads")


def kernel(body: Callable[..., None]) -> ir.PrimFunc:
    """A launch of 128 lanes around `body(tid, A, B, s)`."""
    run = T.macro(body)

    @T.prim_func
    def f(A: T.Tensor((N, N), "float32"), B: T.Tensor((N, N), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            s = T.alloc_shared((N,), "float32")
            run(tid, A, B, s)

    return f


def test_between_a_write_and_a_read_of_another_lane() -> None:
    def body(tid, A, B, s):
        s[tid] = A[0, tid]
        B[0, tid] = s[127 - tid]

    assert placed(kernel(body)) == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        s[tid] = A[0, tid]
        T.sync_threads()
        B[0, tid] = s[127 - tid]""")


def own(tid, A, B, s):
    s[tid] = A[0, tid]
    B[0, tid] = s[tid]
    s[tid] = s[tid] + 1.0


def own_in_loop(tid, A, B, s):
    for k in T.serial(N):
        s[tid] = A[k, tid]
        B[k, tid] = s[tid] + B[k, tid]


def own_strided(tid, A, B, s):
    for k in T.serial(N):
        B[k, tid] = A[k, tid]
    for k in T.serial(N):
        B[k, tid] = B[k, tid] * 2.0


def own_rows(tid, A, B, s):
    for k in T.vectorized(4):
        B[tid // 32, tid % 32 * 4 + k] = A[tid // 32, tid % 32 * 4 + k]
    for k in T.vectorized(4):
        B[tid // 32, tid % 32 * 4 + k] = B[tid // 32, tid % 32 * 4 + k] + 1.0


def reads(tid, A, B, s):
    B[0, tid] = A[0, tid] + A[0, 127 - tid]
    B[1, tid] = A[0, (tid + 5) % 128]


def one_lane(tid, A, B, s):
    if tid == 0:
        s[0] = A[0, 0]
    if tid == 0:
        s[0] = s[0] + 1.0


def atomics(tid, A, B, s):
    T.atomic_add(B[0, 0], A[0, tid])
    T.atomic_add(B[0, 0], A[1, tid])


def different_rows(tid, A, B, s):
    B[tid, 0] = 1.0
    B[127 - tid, 1] = 2.0


@pytest.mark.parametrize(
    "body",
    [own, own_in_loop, own_strided, own_rows, reads, one_lane, atomics, different_rows],
    ids=lambda b: b.__name__,
)
def test_none_where_lanes_keep_to_themselves(body: Callable[..., None]) -> None:
    assert count(kernel(body)) == 0


def write_after_read(tid, A, B, s):
    B[0, tid] = A[0, tid]
    B[1, tid] = B[0, 127 - tid]
    B[0, tid] = 0.0


def write_after_write(tid, A, B, s):
    s[tid] = 1.0
    s[127 - tid] = 2.0


def atomic_then_read(tid, A, B, s):
    T.atomic_add(s[0], 1.0)
    B[0, tid] = s[0]


def data_dependent(tid, A, B, s):
    s[T.cast(A[0, tid], "int32")] = 1.0
    B[0, tid] = s[tid]


def broadcast(tid, A, B, s):
    if tid == 0:
        s[0] = A[0, 0]
    B[0, tid] = s[0]


def after_let(tid, A, B, s):
    i = tid + 1
    s[tid] = 1.0
    B[0, tid] = s[i % 128]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (write_after_read, 2), (write_after_write, 1), (atomic_then_read, 1),
        (data_dependent, 1), (broadcast, 1), (after_let, 1),
    ],
    ids=lambda b: getattr(b, "__name__", ""),
)  # fmt: skip
def test_one_for_each_hazard(body: Callable[..., None], expected: int) -> None:
    assert count(kernel(body)) == expected


def test_a_loop_is_ordered_against_its_own_last_trip() -> None:
    def body(tid, A, B, s):
        for k in T.serial(N):
            s[tid] = A[k, tid]
            B[k, tid] = s[127 - tid]

    assert placed(kernel(body)) == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        for k in T.serial(128):
            T.sync_threads()
            s[tid] = A[k, tid]
            T.sync_threads()
            B[k, tid] = s[127 - tid]""")


def test_what_came_before_a_loop_is_waited_for_before_the_loop() -> None:
    def body(tid, A, B, s):
        s[tid] = A[0, tid]
        for k in T.serial(N):
            B[k, tid] = s[(tid + k) % 128]

    assert placed(kernel(body)) == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        s[tid] = A[0, tid]
        T.sync_threads()
        for k in T.serial(128):
            B[k, tid] = s[(tid + k) % 128]""")


def test_a_loop_with_dynamic_bounds() -> None:
    @T.prim_func
    def f(A: T.Tensor((T.dynamic("n"), N), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            s = T.alloc_shared((N,), "float32")
            for k in T.serial(A.shape[0]):
                A[k, tid] = A[k, tid] + 1.0  # rows of one's own: no barrier
                s[tid] = A[k, tid]
                B[tid] = s[(tid + 1) % 128]

    assert placed(f) == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        for k in T.serial(n):
            A[k, tid] = A[k, tid] + 1.0
            T.sync_threads()
            s[tid] = A[k, tid]
            T.sync_threads()
            B[tid] = s[(tid + 1) % 128]""")


def test_long_loops_over_rows_of_a_tensor_need_none() -> None:
    n = T.dynamic("n")

    @T.prim_func
    def f(A: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            for k in T.serial(n // 128):
                A[k * 128 + tid] = A[k * 128 + tid] * 2.0

    @T.prim_func
    def g(A: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            for k in T.serial(n // 64 - 1):
                A[k * 64 + tid] = A[k * 64 + tid] * 2.0

    assert count(f) == 0
    assert count(g) > 0


def test_a_statement_that_reads_what_it_writes_is_cut_in_two() -> None:
    def body(tid, A, B, s):
        s[tid] = s[(tid + 1) % 128]

    assert placed(kernel(body)) == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        value = s[(tid + 1) % 128]
        T.sync_threads()
        s[tid] = value""")


def test_branches_that_lanes_disagree_about_are_cut() -> None:
    def body(tid, A, B, s):
        if tid < 64:
            s[tid] = A[0, tid]
            B[0, tid] = s[63 - tid]

    assert placed(kernel(body)) == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        here = tid < 64
        if here:
            s[tid] = A[0, tid]
        T.sync_threads()
        if here:
            B[0, tid] = s[63 - tid]""")


def test_loops_that_lanes_disagree_about_are_refused() -> None:
    def body(tid, A, B, s):
        for k in T.serial(tid):
            s[k] = A[k, tid]
            B[0, tid] = s[tid]

    with pytest.raises(NestingError, match="lanes meet in s inside of control flow") as caught:
        placed(kernel(body))
    assert "test_barriers.py:" in str(caught.value)


def test_a_lane_that_has_returned_cannot_be_waited_for() -> None:
    @T.prim_func
    def f(B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            tid = T.get_thread_binding()
            s = T.alloc_shared((N,), "float32")
            s[tid] = 1.0
            if tid > 100:
                return
            B[tid] = s[127 - tid]

    with pytest.raises(NestingError, match="may have returned"):
        placed(f)


def test_uniform_branches_keep_their_barriers() -> None:
    def body(tid, A, B, s):
        for k in T.serial(4):
            if k > 1:
                s[tid] = A[k, tid]
            B[k, tid] = s[127 - tid]

    text = placed(kernel(body))
    assert text == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        for k in T.serial(4):
            if k > 1:
                T.sync_threads()
                s[tid] = A[k, tid]
            T.sync_threads()
            B[k, tid] = s[127 - tid]""")


def test_barriers_of_the_program_count() -> None:
    def body(tid, A, B, s):
        s[tid] = A[0, tid]
        T.sync_threads()
        B[0, tid] = s[127 - tid]

    assert count(kernel(body)) == 1


def test_a_variable_that_lanes_agree_on_is_no_divergence() -> None:
    def body(tid, A, B, s):
        n = T.alloc_var("int32", 0)
        while n < 4:
            s[tid] = A[n, tid]
            B[n, tid] = s[127 - tid]
            n = n + 1

    assert count(kernel(body)) == 2


def test_managed_buffers_are_left_alone() -> None:
    def body(tid, A, B, s):
        s[tid] = A[0, tid]
        B[0, tid] = s[127 - tid]

    func = kernel(body)
    shared = next(n.buffer for n in ir.walk(func.body) if isinstance(n, ir.Alloc))
    assert count(func, managed=(shared,)) == 0


def test_parts_of_a_block_have_barriers_of_their_own() -> None:
    def body(tid, A, B, s):
        s[tid] = A[0, tid]
        if tid < 64:
            B[0, tid] = s[127 - tid]
            s[tid] = A[1, tid]
            B[1, tid] = s[63 - tid]

    groups = ((0, 64, 1), (64, 64, 2))
    assert placed(kernel(body), groups=groups) == textwrap.dedent("""\
        s = T.alloc_shared((128,), "float32")
        s[tid] = A[0, tid]
        T.sync_threads()
        if tid < 64:
            B[0, tid] = s[127 - tid]
            s[tid] = A[1, tid]
            T.sync_threads(1, 64)
            B[1, tid] = s[63 - tid]""")
