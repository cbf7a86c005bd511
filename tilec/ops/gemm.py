"""Matrix multiplication of tiles."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from tilec import ir
from tilec.diagnostics import DTypeError, GemmShapeError, ShapeError
from tilec.ops.base import TileOp, is_one, load, loop_vars, parallel, same_extent, serial, store

if TYPE_CHECKING:
    import numpy as np


class GemmWarpPolicy(IntEnum):
    """How groups of lanes tile the M and N dimensions of a gemm; a hint."""

    Square = 0
    FullRow = 1
    FullCol = 2


class Gemm(TileOp):
    """``C = (0 if clear_accum else C) + op(A) @ op(B)`` on the last two dimensions.

    Products and sums are formed in C's dtype. Leading dimensions are 1.
    """

    script_name: ClassVar[str] = "gemm"
    squeezes: ClassVar[bool] = True

    A: ir.BufferRegion
    B: ir.BufferRegion
    C: ir.BufferRegion
    transpose_A: bool = ir.field(default=False)
    transpose_B: bool = ir.field(default=False)
    policy: GemmWarpPolicy = ir.field(default=GemmWarpPolicy.Square)
    clear_accum: bool | ir.Expr = ir.field(default=False)
    annotations: dict[str, Any] | None = ir.field(default=None)

    def shape(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        m, k = self.A.extents[-2:]
        n = self.B.extents[-2 if self.transpose_B else -1]
        if self.transpose_A:
            m, k = k, m
        assert isinstance(m, int)
        assert isinstance(n, int)
        assert isinstance(k, int)
        return m, n, k

    def check(self) -> None:
        """Ranks, M, K, N, static extents and dtypes, in this order."""
        span = ir.caller_span()
        for name, operand in (("A", self.A), ("B", self.B), ("C", self.C)):
            if len(operand.extents) < 2:
                raise GemmShapeError(
                    f"T.gemm: {name} is {operand.describe()}; a matrix has two dimensions",
                    span=span,
                    hint="give a vector a second dimension of extent 1, or reduce the products",
                )
            if not all(is_one(e) for e in operand.extents[:-2]):
                raise GemmShapeError(
                    f"T.gemm: leading dimensions of {name}, {operand.describe()}, are not 1",
                    span=span,
                )
        a, b, c = (list(r.extents[-2:]) for r in (self.A, self.B, self.C))
        m_a, k_a = reversed(a) if self.transpose_A else a
        k_b, n_b = reversed(b) if self.transpose_B else b
        m_c, n_c = c
        for what, x, y, ax, ay in (
            ("M", m_a, m_c, "A", "C"),
            ("K", k_a, k_b, "A", "B"),
            ("N", n_b, n_c, "B", "C"),
        ):
            if same_extent(x, y) is False:
                raise GemmShapeError(
                    f"T.gemm {what} shape check failed: {what}_{ax} = {x}, {what}_{ay} = {y}",
                    span=span,
                    notes=(self._shapes(),),
                    hint="check the tile shapes and transpose_A / transpose_B",
                )
        for what, value in (("M", m_a), ("N", n_b), ("K", k_a)):
            if not isinstance(value, int):
                raise ShapeError(
                    f"T.gemm needs static extents, {what} is `{value!r}`",
                    span=span,
                    hint="tile the dimension by a constant block size",
                )
        da, db, dc = self.A.dtype, self.B.dtype, self.C.dtype
        narrow = all(d.code.startswith(("float8", "float6", "float4")) for d in (da, db))
        if da != db and not narrow and not (da.is_integer and db.is_integer and da.bits == db.bits):
            raise DTypeError(
                f"T.gemm: A is {da!s} and B is {db!s}; both operands have one dtype",
                span=span,
                hint="T.copy into a tile of the other dtype converts",
            )
        if da.is_bool or dc.is_bool or da.is_float != dc.is_float:
            raise DTypeError(f"T.gemm: operands of {da!s} cannot accumulate into {dc!s}", span=span)
        if dc.bits < da.bits:
            raise DTypeError(
                f"T.gemm: the accumulator {dc!s} is narrower than the operands {da!s}", span=span
            )

    def _shapes(self) -> str:
        """The operands' shapes, for messages."""
        a = f"A is {ir.shape_text(self.A.extents)}{' transposed' if self.transpose_A else ''}"
        b = f"B is {ir.shape_text(self.B.extents)}{' transposed' if self.transpose_B else ''}"
        return f"{a}, {b}, C is {ir.shape_text(self.C.extents)}"

    def reads(self) -> tuple[ir.BufferRegion, ...]:
        """A, B, and C unless it is cleared."""
        return (self.A, self.B) if self.clear_accum is True else (self.A, self.B, self.C)

    def writes(self) -> tuple[ir.BufferRegion, ...]:
        """C."""
        return (self.C,)

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """``C + op(A) @ op(B)`` in float64 or int64."""
        import numpy as np

        wide = np.float64 if self.C.dtype.is_float else np.int64
        a, b = (x.reshape(x.shape[-2:]).astype(wide) for x in inputs[:2])
        a = a.T if self.transpose_A else a
        b = b.T if self.transpose_B else b
        result = a @ b
        if len(inputs) == 3 and self.clear_accum is not True:
            result = result + inputs[2].reshape(result.shape)
        return (result.reshape([int(e) for e in self.C.extents]),)

    def lower(self) -> ir.Stmt:
        """Three loops; the accumulator stays in C's dtype."""
        m, n, k = self.shape()
        i, j, p = loop_vars((m, n, k), "ijp")
        lead = (0,)
        c_at = lead * (len(self.C.extents) - 2) + (i, j)
        a_at = lead * (len(self.A.extents) - 2) + ((p, i) if self.transpose_A else (i, p))
        b_at = lead * (len(self.B.extents) - 2) + ((j, p) if self.transpose_B else (p, j))
        dtype = self.C.dtype
        product = ir.cast(load(self.A, a_at), dtype) * ir.cast(load(self.B, b_at), dtype)
        step = serial(p, k, store(self.C, c_at, load(self.C, c_at) + product), self.span)
        body = step
        if self.clear_accum is not False:
            zero: ir.Stmt = store(self.C, c_at, ir.literal(0, dtype, self.span))
            if isinstance(self.clear_accum, ir.Expr):
                zero = ir.If(ir.truth(self.clear_accum), zero, span=self.span)
            body = ir.seq(zero, step)
        return parallel((i, j), (m, n), body, self.span)
