"""Checks of scalar operations: arithmetic, elementary functions, conversions."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.testing.conformance.checks import (
    COMMON,
    DTYPES,
    FLOATS,
    INTEGERS,
    LENGTHS,
    NARROW_FLOATS,
    RARE,
    Check,
    Group,
    Param,
)

ANY_NUMBER = {
    "add": "A[i] + B[i]",
    "sub": "A[i] - B[i]",
    "mul": "A[i] * B[i]",
    "floordiv": "A[i] // B[i]",
    "floormod": "A[i] % B[i]",
    "truncdiv": "T.truncdiv(A[i], B[i])",
    "truncmod": "T.truncmod(A[i], B[i])",
    "min": "T.min(A[i], B[i])",
    "max": "T.max(A[i], B[i])",
    "neg": "-A[i]",
    "abs": "T.abs(A[i])",
    "clamp": "T.clamp(A[i], T.Const(1, D), T.Const(5, D))",
    "if_then_else": "T.if_then_else(A[i] < B[i], A[i], B[i])",
    "select": "A[i] if A[i] >= B[i] else B[i] + A[i]",
    "square": "T.pow(A[i], 2)",
}
INTEGER_ONLY = {
    "bitand": "A[i] & B[i]",
    "bitor": "A[i] | B[i]",
    "bitxor": "A[i] ^ B[i]",
    "bitnot": "~A[i]",
    "shl": "A[i] << S[i]",
    "shr": "A[i] >> S[i]",
    "pow": "T.pow(A[i], S[i])",
}
FLOAT_ONLY = {"div": "A[i] / B[i]", "fma": "T.fma(A[i], B[i], A[i])"}
COMPARISONS = {
    "eq": "A[i] == B[i]",
    "ne": "A[i] != B[i]",
    "lt": "A[i] < B[i]",
    "le": "A[i] <= B[i]",
    "gt": "A[i] > B[i]",
    "ge": "A[i] >= B[i]",
    "and": "A[i] < B[i] and B[i] != A[i] * A[i]",
    "or": "A[i] < B[i] or B[i] == A[i] + A[i]",
    "not": "not A[i] < B[i]",
}
BOOLS = {
    "add": "A[i] + B[i]",
    "sub": "A[i] - B[i]",
    "mul": "A[i] * B[i]",
    "max": "T.max(A[i], B[i])",
    "min": "T.min(A[i], B[i])",
    "bitand": "A[i] & B[i]",
    "bitor": "A[i] | B[i]",
    "bitxor": "A[i] ^ B[i]",
    "bitnot": "~A[i]",
    "and": "A[i] and B[i]",
    "or": "A[i] or B[i]",
    "not": "not A[i]",
    "eq": "A[i] == B[i]",
    "ne": "A[i] != B[i]",
    "if_then_else": "T.if_then_else(A[i], B[i], not B[i])",
}
EXACT_FUNCTIONS = ("floor", "ceil", "trunc", "nearbyint", "round", "sqrt", "copysign", "fmod")
PREDICATES = ("isnan", "isinf", "isfinite")
FUNCTIONS = (
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "log1p",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "erf",
    "sigmoid",
)
FUNCTIONS2 = ("atan2", "hypot")
_RUN_TIME = tuple({"n": n} for n in (0, 1, 61, 128, 1000))


def _elementwise(
    op: str,
    text: str,
    dtype: str,
    length: int | str,
    *,
    result: str | None = None,
    data: str = "edge",
    kind: str = "exact",
) -> Check:
    """``O[i] = text`` over a whole array, with guards where the blocks do not divide it."""
    params = [Param("A", (length,), dtype, data)]
    if "B[" in text:
        params.append(Param("B", (length,), dtype, data))
    if "S[" in text:
        params.append(Param("S", (length,), dtype, "shift"))
    # More elements than are written: the rest must stay.
    many = length + 3 if isinstance(length, int) else length
    params.append(Param("O", (many,), result or dtype, "mark"))
    value = text.replace("D)", f'"{dtype}")')
    body = f"""
with T.Kernel(T.ceildiv({length}, 48), threads=32) as bx:
    for j in T.Parallel(48):
        i = bx * 48 + j
        if i < {length}:
            O[i] = {value}
"""
    sizes = _RUN_TIME if isinstance(length, str) else ({},)
    return Check(op, dtype, tuple(params), body, kind, sizes, f"{text}, length {length}")


def _table(dtype: str) -> Iterator[tuple[str, str, str | None]]:
    """Operations of a dtype: name, text, and the result's dtype where it is another."""
    if dtype == "bool":
        for op, text in BOOLS.items():
            yield op, text, None
        return
    for op, text in ANY_NUMBER.items():
        yield op, text, None
    for op, text in (INTEGER_ONLY if "int" in dtype else FLOAT_ONLY).items():
        yield op, text, None
    for op, text in COMPARISONS.items():
        yield op, text, "bool"


