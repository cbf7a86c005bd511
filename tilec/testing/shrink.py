"""Makes a failing Python program smaller while it keeps failing.

Works on the syntax tree: statements are removed, blocks are replaced by their bodies, expressions
parts of themselves or by small constants, numbers by smaller ones. Nothing is assumed about the
program but that it parses; a candidate that fails in another way is not interesting and is dropped
by the predicate.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

Predicate = Callable[[str], bool]
_BODIES = ("body", "orelse", "finalbody")


def shrink(text: str, failing: Predicate, *, seconds: float = 60.0) -> str:
    """The smallest program found within `seconds` for which `failing` is still true.

    Args:
        text: a program for which `failing` is true.
        failing: says whether a program still shows the problem; must not raise.
        seconds: when to stop looking.

    Raises:
        ValueError: `failing` is not true for `text`.
    """
    if not failing(text):
        raise ValueError("the program does not show the problem to begin with")
    end = time.monotonic() + seconds
    best = text
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for make in (_without_statements, _unwrapped, _smaller_expressions, _smaller_numbers):
            # A reduction usually makes room for the next of its kind: keep going until none helps.
            again = True
            while again and time.monotonic() < end:
                again = False
                for candidate in make(best):
                    if time.monotonic() >= end:
                        break
                    if candidate != best and failing(candidate):
                        best, again, progress = candidate, True, True
                        break
    return best


def _text(tree: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _blocks(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """All places that hold a list of statements."""
    for node in ast.walk(tree):
        for key in _BODIES:
            if isinstance(getattr(node, key, None), list) and getattr(node, key):
                yield node, key


def _edit(text: str, position: int, change: Callable[[ast.AST, str], bool]) -> str | None:
    """The program with `change` applied to its block number `position`."""
    tree = ast.parse(text)
    node, key = list(_blocks(tree))[position]
    if not change(node, key):
        return None
    if not getattr(node, key) and key == "body":
        setattr(node, key, [ast.Pass()])
    return _text(tree)


def _without_statements(text: str) -> Iterator[str]:
    """Programs that lack some statements: halves of blocks first, then single ones."""
    sizes = [len(getattr(n, k)) for n, k in _blocks(ast.parse(text))]
    chunks = sorted({max(s // d, 1) for s in sizes for d in (1, 2, 4)}, reverse=True)
    for chunk in [*[c for c in chunks if c > 1], 1]:
        for position, size in enumerate(sizes):
            if chunk > size:
                continue
            for start in reversed(range(0, size, chunk)):

                def cut(node: ast.AST, key: str, start: int = start, chunk: int = chunk) -> bool:
                    block = getattr(node, key)
                    if all(isinstance(s, ast.Pass) for s in block[start : start + chunk]):
                        return False
                    del block[start : start + chunk]
                    return True

                candidate = _edit(text, position, cut)
                if candidate is not None:
                    yield candidate


def _unwrapped(text: str) -> Iterator[str]:
    """Programs with a compound statement replaced by its body or its else part."""
    tree = ast.parse(text)
    for position, (node, key) in enumerate(_blocks(tree)):
        for index, stmt in enumerate(getattr(node, key)):
            for inner in _BODIES:
                if not getattr(stmt, inner, None) or isinstance(stmt, ast.FunctionDef):
                    continue

                def replace(
                    node: ast.AST, key: str, index: int = index, inner: str = inner
                ) -> bool:
                    block = getattr(node, key)
                    block[index : index + 1] = getattr(block[index], inner)
                    return True

                candidate = _edit(text, position, replace)
                if candidate is not None:
                    yield candidate


def _expressions(tree: ast.AST) -> list[tuple[ast.AST, str, int | None]]:
    """All places that hold an expression."""
    places: list[tuple[ast.AST, str, int | None]] = []
    for node in ast.walk(tree):
        for key, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and not _is_target(node, key):
                places.append((node, key, None))
            elif isinstance(value, list):
                places += [(node, key, n) for n, v in enumerate(value) if isinstance(v, ast.expr)]
    return places


def _is_target(node: ast.AST, key: str) -> bool:
    return key in ("target", "targets", "optional_vars", "func", "annotation")


def _get(node: ast.AST, key: str, index: int | None) -> Any:
    value = getattr(node, key)
    return value if index is None else value[index]


def _put(node: ast.AST, key: str, index: int | None, value: ast.expr) -> None:
    if index is None:
        setattr(node, key, value)
    else:
        getattr(node, key)[index] = value


def _smaller_expressions(text: str) -> Iterator[str]:
    """Programs with one expression replaced by a part of it or by a constant."""
    tree = ast.parse(text)
    places = _expressions(tree)
    for position, place in enumerate(places):
        old = _get(*place)
        if isinstance(old, (ast.Constant, ast.Name, ast.Attribute)):
            continue
        parts = [c for c in ast.iter_child_nodes(old) if isinstance(c, ast.expr)]
        if isinstance(old, ast.Call):
            parts = list(old.args)
        for part in [ast.Constant(0), ast.Constant(1), *parts]:
            fresh = ast.parse(text)
            _put(*_expressions(fresh)[position], copy.deepcopy(part))
            yield _text(fresh)


def _smaller_numbers(text: str) -> Iterator[str]:
    """Programs with one number halved or made 0 or 1."""
    tree = ast.parse(text)
    numbers = [n for n in ast.walk(tree) if _is_number(n)]
    for position, node in enumerate(numbers):
        value = node.value  # type: ignore[attr-defined]
        for smaller in dict.fromkeys((0, 1, value // 2, value - 1)):
            if not 0 <= smaller < value:
                continue
            fresh = ast.parse(text)
            target = [n for n in ast.walk(fresh) if _is_number(n)][position]
            target.value = smaller  # type: ignore[attr-defined]
            yield _text(fresh)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1
