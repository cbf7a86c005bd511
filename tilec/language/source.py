"""Finding the source of a decorated function, and building its staged twin.

The twin is compiled from the rewritten syntax tree with the file name and positions of the
original, and closes over the same cells, so captured variables are the user's own.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from tilec.diagnostics import Span, UnsupportedSyntaxError
from tilec.language import runtime
from tilec.language.rewrite import RUNTIME_NAME, rewrite_function

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def function_span(func: Callable[..., Any]) -> Span:
    """Where a function is defined."""
    code = func.__code__
    node = _node_or_none(func)
    if node is None:
        line = linecache.getline(code.co_filename, code.co_firstlineno)
        at = max(line.find("lambda"), 0) if code.co_name == "<lambda>" else 0
        end = at + (len("lambda") if at else 1)
        return Span(code.co_filename, code.co_firstlineno, at + 1, code.co_firstlineno, end + 1)
    end = node.col_offset + len(f"def {node.name}") + 1
    return Span(code.co_filename, node.lineno, node.col_offset + 1, node.lineno, end)


def return_span(func: Callable[..., Any]) -> Span:
    """Where a function returns last, or where it is defined if it never does."""
    node = _node_or_none(func)
    for stmt in reversed(node.body if node is not None else []):
        if isinstance(stmt, ast.Return):
            return Span(
                func.__code__.co_filename,
                stmt.lineno,
                stmt.col_offset + 1,
                stmt.end_lineno or stmt.lineno,
                (stmt.end_col_offset or stmt.col_offset) + 1,
            )
    return function_span(func)


def _node_or_none(func: Callable[..., Any]) -> FunctionNode | None:
    if not isinstance(func, FunctionType):
        return None
    text = _file_text(func)
    try:
        return function_node(func.__code__, text) if text else None
    except SyntaxError:  # the file changed after it was imported
        return None


@functools.lru_cache(maxsize=256)
def _parse_file(filename: str, text: str) -> ast.Module:
    return ast.parse(text, filename)


def _file_text(func: FunctionType) -> str:
    filename = func.__code__.co_filename
    lines = linecache.getlines(filename, func.__globals__)
    if not lines:
        try:
            lines = inspect.findsource(func)[0]
        except (OSError, TypeError):
            lines = []
    return "".join(lines)


@functools.lru_cache(maxsize=1024)
def function_node(code: CodeType, text: str) -> FunctionNode | None:
    """The syntax tree of the function compiled to `code`, found in the text of its file."""
    best = None
    for node in ast.walk(_parse_file(code.co_filename, text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if code.co_firstlineno in (first, node.lineno):
                best = node
    if best is not None:
        args = best.args
        names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
        if tuple(names) != code.co_varnames[: len(names)]:
            return None
    return best


def syntax_of(func: FunctionType) -> FunctionNode:
    """The syntax tree of `func` as it was when its file was read.

    Raises:
        UnsupportedSyntaxError: the source is not available, or no longer matches.
    """
    if func.__name__ == "<lambda>":
        raise UnsupportedSyntaxError(
            "a lambda cannot be a kernel", span=function_span(func), hint="use `def`"
        )
    text = _file_text(func)
    if not text:
        raise UnsupportedSyntaxError(
            f"the source of {func.__name__} is not available",
            span=function_span(func),
            hint="define kernels in a file or notebook cell; exec'd text needs a linecache entry",
        )
    node = function_node(func.__code__, text)
    if node is None:
        raise UnsupportedSyntaxError(
            f"the source of {func.__name__} does not match its file any more",
            span=function_span(func),
            hint="the file was edited after it was imported; restart the process",
        )
    return node


@functools.lru_cache(maxsize=1024)
def _staged_code(code: CodeType, text: str, kind: str) -> tuple[CodeType, tuple[str, ...]]:
    node = function_node(code, text)
    assert node is not None
    module = rewrite_function(node, code.co_filename, code.co_freevars, kind)
    outer = next(
        c for c in compile(module, code.co_filename, "exec").co_consts if isinstance(c, CodeType)
    )
    inner = next(
        c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == code.co_name
    )
    return inner, inner.co_freevars


class _Unset:
    """Stands for a closure variable that has no value yet."""


def staged_function(func: FunctionType, kind: str) -> FunctionType:
    """The staged twin of `func`; `kind` is "kernel" or "macro"."""
    syntax_of(func)
    code, free = _staged_code(func.__code__, _file_text(func), kind)
    own = dict(zip(func.__code__.co_freevars, func.__closure__ or (), strict=True))

    def cell_for(name: str) -> Any:
        if name == RUNTIME_NAME:
            return _cell(runtime)
        return own[name]

    twin = FunctionType(
        code, func.__globals__, func.__name__, func.__defaults__, tuple(map(cell_for, free))
    )
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


def _cell(value: Any) -> Any:
    def inner() -> Any:
        return value

    assert inner.__closure__ is not None
    return inner.__closure__[0]


def annotations_of(func: FunctionType, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Evaluated parameter annotations, also under ``from __future__ import annotations``.

    `namespace` holds the local variables where the function was defined.
    """
    result: dict[str, Any] = {}
    closure = {
        name: cell.cell_contents
        for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
        if not _is_empty(cell)
    }
    for name, value in func.__annotations__.items():
        if type(value) is str:
            scope = {**func.__globals__, **(namespace or {}), **closure}
            try:
                value = eval(value, scope)  # noqa: S307
            except NameError as error:
                raise UnsupportedSyntaxError(
                    f"the annotation of parameter {name} cannot be evaluated: {error}",
                    span=function_span(func),
                ) from None
        result[name] = value
    return result


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def captured_values(func: FunctionType) -> dict[str, Any]:
    """Closure variables and globals that `func` names, by name: part of the cache key."""
    values = {
        name: cell.cell_contents
        for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
        if not _is_empty(cell)
    }
    for name in func.__code__.co_names:
        if name in func.__globals__:
            values.setdefault(name, func.__globals__[name])
    return values
