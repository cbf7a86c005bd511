"""Floor division and remainder of linear forms by a divisor.

All rules need a numerator whose linear form is exact (see `tilec.arith.facts`).
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tilec.arith.bounds import Interval
from tilec.arith.forms import Form
from tilec.diagnostics import Span
from tilec.ir.dtype import DType
from tilec.ir.expr import Binary, Const, Expr
from tilec.ir.operators import BinOp

if TYPE_CHECKING:
    from tilec.arith.facts import Facts


def same_quotient(interval: Interval, divisor: int) -> int | None:
    """The floor quotient that all integers of an interval share, or None."""
    if not interval.is_finite:
        return None
    low = int(interval.lo) // divisor
    return low if int(interval.hi) // divisor == low else None


class WrapsError(Exception):
    """A numerator that a rule would make may wrap around; the rule does not apply."""


class Divider:
    """Divides the forms of one dtype; new nodes get `span`.

    Args:
        index: whether arithmetic is assumed not to overflow. Where it is not, methods raise
            `WrapsError` rather than make a numerator that may.
    """

    def __init__(self, facts: Facts, dtype: DType, span: Span, index: bool) -> None:
        self._index = index
        self._facts = facts
        self._keys = facts.keys
        self._dtype = dtype
        self._span = span

    def _node(self, op: BinOp, form: Form, divisor: int) -> Form:
        if not self._index:
            limits = Interval(*self._dtype.int_range)
            if not self._facts.form_bounds(form).within(limits):
                raise WrapsError
        value = self._keys.emit(form, self._dtype, self._span)
        right = Const(divisor, self._dtype, span=self._span)
        return self._keys.atom(Binary(op, value, right, self._dtype, span=self._span))

    def _split(self, form: Form, divisor: int) -> tuple[Form, Form]:
        """Quotient and rest: ``form = quotient * divisor + rest``, the rest without multiples."""
        quotient, rest = Form(), Form()
        for key, coeff in form.terms.items():
            if coeff % divisor == 0:
                quotient.terms[key] = coeff // divisor
                continue
            # A variable known to be a multiple of something may divide where its coefficient
            # alone does not.
            need = divisor // gcd(coeff, divisor)
            if self._facts.residue(self._keys.atoms[key]).residue(need) == 0:
                part = self._node(BinOp.FLOORDIV, Form(0, {key: 1}), need)
                quotient = quotient.plus(part, coeff * need // divisor)
                continue
            rest.terms[key] = coeff
        whole, rest.const = divmod(form.const, divisor)
        return Form(quotient.const + whole, quotient.terms), rest

    def floordiv(self, form: Form, divisor: int) -> Form:
        """The form of ``form // divisor`` for a constant divisor > 0."""
        if divisor == 1:
            return form
        quotient, rest = self._split(form, divisor)
        known = same_quotient(self._facts.form_bounds(rest), divisor)
        if known is not None:
            return quotient.plus(Form(known))
        common = gcd(divisor, *rest.terms.values())
        if common > 1:
            inner = Form(rest.const // common, {k: c // common for k, c in rest.terms.items()})
            return quotient.plus(self.floordiv(inner, divisor // common))
        found = self._big_and_small(rest, divisor)
        if found is not None:
            big, _, shift, unit = found
            inner = Form(big.const + shift, big.terms)
            return quotient.plus(self.floordiv(inner, divisor // unit))
        nested = self._nested(rest, BinOp.FLOORDIV)
        if nested is not None and nested[1] * divisor <= self._dtype.int_range[1]:
            return quotient.plus(self.floordiv(nested[0], nested[1] * divisor))
        return quotient.plus(self._node(BinOp.FLOORDIV, rest, divisor))

    def floormod(self, form: Form, divisor: int) -> Form:
        """The form of ``form % divisor`` for a constant divisor > 0."""
        if divisor == 1:
            return Form()
        _, rest = self._split(form, divisor)
        known = same_quotient(self._facts.form_bounds(rest), divisor)
        if known is not None:
            return rest.plus(Form(known * divisor), -1)
        common = gcd(divisor, *rest.terms.values())
        if common > 1:
            inner = Form(rest.const // common, {k: c // common for k, c in rest.terms.items()})
            result = self.floormod(inner, divisor // common).times(common)
            return result.plus(Form(rest.const % common))
        found = self._big_and_small(rest, divisor)
        if found is not None:
            big, small, shift, unit = found
            inner = Form(big.const + shift, big.terms)
            known = same_quotient(self._facts.form_bounds(inner), divisor // unit)
            if known is not None:
                low = inner.plus(Form(known * (divisor // unit)), -1)
                return low.times(unit).plus(small).plus(Form(shift * unit), -1)
        nested = self._nested(rest, BinOp.FLOORMOD)
        if nested is not None and nested[1] % divisor == 0:
            return self.floormod(nested[0], divisor)
        return self._node(BinOp.FLOORMOD, rest, divisor)

    def _big_and_small(self, form: Form, divisor: int) -> tuple[Form, Form, int, int] | None:
        """``form = big * unit + small``, all values of small in one step of a `unit` dividing
        the divisor; returns big, small, the index of that step, and the unit."""
        units = {gcd(c, divisor) for c in form.terms.values()} - {1}
        for unit in sorted(units, reverse=True):
            big = Form(0, {k: c // unit for k, c in form.terms.items() if c % unit == 0})
            small = Form(form.const, {k: c for k, c in form.terms.items() if c % unit})
            shift = same_quotient(self._facts.form_bounds(small), unit)
            if shift is not None:
                return big, small, shift, unit
        return None

    def _nested(self, form: Form, op: BinOp) -> tuple[Form, int] | None:
        """Numerator and divisor where the form is ``x op constant`` with an exact x."""
        single = form.monomial
        if single is None or single[1] != 1:
            return None
        atom = self._keys.atoms[single[0]]
        if isinstance(atom, Binary) and atom.op is op and isinstance(atom.rhs, Const):
            divisor = int(atom.rhs.value)
            if divisor > 0 and self._facts.exact(atom.lhs):
                return self._keys.form(atom.lhs), divisor
        return None

    def symbolic(self, form: Form, divisor: Expr) -> tuple[Form, Form] | None:
        """Quotient and rest for a divisor that is a variable or product of variables.

        None unless the divisor is positive and the rest provably lies in ``[0, divisor)``.
        """
        single = self._keys.form(divisor).monomial
        if single is None or single[1] != 1 or self._facts.bounds(divisor).lo < 1:
            return None
        quotient, rest = Form(), Form(form.const)
        for key, coeff in form.terms.items():
            part = self._keys.divide_monomial(key, single[0], self._dtype)
            if part is None:
                rest.terms[key] = coeff
            else:
                quotient = quotient.plus(part, coeff)
        if self._facts.form_bounds(rest).lo < 0:
            return None
        if self._facts.form_bounds(rest.plus(Form(0, {single[0]: 1}), -1)).hi >= 0:
            return None
        return quotient, rest


def merge_div_mod(facts: Facts, form: Form) -> Form:
    """``(x // c) * c * k + (x % c) * k`` is ``x * k``, for every x and c > 0."""
    for key, coeff in list(form.terms.items()):
        atom = facts.keys.atoms[key]
        if not (isinstance(atom, Binary) and atom.op is BinOp.FLOORMOD):
            continue
        if not isinstance(atom.rhs, Const) or int(atom.rhs.value) <= 0 or key not in form.terms:
            continue
        quotient = Binary(BinOp.FLOORDIV, atom.lhs, atom.rhs, atom.dtype, span=atom.span)
        other = facts.keys.key(quotient)
        if form.terms.get(other) == coeff * int(atom.rhs.value):
            terms = {k: c for k, c in form.terms.items() if k not in (key, other)}
            form = Form(form.const, terms).plus(facts.keys.form(atom.lhs), coeff)
    return form


def nonzero(interval: Interval) -> bool:
    """Whether 0 is excluded."""
    return bool(interval.lo > 0 or interval.hi < 0)
