"""Linear forms of integer expressions, and the keys that name equal expressions.

A `Form` is ``const + sum(coeff * atom)``. It equals its expression modulo ``2**bits`` always, and
exactly where the arithmetic does not overflow (see `tilec.arith.facts`). Atoms are named by small
integers that a `Keys` table gives out: two expressions with one key are the same value wherever
both are evaluated without a store in between.
"""

from __future__ import annotations

import math
from typing import Any

from tilec.diagnostics import Span
from tilec.ir.dtype import DType
from tilec.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from tilec.ir.intrinsics import is_pure
from tilec.ir.operators import BinOp, UnOp

_COMMUTATIVE = frozenset(
    {
        BinOp.ADD, BinOp.MUL, BinOp.MIN, BinOp.MAX, BinOp.BITAND, BinOp.BITOR, BinOp.BITXOR,
        BinOp.EQ, BinOp.NE,
    }
)  # fmt: skip
_MAX_DISTRIBUTED = 4


class Form:
    """``const + sum(coeff * atom)``; terms by atom key, in order of first appearance."""

    __slots__ = ("const", "terms")

    def __init__(self, const: int = 0, terms: dict[int, int] | None = None) -> None:
        self.const = const
        self.terms = {} if terms is None else terms

    def plus(self, other: Form, factor: int = 1) -> Form:
        """``self + factor * other``."""
        terms = dict(self.terms)
        for key, coeff in other.terms.items():
            total = terms.get(key, 0) + factor * coeff
            if total:
                terms[key] = total
            else:
                del terms[key]
        return Form(self.const + factor * other.const, terms)

    def times(self, factor: int) -> Form:
        """``factor * self``."""
        if factor == 0:
            return Form()
        return Form(self.const * factor, {k: c * factor for k, c in self.terms.items()})

    @property
    def monomial(self) -> tuple[int, int] | None:
        """Key and coefficient of the only term where there is no constant, or None."""
        if self.const == 0 and len(self.terms) == 1:
            return next(iter(self.terms.items()))
        return None


