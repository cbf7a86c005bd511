"""Structural equality and hash, immutability, traversal."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tilec import ir
from tilec.ir import Binary, BinOp, Buffer, Const, DType, For, PrimFunc, Select, Store, Var, walk

SETTINGS = settings(max_examples=80, deadline=None, derandomize=True)
INT32, FLOAT32, BOOL = DType("int32"), DType("float32"), DType("bool")


def number(value: int) -> Const:
    return Const(value, INT32)


@st.composite
def programs(draw: st.DrawFn, prefix: str = "") -> PrimFunc:
    """A small random function; the names of bound variables start with `prefix`."""
    n = Var("n", INT32)
    a, b = (Buffer(name, (n, 8), FLOAT32) for name in "AB")

    def expr(variables: list[Var], depth: int) -> ir.Expr:
        if depth == 0 or draw(st.booleans()):
            choice = draw(st.integers(0, len(variables)))
            return variables[choice] if choice < len(variables) else number(draw(st.integers(0, 9)))
        op = draw(st.sampled_from([BinOp.ADD, BinOp.MUL, BinOp.FLOORMOD, BinOp.MIN]))
        return Binary(op, expr(variables, depth - 1), expr(variables, depth - 1), INT32)

    def stmt(variables: list[Var], depth: int) -> ir.Stmt:
        kind = draw(st.integers(0, 3 if depth else 0))
        if kind == 0:
            load = ir.Load(a, (expr(variables, 1), number(0)), FLOAT32)
            return Store(b, (expr(variables, 2), number(draw(st.integers(0, 7)))), load)
        if kind == 1:
            var = Var(f"{prefix}i{depth}", INT32)
            body = stmt([*variables, var], depth - 1)
            return For(var, number(0), expr(variables, 1), number(1), "serial", {}, body)
        if kind == 2:
            cond = Binary(BinOp.LT, expr(variables, 1), expr(variables, 1), BOOL)
            return ir.If(cond, stmt(variables, depth - 1))
        var = Var(f"{prefix}t{depth}", INT32)
        bind = ir.Bind(var, expr(variables, 2))
        return ir.Seq((bind, stmt([*variables, var], depth - 1)))

    return PrimFunc("f", (a, b), stmt([n], 3), {"tag": draw(st.sampled_from([None, 1, "x"]))})


def renamed(func: PrimFunc) -> PrimFunc:
    """The same program with fresh variables of other names."""
    variables: dict[Var, ir.Expr] = {}
    for node in walk(func.body):
        for key in ("var",):
            var = getattr(node, key, None)
            if isinstance(var, Var):
                variables[var] = Var(f"other_{var.name}", var.dtype)

    def visit(node: Any) -> Any:
        if isinstance(node, Var):
            return variables.get(node, node)
        return node if isinstance(node, Buffer) else ir.map_children(node, visit)

    return visit(func)  # type: ignore[no-any-return]


@SETTINGS
@given(programs())
def test_names_of_bound_variables_do_not_matter(func: PrimFunc) -> None:
    other = renamed(func)
    assert ir.structural_equal(func, other)
    assert ir.structural_hash(func) == ir.structural_hash(other)
    ir.verify(func)
    ir.verify(other)


@SETTINGS
@given(programs(), st.data())
def test_any_change_matters(func: PrimFunc, data: st.DataObject) -> None:
    constants = [n for n in walk(func.body) if isinstance(n, Const)]
    if not constants:
        return
    target = data.draw(st.sampled_from(constants))

    def visit(node: Any) -> Any:
        if node is target:
            return node.replace(value=node.value + 1)
        return node if isinstance(node, Buffer) else ir.map_children(node, visit)

    changed = visit(func)
    assert not ir.structural_equal(func, changed)
    assert ir.structural_hash(func) != ir.structural_hash(changed)


def test_what_distinguishes_functions() -> None:
    a = Buffer("A", (8,), FLOAT32)
    i, j = Var("i", INT32), Var("j", INT32)
    base = PrimFunc("f", (a, i, j), Store(a, (i,), Const(0.0, FLOAT32)))
    others = [
        base.replace(name="g"),
        base.replace(body=Store(a, (j,), Const(0.0, FLOAT32))),
        base.replace(body=Store(a, (i,), Const(-0.0, FLOAT32))),
        base.replace(body=Store(a, (i,), Const(1.0, FLOAT32))),
        base.replace(params=(a, j, i)),
        base.replace(attrs={"out_idx": [0]}),
    ]
    hashes = {ir.structural_hash(f) for f in (base, *others)}
    assert len(hashes) == len(others) + 1
    assert not any(ir.structural_equal(base, f) for f in others)
    nan = base.replace(body=Store(a, (i,), Const(float("nan"), FLOAT32)))
    assert ir.structural_equal(nan, nan.replace())


PROGRAM = """
from tilec import ir
from tilec.ir import *
n, i = Var("n", DType("int32")), Var("i", DType("int32"))
a = Buffer("A", (n,), DType("float32"))
zero, one = Const(0, n.dtype), Const(1, n.dtype)
body = For(i, zero, n, one, "serial", {"b": 1, "a": {"y": 2, "x": frozenset()}},
           Store(a, (i,), Const(0.5, a.dtype)))
