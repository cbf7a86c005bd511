"""C types of element types: how a value is stored and how it is held while computing."""

from __future__ import annotations

from tilec.diagnostics import CapabilityError, Span
from tilec.ir.dtype import DType

STORAGE: dict[str, str] = {
    "bool": "uint8_t",
    **{f"int{b}": f"int{b}_t" for b in (8, 16, 32, 64)},
    **{f"uint{b}": f"uint{b}_t" for b in (8, 16, 32, 64)},
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
VALUE: dict[str, str] = {**STORAGE, "float16": "float", "bfloat16": "float", "bool": "_Bool"}
SHORT: dict[str, str] = {
    "bool": "u8",
    **{f"int{b}": f"i{b}" for b in (8, 16, 32, 64)},
    **{f"uint{b}": f"u{b}" for b in (8, 16, 32, 64)},
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "tfloat32": "f32",
    **{f"float8_{v}": v for v in ("e3m4", "e4m3fnuz", "e4m3b11fnuz", "e5m2", "e5m2fnuz")},
    "float8_e4m3": "e4m3",
    "float8_e4m3fn": "e4m3",
    "float8_e8m0fnu": "e8m0",
}
"""Suffix of helper functions by dtype."""


def is_small_float(dtype: DType) -> bool:
    """Whether values are stored in 16 or 8 bits and computed in float, rounding after each step."""
    return dtype.is_float and dtype.bits <= 16


def unsupported(dtype: DType, span: Span | None) -> CapabilityError:
    """The error for an element type that C code cannot hold."""
    return CapabilityError(
        f"this target does not support elements of type {dtype!s}",
        span=span,
        hint=f"supported are {', '.join(STORAGE)}",
    )
