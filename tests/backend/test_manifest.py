"""The rules that a manifest must keep, and how several live together."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_backend import Step, backend, emit, execution, pipeline

from tilec.backend import (
    BackendRegistry,
    ConfigKey,
    DeviceCodegen,
    PassPipeline,
    Stage,
    TargetKind,
)
from tilec.diagnostics import (
    BackendSelectionError,
    ManifestError,
    PassConfigError,
    PluginError,
    TargetError,
)


def registered(*modules: Any) -> BackendRegistry:
    registry = BackendRegistry()
    registry.register(*modules)
    return registry


CODEGEN = DeviceCodegen("text", emit)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"pipelines": {}}, "target kind 'chip' has no pipeline"),
        ({"device_codegens": {}}, "target kind 'chip' has no codegen"),
        (
            {"pipelines": {"chip": pipeline("chop")}},
            "the pipeline of 'chip' is called 'chop'; names must agree",
        ),
        (
            {"device_codegens": {"chip": CODEGEN, "chop": CODEGEN}},
            "there is a codegen for 'chop', which is not one of its target kinds",
        ),
        ({"execution_backends": ()}, "it has no execution backend"),
        (
            {"execution_backends": (execution(), execution())},
            "execution backend 'run' is given twice",
        ),
        (
            {"host_codegens": ()},
            "execution backend 'run' needs host code; there is no host codegen",
        ),
        (
            {"pipelines": {"chip": PassPipeline("chip", (Stage("s", (Step("a"),)),))}},
            "the pipeline of 'chip' ends in tile form; it must end in split form",
        ),
        ({"target_kinds": ()}, "it has no target kind"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], note: str) -> None:
    with pytest.raises(ManifestError, match="manifest of backend 'chip' is not valid") as info:
        registered(backend(**changes))
    assert note in info.value.notes


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(ManifestError) as info:
        registered(backend(pipelines={}, device_codegens={}, execution_backends=()))
    assert len(info.value.notes) == 3


def test_registration_is_all_or_nothing() -> None:
    registry = BackendRegistry()
    with pytest.raises(ManifestError):
        registry.register(backend("one"), backend("two", pipelines={}))
    assert registry.backends() == ()
    with pytest.raises(TargetError):
        registry.target("one")


def test_names_are_unique() -> None:
    with pytest.raises(ManifestError, match="registered twice"):
        registered(backend(), backend())


def test_shared_kind_needs_predicates() -> None:
    kind = TargetKind("chip")
    first = backend(target_kinds=(kind,), supports_target=lambda t: not t.get("fancy"))
    fancy: dict[str, Any] = {
        "target_kinds": ("chip",),
        "pipelines": first.pipelines,
        "device_codegens": first.device_codegens,
    }
    with pytest.raises(ManifestError, match="each needs supports_target; missing in fancy"):
        registered(first, backend("fancy", **fancy))
    with pytest.raises(ManifestError, match="names 'chip', which nobody defines"):
        registered(backend("fancy", **fancy, supports_target=lambda t: True))
    with pytest.raises(ManifestError, match="already defined by 'chip'"):
        registered(
            first,
            backend(
                "fancy",
                **{**fancy, "target_kinds": (TargetKind("chip"),)},
                supports_target=lambda t: True,
            ),
        )
    from tilec.backend import Attr, Target

    open_kind = TargetKind("chip", schema={"fancy": Attr((bool,), "Fancy.")})
    registry = registered(
        backend(target_kinds=(open_kind,), supports_target=lambda t: not t.get("fancy")),
        backend("fancy", **fancy, supports_target=lambda t: bool(t.get("fancy"))),
    )
    assert registry.backend(Target("chip")).name == "chip"
    assert registry.backend(Target("chip", {"fancy": True})).name == "fancy"
    clash = registered(
        backend(target_kinds=(kind,), supports_target=lambda t: True),
        backend("fancy", **fancy, supports_target=lambda t: True),
    )
    with pytest.raises(ManifestError, match="several backends claim target chip: chip, fancy"):
        clash.backend(Target("chip"))
    nobody = registered(backend(supports_target=lambda t: False))
    with pytest.raises(TargetError, match="no backend generates code for target chip"):
        nobody.backend(Target("chip"))


@pytest.mark.parametrize(
    ("version", "hint"), [("2.0", "newer tilec"), ("1.9", "newer tilec"), ("0.9", "the plugin")]
)
def test_other_api_versions_are_refused(version: str, hint: str) -> None:
    with pytest.raises(PluginError, match=f"plugin API {version}; this tilec speaks 1.0") as info:
        registered(backend(api=version))
    assert info.value.hint is not None
    assert hint in info.value.hint


def test_context_is_resolved_once_and_consistent() -> None:
    spare = execution("spare")
    module = backend(execution_backends=(execution(reason="no tool"), spare))
    context = registered(module).context("chip")
    assert context.execution_backend is spare
    assert context.pipeline is module.pipelines["chip"]
    assert context.host_codegen is module.host_codegens[0]
    assert context.cache_key()["backend"] == "chip"


def test_execution_backend_errors() -> None:
    registry = registered(
        backend(execution_backends=(execution("a", reason="no tool"), execution("b")))
    )
    with pytest.raises(BackendSelectionError, match="'x' is not one of target 'chip'; allowed: a"):
        registry.context("chip", execution_backend="x")
    with pytest.raises(BackendSelectionError, match="'a' is not available: no tool"):
        registry.context("chip", execution_backend="a")
    none = registered(backend(execution_backends=(execution("a", reason="no tool"),)))
    with pytest.raises(BackendSelectionError, match="no execution backend of target") as info:
        none.context("chip")
    assert info.value.notes == ("a: no tool",)
    with pytest.raises(BackendSelectionError, match="target_host 'x' is not one of"):
        registry.context("chip", target_host="x")


def test_code_is_generated_for_execution_backends_that_cannot_run_here() -> None:
    first = execution("a", reason="no tool")
    registry = registered(backend(execution_backends=(first, execution("b"))))
    assert registry.context("chip", execution_backend="a", to_run=False).execution_backend is first
    assert registry.context("chip", to_run=False).execution_backend.name == "b"
    none = registered(backend(execution_backends=(first,)))
    assert none.context("chip", to_run=False).execution_backend is first
    with pytest.raises(BackendSelectionError, match="'x' is not one of"):
        none.context("chip", execution_backend="x", to_run=False)


def test_backend_config_keys() -> None:
    key = ConfigKey("chip.level", (int,), 2, "A level.")
    context = registered(backend(config_keys=(key,))).context(
        "chip", pass_configs={"chip.level": 3}
    )
    assert context.pass_context().get("chip.level") == 3
    with pytest.raises(PassConfigError, match=r"no pass config key 'chip\.level'"):
        registered(backend()).context("chip", pass_configs={"chip.level": 3})


def test_detection_order_and_failures() -> None:
    def bad() -> None:
        raise OSError("driver is broken")

    def named(name: str, **kind: Any) -> Any:
        return backend(name, target_kinds=(TargetKind(name, **kind),))

    registry = registered(
        named("low", detect=dict),
        named("high", detect=dict, priority=5),
        named("broken", detect=bad, priority=9),
        named("absent", priority=8),
    )
    assert registry.target("auto").kind == "high"
    assert registry.target(None).kind == "high"
    lonely = registered(named("broken", detect=bad), named("absent"))
    with pytest.raises(TargetError, match="no installed target is present") as info:
        lonely.target("auto")
    assert info.value.notes == (
        "absent: not present on this machine",
        "broken: detection failed: OSError: driver is broken",
    )
    with pytest.raises(TargetError, match="no backend is installed") as info:
        BackendRegistry().target("auto")
    assert "install a backend" in str(info.value.hint)
