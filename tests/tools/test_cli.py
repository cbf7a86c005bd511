"""The command line and the doctor, in process."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_backend import backend, execution

from tilec import __version__
from tilec.__main__ import main
from tilec.backend import BackendRegistry, PluginInfo, TargetKind, ToolchainInfo
from tilec.tools.doctor import examine, render


def plugin(name: str, make: Any) -> PluginInfo:
    """A plugin whose import is a function."""
    from types import ModuleType

    from tilec.backend import hookimpl

    def load() -> Any:
        module = ModuleType(name)
        module.tilec_backends = hookimpl(lambda: make())  # type: ignore[attr-defined]
        return module

    return PluginInfo(name, name, f"dist-{name}", "1.0", load)


def registry(**plugins: Any) -> BackendRegistry:
    return BackendRegistry(lambda: tuple(plugin(n, make) for n, make in plugins.items()))


def test_everything_that_can_go_wrong_is_a_row() -> None:
    def raising(target: Any) -> ToolchainInfo:
        raise RuntimeError("compiler is gone")

    def bad_detector() -> dict[str, Any]:
        raise OSError("no driver")

    def fail() -> Any:
        raise ImportError("no module named x")

    found = examine(
        registry(
            good=lambda: [backend("good")],
            absent=lambda: [backend("absent", target_kinds=(TargetKind("absent"),))],
            detector=lambda: [
                backend("detector", target_kinds=(TargetKind("detector", detect=bad_detector),))
            ],
            tool=lambda: [backend("tool", toolchain=raising)],
            lazy=lambda: [backend("lazy", execution_backends=(execution(reason="no tool"),))],
            old=lambda: [backend("old", api="0.1")],
            wrong=lambda: [3],
            broken=fail,
        ),
        smoke=False,
    )
    assert found.usable
    assert {p.name for p in found.broken} == {"old", "wrong", "broken"}
    text = render(found)
    for line in [
        "plugin good: dist-good 1.0\n  ok target good",
        "  -- target absent\n     not present on this machine",
        "OSError: no driver",
        "RuntimeError: compiler is gone",
        "execution backend run: unavailable (no tool)",
        "broken: PluginError: backend 'old' was written for plugin API 0.1",
        "broken: PluginError: plugin 'wrong' (dist-wrong 1.0) delivered 3",
        "broken: ImportError: no module named x",
        "usable targets: good",
    ]:
        assert line in text, text
    assert "Traceback" in render(found, verbose=True)


def test_smoke_failure_is_reported() -> None:
    found = examine(registry(good=lambda: [backend("good")]))
    assert "smoke test: FAILED" in render(found)
    assert not found.usable


def test_nothing_installed() -> None:
    found = examine(BackendRegistry())
    assert not found.usable
    assert "no plugin is installed" in render(found)


def test_commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.strip() == __version__
    monkeypatch.setenv("TILEC_NUM_THREADS", "2")
    assert main(["options"]) == 0
    assert "num_threads = 2  [TILEC_NUM_THREADS]" in capsys.readouterr().out
    monkeypatch.setenv("TILEC_NUM_THREADS", "many")
    assert main(["options"]) == 1
    assert "num_threads = INVALID" in capsys.readouterr().out
    assert main([]) == 2
    assert "doctor" in capsys.readouterr().out
