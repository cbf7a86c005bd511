"""Tile operations become loops over scalars, or calls of what the backend has for them.

Before::

    T.copy(A[bx * 64:bx * 64 + 64], tile)

After::

    for i in T.Parallel(64):
        tile[i] = A[bx * 64 + i]
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.ops import TileOp
from tilec.transform.base import PassContext, StatementPass


class LowerTiles(StatementPass):
    """Each operation takes the cheapest lowering that its backend offers, else its own."""

    name = "lower_tiles"
    purpose = "lower tile operations to loops or backend calls"
    needs = "tile"
    gives = "tile"

    def statement(self, node: Any, ctx: PassContext) -> Any:
        """A tile operation as what does its work."""
        if not isinstance(node, ir.TileOp):
            return node
        return ir.map_statements(_lower(node, ctx), lambda inner: self.statement(inner, ctx))


def _lower(op: ir.TileOp, ctx: PassContext) -> ir.Stmt:
    name = op.script_name or type(op).__name__
    if ctx.capabilities is not None:
        ctx.capabilities.require(name, span=op.span)
    found = None if ctx.lowerings is None else ctx.lowerings.find(op, ctx)
    if found is not None:
        ctx.remark("lower_tiles", f"T.{name}: {found.name}", op.span)
        return found.lower(op, ctx)
    assert isinstance(op, TileOp)
    return op.lower()
