"""Scalar expressions as CUDA C++.

Device compilers may assume that signed sums do not overflow. Index expressions do not, by the
rules of the language; all others are computed without a sign. Offsets are printed in 32 bits where
their bounds are known to fit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import ClassVar

from tilec import ir
from tilec.arith import bounds as iv, canonical_const
from tilec.arith.facts import Facts, type_range
from tilec.backend.c_family import SHORT, ExprPrinter, NameTable, int_literal, is_small_float
from tilec.backend.c_family.expr import ATOM, BIT_OR, MUL, SHIFT, UNARY, Text
from tilec.backend.c_family.types import STORAGE, unsupported
from tilec.diagnostics import CapabilityError, InternalError, Span
from tilec.ir import BinOp, DType
from tilec_cuda.arch import Arch
from tilec_cuda.prelude import find
from tilec_cuda.prelude.convert import encode
from tilec_cuda.values import value_rules

INT32, INT64, FLOAT32 = DType("int32"), DType("int64"), DType("float32")
_INT32_RANGE = type_range(INT32)
_PLAIN = {
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
    "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "floor",
    "ceil", "trunc", "nearbyint", "round", "atan2", "hypot", "copysign", "fmod", "fma", "pow",
    "fabs",
}  # fmt: skip
"""Functions that the device compiler has under the name that C gives them."""
_FAST = {
    "exp": "__expf", "exp10": "__exp10f", "log": "__logf", "log2": "__log2f", "log10": "__log10f",
    "sin": "__sinf", "cos": "__cosf", "tan": "__tanf", "pow": "__powf",
}  # fmt: skip
_FAST_PTX = {
    "exp2": "ex2.approx.ftz", "tanh": "tanh.approx", "rsqrt": "rsqrt.approx.ftz",
    "sqrt": "sqrt.approx.ftz",
}  # fmt: skip
_OWN = {"floordiv", "floormod", "truncdiv", "truncmod", "sigmoid"}


class CudaExprPrinter(ExprPrinter):
    """Collects the pieces of the prelude that the printed text needs in `pieces`.

    Attributes:
        facts: what is known about integers where the printer stands.
        plain_order: whether minima and maxima may take either of two equal operands.
    """

    WRAPS: ClassVar[bool] = False

    def __init__(self, arch: Arch, names: NameTable | None = None, *, fast_math: bool = False):
        self.arch = arch
        self.pieces: set[str] = set()
        self.facts = Facts()
        self.fast_math = fast_math
        self.plain_order = fast_math
        self.replaced: dict[int, Text] = {}
        self.linear_lane: str | None = None
        super().__init__(names)

    def piece(self, name: str) -> str:
        """The function of a piece, which is now needed."""
        if find(name) is None:
            raise InternalError(f"the prelude has no piece {name!r}")
        self.pieces.add(name)
        return f"tilec_{name}"

    # types

    def storage_type(self, dtype: DType, span: Span | None = None) -> str:
        """The type of an array element."""
        if dtype.code.startswith("float8_"):
            return "uint8_t"
        if str(dtype) == "tfloat32":
            return "float"
        known = STORAGE.get(str(dtype))
        if known is None:
            raise unsupported(dtype, span)
        return known

    def value_type(self, dtype: DType, span: Span | None = None) -> str:
        """The type of a variable."""
        if dtype.is_bool:
            return "bool"
        return "float" if is_small_float(dtype) else self.storage_type(dtype, span)

    # hooks

    def helper(self, op: str, dtype: DType) -> str:
        """A function on integers, or the bits of a float."""
        return self.piece(f"{op}_{SHORT[str(dtype)]}")

    def convert(self, source: DType, target: DType) -> str:
        """A conversion between storage types, the hardware's where it has one."""
        short = SHORT[str(source)], SHORT[str(target)]
        name = f"{short[0]}_to_{short[1]}"
        narrow = short[1] if short[0] == "f32" else short[0]
        soft = (narrow == "bf16" and short[0] == "f32" and self.arch.number < 80) or (
            narrow in ("e4m3", "e5m2") and self.arch.number < 89
        )
        if soft and name == "e5m2_to_f32":
            soft = False  # the upper half of a float16
        if soft or find(name) is None:
            name += "_soft"
        return self.piece(name)

    def math(self, name: str, double: bool) -> str:
        """A mathematical function on float or double."""
        suffix = "f64" if double else "f32"
        if name in ("fmin", "fmax"):
            if self.plain_order:
                return name if double else f"{name}f"
            return self.piece(f"{name[1:]}_{suffix}")
        if name in _OWN:
            return self.piece(f"{name}_{suffix}")
        if name in ("isnan", "isinf", "isfinite"):
            return name
        if self.fast_math and not double:
            if name in _FAST:
                return _FAST[name]
            if name in _FAST_PTX:
                return self.piece(f"fast_{name}_f32")
        if name not in _PLAIN:
            raise CapabilityError(f"this target has no function {name}")
        return name if double else f"{name}f"

    def float_special(self, value: float, double: bool) -> str:
        """Infinity or NaN, from its bits."""
        if double:
            if math.isnan(value):
                return "__longlong_as_double(0x7ff8000000000000ll)"
            return f"__longlong_as_double(0x{'fff' if value < 0 else '7ff'}0000000000000ull)"
        if math.isnan(value):
            return "__int_as_float(0x7fffffff)"
        return f"__uint_as_float(0x{'ff' if value < 0 else '7f'}800000u)"

    def may_overflow(self, node: ir.Binary | ir.Unary) -> bool:
        """Whether nothing shows that a signed result fits."""
        if not node.dtype.is_int or node.dtype.bits < 32:
            return False  # computed as int, which is wider
        facts = self.facts
        if facts.is_index(node):
            return False
        limits = type_range(node.dtype)
        if isinstance(node, ir.Unary):
            return bool(facts.bounds(node.value).lo <= limits.lo)
        a, b = facts.bounds(node.lhs), facts.bounds(node.rhs)
        if not (a.is_finite and b.is_finite):
            return True
        if node.op is BinOp.MUL:
            ends = [x * y for x in a for y in b]
        else:
            other = (b.lo, b.hi) if node.op is BinOp.ADD else (-b.hi, -b.lo)
            ends = [a.lo + other[0], a.hi + other[1]]
        return not iv.Interval(min(ends), max(ends)).within(limits)

    # nodes

    def text(self, expr: ir.Expr) -> Text:
        """The text of an expression; some loads stand for a register that was filled before."""
        found = self.replaced.get(id(expr))
        return super().text(expr) if found is None else found

    def const(self, value: float, dtype: DType) -> Text:
        """A constant."""
        if dtype.is_bool:
            return "true" if value else "false", ATOM
        return super().const(value, dtype)

    def rounded(self, text: str, dtype: DType, source: DType = FLOAT32) -> Text:
        """`text`, a computation in `source`, rounded once to a narrow format."""
        return super().rounded(self._odd(text, source), dtype)

    def _odd(self, text: str, source: DType) -> str:
        if source == FLOAT32 or is_small_float(source):
            return text
        return f"{self.piece(f'odd_{SHORT[str(source)]}')}({text})"

    def unrounded(self, value: ir.Expr) -> str:
        """A value of a narrow format as it is stored, rounded once."""
        if isinstance(value, ir.Const):
            return self.bits_literal(float(value.value), value.dtype)
        return super().unrounded(value)

    def bits_literal(self, value: float, dtype: DType) -> str:
        """The bits of a constant of a narrow format."""
        exact = float(canonical_const(ir.Const(value, dtype)).value)
        if dtype.bits == 8:
            return f"{encode(exact, SHORT[str(dtype)]):#04x}"
        if dtype.code == "bfloat":
            word = (
                0x7FFF if exact != exact else struct.unpack("<I", struct.pack("<f", exact))[0] >> 16
            )
        else:
            word = 0x7FFF if exact != exact else struct.unpack("<H", struct.pack("<e", exact))[0]
        return f"{word:#06x}"

    def _division(self, node: ir.Binary) -> Text:
        dtype = node.lhs.dtype
        if dtype.is_float:
            return super()._division(node)
        floor = node.op in (BinOp.FLOORDIV, BinOp.FLOORMOD)
        is_quotient = node.op in (BinOp.FLOORDIV, BinOp.TRUNCDIV, BinOp.DIV)
        lhs, rhs = self.facts.bounds(node.lhs), self.facts.bounds(node.rhs)
        divisor = ir.const_value(node.rhs)
        whole = lhs.lo >= 0
        if divisor is not None and divisor > 0 and (floor or whole):
            shift = int(divisor).bit_length() - 1
            if 1 << shift == divisor:
                inner = self(node.lhs, UNARY)  # few readers know what binds stronger here
                if is_quotient:
                    return f"{inner} >> {shift}", SHIFT
                return f"{inner} & {int_literal(int(divisor) - 1, dtype)}", BIT_OR
        if whole and rhs.lo > 0:
            symbol = "/" if is_quotient else "%"
            left, right = self._operand(node.lhs, MUL, node.rhs), self(node.rhs, UNARY)
            return self._narrow(f"{left} {symbol} {right}", MUL, dtype)
        return super()._division(node)

    def _unary(self, node: ir.Unary) -> Text:
        if node.op is ir.UnOp.NEG and node.dtype.is_bool:
            return self.text(node.value)
        return super()._unary(node)

    def _binary(self, node: ir.Binary) -> Text:
        if self.fast_math and node.op is BinOp.DIV and node.dtype == FLOAT32:
            return f"__fdividef({self(node.lhs)}, {self(node.rhs)})", ATOM
        if node.lhs.dtype.is_bool and node.op in (BinOp.MIN, BinOp.MAX):
            op = BinOp.BITAND if node.op is BinOp.MIN else BinOp.BITOR
            return self._binary(node.replace(op=op))
        return super()._binary(node)

    # offsets

    def index(self, offset: ir.Expr) -> str:
        """An offset into a buffer, in 32 bits where its bounds are known to fit."""
        narrow = self._in_32_bits(offset)
        return self(offset if narrow is None else narrow)

    def _in_32_bits(self, expr: ir.Expr) -> ir.Expr | None:
        if expr.dtype == INT32 or (expr.dtype.is_integer and expr.dtype.bits < 32):
            return expr
        if expr.dtype != INT64 or not self.facts.bounds(expr).within(_INT32_RANGE):
            return None
        if isinstance(expr, ir.Const):
            return ir.Const(int(expr.value), INT32, span=expr.span)
        if isinstance(expr, ir.Cast):
            inner = self._in_32_bits(expr.value)
            return None if inner is None else inner if inner.dtype == INT32 else expr
        if isinstance(expr, ir.Binary) and expr.op not in ir.COMPARISONS:
            lhs, rhs = self._in_32_bits(expr.lhs), self._in_32_bits(expr.rhs)
            if lhs is None or rhs is None:
                return None
            lhs, rhs = ir.cast(lhs, INT32), ir.cast(rhs, INT32)
            return ir.Binary(expr.op, lhs, rhs, INT32, span=expr.span)
        if isinstance(expr, ir.Select):
            then, other = self._in_32_bits(expr.then), self._in_32_bits(expr.other)
            if then is None or other is None:
                return None
            then, other = ir.cast(then, INT32), ir.cast(other, INT32)
            return ir.Select(expr.cond, then, other, INT32, span=expr.span)
        return ir.Cast(INT32, expr, span=expr.span)

    def load(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> str:
        """An element, as something that can be assigned to."""
        name = self.names(buffer)
        if buffer.scope() == ir.LOCAL_VAR:
            return name
        if len(indices) != 1:
            raise InternalError(f"{buffer.describe()} is not flat")
        return f"{name}[{self.index(indices[0])}]"

    def pointer(self, place: ir.Load | ir.BufferRegion) -> str:
        """The address of an element, or of the first one of a flat region."""
        offset = place.indices[0] if isinstance(place, ir.Load) else place.mins[0]
        name = self.names(place.buffer)
        if place.buffer.scope() == ir.LOCAL_VAR:
            return f"&{name}"
        return name if ir.const_value(offset) == 0 else f"&{name}[{self.index(offset)}]"

    # calls

    def intrinsics(self) -> Mapping[str, Callable[[ir.Call], Text]]:
        """The shared rules and those of lanes and memory that give a value."""
        return {**super().intrinsics(), **value_rules(self)}
