"""What intrinsic calls mean (see `tilec.arith.semantics` for the rest).

Transcendental functions are computed in float64 and rounded once to the result type, so a folded
constant is the correctly rounded value and a run-time result may differ from it by an ulp.
``round`` goes to the nearest integer, ties away from zero; ``nearbyint`` ties to even.
``clamp(x, lo, hi)`` is ``min(max(x, lo), hi)``, so a NaN gives `lo`. ``fma`` rounds once.
``reinterpret`` needs the type of its argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilec.arith.formats import round_to, value_dtype
from tilec.arith.semantics import (
    _binary_array,
    _item,
    _operand,
    evaluate_binary,
    evaluate_unary,
)
from tilec.diagnostics import DTypeError, InternalError
from tilec.ir.dtype import DType
from tilec.ir.operators import BinOp, UnOp

_erf = np.frompyfunc(math.erf, 1, 1)


def _round_away(x: Any) -> Any:
    whole = np.trunc(x)
    return np.copysign(whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0), x)


_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(10.0, x), "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": lambda x: np.asarray(_erf(x)).astype(np.float64),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "nearbyint": np.rint,
    "round": _round_away, "abs": np.abs,
}  # fmt: skip
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmod": np.fmod,
}  # fmt: skip
_PREDICATE: dict[str, Callable[[Any], Any]] = {
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}  # fmt: skip
_INTEGER_TOO = frozenset({"floor", "ceil", "trunc", "nearbyint", "round"})

FOLDABLE = frozenset({*_UNARY, *_BINARY, *_PREDICATE, "fma", "clamp", "reinterpret"})


def evaluate_call(
    name: str, args: Sequence[Any], dtype: DType, arg_dtype: DType | None = None
) -> Any:
    """The value of a pure intrinsic.

    Args:
        name: one of `FOLDABLE`.
        args: Python numbers or arrays of type `arg_dtype`.
        dtype: type of the result.
        arg_dtype: type of the arguments where it differs (predicates, ``reinterpret``).

    Raises:
        DTypeError: a function of floats on integers.
        InternalError: `name` has no meaning here.
    """
    if name not in FOLDABLE:
        raise InternalError(f"intrinsic {name!r} has no scalar semantics")
    source = (arg_dtype or dtype).scalar
    is_array = any(isinstance(a, np.ndarray) for a in args)
    operands = [_operand(a, source) for a in args]
    with np.errstate(all="ignore"):
        result = _evaluate(name, operands, dtype.scalar, source)
    return result if is_array else _item(result)


def _evaluate(name: str, args: list[Any], dtype: DType, source: DType) -> Any:
    if name == "reinterpret":
        return _reinterpret(args[0], source, dtype)
    if name == "clamp":
        return _binary_array(
            BinOp.MIN, _binary_array(BinOp.MAX, args[0], args[1], source), args[2], source
        )
    if not source.is_float:
        return _integer(name, args[0], source)
    if name in _PREDICATE:
        return np.asarray(_PREDICATE[name](args[0]))
    wide = [a.astype(np.float64) for a in args]
    if name == "fma":
        return _fma(wide, dtype)
    fn: Callable[..., Any] = _UNARY[name] if len(wide) == 1 else _BINARY[name]
    return round_to(fn(*wide), dtype)


def _integer(name: str, value: Any, dtype: DType) -> Any:
    if name == "abs":
        negated = evaluate_unary(UnOp.NEG, np.atleast_1d(value), dtype).reshape(value.shape)
        return np.where(value < 0, negated, value)
    if name in _INTEGER_TOO:
        return value
    if name in _PREDICATE:
        return np.full(value.shape, name == "isfinite")
    raise DTypeError(f"{name} needs a float argument, got {dtype!s}")


def _reinterpret(value: Any, source: DType, target: DType) -> Any:
    """The same bits as another type of equal width."""
    if source.bits != target.bits:
        raise DTypeError(f"reinterpret of {source!s} as {target!s}: the widths differ")
    bits = np.ascontiguousarray(_to_storage(value, source)).view(f"u{source.bytes}")
    return _from_storage(bits.reshape(value.shape), target)


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of one stored element; narrow floats need the ``ml_dtypes`` package.

    Raises:
        DTypeError: the type is not NumPy's own and ``ml_dtypes`` is not installed.
    """
    scalar = dtype.scalar
    if scalar.code in ("bool", "int", "uint", "float", "tfloat"):
        return value_dtype(scalar)
    try:
        import ml_dtypes  # noqa: PLC0415  # optional, and only narrow floats need it
    except ImportError:
        raise DTypeError(
            f"arrays of {scalar!s} need the package ml_dtypes", hint="pip install ml_dtypes"
        ) from None
    name = "float8_e4m3fn" if scalar == "float8_e4m3" else str(scalar)
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def _to_storage(value: Any, dtype: DType) -> Any:
    if dtype.code == "bfloat":
        return (np.ascontiguousarray(value).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.asarray(value).astype(storage_dtype(dtype))


def _from_storage(bits: Any, dtype: DType) -> Any:
    if dtype.code == "bfloat":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype.is_bool:
        return bits != 0
    return bits.view(storage_dtype(dtype)).astype(value_dtype(dtype))


def _fma(args: list[Any], dtype: DType) -> Any:
    """``a * b + c`` rounded once."""
    a, b, c = np.broadcast_arrays(*args)
    if dtype.bits > 32:
        return np.array(
            [_exact_fma(*map(float, t)) for t in zip(a.flat, b.flat, c.flat, strict=True)]
        ).reshape(a.shape)
    # The product of two such values is exact in float64. Rounding the sum to odd there makes the
    # final rounding to the narrow type correct.
    product = a * b
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0)
    bits = np.ascontiguousarray(total).view(np.int64).reshape(total.shape)
    even = (bits & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return round_to(np.where(inexact & even, np.nextafter(total, toward), total), dtype)


def _exact_fma(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    from fractions import Fraction  # noqa: PLC0415  # slow to import, rarely needed

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def evaluate_fma(a: Any, b: Any, c: Any, dtype: DType) -> Any:
    """``a * b + c``: rounded once for floats, wrapping for integers."""
    if dtype.is_float:
        return evaluate_call("fma", (a, b, c), dtype)
    return evaluate_binary(BinOp.ADD, evaluate_binary(BinOp.MUL, a, b, dtype), c, dtype)
