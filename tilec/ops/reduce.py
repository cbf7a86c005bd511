"""Reductions of a tile along one dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from tilec import ir
from tilec.diagnostics import DTypeError, OperandError, ShapeError
from tilec.ir import BinOp
from tilec.ops.base import INT32, TileOp, load, loop_vars, parallel, same_extent, serial, store

if TYPE_CHECKING:
    import numpy as np

KINDS = ("sum", "abssum", "max", "absmax", "min", "bitand", "bitor", "bitxor")
_OPS = {
    "sum": BinOp.ADD,
    "abssum": BinOp.ADD,
    "max": BinOp.MAX,
    "absmax": BinOp.MAX,
    "min": BinOp.MIN,
    "bitand": BinOp.BITAND,
    "bitor": BinOp.BITOR,
    "bitxor": BinOp.BITXOR,
}
_EXTREMA = ("max", "min", "absmax")


def identity(kind: str, dtype: ir.DType) -> ir.Const:
    """The neutral element of a reduction."""
    if kind in ("sum", "abssum", "absmax", "bitor", "bitxor"):
        return ir.Const(0.0 if dtype.is_float else 0, dtype)
    if kind == "bitand":
        return ir.Const(-1 if dtype.is_int else dtype.int_range[1], dtype)
    if dtype.is_float:
        return ir.Const(-math.inf if kind == "max" else math.inf, dtype)
    low, high = dtype.int_range
    return ir.Const(low if kind == "max" else high, dtype)


class Reduce(TileOp):
    """``dst = reduce(src, dim)``; with ``clear=False`` the old value of `dst` takes part.

    `dst` has the shape of `src` without `dim`, or with extent 1 there. Max and min ignore NaN
    unless `nan_propagate`. `batch` is a hint.
    """

    script_name: ClassVar[str] = "reduce"

    src: ir.BufferRegion
    dst: ir.BufferRegion
    kind: str
    dim: int
    clear: bool = ir.field(default=True)
    batch: int = ir.field(default=1)
    nan_propagate: bool = ir.field(default=False)
    annotations: dict[str, Any] | None = ir.field(default=None)

    def check(self) -> None:
        """Kind, dimension, shapes and dtypes."""
        span = ir.caller_span()
        rank = len(self.src.extents)
        if self.kind not in KINDS:
            raise OperandError(
                f"T.reduce: unknown kind {self.kind!r}",
                span=span,
                hint=f"one of {', '.join(KINDS)}",
            )
        if not isinstance(self.dim, int) or not 0 <= self.dim < rank:
            raise ShapeError(
                f"T.reduce_{self.kind}: {self.src.describe()} has no dimension {self.dim!r}",
                span=span,
                hint=f"dim is from {-rank} to {rank - 1}",
            )
        src = [*self.src.extents]
        dropped = src[: self.dim] + src[self.dim + 1 :]
        kept: list[Any] = [*src[: self.dim], 1, *src[self.dim + 1 :]]
        got = list(self.dst.extents)
        legal = [kept, dropped or [1]]
        if not any(
            len(got) == len(want)
            and all(same_extent(x, y) is not False for x, y in zip(got, want, strict=True))
            for want in legal
        ):
            raise ShapeError(
                f"T.reduce_{self.kind}: invalid output shape {ir.shape_text(got)} for "
                f"{ir.shape_text(src)} reduced along dim {self.dim}",
                span=span,
                hint=f"expected {ir.shape_text(legal[1])} or {ir.shape_text(legal[0])}",
            )
        for dtype in (self.src.dtype, self.dst.dtype):
            if self.kind.startswith("bit") and dtype.is_float:
                raise DTypeError(f"T.reduce_{self.kind} needs integers, got {dtype!s}", span=span)

    def reads(self) -> tuple[ir.BufferRegion, ...]:
        """The source, and the destination unless it is cleared."""
        return (self.src,) if self.clear else (self.src, self.dst)

    def writes(self) -> tuple[ir.BufferRegion, ...]:
        """The destination."""
        return (self.dst,)

    @property
    def accumulator(self) -> ir.DType:
        """Where elements are combined: the destination's dtype, float32 for narrow floats.

        A largest or smallest element is the same whether it is rounded before or after.
        """
        dtype = self.dst.dtype
        return ir.DType("float32") if dtype.is_float and dtype.bits < 32 else dtype

    def combine(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """One step of the reduction on two values of the accumulator type."""
        result = ir.binary(_OPS[self.kind], a, b)
        if self.nan_propagate and a.dtype.is_float and self.kind in _EXTREMA:
            result = ir.select(ir.binary(BinOp.NE, a, a), a, ir.select(b != b, b, result))
        return result

    def element(self, value: ir.Expr) -> ir.Expr:
        """What an element of the source contributes."""
        wide = ir.cast(value, self.accumulator)
        if self.kind.startswith("abs") and not wide.dtype.is_uint:
            return ir.Call("abs", (wide,), wide.dtype, span=self.span)
        return wide

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """The reduction with NumPy, in the accumulator's type."""
        import numpy as np

        from tilec.arith import evaluate_cast, value_dtype

        acc = self.accumulator
        x = np.asarray(evaluate_cast(inputs[0], self.src.dtype, acc))
        x = np.abs(x) if self.kind.startswith("abs") else x
        nan = self.nan_propagate
        fns: dict[str, Any] = {
            "sum": np.add, "abssum": np.add, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
            "bitxor": np.bitwise_xor, "max": np.maximum if nan else np.fmax,
            "absmax": np.maximum if nan else np.fmax, "min": np.minimum if nan else np.fmin,
        }  # fmt: skip
        fn = fns[self.kind]
        start = identity(self.kind, acc).value
        result = fn.reduce(x, axis=self.dim, initial=start, dtype=value_dtype(acc))
        result = result.reshape([int(e) for e in self.dst.extents])
        if not self.clear:
            old = np.abs(inputs[1]) if self.kind == "absmax" else inputs[1]
            result = fn(old, result)
        return (result,)

    @property
    def _keeps_nan(self) -> bool:
        return self.nan_propagate and self.dst.dtype.is_float and self.kind in _EXTREMA

    def contribution(self, old: ir.Expr) -> ir.Expr:
        """What the old value of a destination contributes."""
        wide = ir.cast(old, self.accumulator)
        if self.kind == "absmax" and not wide.dtype.is_uint:
            return ir.Call("abs", (wide,), wide.dtype, span=self.span)
        return wide

    def _old(self, dst_at: tuple[Any, ...]) -> ir.Expr:
        return self.contribution(load(self.dst, dst_at))

    def lower(self) -> ir.Stmt:
        """Loops that read the source in the order of its storage."""
        inner = self.src.extents[self.dim + 1 :]
        if all(isinstance(e, int) for e in inner) and math.prod(inner) > 1:
            return self._lower_columns()
        return self.lower_rows()

    def _indices(
        self, variables: tuple[Any, ...], step: ir.Var
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Offsets into source and destination."""
        dim = self.dim
        src_at = (*variables[:dim], step, *variables[dim:])
        if len(self.dst.extents) == len(self.src.extents):
            return src_at, (*variables[:dim], 0, *variables[dim:])
        return src_at, variables or (0,)

    def lower_rows(self) -> ir.Stmt:
        """A parallel loop over rows, a loop along `dim` into a variable of the iteration."""
        src, dim = self.src.extents, self.dim
        outer = src[:dim] + src[dim + 1 :]
        variables = loop_vars(outer)
        step = ir.Var("r", INT32)
        src_at, dst_at = self._indices(variables, step)
        acc = ir.Buffer("acc", (1,), self.accumulator, ir.LOCAL_VAR)
        start = identity(self.kind, acc.dtype)
        item = self.element(load(self.src, src_at))
        stmts = [_accumulate(acc, _OPS[self.kind], item, self.span)]
        before: list[ir.Stmt] = [ir.Alloc(acc, start, span=self.span)]
        result: ir.Expr = _value(acc, self.span)
        if self._keeps_nan:
            # Vector maxima ignore NaN, so whether there was one is collected beside them.
            seen = ir.Buffer("seen_nan", (1,), INT32, ir.LOCAL_VAR)
            is_nan = ir.cast(ir.binary(BinOp.NE, item, item), INT32)
            stmts.append(_accumulate(seen, BinOp.BITOR, is_nan, self.span))
            before.append(ir.Alloc(seen, ir.Const(0, INT32), span=self.span))
            cond = ir.binary(BinOp.NE, _value(seen, self.span), ir.Const(0, INT32))
            result = ir.select(cond, ir.Const(math.nan, acc.dtype), result)
        if not self.clear:
            result = self.combine(self._old(dst_at), result)
        extent = (ir.cast(ir.as_expr(src[dim]), INT32),)
        notes = {"reduction": self.kind}
        loop = ir.Parallel((step,), extent, notes, ir.seq(*stmts), span=self.span)
        body = ir.seq(*before, loop, store(self.dst, dst_at, result))
        return parallel(variables, outer, body, self.span)

    def _lower_columns(self) -> ir.Stmt:
        """A loop along `dim` that adds whole rows to a row of sums."""
        src, dim = self.src.extents, self.dim
        lead, tail = src[:dim], src[dim + 1 :]
        acc = ir.Buffer("acc", tail, self.accumulator, ir.LOCAL)
        whole = acc.region()
        variables = loop_vars(lead)
        step = ir.Var("r", INT32)

        def rows(make: Any) -> ir.Stmt:
            inner = loop_vars(tail, "jklmn")
            return parallel(inner, tail, make(inner), self.span)

        def update(inner: tuple[ir.Var, ...]) -> ir.Stmt:
            src_at, _ = self._indices((*variables, *inner), step)
            item = self.element(load(self.src, src_at))
            return store(whole, inner, self.combine(load(whole, inner), item))

        def finish(inner: tuple[ir.Var, ...]) -> ir.Stmt:
            _, dst_at = self._indices((*variables, *inner), step)
            result: ir.Expr = load(whole, inner)
            if not self.clear:
                result = self.combine(self._old(dst_at), result)
            return store(self.dst, dst_at, result)

        start = identity(self.kind, acc.dtype)
        body = ir.Seq(
            (
                ir.Alloc(acc, span=self.span),
                rows(lambda inner: store(whole, inner, start)),
                serial(step, src[dim], rows(update), self.span),
                rows(finish),
            )
        )
        return parallel(variables, lead, body, self.span)


def _value(acc: ir.Buffer, span: Any) -> ir.Load:
    return ir.Load(acc, (ir.Const(0, INT32),), acc.dtype, span=span)


def _accumulate(acc: ir.Buffer, op: BinOp, item: ir.Expr, span: Any) -> ir.Stmt:
    """``acc = acc op item``."""
    value = ir.binary(op, _value(acc, span), item)
    return ir.Store(acc, (ir.Const(0, INT32),), value, span=span)
