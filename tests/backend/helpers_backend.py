"""Parts of small backends for tests."""

from __future__ import annotations

from typing import Any

from tilec.backend import (
    Availability,
    BackendContext,
    BackendModule,
    CompiledArtifact,
    DeviceCodegen,
    DeviceProgram,
    ExecutionBackendSpec,
    HostCodegen,
    HostInput,
    HostProgram,
    Pass,
    PassContext,
    PassPipeline,
    Stage,
    TargetKind,
)
from tilec.ir import Module


class Step(Pass):
    """A pass that records that it ran."""

    def __init__(self, name: str, needs: str = "any", gives: str = "", log: Any = None) -> None:
        self.name, self.purpose, self.needs, self.gives = name, f"does {name}", needs, gives
        self.log = log if log is not None else []

    def run(self, module: Module, ctx: PassContext) -> Module:
        self.log.append(self.name)
        return module


class Split(Step):
    """Marks every function as host and adds a device function of the same body."""

    def __init__(self) -> None:
        super().__init__("split", gives="split")

    def run(self, module: Module, ctx: PassContext) -> Module:
        functions = {}
        for name, func in module.functions.items():
            functions[name] = func.with_attr("calling_conv", "host_packed")
            device = func.replace(name=f"{name}_kernel")
            functions[device.name] = device.with_attr("calling_conv", "device_kernel")
        return Module(functions)


class Loaded:
    """An executable that only remembers."""

    def __init__(self, artifact: CompiledArtifact) -> None:
        self.artifact = artifact

    def __call__(self, *args: Any) -> Any:
        return args


def pipeline(name: str = "chip", *passes: Pass) -> PassPipeline:
    return PassPipeline(name, (Stage("prepare", passes), Stage("split", (Split(),))))


def emit(module: Module, context: BackendContext) -> DeviceProgram:
    return DeviceProgram("txt", module.script(), tuple(module.functions))


def emit_host(given: HostInput) -> HostProgram:
    return HostProgram("txt", given.module.script(), "main")


def load(artifact: CompiledArtifact, context: BackendContext) -> Loaded:
    return Loaded(artifact)


def execution(name: str = "run", *, reason: str = "", host: bool = True) -> ExecutionBackendSpec:
    return ExecutionBackendSpec(
        name,
        load,
        available=lambda target: Availability(not reason, reason),
        enable_host_codegen=host,
    )


def backend(name: str = "chip", **changes: Any) -> BackendModule:
    """A valid manifest, with some fields changed."""
    kind = TargetKind(name, detect=dict)
    fields: dict[str, Any] = {
        "target_kinds": (kind,),
        "pipelines": {name: pipeline(name)},
        "device_codegens": {name: DeviceCodegen("text", emit)},
        "execution_backends": (execution(),),
        "host_codegens": (HostCodegen("text", emit_host),),
    }
    fields.update(changes)
    return BackendModule(name, **fields)
