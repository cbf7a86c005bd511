"""Element types.

A `DType` is a `str` subclass, so that ``T.float16 == "float16"`` holds and a dtype can be a
dictionary key, part of an f-string or stand wherever a dtype string is accepted.
"""

from __future__ import annotations

import re
from typing import Any

from tilec.diagnostics import DTypeError, did_you_mean

_CODES: dict[str, tuple[str, int]] = {
    "bool": ("bool", 8),
    **{f"int{b}": ("int", b) for b in (4, 8, 16, 32, 64)},
    **{f"uint{b}": ("uint", b) for b in (4, 8, 16, 32, 64)},
    **{f"float{b}": ("float", b) for b in (16, 32, 64)},
    "bfloat16": ("bfloat", 16),
    "tfloat32": ("tfloat", 32),
    **{
        f"float8_{v}": (f"float8_{v}", 8)
        for v in (
            "e3m4",
            "e4m3",
            "e4m3fn",
            "e4m3fnuz",
            "e4m3b11fnuz",
            "e5m2",
            "e5m2fnuz",
            "e8m0fnu",
        )
    },
    "float6_e2m3fn": ("float6_e2m3fn", 6),
    "float6_e3m2fn": ("float6_e3m2fn", 6),
    "float4_e2m1fn": ("float4_e2m1fn", 4),
}
_ALIASES = {
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
    "short": "int16",
    "ushort": "uint16",
    "float": "float32",
    "double": "float64",
    "half": "float16",
}
_VECTOR = re.compile(r"^(.*?)x(\d+)$")
_INTERNED: dict[str, DType] = {}


class DType(str):
    """An element type such as ``float16`` or ``int32x4``; calling it converts a value.

    Attributes:
        code: kind of number: ``bool``, ``int``, ``uint``, ``float``, ``bfloat``, ``tfloat`` or
            the name of a narrow float format.
        bits: width of one lane in bits.
        lanes: number of lanes (1 for a scalar).
    """

    code: str
    bits: int
    lanes: int

    def __new__(cls, name: str) -> DType:
        """Return the interned dtype called `name` (canonical names only; see `DType.of`)."""
        known = _INTERNED.get(name)
        if known is not None:
            return known
        base, lanes = name, 1
        if name not in _CODES:
            match = _VECTOR.match(name)
            if match is not None and match.group(1) in _CODES:
                base, lanes = match.group(1), int(match.group(2))
        if base not in _CODES or lanes < 1:
            raise DTypeError(
                f"{name!r} is not a dtype", hint=did_you_mean(name, _CODES, listing="dtypes")
            )
        self = super().__new__(cls, name)
        self.code, self.bits = _CODES[base]
        self.lanes = lanes
        return _INTERNED.setdefault(name, self)

    @staticmethod
    def of(value: object) -> DType:
        """Normalise a dtype, dtype name, Python type, NumPy dtype or torch dtype."""
        if isinstance(value, DType):
            return value
        if isinstance(value, str):
            return DType(_ALIASES.get(value, value))
        if value is bool:
            return DType("bool")
        if value is int:
            return DType("int32")
        if value is float:
            return DType("float32")
        name = getattr(value, "name", None)
        if isinstance(name, str):  # a NumPy dtype (ml_dtypes included)
            return DType(_ALIASES.get(name, name))
        if isinstance(value, type) and value.__module__.split(".")[0] in ("numpy", "ml_dtypes"):
            return DType(value.__name__.rstrip("_"))
        text = str(value)
        if text.startswith("torch."):
            return DType(_ALIASES.get(text[6:], text[6:]))
        raise DTypeError(f"{value!r} is not a dtype", hint='pass a name such as "float16"')

    @property
    def bytes(self) -> int:
        """Size in bytes of one element, lanes included (sub-byte types round up)."""
        return (self.bits * self.lanes + 7) // 8

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type of any format."""
        return "float" in self.code

    @property
    def is_int(self) -> bool:
        """Whether this is a signed integer type."""
        return self.code == "int"

    @property
    def is_uint(self) -> bool:
        """Whether this is an unsigned integer type."""
        return self.code == "uint"

    @property
    def is_bool(self) -> bool:
        """Whether this is the boolean type."""
        return self.code == "bool"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type (bool excluded)."""
        return self.code in ("int", "uint")

    @property
    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self.lanes == 1 else DType(self.rsplit("x", 1)[0])

    def with_lanes(self, lanes: int) -> DType:
        """The vector type with `lanes` lanes of this element."""
        return self.scalar if lanes == 1 else DType(f"{self.scalar}x{lanes}")

    @property
    def int_range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer or bool type."""
        if self.is_bool:
            return 0, 1
        if self.is_uint:
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    def as_torch(self) -> Any:
        """The torch dtype that stores this type; imports torch."""
        import torch

        storage = {
            "int4": "int8",
            "uint4": "uint8",
            "tfloat32": "float32",
            "float8_e4m3": "float8_e4m3fn",
            "float4_e2m1fn": "float4_e2m1fn_x2",
        }.get(self, str(self))
        return getattr(torch, storage)

    def __call__(self, value: object) -> Any:
        """Convert a number or a staged value to this type (a constant or a cast)."""
        from tilec.ir.expr import cast

        return cast(value, self)

    def __repr__(self) -> str:
        return f"T.{self!s}" if self.lanes == 1 else f"T.dtype({str(self)!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return DType, (str(self),)


BOOL = DType("bool")
INT8, INT16, INT32, INT64 = (DType(f"int{b}") for b in (8, 16, 32, 64))
UINT8, UINT16, UINT32, UINT64 = (DType(f"uint{b}") for b in (8, 16, 32, 64))
FLOAT16, FLOAT32, FLOAT64 = (DType(f"float{b}") for b in (16, 32, 64))
BFLOAT16 = DType("bfloat16")


def scalar_names() -> tuple[str, ...]:
    """All scalar dtype names."""
    return tuple(_CODES)


def promote(a: DType, b: DType) -> DType:
    """The type in which a binary operation on `a` and `b` is computed.

    Floats win over integers, wider wins over narrower; bfloat16 with float16 gives float16;
    integers of equal width give the unsigned one.

    Raises:
        DTypeError: two different narrow float formats of equal width.
    """
    if a == b:
        return a
    if a.lanes != b.lanes:
        if 1 in (a.lanes, b.lanes):
            lanes = max(a.lanes, b.lanes)
            return promote(a.scalar, b.scalar).with_lanes(lanes)
        raise DTypeError(f"cannot combine {a!s} and {b!s}: {a.lanes} and {b.lanes} lanes")
    if a.lanes > 1:
        return promote(a.scalar, b.scalar).with_lanes(a.lanes)
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_float:
        if {a, b} == {FLOAT16, BFLOAT16}:
            return FLOAT16
        if {a, b} == {FLOAT32, DType("tfloat32")}:
            return FLOAT32
        raise DTypeError(
            f"cannot combine {a!s} and {b!s}", hint="cast one operand with T.cast(x, dtype)"
        )
    return a if a.is_uint else b
