"""What scalar operations mean: the one definition for folding, interpretation and printing.

Every function takes Python numbers or NumPy arrays (elementwise, broadcasting) and gives the same
kind back. Array results are in `formats.value_dtype`; so are array operands of narrow types,
though ``ml_dtypes`` arrays are accepted too. Nothing here raises for a value.

Integers
    wrap around at their own width after every operation. ``floordiv``/``floormod`` follow Python,
    ``truncdiv``/``truncmod`` follow C; the most negative number divided by -1 wraps to itself; a
    zero divisor gives 0 for all four. A shift count outside ``[0, bits)`` shifts everything out: 0,
    or -1 for a right shift of a negative number. ``pow`` wraps; a negative exponent gives the exact
    power truncated toward zero (0 for base 0). bool arithmetic is int32 arithmetic followed by
    ``!= 0``.
Floats
    round once per operation to their own type (types below float32 compute in float32 first,
    which is the same for ``+ - * /``). ``floordiv``/``floormod`` follow NumPy (Python's meaning,
    and inf or NaN for a zero divisor); ``truncdiv`` is ``trunc(a / b)`` and ``truncmod`` is C's
    ``fmod``.
    ``max(a, b)`` is ``a if a > b or isnan(b) else b`` and ``min`` likewise: a NaN operand is
    ignored, and of two equal operands (also 0.0 and -0.0) the second is taken.
Casts
    int to int wraps. Number to bool is ``x != 0`` (so NaN is true). Number to float rounds once, to
    nearest even; see `tilec.arith.formats` for overflow. Float to int truncates toward zero; what
    does not fit, and NaN, gives what NumPy gives on x86-64: the minimum for int32 and int64; the
    low bits of the int32 result for narrower types; the low bits of the int64 result for uint32
    and for negative numbers to uint64; ``2**63`` otherwise for uint64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.arith.formats import round_to, value_dtype
from tilec.ir.dtype import BOOL, INT32, DType
from tilec.ir.expr import Const
from tilec.ir.operators import COMPARISONS, LOGICAL, BinOp, UnOp

__all__ = [
    "canonical_const",
    "evaluate_binary",
    "evaluate_cast",
    "evaluate_unary",
    "round_value",
    "wrap_int",
]

Number = int | float | bool


def wrap_int(value: int, dtype: DType) -> int:
    """A Python int reduced to the range of an integer dtype, modulo ``2**bits``."""
    low, high = dtype.int_range
    if low <= value <= high:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > high else value


def round_value(value: Number, dtype: DType) -> Number:
    """A Python number as a value of `dtype`: integers wrap, floats round, bool is ``!= 0``."""
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float:
        if isinstance(value, int):
            value = _int_to_float(value)
        with np.errstate(all="ignore"):
            return float(round_to(value, dtype))
    if isinstance(value, float):
        return _float_to_int(value, dtype)
    return wrap_int(int(value), dtype)


def _int_to_float(value: int) -> Any:
    """A Python int for rounding once: NumPy converts 64-bit integers to any float type itself."""
    if -(2**63) <= value < 2**63:
        return np.int64(value)
    if 0 <= value < 2**64:
        return np.uint64(value)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _float_to_int(value: float, dtype: DType) -> int:
    bits = 64 if dtype.bits > 32 or (dtype.is_uint and dtype.bits == 32) else 32
    bound = 1 << (bits - 1)
    if value != value or value in (math.inf, -math.inf):
        return wrap_int(bound, dtype)
    whole = int(value)
    if dtype.is_uint and bits == dtype.bits and bound <= whole < 2 * bound:
        return whole
    return wrap_int(whole if -bound <= whole < bound else bound, dtype)


def canonical_const(const: Const) -> Const:
    """The constant with its value rounded to its dtype (the same object if it already is)."""
    dtype = const.dtype.scalar
    old = const.value
    new = round_value(old, dtype)
    if type(new) is type(old) and (new == old or new != new) and (new != 0 or str(new) == str(old)):
        return const
    return const.replace(value=new)


# Binary


def evaluate_binary(op: BinOp | str, a: Any, b: Any, dtype: DType) -> Any:
    """``a op b`` for operands of type `dtype` (bool for comparisons and logical operators)."""
    scalar = dtype.scalar
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        if not scalar.is_float:
            return _int_scalar(BinOp(op), int(a), int(b), scalar)
        return _item(_binary_array(BinOp(op), _operand(a, scalar), _operand(b, scalar), scalar))
    return _binary_array(BinOp(op), _operand(a, scalar), _operand(b, scalar), scalar)


def _operand(value: Any, dtype: DType) -> Any:
    """An operand as an array in the value dtype of its type."""
    if isinstance(value, np.ndarray):
        return value.astype(value_dtype(dtype), copy=False)
    return np.asarray(round_value(_python(value), dtype), dtype=value_dtype(dtype))


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, (np.ndarray, np.generic)) else value


def _binary_array(op: BinOp, a: Any, b: Any, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        if op in COMPARISONS:
            return np.asarray(_COMPARE[op](a, b))
        if op in LOGICAL:
            return np.asarray((np.logical_and if op is BinOp.AND else np.logical_or)(a, b))
        if dtype.is_float:
            wide = a.astype(np.float32) if a.dtype == np.float16 else a
            other = b.astype(np.float32) if b.dtype == np.float16 else b
            return round_to(_FLOAT[op](wide, other), dtype)
        if dtype.is_bool:
            wide = _binary_array(op, a.astype(np.int32), b.astype(np.int32), INT32)
            return np.asarray(wide != 0)
        a, b = np.broadcast_arrays(a, b)
        return _narrow(_INT[op](a, b, dtype), dtype)


def _narrow(values: Any, dtype: DType) -> Any:
    """Wrap a native integer result to the width of `dtype`."""
    values = np.asarray(values).astype(value_dtype(dtype), copy=False)
    if dtype.bits < 8:
        shift = values.dtype.type(8 - dtype.bits)
        # The carrier's own shifts sign- or zero-extend as its type demands.
        values = (values << shift) >> shift
    return values


_COMPARE: dict[BinOp, Callable[[Any, Any], Any]] = {
    BinOp.EQ: np.equal,
    BinOp.NE: np.not_equal,
    BinOp.LT: np.less,
    BinOp.LE: np.less_equal,
    BinOp.GT: np.greater,
    BinOp.GE: np.greater_equal,
}
_FLOAT: dict[BinOp, Callable[[Any, Any], Any]] = {
    BinOp.ADD: np.add,
    BinOp.SUB: np.subtract,
    BinOp.MUL: np.multiply,
    BinOp.DIV: np.divide,
    BinOp.FLOORDIV: np.floor_divide,
    BinOp.FLOORMOD: np.remainder,
    BinOp.TRUNCDIV: lambda a, b: np.trunc(np.divide(a, b)),
    BinOp.TRUNCMOD: np.fmod,
    BinOp.MIN: lambda a, b: np.where((a < b) | np.isnan(b), a, b),
    BinOp.MAX: lambda a, b: np.where((a > b) | np.isnan(b), a, b),
    # Like other functions computed wide, so that a scalar and an array agree.
    BinOp.POW: lambda a, b: np.power(a.astype(np.float64), b.astype(np.float64)),
}


def _nonzero(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any, DType], Any]:
    """A division that gives 0 where the divisor is 0."""

    def divide(a: Any, b: Any, dtype: DType) -> Any:
        del dtype
        zero = b == 0
        return np.where(zero, a.dtype.type(0), fn(a, np.where(zero, b.dtype.type(1), b)))

    return divide


def _array_truncdiv(a: Any, b: Any) -> Any:
    quotient, rest = np.floor_divide(a, b), np.remainder(a, b)
    fix = (rest != 0) & ((a < 0) != (b < 0))
    return np.where(fix, quotient + quotient.dtype.type(1), quotient)


def _array_shift(a: Any, b: Any, dtype: DType, *, left: bool) -> Any:
    inside = (b >= 0) & (b < dtype.bits)
    count = np.where(inside, b, 0).astype(a.dtype)
    if left:
        return np.where(inside, a << count, a.dtype.type(0))
    return np.where(inside, a >> count, np.where(a < 0, a.dtype.type(-1 if dtype.is_int else 0), 0))


def _array_pow(a: Any, b: Any, dtype: DType) -> Any:
    del dtype
    result = np.ones_like(a)
    base, exponent = a.copy(), np.where(b < 0, b.dtype.type(0), b)
    while np.any(exponent > 0):
        result = np.where(exponent & exponent.dtype.type(1), result * base, result)
        base, exponent = base * base, exponent >> exponent.dtype.type(1)
    odd = (b & b.dtype.type(1)) != 0
    zero, one = a.dtype.type(0), a.dtype.type(1)
    inverse = np.where((a == 1) | ((a + one == 0) & ~odd), one, zero)
    inverse = np.where((a + one == 0) & odd, a, inverse)
    return np.where(b < 0, inverse, result)


_INT: dict[BinOp, Callable[[Any, Any, DType], Any]] = {
    BinOp.ADD: lambda a, b, _: a + b,
    BinOp.SUB: lambda a, b, _: a - b,
    BinOp.MUL: lambda a, b, _: a * b,
    BinOp.FLOORDIV: _nonzero(np.floor_divide),
    BinOp.FLOORMOD: _nonzero(np.remainder),
    BinOp.TRUNCDIV: _nonzero(_array_truncdiv),
    BinOp.TRUNCMOD: _nonzero(lambda a, b: a - b * _array_truncdiv(a, b)),
    BinOp.DIV: _nonzero(_array_truncdiv),
    BinOp.MIN: lambda a, b, _: np.minimum(a, b),
    BinOp.MAX: lambda a, b, _: np.maximum(a, b),
    BinOp.POW: _array_pow,
    BinOp.SHL: lambda a, b, dtype: _array_shift(a, b, dtype, left=True),
    BinOp.SHR: lambda a, b, dtype: _array_shift(a, b, dtype, left=False),
    BinOp.BITAND: lambda a, b, _: a & b,
    BinOp.BITOR: lambda a, b, _: a | b,
    BinOp.BITXOR: lambda a, b, _: a ^ b,
}


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _int_pow(a: int, b: int, dtype: DType) -> int:
    if b >= 0:
        return pow(a, b, 1 << dtype.bits)
    if a == 1 or (a == -1 and b % 2 == 0):
        return 1
    return -1 if a == -1 else 0


def _int_shift(a: int, b: int, dtype: DType, *, left: bool) -> int:
    if 0 <= b < dtype.bits:
        return a << b if left else a >> b
    return -1 if a < 0 and not left else 0


_PYTHON: dict[BinOp, Callable[[int, int, DType], Any]] = {
    BinOp.ADD: lambda a, b, _: a + b,
    BinOp.SUB: lambda a, b, _: a - b,
    BinOp.MUL: lambda a, b, _: a * b,
    BinOp.FLOORDIV: lambda a, b, _: a // b if b else 0,
    BinOp.FLOORMOD: lambda a, b, _: a % b if b else 0,
    BinOp.TRUNCDIV: lambda a, b, _: _truncdiv(a, b) if b else 0,
    BinOp.TRUNCMOD: lambda a, b, _: a - b * _truncdiv(a, b) if b else 0,
    BinOp.DIV: lambda a, b, _: _truncdiv(a, b) if b else 0,
    BinOp.MIN: lambda a, b, _: min(a, b),
    BinOp.MAX: lambda a, b, _: max(a, b),
    BinOp.POW: _int_pow,
    BinOp.SHL: lambda a, b, dtype: _int_shift(a, b, dtype, left=True),
    BinOp.SHR: lambda a, b, dtype: _int_shift(a, b, dtype, left=False),
    BinOp.BITAND: lambda a, b, _: a & b,
    BinOp.BITOR: lambda a, b, _: a | b,
    BinOp.BITXOR: lambda a, b, _: a ^ b,
    BinOp.EQ: lambda a, b, _: a == b,
    BinOp.NE: lambda a, b, _: a != b,
    BinOp.LT: lambda a, b, _: a < b,
    BinOp.LE: lambda a, b, _: a <= b,
    BinOp.GT: lambda a, b, _: a > b,
    BinOp.GE: lambda a, b, _: a >= b,
    BinOp.AND: lambda a, b, _: bool(a) and bool(b),
    BinOp.OR: lambda a, b, _: bool(a) or bool(b),
}


def _int_scalar(op: BinOp, a: int, b: int, dtype: DType) -> int | bool:
    """Integers and bools on Python's own integers: what index folding uses."""
    if dtype.is_bool:
        return bool(_PYTHON[op](int(a != 0), int(b != 0), INT32))
    result = _PYTHON[op](wrap_int(a, dtype), wrap_int(b, dtype), dtype)
    return result if isinstance(result, bool) else wrap_int(result, dtype)


