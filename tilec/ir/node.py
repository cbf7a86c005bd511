"""Base of every IR node: immutable, slotted, generic over its declared fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, dataclass_transform

from tilec.diagnostics import NO_SPAN, Span

_MISSING: Any = object()


def field(*, default: Any = _MISSING, kw_only: bool = False) -> Any:
    """Declare a node field with options (understood by type checkers)."""
    del kw_only
    return default


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class NodeMeta(type):
    """Turns annotated class attributes into slots and a constructor.

    A hand-made equivalent of frozen slotted dataclasses: about ten times cheaper to create at
    import, and without their traps (zero-argument ``super``, double ``__init_subclass__``).
    """

    _fields: tuple[str, ...]

    def __new__(mcls, name: str, bases: tuple[type, ...], ns: dict[str, Any]) -> NodeMeta:
        """Build the class, its ``__slots__``, ``_fields`` and ``__init__``."""
        own = [
            key
            for key, hint in ns.get("__annotations__", {}).items()
            if not str(hint).startswith("ClassVar")
        ]
        defaults: dict[str, Any] = {}
        for base in reversed(bases):
            defaults.update(getattr(base, "_defaults", {}))
        defaults.update({key: ns.pop(key) for key in own if key in ns})
        inherited = tuple(f for base in bases for f in getattr(base, "_fields", ()))
        # A redeclared field keeps its slot and takes the position of the redeclaration.
        slots = tuple(key for key in own if key not in inherited)
        ns["__slots__"] = slots
        cls = super().__new__(mcls, name, bases, ns)
        kept = tuple(f for f in inherited if f not in own)
        cls._fields = kept + tuple(f for f in own if f != "span")
        cls._defaults = defaults  # type: ignore[attr-defined]
        cls._setters = {  # type: ignore[attr-defined]
            **{k: v for base in bases for k, v in getattr(base, "_setters", {}).items()},
            **{key: cls.__dict__[key].__set__ for key in slots},
        }
        cls.__init__ = _make_init(cls)  # type: ignore[misc]
        return cls


def _make_init(cls: Any) -> Callable[..., None]:
    """Compile ``__init__`` that writes the slots directly (the class forbids assignment)."""
    env: dict[str, Any] = {}
    params, body = [], []
    for key in (*cls._fields, "span"):
        if key == "span":
            params.append("*")
        if key in cls._defaults:
            env[f"d_{key}"] = cls._defaults[key]
            params.append(f"{key}=d_{key}")
        else:
            params.append(key)
        env[f"s_{key}"] = cls._setters[key]
        body.append(f" s_{key}(self, {key})")
    exec(f"def __init__(self, {', '.join(params)}):\n" + "\n".join(body), env)  # noqa: S102
    init: Callable[..., None] = env["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


class Node(metaclass=NodeMeta):
    """One immutable node. `span` says where in the user's source it comes from."""

    _fields: ClassVar[tuple[str, ...]]
    _defaults: ClassVar[dict[str, Any]]

    span: Span = field(default=NO_SPAN, kw_only=True)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is immutable; use node.replace()")

    __delattr__ = None  # type: ignore[assignment]

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; span and every other field are kept."""
        for key in (*self._fields, "span"):
            if key not in changes:
                changes[key] = getattr(self, key)
        return type(self)(**changes)

    @property
    def children(self) -> Iterator[Node]:
        """Direct child nodes, in field order (tuples and mappings flattened)."""
        for key in self._fields:
            yield from _nodes_in(getattr(self, key))

    def __repr__(self) -> str:
        from tilec.ir.printer import to_text

        return to_text(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif type(value) is tuple:
        for item in value:
            yield from _nodes_in(item)
    elif type(value) is dict:
        for item in value.values():
            yield from _nodes_in(item)
