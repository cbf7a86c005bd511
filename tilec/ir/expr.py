"""Scalar expressions and the operators that build them.

Operators on expressions are *staged*: ``a + b`` returns a node, ``a == b`` returns a comparison.
Compare nodes themselves with ``is`` or `tilec.ir.structural_equal`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tilec.diagnostics import (
    AmbiguousDivisionError,
    DTypeError,
    LiteralRangeError,
    OperandError,
    Span,
    StagedTruthError,
)
from tilec.ir.dtype import BOOL, FLOAT32, INT32, INT64, DType, promote
from tilec.ir.node import Node, field
from tilec.ir.operators import BITWISE, COMPARISONS, LOGICAL, SHIFTS, SYMBOL, BinOp, UnOp
from tilec.ir.span import caller_span

if TYPE_CHECKING:
    from tilec.ir.buffer import Buffer


class Expr(Node):
    """A scalar value known at run time. `dtype` is its element type."""

    if TYPE_CHECKING:

        @property
        def dtype(self) -> DType:
            """Element type."""

    def astype(self, dtype: object) -> Expr:
        """This value converted to `dtype` (C-style cast)."""
        return cast(self, dtype)

    def __add__(self, other: object) -> Expr:
        return binary(BinOp.ADD, self, other)

    def __radd__(self, other: object) -> Expr:
        return binary(BinOp.ADD, other, self)

    def __sub__(self, other: object) -> Expr:
        return binary(BinOp.SUB, self, other)

    def __rsub__(self, other: object) -> Expr:
        return binary(BinOp.SUB, other, self)

    def __mul__(self, other: object) -> Expr:
        return binary(BinOp.MUL, self, other)

    def __rmul__(self, other: object) -> Expr:
        return binary(BinOp.MUL, other, self)

    def __truediv__(self, other: object) -> Expr:
        return binary(BinOp.DIV, self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return binary(BinOp.DIV, other, self)

    def __floordiv__(self, other: object) -> Expr:
        return binary(BinOp.FLOORDIV, self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return binary(BinOp.FLOORDIV, other, self)

    def __mod__(self, other: object) -> Expr:
        return binary(BinOp.FLOORMOD, self, other)

    def __rmod__(self, other: object) -> Expr:
        return binary(BinOp.FLOORMOD, other, self)

    def __lshift__(self, other: object) -> Expr:
        return binary(BinOp.SHL, self, other)

    def __rlshift__(self, other: object) -> Expr:
        return binary(BinOp.SHL, other, self)

    def __rshift__(self, other: object) -> Expr:
        return binary(BinOp.SHR, self, other)

    def __rrshift__(self, other: object) -> Expr:
        return binary(BinOp.SHR, other, self)

    def __and__(self, other: object) -> Expr:
        return binary(BinOp.BITAND, self, other)

    def __rand__(self, other: object) -> Expr:
        return binary(BinOp.BITAND, other, self)

    def __or__(self, other: object) -> Expr:
        return binary(BinOp.BITOR, self, other)

    def __ror__(self, other: object) -> Expr:
        return binary(BinOp.BITOR, other, self)

    def __xor__(self, other: object) -> Expr:
        return binary(BinOp.BITXOR, self, other)

    def __rxor__(self, other: object) -> Expr:
        return binary(BinOp.BITXOR, other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary(BinOp.EQ, self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary(BinOp.NE, self, other)

    def __lt__(self, other: object) -> Expr:
        return binary(BinOp.LT, self, other)

    def __le__(self, other: object) -> Expr:
        return binary(BinOp.LE, self, other)

    def __gt__(self, other: object) -> Expr:
        return binary(BinOp.GT, self, other)

    def __ge__(self, other: object) -> Expr:
        return binary(BinOp.GE, self, other)

    __hash__ = object.__hash__

    def __neg__(self) -> Expr:
        return unary(UnOp.NEG, self)

    def __pos__(self) -> Expr:
        return self

    def __invert__(self) -> Expr:
        return unary(UnOp.NOT if self.dtype.is_bool else UnOp.BITNOT, self)

    def __abs__(self) -> Expr:
        return Call("abs", (self,), self.dtype, span=caller_span())

    def __pow__(self, other: object) -> NoReturn:
        raise OperandError(
            "`**` is not defined on run-time values",
            span=caller_span(),
            hint="use T.pow(x, y), or write x * x",
        )

    __rpow__ = __pow__
    __divmod__ = __pow__

    def __bool__(self) -> NoReturn:
        raise StagedTruthError(
            f"the truth of `{self!r}` is not known while the kernel is being compiled",
            span=caller_span(),
            hint="use `if`, `and`, `or`, `not` directly in the kernel's own source, or "
            "T.if_then_else / T.max / T.min in helper code",
        )

    def _no_python_value(self, what: str) -> NoReturn:
        raise StagedTruthError(
            f"`{self!r}` has no Python {what}: its value is known at run time only",
            span=caller_span(),
            hint="convert run-time values with T.cast(x, dtype)",
        )

    def __int__(self) -> NoReturn:
        self._no_python_value("int")

    def __float__(self) -> NoReturn:
        self._no_python_value("float")

    def __index__(self) -> NoReturn:  # noqa: PLE0305 - it always raises
        self._no_python_value("index")


class Var(Expr):
    """A named scalar: a parameter, a shape variable, a loop variable or a let."""

    name: str
    dtype: DType


class Const(Expr):
    """A literal. It denotes `value` rounded to `dtype` (integers are in range by construction)."""

    value: int | float | bool
    dtype: DType


class Binary(Expr):
    """``lhs op rhs``; both sides have the same dtype. `dtype` is bool for comparisons."""

    op: BinOp
    lhs: Expr
    rhs: Expr
    dtype: DType


class Unary(Expr):
    """``op value``; `dtype` is that of `value`."""

    op: UnOp
    value: Expr
    dtype: DType


class Select(Expr):
    """``then if cond else other``: only the chosen side is evaluated."""

    cond: Expr
    then: Expr
    other: Expr
    dtype: DType


class Cast(Expr):
    """`value` converted to `dtype`: C conversion rules, bool from number is ``x != 0``."""

    dtype: DType
    value: Expr


class Load(Expr):
    """One element of a buffer."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: DType


