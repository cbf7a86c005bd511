"""Contracts of the tile operations. What breaks no rule is legal."""

from __future__ import annotations

import re
from typing import Any

from tilec import ir
from tilec.diagnostics import (
    DTypeError,
    GemmShapeError,
    LiteralRangeError,
    NestingError,
    NoTraceError,
    OperandError,
    OutOfBoundsError,
    ShapeError,
)
from tilec.ops import KINDS
from tilec.ops.copy import EVICTION, INSTRUCTIONS
from tilec.testing.conformance.checks import COMMON, INTEGERS, Check, Param
from tilec.testing.contracts import HERE, Contract, Rule

ON_CHIP = ("shared", "fragment", "local")
SCOPES = ("global", *ON_CHIP)
PLACES = ("block", "serial", "if", "while", "unroll", "parallel", "outside")
"""Where a call stands; the last two are illegal for tile operations."""

PLACEMENT = (
    Rule("inside T.Parallel", NestingError, lambda c: c.place == "parallel"),
    Rule("outside of T.Kernel", NoTraceError, lambda c: c.place == "outside"),
)

_NOT_TILES = {"number": "3", "none": "None", "text": '"A"', "value": "bx + 1", "list": "[A, A]"}


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


def _launch(before: list[str], call: str, after: list[str], place: str = "block") -> str:
    if place == "outside":  # where there are no tiles and no block
        for name, parameter in _PARAMETERS.items():
            call = re.sub(rf"\b{name}\b(?!=)", parameter, call)
        return f"{call}  {HERE}\nwith T.Kernel(1, threads=32) as bx:\n    pass"
    lines = [*before, *_around(place, call).split("\n"), *after]
    return "with T.Kernel(1, threads=32) as bx:\n" + "\n".join("    " + line for line in lines)


def _tile(
    name: str, scope: str, shape: Any, dtype: str, parameter: str
) -> tuple[list[str], list[str], str]:
    """A tile that starts as a parameter and ends in it: lines before and after, its name."""
    if scope == "global":
        return [], [], parameter
    lines = [f'{name} = T.alloc_{scope}({shape}, "{dtype}")', f"T.copy({parameter}, {name})"]
    return lines, [f"T.copy({name}, {parameter})"], name


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
    a, b, s = _tile("s", c.source, (6, 7), c.dtype, "A")
    d, e, t = _tile("t", c.target, (6, 7), c.to, "O")
    del b
    body = _launch([*a, *d], f"T.copy({s}, {t})", e)
    params = (Param("A", (6, 7), c.dtype), Param("O", (6, 7), c.to, "mark"))
    return Check("copy", c.dtype, params, body)


def _copy_shapes(c: Any) -> Check:
    source, target = _RELATIONS[c.relation]
    a, _, s = _tile("s", c.source, source, "int32", "A")
    d, e, t = _tile("t", c.target, target, "int32", "O")
    if c.form == "slices":
        s += f"[{', '.join(f'0:{n}' for n in source)}]"
        t += f"[{', '.join(f'0:{n}' for n in target)}]"
    elif c.form == "source by element":
        s += f"[{', '.join('0' for _ in source)}]"
    elif c.form == "target by element":
        t += f"[{', '.join('0' for _ in target)}]"
    body = _launch([*a, *d], f"T.copy({s}, {t})", e, c.place)
    params = (Param("A", source, "int32"), Param("O", target, "int32", "mark"))
    return Check("copy", "int32", params, body)


def _copy_hints(c: Any) -> Check:
    words = f"coalesced_width={c.width!r}, eviction_policy={c.eviction!r}, "
    words += f"prefer_instruction={c.instruction!r}, disable_tma={c.disable!r}"
    body = _launch(
        ['s = T.alloc_shared((9, 8), "float16")'], f"T.copy(A, s, {words})", ["T.copy(s, O)"]
    )
    return Check(
        "copy", "float16", (Param("A", (9, 8), "float16"), Param("O", (9, 8), "float16")), body
    )


