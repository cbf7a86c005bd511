"""A lane machine without hardware: ``tilec.compile(func, target="simt")``.

The stages of lane machines (`tilec.simt.stages`) lower the program to thread form, and the
interpreter executes what comes out, lane by lane. It shows what a backend for a lane machine will
be given to print, and it is the test bed of those stages. It is never chosen by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec import ir
from tilec.backend import (
    Attr,
    BackendContext,
    BackendModule,
    Capabilities,
    CompiledArtifact,
    DeviceCodegen,
    DeviceProgram,
    ExecutionBackendSpec,
    Memory,
    PassPipeline,
    Stage,
    Target,
    TargetKind,
    hookimpl,
)
from tilec.interp import Program
from tilec.simt.stages import thread_stages
from tilec.transform.base import FunctionPass, PassContext

_NAME = "simt"
_LANES = 32
_WIDTHS = (1, 2, 4, 8, 16)
_ON_CHIP = (ir.SHARED, ir.SHARED_DYN)
_PRIVATE = (ir.FRAGMENT, ir.LOCAL, ir.LOCAL_VAR)


class KeepThreadForm(FunctionPass):
    """Leaves nothing to generate: an empty device function that carries the program."""

    name = "keep_thread_form"
    purpose = "hand the program to the interpreter as it is"
    needs = "thread"
    gives = "split"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """An empty device function."""
        del ctx
        attrs = {**func.attrs, "calling_conv": "device_kernel", "program": Kept(func)}
        return func.replace(body=ir.Seq(()), attrs=attrs)


class Kept:
    """A function in thread form, as the attribute of another."""

    def __init__(self, func: ir.PrimFunc) -> None:
        self.func = func

    def canonical(self) -> str:
        """Text that is equal for equal functions."""
        return self.func.script()

    __repr__ = canonical


class Lowered:
    """A kernel that the interpreter runs in thread form.

    Attributes:
        artifact: what it was loaded from.
    """

    def __init__(self, artifact: CompiledArtifact, context: BackendContext) -> None:
        self.artifact = artifact
        self._check: Any = context.target.get("check", False)
        (kernel,) = artifact.device_mod.functions.values()
        func = kernel.attrs["program"].func.with_attr("out_idx", tuple(artifact.out_idx))
        meanings = context.module.meanings
        self._program = Program(func, meanings=meanings, negative=False, form="thread")

    def __call__(self, *args: Any) -> Any:
        """Run the kernel; the outputs."""
        return self._program(*args, check=self._check)


def _emit(module: ir.Module, context: BackendContext) -> DeviceProgram:
    del context
    texts = [func.attrs["program"].func.script() for func in module.functions.values()]
    return DeviceProgram("py", "\n\n".join(texts), tuple(module.functions))


def _capabilities(target: Target) -> Capabilities:
    lanes = int(target.get("lanes", _LANES))
    memories = {ir.GLOBAL: Memory(ir.GLOBAL, access_bytes=_WIDTHS)}
    for scope in _ON_CHIP:
        memories[scope] = Memory(scope, access_bytes=_WIDTHS, banks=32)
    for scope in _PRIVATE:
        memories[scope] = Memory(scope, per_lane=True)
    return Capabilities(
        lanes=lanes,
        memories=memories,
        vector_bytes=(16, 8, 4),
        barriers=frozenset({"block"}),
        features={"default_threads": 128, "dlpack_device": 1},
    )


BACKEND = BackendModule(
    name=_NAME,
    target_kinds=(
        TargetKind(
            _NAME,
            "a lane machine that the interpreter plays",
            schema={
                "lanes": Attr((int,), "Lanes of a warp (default 32)."),
                "check": Attr(
                    (bool, str), "Also look for mistakes in every call; see `tilec.interp.run`."
                ),
            },
            detect=lambda: None,
            priority=-1001,
        ),
    ),
    pipelines={_NAME: PassPipeline(_NAME, (*thread_stages(), Stage("keep", (KeepThreadForm(),))))},
    device_codegens={_NAME: DeviceCodegen("script", _emit)},
    execution_backends=(
        ExecutionBackendSpec(
            _NAME,
            Lowered,
            enable_host_codegen=False,
            doc="NumPy, in this process, lane by lane",
        ),
    ),
    capabilities=_capabilities,
)


@hookimpl
def tilec_backends() -> Iterable[BackendModule]:
    """The lane machine."""
    return (BACKEND,)
