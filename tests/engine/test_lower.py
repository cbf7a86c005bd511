"""The engine: what it asks of a backend, and what it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers_backend import Split, Step, backend, execution, pipeline

from tilec import ir
from tilec.backend import (
    BackendRegistry,
    DeviceCodegen,
    DeviceProgram,
    HostCodegenHook,
    LaunchInfo,
    PassContext,
    PassPipeline,
    Stage,
)
from tilec.diagnostics import InternalError, JITArgumentError, OperandError, ToolchainError
from tilec.engine import (
    kernel_params,
    lower_to_host_device_ir,
    lower_with_context,
    split_host_device,
)
from tilec.engine.driver import create_context
from tilec.engine.params import normalize_out_idx
from tilec.options import options

F32, I32 = ir.DType("float32"), ir.DType("int32")


def a_function(**attrs: Any) -> ir.PrimFunc:
    n = ir.Var("n", I32)
    a, b = ir.Buffer("A", (n,), F32), ir.Buffer("B", (8,), F32)
    unused = ir.Buffer("C", (8,), F32)
    scale = ir.Var("scale", F32)
    zero = ir.Const(0, I32)
    body = ir.Store(b, (zero,), ir.binary(ir.BinOp.MUL, ir.Load(a, (zero,), F32), scale))
    return ir.PrimFunc("f", (a, b, unused, scale), body, attrs)


def context(**changes: Any) -> Any:
    registry = BackendRegistry()
    registry.register(backend(**changes))
    return registry.context("chip")


def test_artifact() -> None:
    artifact = lower_with_context(a_function(out_idx=[1]), context())
    assert artifact.name == "f"
    assert list(artifact.host_mod.functions) == ["f"]
    assert list(artifact.device_mod.functions) == ["f_kernel"]
    assert artifact.launches["f_kernel"] == LaunchInfo("f_kernel")
    assert "def f_kernel" in artifact.kernel_source
    assert artifact.host_source is not None
    assert artifact.symbol == "main"
    assert artifact.out_idx == (1,)
    assert [p.name for p in artifact.inputs] == ["A", "C", "scale"]
    assert artifact.rt_mod is None
    assert set(artifact.times) == {"passes", "device_codegen", "host_codegen"}
    assert set(artifact.files()) == {"f.txt", "f_host.txt"}


def test_params() -> None:
    a, b, c, scale = kernel_params(a_function(), (1,))
    assert (a.read, a.written, a.used, a.by_value, a.static_shape) == (
        True, False, True, False, None,
    )  # fmt: skip
    assert (b.read, b.written, b.is_output, b.static_shape) == (False, True, True, (8,))
    assert (c.read, c.written, c.used) == (False, False, False)
    assert (scale.by_value, scale.used, scale.dtype, scale.shape) == (True, True, F32, ())


def test_host_codegen_only_where_needed() -> None:
    bare = context(execution_backends=(execution(host=False),))
    assert lower_with_context(a_function(), bare).host is None
    assert lower_with_context(a_function(), bare, enable_host_codegen=True).host is not None
    assert lower_with_context(a_function(), context(), enable_host_codegen=False).host is None


def test_device_compile() -> None:
    def compiled(program: DeviceProgram, ctx: Any) -> DeviceProgram:
        return DeviceProgram(program.language, program.source, binary=b"\x7f")

    def emit(module: ir.Module, ctx: Any) -> DeviceProgram:
        return DeviceProgram("txt", "source")

    both = context(device_codegens={"chip": DeviceCodegen("text", emit, compiled)})
    assert lower_with_context(a_function(), both).rt_mod is None
    assert lower_with_context(a_function(), both, enable_device_compile=True).rt_mod == b"\x7f"
    with pytest.raises(ToolchainError, match="only gives source"):
        lower_with_context(a_function(), context(), enable_device_compile=True)


def test_host_hook_sees_the_host_module() -> None:
    def prepare(module: ir.Module, ctx: Any) -> ir.Module:
        return module.map(lambda f: f.replace(name="prepared"))

    hooked = context(host_hook=HostCodegenHook("rename", prepare))
    artifact = lower_with_context(a_function(), hooked)
    assert list(artifact.host_mod.functions) == ["prepared"]
    assert "def prepared" in (artifact.host_source or "")


def test_remarks_reach_the_artifact() -> None:
    class Talk(Step):
        def run(self, module: ir.Module, ctx: PassContext) -> ir.Module:
            ctx.remark(self.name, "hello")
            return module

    shared = context(pipelines={"chip": pipeline("chip", Talk("talk"))})
    for _ in range(2):  # a context is used again without carrying remarks over
        artifact = lower_with_context(a_function(), shared)
        assert [r.message for r in artifact.remarks if r.origin == "talk"] == ["hello"]


def test_launches_come_from_the_device_functions() -> None:
    class Launch(Split):
        def run(self, module: ir.Module, ctx: PassContext) -> ir.Module:
            split = super().run(module, ctx)
            return split.map(lambda f: f.with_attr("launch", {"grid": (3,), "threads": (128,)}))

    made = PassPipeline("chip", (Stage("split", (Launch(),)),))
    artifact = lower_with_context(a_function(), context(pipelines={"chip": made}))
    assert artifact.launches == {"f_kernel": LaunchInfo("f_kernel", (3,), (128,))}


def test_functions_without_convention_are_our_mistake() -> None:
    with pytest.raises(InternalError, match="function 'f' left the pipeline"):
        split_host_device(ir.Module({"f": a_function()}))


def test_only_one_function() -> None:
    two = ir.Module({"f": a_function(), "g": a_function().replace(name="g")})
    with pytest.raises(OperandError, match="a module with 2 functions"):
        lower_with_context(two, context())
    with pytest.raises(OperandError, match="expected a PrimFunc, got int"):
        lower_with_context(3, context())  # type: ignore[arg-type]
    host, device = lower_to_host_device_ir(two, context())
    assert list(host.functions) == ["f", "g"]
    assert list(device.functions) == ["f_kernel", "g_kernel"]


@pytest.mark.parametrize(
    ("given", "expected"), [(None, ()), (1, (1,)), ([-2, 0], (0, 2)), ((), ())]
)
def test_out_idx(given: Any, expected: tuple[int, ...]) -> None:
    assert normalize_out_idx(a_function(), given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "out_idx 5 is out of range for f, which has 4 parameter"),
        ([1, -3], "names parameter 1 twice"),
        (3, "is the scalar `scale`; outputs are tensors"),
        ("x", "must be an int or a list of ints"),
        (True, "must be an int or a list of ints"),
    ],
)
def test_out_idx_errors(given: Any, message: str) -> None:
    with pytest.raises(JITArgumentError, match=message):
        normalize_out_idx(a_function(), given)


def test_configuration_of_the_function_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    own = BackendRegistry()
    own.register(backend())
    monkeypatch.setattr("tilec.engine.driver.registry", lambda: own)
    func = a_function(
        pass_configs={"tl.enable_fast_math": True, "tl.force_let_inline": True},
        compile_flags=["-a"],
    )
    made = create_context(
        func, "chip", pass_configs={"tl.enable_fast_math": False}, compile_flags="-b '-c d'"
    )
    assert made.config == {"tl.enable_fast_math": False, "tl.force_let_inline": True}
    assert made.compile_flags == ("-a", "-b", "-c d")
    with pytest.raises(JITArgumentError, match="compile_flags is a string or a list"):
        create_context(func, "chip", compile_flags=3)  # type: ignore[arg-type]
    with pytest.raises(JITArgumentError, match="pass_configs is a dict"):
        create_context(func, "chip", pass_configs=[1])  # type: ignore[arg-type]


def test_dumps_and_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with options(dump_dir=tmp_path, profile_passes=True, verify=True):
        lower_with_context(a_function(), context())
    found = {p.name for p in (tmp_path / "f").iterdir()}
    assert {"000_input.py", "001_split.split.py", "f.txt", "f_host.txt"} <= found
    assert "split.split" in capsys.readouterr().err
