"""Contracts of scalar operations: operators on pairs of dtypes, functions, conversions, loops."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.diagnostics import (
    AmbiguousDivisionError,
    DTypeError,
    IndexCountError,
    LiteralRangeError,
    OperandError,
    OutOfBoundsError,
    ShapeError,
)
from tilec.testing.conformance.checks import COMMON, FLOATS, INTEGERS, Check, Param
from tilec.testing.contracts import HERE, Contract, Rule


def promoted(a: str, b: str) -> str:
    """The dtype of an operation on two dtypes, said independently of the compiler.

    A float beats an integer, a wider type a narrower one, an unsigned integer a signed one of its
    width, float16 beats bfloat16; bool is the narrowest of all.
    """

    def rank(dtype: str) -> tuple[int, int, int]:
        kind = 0 if dtype == "bool" else 2 if "float" in dtype else 1
        bits = 0 if dtype == "bool" else int("".join(ch for ch in dtype if ch.isdigit()))
        return kind, bits, int(dtype.startswith("uint") or dtype == "float16")

    return max(a, b, key=rank)


def _launch(text: str, before: str = "") -> str:
    lines = [f"    {before}"] if before else []
    return "\n".join(["with T.Kernel(1, threads=32) as bx:", *lines, *_loop(text)])


def _loop(text: str) -> list[str]:
    return ["    for i in T.serial(24):", f"        O[i] = {text}  {HERE}"]


# operators

_SYMBOLS = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "<", "==", "!=", ">=")
_BITS = ("&", "|", "^")
_SHIFTS = ("<<", ">>")
_COMPARE = ("<", "==", "!=", ">=")


def _operator(c: Any) -> Check:
    result = "bool" if c.op in _COMPARE else promoted(c.left, c.right)
    params = (
        Param("A", (24,), c.left, "edge"),
        Param("B", (24,), c.right, "edge"),
        Param("O", (24,), result),
    )
    # The result is not converted by the store: its dtype has to be this one already.
    return Check(c.op, c.left, params, _launch(f"A[i] {c.op} B[i]"))


OPERATORS = Contract(
    "operators",
    {"op": _SYMBOLS, "left": COMMON, "right": COMMON},
    (
        Rule(
            "/ of integers",
            AmbiguousDivisionError,
            lambda c: c.op == "/" and "float" not in c.left + c.right,
        ),
        Rule("bits of floats", DTypeError, lambda c: c.op in _BITS and "float" in c.left + c.right),
        Rule(
            "shift of floats", DTypeError, lambda c: c.op in _SHIFTS and "float" in c.left + c.right
        ),
    ),
    _operator,
)

_LITERALS = {"0": 0, "1": 1, "-1": -1, "127": 127, "200": 200, "300": 300, "-129": -129,
             "70000": 70000, "2**31": 2**31, "2**40": 2**40, "2**63": 2**63, "2**64": 2**64,
             "-2**63 - 1": -(2**63) - 1}  # fmt: skip


def _fits(value: int, dtype: str) -> bool:
    low, high = ir.DType(dtype).int_range
    return low <= value <= high


def _literal(c: Any) -> Check:
    text = {"operand": f"A[i] + ({c.value})", "Const": f'T.Const({c.value}, "{c.dtype}")',
            "store": c.value, "cast": f'T.cast({c.value}, "{c.dtype}")'}[c.form]  # fmt: skip
    wide = c.form == "operand" and c.dtype == "int32" and not _fits(_LITERALS[c.value], "int32")
    params = (Param("A", (24,), c.dtype), Param("O", (24,), "int64" if wide else c.dtype))
    return Check("literal", c.dtype, params, _launch(text))


LITERALS = Contract(
    "literals",
    {
        "value": tuple(_LITERALS),
        "dtype": (*INTEGERS, *FLOATS),
        "form": ("operand", "Const", "store", "cast"),
    },
    (
        Rule(
            "the literal does not fit",
            LiteralRangeError,
            lambda c: (
                c.dtype in INTEGERS
                and not _fits(_LITERALS[c.value], c.dtype)
                # A conversion wraps around; next to an int32 a large literal makes it an int64.
                and not (
                    (c.form == "cast" or (c.form == "operand" and c.dtype == "int32"))
                    and _fits(_LITERALS[c.value], "int64")
                )
            ),
        ),
    ),
    _literal,
)

# functions

_CALLS = {
    "select": "T.Select(A[i] != B[i], A[i], B[i])",
    "if_then_else": "T.if_then_else(A[i] != B[i], A[i], B[i])",
    "max": "T.max(A[i], B[i])",
    "clamp": "T.clamp(A[i], B[i], A[i])",
    "reinterpret": "T.reinterpret(A[i], RIGHT)",
    "infinity": "T.infinity(LEFT)",
    "pow of a negative": "T.pow(A[i], -2)",
    "pow of a cube": "T.pow(A[i], 3)",
    "pow of a real": "T.pow(T.abs(A[i]), 1.5)",
    "bitnot": "~A[i]",
    "exp": "T.exp(A[i])",
    "floor": "T.floor(A[i])",
    "abs": "T.abs(A[i])",
    "isnan": "T.isnan(A[i])",
    "fma": "T.fma(A[i], B[i], A[i])",
    "cast": "T.cast(A[i], RIGHT)",
    "Cast": "T.Cast(RIGHT, A[i])",
    "cast mode": 'T.cast(A[i], RIGHT, round="rz")',
    "round away": 'T.round(A[i], "ties-away-from-zero")',
    "round mode": 'T.round(A[i], "up")',
}


def _result(c: Any) -> str:
    both = promoted(c.left, c.right)
    floats = c.left if c.left in FLOATS else "float32"
    results: dict[str, str] = {
        "select": both,
        "if_then_else": both,
        "max": both,
        "clamp": both,
        "reinterpret": c.right,
        "pow of a real": promoted(c.left, "float32"),
        "pow of a negative": "int32" if c.left == "bool" else c.left,  # like bool + 1
        "exp": floats,
        "isnan": "bool",
        "fma": both if both in FLOATS else "float32",
        "cast": c.right,
        "Cast": c.right,
        "cast mode": c.right,
    }
    left: str = c.left
    return results.get(c.call, left)


def _function(c: Any) -> Check:
    text = _CALLS[c.call].replace("LEFT", repr(c.left)).replace("RIGHT", repr(c.right))
    params = (
        Param("A", (24,), c.left, "small"),
        Param("B", (24,), c.right, "small"),
        Param("O", (24,), _result(c)),
    )
    kind = "math" if c.call in ("exp", "pow of a real", "pow of a negative") else "exact"
    return Check(c.call, c.left, params, _launch(text), kind)


FUNCTIONS = Contract(
    "functions",
    {"call": tuple(_CALLS), "left": COMMON, "right": COMMON},
    (
        Rule(
            "select of two dtypes", DTypeError, lambda c: c.call == "select" and c.left != c.right
        ),
        Rule(
            "reinterpretation of another width",
            DTypeError,
            lambda c: c.call == "reinterpret" and ir.DType(c.left).bits != ir.DType(c.right).bits,
        ),
        Rule(
            "infinity of integers",
            DTypeError,
            lambda c: c.call == "infinity" and c.left not in FLOATS,
        ),
        Rule(
            "negative power of integers",
            DTypeError,
            lambda c: c.call == "pow of a negative" and c.left in INTEGERS,
        ),
        Rule("bits of floats", DTypeError, lambda c: c.call == "bitnot" and c.left in FLOATS),
        Rule("rounding mode", OperandError, lambda c: c.call in ("cast mode", "round mode")),
    ),
    _function,
)

# functions of one and two numbers, by what they give

_REAL = ("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos",
         "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf", "sigmoid")  # fmt: skip
_REAL2 = ("atan2", "hypot", "copysign", "fmod")
_WHOLE = ("floor", "ceil", "trunc", "nearbyint", "round")
_ASKED = ("isnan", "isinf", "isfinite")
_SAME2 = ("min", "max", "floordiv", "floormod", "truncdiv", "truncmod", "ceildiv")
_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod", "ceildiv")


def _named(c: Any) -> Check:
    two = c.name in (*_REAL2, *_SAME2)
    text = f"T.{c.name}(A[i], B[i])" if two else f"T.{c.name}(A[i])"
    result = c.dtype
    if c.name in (*_REAL, *_REAL2):
        result = c.dtype if c.dtype in FLOATS else "float32"
    elif c.name in _ASKED:
        result = "bool"
    kind = "math" if c.name in (*_REAL, "atan2", "hypot") else "exact"
    data = "unit" if c.dtype in FLOATS else "small"
    params = (
        Param("A", (24,), c.dtype, data),
        Param("B", (24,), c.dtype, data),
        Param("O", (24,), result),
    )
    return Check(c.name, c.dtype, params, _launch(text), kind)


NAMED = Contract(
    "functions by name",
    {"name": (*_REAL, *_REAL2, *_WHOLE, *_ASKED, *_SAME2), "dtype": COMMON},
    (),
    _named,
)

# elements

_INDICES = {
    "zero": "0", "last": "23", "end": "-1", "first from the end": "-24", "loop": "i",
    "computed": "(i * 7 + 3) % 24", "narrow": 'T.cast(i, "int8")', "wide": 'T.cast(i, "int64")',
    "unsigned": 'T.cast(i, "uint32")', "beyond": "24", "before": "-25", "far": "2**40",
    "real": "1.0", "run-time real": 'T.cast(i, "float32")', "two": "i, 0", "none": "None",
    "text": '"0"', "strided slice": "0:24:2",
}  # fmt: skip


def _element(c: Any) -> Check:
    index = _INDICES[c.index]
    tile = "s"
    before = 's = T.alloc_shared((24,), "int32")\n    T.copy(A, s)'
    if c.scope == "global":
        tile, before = "A", ""
    text = f"{tile}[{index}]" if c.access == "read" else "1"
    body = _launch(text, before)
    if c.access == "write":
        body = body.replace("O[i] = 1", f"{tile}[{index}] = 5") + f"\n    T.copy({tile}, O)"
    return Check("element", "int32", (Param("A", (24,), "int32"), Param("O", (24,), "int32")), body)


ELEMENTS = Contract(
    "elements",
    {"index": tuple(_INDICES), "scope": ("global", "shared"), "access": ("read", "write")},
    (
        Rule("outside", OutOfBoundsError, lambda c: c.index in ("beyond", "before", "far")),
        Rule(
            "the index is no integer",
            OperandError,
            lambda c: c.index in ("real", "run-time real", "none", "text"),
        ),
        Rule("too many indices", IndexCountError, lambda c: c.index == "two"),
        Rule("a slice with a step", OperandError, lambda c: c.index == "strided slice"),
    ),
    _element,
)

# loops

_LOOPS = {
    "serial": "T.serial({})", "range": "range({})", "unroll": "T.unroll({})",
    "pipelined": "T.Pipelined({})", "stages": "T.Pipelined({}, num_stages=3)",
    "vectorized": "T.vectorized({})", "parallel": "T.Parallel({})",
    "negative stages": "T.Pipelined({}, num_stages=-1)",
    "real stages": "T.Pipelined({}, num_stages=2.0)",
    "order alone": "T.Pipelined({}, order=[0])",
}  # fmt: skip
_BOUNDS = {"zero": "0", "some": "7", "expression": "bx + 3", "wide": 'T.cast(bx + 3, "int64")',
           "real": "2.5", "run-time real": 'T.cast(bx, "float32")', "text": '"3"',
           "none": "None"}  # fmt: skip


def _for(c: Any) -> Check:
    loop = _LOOPS[c.loop].format(_BOUNDS[c.bound])
    body = f"with T.Kernel(1, threads=32) as bx:\n    for i in {loop}:  {HERE}\n        O[i] = A[i]"
    return Check("loop", "int32", (Param("A", (24,), "int32"), Param("O", (24,), "int32")), body)


LOOPS = Contract(
    "loops",
    {"loop": tuple(_LOOPS), "bound": tuple(_BOUNDS)},
    (
        Rule(
            "the bound is no integer",
            OperandError,
            lambda c: c.bound in ("real", "run-time real", "text", "none"),
        ),
        Rule(
            "the stage count", OperandError, lambda c: c.loop in ("negative stages", "real stages")
        ),
        Rule("order without stage", OperandError, lambda c: c.loop == "order alone"),
    ),
    _for,
)

# allocation

_SHAPES = {"vector": "(8,)", "matrix": "(4, 8)", "int": "8", "list": "[4, 8]", "empty": "(0,)",
           "negative": "(-1,)", "run-time": "(bx + 1,)", "real": "(2.0,)",
           "text": '"8"'}  # fmt: skip
_NAMES = {"known": '"float16"', "alias": '"half"', "python": "float", "T": "T.int8",
          "unknown": '"float17"', "number": "16"}  # fmt: skip


def _allocation(c: Any) -> Check:
    body = f"""with T.Kernel(1, threads=32) as bx:
    s = T.alloc_{c.scope}({_SHAPES[c.shape]}, {_NAMES[c.dtype]})  {HERE}
    T.clear(s)
    O[0] = 3"""
    return Check("alloc", "int32", (Param("O", (2,), "int32"),), body)


ALLOCATION = Contract(
    "allocation",
    {"scope": ("shared", "fragment", "local"), "shape": tuple(_SHAPES), "dtype": tuple(_NAMES)},
    (
        Rule(
            "the shape",
            ShapeError,
            lambda c: c.shape in ("negative", "run-time", "real", "text"),
        ),
        Rule("the dtype", DTypeError, lambda c: c.dtype in ("unknown", "number")),
    ),
    _allocation,
)

SCALARS = (OPERATORS, LITERALS, FUNCTIONS, NAMED, ELEMENTS, LOOPS, ALLOCATION)
