"""One resolved choice of target, backend and execution backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilec.backend.components import (
    DeviceCodegen,
    Executable,
    ExecutionBackendSpec,
    HostCodegen,
    HostInput,
)
from tilec.backend.instruments import Instrument
from tilec.backend.manifest import API_VERSION, BackendModule
from tilec.backend.pipeline import PassPipeline
from tilec.backend.target import Target
from tilec.diagnostics import InternalError, ToolchainError
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities
from tilec.transform.config import check_config

if TYPE_CHECKING:
    from tilec.backend.artifact import CompiledArtifact, DeviceProgram, HostProgram
    from tilec.ir import Module

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False, repr=False)
class BackendContext:
    """Resolved once per compilation and then only read; cannot contradict itself.

    Attributes:
        module: the backend.
        target: normalised.
        execution_backend: one of the backend's.
        host_codegen: one of the backend's, or None where it has none.
        config: ``pass_configs``, validated.
        compile_flags: further flags of the external compiler.
    """

    module: BackendModule
    target: Target
    execution_backend: ExecutionBackendSpec
    host_codegen: HostCodegen | None = None
    config: Mapping[str, object] = field(default_factory=lambda: _EMPTY)
    compile_flags: tuple[str, ...] = ()
    capabilities: Capabilities = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.module.matches(self.target):
            raise InternalError(f"backend {self.module.name!r} is not for target {self.target}")
        if self.execution_backend not in self.module.execution_backends:
            raise InternalError(
                f"execution backend {self.execution_backend.name!r} is not one of "
                f"{self.module.name!r}"
            )
        if self.host_codegen is not None and self.host_codegen not in self.module.host_codegens:
            raise InternalError(
                f"host codegen {self.host_codegen.name!r} is not one of {self.module.name!r}"
            )
        keys = {key.name: key for key in self.module.config_keys}
        checked = MappingProxyType(check_config(self.config, keys))
        object.__setattr__(self, "config", checked)
        object.__setattr__(self, "compile_flags", tuple(self.compile_flags))
        object.__setattr__(self, "capabilities", self.module.capabilities(self.target))

    def __repr__(self) -> str:
        return f"<context {self.target} through {self.execution_backend.name}>"

    @property
    def pipeline(self) -> PassPipeline:
        """The passes of the target's kind."""
        return self.module.pipelines[self.target.kind]

    @property
    def device_codegen(self) -> DeviceCodegen:
        """The device code generator of the target's kind."""
        return self.module.device_codegens[self.target.kind]

    def pass_context(self) -> PassContext:
        """A fresh context for one run of the pipeline."""
        return PassContext(
            self.config,
            target=self.target,
            capabilities=self.capabilities,
            lowerings=self.module.lowerings,
            keys=self.module.config_keys,
        )

    def lower(
        self,
        module: Module,
        ctx: PassContext | None = None,
        instruments: Sequence[Instrument] = (),
    ) -> Module:
        """Run the backend's pipeline: from tile form to split form."""
        return self.pipeline.lower(module, ctx or self.pass_context(), instruments)

    def codegen_device(self, device_mod: Module, *, compile_device: bool) -> DeviceProgram:
        """Generate, and where asked compile, the device program.

        Raises:
            ToolchainError: a compiled program was asked for, and the backend has no compiler.
        """
        codegen = self.device_codegen
        program = codegen.emit(device_mod, self)
        if not compile_device:
            return program
        if codegen.compile is None:
            raise ToolchainError(
                f"device codegen {codegen.name!r} of target {self.target.kind!r} only gives source",
                hint="leave out enable_device_compile; the execution backend compiles it",
            )
        return codegen.compile(program, self)

    def prepare_host(self, host_mod: Module) -> Module:
        """The host module after the backend's hook."""
        hook = self.module.host_hook
        return host_mod if hook is None else hook.prepare(host_mod, self)

    def codegen_host(self, given: HostInput) -> HostProgram:
        """Generate the host program.

        Raises:
            ToolchainError: the backend has no host code generator.
        """
        if self.host_codegen is None:
            raise ToolchainError(f"backend {self.module.name!r} has no host code generator")
        return self.host_codegen.emit(given)

    def load(self, artifact: CompiledArtifact) -> Executable:
        """Compile where needed, load, and give something callable."""
        return self.execution_backend.load(artifact, self)

    def cache_key(self) -> dict[str, str]:
        """Everything besides the program that generated binaries depend on, by name.

        Raises:
            ToolchainError: the target's tool chain is missing.
        """
        key = {
            "api": API_VERSION,
            "backend": self.module.name,
            "target": str(self.target),
            "execution_backend": self.execution_backend.name,
            "host_codegen": self.host_codegen.name if self.host_codegen else "",
            "config": repr(sorted(self.config.items())),
            "compile_flags": repr(self.compile_flags),
        }
        if self.module.toolchain is not None:
            key["toolchain"] = self.module.toolchain(self.target).identity
        if self.module.cache_key is not None:
            extra = self.module.cache_key(self)
            key.update({f"{self.module.name}.{name}": text for name, text in extra.items()})
        return key
