"""Expressions of the CPU backend: the shared printer with the C prelude as its library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilec import ir
from tilec.backend.c_family import ExprPrinter, NameTable
from tilec.backend.c_family.expr import ATOM, Text
from tilec.diagnostics import CapabilityError, InternalError
from tilec.ir import DType
from tilec_c.prelude import (
    Callee,
    atomic_call,
    convert_call,
    float_call,
    integer_call,
    math_call,
)

_FLOAT_OPS = {"fmin": "min", "fmax": "max"}
_PREDICATES = ("isnan", "isinf", "isfinite")
_FLOAT_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")
_ATOMIC = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min"}


class CExprPrinter(ExprPrinter):
    """Collects the prelude features that the printed text needs in `features`."""

    def __init__(self, names: NameTable | None = None) -> None:
        self.features: set[str] = set()
        super().__init__(names)

    def _use(self, callee: Callee) -> str:
        self.features.update(callee.features)
        return callee.name

    def helper(self, op: str, dtype: DType) -> str:
        """A function on integers, or the bits of a float."""
        name = str(dtype)
        if op in ("bits", "from_bits", "abs", "min", "max"):
            return self._small_helper(op, name)
        return self._use(integer_call(op, name))

    def _small_helper(self, op: str, dtype: str) -> str:
        feature = f"{op}_{_SHORT[dtype]}"
        self.features.add(feature)
        return f"tilec_{feature}"

    def convert(self, source: DType, target: DType) -> str:
        """A conversion between storage types that C does not have."""
        callee = convert_call(str(source), str(target))
        if callee is None:
            raise InternalError(f"no conversion from {source!s} to {target!s}")
        return self._use(callee)

    def math(self, name: str, double: bool) -> str:
        """A mathematical function on float or double."""
        dtype = "float64" if double else "float32"
        if name in _FLOAT_OPS or name in _FLOAT_DIVISIONS:
            return self._use(float_call(_FLOAT_OPS.get(name, name), dtype))
        if name == "fabs":
            return "__builtin_fabs" if double else "__builtin_fabsf"
        if name in _PREDICATES:
            return f"__builtin_{name}"
        callee = math_call(name, dtype)
        if callee is None:
            raise CapabilityError(f"this target has no function {name} on {dtype}")
        return self._use(callee)

    def intrinsics(self) -> Mapping[str, Callable[[ir.Call], Text]]:
        """The shared rules and atomic updates."""
        return {**super().intrinsics(), **dict.fromkeys(_ATOMIC, self._atomic)}

    def _cast(self, node: ir.Cast) -> Text:
        source, target = node.value.dtype, node.dtype
        if source.is_float and target.is_integer and not isinstance(node.value, ir.Const):
            held = "float32" if source.bits == 16 else str(source)
            callee = convert_call(held, str(target))
            if callee is not None:
                return f"{self._use(callee)}({self(node.value)})", ATOM
        return super()._cast(node)

    def _atomic(self, node: ir.Call) -> Text:
        target, value = node.args
        callee = atomic_call(_ATOMIC[node.name], str(node.dtype))
        pointer = f"&{self.load(target.buffer, target.indices)}"
        text = f"{self._use(callee)}({pointer}, {self.stored(value)})"
        return self.widen(text, node.dtype)

    def pointer(self, region: ir.BufferRegion) -> str:
        """The address of a flat region's first element."""
        name = self.names(region.buffer)
        offset = region.mins[0]
        if ir.const_value(offset) == 0:
            return name
        return f"{name} + {self(offset, ATOM)}"


_SHORT: dict[str, str] = {
    "bool": "u8",
    **{f"int{b}": f"i{b}" for b in (8, 16, 32, 64)},
    **{f"uint{b}": f"u{b}" for b in (8, 16, 32, 64)},
    "float32": "f32",
    "float64": "f64",
}


def small_helpers(features: Any) -> tuple[str, set[str]]:
    """C text of the helpers on single values, and the features that the prelude provides."""
    lines: list[str] = []
    rest: set[str] = set()
    for feature in sorted(features):
        op, _, suffix = feature.rpartition("_")
        maker = None if op in ("min", "max") and suffix in ("f32", "f64") else _HELPERS.get(op)
        if maker is None or suffix not in _TYPES:
            rest.add(feature)
        else:
            lines.append(maker(suffix, _TYPES[suffix]))
    return "".join(lines), rest


_TYPES = {
    **{f"i{b}": f"int{b}_t" for b in (8, 16, 32, 64)},
    **{f"u{b}": f"uint{b}_t" for b in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
}


def _bits_type(suffix: str) -> str:
    return "uint64_t" if suffix == "f64" else "uint32_t"


def _select(symbol: str) -> Callable[[str, str], str]:
    def make(suffix: str, kind: str) -> str:
        op = "min" if symbol == "<" else "max"
        return (
            f"static inline {kind} tilec_{op}_{suffix}({kind} a, {kind} b) "
            f"{{ return a {symbol} b ? a : b; }}\n"
        )

    return make


def _pun(to_bits: bool) -> Callable[[str, str], str]:
    def make(suffix: str, kind: str) -> str:
        bits = _bits_type(suffix)
        source, target = (kind, bits) if to_bits else (bits, kind)
        name = "bits" if to_bits else "from_bits"
        return (
            f"static inline {target} tilec_{name}_{suffix}({source} x) "
            f"{{ {target} y; __builtin_memcpy(&y, &x, sizeof y); return y; }}\n"
        )

    return make


def _abs(suffix: str, kind: str) -> str:
    return (
        f"static inline {kind} tilec_abs_{suffix}({kind} x) {{ return x < 0 ? ({kind})-x : x; }}\n"
    )


_HELPERS: dict[str, Callable[[str, str], str]] = {
    "bits": _pun(to_bits=True),
    "from_bits": _pun(to_bits=False),
    "abs": _abs,
    "min": _select("<"),
    "max": _select(">"),
}
