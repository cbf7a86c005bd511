"""The simplifying pass, negative indices, and semantic checks on tile form."""

from __future__ import annotations

from typing import Any

import pytest

import tilec.language as T
from tilec import ir
from tilec.arith import Simplifier
from tilec.diagnostics import NestingError, OutOfBoundsError
from tilec.ir import BinOp, Buffer, Const, DType, PrimFunc, Seq, Store, Var
from tilec.transform.base import PassContext
from tilec.transform.negative_index import LegalizeNegativeIndex
from tilec.transform.semantic_check import SemanticCheck
from tilec.transform.simplify import Simplify

INT32, FLOAT32, BOOL = DType("int32"), DType("float32"), DType("bool")
A, B = Buffer("A", (64, 128), FLOAT32), Buffer("B", (64,), FLOAT32)
X, K, J = Var("x", INT32), Var("i", INT32), Var("j", INT32)


def func(*body: ir.Stmt) -> PrimFunc:
    return PrimFunc("f", (A, B, X), ir.seq(*body))


def put(index: Any, value: Any = 0.0) -> Store:
    value = Const(value, FLOAT32) if isinstance(value, float) else value
    return Store(B, (ir.as_expr(index),), value)


def loop(body: ir.Stmt, extent: Any = 64, kind: str = "serial", var: Var = K) -> ir.For:
    stop = ir.as_expr(extent)
    return ir.For(var, Const(0, INT32), stop, Const(1, INT32), kind, {}, body)


def simplified(*body: ir.Stmt) -> str:
    module = ir.Module({"f": func(*body)})
    new = Simplify()(module)
    ir.verify(new)
    assert Simplify()(new) is new
    return "\n".join(
        line.strip() for line in new.functions["f"].script().splitlines()
        if not line.startswith(("@", "def", "from", "import"))
    ).strip()  # fmt: skip