def _copy_operands(c: Any) -> Check:
    texts = {"buffer": ("A", "O"), "slice": ("A[0:1]", "O[0:1]"), "element": ("A[0]", "O[0]"),
             "variable": ("v", "w")}  # fmt: skip
    source = _NOT_TILES.get(c.source) or texts[c.source][0]
    target = _NOT_TILES.get(c.target) or texts[c.target][1]
    before = ['v = T.alloc_var("int32", init=5)', 'w = T.alloc_var("int32", init=6)']
    body = _launch(before, f"T.copy({source}, {target})", ["P[0] = w"])
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
            "source": ("buffer", "slice", "element", "variable", *_NOT_TILES),
            "target": ("buffer", "slice", "element", "variable", *_NOT_TILES),
        },
        (
            Rule("source is no tile", OperandError, lambda c: c.source in _NOT_TILES),
            Rule("target is no tile", OperandError, lambda c: c.target in _NOT_TILES),
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
    before, after, name = _tile("t", c.scope, (5, 6), c.dtype, "O")
    part = {"whole": "", "slice": "[1:4, 2:3]", "element": "[4, 5]"}[c.part]
    call = f"T.fill({name}{part}, {_FILLS[c.value]})"
    body = _launch(before, call, after, c.place)
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

# reductions


def _reduce_shape(c: Any) -> tuple[int, ...]:
    dim = c.dim if isinstance(c.dim, int) and -len(c.shape) <= c.dim < len(c.shape) else 0
    dim %= len(c.shape)
    kept = tuple(1 if n == dim else e for n, e in enumerate(c.shape))
    dropped = tuple(e for n, e in enumerate(c.shape) if n != dim) or (1,)
    return {
        "dropped": dropped,
        "kept": kept,
        "whole": (*c.shape, 2),
        "longer": (*dropped[:-1], dropped[-1] + 1),
    }[c.out]


def _reduce(c: Any) -> Check:
    out = _reduce_shape(c)
    source, _, s = _tile("s", c.scope, c.shape, c.dtype, "A")
    before, after, r = _tile("r", "fragment", out, c.to, "O")
    words = f"dim={c.dim!r}" + ("" if c.clear or c.kind == "abssum" else ", clear=False")
    words += ", nan_propagate=True" if c.nan and c.kind in ("max", "min", "absmax") else ""
    call = f"T.reduce_{c.kind}({s}, {r}, {words})"
    if c.kind == "mean":
        call = f'T.reduce({s}, {r}, "mean", {c.dim!r}, {c.clear})'
    body = _launch([*source, *before], call, after, c.place)
    # Small integers have one sum, in whatever order and type.
    params = (Param("A", c.shape, c.dtype), Param("O", out, c.to))
    return Check("reduce", c.dtype, params, body, "equal")


def _bad_dim(c: Any) -> bool:
    return not isinstance(c.dim, int) or not -len(c.shape) <= c.dim < len(c.shape)


_REDUCE_RULES = (
    PLACEMENT[1],
    Rule("unknown kind", OperandError, lambda c: c.kind == "mean"),
    Rule("no such dimension", ShapeError, _bad_dim),
    Rule("wrong output shape", ShapeError, lambda c: c.out in ("whole", "longer")),
    Rule(
        "bits of floats",
        DTypeError,
        lambda c: c.kind.startswith("bit") and ("float" in c.dtype or "float" in c.to),
    ),
    PLACEMENT[0],
)

REDUCE = (
    Contract(
        "reduce of dtypes",
        {
            "kind": KINDS,
            "dtype": COMMON,
            "to": COMMON,
            "shape": ((5, 9),),
            "dim": (0, 1),
            "out": ("dropped",),
            "scope": ("fragment",),
            "clear": (True, False),
            "nan": (False,),
            "place": ("block",),
        },
        (_REDUCE_RULES[4],),
        _reduce,
    ),
    Contract(
        "reduce of shapes",
        {
            "kind": (*KINDS, "mean"),
            "dtype": ("int32", "float32", "float16"),
            "to": ("int32", "float32"),
            "shape": ((6,), (3, 5), (4, 1), (2, 3, 4)),
            "dim": (0, 1, -1, -2, 2, -3, 7, None, 1.0),
            "out": ("dropped", "kept", "whole", "longer"),
            "scope": ("shared", "fragment"),
            "clear": (True, False),
            "nan": (True, False),
            "place": ("block", "serial", "parallel", "outside"),
        },
        _REDUCE_RULES,
        _reduce,
    ),
)

# gemm


def _gemm(c: Any) -> Check:
    m, n, k = c.mnk
    a, b = [m, k], [k, n]
    out = [m, n]
    if c.relation == "M differs":
        out[0] += 1
    elif c.relation == "N differs":
        out[1] += 1
    elif c.relation == "K differs":
        b[0] += 1
    a = a[::-1] if c.transpose_a else a
    b = b[::-1] if c.transpose_b else b
    if c.relation == "leading ones":
        a, out = [1, *a], [1, 1, *out]
    elif c.relation == "leading two":
        a = [2, *a]
    elif c.relation == "vector":
        a = [k]
    tiles = [
        _tile(name, scope, tuple(shape), dtype, parameter)
        for name, scope, shape, dtype, parameter in (
            ("a", c.left, a, c.dtype, "A"), ("b", c.right, b, c.other, "B"),
            ("c", c.result, out, c.acc, "O"),
        )
    ]  # fmt: skip
    words = f"transpose_A={c.transpose_a}, transpose_B={c.transpose_b}, clear_accum={c.clear}"
    call = f"T.gemm({tiles[0][2]}, {tiles[1][2]}, {tiles[2][2]}, {words})"
    body = _launch([line for t in tiles for line in t[0]], call, tiles[2][1], c.place)
    params = (
        Param("A", tuple(a), c.dtype),
        Param("B", tuple(b), c.other),
        Param("O", tuple(out), c.acc),
    )
    return Check("gemm", c.dtype, params, body)


def _bits(dtype: str) -> int:
    return 8 if dtype == "bool" else int("".join(ch for ch in dtype if ch.isdigit()))


_GEMM_RULES = (
    PLACEMENT[1],
    Rule("clear_accum is no truth value", OperandError, lambda c: c.clear in ("None", "2")),
    Rule("an operand has one dimension", GemmShapeError, lambda c: c.relation == "vector"),
    Rule("a batch", GemmShapeError, lambda c: c.relation == "leading two"),
    Rule("M, N or K differ", GemmShapeError, lambda c: c.relation.endswith("differs")),
    Rule(
        "operands of two dtypes",
        DTypeError,
        lambda c: (
            c.dtype != c.other
            and not (
                c.dtype in INTEGERS and c.other in INTEGERS and _bits(c.dtype) == _bits(c.other)
            )
        ),
    ),
    Rule(
        "an accumulator of another kind",
        DTypeError,
        lambda c: "bool" in (c.dtype, c.acc) or ("float" in c.dtype) != ("float" in c.acc),
    ),
    Rule("a narrower accumulator", DTypeError, lambda c: _bits(c.acc) < _bits(c.dtype)),
    PLACEMENT[0],
)

GEMM = (
    Contract(
        "gemm of dtypes",
        {
            "dtype": COMMON,
            "other": COMMON,
            "acc": COMMON,
            "mnk": ((5, 6, 7),),
            "relation": ("equal",),
            "transpose_a": (False,),
            "transpose_b": (True,),
            "clear": (False,),
            "left": ("shared",),
            "right": ("shared",),
            "result": ("fragment",),
            "place": ("block",),
        },
        _GEMM_RULES[5:8],
        _gemm,
    ),
    Contract(
        "gemm of shapes",
        {
            "dtype": ("float16", "int8"),
            "other": ("float16", "int8"),
            "acc": ("float32", "int32"),
            "mnk": ((16, 16, 16), (3, 5, 1)),
            "relation": (
                "equal",
                "leading ones",
                "M differs",
                "N differs",
                "K differs",
                "leading two",
                "vector",
            ),
            "transpose_a": (False, True),
            "transpose_b": (False, True),
            "clear": ("False", "True", "bx == 0", "None", "2"),
            "left": ("shared", "fragment", "global"),
            "right": ("shared",),
            "result": ("fragment", "shared"),
            "place": ("block", "serial", "parallel", "outside"),
        },
        (*_GEMM_RULES[:7], _GEMM_RULES[8]),
        _gemm,
    ),
)

# atomics

_VALUES = {"tile": "s", "part": "s[0:8]", "short": "s[0:7]", "literal": "2", "element": "A[3]",
           "none": "None", "text": '"1"'}  # fmt: skip
_ORDERS = (None, "relaxed", "acquire", "release", "acq_rel", "seq_cst", "strict", 5)


def _atomic(c: Any) -> Check:
    part = {"tile": "O", "slice": "O[0:8]", "element": "O[2]"}[c.target]
    words = "" if c.order is None else f", memory_order={c.order!r}"
    words += ", return_prev=True" if c.previous else ""
    before = [f's = T.alloc_shared((8,), "{c.dtype}")', "T.copy(A, s)"]
    body = _launch(before, f"T.{c.op}({part}, {_VALUES[c.value]}{words})", [], c.place)
    return Check(c.op, c.dtype, (Param("A", (8,), c.dtype), Param("O", (8,), c.dtype)), body)


def _is_tile(c: Any) -> bool:
    return c.target != "element" or c.value in ("tile", "part", "short")


ATOMIC = (
    Contract(
        "atomic_add",
        {
            "op": ("atomic_add",),
            "dtype": COMMON,
            "target": ("tile", "slice", "element"),
            "value": tuple(_VALUES),
            "order": _ORDERS,
            "previous": (False, True),
            "place": ("block", "serial", "if", "parallel", "outside"),
        },
        (
            Rule("unknown memory order", OperandError, lambda c: c.order in ("strict", 5)),
            Rule("outside of T.Kernel", NoTraceError, lambda c: c.place == "outside"),
            Rule("previous values of a tile", OperandError, lambda c: _is_tile(c) and c.previous),
            Rule("the value is no number", OperandError, lambda c: c.value in ("none", "text")),
            Rule(
                "different shapes",
                ShapeError,
                lambda c: c.target != "element" and c.value == "short",
            ),
            Rule("bool", DTypeError, lambda c: c.dtype == "bool"),
            Rule(
                "inside T.Parallel", NestingError, lambda c: c.place == "parallel" and _is_tile(c)
            ),
        ),
        _atomic,
    ),
    Contract(
        "atomic_max and atomic_min",
        {
            "op": ("atomic_max", "atomic_min"),
            "dtype": COMMON,
            "target": ("tile", "slice", "element"),
            "value": ("literal", "element", "none", "text", "tile"),
            "order": _ORDERS,
            "previous": (False, True),
            "place": ("block", "serial", "if", "outside"),
        },
        (
            PLACEMENT[1],
            Rule("not an element", OperandError, lambda c: c.target != "element"),
            Rule("bool", DTypeError, lambda c: c.dtype == "bool"),
            Rule(
                "the value is no number",
                OperandError,
                lambda c: c.value in ("none", "text", "tile"),
            ),
            Rule("unknown memory order", OperandError, lambda c: c.order in ("strict", 5)),
        ),
        _atomic,
    ),
)

TILES = (*COPY, *FILL, *REDUCE, *GEMM, *ATOMIC)