class Keys:
    """Interned structural keys of expressions and their linear forms."""

    def __init__(self) -> None:
        self._table: dict[Any, int] = {}
        self._by_id: dict[int, tuple[Any, int]] = {}
        self._forms: dict[int, tuple[Expr, Form]] = {}
        self._pure: dict[int, tuple[Expr, bool]] = {}
        self._loads: dict[int, tuple[Expr, bool]] = {}
        self._factors: dict[int, tuple[int, ...]] = {}
        self.atoms: dict[int, Expr] = {}

    def key(self, expr: Expr) -> int:
        """The key of an expression."""
        known = self._by_id.get(id(expr))
        if known is not None:
            return known[1]
        name = self._name(expr)
        number = self._table.setdefault(name, len(self._table))
        self._by_id[id(expr)] = (expr, number)
        return number

    def _name(self, expr: Expr) -> Any:
        kind = type(expr)
        if kind is Const:
            value: Any = expr.value  # type: ignore[attr-defined]
            if isinstance(value, float):
                value = "nan" if value != value else (value, math.copysign(1.0, value))
            return ("c", value, str(expr.dtype))
        if kind is Binary:
            return self._binary_name(expr)  # type: ignore[arg-type]
        if kind is Unary:
            return (expr.op, self.key(expr.value), str(expr.dtype))  # type: ignore[attr-defined]
        if kind is Cast:
            return ("cast", self.key(expr.value), str(expr.dtype))  # type: ignore[attr-defined]
        if kind is Select:
            parts = (expr.cond, expr.then, expr.other)  # type: ignore[attr-defined]
            return ("select", *map(self.key, parts))
        if kind is Load:
            return ("load", id(expr.buffer), *map(self.key, expr.indices))  # type: ignore[attr-defined]
        if kind is Call and self.pure(expr) and not expr.attrs:  # type: ignore[attr-defined]
            args = expr.args  # type: ignore[attr-defined]
            if all(isinstance(a, Expr) for a in args):
                return ("call", expr.name, *map(self.key, args), str(expr.dtype))  # type: ignore[attr-defined]
        # Variables, and whatever is not known to be a value: only itself.
        return ("id", id(expr))

    def _binary_name(self, expr: Binary) -> Any:
        lhs, rhs, dtype = self.key(expr.lhs), self.key(expr.rhs), expr.lhs.dtype
        if not dtype.is_float and expr.op in _COMMUTATIVE:
            if expr.op is BinOp.MUL:
                factors = self.factors_of(lhs) + self.factors_of(rhs)
                return self._product_name(factors, dtype)
            lhs, rhs = min(lhs, rhs), max(lhs, rhs)
        return (expr.op, lhs, rhs, str(dtype))

    def factors_of(self, key: int) -> tuple[int, ...]:
        """Keys of the factors of an atom (itself if it is not a product), sorted."""
        return self._factors.get(key, (key,))

    def _product_name(self, factors: tuple[int, ...], dtype: DType) -> Any:
        factors = tuple(sorted(factors))
        name = ("mul", factors, str(dtype))
        if len(factors) > 1:
            self._factors[self._table.setdefault(name, len(self._table))] = factors
        return name

    def pure(self, expr: Any) -> bool:
        """Whether evaluating the expression has no effect, so that it may be dropped."""
        if not isinstance(expr, Expr):
            return all(self.pure(c) for c in expr.children) if hasattr(expr, "children") else True
        kind = type(expr)
        if kind is Var or kind is Const:
            return True
        known = self._pure.get(id(expr))
        if known is None:
            result = kind is not Call or is_pure(expr.name)  # type: ignore[attr-defined]
            if result:
                children = expr.indices if kind is Load else expr.children  # type: ignore[attr-defined]
                result = all(self.pure(c) for c in children)
            known = self._pure[id(expr)] = (expr, result)
        return known[1]

    def reads_memory(self, expr: Any) -> bool:
        """Whether the value may change from one statement to the next."""
        kind = type(expr)
        if kind is Var or kind is Const:
            return False
        if kind not in (Binary, Unary, Select, Cast, Call):
            return True
        known = self._loads.get(id(expr))
        if known is None:
            result = not self.pure(expr) or any(self.reads_memory(c) for c in expr.children)
            known = self._loads[id(expr)] = (expr, result)
        return known[1]

    # Linear forms

    def form(self, expr: Expr) -> Form:
        """The linear form of an integer expression (treat as read-only)."""
        known = self._forms.get(id(expr))
        if known is not None:
            return known[1]
        result = self._form(expr)
        self._forms[id(expr)] = (expr, result)
        return result

    def atom(self, expr: Expr) -> Form:
        """A form with `expr` as its only atom."""
        key = self.key(expr)
        self.atoms.setdefault(key, expr)
        return Form(0, {key: 1})

    def _form(self, expr: Expr) -> Form:
        kind = type(expr)
        if kind is Const:
            return Form(int(expr.value))  # type: ignore[attr-defined]
        if kind is Binary:
            node: Any = expr
            if node.op is BinOp.ADD:
                return self.form(node.lhs).plus(self.form(node.rhs))
            if node.op is BinOp.SUB:
                return self.form(node.lhs).plus(self.form(node.rhs), -1)
            if node.op is BinOp.MUL:
                return self._product(node, self.form(node.lhs), self.form(node.rhs))
            if node.op is BinOp.SHL and type(node.rhs) is Const:
                count = int(node.rhs.value)
                if 0 <= count < node.dtype.bits:
                    return self.form(node.lhs).times(1 << count)
        elif kind is Unary and expr.op is UnOp.NEG:  # type: ignore[attr-defined]
            return self.form(expr.value).times(-1)  # type: ignore[attr-defined]
        return self.atom(expr)

    def _product(self, node: Binary, a: Form, b: Form) -> Form:
        if not b.terms:
            return a.times(b.const)
        if not a.terms:
            return b.times(a.const)
        one, other = a.monomial, b.monomial
        if one is not None and other is not None:
            return self._monomial(node, one, other)
        if one is None:
            a, b, one = b, a, other
        # a is now the monomial, if there is one; only products of variables are duplicated.
        if one is None or len(b.terms) > _MAX_DISTRIBUTED or not self._is_variables(one[0]):
            return self.atom(node)
        result = a.times(b.const)
        for key, coeff in b.terms.items():
            result = result.plus(self._monomial(None, (key, coeff), one, node.dtype))
        return result

    def _is_variables(self, key: int) -> bool:
        return all(type(self.atoms.get(k)) is Var for k in self.factors_of(key))

    def _monomial(
        self,
        node: Binary | None,
        a: tuple[int, int],
        b: tuple[int, int],
        dtype: DType | None = None,
    ) -> Form:
        dtype = node.dtype if node is not None else dtype
        assert dtype is not None
        factors = self.factors_of(a[0]) + self.factors_of(b[0])
        name = self._product_name(factors, dtype)
        key = self._table.setdefault(name, len(self._table))
        if key not in self.atoms:
            if node is not None and a[1] == b[1] == 1:
                self.atoms[key] = node
            else:
                self.atoms[key] = Binary(BinOp.MUL, self.atoms[a[0]], self.atoms[b[0]], dtype)
            self._by_id[id(self.atoms[key])] = (self.atoms[key], key)
        return Form(0, {key: a[1] * b[1]})

    def divide_monomial(self, key: int, by: int, dtype: DType) -> Form | None:
        """The atom `key` without the factor `by`, or None if it has no such factor."""
        factors = list(self.factors_of(key))
        if by not in factors:
            return None
        factors.remove(by)
        if not factors:
            return Form(1)
        result = (factors[0], 1)
        for factor in factors[1:]:
            product = self._monomial(None, result, (factor, 1), dtype).monomial
            assert product is not None
            result = product
        return Form(0, {result[0]: 1})

    def emit(self, form: Form, dtype: DType, span: Span) -> Expr:
        """The expression of a form, coefficients reduced to the range of `dtype`."""
        half, full = 1 << (dtype.bits - 1), 1 << dtype.bits
        terms: list[tuple[Expr, int]] = []
        for key, coeff in form.terms.items():
            if not -half <= coeff < half:
                coeff = (coeff + half) % full - half
            if coeff:
                terms.append((self.atoms[key], coeff))
        const = form.const
        if not -half <= const < half:
            const = (const + half) % full - half
        low, high = dtype.int_range
        first = next((i for i, (_, c) in enumerate(terms) if c > 0), None)
        result: Expr | None = None
        if first is not None:
            atom, coeff = terms.pop(first)
            result = atom if coeff == 1 else _scaled(atom, coeff, dtype, span)
        elif const:
            result = Const(const if low <= const <= high else const + full, dtype, span=span)
            const = 0
        for atom, coeff in terms:
            if result is None:
                if coeff == -1:
                    result = Unary(UnOp.NEG, atom, dtype, span=span)
                else:
                    result = _scaled(atom, coeff, dtype, span)
                continue
            op, size = (BinOp.ADD, coeff) if coeff > 0 else (BinOp.SUB, -coeff)
            part = atom if size == 1 else _scaled(atom, size, dtype, span)
            result = Binary(op, result, part, dtype, span=span)
        if result is None:
            return Const(const if low <= const <= high else const + full, dtype, span=span)
        if const > 0 or const == -half:
            value = const if low <= const <= high else const + full
            return Binary(BinOp.ADD, result, Const(value, dtype, span=span), dtype, span=span)
        if const < 0:
            return Binary(BinOp.SUB, result, Const(-const, dtype, span=span), dtype, span=span)
        return result


def _scaled(atom: Expr, coeff: int, dtype: DType, span: Span) -> Expr:
    low, high = dtype.int_range
    full = 1 << dtype.bits
    value = coeff if low <= coeff <= high else (coeff - full if coeff > high else coeff + full)
    return Binary(BinOp.MUL, atom, Const(value, dtype, span=span), dtype, span=span)
