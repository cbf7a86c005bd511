"""Simplification of scalar expressions under scoped facts.

Every rewrite keeps the value in the semantics of `tilec.arith.semantics` for all operands, under
the assumption about index expressions stated in `tilec.arith.facts`. Floats are folded when
constant and otherwise left alone but for ``x * 1``, ``x / 1``, ``x - 0.0``, ``x + -0.0`` and double
negation: nothing is re-associated, nothing that could be NaN or -0.0 disappears. Loads are never
duplicated; calls with effects are neither dropped, duplicated nor moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import is_
from typing import Any

from tilec.arith.booleans import BooleanRules
from tilec.arith.casts import CastRules
from tilec.arith.division import Divider, WrapsError, merge_div_mod, nonzero
from tilec.arith.forms import Form
from tilec.arith.intrinsics import FOLDABLE, evaluate_call
from tilec.arith.semantics import (
    canonical_const,
    evaluate_binary,
    evaluate_unary,
)
from tilec.diagnostics import DTypeError
from tilec.ir.buffer import BufferRegion
from tilec.ir.dtype import BOOL, INT32, INT64, DType
from tilec.ir.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var
from tilec.ir.node import Node
from tilec.ir.operators import COMPARISONS, BinOp, UnOp
from tilec.ir.visitor import map_children

_DIVISIONS = frozenset({BinOp.FLOORDIV, BinOp.FLOORMOD, BinOp.TRUNCDIV, BinOp.TRUNCMOD})
_FLOOR_OF = {BinOp.TRUNCDIV: BinOp.FLOORDIV, BinOp.TRUNCMOD: BinOp.FLOORMOD}


class Simplifier(BooleanRules, CastRules):
    """Simplifies expressions; the facts of `tilec.arith.facts.Facts` are added to it.

    Not thread-safe; make one per function.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rules: dict[type, Callable[[Any], Expr]] = {
            Const: canonical_const,
            Var: self._var,
            Binary: self._binary,
            Unary: self._unary,
            Select: self._select,
            Cast: self._cast,
            Call: self._call,
        }

    def __call__(self, expr: Expr) -> Expr:
        return self.simplify(expr)

    def simplify(self, expr: Expr) -> Expr:
        """An expression of the same value and dtype; the same object if nothing changed."""
        known = self._memo.get(id(expr))
        if known is not None:
            return known[1]
        rule = self._rules.get(type(expr))
        result = rule(expr) if rule is not None else self._generic(expr)
        self._memo[id(expr)] = (expr, result)
        self._memo[id(result)] = (result, result)
        return result

    def simplify_node(self, node: Any) -> Any:
        """Simplify an expression, or the expressions below any other node but a buffer."""
        if isinstance(node, Expr):
            return self.simplify(node)
        if isinstance(node, BufferRegion):
            mins = tuple(self.simplify(m) for m in node.mins)
            extents = tuple(self._extent(e) for e in node.extents)
            same = all(map(is_, mins, node.mins)) and all(map(is_, extents, node.extents))
            return node if same else node.replace(mins=mins, extents=extents)
        return map_children(node, self.simplify_node) if isinstance(node, Node) else node

    def _extent(self, extent: int | Expr) -> int | Expr:
        new = extent if isinstance(extent, int) else self.simplify(extent)
        return new if isinstance(new, int) or not isinstance(new, Const) else int(new.value)

    def prove(self, cond: Expr | bool) -> bool:
        """Whether `cond` holds for all values that the facts allow."""
        if isinstance(cond, bool):
            return cond
        result = self.simplify(cond)
        return isinstance(result, Const) and bool(result.value)

    def equal(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions provably have the same value."""
        a, b = self.simplify(a), self.simplify(b)
        if not (self.keys.pure(a) and self.keys.pure(b)):
            return a is b
        if self.keys.key(a) == self.keys.key(b):
            return True
        same = Binary(BinOp.EQ, a, b, BOOL)
        return a.dtype == b.dtype and self.prove(same)

    # Helpers

    def _generic(self, expr: Expr) -> Expr:
        return map_children(expr, self.simplify_node)

    def _var(self, node: Var) -> Expr:
        alias = self._aliases.get(id(node))
        if alias is not None:
            return self.simplify(alias[1])
        found = self._ranges.get(id(node))
        value = found[1].value if found is not None else None
        return node if value is None else Const(value, node.dtype, span=node.span)

    def _rebuilt(self, old: Expr, form: Form, dtype: DType) -> Expr:
        """The expression of a form, or `old` if that is what it says already."""
        new = self.keys.emit(merge_div_mod(self, form), dtype, old.span)
        return old if self.keys.key(new) == self.keys.key(old) else new

    # Nodes

    def _binary(self, node: Binary) -> Expr:
        if node.op is BinOp.AND or node.op is BinOp.OR:
            return self._logical(node)
        lhs, rhs = self.simplify(node.lhs), self.simplify(node.rhs)
        if lhs is not node.lhs or rhs is not node.rhs:
            node = Binary(node.op, lhs, rhs, node.dtype, span=node.span)
        dtype = lhs.dtype
        if isinstance(lhs, Const) and isinstance(rhs, Const):
            return self._folded(node, lhs, rhs)
        if dtype.lanes != 1 or not (self.keys.pure(lhs) and self.keys.pure(rhs)):
            return node
        if node.op in COMPARISONS:
            return self._comparison(node, lhs, rhs)
        if dtype.is_float:
            return self._float(node, lhs, rhs)
        if dtype.is_bool:
            return self._bool(node, lhs, rhs)
        return self._constant(self._integer(node, lhs, rhs))

    def _folded(self, node: Binary, lhs: Const, rhs: Const) -> Expr:
        if lhs.dtype.is_float and node.op not in COMPARISONS:
            a, b = canonical_const(lhs).value, canonical_const(rhs).value
        else:
            a, b = lhs.value, rhs.value
        try:
            value = evaluate_binary(node.op, a, b, lhs.dtype)
        except (DTypeError, KeyError):
            return node
        return Const(value, node.dtype, span=node.span)

    def _float(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        left = lhs.value if isinstance(lhs, Const) else None
        right = rhs.value if isinstance(rhs, Const) else None
        op = node.op
        if op is BinOp.MUL:
            if right == 1:
                return lhs
            return rhs if left == 1 else node
        if op is BinOp.DIV:
            return lhs if right == 1 else node
        if op is BinOp.ADD:
            if _is_zero(right, negative=True):
                return lhs
            return rhs if _is_zero(left, negative=True) else node
        if op is BinOp.SUB:
            return lhs if _is_zero(right, negative=False) else node
        if op in (BinOp.MIN, BinOp.MAX) and self.keys.key(lhs) == self.keys.key(rhs):
            return rhs
        return node

    def _bool(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        for const, other in ((lhs, rhs), (rhs, lhs)):
            if isinstance(const, Const):
                if node.op in (BinOp.BITAND, BinOp.MIN):
                    return other if const.value else const
                if node.op in (BinOp.BITOR, BinOp.MAX):
                    return const if const.value else other
                if node.op is BinOp.BITXOR and not const.value:
                    return other
        return node

    def _integer(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        op, dtype = node.op, node.dtype
        if op is BinOp.ADD or op is BinOp.SUB or op is BinOp.MUL:
            return self._rebuilt(node, self.keys.form(node), dtype)
        if op in _DIVISIONS:
            return self._division(node, lhs, rhs)
        if op is BinOp.MIN or op is BinOp.MAX:
            return self._extremum(node, lhs, rhs)
        if op is BinOp.SHL or op is BinOp.SHR:
            return self._shift(node, lhs, rhs)
        return self._bitwise(node, lhs, rhs)

    def _division(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        dtype, op = node.dtype, node.op
        a, b = self.bounds(lhs), self.bounds(rhs)
        if op in _FLOOR_OF and a.lo >= 0 and b.lo >= 0:
            op = _FLOOR_OF[op]
            node = Binary(op, lhs, rhs, dtype, span=node.span)
        is_div = op in (BinOp.FLOORDIV, BinOp.TRUNCDIV)
        zero = Const(0, dtype, span=node.span)
        if a.value == 0 or b.value == 0:
            return zero
        if b.value == 1:
            return lhs if is_div else zero
        if b.value == -1 and dtype.is_int:
            negated = self.keys.form(lhs).times(-1)
            return self._rebuilt(node, negated, dtype) if is_div else zero
        if self.keys.key(lhs) == self.keys.key(rhs) and nonzero(b):
            return Const(1, dtype, span=node.span) if is_div else zero
        if a.lo >= 0 and a.hi < b.lo:
            return zero if is_div else lhs
        if op in _FLOOR_OF:
            return node
        return self._floor_division(node, lhs, rhs, is_div)

    def _floor_division(self, node: Binary, lhs: Expr, rhs: Expr, is_div: bool) -> Expr:
        dtype = node.dtype
        divisor = self.bounds(rhs).value
        if divisor is not None and divisor > 1:
            op = BinOp.FLOORDIV if is_div else BinOp.FLOORMOD
            return self._rebuilt(node, self._divided(node, lhs, divisor, op)[1], dtype)
        if divisor is None and self.is_index(lhs):
            divider = Divider(self, dtype, node.span, True)
            found = divider.symbolic(self.keys.form(lhs), rhs)
            if found is not None:
                return self._rebuilt(node, found[0 if is_div else 1], dtype)
        return node

    def _divided(self, node: Binary, lhs: Expr, divisor: int, op: BinOp) -> tuple[Form, Form]:
        """The numerator's form and that of its quotient or remainder."""
        divider = Divider(self, node.dtype, node.span, self.is_index(lhs))
        divide = divider.floordiv if op is BinOp.FLOORDIV else divider.floormod
        if self.exact(lhs):
            form = self.keys.form(lhs)
            try:
                return form, divide(form, divisor)
            except WrapsError:
                pass
        # The numerator still divides as one opaque value.
        form = self.keys.atom(lhs)
        return form, divide(form, divisor)

    def _extremum(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        if self.keys.key(lhs) == self.keys.key(rhs):
            return lhs
        low, high = self._gap(lhs, rhs)
        smaller, larger = (lhs, rhs) if node.op is BinOp.MIN else (rhs, lhs)
        if high <= 0:
            return smaller
        if low >= 0:
            return larger
        if isinstance(lhs, Const):
            lhs, rhs = rhs, lhs
        if isinstance(rhs, Const) and isinstance(lhs, Binary) and lhs.op is node.op:
            for const, other in ((lhs.rhs, lhs.lhs), (lhs.lhs, lhs.rhs)):
                if isinstance(const, Const):
                    value = evaluate_binary(node.op, const.value, rhs.value, node.dtype)
                    bound = Const(value, node.dtype, span=rhs.span)
                    return Binary(node.op, other, bound, node.dtype, span=node.span)
        return node

    def _shift(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        count = rhs.value if isinstance(rhs, Const) else None
        if count is None:
            return node
        count = int(count)
        dtype, zero = node.dtype, Const(0, node.dtype, span=node.span)
        if count == 0:
            return lhs
        if not 0 <= count < dtype.bits:
            if node.op is BinOp.SHL or self.bounds(lhs).lo >= 0:
                return zero
            return node
        if node.op is BinOp.SHL:
            index = dtype in (INT32, INT64) and self.is_index(lhs)
            return self._rebuilt(node, self.keys.form(node), dtype) if index else node
        if count < dtype.bits - 1:
            return self._if_resolved(node, lhs, 1 << count, BinOp.FLOORDIV)
        return node

    def _if_resolved(self, node: Binary, lhs: Expr, divisor: int, op: BinOp) -> Expr:
        """`node` as a division or remainder of `lhs`, if no division is left in the result."""
        form, result = self._divided(node, lhs, divisor, op)
        before = set(form.terms)
        if any(key not in before for key in result.terms):
            return node
        return self._rebuilt(node, result, node.dtype)

    def _bitwise(self, node: Binary, lhs: Expr, rhs: Expr) -> Expr:
        if isinstance(lhs, Const) and node.op in (BinOp.BITAND, BinOp.BITOR, BinOp.BITXOR):
            lhs, rhs = rhs, lhs
        same = self.keys.key(lhs) == self.keys.key(rhs)
        value = int(rhs.value) if isinstance(rhs, Const) else None
        ones = -1 if node.dtype.is_int else node.dtype.int_range[1]
        zero = Const(0, node.dtype, span=node.span)
        if node.op is BinOp.BITAND:
            if same or value == ones:
                return lhs
            if value == 0:
                return zero
            if value is not None and value > 0 and value & (value + 1) == 0:
                return self._if_resolved(node, lhs, value + 1, BinOp.FLOORMOD)
        elif node.op is BinOp.BITOR:
            if same or value == 0:
                return lhs
            if value == ones:
                return rhs
        elif node.op is BinOp.BITXOR:
            if same:
                return zero
            if value == 0:
                return lhs
        elif node.op is BinOp.POW:
            if value == 0:
                return Const(1, node.dtype, span=node.span)
            if value == 1:
                return lhs
        return node

    def _unary(self, node: Unary) -> Expr:
        value = self.simplify(node.value)
        if value is not node.value:
            node = Unary(node.op, value, node.dtype, span=node.span)
        if isinstance(value, Const):
            number = canonical_const(value).value
            return Const(evaluate_unary(node.op, number, value.dtype), node.dtype, span=node.span)
        if (
            isinstance(value, Unary)
            and value.op is node.op
            and not (node.op is UnOp.NEG and value.dtype.is_bool)
        ):
            return value.value
        if node.op is UnOp.NOT:
            return self._not(node, value)
        scalar = node.dtype.is_integer and node.dtype.lanes == 1
        if node.op is UnOp.NEG and scalar and self.keys.pure(value):
            return self._constant(self._rebuilt(node, self.keys.form(node), node.dtype))
        return node

    def _select(self, node: Select) -> Expr:
        cond = self.simplify(node.cond)
        if isinstance(cond, Const):
            return self.simplify(node.then if cond.value else node.other)
        with self.scope():
            self.add_condition(cond, True)
            then = self.simplify(node.then)
        with self.scope():
            self.add_condition(cond, False)
            other = self.simplify(node.other)
        if self.keys.pure(cond) and self.keys.pure(then) and self.keys.pure(other):
            if self.keys.key(then) == self.keys.key(other):
                return then
            if isinstance(then, Const) and isinstance(other, Const) and node.dtype == BOOL:
                if then.value:
                    return cond
                return self.simplify(Unary(UnOp.NOT, cond, BOOL, span=node.span))
        if cond is node.cond and then is node.then and other is node.other:
            return node
        return Select(cond, then, other, node.dtype, span=node.span)

    def _call(self, node: Call) -> Expr:
        new: Any = self._generic(node)
        if not (new.args and new.name in FOLDABLE and not new.attrs and new.dtype.lanes == 1):
            return new  # type: ignore[no-any-return]
        args = new.args
        if all(isinstance(a, Const) and a.dtype == args[0].dtype for a in args):
            values = [canonical_const(a).value for a in args]
            try:
                value = evaluate_call(new.name, values, new.dtype, args[0].dtype)
            except DTypeError:
                return new  # type: ignore[no-any-return]
            return Const(value, new.dtype, span=new.span)
        if new.dtype.is_integer and self.keys.pure(new):
            if new.name == "abs" and self.bounds(args[0]).lo >= 0:
                return args[0]  # type: ignore[no-any-return]
            return self._constant(new)
        return new  # type: ignore[no-any-return]


def _is_zero(value: Any, *, negative: bool) -> bool:
    return value is not None and value == 0 and (math.copysign(1.0, value) < 0) is negative


def simplify(expr: Expr) -> Expr:
    """Simplify one expression without any facts."""
    return Simplifier().simplify(expr)
