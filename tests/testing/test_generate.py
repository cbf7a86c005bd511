"""Random programs are legal, the same for the same seed, and use what they are to use."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

import tilec.language as T
from tilec import interp, ir
from tilec.testing.compare import compare, random_arguments
from tilec.testing.fuzz import program

SEEDS = range(500_000, 500_160)


def features(func: ir.PrimFunc, text: str) -> set[str]:
    """What a program uses, by name."""
    found: set[str] = set()
    depth = 0

    def visit(node: Any, loops: int, parallel: bool, conditions: int) -> None:
        nonlocal depth
        if isinstance(node, ir.For):
            found.add(f"{node.kind} loop")
            loops += 1
            if ir.const_value(node.step) not in (1, None):
                found.add("loop with a step")
            if ir.const_value(node.stop) is None:
                found.add("loop to a run-time bound")
        elif isinstance(node, ir.Parallel):
            found.add(f"parallel loop of {len(node.vars)}")
            loops, parallel = loops + 1, True
        elif isinstance(node, ir.If):
            found.add("guard in a parallel loop" if parallel else "branch")
            found.update(["else"] if node.other is not None else [])
        elif isinstance(node, ir.TileOp):
            name = node.script_name
            found.add(f"{name} {getattr(node, 'kind', '')}".strip())
            regions = (*node.reads(), *node.writes())
            if any(str(r.extents) != str(r.buffer.shape) for r in regions):
                found.add(f"{name} of a part")
            if len({str(r.dtype) for r in regions}) > 1:
                found.add("mixed dtypes")
        elif isinstance(node, ir.Alloc):
            shape = node.buffer.shape
            found.add(node.buffer.scope())
            if node.buffer.scope() == ir.FRAGMENT and any(e % 2 and e > 1 for e in shape):
                found.add("fragment of an odd shape")
        elif isinstance(node, ir.Call):
            found.add(node.name)
            if node.name.startswith("atomic") and node.args[0].buffer.scope() == ir.GLOBAL:
                found.add("global atomic")
        elif isinstance(node, ir.Launch):
            lanes = set(node.thread_vars)
            if any(v in lanes for v in ir.walk(node.body)):
                found.add("lanes")
        elif isinstance(node, (ir.While, ir.Break, ir.Continue, ir.Select, ir.Cast, ir.Bind)):
            found.add(type(node).__name__.lower())
        if loops > 1:
            found.add("nested loops")
        for child in getattr(node, "children", ()):
            visit(child, loops, parallel, conditions)

    visit(func.body, 0, False, 0)
    if sum(isinstance(n, ir.Launch) for n in ir.walk(func.body)) > 1:
        found.add("several launches")
    for param in func.params:
        if isinstance(param, ir.Var):
            found.add("number as an argument")
        elif any(isinstance(e, ir.Expr) for e in param.shape):
            found.add("run-time extent")
        if isinstance(param, ir.Buffer) and param.strides is not None:
            found.add("run-time stride")
    names = re.findall(r"^ +(v\d+) = ", text, re.M)
    if len(names) > len(set(names)):
        found.add("name that is bound again")
    return found


WANTED = {
    "nested loops", "guard in a parallel loop", "branch", "else", "while", "break", "continue",
    "serial loop", "unroll loop", "pipelined loop", "vectorized loop", "loop with a step",
    "loop to a run-time bound", "parallel loop of 1", "parallel loop of 2", "parallel loop of 3",
    ir.SHARED_DYN, ir.FRAGMENT, ir.LOCAL, ir.LOCAL_VAR, "fragment of an odd shape", "mixed dtypes",
    "copy", "copy of a part", "fill", "fill of a part", "gemm", "gemm of a part",
    "reduce sum", "reduce max", "reduce min", "reduce absmax", "reduce abssum", "reduce bitand",
    "reduce bitor", "reduce bitxor", "atomic_add", "atomic_max", "atomic_min", "global atomic",
    "select", "cast", "bind", "name that is bound again", "run-time extent", "run-time stride",
    "number as an argument", "several launches", "lanes",
}  # fmt: skip


def test_every_construct_is_used_often() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        text = program(seed)
        counts.update(features(T.from_script(text), text))
    rare = {name: counts[name] for name in WANTED if counts[name] < 3}
    assert rare == {}, sorted(counts)


def test_programs_mean_something_and_are_the_same_every_time() -> None:
    for seed in SEEDS[:30]:
        text = program(seed)
        assert text == program(seed)
        func = T.from_script(text)
        interp.run(func, *random_arguments(func, seed).values, check=True)


@pytest.mark.parametrize("seed", range(600_001, 600_021, 2))
def test_wide_programs_on_target_c(seed: int) -> None:
    pytest.importorskip("tilec_c")
    assert compare(program(seed), "c", seed) is None


def test_a_difference_names_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong pass shows up as a wrong value, and is named."""
    pytest.importorskip("tilec_c")
    from tilec.transform.parallel import LowerParallel

    real = LowerParallel.statement

    def wrong(self: Any, node: Any, ctx: Any) -> Any:
        if isinstance(node, ir.Const) or not isinstance(node, ir.Store):
            return real(self, node, ctx)
        return node.replace(value=node.value + ir.Const(1, node.value.dtype))

    monkeypatch.setattr(LowerParallel, "statement", wrong)
    monkeypatch.setenv("TILEC_VERIFY", "0")
    text = """
@T.prim_func
def main(A: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        for i in T.Parallel(4):
            A[i] = 3
"""
    found = compare(text, "c")
    assert found is not None
    assert found.kind == "value"
    assert "A[0]: the program means 3, target c gives 4" in found.detail
    assert "pass loops.lower_parallel changes what main computes: A[0] was 3 and is 4" in (
        found.detail
    )
