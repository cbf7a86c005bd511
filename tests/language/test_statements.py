"""The statement table: what each Python statement means in a kernel."""

from __future__ import annotations

import math

import pytest

import tilec.language as T
from tilec import ir
from tilec.diagnostics import (
    IndexCountError,
    OutOfBoundsError,
    ScopeError,
    StagedTruthError,
    TilecError,
    UnsupportedSyntaxError,
)


def body(func: ir.PrimFunc) -> list[ir.Stmt]:
    """Statements of the only launch."""
    (launch,) = [n for n in ir.walk(func.body) if isinstance(n, ir.Launch)]
    return list(launch.body.stmts) if isinstance(launch.body, ir.Seq) else [launch.body]


def again(func: ir.PrimFunc) -> ir.PrimFunc:
    """The function printed and traced once more; checks that nothing was lost."""
    text = func.script()
    copy = T.from_script(text)
    assert ir.structural_equal(func, copy), f"{text}\n---\n{copy.script()}"
    assert ir.structural_hash(func) == ir.structural_hash(copy)
    return copy


def test_range_is_a_device_loop_with_its_step():
    @T.prim_func
    def f(A: T.Tensor((16,), "int32")):
        with T.Kernel(1):
            for i in range(10, 0, -3):
                A[i] = i

    (loop,) = body(f)
    assert isinstance(loop, ir.For)
    assert [ir.const_value(x) for x in (loop.start, loop.stop, loop.step)] == [10, 0, -3]
    again(f)


def test_python_iterables_unroll_while_tracing():
    @T.prim_func
    def f(A: T.Tensor((16,), "int32")):
        with T.Kernel(1):
            for n, value in enumerate([3, 1, 4]):
                A[n] = value
            for a, b in zip([5, 6], [7, 8], strict=True):
                A[a] = b

    assert [ir.const_value(s.value) for s in body(f)] == [3, 1, 4, 7, 8]
    again(f)


def test_if_on_python_values_is_decided_while_tracing():
    flag = False

    @T.prim_func
    def f(A: T.Tensor((4,), "int32")):
        with T.Kernel(2) as bx:
            if bx == 0:
                if flag:
                    A[1000] = 1  # never traced
                else:
                    A[0] = 2
            else:
                A[1] = 3

    (node,) = body(f)
    assert isinstance(node, ir.If)
    assert node.other is not None
    again(f)


def test_conditions_on_numbers_test_for_nonzero():
    @T.prim_func
    def f(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            if A[0]:
                A[1] = 1.0

    (node,) = body(f)
    assert node.cond.op is ir.BinOp.NE
    again(f)


def test_boolean_operators_and_chained_comparisons():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1):
            for i in range(8):
                if 1 < i <= n and not (i == 3 or A[i] > 2):
                    A[i] = 5 if i % 2 == 0 else -5

    again(f)
    ops = [n.op for n in ir.walk(f.body) if isinstance(n, ir.Binary)]
    assert ops.count(ir.BinOp.AND) == 2
    assert ops.count(ir.BinOp.OR) == 1


def test_boolean_operators_with_python_operands_short_circuit():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(2) as bx:
            if True and bx == 0:
                A[0] = 1
            if False and A[999999] == 0:  # noqa: SIM223
                A[1] = 1
            if bx == 0 or False:
                A[2] = 1

    assert len(body(f)) == 2
    again(f)


def test_lets_are_evaluated_where_they_are_written():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = A[0]
            A[0] = 7
            A[1] = x

    bind, _store, last = body(f)
    assert isinstance(bind, ir.Bind)
    assert last.value is bind.var
    again(f)


def test_annotation_of_a_let_converts():
    @T.prim_func
    def f(A: T.Tensor((8,), "float16")):
        with T.Kernel(1):
            x: T.float32 = A[0]
            A[1] = x * 2.0

    assert body(f)[0].var.dtype == "float32"
    again(f)


def test_swap_reads_both_sides_first():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[0], A[1] = A[1], A[0]

    kinds = [type(s).__name__ for s in body(f)]
    assert kinds == ["Bind", "Bind", "Store", "Store"]
    again(f)


def test_containers_of_elements_are_read_when_they_are_made():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            old = [A[0], A[1]]
            A[0] = 9
            A[2] = old[0]

    assert [type(s).__name__ for s in body(f)] == ["Bind", "Bind", "Store", "Store"]


def test_helper_arguments_are_read_at_the_call():
    def bump(A, value):
        A[0] = 9
        A[1] = value

    @T.macro
    def bump_macro(A, value):
        A[0] = 9
        A[1] = value

    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        def local(value):
            A[0] = 9
            A[1] = value

        with T.Kernel(1):
            bump_macro(A, A[2])
            local(A[3])

    kinds = [type(s).__name__ for s in body(f)]
    assert kinds == ["Bind", "Store", "Store"] * 2
    del bump


