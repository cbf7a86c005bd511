"""Targets: what code is generated for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tilec.diagnostics import TargetError, did_you_mean

_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Target:
    """A target kind with attributes; immutable, hashable, and the same text in every process.

    Attributes:
        kind: name of the target kind.
        attrs: attribute values: strings, ints, floats, bools or tuples of them.
    """

    __slots__ = ("_text", "attrs", "kind")

    kind: str
    attrs: Mapping[str, Any]
    _text: str

    def __init__(
        self, kind: str | Mapping[str, Any], attrs: Mapping[str, Any] | None = None
    ) -> None:
        if attrs is None:
            kind, attrs = _split(kind)
        elif not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise TargetError(f"{kind!r} is not the name of a target kind")
        frozen = {key: _freeze(key, attrs[key]) for key in sorted(attrs)}
        text = kind
        if frozen:
            text = json.dumps({"kind": kind, **frozen}, ensure_ascii=True)
        for name, value in (("kind", kind), ("attrs", MappingProxyType(frozen)), ("_text", text)):
            object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, spec: object) -> Target:
        """A target from any accepted spelling; attributes are not checked against a schema.

        Args:
            spec: a `Target`, a kind such as ``"name"``, or a dict such as
                ``{"kind": "name", "arch": "x"}`` (also as a JSON string).

        Raises:
            TargetError: another type, or a string with command-line options.
        """
        return spec if isinstance(spec, Target) else cls(*_split(spec))

    def to_dict(self) -> dict[str, Any]:
        """The dict spelling; `parse` gives the target back."""
        return {"kind": self.kind, **self.attrs}

    def with_attrs(self, **attrs: object) -> Target:
        """A copy with attributes added or replaced; None removes one."""
        merged = {k: v for k, v in {**self.attrs, **attrs}.items() if v is not None}
        return Target(self.kind, merged)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        return self.attrs.get(name, default)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("targets are immutable; use with_attrs()")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Target({self._text if self.attrs else repr(self.kind)})"

    def __reduce__(self) -> tuple[type[Target], tuple[str, dict[str, Any]]]:
        return Target, (self.kind, dict(self.attrs))


def _split(spec: object) -> tuple[str, Mapping[str, Any]]:
    if isinstance(spec, str):
        text = spec.strip()
        if text.startswith("{"):
            try:
                return _split(json.loads(text))
            except json.JSONDecodeError as error:
                raise TargetError(f"target {spec!r} is not valid JSON: {error}") from None
        if _KIND.fullmatch(text):
            return text, {}
        words = text.split()
        if words and _KIND.fullmatch(words[0]) and any(w.startswith("-") for w in words[1:]):
            raise TargetError(
                f"target {spec!r} has command-line options, which are not parsed",
                hint="give a dict: " + _as_dict_text(words),
            )
        raise TargetError(f"{spec!r} is not a target", hint="give a kind, or a dict with a 'kind'")
    if isinstance(spec, Mapping):
        rest = dict(spec)
        kind = rest.pop("kind", None)
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise TargetError(f"target {dict(spec)!r} has no valid 'kind'")
        return kind, rest
    raise TargetError(
        f"a target is a string, a dict or a Target, not {type(spec).__name__} {spec!r}"
    )


def _as_dict_text(words: list[str]) -> str:
    items = {"kind": words[0]}
    for word in words[1:]:
        name, _, value = word.lstrip("-").partition("=")
        items[name] = value or "..."
    return json.dumps(items)


def _freeze(name: str, value: object) -> Any:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(name, item) for item in value)
    raise TargetError(
        f"target attribute {name!r} is {type(value).__name__} {value!r}",
        hint="attributes are strings, numbers, bools or lists of them",
    )


class Attr(NamedTuple):
    """One attribute that a target kind has.

    Attributes:
        types: accepted Python types.
        doc: what it means.
        choices: the only accepted values; empty for any.
    """

    types: tuple[type, ...]
    doc: str
    choices: tuple[Any, ...] = ()


def _same(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    return attrs


class TargetKind(NamedTuple):
    """A family of targets, owned by the plugin that registers it.

    Attributes:
        name: what users write.
        doc: one line for listings.
        schema: attributes by name.
        normalize: fills in and canonicalises attributes that passed the schema; may raise
            `TargetError`.
        detect: attributes of the target on this machine, or None where there is none. Must not
            start a driver needlessly: it runs for ``target="auto"``.
        priority: kinds with a higher one are asked first by ``target="auto"``.
    """

    name: str
    doc: str = ""
    schema: Mapping[str, Attr] = MappingProxyType({})
    normalize: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _same
    detect: Callable[[], Mapping[str, Any] | None] = lambda: None
    priority: int = 0

    def resolve(self, target: Target) -> Target:
        """Check attributes against the schema and normalise them.

        Raises:
            TargetError: an unknown attribute, a wrong type or a value that is not a choice.
        """
        for name, value in target.attrs.items():
            spec = self.schema.get(name)
            if spec is None:
                raise TargetError(
                    f"target kind {self.name!r} has no attribute {name!r}",
                    hint=did_you_mean(name, self.schema, listing="attributes"),
                )
            wrong = isinstance(value, bool) and bool not in spec.types
            if wrong or not isinstance(value, spec.types):
                names = " or ".join(t.__name__ for t in spec.types)
                raise TargetError(
                    f"target attribute {name!r} of {self.name!r} is {names}, got {value!r}",
                    hint=spec.doc,
                )
            if spec.choices and value not in spec.choices:
                raise TargetError(
                    f"target attribute {name!r} of {self.name!r} cannot be {value!r}",
                    hint="choices: " + ", ".join(map(str, spec.choices)),
                )
        return Target(self.name, dict(self.normalize(target.attrs)))
