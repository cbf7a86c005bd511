"""The interpreter as a target: ``tilec.compile(func, target="interpret")``.

Nothing is generated. The pipeline checks the program as for every target; what is "loaded" runs the
tile form, or thread form where that was written. It is never chosen by itself, as it is not
present on any machine by detection.
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
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.check import CheckCapabilities
from tilec.transform.semantic_check import SemanticCheck

_NAME = "interpret"
_SCOPES = (
    ir.GLOBAL, ir.SHARED, ir.SHARED_DYN, ir.FRAGMENT, ir.LOCAL, ir.LOCAL_VAR, "shared.barrier",
)  # fmt: skip


class KeepTileForm(FunctionPass):
    """Leaves nothing to generate: an empty host function that carries the program's text."""

    name = "keep_tile_form"
    purpose = "hand the program to the interpreter as it is"
    needs = "tile"
    gives = "split"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """An empty device function."""
        del ctx
        attrs = {**func.attrs, "calling_conv": "device_kernel", "script": func.script()}
        return func.replace(body=ir.Seq(()), attrs=attrs)


class Interpreted:
    """A kernel that the interpreter runs.

    Attributes:
        artifact: what it was loaded from.
    """

    def __init__(self, artifact: CompiledArtifact, context: BackendContext) -> None:
        self.artifact = artifact
        self._check: Any = context.target.get("check", False)
        func = artifact.prim_func.with_attr("out_idx", tuple(artifact.out_idx))
        self._program = Program(func)

    def __call__(self, *args: Any) -> Any:
        """Run the kernel; the outputs."""
        return self._program(*args, check=self._check)


def _emit(module: ir.Module, context: BackendContext) -> DeviceProgram:
    del context
    texts = [str(func.attrs["script"]) for func in module.functions.values()]
    return DeviceProgram("py", "\n\n".join(texts), tuple(module.functions))


def _capabilities(target: Target) -> Capabilities:
    del target
    return Capabilities(
        memories={scope: Memory(scope) for scope in _SCOPES},
        features={"warps_of_any_size": True},
    )


BACKEND = BackendModule(
    name=_NAME,
    target_kinds=(
        TargetKind(
            _NAME,
            "the reference interpreter: what a program means, slowly",
            schema={
                "check": Attr(
                    (bool, str), "Also look for mistakes in every call; see `tilec.interp.run`."
                )
            },
            detect=lambda: None,
            priority=-1000,
        ),
    ),
    pipelines={
        _NAME: PassPipeline(
            _NAME,
            (
                Stage("check", (CheckCapabilities(), SemanticCheck())),
                Stage("keep", (KeepTileForm(),)),
            ),
        )
    },
    device_codegens={_NAME: DeviceCodegen("script", _emit)},
    execution_backends=(
        ExecutionBackendSpec(
            _NAME,
            Interpreted,
            enable_host_codegen=False,
            doc="NumPy, in this process",
        ),
    ),
    capabilities=_capabilities,
)


@hookimpl
def tilec_backends() -> Iterable[BackendModule]:
    """The interpreter."""
    return (BACKEND,)