class Call(Expr):
    """An intrinsic: ``name(args)``. Open set; see `tilec.ir.intrinsics`."""

    name: str
    args: tuple[Any, ...]
    dtype: DType
    attrs: dict[str, Any] = field(default={})


PrimExpr = Expr  # the field's usual name


def is_const(value: object) -> bool:
    """Whether `value` is a Python number or a `Const`."""
    return isinstance(value, (bool, int, float, Const))


def const_value(value: object) -> int | float | bool | None:
    """The Python number behind a constant, or None."""
    if isinstance(value, Const):
        return value.value
    return value if isinstance(value, (bool, int, float)) else None


def literal(value: object, dtype: DType, span: Span | None = None) -> Const:
    """A Python number as a constant of `dtype`; a float for an integer type truncates.

    Raises:
        LiteralRangeError: the number does not fit an integer `dtype`.
    """
    if dtype.is_float:
        try:
            number: float = float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise LiteralRangeError(
                f"the literal {value!r} does not fit {dtype!s}", span=span or caller_span()
            ) from None
        return Const(number, dtype, span=span or caller_span())
    if dtype.is_bool:
        return Const(bool(value), dtype, span=span or caller_span())
    if isinstance(value, float) and not math.isfinite(value):
        raise LiteralRangeError(
            f"{value!r} cannot be a constant of type {dtype!s}", span=span or caller_span()
        )
    whole = int(value)  # type: ignore[call-overload]
    low, high = dtype.int_range
    if not low <= whole <= high:
        raise LiteralRangeError(
            f"the literal {whole} does not fit {dtype!s} ({low} to {high})",
            span=span or caller_span(),
            hint="use a wider dtype, or T.cast to wrap around on purpose",
        )
    return Const(whole, dtype, span=span or caller_span())


