"""What is known about integer expressions in a scope: ranges, residues, conditions.

Overflow. The arithmetic wraps, but *index expressions* are assumed not to: expressions of type
int32 or int64 built from variables and constants (loop and block indices, shapes, scalar
parameters, lets of such). Values that come from memory or calls, variables marked with
`mark_data`, and every other integer type are reasoned about only as far as their intervals show
that nothing wraps.

Conditions that read memory are never remembered: a later store may change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilec.arith import bounds as iv, modular as md
from tilec.arith.bounds import Interval
from tilec.arith.forms import Form, Keys
from tilec.arith.modular import Modular
from tilec.ir.dtype import INT32, INT64, DType
from tilec.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from tilec.ir.operators import COMPARISONS, BinOp, UnOp

NEGATED: dict[BinOp, BinOp] = {
    BinOp.EQ: BinOp.NE, BinOp.NE: BinOp.EQ, BinOp.LT: BinOp.GE, BinOp.GE: BinOp.LT,
    BinOp.LE: BinOp.GT, BinOp.GT: BinOp.LE,
}  # fmt: skip
FLIPPED: dict[BinOp, BinOp] = {
    BinOp.EQ: BinOp.EQ, BinOp.NE: BinOp.NE, BinOp.LT: BinOp.GT, BinOp.GT: BinOp.LT,
    BinOp.LE: BinOp.GE, BinOp.GE: BinOp.LE,
}  # fmt: skip
_INDEX_OPS = frozenset(
    {
        BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.FLOORDIV, BinOp.FLOORMOD, BinOp.TRUNCDIV,
        BinOp.TRUNCMOD, BinOp.MIN, BinOp.MAX, BinOp.SHL, BinOp.SHR,
    }
)  # fmt: skip
_RING = frozenset({BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.SHL})
_DEPTH = 2
_MAX_FACTS = 24


def type_range(dtype: DType) -> Interval:
    """All values of an integer or bool type; everything for floats."""
    if dtype.is_integer or dtype.is_bool:
        return Interval(*dtype.int_range)
    return iv.EVERYTHING


class Facts:
    """Scoped knowledge and the analyses that use it."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.unreachable = False
        self._ranges: dict[int, tuple[Var, Interval]] = {}
        self._residues: dict[int, tuple[Var, Modular]] = {}
        self._data: dict[int, Var] = {}
        self._aliases: dict[int, tuple[Var, Expr]] = {}
        self._known: dict[int, bool] = {}
        self._linear: list[tuple[dict[int, int], Interval]] = []
        self._index: dict[int, tuple[Expr, bool]] = {}
        self._bounds: dict[int, tuple[Expr, Interval]] = {}
        self._memo: dict[int, tuple[Expr, Expr]] = {}

    # Scopes

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Facts added inside end with the block."""
        saved = (
            self._ranges, self._residues, self._known, self._linear, self._bounds, self._memo,
            self.unreachable,
        )  # fmt: skip
        self._ranges, self._residues = dict(self._ranges), dict(self._residues)
        self._known, self._linear = dict(self._known), list(self._linear)
        try:
            yield
        finally:
            (
                self._ranges, self._residues, self._known, self._linear, self._bounds, self._memo,
                self.unreachable,
            ) = saved  # fmt: skip

    def _changed(self) -> None:
        # New tables rather than cleared ones: an enclosing scope may hold the old.
        self._bounds, self._memo = {}, {}

    @contextmanager
    def assume(self, cond: Expr) -> Iterator[None]:
        """A scope in which `cond` holds."""
        with self.scope():
            self.add_condition(cond)
            yield

    def bind_range(self, var: Var, lo: Any, hi: Any) -> None:
        """`var` is in ``[lo, hi]`` until the enclosing scope ends; ints or expressions."""
        low = lo if isinstance(lo, (int, float)) else self.bounds(lo).lo
        high = hi if isinstance(hi, (int, float)) else self.bounds(hi).hi
        self._narrow_var(var, Interval(low, high))
        for bound, sign in ((lo, 1), (hi, -1)):
            if isinstance(bound, Expr) and type(bound) is not Const:
                self._add_order(bound, var, sign)
        self._changed()

    def _add_order(self, bound: Expr, var: Var, sign: int) -> None:
        if bound.dtype == var.dtype and self.exact(bound) and not self.keys.reads_memory(bound):
            form = self.keys.form(var).plus(self.keys.form(bound), -1).times(sign)
            self._add_linear(form, Interval(0, iv.INF))

    def bind_residue(self, var: Var, coeff: int, base: int) -> None:
        """`var` is `base` modulo `coeff` until the enclosing scope ends."""
        self._residues[id(var)] = (var, md.make(coeff, base))
        self._changed()

    def mark_data(self, var: Var) -> None:
        """`var` holds arbitrary data: its arithmetic may wrap."""
        self._data[id(var)] = var
        self._index = {}
        self._changed()

    def bind_value(self, var: Var, value: Expr) -> None:
        """`var` is a let of `value`."""
        if not (value.dtype.is_integer and var.dtype == value.dtype):
            return
        if not self.is_index(value):
            self.mark_data(var)
        self._narrow_var(var, self.bounds(value))
        residue = self.residue(value)
        if residue != md.ANYTHING:
            self._residues[id(var)] = (var, residue)
        if self.exact(value) and not self.keys.reads_memory(value):
            form = self.keys.form(var).plus(self.keys.form(value), -1)
            self._add_linear(form, Interval(0, 0))
        self._changed()

    def bind_alias(self, var: Var, value: Expr) -> None:
        """`var` is another name of a variable or constant, for good."""
        self._aliases[id(var)] = (var, value)
        self._changed()

    def add_condition(self, cond: Expr, truth: bool = True) -> None:
        """Remember that `cond` is true (or false) until the enclosing scope ends."""
        self._add_condition(cond, truth)
        self._changed()

    def _add_condition(self, cond: Expr, truth: bool) -> None:
        if type(cond) is Const:
            self.unreachable = self.unreachable or bool(cond.value) is not truth
            return
        if isinstance(cond, Unary) and cond.op is UnOp.NOT:
            self._add_condition(cond.value, not truth)
            return
        if isinstance(cond, Binary) and cond.op is (BinOp.AND if truth else BinOp.OR):
            self._add_condition(cond.lhs, truth)
            self._add_condition(cond.rhs, truth)
            return
        if self.keys.reads_memory(cond):
            return
        self._known[self.keys.key(cond)] = truth
        if isinstance(cond, Binary) and cond.op in COMPARISONS:
            self._add_comparison(cond, truth)

    def _add_comparison(self, cond: Binary, truth: bool) -> None:
        lhs, rhs = cond.lhs, cond.rhs
        if lhs.dtype.is_float or lhs.dtype.lanes != 1:
            return
        op = cond.op if truth else NEGATED[cond.op]
        if lhs.dtype.is_bool or not (self.exact(lhs) and self.exact(rhs)):
            return
        form = self.keys.form(lhs).plus(self.keys.form(rhs), -1)
        inf = iv.INF
        ranges = {
            BinOp.LT: Interval(-inf, -1), BinOp.LE: Interval(-inf, 0), BinOp.GT: Interval(1, inf),
            BinOp.GE: Interval(0, inf), BinOp.EQ: Interval(0, 0),
        }  # fmt: skip
        if op is not BinOp.NE:
            self._add_linear(form, ranges[op])
        else:
            have = self.form_bounds(form)
            if have.lo == 0:
                self._add_linear(form, Interval(1, inf))
            elif have.hi == 0:
                self._add_linear(form, Interval(-inf, -1))
        if op is BinOp.EQ:
            self._add_residue(lhs, rhs)

    def _add_residue(self, lhs: Expr, rhs: Expr) -> None:
        """``x % c == k`` says something about the variable x."""
        if (
            isinstance(lhs, Binary)
            and lhs.op is BinOp.FLOORMOD
            and type(lhs.lhs) is Var
            and isinstance(lhs.rhs, Const)
            and isinstance(rhs, Const)
            and 0 <= rhs.value < lhs.rhs.value
        ):
            self._residues[id(lhs.lhs)] = (lhs.lhs, md.make(int(lhs.rhs.value), int(rhs.value)))

    def _add_linear(self, form: Form, interval: Interval) -> None:
        """``form`` lies in `interval`."""
        if not form.terms:
            self.unreachable = self.unreachable or form.const not in interval
            return
        rest = Interval(interval.lo - form.const, interval.hi - form.const)
        if len(form.terms) == 1:
            key, coeff = next(iter(form.terms.items()))
            atom = self.keys.atoms[key]
            lo, hi = (rest.lo, rest.hi) if coeff > 0 else (-rest.hi, -rest.lo)
            size = abs(coeff)
            tight = Interval(
                lo if lo in (iv.INF, -iv.INF) else -((-lo) // size),
                hi if hi in (iv.INF, -iv.INF) else hi // size,
            )
            if isinstance(atom, Var):
                self._narrow_var(atom, tight)
                return
            form, rest = Form(0, {key: 1}), tight
        if len(self._linear) < _MAX_FACTS:
            self._linear.append((form.terms, rest))

    def _narrow_var(self, var: Var, interval: Interval) -> None:
        known = self._ranges.get(id(var))
        old = known[1] if known is not None else type_range(var.dtype)
        new = iv.intersect(old, interval)
        if new.is_empty:
            self.unreachable = True
            return
        self._ranges[id(var)] = (var, new)

    def known_truth(self, cond: Expr) -> bool | None:
        """Whether `cond`, or its negation, was assumed as it stands."""
        if not self._known:
            return None
        found = self._known.get(self.keys.key(cond))
        if found is None and isinstance(cond, Binary) and cond.op in COMPARISONS:
            # a > b is the same question as b < a; negations exist for integers only.
            flipped = Binary(FLIPPED[cond.op], cond.rhs, cond.lhs, cond.dtype)
            found = self._known.get(self.keys.key(flipped))
            if found is None and not cond.lhs.dtype.is_float:
                inverse = Binary(NEGATED[cond.op], cond.lhs, cond.rhs, cond.dtype)
                found = self._known.get(self.keys.key(inverse))
                if found is not None:
                    found = not found
        return found

    # Analyses

    def is_index(self, expr: Expr) -> bool:
        """Whether this is an index expression, whose arithmetic is assumed not to overflow."""
        kind = type(expr)
        if expr.dtype not in (INT32, INT64):
            return False
        if kind is Const:
            return True
        if kind is Var:
            return id(expr) not in self._data
        known = self._index.get(id(expr))
        if known is not None:
            return known[1]
        result = False
        node: Any = expr
        if kind is Binary:
            result = node.op in _INDEX_OPS and self.is_index(node.lhs) and self.is_index(node.rhs)
        elif kind is Unary:
            result = node.op is UnOp.NEG and self.is_index(node.value)
        elif kind is Select:
            result = self.is_index(node.then) and self.is_index(node.other)
            result = result and self._is_index_condition(node.cond)
        elif kind is Cast:
            result = self.is_index(node.value)
        self._index[id(expr)] = (expr, result)
        return result

    def _is_index_condition(self, cond: Expr) -> bool:
        if isinstance(cond, Binary):
            if cond.op in COMPARISONS:
                return self.is_index(cond.lhs) and self.is_index(cond.rhs)
            return self._is_index_condition(cond.lhs) and self._is_index_condition(cond.rhs)
        if isinstance(cond, Unary):
            return self._is_index_condition(cond.value)
        return type(cond) is Const or type(cond) is Var

    def exact(self, expr: Expr) -> bool:
        """Whether the linear form of `expr` is its value (nothing in it wraps)."""
        if type(expr) is Const or type(expr) is Var or self.is_index(expr):
            return True
        form = self.keys.form(expr)
        if form.monomial is not None and form.monomial == (self.keys.key(expr), 1):
            return True
        return self.form_bounds(form).within(type_range(expr.dtype))

    def bounds(self, expr: Expr) -> Interval:
        """An interval that holds every value of an integer or bool expression."""
        kind = type(expr)
        if kind is Const:
            value: Any = expr.value  # type: ignore[attr-defined]
            return iv.EVERYTHING if isinstance(value, float) else Interval(int(value), int(value))
        if kind is Var:
            found = self._ranges.get(id(expr))
            return found[1] if found is not None else type_range(expr.dtype)
        known = self._bounds.get(id(expr))
        if known is not None:
            return known[1]
        limits = type_range(expr.dtype)
        if limits == iv.EVERYTHING or expr.dtype.lanes != 1:
            return iv.EVERYTHING
        # A fact may lead from an expression back to itself, which then counts as unknown.
        self._bounds[id(expr)] = (expr, limits)
        result = self._compute_bounds(expr)
        if not result.within(limits):
            # Either nothing overflows by assumption, or whatever wraps may be anywhere.
            result = iv.intersect(result, limits) if self.is_index(expr) else limits
            if result.is_empty:
                result = limits
        self._bounds[id(expr)] = (expr, result)
        return result

    def _compute_bounds(self, expr: Expr) -> Interval:
        kind = type(expr)
        node: Any = expr
        if kind is Binary:
            if node.op in _RING and not expr.dtype.is_bool:
                form = self.keys.form(expr)
                own = form.monomial
                if own is None or own != (self.keys.key(expr), 1):
                    return self.form_bounds(form)
            return self._binary_bounds(node)
        if kind is Unary and node.op is UnOp.NEG:
            return iv.scale(self.bounds(node.value), -1)
        if kind is Select:
            return iv.hull(self.bounds(node.then), self.bounds(node.other))
        if kind is Cast and not node.value.dtype.is_float:
            return self.bounds(node.value)
        if kind is Call and node.name == "clamp" and len(node.args) == 3:
            value, low, high = map(self.bounds, node.args)
            raised = Interval(max(value.lo, low.lo), max(value.hi, low.hi))
            return Interval(min(raised.lo, high.lo), min(raised.hi, high.hi))
        if kind is Call and node.name == "abs":
            inner = self.bounds(node.args[0])
            least: Any = 0 if inner.lo <= 0 <= inner.hi else min(abs(inner.lo), abs(inner.hi))
            return Interval(least, max(abs(inner.lo), abs(inner.hi)))
        return type_range(expr.dtype)

    def _binary_bounds(self, node: Binary) -> Interval:
        op = node.op
        if node.dtype.is_bool:
            return iv.TRUTH
        a, b = self.bounds(node.lhs), self.bounds(node.rhs)
        if op is BinOp.MUL:
            return iv.multiply(a, b)
        if op is BinOp.FLOORDIV:
            return iv.floordiv(a, b)
        if op is BinOp.FLOORMOD:
            return iv.floormod(a, b)
        if op is BinOp.TRUNCDIV:
            return iv.truncdiv(a, b)
        if op is BinOp.TRUNCMOD:
            return iv.truncmod(a, b)
        if op is BinOp.MIN:
            return Interval(min(a.lo, b.lo), min(a.hi, b.hi))
        if op is BinOp.MAX:
            return Interval(max(a.lo, b.lo), max(a.hi, b.hi))
        if op is BinOp.BITAND:
            return iv.bitand(a, b)
        if op in (BinOp.BITOR, BinOp.BITXOR):
            return iv.bitor(a, b)
        if op is BinOp.SHR:
            return iv.shift_right(a, b, node.dtype.bits)
        return type_range(node.dtype)

    def form_bounds(self, form: Form) -> Interval:
        """Bounds of a linear form over mathematical integers."""
        return self._form_bounds(form.terms, form.const, _DEPTH)

    def _form_bounds(self, terms: dict[int, int], const: int, depth: int) -> Interval:
        lo: Any = const
        hi: Any = const
        for key, coeff in terms.items():
            part = iv.scale(self._atom_bounds(key), coeff)
            lo, hi = lo + part.lo, hi + part.hi
        result = Interval(lo, hi)
        if depth and terms and self._linear:
            for fact, interval in self._linear:
                result = self._with_fact(result, terms, const, fact, interval, depth)
        return result

    def _with_fact(
        self,
        result: Interval,
        terms: dict[int, int],
        const: int,
        fact: dict[int, int],
        interval: Interval,
        depth: int,
    ) -> Interval:
        """Tighten bounds by cancelling one term against a known inequality."""
        tried: set[int] = set()
        for key, unit in fact.items():
            coeff = terms.get(key)
            if coeff is None or coeff % unit or coeff // unit in tried:
                continue
            factor = coeff // unit
            tried.add(factor)
            rest = dict(terms)
            for other, value in fact.items():
                total = rest.get(other, 0) - factor * value
                if total:
                    rest[other] = total
                else:
                    rest.pop(other, None)
            if len(rest) >= len(terms) + len(fact) - 1:
                continue
            base = self._form_bounds(rest, const, depth - 1)
            new = iv.intersect(result, iv.add(base, iv.scale(interval, factor)))
            result = result if new.is_empty else new
        return result

    def _atom_bounds(self, key: int) -> Interval:
        atom = self.keys.atoms[key]
        if type(atom) is Var:
            return self.bounds(atom)
        known = self._bounds.get(id(atom))
        if known is not None:
            return known[1]
        if isinstance(atom, (Load, Call)):
            return self.bounds(atom)
        if isinstance(atom, Binary) and atom.op in _RING:
            # A product of atoms: its own linear form would lead back here.
            result = self._product_bounds(atom)
            limits = type_range(atom.dtype)
            if not result.within(limits):
                result = iv.intersect(result, limits) if self.is_index(atom) else limits
            return limits if result.is_empty else result
        return self.bounds(atom)

    def _product_bounds(self, atom: Binary) -> Interval:
        a, b = self.bounds(atom.lhs), self.bounds(atom.rhs)
        if atom.op is BinOp.MUL:
            return iv.multiply(a, b)
        return type_range(atom.dtype)

    def residue(self, expr: Expr) -> Modular:
        """What an integer expression is modulo something."""
        kind = type(expr)
        if kind is Const:
            value: Any = expr.value  # type: ignore[attr-defined]
            return md.ANYTHING if isinstance(value, float) else md.constant(int(value))
        if kind is Var:
            found = self._residues.get(id(expr))
            return found[1] if found is not None else md.ANYTHING
        node: Any = expr
        if kind is Select:
            return md.union(self.residue(node.then), self.residue(node.other))
        if kind is Cast and node.value.dtype.is_integer and expr.dtype.is_integer:
            inner = self.bounds(node.value)
            return self.residue(node.value) if inner.within(type_range(expr.dtype)) else md.ANYTHING
        if kind is Binary and not expr.dtype.is_bool and not expr.dtype.is_float:
            return self._binary_residue(node)
        return md.ANYTHING

    def _binary_residue(self, node: Binary) -> Modular:
        if node.op in (BinOp.FLOORDIV, BinOp.FLOORMOD) and isinstance(node.rhs, Const):
            inner = self.residue(node.lhs)
            divisor = int(node.rhs.value)
            if node.op is BinOp.FLOORDIV:
                return md.floordiv(inner, divisor)
            return md.floormod(inner, divisor)
        if node.op in (BinOp.MIN, BinOp.MAX):
            return md.union(self.residue(node.lhs), self.residue(node.rhs))
        if node.op in _RING and self.exact(node):
            form = self.keys.form(node)
            if form.monomial != (self.keys.key(node), 1):
                return self.form_residue(form)
            if node.op is BinOp.MUL:
                return md.multiply(self.residue(node.lhs), self.residue(node.rhs))
        return md.ANYTHING

    def form_residue(self, form: Form) -> Modular:
        """What a linear form over mathematical integers is modulo something."""
        result = md.constant(form.const)
        for key, coeff in form.terms.items():
            result = md.add(result, md.scale(self.residue(self.keys.atoms[key]), coeff))
        return result
