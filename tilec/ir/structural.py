"""Structural equality and hash: alpha-equivalence, stable across processes.

Both are defined by one canonical token stream. Variables and buffers bound below the root are
numbered in order of appearance; names matter for functions and their parameters only (they are
part of the host ABI). Spans are ignored.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from enum import Enum
from itertools import zip_longest
from typing import Any

from tilec.ir.buffer import Buffer
from tilec.ir.dtype import DType
from tilec.ir.expr import Var
from tilec.ir.node import Node
from tilec.ir.stmt import PrimFunc

_BINDERS: dict[str, tuple[str, ...]] = {
    "Bind": ("var",),
    "For": ("var",),
    "Parallel": ("vars",),
    "Launch": ("grid_vars", "thread_vars"),
}


def tokens(root: Any, *, by_name: bool = False) -> Iterator[Any]:
    """The canonical token stream of a node or field value.

    Free variables and buffers appear by identity, or by name and dtype with `by_name`.
    """
    numbers: dict[int, int] = {}
    stack: list[Any] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, Var):
            number = numbers.get(id(item))
            if number is not None:
                yield ("v", number)
            else:
                yield ("free", str(item.dtype), item.name if by_name else id(item))
        elif isinstance(item, Buffer):
            number = numbers.get(id(item))
            if number is not None:
                yield ("b", number)
            else:
                bound = isinstance(root, Node) and not _is_expr_root(root)
                numbers[id(item)] = len(numbers)
                yield ("buffer", str(item.dtype), item.scope(), len(item.shape))
                if not bound:
                    yield item.name if by_name else id(item)
                stack.append(item.strides)
                stack.append(item.shape)
        elif isinstance(item, Node):
            name = type(item).__name__
            yield name
            if isinstance(item, PrimFunc):
                yield item.name
                yield from _bind_params(item, numbers)
                stack.append(item.attrs)
                stack.append(item.body)
                stack.append(item.params)
                continue
            for key in _BINDERS.get(name, ()):
                value = getattr(item, key)
                for var in value if isinstance(value, tuple) else (value,):
                    numbers[id(var)] = len(numbers)
                    yield str(var.dtype)
            for key in reversed(item._fields):
                stack.append(getattr(item, key))
        elif isinstance(item, (tuple, list)):
            yield ("(", len(item))
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            yield ("{", tuple(sorted(map(str, item))))
            for key in sorted(item, key=str, reverse=True):
                stack.append(item[key])
        else:
            yield _scalar(item)


def _is_expr_root(root: Node) -> bool:
    from tilec.ir.buffer import BufferRegion
    from tilec.ir.expr import Expr

    return isinstance(root, (Expr, BufferRegion))


def _bind_params(func: PrimFunc, numbers: dict[int, int]) -> Iterator[Any]:
    """Number the parameters and the shape variables they carry."""
    from tilec.ir.visitor import walk

    for param in func.params:
        yield param.name
        if isinstance(param, Var):
            numbers.setdefault(id(param), len(numbers))
            yield str(param.dtype)
    for param in func.params:
        if isinstance(param, Buffer):
            for extent in (*param.shape, *(param.strides or ())):
                if isinstance(extent, Node):
                    for node in walk(extent):
                        if isinstance(node, Var) and id(node) not in numbers:
                            numbers[id(node)] = len(numbers)
                            yield ("shape", str(node.dtype))


def _scalar(item: Any) -> Any:
    if isinstance(item, float):
        return ("f", struct.pack("<d", item))
    if isinstance(item, bool):
        return ("t", item)
    if isinstance(item, int):
        return ("i", item)
    if isinstance(item, Enum):
        return ("e", type(item).__name__, str(item.value))
    if isinstance(item, (str, DType)):
        return ("s", str(item))
    if item is None:
        return None
    canonical = getattr(item, "canonical", None)
    return ("o", type(item).__name__, canonical() if callable(canonical) else repr(item))


def structural_equal(a: Any, b: Any) -> bool:
    """Whether two nodes are the same program up to names of bound variables and buffers."""
    if a is b:
        return True
    end = object()
    return all(x == y for x, y in zip_longest(tokens(a), tokens(b), fillvalue=end))


def structural_hash(node: Any) -> str:
    """SHA-256 (hex) of the canonical form; equal in every process for equal programs."""
    digest = hashlib.sha256()
    for token in tokens(node, by_name=True):
        digest.update(repr(token).encode())
        digest.update(b"\0")
    return digest.hexdigest()
