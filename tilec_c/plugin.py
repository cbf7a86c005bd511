"""The plugin: what tilec finds through the entry point ``c``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilec.backend import (
    Availability,
    BackendModule,
    Capabilities,
    DeviceCodegen,
    ExecutionBackendSpec,
    HostCodegen,
    HostInput,
    HostProgram,
    Memory,
    Target,
    TargetKind,
    ToolchainInfo,
    hookimpl,
)
from tilec.diagnostics import ToolchainError
from tilec.host import generate_host_source, host_symbol
from tilec_c.codegen import emit_device
from tilec_c.execution import load
from tilec_c.lowerings import LOWERINGS
from tilec_c.meanings import MEANINGS
from tilec_c.pipeline import PIPELINE
from tilec_c.toolchain import find_toolchain

_SCOPES = ("global", "shared", "shared.dyn", "local.fragment", "local", "local.var")
_DTYPES = frozenset(
    {"bool", "float16", "bfloat16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


def _detect() -> Mapping[str, Any] | None:
    try:
        find_toolchain()
    except ToolchainError:
        return None
    return {}


def _capabilities(target: Target) -> Capabilities:
    del target
    return Capabilities(
        lanes=1,
        memories={scope: Memory(scope, alignment=64) for scope in _SCOPES},
        dtypes=_DTYPES,
        native_dtypes=frozenset({"float32", "float64", "int32", "int64"}),
        features={"default_threads": 128, "dlpack_device": 1},
    )


def _toolchain(target: Target) -> ToolchainInfo:
    del target
    found = find_toolchain()
    return ToolchainInfo(found.version, found.identity, found.flags(), found.describe())


def _available(target: Target) -> Availability:
    del target
    try:
        find_toolchain()
    except ToolchainError as error:
        return Availability(False, str(error).splitlines()[0])
    return Availability(True)


def _host(given: HostInput) -> HostProgram:
    (func,) = given.module.functions.values()
    source = generate_host_source(func)
    return HostProgram("c", source, host_symbol(func.name))


CPU = BackendModule(
    name="c",
    target_kinds=(TargetKind("c", "the host's CPU, through a C compiler", detect=_detect),),
    pipelines={"c": PIPELINE},
    device_codegens={"c": DeviceCodegen("c", emit_device)},
    execution_backends=(
        ExecutionBackendSpec("cffi", load, _available, doc="gcc or clang, loaded in-process"),
        ExecutionBackendSpec("cython", load, _available, doc="another name of cffi"),
    ),
    host_codegens=(HostCodegen("c", _host),),
    capabilities=_capabilities,
    lowerings=LOWERINGS,
    meanings=MEANINGS,
    toolchain=_toolchain,
)


@hookimpl
def tilec_backends() -> Iterable[BackendModule]:
    """The CPU backend."""
    return (CPU,)
