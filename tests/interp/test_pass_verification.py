"""A pass that changes what a program computes is named, with the first element that it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec import ir
from tilec.backend import Instrument, PassPipeline, module_pass
from tilec.diagnostics import VerifyError
from tilec.engine.driver import create_context, lower_with_context
from tilec.interp.inputs import Unsuitable, make_inputs
from tilec.interp.passes import VerifyPasses
from tilec.ir import BinOp
from tilec.options import options
from tilec.testing.generate import random_program

pytest.importorskip("tilec_c")

Change = Callable[[Any], Any]


@T.prim_func
def table(A: T.Tensor((6, 10), "int32"), B: T.Tensor((6, 10), "int32")):
    with T.Kernel(3) as bx:
        tile = T.alloc_shared((2, 10), "int32")
        T.copy(A[bx * 2, 0], tile)
        for i, j in T.Parallel(2, 10):
            tile[i, j] = tile[i, j] * 2 + 5
        for i, j in T.Parallel(2, 10):
            if i + j < 10:
                B[bx * 2 + i, j] = tile[i, j] - A[bx * 2 + i, 9 - j]


@T.prim_func
def dynamic(A: T.Tensor((T.dynamic("n"),), "float32"), B: T.Tensor((T.dynamic("n"),), "float32")):
    with T.Kernel(T.ceildiv(A.shape[0], 4)) as bx:
        for i in T.Parallel(4):
            B[bx * 4 + i] = A[bx * 4 + i] / 3.0


@T.prim_func
def running(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1):
        for i in T.serial(7):
            B[i + 1] = B[i] + A[i]


@T.prim_func
def product(
    A: T.Tensor((32, 48), "float16"), B: T.Tensor((40, 48), "float16"),
    C: T.Tensor((32, 40), "float32"),
):  # fmt: skip
    with T.Kernel(1):
        a = T.alloc_shared((32, 16), "float16")
        b = T.alloc_shared((40, 16), "float16")
        c = T.alloc_fragment((32, 40), "float32")
        T.clear(c)
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[0, k * 16], a)
            T.copy(B[0, k * 16], b)
            T.gemm(a, b, c, transpose_B=True)
        T.copy(c, C)


def broken(func: ir.PrimFunc, anchor: str, change: Change, *, pick: int | None = 0) -> str:
    """The message about a pass behind `anchor` that changes a node (number `pick` of those that
    `change` changes; None for all)."""

    @module_pass("broken", "change something")
    def spoil(module: ir.Module, ctx: Any) -> ir.Module:
        return module.map(lambda f: _edited(f, change, pick))

    with pytest.raises(VerifyError) as found:
        lower_through(func, anchor, spoil)
    return str(found.value)


def _edited(func: ir.PrimFunc, change: Change, pick: int | None) -> ir.PrimFunc:
    count = -1

    def visit(node: Any) -> Any:
        nonlocal count
        new = change(node)
        if new is not node:
            count += 1
            if pick is None or count == pick:
                return new
        if isinstance(node, ir.Node) and not isinstance(node, ir.Buffer):
            return ir.map_children(node, visit)
        return node

    return func.replace(body=visit(func.body))


def lower_through(func: ir.PrimFunc, anchor: str, new: Any) -> VerifyPasses:
    context = create_context(func, "c")
    watch = VerifyPasses(context.module.meanings)
    if anchor == "lower_tiles":  # the name of a stage as well
        pipeline: PassPipeline = context.pipeline.insert_before("choose_pitches", new)
    else:
        pipeline = context.pipeline.insert_after(anchor, new)
    pipeline.lower(ir.Module({func.name: func}), context.pass_context(), [watch])
    return watch


def constant(old: int, new: int) -> Change:
    def change(node: Any) -> Any:
        if isinstance(node, ir.Const) and node.value == old and not node.dtype.is_float:
            return node.replace(value=new)
        return node

    return change


ANCHORS = (
    "semantic_check", "simplify", "serialize_lanes", "lower_tiles", "fuse_loops", "guard_accesses",
    "lower_parallel", "split_host_device", "flatten_buffers",
)  # fmt: skip


@pytest.mark.parametrize("anchor", ANCHORS)
def test_another_constant_at_every_stage(anchor: str) -> None:
    text = broken(table, anchor, constant(5, 6))
    # Arguments are the same every time, so the first element is, too.
    assert "broken changes what table computes: B[0, 0] was" in text
    before, after = (int(text.split(f" {word} ")[1].split()[0]) for word in ("was", "is"))
    assert after == before + 1


def test_a_loop_that_ends_too_early() -> None:
    def change(node: Any) -> Any:
        if isinstance(node, ir.For) and ir.const_value(node.stop) == 10:
            return node.replace(stop=ir.Const(9, node.stop.dtype))
        return node

    assert "B[0, 9] was" in broken(table, "lower_parallel", change, pick=None)


def test_a_guard_that_drops_an_element() -> None:
    def change(node: Any) -> Any:
        if isinstance(node, ir.Binary) and node.op is BinOp.LT and ir.const_value(node.rhs) == 10:
            return node.replace(rhs=ir.Const(9, node.rhs.dtype))
        return node

    assert "B[0, 9] was" in broken(table, "guard_accesses", change)


def test_a_tail_that_is_not_guarded() -> None:
    """The generated extents are no multiples of the block: without guards the tail goes astray."""

    def change(node: Any) -> Any:
        if isinstance(node, ir.Binary) and node.op is BinOp.LT:
            return node.replace(op=BinOp.LE)
        return node

    @T.prim_func
    def padded(A: T.Tensor((T.dynamic("n"),), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(2) as bx:
            for i in T.Parallel(4):
                if bx * 4 + i < A.shape[0]:
                    B[bx * 4 + i] = 7

    assert "B[5] was" in broken(padded, "lower_parallel", change, pick=None)


def test_statements_that_change_places() -> None:
    def change(node: Any) -> Any:
        if isinstance(node, ir.Seq) and len(node.stmts) == 3:
            return node.replace(stmts=(node.stmts[1], node.stmts[0], node.stmts[2]))
        return node

    @T.prim_func
    def swapped(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            A[0] = 3
            A[1] = A[0] * 2
            B[2] = A[1]

    assert "A[1] was 6 and is" in broken(swapped, "simplify", change)


def test_a_loop_that_is_wrongly_called_a_vector_loop() -> None:
    def change(node: Any) -> Any:
        return node.replace(annotations={"simd": True}) if isinstance(node, ir.For) else node

    text = broken(running, "lower_parallel", change)
    assert "B[2] was" in text  # the first element that needs the one before it


def test_a_rounding_that_is_left_out() -> None:
    """Without sums nothing may change, not even the last bit."""

    def change(node: Any) -> Any:
        if isinstance(node, ir.Binary) and node.op is BinOp.DIV:
            return ir.Binary(BinOp.MUL, node.lhs, node.rhs.replace(value=1 / 3), node.dtype)
        return node

    assert "broken changes what dynamic computes: B[" in broken(dynamic, "simplify", change)


def test_a_wrong_offset_in_flat_memory() -> None:
    text = broken(table, "flatten_buffers", constant(10, 9), pick=None)
    assert "memory.broken changes what table computes" in text


def test_a_grid_that_is_too_small() -> None:
    @module_pass("broken", "one block too few")
    def spoil(module: ir.Module, ctx: Any) -> ir.Module:
        def cut(func: ir.PrimFunc) -> ir.PrimFunc:
            if "grid" not in func.attrs:
                return func
            return func.with_attr("grid", tuple(g - 1 for g in func.attrs["grid"]))

        return module.map(cut)

    with pytest.raises(VerifyError, match=r"split.broken .* B\[4\] was .*"):
        lower_through(dynamic, "split_host_device", spoil)


def test_arguments_of_a_launch_that_change_places() -> None:
    def change(node: Any) -> Any:
        if isinstance(node, ir.Call) and node.name == "call_device":
            name, a, b, *rest = node.args
            return node.replace(args=(name, b, a, *rest))
        return node

    assert "A[0, 0] was" in broken(table, "flatten_buffers", change)


def test_a_wrong_pitch_of_a_matrix() -> None:
    """Calls of the backend have a meaning, and what passes say about their operands counts."""

    def change(node: Any) -> Any:
        if isinstance(node, ir.Call) and node.name == "c_gemm":
            from dataclasses import replace

            spec = node.attrs["spec"]
            return node.replace(attrs={"spec": replace(spec, ldb=spec.ldb + 1)})
        return node

    assert "memory.broken changes what product computes: C[0, " in broken(
        product, "flatten_buffers", change
    )


def test_an_operand_that_changes_places() -> None:
    def change(node: Any) -> Any:
        if isinstance(node, ir.Call) and node.name == "c_gemm":
            from dataclasses import replace

            return node.replace(attrs={"spec": replace(node.attrs["spec"], clear=True)})
        return node

    assert "C[0, 0] was" in broken(product, "lower_tiles", change)


def test_a_variable_that_is_gone() -> None:
    def change(node: Any) -> Any:
        if isinstance(node, ir.For) and ir.const_value(node.stop) == 10:
            return node.body
        return node

    text = broken(table, "lower_parallel", change)
    assert "cannot be executed any more" in text
    assert "`j`" in text


@pytest.mark.parametrize("func", [table, dynamic, running, product], ids=lambda f: f.name)
def test_the_pipeline_keeps_the_meaning(func: ir.PrimFunc) -> None:
    watch = lower_through(func, "flatten_buffers", module_pass("nothing", "none")(lambda m, _: m))
    assert watch.skipped == []
    assert {"split.split_host_device", "memory.flatten_buffers"} <= set(watch.verified)


@pytest.mark.parametrize("seed", range(70_000, 70_012))
def test_random_programs_keep_their_meaning(seed: int) -> None:
    func = T.from_script(random_program(seed))
    watch = lower_through(func, "flatten_buffers", module_pass("nothing", "none")(lambda m, _: m))
    assert "memory.flatten_buffers" in watch.verified or watch.skipped


# what is left out, and why


def skipped(func: ir.PrimFunc, limit: int = 400_000) -> list[str]:
    context = create_context(func, "c")
    watch = VerifyPasses(context.module.meanings, limit)
    ctx = context.pass_context()
    context.pipeline.lower(ir.Module({func.name: func}), ctx, [watch])
    assert [str(r) for r in ctx.remarks if r.origin == "verify_passes"] == [
        f"verify_passes: skipped: {reason}" for reason in watch.skipped
    ]
    return watch.skipped


def test_what_takes_too_long_is_left_out() -> None:
    assert skipped(table, limit=5) == ["it takes more than 5 steps"]
    [*each] = skipped(product, limit=60)
    assert all(text.endswith("it takes more than 60 steps") for text in each)


def test_large_arguments_are_left_out() -> None:
    @T.prim_func
    def large(A: T.Tensor((4096, 4096), "int8")):
        with T.Kernel(1):
            A[0, 0] = 1

    assert skipped(large) == ["its arguments have more than 4194304 elements"]


def test_a_program_without_a_meaning_is_left_out() -> None:
    @T.prim_func
    def undefined(B: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            tile = T.alloc_shared((4,), "int32")
            T.copy(tile, B)

    [reason] = skipped(undefined)
    assert reason.startswith("the generated arguments do not suit it: ")


def test_what_depends_on_the_order_of_updates_is_left_out() -> None:
    @T.prim_func
    def ticket(A: T.Tensor((1,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(4) as bx:
            B[T.atomic_add(A[0], 1, return_prev=True) % 4] = bx

    [reason] = skipped(ticket)
    assert "order of updates" in reason


def test_unknown_intrinsics_are_left_out() -> None:
    context = create_context(product, "c")
    watch = VerifyPasses()  # without the backend's meanings
    context.pipeline.lower(ir.Module({"product": product}), context.pass_context(), [watch])
    assert watch.skipped[0] == (
        "after lower_tiles.lower_tiles: the interpreter knows no meaning of c_gemm"
    )


def test_what_was_not_compared_is_named() -> None:
    """A pass whose result could not be executed may be the one that is wrong."""

    class Forget(Instrument):
        def passed(self, stage: str, p: Any, before: Any, after: Any, form: str, s: float) -> None:
            watch._meanings = dict(context.module.meanings) if p.name == "spoil" else {}

    context = create_context(product, "c")
    watch = VerifyPasses()
    change = constant(16, 15)
    spoil = module_pass("spoil", "change")(
        lambda module, _: module.map(lambda f: _edited(f, change, None))
    )
    pipeline = context.pipeline.insert_after("fuse_loops", spoil)
    with pytest.raises(VerifyError, match=r"not verified since .*: lower_tiles.lower_tiles"):
        pipeline.lower(ir.Module({"product": product}), context.pass_context(), [Forget(), watch])


# how it is asked for


@pytest.mark.parametrize("how", ["option", "pass config"])
def test_it_is_asked_for(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = VerifyPasses.__init__

    def init(self: VerifyPasses, meanings: Any, limit: int) -> None:
        made.append(limit)
        real(self, meanings, limit)

    monkeypatch.setattr(VerifyPasses, "__init__", init)
    configs = {"tl.verify_passes": True} if how == "pass config" else None
    with options(verify=how == "option", verify_steps=77):
        lower_with_context(table, create_context(table, "c", pass_configs=configs))
    assert made == [77]
    with options(verify=False):
        lower_with_context(table, create_context(table, "c"))
    assert made == [77]


def test_a_broken_pass_of_the_user_is_named_when_a_kernel_is_compiled() -> None:
    spoil = module_pass("mine", "change")(
        lambda module, _: module.map(lambda f: _edited(f, constant(5, 4), 0))
    )
    with (
        options(verify=True, verify_steps=10_000),
        pytest.raises(VerifyError, match=r"pass user.mine changes what table computes: B\[0, 0\]"),
    ):
        tilec.compile(table, target="c", pass_configs={"tirx.add_lower_pass": [spoil]})


# arguments


def test_arguments_are_made_from_the_signature() -> None:
    n, m, s = T.dynamic("n"), T.dynamic("m"), T.dynamic("s")

    @T.prim_func
    def signature(
        A: T.Tensor((n, m * 2), "float16"), B: T.StridedTensor((m, n), (s, 1), "uint8"),
        flag: T.bool, count: T.int64, x: T.float32, C: T.Tensor((3,), "bool"),
    ):  # fmt: skip
        with T.Kernel(1):
            if flag:
                C[0] = A[0, 0] > x

    made = make_inputs(signature, 3)
    a, b, flag, count, x, c = made.values
    assert a.shape == (5, 26)
    assert a.dtype == np.float16
    assert b.shape == (13, 5)
    assert b.strides == (8, 1)
    assert made.storage[1].shape == (12 * 8 + 5,)  # type: ignore[union-attr]
    assert (flag, type(count), x) == (True, int, 1.5)
    assert c.dtype == bool
    again = make_inputs(signature, 3)
    assert all(np.array_equal(p, q) for p, q in zip(made.values, again.values, strict=True))
    copy = made.copy()
    copy.values[1][...] = 0
    assert not copy.storage[1].reshape(-1)[:5].any()  # type: ignore[union-attr]
    assert made.values[1].any()


def test_too_many_elements() -> None:
    with pytest.raises(Unsuitable, match="more than 10 elements"):
        make_inputs(table, 0, most=10)
