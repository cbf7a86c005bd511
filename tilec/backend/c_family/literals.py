"""Constants as C text, exact to the last bit."""

from __future__ import annotations

import math
import struct

from tilec.ir.dtype import DType

FLOAT32 = DType("float32")


def round_float(value: float, dtype: DType) -> float:
    """`value` rounded to nearest even in a float16, bfloat16, float32 or float64 format."""
    if not math.isfinite(value) or dtype.bits == 64:
        return value
    if dtype.code == "bfloat":
        bits = _double_to_single_odd(value)
        bits += 0x7FFF + ((bits >> 16) & 1)
        return float(struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF0000) & 0xFFFFFFFF))[0])
    code = "<e" if dtype.bits == 16 else "<f"
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _double_to_single_odd(value: float) -> int:
    """The bits of `value` as float32 rounded to odd, so that a second rounding is harmless."""
    try:
        single = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F800000 | (0x80000000 if value < 0 else 0)
    bits = int(struct.unpack("<I", struct.pack("<f", single))[0])
    if single == value:
        return bits
    if abs(single) > abs(value):
        bits -= 1
    return bits | 1


def int_literal(value: int, dtype: DType) -> str:
    """An integer constant whose C type has the width and signedness of `dtype`."""
    if dtype.is_uint:
        return f"{value}{'ull' if dtype.bits == 64 else 'u' if dtype.bits == 32 else ''}"
    suffix = "ll" if dtype.bits == 64 else ""
    if value == -(1 << (dtype.bits - 1)) and dtype.bits >= 32:
        return f"(-{-(value + 1)}{suffix} - 1)"
    return f"{value}{suffix}"


def float_literal(value: float, single: bool) -> str:
    """A finite float constant; hexadecimal where decimal digits would not be exact."""
    suffix = "f" if single else ""
    text = repr(value)
    if "e" not in text and len(text) <= 10 and _is_dyadic(value):
        return f"{text}{suffix}"
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}{suffix}"


def _is_dyadic(value: float) -> bool:
    """Whether a few binary digits after the point suffice (its decimal form is exact then)."""
    return value == math.floor(value * 1024) / 1024
