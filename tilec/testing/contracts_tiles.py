"""Contracts of the tile operations. What breaks no rule is legal."""

from __future__ import annotations

from typing import Any

from tilec.diagnostics import (
    DTypeError,
    GemmShapeError,
    NestingError,
    NoTraceError,
    OperandError,
    ShapeError,
)
from tilec.ops import KINDS
from tilec.testing.conformance.checks import COMMON, INTEGERS, Check, Param
from tilec.testing.contracts import Contract, Rule
from tilec.testing.contracts_copies import COPY, FILL
from tilec.testing.contracts_places import (
    PLACEMENT,
    launch,
    tile_of,
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
    source, _, s = tile_of("s", c.scope, c.shape, c.dtype, "A")
    before, after, r = tile_of("r", "fragment", out, c.to, "O")
    words = f"dim={c.dim!r}" + ("" if c.clear or c.kind == "abssum" else ", clear=False")
    words += ", nan_propagate=True" if c.nan and c.kind in ("max", "min", "absmax") else ""
    call = f"T.reduce_{c.kind}({s}, {r}, {words})"
    if c.kind in ("mean", "sum", "bitor") and (c.nan or c.kind == "mean"):
        call = f'T.reduce({s}, {r}, "{c.kind}", {c.dim!r}, {c.clear})'  # the general form
    body = launch([*source, *before], call, after, c.place)
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
        tile_of(name, scope, tuple(shape), dtype, parameter)
        for name, scope, shape, dtype, parameter in (
            ("a", c.left, a, c.dtype, "A"), ("b", c.right, b, c.other, "B"),
            ("c", c.result, out, c.acc, "O"),
        )
    ]  # fmt: skip
    words = f"transpose_A={c.transpose_a}, transpose_B={c.transpose_b}, clear_accum={c.clear}"
    call = f"T.gemm({tiles[0][2]}, {tiles[1][2]}, {tiles[2][2]}, {words})"
    body = launch([line for t in tiles for line in t[0]], call, tiles[2][1], c.place)
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
    body = launch(before, f"T.{c.op}({part}, {_VALUES[c.value]}{words})", [], c.place)
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