# Unary and casts


def evaluate_unary(op: UnOp | str, value: Any, dtype: DType) -> Any:
    """``op value`` for an operand of type `dtype`."""
    scalar, op = dtype.scalar, UnOp(op)
    if not isinstance(value, np.ndarray):
        if not scalar.is_float:
            number = int(value)
            if op is UnOp.NOT:
                return not number
            if scalar.is_bool:
                return bool(number) if op is UnOp.NEG else not number
            return wrap_int(-number if op is UnOp.NEG else ~number, scalar)
        return _item(_unary_array(op, _operand(value, scalar), scalar))
    return _unary_array(op, _operand(value, scalar), scalar)


def _unary_array(op: UnOp, value: Any, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        if op is UnOp.NOT:
            return np.asarray(np.logical_not(value))
        if dtype.is_float:
            return round_to(np.negative(value), dtype)
        if dtype.is_bool:
            return value if op is UnOp.NEG else np.asarray(np.logical_not(value))
        return _narrow(np.negative(value) if op is UnOp.NEG else np.invert(value), dtype)


def evaluate_cast(value: Any, from_: DType, to: DType) -> Any:
    """`value` of type `from_` converted to type `to`."""
    source, target = from_.scalar, to.scalar
    if not isinstance(value, np.ndarray):
        number = round_value(_python(value), source)
        return number if source == target else round_value(number, target)
    array = _operand(value, source)
    if source == target:
        return array
    with np.errstate(all="ignore"):
        if target.is_bool:
            return np.asarray(array != 0)
        if target.is_float:
            return round_to(array, target)
        if source.is_float:
            return _float_to_int_array(array, target)
        return _narrow(array.astype(value_dtype(target)), target)


def _float_to_int_array(values: Any, dtype: DType) -> Any:
    bits = 64 if dtype.bits > 32 or (dtype.is_uint and dtype.bits == 32) else 32
    whole = np.trunc(values.astype(np.float64))
    bound = 2.0 ** (bits - 1)
    inside = (whole >= -bound) & (whole < bound)
    through = np.dtype(f"int{bits}")
    result = np.where(inside, whole, 0.0).astype(through)
    result = np.where(inside, result, through.type(-(1 << (bits - 1))))
    if dtype.is_uint and bits == dtype.bits:
        upper = (whole >= bound) & (whole < 2 * bound)
        high = np.where(upper, whole, 0.0).astype(np.uint64)
        return np.where(upper, high, result.astype(np.uint64))
    return _narrow(result.astype(value_dtype(dtype)), dtype)


def cast_truth(value: Any, dtype: DType) -> Any:
    """Whether a value of type `dtype` counts as true."""
    return evaluate_cast(value, dtype, BOOL)
