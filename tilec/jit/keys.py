"""Cache keys of calls: argument values and captured values, by content where possible."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

from tilec import ir
from tilec.language.function import Macro
from tilec.language.source import captured_values

_SIMPLE = (str, bytes, int, float, bool, complex, type(None))
_MAX_DEPTH = 6


def freeze(value: Any, pins: list[Any], depth: int = 0) -> Any:
    """A hashable stand-in for `value`: equal for equal contents.

    Objects without comparable contents are represented by identity and appended to `pins`, which
    must live as long as the key.
    """
    if isinstance(value, _SIMPLE):
        return (type(value), value if value == value else "nan")
    if type(value) in (tuple, list):
        return (type(value), tuple(freeze(v, pins, depth) for v in value))
    if isinstance(value, dict):
        return (dict, tuple((freeze(k, pins), freeze(v, pins, depth)) for k, v in value.items()))
    if isinstance(value, (set, frozenset)):
        return (frozenset, frozenset(freeze(v, pins, depth) for v in value))
    if isinstance(value, ir.PrimFunc):
        return ("prim_func", ir.structural_hash(value))
    if isinstance(value, Macro):
        return freeze(value.__wrapped__, pins, depth)  # type: ignore[attr-defined]
    if isinstance(value, FunctionType):
        if depth < _MAX_DEPTH and not _is_library(value.__module__):
            defaults = freeze(value.__defaults__, pins, depth + 1)
            return (value.__code__, defaults, captures(value, pins, depth + 1))
    elif isinstance(value, ModuleType):
        return ("module", value.__name__)
    try:
        hash(value)
        by_content = getattr(type(value), "__hash__", None) is not object.__hash__
        plain = by_content and not isinstance(value, ir.Node)
    except TypeError:
        plain = False
    if plain:
        return (type(value), value)
    pins.append(value)
    return ("id", id(value))


def _is_library(module: str | None) -> bool:
    return module is not None and module.split(".")[0] in ("tilec", "numpy", "torch", "builtins")


def captures(func: FunctionType, pins: list[Any], depth: int = 0) -> Any:
    """What `func` captures: closure cells, globals, and constants of modules it names."""
    names = func.__code__.co_names
    frozen = []
    for name, value in captured_values(func).items():
        if isinstance(value, ModuleType):
            if not _is_library(value.__name__):
                found = ((n, vars(value)[n]) for n in names if n in vars(value))
                frozen.append((name, tuple((n, v) for n, v in found if isinstance(v, _SIMPLE))))
            continue
        frozen.append((name, freeze(value, pins, depth)))
    inner = [c for c in func.__code__.co_consts if type(c) is type(func.__code__)]
    for code in inner:  # nested functions see the globals too
        for name in code.co_names:
            if name in func.__globals__ and name not in names:
                value = func.__globals__[name]
                if isinstance(value, (*_SIMPLE, FunctionType, Macro, tuple, list, dict)):
                    frozen.append((name, freeze(value, pins, depth + 1)))
    return tuple(frozen)
