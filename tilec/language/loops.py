"""Loop kinds: what a ``for`` statement of a kernel iterates over."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.diagnostics import OperandError, ShapeError, Span

_INT32, _INT64 = ir.DType("int32"), ir.DType("int64")


class LoopSpec:
    """A run-time loop that has not been entered yet."""

    def __init__(
        self,
        kind: str,
        bounds: tuple[Any, ...],
        annotations: dict[str, Any],
        *,
        as_tuple: bool = False,
    ) -> None:
        self.kind = kind
        self.bounds = bounds
        self.annotations = annotations
        self.as_tuple = as_tuple
        self._vars: tuple[ir.Var, ...] = ()

    def variables(self, targets: tuple[str, ...], span: Span) -> tuple[ir.Var, ...]:
        """The loop variables, called like the loop's targets."""
        count = len(self.bounds) if self.kind in ("parallel", "grid") else 1
        if len(targets) != count and not (len(targets) == 1 and count > 1):
            raise OperandError(
                f"this loop has {count} variable(s) but {len(targets)} name(s)", span=span
            )
        names = targets if len(targets) == count else [f"{targets[0]}_{n}" for n in range(count)]
        self.as_tuple = len(targets) == 1 and count > 1
        dtype = _INT64 if any(_is_wide(b) for b in self.bounds) else _INT32
        self._vars = tuple(ir.Var(n, dtype, span=span) for n in names)
        return self._vars

    def build(self, body: ir.Stmt, span: Span) -> ir.Stmt:
        """The loop statement around `body`."""
        dtype = self._vars[0].dtype if self._vars else _INT32
        bounds = tuple(ir.cast(ir.as_expr(b), dtype) for b in self.bounds)
        if self.kind == "parallel":
            return ir.Parallel(self._vars, bounds, self.annotations, body, span=span)
        zero, one = ir.Const(0, dtype), ir.Const(1, dtype)
        if self.kind == "grid":
            for var, stop in reversed(list(zip(self._vars, bounds, strict=True))):
                body = ir.For(var, zero, stop, one, "serial", {}, body, span=span)
            return body
        start, stop, step = bounds
        return ir.For(
            self._vars[0], start, stop, step, self.kind, self.annotations, body, span=span
        )

    def __iter__(self) -> Any:
        raise OperandError(
            f"a T.{self.kind} loop is the iterable of a `for` statement in a kernel",
            span=ir.caller_span(),
        )


def _is_wide(bound: Any) -> bool:
    if isinstance(bound, ir.Expr):
        return bound.dtype in ("int64", "uint64", "uint32")
    return isinstance(bound, int) and not -(2**31) <= bound < 2**31


def _bounds(what: str, start: Any, stop: Any, step: Any) -> tuple[Any, ...]:
    if stop is None:
        start, stop = 0, start
    return _checked(what, start, stop, step)


def _extent(what: str, extent: Any) -> Any:
    """One extent of a nest, which has no default."""
    return _checked(what, 0, extent, 1)[1]


def _checked(what: str, start: Any, stop: Any, step: Any) -> tuple[Any, ...]:
    result = []
    for label, value in (("start", start), ("stop", stop), ("step", step)):
        value = ir.fold_int(value)
        if isinstance(value, bool) or not isinstance(value, (int, ir.Expr)):
            raise OperandError(
                f"{what}: {label} is {ir.describe(value)}, not an integer", span=ir.caller_span()
            )
        if isinstance(value, ir.Expr) and not value.dtype.is_integer:
            raise OperandError(
                f"{what}: {label} has dtype {value.dtype!s}, not an integer type",
                span=ir.caller_span(),
                hint="cast it with T.cast(x, 'int32')",
            )
        result.append(value)
    if result[2] == 0 if isinstance(result[2], int) else False:
        raise ShapeError(f"{what}: step is 0", span=ir.caller_span())
    return tuple(result)


def serial(
    start: Any, stop: Any = None, step: Any = 1, *, annotations: dict[str, Any] | None = None
) -> Any:
    """``for i in T.serial(stop)`` or ``(start, stop[, step])``: a sequential loop.

    ``range(...)`` in a kernel means the same. `step` may be negative.
    """
    bounds = _bounds("T.serial", start, stop, 1 if step is None else step)
    return LoopSpec("serial", bounds, dict(annotations or {}))


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: dict[str, Any] | None = None,
) -> Any:
    """A loop to unroll; `explicit` unrolls in the IR, `unroll_factor` limits the factor.

    Raises:
        ShapeError: `explicit` together with `unroll_factor`.
    """
    if explicit and unroll_factor is not None:
        raise ShapeError(
            "T.unroll: explicit=True and unroll_factor exclude each other", span=ir.caller_span()
        )
    notes = dict(annotations or {})
    if explicit:
        notes["explicit"] = True
    if unroll_factor is not None:
        notes["unroll_factor"] = int(unroll_factor)
    return LoopSpec("unroll", _bounds("T.unroll", start, stop, 1 if step is None else step), notes)


def vectorized(start: Any, stop: Any = None, *, annotations: dict[str, Any] | None = None) -> Any:
    """A loop whose iterations are wanted as vector lanes; the result is that of the loop."""
    return LoopSpec("vectorized", _bounds("T.vectorized", start, stop, 1), dict(annotations or {}))


def Pipelined(  # noqa: N802
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: list[int] | None = None,
    stage: list[int] | None = None,
    annotations: dict[str, Any] | None = None,
) -> Any:
    """A loop whose copies may run `num_stages` trips ahead; the result is the serial one.

    Raises:
        OperandError: a negative or non-integer `num_stages`, or only one of `order` and `stage`.
    """
    span = ir.caller_span()
    if isinstance(num_stages, bool) or not isinstance(num_stages, int) or num_stages < 0:
        raise OperandError(
            f"T.Pipelined: num_stages is {num_stages!r}",
            span=span,
            hint="a non-negative int; 0 is a plain loop",
        )
    if (order is None) != (stage is None):
        raise OperandError("T.Pipelined: order and stage are given together", span=span)
    notes = dict(annotations or {})
    notes["num_stages"] = num_stages
    if order is not None and stage is not None:
        if len(order) != len(stage):
            raise OperandError("T.Pipelined: order and stage differ in length", span=span)
        notes["order"], notes["stage"] = list(order), list(stage)
    return LoopSpec("pipelined", _bounds("T.Pipelined", start, stop, 1), notes)


def Parallel(  # noqa: N802
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: dict[str, Any] | None = None,
) -> Any:
    """``for i, j in T.Parallel(M, N)``: independent iterations; the compiler maps them.

    Keyword arguments are hints.
    """
    if not extents:
        raise OperandError("T.Parallel needs at least one extent", span=ir.caller_span())
    bounds = tuple(_extent("T.Parallel", e) for e in extents)
    notes = dict(annotations or {})
    for key, value in (
        ("coalesced_width", coalesced_width),
        ("loop_layout", loop_layout),
        ("prefer_async", prefer_async),
    ):
        if value is not None:
            notes[key] = value
    return LoopSpec("parallel", bounds, notes)


def grid(*extents: Any) -> Any:
    """``for i, j in T.grid(M, N)``: nested serial loops."""
    bounds = tuple(_extent("T.grid", e) for e in extents)
    return LoopSpec("grid", bounds, {})