def arithmetic() -> Iterator[Group]:
    """Operators per dtype: with lengths known at compile time, and at run time."""
    for number, dtype in enumerate(DTYPES):
        table = list(_table(dtype))
        fixed = tuple(
            _elementwise(op, text, dtype, LENGTHS[(n * 5 + number) % len(LENGTHS)], result=result)
            for n, (op, text, result) in enumerate(table)
        )
        yield Group(f"arithmetic-{dtype}", "arithmetic", fixed)
        if dtype in RARE:
            continue
        dynamic = tuple(
            _elementwise(op, text, dtype, "n", result=result) for op, text, result in table
        )
        yield Group(f"arithmetic-{dtype}-dynamic", "arithmetic", dynamic)


def functions() -> Iterator[Group]:
    """Elementary functions per float dtype, and of integers, which are computed in float32."""
    for dtype in (*FLOATS, *NARROW_FLOATS):
        checks = []
        for n, name in enumerate((*EXACT_FUNCTIONS, *PREDICATES, *FUNCTIONS, *FUNCTIONS2)):
            two = name in (*FUNCTIONS2, "copysign", "fmod")
            text = f"T.{name}(A[i], B[i])" if two else f"T.{name}(A[i])"
            exact = name in EXACT_FUNCTIONS or name in PREDICATES
            checks.append(
                _elementwise(
                    name,
                    text,
                    dtype,
                    LENGTHS[(n * 7) % len(LENGTHS)] + 40,
                    result="bool" if name in PREDICATES else None,
                    data="real",
                    kind="exact" if exact else "math",
                )
            )
        yield Group(f"functions-{dtype}", "functions", tuple(checks))
    for dtype in ("int32", "uint8", "int64"):
        ints = tuple(
            _elementwise(
                name, f"T.{name}(A[i])", dtype, 37, result="float32", data="small", kind="math"
            )
            for name in (*FUNCTIONS, "sqrt")
        )
        yield Group(f"functions-{dtype}", "functions", ints)


def casts() -> Iterator[Group]:
    """Every dtype to every dtype, by `T.cast` and by storing."""
    for number, dtype in enumerate(COMMON):
        checks = []
        for n, to in enumerate(COMMON):
            length = LENGTHS[(n * 5 + number * 3) % len(LENGTHS)]
            text = f'T.cast(A[i], "{to}")' if n % 2 else "A[i]"
            checks.append(_elementwise("cast", text, dtype, length + 9, result=to))
        yield Group(f"cast-{dtype}", "cast", tuple(checks))
    for dtype in RARE:
        checks = []
        for n, other in enumerate(("float32", "int32", "float16", *RARE)):
            length = LENGTHS[(n * 3) % len(LENGTHS)]
            checks.append(_elementwise("cast", "A[i]", dtype, length, result=other))
            if other not in RARE:
                text = f'T.cast(T.cast(A[i], "{dtype}"), "{other}")'
                checks.append(_elementwise("cast", text, other, length))
        yield Group(f"cast-{dtype}", "cast", tuple(checks))


def scalars() -> Iterator[Group]:
    """Scalar parameters, mutable variables, lets and constants."""
    for dtype in COMMON:
        step = "x = not x" if dtype == "bool" else "x += T.cast(A[i], D) * 2\n        y = x - P"
        body = f"""
with T.Kernel(3, threads=32) as bx:
    x = T.alloc_var(D, init=P)
    y = T.alloc_var(D, init=T.Const(1, D))
    first = T.let(A[bx])
    for i in T.serial(bx, 7):
        {step}
    O[bx, 0] = x
    O[bx, 1] = y
    O[bx, 2] = first
    O[bx, 3] = P
""".replace("D)", f'"{dtype}")').replace("D,", f'"{dtype}",')
        params = (
            Param("A", (7,), dtype),
            Param("P", None, dtype),
            Param("O", (3, 5), dtype, "mark"),
        )
        yield Group(f"scalars-{dtype}", "scalars", (Check("scalars", dtype, params, body),))


def bits() -> Iterator[Group]:
    """Reinterpretation between types of one width."""
    widths = {
        8: ("int8", "uint8"),
        16: ("int16", "uint16", "float16", "bfloat16"),
        32: ("int32", "uint32", "float32"),
        64: ("int64", "uint64", "float64"),
    }
    checks = [
        _elementwise(
            "reinterpret", f'T.reinterpret(A[i], "{to}")', dtype, 67, result=to, data="small"
        )
        for kinds in widths.values()
        for dtype in kinds
        for to in kinds
        if dtype != to
    ]
    yield Group("reinterpret", "reinterpret", tuple(checks))
    assert set(INTEGERS) <= {k for kinds in widths.values() for k in kinds}
