"""The manifest that a plugin delivers, and the rules it must keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilec.backend.components import (
    DeviceCodegen,
    ExecutionBackendSpec,
    HostCodegen,
    HostCodegenHook,
    Meaning,
    RuntimeShim,
    ToolchainInfo,
)
from tilec.backend.lowering import LoweringTable
from tilec.backend.pipeline import LAST_FORM, PassPipeline
from tilec.backend.target import Target, TargetKind
from tilec.diagnostics import ManifestError, PluginError
from tilec.transform.base import ConfigKey
from tilec.transform.capabilities import Capabilities

if TYPE_CHECKING:
    from tilec.backend.context import BackendContext

API_VERSION = "1.0"
"""Version of the plugin API; the minor grows with additions, the major with changes."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _default_capabilities(target: Target) -> Capabilities:
    del target
    return Capabilities()


@dataclass(frozen=True, eq=False, repr=False)
class BackendModule:
    """Everything that tilec knows about one backend. Frozen; validated when registered.

    Attributes:
        name: of the backend; usually that of its target kind.
        target_kinds: kinds it generates code for; a `TargetKind` it owns, or the name of one that
            another manifest owns.
        pipelines: exactly one per kind, named like it.
        device_codegens: exactly one per kind.
        execution_backends: at least one, the preferred first.
        host_codegens: the preferred first; needed where an execution backend wants host code.
        host_hook: run on the host module before host code generation.
        capabilities: the table of a target.
        lowerings: candidates for tile operations.
        meanings: what the interpreter does for the backend's own intrinsics, by name.
        supports_target: tells backends of the same kind apart; required where there are several.
        config_keys: further ``pass_configs`` keys.
        dialect: import path of the module that kernel authors import as ``T``.
        bind_kernel: ``(extents, keywords) -> Launch arguments`` where the launch construct of the
            dialect differs from the common one; see `tilec.language`.
        runtime: what the host side needs from the device.
        toolchain: the external compiler for a target; may raise `ToolchainError`.
        cache_key: further facts that generated binaries depend on, by name.
        notices: things a user should know about a target on this machine, shown by the doctor.
        facts: what the doctor tells about this machine, by name, whether or not it has a device.
        api: version of the plugin API that the manifest was written for.
    """

    name: str
    target_kinds: tuple[TargetKind | str, ...]
    pipelines: Mapping[str, PassPipeline]
    device_codegens: Mapping[str, DeviceCodegen]
    execution_backends: tuple[ExecutionBackendSpec, ...]
    host_codegens: tuple[HostCodegen, ...] = ()
    host_hook: HostCodegenHook | None = None
    capabilities: Callable[[Target], Capabilities] = _default_capabilities
    lowerings: LoweringTable = field(default_factory=LoweringTable)
    meanings: Mapping[str, Meaning] = field(default_factory=lambda: _EMPTY)
    supports_target: Callable[[Target], bool] | None = None
    config_keys: tuple[ConfigKey, ...] = ()
    dialect: str | None = None
    bind_kernel: Callable[..., Any] | None = None
    runtime: RuntimeShim = field(default_factory=RuntimeShim)
    toolchain: Callable[[Target], ToolchainInfo] | None = None
    cache_key: Callable[[BackendContext], Mapping[str, str]] | None = None
    notices: Callable[[Target], Iterable[str]] | None = None
    facts: Callable[[], Mapping[str, str]] | None = None
    api: str = API_VERSION

    def __post_init__(self) -> None:
        for name in ("target_kinds", "execution_backends", "host_codegens", "config_keys"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("pipelines", "device_codegens", "meanings"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __repr__(self) -> str:
        return f"<backend {self.name} for {', '.join(self.kinds)}>"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of its target kinds."""
        return tuple(k if isinstance(k, str) else k.name for k in self.target_kinds)

    def matches(self, target: Target) -> bool:
        """Whether it generates code for a target."""
        if target.kind not in self.kinds:
            return False
        return self.supports_target is None or bool(self.supports_target(target))

    def execution_backend(self, name: str) -> ExecutionBackendSpec | None:
        """An execution backend by name."""
        return next((e for e in self.execution_backends if e.name == name), None)

    def host_codegen(self, name: str) -> HostCodegen | None:
        """A host code generator by name."""
        return next((h for h in self.host_codegens if h.name == name), None)


def check_api(version: str, who: str) -> None:
    """Refuse a manifest of an API that this version does not speak.

    Raises:
        PluginError: another major version, or a newer minor one.
    """
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        raise PluginError(f"{who} gives {version!r} as its plugin API version") from None
    ours_major, ours_minor = (int(part) for part in API_VERSION.split("."))
    if major == ours_major and minor <= ours_minor:
        return
    newer = (major, minor) > (ours_major, ours_minor)
    raise PluginError(
        f"{who} was written for plugin API {version}; this tilec speaks {API_VERSION}",
        hint="install a newer tilec" if newer else "install a newer version of the plugin",
    )


def validate(module: BackendModule) -> None:
    """Check a manifest by itself.

    Raises:
        ManifestError: it contradicts itself; the notes list every problem.
    """
    problems = list(_problems(module))
    if problems:
        raise ManifestError(f"the manifest of backend {module.name!r} is not valid", notes=problems)


def _problems(module: BackendModule) -> Iterable[str]:
    kinds = module.kinds
    if not module.name:
        yield "it has no name"
    if not kinds:
        yield "it has no target kind"
    for what, names in (
        ("target kind", kinds),
        ("execution backend", [e.name for e in module.execution_backends]),
        ("host codegen", [h.name for h in module.host_codegens]),
        ("config key", [k.name for k in module.config_keys]),
    ):
        for name in sorted({n for n in names if list(names).count(n) > 1}):
            yield f"{what} {name!r} is given twice"
    for what, table in (("pipeline", module.pipelines), ("codegen", module.device_codegens)):
        for kind in kinds:
            if kind not in table:
                yield f"target kind {kind!r} has no {what}"
        for kind in table:
            if kind not in kinds:
                yield f"there is a {what} for {kind!r}, which is not one of its target kinds"
    for kind, pipeline in module.pipelines.items():
        if pipeline.name != kind:
            yield f"the pipeline of {kind!r} is called {pipeline.name!r}; names must agree"
        form = pipeline.forms()[-1]
        if form != LAST_FORM:
            yield f"the pipeline of {kind!r} ends in {form} form; it must end in {LAST_FORM} form"
    if not module.execution_backends:
        yield "it has no execution backend"
    for execution in module.execution_backends:
        if execution.enable_host_codegen and not module.host_codegens:
            yield f"execution backend {execution.name!r} needs host code; there is no host codegen"
        if execution.enable_device_compile:
            for kind, codegen in module.device_codegens.items():
                if codegen.compile is None:
                    yield (
                        f"execution backend {execution.name!r} needs compiled device code; codegen "
                        f"{codegen.name!r} of {kind!r} does not compile"
                    )