print(structural_hash(PrimFunc("f", (a,), body, {"z": 1, "k": [1, 2.5, True, None]})))
"""


def test_hash_is_the_same_in_every_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }  # fmt: skip
    assert len(texts) == 1
    assert len(texts.pop().strip()) == 64


def test_nodes_are_immutable() -> None:
    node = number(3)
    with pytest.raises(AttributeError, match="immutable"):
        node.value = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        node.extra = 1  # type: ignore[attr-defined]
    with pytest.raises((AttributeError, TypeError)):
        del node.value
    assert copy.copy(node) is node
    assert copy.deepcopy(node) is node
    assert not hasattr(node, "__dict__")


def test_replace_keeps_everything_else() -> None:
    from tilec.diagnostics import Span

    span = Span("k.py", 3, 5, 3, 9)
    a = Buffer("A", (8,), FLOAT32)
    loop = For(
        Var("i", INT32), number(0), number(8), number(1), "unroll", {"factor": 2},
        Store(a, (number(0),), Const(0.0, FLOAT32)), span=span,
    )  # fmt: skip
    other = loop.replace(stop=number(4))
    assert other.span == span
    assert other.annotations is loop.annotations
    assert other.kind == "unroll"
    assert other.body is loop.body
    assert isinstance(other.stop, Const)
    assert other.stop.value == 4
    with pytest.raises(TypeError):
        loop.replace(nothing=1)


@SETTINGS
@given(programs())
def test_mapping_nothing_gives_the_same_object(func: PrimFunc) -> None:
    def visit(node: Any) -> Any:
        return ir.map_children(node, visit)

    assert visit(func) is func
    assert ir.Mutator()(func) is func
    assert ir.substitute(func, {}) is func


@SETTINGS
@given(programs())
def test_walk_is_in_source_order_and_complete(func: PrimFunc) -> None:
    def nodes(node: ir.Node) -> list[ir.Node]:
        found = [node]
        if not isinstance(node, Buffer):
            for child in node.children:
                found += nodes(child)
        return found

    walked = list(walk(func))
    assert len(walked) == len(nodes(func))
    assert all(a is b for a, b in zip(walked, nodes(func), strict=True))


@SETTINGS
@given(programs())
def test_substitution_replaces_every_use(func: PrimFunc) -> None:
    extent = func.params[0].shape[0]  # type: ignore[union-attr]
    assert isinstance(extent, Var)
    new = ir.substitute(func.body, {extent: number(5)})
    assert extent not in ir.free_vars(new)
    assert set(ir.free_vars(new)) == set(ir.free_vars(func.body)) - {extent}


def test_sharing_is_kept_apart_from_identity() -> None:
    x = Var("x", INT32)
    shared = x + 1
    both = shared * shared
    assert isinstance(both, Binary)
    assert both.lhs is both.rhs
    assert ir.structural_equal(both, (x + 1) * (x + 1))
    chosen = Select(x < 1, shared, x, INT32)
    assert [type(n).__name__ for n in walk(chosen)][:3] == ["Select", "Binary", "Var"]
