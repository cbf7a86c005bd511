"""Targets: spellings, schema, canonical text."""

from __future__ import annotations

import pickle

import pytest

from tilec.backend import Attr, Target, TargetKind
from tilec.diagnostics import TargetError

KIND = TargetKind(
    "chip",
    schema={
        "arch": Attr((str,), "Architecture.", choices=("v1", "v2")),
        "cores": Attr((int,), "Number of cores."),
    },
    normalize=lambda attrs: {"cores": 4, **attrs},
)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "chip", "arch": "v1", "cores": 2},
        '{"cores": 2, "arch": "v1", "kind": "chip"}',
        Target("chip", {"cores": 2, "arch": "v1"}),
        Target({"kind": "chip", "arch": "v1", "cores": 2}),
    ],
)
def test_spellings_agree(spec: object) -> None:
    target = Target.parse(spec)
    assert str(target) == '{"kind": "chip", "arch": "v1", "cores": 2}'
    assert target == Target("chip", {"arch": "v1", "cores": 2})
    assert hash(target) == hash(Target("chip", {"arch": "v1", "cores": 2}))
    assert Target.parse(str(target)) == target
    assert Target.parse(target.to_dict()) == target
    assert pickle.loads(pickle.dumps(target)) == target


def test_plain_kind_and_attributes() -> None:
    assert str(Target("chip")) == "chip"
    assert Target("chip").with_attrs(a=1, b=(1, 2)).with_attrs(a=None).attrs == {"b": (1, 2)}
    assert Target("chip", {"a": 1}) != Target("chip", {"a": True})
    with pytest.raises(AttributeError, match="immutable"):
        Target("chip").kind = "other"


def test_command_line_options_are_refused_with_the_dict() -> None:
    with pytest.raises(TargetError, match="command-line options") as info:
        Target.parse("chip -arch=v1 --cores=2")
    assert info.value.hint == 'give a dict: {"kind": "chip", "arch": "v1", "cores": "2"}'


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (3, "a target is a string, a dict or a Target, not int 3"),
        ("", "'' is not a target"),
        ("a b", "'a b' is not a target"),
        ("{bad", "is not valid JSON"),
        ({"arch": "v1"}, "has no valid 'kind'"),
        ({"kind": "chip", "x": object()}, "target attribute 'x' is object"),
    ],
)
def test_malformed(spec: object, message: str) -> None:
    with pytest.raises(TargetError, match=message.replace("{", r"\{")):
        Target.parse(spec)


def test_schema() -> None:
    assert KIND.resolve(Target("chip", {"arch": "v2"})).attrs == {"arch": "v2", "cores": 4}
    with pytest.raises(TargetError, match="has no attribute 'arhc'") as info:
        KIND.resolve(Target("chip", {"arhc": "v1"}))
    assert info.value.hint == "did you mean 'arch'?"
    with pytest.raises(TargetError, match="'cores' of 'chip' is int, got True"):
        KIND.resolve(Target("chip", {"cores": True}))
    with pytest.raises(TargetError, match="cannot be 'v9'"):
        KIND.resolve(Target("chip", {"arch": "v9"}))
