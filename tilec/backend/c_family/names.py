"""Legal, unique and stable C names for the variables and buffers of one translation unit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while _Alignas _Alignof _Atomic _Bool _Complex _Generic "
    "_Imaginary _Noreturn _Static_assert _Thread_local asm typeof bool true false nullptr "
    "alignas alignof and and_eq bitand bitor catch class compl concept const_cast constexpr "
    "delete dynamic_cast explicit export friend mutable namespace new noexcept not not_eq "
    "operator or or_eq private protected public reinterpret_cast requires static_assert "
    "static_cast template this thread_local throw try typeid typename using virtual wchar_t xor "
    "xor_eq NULL EOF main errno stdin stdout stderr assert offsetof linux unix i386 I"
)
KEYWORDS = frozenset(_WORDS.split())
_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TYPE_LIKE = re.compile(r"(u?int\d+|size|ssize|ptrdiff|intptr|uintptr)_t\Z")


class NameTable:
    """Gives every object one name, derived from the name the user chose.

    Names are made unique by numeric suffixes in order of first use, so equal programs give equal
    text.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken: set[str] = set(reserved)
        self._names: dict[int, str] = {}
        self._keep: list[Any] = []  # keeps ids alive

    def reserve(self, name: str) -> None:
        """Keep `name` from being given out."""
        self._taken.add(name)

    def fresh(self, hint: str) -> str:
        """A new name that resembles `hint`."""
        base = legalize(hint)
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def __call__(self, item: Any) -> str:
        """The name of an object that has a ``name`` attribute."""
        known = self._names.get(id(item))
        if known is None:
            known = self._names[id(item)] = self.fresh(item.name)
            self._keep.append(item)
        return known

    def assign(self, item: Any, name: str) -> str:
        """Fix the name of an object."""
        self._taken.add(name)
        self._names[id(item)] = name
        self._keep.append(item)
        return name


def legalize(name: str) -> str:
    """`name` as a C identifier outside the reserved ones."""
    if not _LEGAL.match(name):
        name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else _escape(c) for c in name)
        if not name or name[0].isdigit():
            name = f"v{name}"
    if name.startswith("__") or (name.startswith("_") and name[1:2].isupper()):
        name = f"v{name}"
    if name in KEYWORDS or name.startswith(("tilec_", "TILEC_")) or _TYPE_LIKE.match(name):
        name = f"{name}_"
    return name


def _escape(char: str) -> str:
    return "_" if char.isascii() else f"u{ord(char):04x}"
