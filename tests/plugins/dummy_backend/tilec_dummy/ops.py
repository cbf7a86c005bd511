"""An operation that tilec itself does not have."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tilec import ir
from tilec.diagnostics import ShapeError
from tilec.ops import TileOp


class Reverse(TileOp):
    """``dst = src`` with the order of the last axis turned around."""

    script_name: ClassVar[str] = "reverse"

    src: ir.BufferRegion
    dst: ir.BufferRegion

    def check(self) -> None:
        """Both sides have the same shape, up to axes of extent 1."""
        if _shape(self.src) != _shape(self.dst):
            raise ShapeError(
                f"T.reverse: {self.src.describe()} and {self.dst.describe()} differ in shape",
                span=self.span,
                hint="slice the larger side",
            )

    def reads(self) -> tuple[ir.BufferRegion, ...]:
        """The source."""
        return (self.src,)

    def writes(self) -> tuple[ir.BufferRegion, ...]:
        """The destination."""
        return (self.dst,)

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """NumPy's meaning of it."""
        return (inputs[0][..., ::-1],)

    def lower(self) -> ir.Stmt:
        """Scalar loops, for targets without a lowering of their own."""
        extents = tuple(ir.as_expr(e) for e in _shape(self.src))
        variables = tuple(ir.Var(f"r{n}", ir.DType("int32")) for n in range(len(extents)))
        mirrored = (*variables[:-1], extents[-1] - 1 - variables[-1])
        value = ir.Load(self.src.buffer, element(self.src, mirrored), self.src.buffer.dtype)
        value = ir.cast(value, self.dst.buffer.dtype)
        body: ir.Stmt = ir.Store(self.dst.buffer, element(self.dst, variables), value)
        return ir.Parallel(variables, extents, {}, body, span=self.span)


def _shape(region: ir.BufferRegion) -> tuple[Any, ...]:
    """Extents that are not 1, constants as ints."""
    plain = (e if isinstance(e, int) else ir.const_value(e) or e for e in region.extents)
    return tuple(e for e in plain if e != 1) or (1,)


def element(region: ir.BufferRegion, offsets: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
    """The index of an element of a region, given offsets along its axes of extent above 1."""
    left = list(offsets)
    index = []
    for low, extent in zip(region.mins, region.extents, strict=True):
        one = extent == 1 if isinstance(extent, int) else ir.const_value(extent) == 1
        index.append(low if one or not left else low + left.pop(0))
    return tuple(index)
