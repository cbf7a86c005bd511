"""The plugin: what tilec finds through the entry point ``cuda``."""

from __future__ import annotations

from collections.abc import Iterable

from tilec.backend import (
    BackendContext,
    BackendModule,
    ConfigKey,
    DeviceCodegen,
    DeviceProgram,
    ExecutionBackendSpec,
    HostCodegen,
    HostInput,
    HostProgram,
    hookimpl,
)
from tilec.ir import Module
from tilec_cuda import execution
from tilec_cuda.build import CONTRACT, compile_program, toolchain
from tilec_cuda.machine import machine_facts
from tilec_cuda.pipeline import PIPELINE
from tilec_cuda.runtime import RUNTIME
from tilec_cuda.target import KIND, TARGET, notices, target_capabilities


def _emit(module: Module, context: BackendContext) -> DeviceProgram:
    from tilec_cuda.codegen import emit_device  # noqa: PLC0415 - only when code is generated

    return emit_device(module, context)


def _host(given: HostInput) -> HostProgram:
    from tilec_cuda.host import host_program  # noqa: PLC0415 - as above

    return host_program(given)


CUDA = BackendModule(
    name="cuda",
    target_kinds=(TARGET,),
    pipelines={KIND: PIPELINE},
    device_codegens={KIND: DeviceCodegen("cuda", _emit, compile_program)},
    execution_backends=(
        ExecutionBackendSpec(
            "nvrtc",
            execution.load,
            execution.available,
            doc="compiled in the process, launched through the driver",
        ),
        ExecutionBackendSpec(
            "pycuda",
            execution.load_for_pycuda,
            execution.pycuda_available,
            doc="the same, in the context of PyCUDA",
        ),
    ),
    host_codegens=(HostCodegen("c", _host),),
    capabilities=target_capabilities,
    config_keys=(
        ConfigKey(CONTRACT, (bool,), False, "a * b + c may round once instead of twice."),
    ),
    runtime=RUNTIME,
    toolchain=toolchain,
    notices=notices,
    facts=machine_facts,
)


@hookimpl
def tilec_backends() -> Iterable[BackendModule]:
    """The CUDA backend."""
    return (CUDA,)
