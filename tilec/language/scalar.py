"""Scalar functions: arithmetic, conversions, elementary functions."""

from __future__ import annotations

import math
from typing import Any

from tilec import ir
from tilec.diagnostics import DTypeError, OperandError
from tilec.ir import BinOp

_FLOAT32 = ir.DType("float32")


def _number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _binary(op: BinOp, a: Any, b: Any) -> Any:
    if _number(a) and _number(b):
        from tilec.ir.expr import fold_python

        return fold_python(op, a, b)
    return ir.binary(op, a, b)


def ceildiv(lhs: Any, rhs: Any) -> Any:
    """``ceil(lhs / rhs)`` of integers; Python ints give an int."""
    if isinstance(lhs, int) and isinstance(rhs, int):
        return -(-lhs // rhs)
    if isinstance(rhs, int) and rhs > 0:
        return (lhs + (rhs - 1)) // rhs
    return -((-ir.as_expr(lhs)) // rhs)


cdiv = ceildiv


def align_up(x: Any, y: Any) -> Any:
    """The smallest multiple of `y` that is at least `x`."""
    return ceildiv(x, y) * y


def max(a: Any, b: Any) -> Any:  # noqa: A001
    """The larger of two values, promoted to one type; a NaN operand is ignored."""
    return _binary(BinOp.MAX, a, b)


def min(a: Any, b: Any) -> Any:  # noqa: A001
    """The smaller of two values, promoted to one type; a NaN operand is ignored."""
    return _binary(BinOp.MIN, a, b)


def floordiv(a: Any, b: Any) -> Any:
    """Division rounded toward minus infinity (``//``)."""
    return _binary(BinOp.FLOORDIV, a, b)


def floormod(a: Any, b: Any) -> Any:
    """The remainder of floor division (``%``): it has the sign of `b`."""
    return _binary(BinOp.FLOORMOD, a, b)


def truncdiv(a: Any, b: Any) -> Any:
    """Integer division rounded toward zero, as in C."""
    return _binary(BinOp.TRUNCDIV, a, b)


def truncmod(a: Any, b: Any) -> Any:
    """The remainder of truncating division: it has the sign of `a`, as in C."""
    return _binary(BinOp.TRUNCMOD, a, b)


def pow(x: Any, y: Any) -> Any:  # noqa: A001
    """``x`` to the power `y`; a small non-negative int exponent is repeated multiplication."""
    if _number(x) and _number(y):
        return x**y
    base = ir.as_expr(x)
    if isinstance(y, int) and not isinstance(y, bool):
        if 0 <= y <= 8:
            result: ir.Expr = ir.literal(1, base.dtype)
            for n in range(y):
                result = base if n == 0 else result * base
            return result
        if base.dtype.is_integer and y < 0:
            raise DTypeError("T.pow of an integer to a negative power", span=ir.caller_span())
    return ir.binary(BinOp.POW, x, y)


def if_then_else(cond: Any, t: Any, f: Any) -> Any:
    """``t if cond else f``: only the chosen side is evaluated; the sides are promoted."""
    if _number(cond):
        return t if cond else f
    return ir.select(cond, t, f)


def Select(condition: Any, true_value: Any, false_value: Any) -> Any:  # noqa: N802
    """Like `if_then_else`, for operands of one dtype.

    Raises:
        DTypeError: the operands have different dtypes.
    """
    x, y = ir.as_expr(true_value), ir.as_expr(false_value)
    if x.dtype != y.dtype and not (_number(true_value) or _number(false_value)):
        raise DTypeError(
            f"T.Select of {x.dtype!s} and {y.dtype!s}",
            span=ir.caller_span(),
            hint="T.if_then_else promotes its operands",
        )
    return ir.select(condition, true_value, false_value)


def clamp(x: Any, low: Any, high: Any) -> Any:
    """``min(max(x, low), high)``, promoted to one type; NaN in `x` is kept."""
    value, lo = ir.match_types(x, low)
    value, hi = ir.match_types(value, high)
    lo = ir.cast(lo, value.dtype)
    inner = ir.binary(BinOp.MIN, ir.binary(BinOp.MAX, value, lo), hi)
    if value.dtype.is_float:
        return ir.select(ir.binary(BinOp.NE, value, value), value, inner)
    return inner


def cast(value: Any, dtype: Any, round: str = "", sat: bool = True, rbits: Any = None) -> Any:  # noqa: A002
    """`value` converted to `dtype`: C rules; bool from a number is ``x != 0``.

    Raises:
        OperandError: a rounding mode other than the default.
    """
    del sat
    if round not in ("", "rn") or rbits is not None:
        raise OperandError(f"T.cast: rounding mode {round!r}", span=ir.caller_span())
    target = ir.DType.of(dtype)
    if isinstance(value, int) and target.is_integer:
        low, high = target.int_range
        if not low <= value <= high:  # wraps around, as it does at run time
            return ir.Cast(target, ir.as_expr(value), span=ir.caller_span())
    return ir.cast(value, target)


def Cast(dtype: Any, value: Any) -> Any:  # noqa: N802
    """`cast` with its arguments swapped."""
    return ir.cast(value, dtype)


def Const(value: Any, dtype: Any) -> Any:  # noqa: N802
    """A constant of a given dtype."""
    return ir.literal(value, ir.DType.of(dtype))


def reinterpret(value: Any, dtype: Any) -> Any:
    """The bits of `value` as another dtype of the same width.

    Raises:
        DTypeError: the widths differ.
    """
    x, target = ir.as_expr(value), ir.DType.of(dtype)
    if x.dtype.bits * x.dtype.lanes != target.bits * target.lanes:
        raise DTypeError(
            f"T.reinterpret from {x.dtype!s} to {target!s}: the widths differ",
            span=ir.caller_span(),
        )
    return ir.Call("reinterpret", (x,), target, span=ir.caller_span())


def infinity(dtype: Any) -> ir.Const:
    """Positive infinity of a float dtype."""
    kind = ir.DType.of(dtype)
    if not kind.is_float:
        raise DTypeError(f"{kind!s} has no infinity", span=ir.caller_span())
    return ir.Const(math.inf, kind, span=ir.caller_span())


def let(value: Any) -> Any:
    """Bind a value to the name it is assigned to, even a constant or variable."""
    from tilec.language.builder import builder

    return builder("T.let").bind("x", ir.as_expr(value))


def evaluate(value: Any) -> None:
    """Evaluate an expression for its effect."""
    from tilec.language.builder import builder

    builder("T.evaluate").emit(ir.Evaluate(ir.as_expr(value), span=ir.caller_span()))


def _call(name: str, *args: Any) -> Any:
    """An intrinsic with its argument rules (`ir.INTRINSICS`)."""
    info = ir.INTRINSICS[name]
    values: list[ir.Expr] = [ir.as_expr(a) for a in args]
    if len(values) > 1:
        dtype = values[0].dtype
        for value in values[1:]:
            dtype = ir.promote(dtype, value.dtype)
        values = [ir.cast(a if _number(a) else v, dtype) for a, v in zip(args, values, strict=True)]
    dtype = values[0].dtype
    if info.kind == "float" and not dtype.is_float:
        values = [ir.cast(v, _FLOAT32) for v in values]
        dtype = _FLOAT32
    if info.kind == "same" and name != "abs" and not dtype.is_float:
        return values[0]  # rounding an integer is the identity
    if name == "abs" and (dtype.is_uint or dtype.is_bool):
        return values[0]
    if info.kind == "bool":
        dtype = ir.DType("bool")
    return ir.Call(name, tuple(values), dtype, span=ir.caller_span())


def _unary(name: str, text: str) -> Any:
    def function(x: Any) -> Any:
        return _call(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}, in the argument's dtype (integers are converted to float32)."
    return function


exp = _unary("exp", "The exponential function")
exp2 = _unary("exp2", "Two to the power of x")
exp10 = _unary("exp10", "Ten to the power of x")
log = _unary("log", "The natural logarithm")
log2 = _unary("log2", "The base-2 logarithm")
log10 = _unary("log10", "The base-10 logarithm")
log1p = _unary("log1p", "log(1 + x)")
sqrt = _unary("sqrt", "The square root")
rsqrt = _unary("rsqrt", "1 / sqrt(x)")
sin = _unary("sin", "The sine")
cos = _unary("cos", "The cosine")
tan = _unary("tan", "The tangent")
sinh = _unary("sinh", "The hyperbolic sine")
cosh = _unary("cosh", "The hyperbolic cosine")
tanh = _unary("tanh", "The hyperbolic tangent")
asin = _unary("asin", "The inverse sine")
acos = _unary("acos", "The inverse cosine")
atan = _unary("atan", "The inverse tangent")
erf = _unary("erf", "The error function")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")


def floor(x: Any) -> Any:
    """Round toward minus infinity, in the same dtype."""
    return _call("floor", x)


def ceil(x: Any) -> Any:
    """Round toward plus infinity, in the same dtype."""
    return _call("ceil", x)


def trunc(x: Any) -> Any:
    """Round toward zero, in the same dtype."""
    return _call("trunc", x)


def nearbyint(x: Any) -> Any:
    """Round to the nearest integer, ties to even, in the same dtype."""
    return _call("nearbyint", x)


def round(x: Any, rounding_mode: str = "ties-to-even") -> Any:  # noqa: A001
    """Round to the nearest integer, ties to even or away from zero, in the same dtype."""
    if rounding_mode == "ties-to-even":
        return _call("nearbyint", x)
    if rounding_mode == "ties-away-from-zero":
        return _call("round", x)
    raise OperandError(f"T.round: rounding_mode {rounding_mode!r}", span=ir.caller_span(),
                       hint="'ties-to-even' or 'ties-away-from-zero'")  # fmt: skip


def abs(x: Any) -> Any:  # noqa: A001
    """The absolute value, in the same dtype."""
    return _call("abs", x)


def isnan(x: Any) -> Any:
    """Whether `x` is NaN."""
    return _call("isnan", x)


def isinf(x: Any) -> Any:
    """Whether `x` is infinite."""
    return _call("isinf", x)


def isfinite(x: Any) -> Any:
    """Whether `x` is neither infinite nor NaN."""
    return _call("isfinite", x)


def fma(x: Any, y: Any, z: Any) -> Any:
    """``x * y + z`` with one rounding."""
    return _call("fma", x, y, z)


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y)."""
    return _call("atan2", y, x)


def hypot(x: Any, y: Any) -> Any:
    """``sqrt(x * x + y * y)`` without overflow."""
    return _call("hypot", x, y)


def copysign(x: Any, y: Any) -> Any:
    """The magnitude of `x` with the sign of `y`."""
    return _call("copysign", x, y)


def fmod(x: Any, y: Any) -> Any:
    """The remainder of truncating float division."""
    return _call("fmod", x, y)
