"""Rounding to the narrow float formats.

Values of every float type are held as float32 (float64 for float64) numbers that lie on the grid
of the type. `round_to` maps arbitrary numbers onto that grid: nearest, ties to even, with gradual
underflow. What lies beyond the largest finite value becomes what the format has for it: infinity
(bfloat16, float16, float8_e3m4, float8_e5m2), NaN (the other float8 types), or the largest finite
value (float6 and float4, which have neither). ``float8_e4m3`` is another name of
``float8_e4m3fn``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilec.ir.dtype import DType

Array = np.ndarray[Any, Any]


class Format(NamedTuple):
    """A narrow binary float format.

    Attributes:
        mantissa: explicit mantissa bits.
        min_exponent: exponent of the smallest normal number.
        largest: largest finite value.
        overflow: "inf", "nan" or "max": what larger values become.
        negative_zero: whether -0.0 exists.
    """

    mantissa: int
    min_exponent: int
    largest: float
    overflow: str
    negative_zero: bool = True


_E4M3FN = Format(3, -6, 448.0, "nan")
FORMATS: dict[str, Format] = {
    "float8_e3m4": Format(4, -2, 15.5, "inf"),
    "float8_e4m3": _E4M3FN,
    "float8_e4m3fn": _E4M3FN,
    "float8_e4m3fnuz": Format(3, -7, 240.0, "nan", False),
    "float8_e4m3b11fnuz": Format(3, -10, 30.0, "nan", False),
    "float8_e5m2": Format(2, -14, 57344.0, "inf"),
    "float8_e5m2fnuz": Format(2, -15, 57344.0, "nan", False),
    "float6_e2m3fn": Format(3, 0, 7.5, "max"),
    "float6_e3m2fn": Format(2, -2, 28.0, "max"),
    "float4_e2m1fn": Format(1, 0, 6.0, "max"),
}


def value_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype in which values of `dtype` are computed with and handed around.

    Native where NumPy has the type; int4/uint4 in int8/uint8; narrow floats, bfloat16 and
    tfloat32 in float32.
    """
    native = _NATIVE.get(dtype.scalar)
    return native if native is not None else _F32


def round_to(values: Any, dtype: DType) -> Array:
    """Numbers rounded, once, onto the grid of a float `dtype`, in its `value_dtype`."""
    scalar = dtype.scalar
    with np.errstate(all="ignore"):
        return _rounded(np.asarray(values), scalar)


def _rounded(x: Array, scalar: DType) -> Array:
    if scalar.code == "float":
        return x.astype(_NATIVE[scalar])
    if scalar.code == "tfloat":
        return x.astype(_F32)
    if scalar.code == "bfloat":
        return _round_bfloat16(_float32_to_odd(x))
    if scalar == "float8_e8m0fnu":
        return _round_e8m0(x)
    return _round_format(x, FORMATS[scalar])


def _float32_to_odd(x: Array) -> Array:
    """Numbers as float32, rounded to odd: a second rounding then gives what one would have."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        # Bits beyond the 53 of float64 are folded into one sticky bit.
        size = np.where(x < 0, -x.astype(np.uint64), x.astype(np.uint64))
        sticky = ((size & np.uint64(0xFFF)) != 0).astype(np.uint64) << np.uint64(12)
        folded = np.where(size >> np.uint64(53), (size & ~np.uint64(0xFFF)) | sticky, size)
        x = np.where(x < 0, -folded.astype(np.float64), folded.astype(np.float64))
    if (x.dtype.kind in "fiub" and x.dtype.itemsize < 4) or x.dtype == _F32 or x.dtype.kind == "V":
        return x.astype(_F32)
    wide = x.astype(np.float64)
    near = wide.astype(_F32)
    back = near.astype(np.float64)
    bits = np.ascontiguousarray(near).view(np.uint32).reshape(near.shape)
    inexact = (back != wide) & np.isfinite(back) & np.isfinite(wide)
    step = np.where(np.abs(wide) > np.abs(back), 1, -1).astype(np.int64)
    odd = np.where(inexact & ((bits & 1) == 0), bits + step, bits).astype(np.uint32)
    return odd.view(np.float32)


def _round_bfloat16(x: Array) -> Array:
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = (rounded & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), x, kept).reshape(x.shape)


def _round_e8m0(x: Array) -> Array:
    """Powers of two only, from 2**-127 to 2**127: nearest, a tie goes up; the rest is NaN."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    power = np.where(mantissa >= 0.75, exponent, exponent - 1)
    good = (x > 0) & np.isfinite(x) & (power <= 127)
    result = np.ldexp(1.0, np.clip(power, -127, 127))
    return np.where(good, result, np.nan).astype(_F32)


def _round_format(x: Array, fmt: Format) -> Array:
    wide = x.astype(np.float64)
    _, exponent = np.frexp(wide)
    quantum = np.maximum(exponent - 1, fmt.min_exponent) - fmt.mantissa
    result = np.ldexp(np.rint(np.ldexp(wide, -quantum)), quantum)
    if fmt.overflow == "max":
        # These formats have no NaN either: it becomes 0.
        result = np.where(np.isnan(wide), 0.0, np.clip(result, -fmt.largest, fmt.largest))
    else:
        beyond = np.abs(result) > fmt.largest
        over = np.copysign(np.inf, wide) if fmt.overflow == "inf" else np.nan
        result = np.where(beyond, over, result)
    if not fmt.negative_zero:
        result = np.where(result == 0, 0.0, result)
    return result.astype(_F32)


_F32 = np.dtype(np.float32)
_NATIVE: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "int4": np.dtype(np.int8),
    "uint4": np.dtype(np.uint8),
    **{f"int{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
