"""Rules for comparisons and logical operators."""

from __future__ import annotations

import math

from tilec.arith import bounds as iv
from tilec.arith.facts import FLIPPED, NEGATED, Facts
from tilec.arith.forms import Form
from tilec.ir.dtype import BOOL
from tilec.ir.expr import Binary, Const, Expr, Unary
from tilec.ir.operators import COMPARISONS, BinOp, UnOp


class BooleanRules(Facts):
    """Mixed into the simplifier, which supplies `simplify`."""

    def simplify(self, expr: Expr) -> Expr:
        """An expression of the same value and dtype."""
        raise NotImplementedError

    def _gap(self, lhs: Expr, rhs: Expr) -> iv.Interval:
        """Bounds of ``lhs - rhs`` over mathematical integers."""
        a, b = self.bounds(lhs), self.bounds(rhs)
        plain = iv.Interval(a.lo - b.hi, a.hi - b.lo)
        if self.exact(lhs) and self.exact(rhs):
            form = self.keys.form(lhs).plus(self.keys.form(rhs), -1)
            both = iv.intersect(plain, self.form_bounds(form))
            return plain if both.is_empty else both
        return plain

    def _comparison(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        known = self.known_truth(node)
        if known is not None:
            return Const(known, BOOL, span=node.span)
        dtype = lhs.dtype
        if dtype.is_float:
            return node
        if dtype.is_bool:
            return self._bool_comparison(node, lhs, rhs)
        decided = _decide(node.op, self._gap(lhs, rhs))
        exact = self.exact(lhs) and self.exact(rhs)
        if decided is None and exact and node.op in (BinOp.EQ, BinOp.NE):
            form = self.keys.form(lhs).plus(self.keys.form(rhs), -1)
            residue = self.form_residue(form)
            if (residue.coeff == 0 and residue.base) or (
                residue.coeff > 1 and residue.base % residue.coeff
            ):
                decided = node.op is BinOp.NE
        if decided is not None:
            return Const(decided, BOOL, span=node.span)
        if exact and self.is_index(lhs) and self.is_index(rhs):
            return self._balanced(node, lhs, rhs)
        return node

    def _bool_comparison(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        if node.op not in (BinOp.EQ, BinOp.NE):
            return node
        for const, other in ((lhs, rhs), (rhs, lhs)):
            if isinstance(const, Const):
                if bool(const.value) is (node.op is BinOp.EQ):
                    return other
                return self.simplify(Unary(UnOp.NOT, other, BOOL, span=node.span))
        return node

    def _balanced(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        """A comparison of index expressions with common parts cancelled."""
        a, b = self.keys.form(lhs), self.keys.form(rhs)
        form = a.plus(b, -1)
        common = math.gcd(*form.terms.values())
        against_const = all(c > 0 for c in form.terms.values()) or all(
            c < 0 for c in form.terms.values()
        )
        divides = common > 1 and (against_const or form.const % common == 0)
        cancels = len(form.terms) < len(a.terms) + len(b.terms)
        if not (divides or cancels or (a.const and (b.const or not b.terms))):
            return node
        op = node.op
        if len(form.terms) == 0:
            return node
        if all(c < 0 for c in form.terms.values()):
            form, op = form.times(-1), FLIPPED[op]
        terms = {k: c // common for k, c in form.terms.items()} if divides else form.terms
        limit = -form.const
        if divides:
            if op in (BinOp.LT, BinOp.GE):
                limit = -(-limit // common)
            elif op in (BinOp.LE, BinOp.GT):
                limit = limit // common
            elif limit % common:
                return Const(op is BinOp.NE, BOOL, span=node.span)
            else:
                limit //= common
        left = Form(0, {k: c for k, c in terms.items() if c > 0})
        right = Form(limit, {k: -c for k, c in terms.items() if c < 0})
        low, high = lhs.dtype.int_range
        if not low <= limit <= high:
            return node
        new_left = self.keys.emit(left, lhs.dtype, lhs.span)
        new_right = self.keys.emit(right, lhs.dtype, rhs.span)
        result = Binary(op, new_left, new_right, BOOL, span=node.span)
        return node if self.keys.key(result) == self.keys.key(node) else result

    def _logical(self, node: Binary) -> Expr:
        is_and = node.op is BinOp.AND
        lhs = self.simplify(node.lhs)
        if isinstance(lhs, Const):
            return self.simplify(node.rhs) if bool(lhs.value) is is_and else lhs
        with self.scope():
            self.add_condition(lhs, is_and)
            rhs = self.simplify(node.rhs)
        if isinstance(rhs, Const):
            if bool(rhs.value) is is_and:
                return lhs
            if self.keys.pure(lhs):
                return Const(not is_and, BOOL, span=node.span)
        elif self.keys.pure(lhs) and self.keys.pure(rhs):
            if self.keys.key(lhs) == self.keys.key(rhs):
                return lhs
            known = self.known_truth(node)
            if known is not None:
                return Const(known, BOOL, span=node.span)
        if lhs is node.lhs and rhs is node.rhs:
            return node
        return Binary(node.op, lhs, rhs, node.dtype, span=node.span)

    def _not(self, node: Unary, value: Expr) -> Expr:
        if self.keys.pure(value):
            known = self.known_truth(value)
            if known is not None:
                return Const(not known, BOOL, span=node.span)
        # With NaN around, only equality of floats has an exact opposite.
        if (
            isinstance(value, Binary)
            and value.op in COMPARISONS
            and value.dtype == BOOL
            and (not value.lhs.dtype.is_float or value.op in (BinOp.EQ, BinOp.NE))
        ):
            return value.replace(op=NEGATED[value.op])
        return node


def _decide(op: BinOp, gap: iv.Interval) -> bool | None:
    """The truth of ``a op b`` from the bounds of ``a - b``."""
    lo, hi = gap
    if op is BinOp.LT:
        return True if hi < 0 else False if lo >= 0 else None
    if op is BinOp.LE:
        return True if hi <= 0 else False if lo > 0 else None
    if op is BinOp.GT:
        return True if lo > 0 else False if hi <= 0 else None
    if op is BinOp.GE:
        return True if lo >= 0 else False if hi < 0 else None
    equal = True if lo == hi == 0 else False if lo > 0 or hi < 0 else None
    return equal if op is BinOp.EQ or equal is None else not equal
