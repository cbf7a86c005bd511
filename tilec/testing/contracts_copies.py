"""Contracts of copies and fills. What breaks no rule is legal."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.diagnostics import (
    LiteralRangeError,
    NestingError,
    OperandError,
    OutOfBoundsError,
    ShapeError,
)
from tilec.ops.copy import EVICTION, INSTRUCTIONS
from tilec.testing.conformance.checks import COMMON, Check, Param
from tilec.testing.contracts import Contract, Rule
from tilec.testing.contracts_places import (
    NOT_TILES,
    PLACEMENT,
    PLACES,
    SCOPES,
    launch,
    tile_of,
)

# copy

_RELATIONS = {
    # source, destination
    "equal": ((4, 5), (4, 5)),
    "one element": ((1,), (1,)),
    "leading one": ((1, 4, 5), (4, 5)),
    "middle one": ((4, 5), (4, 1, 5)),
    "trailing one": ((4, 5, 1), (4, 5)),
    "all ones": ((1, 1), (1,)),
    "empty": ((0, 4), (0, 4)),
    "transposed": ((4, 5), (5, 4)),
    "flattened": ((20,), (4, 5)),
    "longer": ((4, 6), (4, 5)),
    "shorter": ((4, 4), (4, 5)),
    "row": ((5,), (4, 5)),
    "empty to full": ((0, 4), (1, 4)),
}
_DIFFERENT = ("transposed", "flattened", "longer", "shorter", "row", "empty to full")


def _head(c: Any) -> tuple[list[int], tuple[int, ...]] | None:
    """The extents that are wanted at an element, and the shape of its buffer."""
    if "element" not in c.form:
        return None
    pair = _RELATIONS[c.relation]
    whole, buffer = pair if c.form.startswith("target") else pair[::-1]
    return [e for e in whole if e != 1] if len(whole) > len(buffer) else list(whole), buffer


def _head_too_deep(c: Any) -> bool:
    """The buffer of the element has too few dimensions."""
    found = _head(c)
    return found is not None and len(found[0]) > len(found[1])


def _head_sticks_out(c: Any) -> bool:
    """A tile named by its first element reaches beyond an on-chip buffer."""
    found = _head(c)
    # Accesses of global memory are guarded.
    if found is None or (c.target if c.form.startswith("target") else c.source) == "global":
        return False
    extents, buffer = found
    extents = [1] * (len(buffer) - len(extents)) + extents
    return any(e > n for e, n in zip(extents, buffer, strict=False))


def _copy_types(c: Any) -> Check:
    a, b, s = tile_of("s", c.source, (6, 7), c.dtype, "A")
    d, e, t = tile_of("t", c.target, (6, 7), c.to, "O")
    del b
    body = launch([*a, *d], f"T.copy({s}, {t})", e)
    params = (Param("A", (6, 7), c.dtype), Param("O", (6, 7), c.to, "mark"))
    return Check("copy", c.dtype, params, body)


def _copy_shapes(c: Any) -> Check:
    source, target = _RELATIONS[c.relation]
    a, _, s = tile_of("s", c.source, source, "int32", "A")
    d, e, t = tile_of("t", c.target, target, "int32", "O")
    if c.form == "slices":
        s += f"[{', '.join(f'0:{n}' for n in source)}]"
        t += f"[{', '.join(f'0:{n}' for n in target)}]"
    elif c.form == "source by element":
        s += f"[{', '.join('0' for _ in source)}]"
    elif c.form == "target by element":
        t += f"[{', '.join('0' for _ in target)}]"
    body = launch([*a, *d], f"T.copy({s}, {t})", e, c.place)
    params = (Param("A", source, "int32"), Param("O", target, "int32", "mark"))
    return Check("copy", "int32", params, body)


def _copy_hints(c: Any) -> Check:
    words = f"coalesced_width={c.width!r}, eviction_policy={c.eviction!r}, "
    words += f"prefer_instruction={c.instruction!r}, disable_tma={c.disable!r}"
    body = launch(
        ['s = T.alloc_shared((9, 8), "float16")'], f"T.copy(A, s, {words})", ["T.copy(s, O)"]
    )
    return Check(
        "copy", "float16", (Param("A", (9, 8), "float16"), Param("O", (9, 8), "float16")), body
    )


def _copy_operands(c: Any) -> Check:
    texts = {"buffer": ("A", "O"), "slice": ("A[0:1]", "O[0:1]"), "element": ("A[0]", "O[0]"),
             "variable": ("v", "w")}  # fmt: skip
    source = NOT_TILES.get(c.source) or texts[c.source][0]
    target = NOT_TILES.get(c.target) or texts[c.target][1]
    before = ['v = T.alloc_var("int32", init=5)', 'w = T.alloc_var("int32", init=6)']
    body = launch(before, f"T.copy({source}, {target})", ["P[0] = w"])
    params = (
        Param("A", (1,), "int32"),
        Param("O", (1,), "int32", "mark"),
        Param("P", (1,), "int32"),
    )
    return Check("copy", "int32", params, body)


COPY = (
    Contract(
        "copy of dtypes",
        {"source": SCOPES, "target": SCOPES, "dtype": COMMON, "to": COMMON},
        (),
        _copy_types,
    ),
    Contract(
        "copy of shapes",
        {
            "relation": tuple(_RELATIONS),
            "form": ("whole", "slices", "source by element", "target by element"),
            "source": ("global", "shared"),
            "target": ("global", "fragment"),
            "place": PLACES,
        },
        (
            Rule(
                "an element of an empty tensor",
                OutOfBoundsError,
                lambda c: (
                    "element" in c.form and 0 in _RELATIONS[c.relation][c.form.startswith("target")]
                ),
            ),
            PLACEMENT[1],
            Rule(
                "different shapes",
                ShapeError,
                lambda c: (
                    (c.relation in _DIFFERENT and "element" not in c.form) or _head_too_deep(c)
                ),
            ),
            Rule(
                "inside T.Parallel",
                NestingError,
                lambda c: c.place == "parallel" and c.relation not in ("one element", "all ones"),
            ),
            Rule("a tile sticks out on chip", OutOfBoundsError, _head_sticks_out),
        ),
        _copy_shapes,
    ),
    Contract(
        "copy with hints",
        {
            "width": (None, 1, 2, 16, 0, 3, -4, 2.0, "4"),
            "eviction": (*EVICTION, "evict", 1),
            "instruction": (*INSTRUCTIONS, "async", 0),
            "disable": (False, True),
        },
        (
            Rule("unknown instruction", OperandError, lambda c: c.instruction not in INSTRUCTIONS),
            Rule("unknown eviction policy", OperandError, lambda c: c.eviction not in EVICTION),
            Rule(
                "width is no power of two",
                ShapeError,
                lambda c: c.width not in (None, 1, 2, 16) or isinstance(c.width, float),
            ),
        ),
        _copy_hints,
    ),
    Contract(
        "copy of operands",
        {
            "source": ("buffer", "slice", "element", "variable", *NOT_TILES),
            "target": ("buffer", "slice", "element", "variable", *NOT_TILES),
        },
        (
            Rule("source is no tile", OperandError, lambda c: c.source in NOT_TILES),
            Rule("target is no tile", OperandError, lambda c: c.target in NOT_TILES),
        ),
        _copy_operands,
    ),
)

# fill and clear

_FILLS = {
    "int": "3", "zero": "0", "negative": "-2", "float": "2.5", "bool": "True",
    "infinity": 'T.infinity("float32")', "element": "A[1]", "index": "bx", "large": "300",
    "text": '"3"', "none": "None", "buffer": "A",
}  # fmt: skip


def _too_large(c: Any) -> bool:
    low, high = (0, 1) if "int" not in c.dtype else ir.DType(c.dtype).int_range
    number = {"int": 3, "negative": -2, "large": 300}.get(c.value, 0)
    return "int" in c.dtype and not low <= number <= high


def _fill(c: Any) -> Check:
    before, after, name = tile_of("t", c.scope, (5, 6), c.dtype, "O")
    part = {"whole": "", "slice": "[1:4, 2:3]", "element": "[4, 5]"}[c.part]
    call = f"T.fill({name}{part}, {_FILLS[c.value]})"
    body = launch(before, call, after, c.place)
    return Check(
        "fill", c.dtype, (Param("A", (2,), "int8"), Param("O", (5, 6), c.dtype, "mark")), body
    )


FILL = (
    Contract(
        "fill",
        {
            "scope": SCOPES,
            "dtype": COMMON,
            "value": tuple(_FILLS),
            "part": ("whole", "slice", "element"),
            "place": PLACES,
        },
        (
            Rule(
                "the value is no number",
                OperandError,
                lambda c: c.value in ("text", "none", "buffer"),
            ),
            Rule("the literal does not fit", LiteralRangeError, _too_large),
            Rule(
                "inside T.Parallel",
                NestingError,
                lambda c: c.place == "parallel" and c.part != "element",
            ),
            PLACEMENT[1],
        ),
        _fill,
    ),
)
