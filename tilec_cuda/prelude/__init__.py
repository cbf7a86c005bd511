"""CUDA C++ text that generated kernels are built from: only what a kernel uses.

A *piece* is a named function, type or macro with the pieces it needs. `render` gives the text of
the pieces asked for and of everything that they need, always in the same order, so that equal
requests give equal bytes. Nothing here includes a header. A function is called ``tilec_`` and the
name of its piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilec_cuda.prelude import (
    asynchronous,
    atomics,
    convert,
    fast,
    matrix,
    memory,
    scalar,
)
from tilec_cuda.prelude.base import TYPES, Piece

__all__ = ["TYPES", "Piece", "find", "render"]

_MAKERS: tuple[Callable[[str], Piece | None], ...] = (
    convert.make,
    scalar.make,
    memory.make,
    asynchronous.make,
    matrix.make,
    atomics.make,
    fast.make,
)


def find(name: str) -> Piece | None:
    """The piece of that name, or None."""
    for make in _MAKERS:
        piece = make(name)
        if piece is not None:
            return piece
    return None


def render(names: Iterable[str]) -> str:
    """The text of pieces and of all that they need; needs come first, else sorted by name.

    Raises:
        KeyError: there is no such piece.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        piece = find(name)
        if piece is None:
            raise KeyError(name)
        for need in piece.needs:
            add(need)
        done[name] = piece.text

    for name in sorted(names):
        add(name)
    return "".join(f"{text.strip()}\n" for text in done.values())