def test_index_arithmetic_under_loops() -> None:
    body = loop(loop(put((K * 8 + J) // 8 + (K * 8 + J) % 8, A[K, J]), 8, var=J), 32)
    assert "B[i + j] = A[i, j]" in simplified(body)


def test_decided_branches_and_guards() -> None:
    inside, never = put(K, 1.0), put(K, 2.0)
    body = loop(ir.If(K < 64, inside, never))
    assert simplified(body) == simplified(loop(inside))
    nested = loop(ir.If(K < X, ir.If(K < X + 1, inside, never)))
    assert simplified(nested) == simplified(loop(ir.If(K < X, inside)))
    assert simplified(loop(ir.If(K > 70, never))) == "pass"


def test_memory_conditions_are_not_remembered() -> None:
    cond = ir.Binary(BinOp.GT, B[0], Const(0.0, FLOAT32), BOOL)
    body = ir.If(cond, Seq((put(0, -1.0), ir.If(cond, put(1, 1.0)))))
    assert simplified(body).count("if B[0] >") == 2


def test_exit_gives_a_fact_and_ends_the_block() -> None:
    body = loop(
        Seq((ir.If(K >= X, ir.Break()), ir.If(K < X, put(K, 1.0)), ir.Continue(), put(0, 9.0)))
    )
    text = simplified(body)
    assert text.count("if") == 1
    assert "9" not in text


def test_empty_loops_go() -> None:
    assert simplified(loop(put(K), 0)) == "pass"
    assert simplified(loop(Seq(()), 5)) == "pass"
    assert simplified(ir.Parallel((K,), (Const(0, INT32),), {}, put(K))) == "pass"
    assert "for" in simplified(loop(put(K), X))


def test_trivial_lets_go_and_others_stay() -> None:
    t = Var("t", INT32)
    assert simplified(Seq((ir.Bind(t, X + 0), put(t)))) == simplified(put(X))
    u = Var("u", FLOAT32)
    text = simplified(Seq((ir.Bind(u, B[0]), put(0, 1.0), put(1, u))))
    assert "u = B[0]" in text
    assert "B[1] = u" in text


def test_let_that_a_shape_mentions_stays() -> None:
    t = Var("t", INT32)
    tile = Buffer("S", (t,), FLOAT32, "shared")
    module = ir.Module({"f": func(Seq((ir.Bind(t, X), ir.Alloc(tile), put(0))))})
    ir.verify(Simplify()(module))


def test_effects_stay() -> None:
    call = ir.Call("atomic_add", (B[0], Const(1.0, FLOAT32)), FLOAT32)
    zero = Const(0.0, FLOAT32)
    assert "atomic_add" in simplified(ir.Evaluate(call))
    assert "atomic_add" in simplified(put(1, ir.Binary(BinOp.MUL, call, zero, FLOAT32)))
    cond = ir.Binary(BinOp.EQ, call, call, BOOL)
    assert simplified(ir.If(cond, Seq(()))).count("atomic_add") == 2
    int_call = ir.Call("atomic_add", (B[0], X), INT32)
    assert "atomic_add" in simplified(put(int_call - int_call))
    assert simplified(ir.Evaluate(B[0])) == "pass"


def float_cases() -> list[tuple[ir.Expr, str | None]]:
    x = Var("x", FLOAT32)
    f = lambda v: Const(v, FLOAT32)  # noqa: E731
    return [
        (ir.Binary(BinOp.MUL, x, f(0.0), FLOAT32), None), (x - x, None), (x / x, None),
        (ir.Binary(BinOp.ADD, x, f(0.0), FLOAT32), None),
        (ir.Binary(BinOp.ADD, x, f(-0.0), FLOAT32), "x"),
        (ir.Binary(BinOp.SUB, x, f(0.0), FLOAT32), "x"),
        (ir.Binary(BinOp.SUB, x, f(-0.0), FLOAT32), None), (x * 1.0, "x"), (1.0 * x, "x"),
        (x / 1.0, "x"), (ir.unary(ir.UnOp.NEG, -x), "x"), (x + 1.0 - 1.0, None),
        ((x * 2.0) * 0.5, None),
        (ir.unary(ir.UnOp.NOT, x < 1.0), None), (x != x, None), (x == x, None),
        (ir.binary(BinOp.MAX, f(1.0), f(float("nan"))), "T.float32(1.0)"),
        (ir.binary(BinOp.MAX, f(float("nan")), f(1.0)), "T.float32(1.0)"),
        (ir.Call("ceil", (f(8388608.5),), FLOAT32), "T.float32(8388608.0)"),
    ]  # fmt: skip


@pytest.mark.parametrize("n", range(len(float_cases())))
def test_floats_keep_ieee_meaning(n: int) -> None:
    expr, want = float_cases()[n]
    got = Simplifier().simplify(expr)
    if want is None:
        assert got is expr
    else:
        assert ir.to_text(got) == want


def cast_cases() -> list[tuple[ir.Expr, str]]:
    i8, i32, f32 = Var("x", DType("int8")), Var("x", INT32), Var("x", FLOAT32)
    c = ir.cast
    return [
        (c(c(i8, "int32"), "int8"), "x"), (c(c(i32, "int8"), "int32"), "kept"),
        (c(c(i8, "float32"), "float16"), 'T.cast(x, "float16")'),
        (c(c(i32, "float32"), "int32"), "kept"), (c(c(i32, "float64"), "int32"), "x"),
        (c(c(i32, "float64"), "int8"), "kept"), (c(c(f32, "float64"), "float32"), "x"),
        (c(c(f32, "float16"), "float32"), "kept"),
        (c(c(i32, "int64"), "int8"), 'T.cast(x, "int8")'),
        (c(c(i32, "int16"), "int8"), 'T.cast(x, "int8")'), (c(c(f32, "bool"), "int32"), "kept"),
        (ir.Cast(DType("int8"), Const(300, INT32)), "T.int8(44)"),
    ]  # fmt: skip


@pytest.mark.parametrize("n", range(len(cast_cases())))
def test_casts(n: int) -> None:
    expr, want = cast_cases()[n]
    got = Simplifier().simplify(expr)
    if want == "kept":
        assert got is expr
    else:
        assert ir.to_text(got) == want


def test_spans_are_kept() -> None:
    from tilec.diagnostics import Span

    span = Span("k.py", 7, 1, 7, 9)
    expr = ir.Binary(BinOp.ADD, X * 2, X, INT32, span=span)
    got = Simplifier().simplify(expr)
    assert ir.to_text(got) == "x * 3"
    assert got.span == span


def test_facts_end_with_their_scope() -> None:
    s = Simplifier()
    cond = X < 10
    assert not s.prove(cond)
    with s.assume(cond):
        assert s.prove(cond)
        assert s.prove(X < 11)
        assert s.prove(ir.unary(ir.UnOp.NOT, X > 12))
    assert not s.prove(cond)
    with s.scope():
        s.bind_range(X, 0, 7)
        assert s.simplify(X // 8) is not X
        assert s.bounds(X * 4 + 1) == (1, 29)
    assert s.bounds(X).hi == 2**31 - 1


def test_symbolic_facts() -> None:
    s = Simplifier()
    n, m = Var("n", INT32), Var("m", INT32)
    s.bind_range(n, 1, 2**20)
    s.bind_range(m, 1, 2**10)
    s.bind_range(K, 0, n - 1)
    s.bind_range(J, 0, m - 1)
    assert s.prove(n > K)
    assert s.prove(n >= K)
    assert not s.prove(n - 1 > K)
    assert s.simplify((K * m + J) // m) is K
    assert s.simplify((K * m + J) % m) is J
    with s.assume(ir.binary(BinOp.EQ, n % 64, 0)):
        assert ir.to_text(s.simplify((n + 63) // 64)) == "n // 64"
        assert ir.const_value(s.simplify(n % 16)) == 0


# Negative indices


def legal(*body: ir.Stmt) -> str:
    return LegalizeNegativeIndex()(ir.Module({"f": func(*body)})).script()


def test_negative_indices_count_from_the_end() -> None:
    assert "B[i + 60] = A[63, i]" in legal(loop(put(K - 4, A[Const(-1, INT32), K]), 4))
    text = legal(loop(put(K - 4), 5))
    assert "B[i - 4]" in text
    chosen = ir.select(K < 4, ir.Load(B, (K - 4,), FLOAT32), Const(0.0, FLOAT32))
    assert "B[i + 60]" in legal(loop(put(K, chosen)))
    n = Var("n", INT32)
    tensor = Buffer("C", (n,), FLOAT32)
    f = PrimFunc("f", (tensor,), Store(tensor, (Const(-1, INT32),), Const(0.0, FLOAT32)))
    assert "C[n - 1]" in LegalizeNegativeIndex()(ir.Module({"f": f})).script()


# Semantic checks


def check(*body: ir.Stmt, **config: Any) -> None:
    check_pass, ctx = SemanticCheck(), PassContext(config or None)
    if check_pass.applies(ctx):
        check_pass.run(ir.Module({"f": func(*body)}), ctx)


def parallel(body: ir.Stmt, var: Var = K) -> ir.Parallel:
    return ir.Parallel((var,), (Const(64, INT32),), {}, body)


def tile() -> ir.Stmt:
    from tilec.ops import Fill

    return Fill(B.region(), Const(0.0, FLOAT32))


NESTING = {
    "parallel": (parallel(parallel(put(J), J)), "T.Parallel inside T.Parallel"),
    "tile": (parallel(tile()), "whole block"),
    "pipelined": (parallel(loop(put(K), 4, "pipelined", J)), "T.Pipelined inside"),
    "break": (parallel(ir.If(K > 3, ir.Break())), "`break` in T.Parallel"),
    "continue": (loop(parallel(ir.Continue(), J)), "`continue` in T.Parallel"),
}


@pytest.mark.parametrize("name", list(NESTING))
def test_nesting(name: str) -> None:
    body, text = NESTING[name]
    with pytest.raises(NestingError, match=text):
        check(body)
    check(body, **{"tl.disable_prelower_semantic_check": True})


def test_legal_nesting() -> None:
    check(parallel(loop(Seq((put(J), ir.If(J > 3, ir.Break()))), 8, var=J)))
    check(loop(parallel(put(J), J), 8, "pipelined"))
    check(loop(tile()))


def test_private_buffers() -> None:
    mine = Buffer("mine", (64,), FLOAT32, "local")
    write = Store(mine, (K,), Const(0.0, FLOAT32))
    with pytest.raises(NestingError, match="mine is private"):
        check(Seq((ir.Alloc(mine), parallel(write))))
    check(Seq((ir.Alloc(mine), loop(write))))
    check(parallel(Seq((ir.Alloc(mine), loop(Store(mine, (J,), put(0).value), var=J)))))


def test_indices_out_of_range() -> None:
    tile_buffer = Buffer("S", (64,), FLOAT32, "shared")

    def touch(index: ir.Expr) -> ir.Stmt:
        return Store(tile_buffer, (index,), Const(0.0, FLOAT32))

    with pytest.raises(OutOfBoundsError, match="from 64 to 127"):
        check(Seq((ir.Alloc(tile_buffer), loop(touch(K + 64)))))
    with pytest.raises(OutOfBoundsError, match="64"):
        check(Seq((ir.Alloc(tile_buffer), touch(Const(64, INT32)))))
    check(Seq((ir.Alloc(tile_buffer), loop(touch(K + 63)))))
    check(Seq((ir.Alloc(tile_buffer), loop(touch(K - 64)))))
    # Unreachable, so not wrong.
    check(Seq((ir.Alloc(tile_buffer), loop(ir.If(K > 90, touch(K + 64))))))
    region = ir.BufferRegion(tile_buffer, (Const(32, INT32),), (64,))
    from tilec.ops import Fill

    with pytest.raises(OutOfBoundsError, match="slice of 64"):
        check(Seq((ir.Alloc(tile_buffer), Fill(region, Const(0.0, FLOAT32)))))


def test_traced_kernel() -> None:
    @T.prim_func
    def kernel(C: T.Tensor((1024, 64), "float32")):  # type: ignore[no-untyped-def]
        with T.Kernel(16, threads=32) as bx:
            for i, j in T.Parallel(64, 64):
                if bx * 64 + i < 1024:
                    C[(bx * 4096 + i * 64 + j) // 64, (bx * 4096 + i * 64 + j) % 64] = 0.0

    text = Simplify()(ir.Module({"kernel": kernel})).script()
    assert "if" not in text
    assert "C[bx * 64 + i, j] = " in text
