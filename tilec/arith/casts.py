"""Rules for conversions."""

from __future__ import annotations

from tilec.arith import bounds as iv
from tilec.arith.facts import Facts, type_range
from tilec.arith.semantics import evaluate_cast
from tilec.ir.dtype import DType
from tilec.ir.expr import Cast, Const, Expr


class CastRules(Facts):
    """Mixed into the simplifier, which supplies `simplify`."""

    def simplify(self, expr: Expr) -> Expr:
        """An expression of the same value and dtype."""
        raise NotImplementedError

    def _constant(self, expr: Expr) -> Expr:
        """A constant in place of an integer expression that has one value only."""
        if type(expr) is Const or not expr.dtype.is_integer:
            return expr
        value = self.bounds(expr).value
        if value is None or not self.keys.pure(expr):
            return expr
        return Const(value, expr.dtype, span=expr.span)

    def _cast(self, node: Cast) -> Expr:
        value = self.simplify(node.value)
        target = node.dtype
        if value.dtype == target:
            return value
        if isinstance(value, Const) and target.lanes == value.dtype.lanes:
            return Const(evaluate_cast(value.value, value.dtype, target), target, span=node.span)
        if isinstance(value, Cast) and target.lanes == 1 and self._through(value, target):
            inner = value.value
            if inner.dtype == target:
                return inner
            return self.simplify(Cast(target, inner, span=node.span))
        if value is not node.value:
            node = Cast(target, value, span=node.span)
        return self._constant(node)

    def _through(self, middle: Cast, target: DType) -> bool:
        """Whether converting to the middle type first makes no difference."""
        source, mid = middle.value.dtype, middle.dtype
        if source.lanes != 1 or not self._preserves(middle.value, mid):
            # Truncating integers twice is truncating once.
            return (
                source.is_integer and mid.is_integer and target.is_integer
                and mid.bits >= target.bits
            )  # fmt: skip
        if mid.is_float and not source.is_float and not target.is_float:
            # Out of range, floats and integers convert differently.
            return target.is_bool or self.bounds(middle.value).within(type_range(target))
        return True

    def _preserves(self, value: Expr, dtype: DType) -> bool:
        """Whether every value of `value` exists in `dtype`."""
        source = value.dtype
        if source.is_float:
            return dtype.is_float and _float_fits(source, dtype)
        bounds = self.bounds(value)
        if dtype.is_float:
            digits = _DIGITS.get(dtype, 0)
            return bounds.within(iv.Interval(-(1 << digits), 1 << digits))
        if dtype.is_bool:
            return bounds.within(iv.TRUTH)
        return bounds.within(type_range(dtype))


_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "tfloat32": 24, "float64": 53}
_WIDER = {
    "float16": ("float32", "tfloat32", "float64"),
    "bfloat16": ("float32", "tfloat32", "float64"),
    "float32": ("float64", "tfloat32"),
    "tfloat32": ("float32", "float64"),
}


def _float_fits(source: DType, dtype: DType) -> bool:
    """Whether every value of a float type, NaN and infinity too, exists in another."""
    if source == dtype:
        return True
    if source.bits <= 8:
        return dtype.bits >= 32 or (dtype == "bfloat16" and source != "float8_e8m0fnu")
    return str(dtype) in _WIDER.get(source, ())