def as_expr(value: object, dtype: DType | None = None) -> Expr:
    """A staged value from an expression, a Python number or a NumPy scalar.

    Without `dtype` ints are int32 (int64 if they need it), floats float32, bools bool.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        if dtype is None:
            if isinstance(value, bool):
                dtype = BOOL
            elif isinstance(value, float):
                dtype = FLOAT32
            else:
                dtype = INT32 if -(2**31) <= value < 2**31 else INT64
        return literal(value, dtype)
    np_dtype = getattr(value, "dtype", None)
    item = getattr(value, "item", None)
    if np_dtype is not None and callable(item) and getattr(value, "shape", None) == ():
        return literal(item(), DType.of(np_dtype))
    element = getattr(value, "as_element", None)
    if callable(element):
        return element()  # type: ignore[no-any-return]
    raise OperandError(
        f"expected a scalar value, got {describe(value)}",
        span=caller_span(),
        hint="index a buffer to get a scalar, e.g. A[i]",
    )


def describe(value: object) -> str:
    """A short phrase for error messages."""
    what = getattr(value, "describe", None)
    if callable(what):
        return str(what())
    if callable(value) and hasattr(value, "__name__"):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    if isinstance(value, Expr):
        return f"`{value!r}` ({value.dtype!s})"
    return f"{type(value).__name__} {value!r}"[:80]


def _literal_type(number: bool | int | float, other: DType) -> DType:
    """The type a Python literal takes beside an operand of type `other`."""
    scalar = other.scalar
    if isinstance(number, bool):
        return BOOL if scalar.is_bool else scalar
    if isinstance(number, float):
        if scalar.is_float and scalar.bits >= 32:
            return scalar
        return FLOAT32
    if scalar.is_bool:
        return INT32
    if scalar == INT32 and not -(2**31) <= number < 2**31:
        return INT64
    return scalar


def match_types(a: object, b: object) -> tuple[Expr, Expr]:
    """Both operands as expressions of their promoted type."""
    if not isinstance(a, Expr) and isinstance(b, Expr) and isinstance(a, (bool, int, float)):
        a = literal(a, _literal_type(a, b.dtype))
    elif not isinstance(b, Expr) and isinstance(a, Expr) and isinstance(b, (bool, int, float)):
        b = literal(b, _literal_type(b, a.dtype))
    x, y = as_expr(a), as_expr(b)
    if x.dtype == y.dtype:
        return x, y
    if x.dtype.lanes != y.dtype.lanes:
        raise DTypeError(
            f"cannot combine {x.dtype!s} and {y.dtype!s}: they have {x.dtype.lanes} and "
            f"{y.dtype.lanes} lanes",
            span=caller_span(),
        )
    try:
        dtype = promote(x.dtype, y.dtype)
    except DTypeError as error:
        raise error.with_span(caller_span()) from None
    return cast(x, dtype), cast(y, dtype)


def fold_python(op: BinOp, a: object, b: object) -> Any:
    """Helpers such as T.max work on two Python numbers as Python would."""
    import operator as o

    table: dict[BinOp, Any] = {
        BinOp.MIN: min, BinOp.MAX: max, BinOp.TRUNCDIV: lambda p, q: int(p / q) if abs(p) < 2**52
        else (abs(p) // abs(q)) * (1 if (p < 0) == (q < 0) else -1),
        BinOp.TRUNCMOD: lambda p, q: p - q * table[BinOp.TRUNCDIV](p, q),
        BinOp.FLOORDIV: o.floordiv, BinOp.FLOORMOD: o.mod, BinOp.POW: o.pow,
        BinOp.SHL: o.lshift, BinOp.SHR: o.rshift, BinOp.BITAND: o.and_, BinOp.BITOR: o.or_,
        BinOp.BITXOR: o.xor,
    }  # fmt: skip
    return table[op](a, b)


def binary(op: BinOp, a: object, b: object) -> Expr:
    """Build ``a op b`` with the language's promotion rules.

    Raises:
        AmbiguousDivisionError: ``/`` between integers.
        DTypeError: an operator that the operand type does not have.
    """
    x, y = match_types(a, b)
    dtype = x.dtype
    span = caller_span()
    if op is BinOp.DIV and not dtype.is_float:
        raise AmbiguousDivisionError(
            f"`/` between integers ({x.dtype!s} and {y.dtype!s}) is ambiguous",
            span=span,
            hint="use `//` (floor), T.truncdiv (toward zero), or cast to a float type first",
        )
    if (op in BITWISE or op in SHIFTS) and dtype.is_float:
        raise DTypeError(
            f"`{SYMBOL[op]}` needs integer operands, got {describe(a)} and {describe(b)}",
            span=span,
            hint="T.reinterpret gives the bits of a float",
        )
    if op in LOGICAL:
        x, y, dtype = truth(x), truth(y), BOOL
    if op in COMPARISONS:
        dtype = BOOL if dtype.lanes == 1 else BOOL.with_lanes(dtype.lanes)
    return Binary(op, x, y, dtype, span=span)


def unary(op: UnOp, value: object) -> Expr:
    """Build a unary operation."""
    x = as_expr(value)
    if op is UnOp.NOT:
        x = truth(x)
    if op is UnOp.BITNOT and x.dtype.is_float:
        raise DTypeError(f"`~` needs an integer, got {x.dtype!s}", span=caller_span())
    if op is UnOp.NEG and isinstance(x, Const) and not x.dtype.is_bool:
        low, high = (-math.inf, math.inf) if x.dtype.is_float else x.dtype.int_range
        if low <= -x.value <= high or x.value != x.value:
            return x.replace(value=-x.value)
    if op is UnOp.NEG and x.dtype.is_bool:
        x = cast(x, INT32)
    return Unary(op, x, x.dtype, span=caller_span())


def truth(value: object) -> Expr:
    """`value` as a bool expression (numbers: ``value != 0``)."""
    x = as_expr(value)
    if x.dtype.scalar.is_bool:
        return x
    zero = literal(0, x.dtype.scalar)
    return Binary(BinOp.NE, x, zero, BOOL, span=caller_span())


def select(cond: object, then: object, other: object) -> Expr:
    """Build a lazy conditional value; the branches are promoted to one type."""
    x, y = match_types(then, other)
    return Select(truth(cond), x, y, x.dtype, span=caller_span())


def cast(value: object, dtype: object) -> Expr:
    """Convert to `dtype`; Python numbers become constants, equal types stay as they are."""
    target = DType.of(dtype)
    if isinstance(value, (bool, int, float)):
        return literal(value, target)
    x = as_expr(value)
    if x.dtype == target:
        return x
    # Beyond 2**53 a double is not exact, and rounding twice is not rounding once.
    if isinstance(x, Const) and target.is_float and not x.dtype.is_float and abs(x.value) < 2**53:
        return Const(float(x.value), target, span=x.span)
    return Cast(target, x, span=caller_span())


def all_of(values: Sequence[object]) -> Expr | bool:
    """Logical and of all values."""
    result: Any = True
    for value in values:
        result = value if result is True else binary(BinOp.AND, result, value)
    return result  # type: ignore[no-any-return]
