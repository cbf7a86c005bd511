"""The plugin API: everything a backend imports from tilec to describe itself.

A backend is a distribution with an entry point in the group ``tilec`` whose module implements the
hook `tilec_backends` (see `tilec.backend.hookspecs`) and returns `BackendModule` manifests. Target
(what is generated) and execution backend (how it is compiled, loaded and launched) are two things;
one compilation resolves both into a frozen `BackendContext`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.backend.artifact import (
    CompiledArtifact,
    DeviceProgram,
    HiddenArgument,
    HostProgram,
    KernelParam,
    LaunchInfo,
)
from tilec.backend.components import (
    Availability,
    DeviceCodegen,
    Executable,
    Execution,
    ExecutionBackendSpec,
    ForeignTensor,
    HostCodegen,
    HostCodegenHook,
    HostInput,
    Meaning,
    Measurement,
    RuntimeShim,
    Timer,
    ToolchainInfo,
)
from tilec.backend.context import BackendContext
from tilec.backend.discovery import PluginFailure, PluginInfo
from tilec.backend.instruments import Callback, DumpIR, Instrument, PassTime, Timing, Verify
from tilec.backend.lowering import GENERIC_COST, Lowering, LoweringTable
from tilec.backend.manifest import API_VERSION, BackendModule
from tilec.backend.pipeline import PassPipeline, Stage
from tilec.backend.registry import BackendRegistry, registry
from tilec.backend.target import Attr, Target, TargetKind
from tilec.transform.base import (
    ConfigKey,
    FunctionPass,
    Pass,
    PassConfigKey,
    PassContext,
    Remark,
    module_pass,
)
from tilec.transform.capabilities import Capabilities, CopyEngine, MatrixAtom, Memory

if TYPE_CHECKING:
    from tilec.backend.hookspecs import hookimpl as hookimpl

__all__ = [
    "API_VERSION",
    "GENERIC_COST",
    "Attr",
    "Availability",
    "BackendContext",
    "BackendModule",
    "BackendRegistry",
    "Callback",
    "Capabilities",
    "CompiledArtifact",
    "ConfigKey",
    "CopyEngine",
    "DeviceCodegen",
    "DeviceProgram",
    "DumpIR",
    "Executable",
    "Execution",
    "ExecutionBackendSpec",
    "ForeignTensor",
    "FunctionPass",
    "HiddenArgument",
    "HostCodegen",
    "HostCodegenHook",
    "HostInput",
    "HostProgram",
    "Instrument",
    "KernelParam",
    "LaunchInfo",
    "Lowering",
    "LoweringTable",
    "MatrixAtom",
    "Meaning",
    "Measurement",
    "Memory",
    "Pass",
    "PassConfigKey",
    "PassContext",
    "PassPipeline",
    "PassTime",
    "PluginFailure",
    "PluginInfo",
    "Remark",
    "RuntimeShim",
    "Stage",
    "Target",
    "TargetKind",
    "Timer",
    "Timing",
    "ToolchainInfo",
    "Verify",
    "hookimpl",
    "module_pass",
    "registry",
]


def __getattr__(name: str) -> Any:
    """`hookimpl` comes with pluggy, which only plugins need."""
    if name == "hookimpl":
        from tilec.backend.hookspecs import hookimpl  # noqa: PLC0415 - see the docstring

        return hookimpl
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
