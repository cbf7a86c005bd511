"""Where the calls of contracts stand, and the tiles that they are given."""

from __future__ import annotations

import re
from typing import Any

from tilec.diagnostics import (
    NestingError,
    NoTraceError,
)
from tilec.testing.contracts import HERE, Rule

ON_CHIP = ("shared", "fragment", "local")
SCOPES = ("global", *ON_CHIP)
PLACES = ("block", "serial", "if", "while", "unroll", "parallel", "outside")
"""Where a call stands; the last two are illegal for tile operations."""

PLACEMENT = (
    Rule("inside T.Parallel", NestingError, lambda c: c.place == "parallel"),
    Rule("outside of T.Kernel", NoTraceError, lambda c: c.place == "outside"),
)

NOT_TILES = {"number": "3", "none": "None", "text": '"A"', "value": "bx + 1", "list": "[A, A]"}


def _around(place: str, call: str) -> str:
    """The call at its place in the launch, with marker."""
    line = f"{call}  {HERE}"
    heads = {
        "block": [],
        "serial": ["for trip in T.serial(1):"],
        "if": ["if bx == 0:"],
        "while": ["w = T.alloc_var('int32', init=0)", "while w < 1:", "    w += 1"],
        "unroll": ["for trip in T.unroll(1):"],
        "parallel": ["for trip in T.Parallel(1):"],
    }
    head = heads[place]
    indent = "    " if head else ""
    return "\n".join([*head, indent + line])


_PARAMETERS = {"s": "A", "t": "O", "r": "O", "a": "A", "b": "B", "c": "O", "bx": "2"}


def launch(before: list[str], call: str, after: list[str], place: str = "block") -> str:
    if place == "outside":  # where there are no tiles and no block
        for name, parameter in _PARAMETERS.items():
            call = re.sub(rf"\b{name}\b(?!=)", parameter, call)
        return f"{call}  {HERE}\nwith T.Kernel(1, threads=32) as bx:\n    pass"
    lines = [*before, *_around(place, call).split("\n"), *after]
    return "with T.Kernel(1, threads=32) as bx:\n" + "\n".join("    " + line for line in lines)


def tile_of(
    name: str, scope: str, shape: Any, dtype: str, parameter: str
) -> tuple[list[str], list[str], str]:
    """A tile that starts as a parameter and ends in it: lines before and after, its name."""
    if scope == "global":
        return [], [], parameter
    lines = [f'{name} = T.alloc_{scope}({shape}, "{dtype}")', f"T.copy({parameter}, {name})"]
    return lines, [f"T.copy({name}, {parameter})"], name
