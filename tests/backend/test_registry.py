"""Discovery is lazy, failures are contained, and several threads may ask at once."""

from __future__ import annotations

import threading
import time
from types import ModuleType
from typing import Any

import pytest
from helpers_backend import backend

from tilec.backend import BackendRegistry, Instrument, PluginInfo, hookimpl
from tilec.diagnostics import PluginError, TargetError
from tilec.options import options


class Plugins:
    """Plugins made in the test; remembers which were imported."""

    def __init__(self, **makers: Any) -> None:
        self.loaded: list[str] = []
        self.infos = tuple(
            PluginInfo(name, f"{name}.plugin", f"dist-{name}", "1.2", self._loader(name, make))
            for name, make in makers.items()
        )
        self.registry = BackendRegistry(lambda: self.infos)

    def _loader(self, name: str, make: Any) -> Any:
        def load() -> ModuleType:
            self.loaded.append(name)
            module = ModuleType(name)
            result = make()
            if isinstance(result, dict):
                for key, hook in result.items():
                    setattr(module, key, hookimpl(hook))
            else:
                module.tilec_backends = hookimpl(lambda: result)  # type: ignore[attr-defined]
            return module

        return load


def fail() -> Any:
    raise ImportError("no driver here")


def test_only_the_plugin_asked_for_is_imported() -> None:
    plugins = Plugins(one=lambda: [backend("one")], two=lambda: [backend("two")], bad=fail)
    assert plugins.registry.context("one").target.kind == "one"
    assert plugins.loaded == ["one"]
    assert plugins.registry.context("one").target.kind == "one"
    assert plugins.loaded == ["one"]


def test_a_kind_of_another_name_is_found_by_loading_all() -> None:
    plugins = Plugins(vendor=lambda: [backend("chip"), backend("chip2")], bad=fail)
    context = plugins.registry.context("chip2")
    assert context.module.name == "chip2"
    assert plugins.registry.origin(context.module) == plugins.infos[0]
    assert [f.plugin.name for f in plugins.registry.failures()] == ["bad"]


def test_broken_plugins_harm_nobody_and_are_tried_once() -> None:
    def leave() -> Any:
        raise SystemExit("bye")

    plugins = Plugins(
        good=lambda: [backend("good")],
        bad=fail,
        leaving=leave,
        partly=lambda: [backend("fine"), backend("wrong", pipelines={})],
        typo=lambda: {"tilec_backendz": lambda: iter(())},
    )
    registry = plugins.registry
    for _ in range(2):
        assert [m.name for m in registry.backends()] == ["good"]
    assert plugins.loaded == ["good", "bad", "leaving", "partly", "typo"]
    texts = {f.plugin.name: str(f) for f in registry.failures()}
    assert texts["bad"] == "plugin 'bad' (dist-bad 1.2): ImportError: no driver here"
    assert "SystemExit" in texts["leaving"]
    assert "ManifestError" in texts["partly"]
    assert "tilec_backendz" in texts["typo"]
    with pytest.raises(PluginError, match=r"'bad' is not available: .*no driver here") as info:
        registry.context("bad")
    assert isinstance(info.value.__cause__, ImportError)
    with pytest.raises(TargetError, match="no target kind 'fine'"):
        registry.context("fine")


def test_plugins_can_be_disabled() -> None:
    plugins = Plugins(one=lambda: [backend("one")], two=lambda: [backend("two")])
    with options(disable_plugins=["two"]):
        assert [m.name for m in plugins.registry.backends()] == ["one"]
    assert plugins.loaded == ["one"]


def test_instruments_of_loaded_plugins() -> None:
    class Watch(Instrument):
        pass

    plugins = Plugins(
        one=lambda: {
            "tilec_backends": lambda: [backend("one")],
            "tilec_instruments": lambda: [Watch()],
        }
    )
    assert plugins.registry.instruments() == ()
    plugins.registry.context("one")
    first, second = plugins.registry.instruments(), plugins.registry.instruments()
    assert type(first[0]) is Watch
    assert first[0] is not second[0]


def test_threads_load_a_plugin_once() -> None:
    def slow() -> Any:
        time.sleep(0.05)
        return [backend("one")]

    plugins = Plugins(one=slow)
    found: list[str] = []

    def ask() -> None:
        found.append(plugins.registry.context("one").module.name)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["one"] * 8
    assert plugins.loaded == ["one"]
