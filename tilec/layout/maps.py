"""What layouts and fragments share: index maps with a symbolic form and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilec.arith import Simplifier, evaluate
from tilec.diagnostics import InternalError, ShapeError
from tilec.ir import Const, DType, Expr, Var, as_expr, caller_span, cast, shape_text, substitute

INT32 = DType("int32")
Array = np.ndarray[Any, Any]
NAMES = "ijklmnpqrs"


def normal_shape(shape: Any, what: str) -> tuple[int, ...]:
    """A static shape as a tuple of positive ints.

    Raises:
        ShapeError: an extent is not a positive constant.
    """
    items = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    result = []
    for item in items:
        value = item.value if isinstance(item, Const) else item
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ShapeError(
                f"{what} of shape {shape_text(items)}: {item!r} is not a positive constant",
                span=caller_span(),
                hint="on-chip tiles have static shapes",
            )
        result.append(int(value))
    return tuple(result)


def index_vars(count: int) -> tuple[Var, ...]:
    """Variables for the dimensions of a map, with fixed names."""
    return tuple(Var(NAMES[n] if n < len(NAMES) else f"i{n}", INT32) for n in range(count))


def call_map(
    fn: Callable[..., Any], variables: Sequence[Var], what: str, count: int | None = None
) -> tuple[Expr, ...]:
    """The results of a user's index function as int32 expressions.

    Raises:
        ShapeError: the function does not take one argument per dimension, or does not return
            `count` integers.
    """
    try:
        result = fn(*variables)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # raised inside the function, not by calling it
        raise ShapeError(
            f"{what}: the function does not take {len(variables)} argument(s)",
            span=caller_span(),
            notes=(str(error),),
            hint="it gets one index per dimension",
        ) from None
    items = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    exprs = []
    for item in items:
        expr = as_expr(item)
        if not expr.dtype.is_integer:
            raise ShapeError(
                f"{what}: the function returned {expr!r} of type {expr.dtype!s}",
                span=caller_span(),
                hint="indices are integers",
            )
        exprs.append(cast(expr, INT32))
    if count is not None and len(exprs) != count:
        raise ShapeError(
            f"{what}: the function returned {len(exprs)} value(s) instead of {count}",
            span=caller_span(),
        )
    return tuple(exprs)


def simplified(
    exprs: Sequence[Expr], variables: Sequence[Var], extents: Sequence[int]
) -> tuple[Expr, ...]:
    """Expressions simplified with the ranges of the index variables."""
    facts = Simplifier()
    for var, extent in zip(variables, extents, strict=True):
        facts.bind_range(var, 0, extent - 1)
    return tuple(facts.simplify(e) for e in exprs)


def tabulate(expr: Expr, variables: Sequence[Var], extents: Sequence[int]) -> Array:
    """All values of an expression: an int64 array with one axis per variable.

    Raises:
        ShapeError: the expression has other variables, so that it has no table.
    """
    axes = np.ogrid[tuple(slice(e) for e in extents)] if extents else ()
    values = {v: np.asarray(a, np.int32) for v, a in zip(variables, axes, strict=True)}
    try:
        result = evaluate(expr, values)
    except InternalError:
        raise ShapeError(
            f"the index map `{expr!r}` depends on more than its own indices",
            span=expr.span,
            hint="use only the arguments of the function and constants",
        ) from None
    return np.broadcast_to(np.asarray(result, np.int64), tuple(extents))


def apply_exprs(
    exprs: Sequence[Expr], variables: Sequence[Var], indices: Sequence[Any], what: str
) -> tuple[Expr, ...]:
    """The expressions at the given indices, simplified without further facts."""
    if len(indices) != len(variables):
        raise ShapeError(
            f"{what} of rank {len(variables)} applied to {len(indices)} index(es)",
            span=caller_span(),
        )
    wide = [as_expr(i) for i in indices]
    values = {
        v: i if i.dtype == INT32 else cast(i, INT32) for v, i in zip(variables, wide, strict=True)
    }
    facts = Simplifier()
    return tuple(facts.simplify(substitute(e, values)) for e in exprs)


def flat_index(variables: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The row-major number of an index."""
    total: Any = 0
    for var, extent in zip(variables, extents, strict=True):
        total = total * extent + var
    return as_expr(total)


def unflatten(index: Any, extents: Sequence[int]) -> tuple[Any, ...]:
    """The row-major coordinates of a number."""
    result = []
    for n, extent in enumerate(reversed(extents)):
        last = n + 1 == len(extents)
        result.append(index if last else index % extent)
        index = index if last else index // extent
    return tuple(reversed(result))


def frozen(array: Array) -> Array:
    """The array, read-only."""
    result = np.ascontiguousarray(array)
    result.setflags(write=False)
    return result
