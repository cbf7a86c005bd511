"""The registry of backends: the one piece of mutable process-wide state, guarded by a lock.

Plugins are found lazily: asking for target kind ``x`` loads the entry point called ``x``; only
where that does not settle the matter (no such entry point, ``target="auto"``, a listing) are the
others loaded. A plugin that fails is recorded and otherwise ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tilec.backend.context import BackendContext
from tilec.backend.discovery import (
    PluginFailure,
    PluginInfo,
    PluginManager,
    failure,
    install_hint,
    installed_plugins,
)
from tilec.backend.manifest import BackendModule, check_api, validate
from tilec.backend.target import Target, TargetKind
from tilec.diagnostics import (
    BackendSelectionError,
    ManifestError,
    PluginError,
    TargetError,
    did_you_mean,
)
from tilec.options import options

if TYPE_CHECKING:
    from tilec.backend.components import ExecutionBackendSpec, HostCodegen
    from tilec.backend.instruments import Instrument

AUTO = "auto"


class BackendRegistry:
    """Backends by name, target kinds by name, and the plugins that failed.

    Args:
        plugins: lists the plugins that may be loaded; none for a registry that is filled by hand.
    """

    def __init__(self, plugins: Callable[[], tuple[PluginInfo, ...]] = tuple) -> None:
        self._lock = threading.RLock()
        self._list_plugins = plugins
        self._plugins: tuple[PluginInfo, ...] | None = None
        self._done: set[PluginInfo] = set()
        self._failures: list[PluginFailure] = []
        self._manager: PluginManager | None = None
        self._backends: dict[str, BackendModule] = {}
        self._origin: dict[str, PluginInfo] = {}
        self._kinds: dict[str, TargetKind] = {}

    # --- filling ---------------------------------------------------------------------------------

    def register(self, *modules: BackendModule, origin: PluginInfo | None = None) -> None:
        """Add manifests; all or none of them.

        Raises:
            PluginError: another plugin API.
            ManifestError: a manifest contradicts itself or one that is registered.
        """
        with self._lock:
            backends, kinds = dict(self._backends), dict(self._kinds)
            for module in modules:
                check_api(module.api, f"backend {module.name!r}")
                validate(module)
                _add(module, backends, kinds)
            self._backends, self._kinds = backends, kinds
            if origin is not None:
                self._origin.update({module.name: origin for module in modules})

    def plugins(self) -> tuple[PluginInfo, ...]:
        """Installed plugins, loaded or not, without those that an option disables."""
        with self._lock:
            if self._plugins is None:
                self._plugins = self._list_plugins()
        disabled = options.disable_plugins
        return tuple(p for p in self._plugins if p.name not in disabled)

    def load_all(self) -> None:
        """Load every plugin that was not tried yet."""
        for plugin in self.plugins():
            self._load(plugin)

    def _load(self, plugin: PluginInfo) -> None:
        with self._lock:
            if plugin in self._done:
                return
            self._done.add(plugin)
            try:
                if self._manager is None:
                    self._manager = PluginManager()
                self.register(*self._manager.load(plugin), origin=plugin)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
                self._failures.append(failure(plugin, error))

    def _load_kind(self, name: str) -> None:
        """Load what may own a target kind: the plugins of that name, else all of them."""
        for plugin in self.plugins():
            if plugin.name == name:
                self._load(plugin)
        if name not in self._kinds:
            self.load_all()

    # --- looking ---------------------------------------------------------------------------------

    def backends(self) -> tuple[BackendModule, ...]:
        """All backends; loads every plugin."""
        self.load_all()
        return tuple(self._backends.values())

    def kinds(self) -> tuple[TargetKind, ...]:
        """All target kinds, those asked first by ``auto`` in front; loads every plugin."""
        self.load_all()
        return tuple(sorted(self._kinds.values(), key=lambda k: (-k.priority, k.name)))

    def failures(self) -> tuple[PluginFailure, ...]:
        """Plugins that failed so far."""
        return tuple(self._failures)

    def origin(self, module: BackendModule) -> PluginInfo | None:
        """The plugin that delivered a backend."""
        return self._origin.get(module.name)

    def instruments(self) -> tuple[Instrument, ...]:
        """Observers for one compilation, from the plugins loaded so far."""
        return () if self._manager is None else self._manager.instruments()

    def kind(self, name: str) -> TargetKind:
        """A target kind by name; loads the plugin that owns it.

        Raises:
            PluginError: the plugin of that name is broken.
            TargetError: nobody knows the kind.
        """
        if name not in self._kinds:
            self._load_kind(name)
        if name in self._kinds:
            return self._kinds[name]
        for broken in self._failures:
            if broken.plugin.name == name:
                raise PluginError(
                    f"target kind {name!r} is not available: {broken}",
                    hint="'tilec doctor' shows the traceback; reinstall or update the plugin",
                ) from broken.error
        raise TargetError(
            f"there is no target kind {name!r}",
            hint=did_you_mean(name, [*self._kinds, AUTO], listing="installed")
            + "; a target comes with its plugin",
            notes=[f"not usable: {broken}" for broken in self._failures],
        )

    # --- resolving -------------------------------------------------------------------------------

    def target(self, spec: object = None) -> Target:
        """The normalised target that a user's spelling stands for.

        Args:
            spec: see `Target.parse`; None for the option ``target``, ``"auto"`` to detect.

        Raises:
            TargetError: malformed, unknown, attributes that do not fit, or nothing detected.
            PluginError: the plugin of the kind is broken.
        """
        target = Target.parse(options.target if spec is None else spec)
        if target.kind == AUTO:
            if target.attrs:
                raise TargetError("target 'auto' takes no attributes", hint="name the kind")
            return self.detect()
        return self.kind(target.kind).resolve(target)

    def detect(self) -> Target:
        """The first target that is present on this machine, in order of priority.

        Raises:
            TargetError: there is none.
        """
        notes: list[str] = []
        for kind in self.kinds():
            try:
                attrs = kind.detect()
                if attrs is not None:
                    return kind.resolve(Target(kind.name, dict(attrs)))
            except Exception as error:  # noqa: BLE001 - a bad detector must not hide the others
                notes.append(f"{kind.name}: detection failed: {type(error).__name__}: {error}")
            else:
                notes.append(f"{kind.name}: not present on this machine")
        notes += [f"not usable: {broken}" for broken in self._failures]
        if not self._kinds:
            message = "no backend is installed, so there is no target to compile for"
        else:
            message = "no installed target is present on this machine"
        raise TargetError(message, notes=notes, hint=install_hint())

    def backend(self, target: Target) -> BackendModule:
        """The backend that generates code for a target.

        Raises:
            TargetError: none does.
            ManifestError: several claim to.
        """
        self.kind(target.kind)
        named = [m for m in self._backends.values() if target.kind in m.kinds]
        matching = [m for m in named if m.matches(target)]
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise TargetError(
                f"no backend generates code for target {target}",
                notes=[f"{m.name} does not support it" for m in named],
            )
        raise ManifestError(
            f"several backends claim target {target}: {', '.join(m.name for m in matching)}",
            hint="disable one with TILEC_DISABLE_PLUGINS",
        )

    def context(
        self,
        target: object = None,
        target_host: object = None,
        execution_backend: str | None = None,
        pass_configs: Mapping[Any, object] | None = None,
        compile_flags: Iterable[str] = (),
        *,
        to_run: bool = True,
    ) -> BackendContext:
        """Resolve target, backend and execution backend, once.

        Args:
            target: see `target`.
            target_host: name of a host code generator; None or ``"auto"`` for the preferred one.
            execution_backend: name; None for the option, ``"auto"`` for the first usable one.
            pass_configs: configuration of the passes.
            compile_flags: further flags of the external compiler.
            to_run: whether the result is to run on this machine; otherwise code is generated for
                an execution backend that need not be usable here.

        Raises:
            TargetError, PluginError: no such target.
            BackendSelectionError: no such execution backend or host code generator, or none of
                the target's is usable on this machine.
            PassConfigError: unknown key, or a value of the wrong type.
        """
        resolved = self.target(target)
        module = self.backend(resolved)
        return BackendContext(
            module,
            resolved,
            _select_execution(
                module, resolved, execution_backend or options.execution_backend, to_run
            ),
            _select_host(module, target_host),
            pass_configs or {},
            tuple(compile_flags),
        )


def _add(
    module: BackendModule, backends: dict[str, BackendModule], kinds: dict[str, TargetKind]
) -> None:
    """Check a manifest against those registered and add it."""
    if module.name in backends:
        raise ManifestError(f"backend {module.name!r} is registered twice")
    for kind in module.target_kinds:
        name = kind if isinstance(kind, str) else kind.name
        others = [m for m in backends.values() if name in m.kinds]
        if isinstance(kind, TargetKind):
            if kinds.setdefault(name, kind) is not kind:
                raise ManifestError(
                    f"target kind {name!r} of backend {module.name!r} is already defined by "
                    f"{others[0].name!r}",
                    hint="name a kind that another backend owns by a string",
                )
        elif name not in kinds:
            raise ManifestError(f"backend {module.name!r} names {name!r}, which nobody defines")
        lacking = [m.name for m in (*others, module) if m.supports_target is None]
        if others and lacking:
            raise ManifestError(
                f"backends {', '.join(m.name for m in (*others, module))} share target kind "
                f"{name!r}, so each needs supports_target; missing in {', '.join(lacking)}"
            )
    backends[module.name] = module


def _select_execution(
    module: BackendModule, target: Target, name: str, to_run: bool
) -> ExecutionBackendSpec:
    allowed = ", ".join(e.name for e in module.execution_backends)
    if name != AUTO:
        chosen = module.execution_backend(name)
        if chosen is None:
            raise BackendSelectionError(
                f"execution backend {name!r} is not one of target {target.kind!r}; "
                f"allowed: {allowed}",
                hint=f"leave it out, or say {AUTO!r}, for the first one that is available",
            )
        state = chosen.available(target)
        if to_run and not state.ok:
            raise BackendSelectionError(
                f"execution backend {name!r} is not available: {state.reason}",
                hint=f"allowed: {allowed}",
            )
        return chosen
    reasons = []
    for candidate in module.execution_backends:
        state = candidate.available(target)
        if state.ok:
            return candidate
        reasons.append(f"{candidate.name}: {state.reason}")
    if not to_run:
        return module.execution_backends[0]
    raise BackendSelectionError(
        f"no execution backend of target {target.kind!r} is available on this machine",
        notes=reasons,
        hint="'tilec doctor' shows what is missing; tilec.lower() still generates code",
    )


def _select_host(module: BackendModule, wanted: object) -> HostCodegen | None:
    if wanted is None or wanted == AUTO:
        return module.host_codegens[0] if module.host_codegens else None
    name = Target.parse(wanted).kind
    chosen = module.host_codegen(name)
    if chosen is None:
        allowed = ", ".join(h.name for h in module.host_codegens) or "none"
        raise BackendSelectionError(
            f"target_host {name!r} is not one of backend {module.name!r}; allowed: {allowed}"
        )
    return chosen


_registry = BackendRegistry(installed_plugins)


def registry() -> BackendRegistry:
    """The registry of this process, filled from the installed plugins."""
    return _registry
