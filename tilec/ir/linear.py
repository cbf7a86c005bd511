"""Integer expressions as linear combinations: enough algebra for slices and shapes.

``A[i*64:(i+1)*64]`` has extent 64; finding that out is a subtraction of linear forms.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.dtype import INT32, INT64
from tilec.ir.expr import Binary, Const, Expr, Unary, Var, as_expr
from tilec.ir.operators import BinOp, UnOp

Key = tuple[Any, ...]


def atom_key(expr: Expr) -> Key:
    """A hashable key: equal for expressions that are the same value in one scope."""
    from tilec.ir.structural import tokens

    return tuple(tokens(expr))


class Linear:
    """``const + sum(coeff * atom)`` over mathematical integers."""

    __slots__ = ("atoms", "const", "terms")

    def __init__(self, const: int = 0) -> None:
        self.const = const
        self.terms: dict[Key, int] = {}
        self.atoms: dict[Key, Expr] = {}

    def add(self, other: Linear, scale: int = 1) -> None:
        """Add ``scale * other`` in place."""
        self.const += scale * other.const
        for key, coeff in other.terms.items():
            total = self.terms.get(key, 0) + scale * coeff
            if total:
                self.terms[key] = total
                self.atoms.setdefault(key, other.atoms[key])
            else:
                self.terms.pop(key, None)


def linear(expr: Any) -> Linear:
    """The linear form of an int or integer expression (non-linear parts are atoms)."""
    if isinstance(expr, int):
        return Linear(int(expr))
    if isinstance(expr, Const) and expr.dtype.is_integer:
        return Linear(int(expr.value))
    if isinstance(expr, Binary) and expr.dtype in (INT32, INT64):
        if expr.op in (BinOp.ADD, BinOp.SUB):
            result = linear(expr.lhs)
            result.add(linear(expr.rhs), 1 if expr.op is BinOp.ADD else -1)
            return result
        if expr.op is BinOp.MUL:
            a, b = linear(expr.lhs), linear(expr.rhs)
            if not b.terms:
                a, b = b, a
            if not a.terms:
                result = Linear()
                result.add(b, a.const)
                return result
    if isinstance(expr, Unary) and expr.op is UnOp.NEG and expr.dtype in (INT32, INT64):
        result = Linear()
        result.add(linear(expr.value), -1)
        return result
    result = Linear()
    key: Key = ("var", id(expr)) if isinstance(expr, Var) else atom_key(expr)
    result.terms[key] = 1
    result.atoms[key] = expr
    return result


def to_expr(form: Linear) -> int | Expr:
    """The expression of a linear form (an int if it is constant)."""
    result: Any = None
    for key, coeff in form.terms.items():
        atom = form.atoms[key]
        term = atom if coeff == 1 else atom * coeff
        result = term if result is None else result + term
    if result is None:
        return form.const
    return result + form.const if form.const else result  # type: ignore[no-any-return]


def difference(a: Any, b: Any) -> int | Expr:
    """``a - b``, simplified; an int where the difference is constant."""
    form = linear(a if isinstance(a, int) else as_expr(a))
    form.add(linear(b if isinstance(b, int) else as_expr(b)), -1)
    return to_expr(form)


def fold_int(value: Any) -> Any:
    """A Python int where `value` is a constant integer, else `value` unchanged."""
    if isinstance(value, Const) and value.dtype.is_integer:
        return value.value
    if isinstance(value, Expr):
        if value.dtype in (INT32, INT64) and isinstance(value, (Binary, Unary)):
            form = linear(value)
            if not form.terms:
                return form.const
        return value
    item = getattr(value, "__index__", None)
    if item is not None and not isinstance(value, (bool, int)):
        return int(value)
    return value
