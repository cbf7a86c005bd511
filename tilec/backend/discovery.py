"""Finding plugins through entry points, without importing more than what is asked for."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tilec.backend.entrypoints import entry_points
from tilec.diagnostics import PluginError

if TYPE_CHECKING:
    from tilec.backend.instruments import Instrument
    from tilec.backend.manifest import BackendModule

GROUP = "tilec"


class PluginInfo(NamedTuple):
    """An entry point that offers a plugin; nothing of it is imported.

    Attributes:
        name: of the entry point.
        value: module or object it names.
        distribution: that declares it.
        version: of the distribution.
        load: imports and returns the plugin object.
    """

    name: str
    value: str
    distribution: str
    version: str
    load: Callable[[], Any]

    def __str__(self) -> str:
        return f"plugin {self.name!r} ({self.distribution} {self.version})"


class PluginFailure(NamedTuple):
    """A plugin that could not be used.

    Attributes:
        plugin: which one.
        error: what it raised.
        details: the traceback as text.
    """

    plugin: PluginInfo
    error: BaseException
    details: str

    def __str__(self) -> str:
        first = str(self.error).splitlines() or [""]
        return f"{self.plugin}: {type(self.error).__name__}: {first[0]}".rstrip(": ")


def installed_plugins() -> tuple[PluginInfo, ...]:
    """All entry points of the group, by name; of several with one name all are listed."""
    found = [PluginInfo(*point, load=point.load) for point in entry_points(GROUP)]
    return tuple(sorted(found, key=lambda p: (p.name, p.distribution, p.value)))


def install_hint() -> str:
    """How to get a backend: the extras of this distribution that bring one."""
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415 - as above

    try:
        requirements = requires(GROUP) or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        requirements = []
    pattern = re.compile(rf"{GROUP}-(\w+)\b.*;.*extra == .\1")
    extras = [match[1] for match in map(pattern.match, requirements) if match]
    if not extras:
        return "install a backend, a distribution with an entry point in the group 'tilec'"
    return "install a backend: " + " or ".join(f"pip install '{GROUP}[{e}]'" for e in extras)


class PluginManager:
    """Typed functions around pluggy; created when the first plugin is loaded."""

    def __init__(self) -> None:
        import pluggy  # noqa: PLC0415 - only needed once a plugin is loaded

        from tilec.backend import hookspecs  # noqa: PLC0415 - the same

        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)

    def load(self, plugin: PluginInfo) -> tuple[BackendModule, ...]:
        """Import a plugin and take its backends.

        Raises:
            PluginError: it delivers something that is not a backend.
            Exception: whatever the plugin raises, or pluggy about its hooks.
        """
        implementation = plugin.load()
        name = f"{plugin.name}:{plugin.value}"
        self._manager.register(implementation, name=name)
        try:
            self._manager.check_pending()
            others = [p for p in self._manager.get_plugins() if p is not implementation]
            hook: Any = self._manager.subset_hook_caller("tilec_backends", others)
            modules = tuple(module for result in hook() for module in result)
            self._check(plugin, modules)
        except BaseException:
            self._manager.unregister(name=name)
            raise
        return modules

    def instruments(self) -> tuple[Instrument, ...]:
        """Observers for one compilation, from all loaded plugins."""
        results: Iterable[Iterable[Instrument]] = self._manager.hook.tilec_instruments()
        return tuple(instrument for result in results for instrument in result)

    def _check(self, plugin: PluginInfo, modules: tuple[object, ...]) -> None:
        from tilec.backend.manifest import BackendModule  # noqa: PLC0415 - see module docstring

        for module in modules:
            if not isinstance(module, BackendModule):
                raise PluginError(f"{plugin} delivered {module!r}, which is not a BackendModule")


def failure(plugin: PluginInfo, error: BaseException) -> PluginFailure:
    """Record what a plugin raised."""
    return PluginFailure(plugin, error, "".join(traceback.format_exception(error)))
