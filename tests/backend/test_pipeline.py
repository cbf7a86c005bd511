"""Pipelines: order, editing, instruments, forms; lowering tables; pass contexts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers_backend import Split, Step, pipeline

from tilec import ir
from tilec.backend import (
    Callback,
    Capabilities,
    DumpIR,
    Lowering,
    LoweringTable,
    Pass,
    PassConfigKey,
    PassContext,
    PassPipeline,
    Stage,
    Target,
    Timing,
    Verify,
    module_pass,
)
from tilec.diagnostics import CapabilityError, ManifestError, PassConfigError, ScopeError


def a_module(name: str = "f") -> ir.Module:
    buffer = ir.Buffer("A", (4,), ir.DType("float32"))
    zero = ir.Const(0, ir.DType("int32"))
    body = ir.Store(buffer, (zero,), ir.Const(1.0, ir.DType("float32")))
    return ir.Module({name: ir.PrimFunc(name, (buffer,), body, {})})


def names(p: PassPipeline) -> list[str]:
    return [item.name for item in p.passes]


def test_order_and_conditions() -> None:
    log: list[str] = []

    class Never(Step):
        def applies(self, ctx: PassContext) -> bool:
            return ctx.flag(PassConfigKey.TL_FORCE_LET_INLINE)

    made = PassPipeline(
        "chip",
        (
            Stage("one", (Step("a", log=log), Never("b", log=log))),
            Stage("two", (Step("c", log=log),), when=lambda ctx: ctx.target is not None),
            Stage("three", (Step("d", log=log),)),
        ),
    )
    made.lower(a_module(), PassContext())
    assert log == ["a", "d"]
    log.clear()
    ctx = PassContext({"tl.force_let_inline": True}, target=Target("chip"))
    made.lower(a_module(), ctx)
    assert log == ["a", "b", "c", "d"]


def test_editing_returns_new_pipelines() -> None:
    base = pipeline("chip", Step("a"), Step("b"))
    assert names(base.insert_before("b", Step("x"))) == ["a", "x", "b", "split"]
    assert names(base.insert_after("b", Step("x"), Step("y"))) == ["a", "b", "x", "y", "split"]
    assert names(base.replace("a", Step("x"))) == ["x", "b", "split"]
    assert names(base.remove("a")) == ["b", "split"]
    assert names(base.insert_before("split", Stage("s", (Step("x"),)))) == ["a", "b", "x", "split"]
    assert names(base.remove("prepare")) == ["split"]
    assert names(base) == ["a", "b", "split"]
    assert base.renamed("other").name == "other"
    with pytest.raises(ManifestError, match="no stage or pass 'spilt'") as info:
        base.insert_before("spilt", Step("x"))
    assert info.value.hint == "did you mean 'split'?"
    with pytest.raises(ManifestError, match="'a' is a pass; put passes"):
        base.insert_before("a", Stage("s", ()))
    with pytest.raises(ManifestError, match="'prepare' is a stage; put stages"):
        base.insert_before("prepare", Step("x"))
    with pytest.raises(ManifestError, match="two passes called a"):
        base.insert_after("b", Step("a"))


def test_forms_must_chain() -> None:
    good = pipeline("chip", Step("a", needs="tile", gives="thread"), Step("b", needs="thread"))
    assert good.forms() == ("tile", "thread", "thread", "split")
    with pytest.raises(ManifestError, match="pass 'b' needs thread form, but gets tile form"):
        pipeline("chip", Step("b", needs="thread"))


def test_instruments(tmp_path: Path) -> None:
    @module_pass("rename", "Rename the function.")
    def rename(module: ir.Module, ctx: PassContext) -> ir.Module:
        return module.map(lambda f: f.replace(name="g"))

    timing, seen = Timing(), []
    callback = Callback(lambda stage, p, module: seen.append((stage, p.name, *module.functions)))
    made = PassPipeline("chip", (Stage("s", (Step("idle"), rename)),))
    result = made.with_instruments(timing).lower(
        a_module(), PassContext(), [callback, DumpIR(tmp_path), Verify()]
    )
    assert list(result.functions) == ["g"]
    assert seen == [("s", "idle", "f"), ("s", "rename", "g")]
    assert [(t.name, t.changed) for t in timing.times] == [("idle", False), ("rename", True)]
    assert "s.rename" in timing.report()
    assert "s.rename" not in timing.report(threshold_ms=1e6)
    files = sorted(p.name for p in (tmp_path / "f").iterdir())
    assert files == [
        "000_input.py",
        "001_s.idle.unchanged.py",
        "002_s.rename.diff",
        "002_s.rename.py",
    ]
    assert "+def g" in (tmp_path / "f" / "002_s.rename.diff").read_text()


def test_verifier_names_the_pass() -> None:
    @module_pass("spoil", "Break the module.", gives="split")
    def spoil(module: ir.Module, ctx: PassContext) -> ir.Module:
        stray = ir.Evaluate(ir.Var("x", ir.DType("int32")))
        return module.map(lambda f: f.replace(body=stray))

    made = PassPipeline("chip", (Stage("s", (spoil,)),))
    with pytest.raises(ScopeError) as info:
        made.lower(a_module(), PassContext(), [Verify()])
    assert info.value.__notes__ == ["while running pass 'spoil' (Break the module.)"]


def test_user_passes_run_after_the_first_stage() -> None:
    log: list[str] = []
    base = pipeline("chip", Step("a", log=log))
    key = PassConfigKey.TIR_ADD_LOWER_PASS
    base.lower(a_module(), PassContext({key: [Step("mine", log=log)]}))
    assert log == ["a", "mine"]
    with pytest.raises(PassConfigError, match="holds 3"):
        base.lower(a_module(), PassContext({key: [3]}))


def test_describe_lists_purposes() -> None:
    assert "a      does a" in pipeline("chip", Step("a")).describe()


class Op(ir.TileOp):
    """An operation without operands."""

    def reads(self) -> tuple[ir.BufferRegion, ...]:
        return ()

    def writes(self) -> tuple[ir.BufferRegion, ...]:
        return ()


class SpecialOp(Op):
    """A subclass, which inherits lowerings."""


def lowering(name: str, **options: Any) -> Lowering:
    return Lowering(Op, name, lambda op, ctx: ir.Seq(()), **options)


def test_lowering_choice() -> None:
    table = LoweringTable([lowering("slow", cost=10), lowering("also_slow", cost=10)])
    op, ctx = Op(), PassContext(target=Target("chip"))
    assert table.choose(op, ctx).name == "slow"
    faster = table.extended(
        [lowering("fast", cost=lambda o, c: 1, when=lambda o, c: isinstance(o, SpecialOp))]
    )
    assert faster.choose(op, ctx).name == "slow"
    assert faster.choose(SpecialOp(), ctx).name == "fast"
    assert len(table) == 2

    @table.on(SpecialOp, "own", cost=10)
    def own(op: SpecialOp, ctx: PassContext) -> ir.Stmt:
        return ir.Seq(())

    assert table.choose(SpecialOp(), ctx).name == "own"
    with pytest.raises(ManifestError, match="Op has two lowerings called 'slow'"):
        table.add(lowering("slow"))


def test_no_lowering_says_why() -> None:
    table = LoweringTable([lowering("picky", when=lambda op, ctx: "needs 16 lanes")])
    with pytest.raises(CapabilityError, match="Op has no lowering for target chip") as info:
        table.choose(Op(), PassContext(target=Target("chip")))
    assert info.value.notes == ("picky: needs 16 lanes",)
    assert table.find(Op(), PassContext()) is None


def test_capabilities() -> None:
    table = Capabilities(
        dtypes=frozenset({"float32", "int8"}),
        unsupported={"sort": "no such unit", "gemm:int8": "only floats"},
    )
    assert table.supports("gemm", "float32")
    assert table.refusal("gemm", "int8") == "only floats"
    assert table.refusal("gemm", "float64") == "dtype float64 is not supported"
    with pytest.raises(CapabilityError, match="does not support sort: no such unit"):
        table.require("sort")
    assert table.with_features(x=1).features["x"] == 1
    with pytest.raises(ValueError, match="positive"):
        Capabilities(lanes=0)


def test_pass_context() -> None:
    ctx = PassContext({PassConfigKey.TL_ENABLE_FAST_MATH: True, "tirx.disable_vectorize": 1})
    assert ctx.flag(PassConfigKey.TL_ENABLE_FAST_MATH)
    assert ctx.config == {"tl.enable_fast_math": True, "tirx.disable_vectorize": True}
    assert ctx.get(PassConfigKey.TL_CONFIG_INDEX_BITWIDTH) == 32
    ctx.remark("layout", "chose the slow path")
    assert ctx.remarks[0].message == "chose the slow path"
    bad: list[tuple[dict[str, object], str]] = [
        ({"tl.enable_fast_maths": True}, "no pass config key 'tl.enable_fast_maths'"),
        ({"tl.enable_fast_math": "yes"}, "'tl.enable_fast_math' expects bool, got str 'yes'"),
        ({"tl.config_index_bitwidth": True}, "expects int, got bool True"),
        ({"enable_simplify_let_inline": True}, "is an option of the simplifier"),
        ({"tl.Simplify": {"nope": True}}, "the simplifier has no option 'nope'"),
    ]
    for config, message in bad:
        with pytest.raises(PassConfigError, match=message):
            PassContext(config)
    nested = PassContext({"tl.Simplify": {"enable_simplify_let_inline": 0}})
    assert nested.get(PassConfigKey.TL_SIMPLIFY) == {"enable_simplify_let_inline": False}


def test_passes_run_alone() -> None:
    step: Pass = Step("a")
    module = a_module()
    assert step(module) is module
    assert isinstance(Split()(module), ir.Module)