def test_mutable_variables():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = T.alloc_var("int32", init=1)
            y = x
            x = 5
            x += y
            A[0] = x
            for _i in range(3):
                x = x * 2
            A[1] = x

    kinds = [type(s).__name__ for s in body(f)]
    assert kinds == ["Alloc", "Bind", "Store", "Store", "Store", "For", "Store"]
    again(f)


def test_initial_value_is_taken_at_the_allocation():
    @T.prim_func
    def f(out: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            a = T.alloc_var("int32", init=1)
            b = T.alloc_var("int32", init=a)
            a = 2
            out[0] = b

    assert body(f)[1].init is not None
    again(f)


def test_while_break_continue():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            n = T.alloc_var("int32", init=0)
            while n < 8:
                n += 1
                if A[n - 1] < 0:
                    continue
                if A[n - 1] == 7:
                    break
                A[n - 1] = n

    again(f)
    names = {type(n).__name__ for n in ir.walk(f.body)}
    assert {"While", "Break", "Continue"} <= names


def test_while_true_with_break():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            n = T.alloc_var("int32", init=0)
            while True:
                n += 1
                if n > 3:
                    break
            A[0] = n

    assert any(isinstance(x, ir.While) for x in ir.walk(f.body))


def test_early_return_of_a_block():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(8) as bx:
            if bx >= n:
                return
            A[bx] = 1

    assert any(isinstance(x, ir.Return) for x in ir.walk(f.body))
    again(f)


def test_nested_functions_and_lambdas_are_kept():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        def double(x):
            if isinstance(x, int):
                return x * 2
            return x + x

        triple = lambda x: x * 3  # noqa: E731
        with T.Kernel(1) as bx:
            A[0] = double(4)
            A[1] = double(bx)
            A[2] = triple(bx)

    assert len(body(f)) == 3
    again(f)


def test_macros_return_values_and_keep_names_apart():
    @T.macro
    def clamp_add(x, y):
        t = x + y
        return T.min(t, 100)

    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(2) as bx:
            t = A[0]
            A[1] = clamp_add(t, bx)
            A[2] = t

    again(f)


def test_vector_slices():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[0:2] = B[2:4]
            A[1:3] = A[0:2]
            B[0:8] = 3

    again(f)


def test_negative_constant_indices_count_from_the_end():
    @T.prim_func
    def f(A: T.Tensor((4, 6), "int32")):
        with T.Kernel(1):
            A[-1, -6] = A[-4, -1]

    (store,) = body(f)
    assert [ir.const_value(i) for i in store.indices] == [3, 0]


def test_dynamic_shapes_print_and_parse():
    m, n = T.dynamic("m, n")

    @T.prim_func
    def f(A: T.Tensor((m, n), "float16"), B: T.Tensor((n * 2,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), m) as (bx, by):
            for i in T.Parallel(64):
                if bx * 64 + i < n:
                    B[bx * 64 + i] = A[by, bx * 64 + i]

    again(f)


@pytest.mark.parametrize("value", [0.1, -0.0, math.inf, -math.inf, 1e-45, 3.0])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_float_constants_survive_printing(dtype, value):
    @T.prim_func
    def f(A: T.Tensor((4,), dtype)):
        with T.Kernel(1):
            A[0] = T.Const(value, dtype)
            A[1] = A[2] + T.Const(value, dtype)

    again(f)


def test_every_operator_survives_printing():
    @T.prim_func
    def f(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "float32"), C: T.Tensor((8,), "uint8")):
        with T.Kernel(4) as bx:
            i = A[bx]
            j = A[bx + 1]
            A[0] = (i + j) * (i - j) // (j % 7 + 1)
            A[1] = i - (j - 3) - 2
            A[2] = -i + ~j
            A[3] = (i << 2) >> (j & 3) | (i ^ j)
            A[4] = T.truncdiv(i, 3) + T.truncmod(j, 5)
            A[5] = T.min(i, T.max(j, 4)) + T.pow(i, 3)
            A[6] = T.if_then_else(i > j, i, j)
            A[7] = T.cast(B[0], "int32")
            B[1] = T.exp(B[2]) / (B[3] + 1.5) - T.rsqrt(B[4])
            B[2] = T.sigmoid(B[5]) + T.abs(B[6]) + T.clamp(B[7], 0.0, 6.0)
            B[3] = T.cast(i, "float32") * 2
            B[4] = T.reinterpret(i, "float32")
            C[0] = (C[1] << 4) >> 4
            A[8] = T.cast(i > 3, "int32") + T.cast(not (j > 2), "int32")

    again(f)


def test_every_tile_operation_survives_printing():
    @T.prim_func
    def f(A: T.Tensor((4, 64, 32), "float16"), B: T.Tensor((4, 64, 64), "float32")):
        with T.Kernel(4, threads=(64, 2)) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((64, 32), "float16", scope="shared")
            c = T.alloc_fragment((64, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            T.copy(A[bx, 0, 0], a, coalesced_width=4)
            T.copy(A[bx, :, :], b, disable_tma=True)
            T.fill(c, -T.infinity("float32"))
            T.gemm(a, b, c, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.reduce_max(c, r, dim=1, clear=False)
            T.reduce_sum(c[0:32, :], r[0:32], dim=-1)
            T.atomic_add(B[bx, 0, 0], c)
            T.atomic_add(B[bx, 3, 4], 1.0)
            T.use_swizzle(8, order="column")
            old = T.atomic_add(B[0, 0, 0], 2.0, return_prev=True)
            B[1, 0, 0] = old

    again(f)


# refusals


def refused(kind, build, text=""):
    with pytest.raises(kind) as caught:
        build()
    error = caught.value
    assert isinstance(error, TilecError)
    assert error.span.file == __file__
    assert text in str(error)
    return error


def test_value_carried_around_a_loop_is_refused():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(1):
                s = 0
                for i in range(8):
                    s = s + A[i]
                A[0] = s

    refused(ScopeError, build, "carry a value")


def test_value_assigned_before_use_in_each_trip_is_fine():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            s = 0
            A[1] = s
            for i in range(8):
                s = A[i] + 1
                A[i] = s

    again(f)


@pytest.mark.parametrize("use", ["then", "else"])
def test_value_bound_under_a_condition_is_unknown_afterwards(use):
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(2) as bx:
                s = 0
                if bx == 0:
                    s = 1 if use == "then" else s
                else:
                    s = 2
                A[0] = s

    refused(ScopeError, build, "re-bound under a run-time condition")


def test_else_branch_sees_the_value_from_before_the_if():
    @T.prim_func
    def f(A: T.Tensor((8,), "int32")):
        with T.Kernel(2) as bx:
            s = 10
            if bx == 0:
                s = 20
                A[0] = s
            else:
                A[1] = s

    (node,) = body(f)
    assert ir.const_value(node.other.value) == 10


def test_while_on_an_immutable_name_is_refused():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(1):
                n = A[0]
                while n > 0:
                    n = n - 1

    refused(ScopeError, build, "tested by `while`")


def test_break_in_a_python_loop_under_a_device_condition_is_refused():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(1):
                for n in [0, 1]:
                    if A[n] > 0:
                        break

    refused(UnsupportedSyntaxError, build, "`break`")


def test_truth_of_a_run_time_value():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(1):
                A[0] = len([1 for _ in [0] if A[0] > 0])

    refused(StagedTruthError, build)


@pytest.mark.parametrize("index", [8, -9, (0, 0)])
def test_bad_constant_indices(index):
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(1):
                A[index] = 1

    refused(IndexCountError if index == (0, 0) else OutOfBoundsError, build)


def test_slice_bounds():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            with T.Kernel(1):
                T.fill(A[6:12], 7)

    error = refused(OutOfBoundsError, build, "6:12")
    assert "8 element(s)" in str(error)


def test_values_cannot_leave_a_helper_under_a_run_time_condition():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8,), "int32")):
            def pick(x):
                if x > 0:
                    return 1
                return 2

            with T.Kernel(1):
                A[0] = pick(A[1])

    refused(TilecError, build, "run-time control flow")


@pytest.mark.parametrize("count", [10, 200])
def test_long_sums_are_cut_into_lets(count):
    positions = list(range(count))

    @T.prim_func
    def f(A: T.Tensor((count,), "int32"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            B[0] = sum([A[k] for k in positions])
            if sum([A[k] for k in positions]) > 3:
                B[0] = 0

    again(f)


def test_conditional_values_nested_too_deeply():
    def build():
        @T.prim_func
        def f(A: T.Tensor((100,), "int32"), B: T.Tensor((1,), "int32")):
            with T.Kernel(1):
                x = 0
                for k in positions:
                    x = T.if_then_else(A[k] > k, x, k) if k == 0 else T.if_then_else(A[k] > k, k, x)
                B[0] = x

        return f

    positions = list(range(100))
    again(build())  # every binding is a let, so nothing nests

    def nested():
        @T.prim_func
        def f(A: T.Tensor((100,), "int32"), B: T.Tensor((1,), "int32")):
            with T.Kernel(1):
                B[0] = choose(A, 0)

        return f

    def choose(A, k):
        return A[k] if k == 99 else T.if_then_else(A[k] > k, k, choose(A, k + 1))

    refused(UnsupportedSyntaxError, nested, "too deeply")
