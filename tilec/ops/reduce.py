"""Reductions of a tile along one dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from tilec import ir
from tilec.diagnostics import DTypeError, OperandError, ShapeError
from tilec.ir import BinOp
from tilec.ops.base import TileOp, load, loop_vars, parallel, same_extent, serial, store

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
        dtype = self.src.dtype
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
        """The dtype in which elements are combined.

        The destination's; bool sources are counted in at least int32, and float16/bfloat16 sums
        are formed in float32.
        """
        dtype = self.dst.dtype
        if self.kind in ("sum", "abssum") and dtype.is_float and dtype.bits < 32:
            return ir.DType("float32")
        return dtype

    def combine(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """One step of the reduction on two values of the accumulator type."""
        result = ir.binary(_OPS[self.kind], a, b)
        if self.nan_propagate and a.dtype.is_float and self.kind in ("max", "min", "absmax"):
            result = ir.select(ir.binary(BinOp.NE, a, a), a, ir.select(b != b, b, result))
        return result

    def element(self, value: ir.Expr) -> ir.Expr:
        """What an element of the source contributes."""
        wide = ir.cast(value, self.accumulator)
        if self.kind.startswith("abs") and not wide.dtype.is_uint:
            return ir.Call("abs", (wide,), wide.dtype, span=self.span)
        return wide

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """The reduction with NumPy."""
        import numpy as np

        x = np.abs(inputs[0]) if self.kind.startswith("abs") else inputs[0]
        nan = self.nan_propagate
        fns: dict[str, Any] = {
            "sum": np.add, "abssum": np.add, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
            "bitxor": np.bitwise_xor, "max": np.maximum if nan else np.fmax,
            "absmax": np.maximum if nan else np.fmax, "min": np.minimum if nan else np.fmin,
        }  # fmt: skip
        fn = fns[self.kind]
        result = fn.reduce(x, axis=self.dim).reshape([int(e) for e in self.dst.extents])
        if not self.clear:
            old = np.abs(inputs[1]) if self.kind == "absmax" else inputs[1]
            result = fn(old, result)
        return (result,)

    def lower(self) -> ir.Stmt:
        """A parallel loop over rows with a serial loop along `dim` into a scalar."""
        src, dim = self.src.extents, self.dim
        outer = tuple(e for n, e in enumerate(src) if n != dim)
        variables = loop_vars(outer)
        step = ir.Var("r", ir.DType("int32"))
        src_at = (*variables[:dim], step, *variables[dim:])
        if len(self.dst.extents) == len(src):
            dst_at: tuple[Any, ...] = (*variables[:dim], 0, *variables[dim:])
        else:
            dst_at = variables or (0,)
        acc = ir.Buffer("acc", (1,), self.accumulator, "local.var")
        zero = (ir.literal(0, ir.DType("int32"), self.span),)
        value = ir.Load(acc, zero, acc.dtype, span=self.span)
        start: ir.Expr = identity(self.kind, acc.dtype)
        if not self.clear:
            start = ir.cast(load(self.dst, dst_at), acc.dtype)
            if self.kind == "absmax" and not acc.dtype.is_uint:
                start = ir.Call("abs", (start,), acc.dtype, span=self.span)
        update = ir.Store(
            acc, zero, self.combine(value, self.element(load(self.src, src_at))), span=self.span
        )
        # Partial results in any order are the same reduction, so a backend may use vectors.
        notes = {} if self.nan_propagate else {"reduction": self.kind}
        body = ir.seq(
            ir.Alloc(acc, start, span=self.span),
            serial(step, src[dim], update, self.span, notes),
            store(self.dst, dst_at, value),
        )
        return parallel(variables, outer, ir.Seq((body,)) if not variables else body, self.span)
