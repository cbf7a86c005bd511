"""Promotion, constants and the verifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilec import ir
from tilec.diagnostics import (
    AmbiguousDivisionError,
    DTypeError,
    LiteralRangeError,
    OperandError,
    ScopeError,
    StagedTruthError,
    VerifyError,
)
from tilec.ir import Binary, BinOp, Buffer, Const, DType, PrimFunc, Seq, Store, Var, promote

INT32, FLOAT32, BOOL = DType("int32"), DType("float32"), DType("bool")


def v(dtype: str) -> Var:
    return Var("x", DType(dtype))


PROMOTIONS = [
    ("float16", "float32", "float32"), ("bfloat16", "float32", "float32"),
    ("bfloat16", "float16", "float16"), ("float16", "int32", "float16"),
    ("int32", "int64", "int64"), ("int32", "uint32", "uint32"), ("int8", "int32", "int32"),
    ("uint8", "int8", "uint8"), ("int8", "int8", "int8"), ("bool", "bool", "bool"),
    ("int32", "bool", "int32"), ("float8_e4m3fn", "float8_e4m3fn", "float8_e4m3fn"),
    ("float32", "tfloat32", "float32"), ("float64", "float32", "float64"),
    ("float8_e5m2", "float16", "float16"), ("uint64", "int64", "uint64"),
    ("int64", "float16", "float16"), ("bool", "float16", "float16"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "want"), PROMOTIONS)
def test_promotion(a: str, b: str, want: str) -> None:
    assert promote(DType(a), DType(b)) == want
    assert promote(DType(b), DType(a)) == want
    assert (v(a) + v(b)).dtype == want
    assert (v(a) < v(b)).dtype == BOOL


def test_no_promotion_between_narrow_formats() -> None:
    with pytest.raises(DTypeError, match="float8_e4m3fn"):
        promote(DType("float8_e4m3fn"), DType("float8_e5m2"))


LITERALS: list[tuple[Callable[[], Any], str]] = [
    (lambda: v("float16") * 2, "float16"), (lambda: v("float16") / 3, "float16"),
    (lambda: v("bfloat16") * 2, "bfloat16"), (lambda: v("float16") * 2.0, "float32"),
    (lambda: v("float8_e4m3fn") * 2.0, "float32"), (lambda: v("int32") + 1.5, "float32"),
    (lambda: v("float64") * 2.0, "float64"), (lambda: v("int32") + True, "int32"),
    (lambda: v("int8") + 1, "int8"), (lambda: v("int32") + 2**40, "int64"),
    (lambda: 1 - v("uint8"), "uint8"), (lambda: v("int32") // 3, "int32"),
    (lambda: v("int32") % 3, "int32"), (lambda: v("bool") & v("bool"), "bool"),
    (lambda: v("int32") >> 1, "int32"), (lambda: ~v("bool"), "bool"),
    (lambda: ir.select(v("bool"), v("float16"), v("float32")), "float32"),
    (lambda: -v("float16"), "float16"), (lambda: -v("bool"), "int32"),
]  # fmt: skip


@pytest.mark.parametrize("n", range(len(LITERALS)))
def test_literals_take_the_type_beside_them(n: int) -> None:
    build, want = LITERALS[n]
    assert build().dtype == want


REFUSED: list[tuple[Callable[[], Any], type[Exception]]] = [
    (lambda: v("int32") / 2, AmbiguousDivisionError),
    (lambda: v("int32") / v("int32"), AmbiguousDivisionError),
    (lambda: v("float32") & v("float32"), DTypeError), (lambda: ~v("float32"), DTypeError),
    (lambda: v("float32") << 1, DTypeError), (lambda: v("int32") ** 2, OperandError),
    (lambda: bool(v("int32")), StagedTruthError), (lambda: int(v("int32")), StagedTruthError),
    (lambda: v("int8") + 300, LiteralRangeError), (lambda: v("uint8") + -1, LiteralRangeError),
    (lambda: ir.literal(float("inf"), INT32), LiteralRangeError),
]  # fmt: skip


@pytest.mark.parametrize("n", range(len(REFUSED)))
def test_refused(n: int) -> None:
    build, error = REFUSED[n]
    with pytest.raises(error):
        build()


def test_dtypes_are_strings() -> None:
    assert DType("float16") == "float16"
    assert {DType("float16"): 1}["float16"] == 1
    assert f"{DType('int8')}" == "int8"
    assert DType("int32x4").lanes == 4
    assert DType("int32x4").scalar == "int32"
    assert DType("float4_e2m1fnx2").bytes == 1
    assert DType.of("half") == "float16"
    assert DType("bool").int_range == (0, 1)
    with pytest.raises(DTypeError, match="float33"):
        DType("float33")


# Verifier


def function(body: ir.Stmt, *params: Buffer | Var) -> PrimFunc:
    return PrimFunc("f", params, body)


def store(buffer: Buffer, index: Any, value: Any = 0.0) -> Store:
    value = Const(value, FLOAT32) if isinstance(value, float) else value
    return Store(buffer, (ir.as_expr(index),), value)


def a_buffer(scope: str = "global") -> Buffer:
    return Buffer("A", (8,), FLOAT32, scope)


def test_legal() -> None:
    a, n, i = a_buffer(), v("int32"), Var("i", INT32)
    zero, one = Const(0, INT32), Const(1, INT32)
    body = ir.For(i, zero, n, one, "serial", {}, Seq((store(a, i), ir.Break())))
    ir.verify(function(body, a, n))


def illegal() -> dict[str, tuple[PrimFunc, str, type[Exception], str]]:
    a, x, i = a_buffer(), v("int32"), Var("i", INT32)
    zero, one = Const(0, INT32), Const(1, INT32)
    local = Buffer("L", (4,), FLOAT32, "local")

    def loop(body: ir.Stmt, start: ir.Expr = zero, step: ir.Expr = one) -> ir.For:
        return ir.For(i, start, Const(8, INT32), step, "serial", {}, body)

    def launch(body: ir.Stmt) -> ir.Launch:
        return ir.Launch((Var("bx", INT32),), (one,), (), None, {}, body)

    wrong = Binary(BinOp.ADD, x, Const(1, DType("int64")), INT32)
    return {
        "unbound": (function(store(a, x), a), "tile", ScopeError, "not bound"),
        "after its loop": (
            function(Seq((loop(store(a, i)), store(a, i))), a), "tile", ScopeError, "outside",
        ),
        "buffer after its block": (
            function(
                Seq((ir.If(x < 1, Seq((ir.Alloc(local), store(local, 0)))), store(local, 0))), x
            ), "tile", ScopeError, "allocated",
        ),
        "bound twice": (
            function(Seq((loop(store(a, i)), loop(store(a, i)))), a), "tile", VerifyError, "twice",
        ),
        "operand types": (function(store(a, wrong), a, x), "tile", VerifyError, "int64"),
        "store type": (function(store(a, 0, Const(1, INT32)), a), "tile", VerifyError, "store"),
        "let type": (
            function(Seq((ir.Bind(v("int64"), x), store(a, 0))), a, x), "tile", VerifyError, "let",
        ),
        "rank": (
            function(Store(a, (zero, zero), Const(0.0, FLOAT32)), a), "tile", VerifyError, "rank",
        ),
        "float index": (
            function(store(a, Const(1.0, FLOAT32)), a), "tile", VerifyError, "index of type",
        ),
        "condition": (function(ir.If(x, store(a, 0)), a, x), "tile", VerifyError, "condition"),
        "step 0": (function(loop(store(a, i), step=zero), a), "tile", VerifyError, "step 0"),
        "bound type": (
            function(loop(store(a, i), start=Const(0, DType("int64"))), a), "tile", VerifyError,
            "bound",
        ),
        "jump": (function(ir.Break()), "tile", VerifyError, "outside a loop"),
        "jump in a launch": (
            function(launch(ir.Continue())), "tile", VerifyError, "outside a loop",
        ),
        "parallel in thread form": (
            function(ir.Parallel((i,), (Const(8, INT32),), {}, store(a, i)), a), "thread",
            VerifyError, "Parallel",
        ),
        "launch in split form": (function(launch(store(a, 0)), a), "split", VerifyError, "Launch"),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(illegal()))
def test_illegal(name: str) -> None:
    func, form, error, text = illegal()[name]
    with pytest.raises(error, match=text):
        ir.verify(func, form)


def test_jump_in_a_loop_inside_a_launch() -> None:
    i, one = Var("i", INT32), Const(1, INT32)
    loop = ir.For(i, Const(0, INT32), one, one, "serial", {}, ir.Break())
    ir.verify(function(ir.Launch((Var("bx", INT32),), (one,), (), None, {}, loop)))
