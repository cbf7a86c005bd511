"""Refusing what the target's capability table disclaims, before anything is lowered."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.diagnostics import CapabilityError, Span
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.capabilities import Capabilities


class CheckCapabilities(FunctionPass):
    """Every buffer's dtype and scope, and every tile operation, must be one that the target has."""

    name = "check_capabilities"
    purpose = "refuse dtypes, scopes and operations that the target does not have"
    needs = "tile"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Look at every node; the function comes back as it is.

        Raises:
            CapabilityError: the target's table disclaims something the function uses.
        """
        table = ctx.capabilities
        if table is None:
            return func
        warps = table.lanes > 1 or table.features.get("warps_of_any_size", False)
        for param in func.params:
            table.require("parameter", param.dtype, span=_known(param, func))
        for node in ir.walk(func.body):
            if isinstance(node, ir.Alloc):
                table.require("buffer", node.buffer.dtype, span=_known(node, func))
                _check_scope(table, node)
            elif isinstance(node, ir.TileOp):
                _check_operation(table, node, _known(node, func))
            elif isinstance(node, ir.Launch):
                _check_threads(table, node)
            elif isinstance(node, ir.Expr):
                table.require("a value", node.dtype.scalar, span=_known(node, func))
                if isinstance(node, ir.Call) and not warps:
                    _check_lanes(node, _known(node, func))
                if table.unsupported and isinstance(node, (ir.Call, ir.Binary)):
                    _check_scalar(table, node, _known(node, func))
        return func


def _check_operation(table: Capabilities, node: ir.TileOp, span: Span) -> None:
    """An operation goes by its name in the language, and by that of its kind if it has kinds."""
    regions = node.writes() or node.reads()
    dtype = regions[0].buffer.dtype if regions else None
    name = node.script_name or type(node).__name__
    table.require(name, dtype, span=span)
    kind = getattr(node, "kind", None)
    if isinstance(kind, str):
        table.require(f"{name}_{kind}", dtype, span=span)


def _check_scalar(table: Capabilities, node: ir.Call | ir.Binary, span: Span) -> None:
    """Intrinsics and operators go by their names in the IR, with the dtype of the operands."""
    if isinstance(node, ir.Binary):
        table.require(node.op.value, node.lhs.dtype.scalar, span=span)
    else:
        operand = node.args[0].dtype if node.args else node.dtype
        table.require(node.name, operand.scalar, span=span)


def _check_lanes(node: ir.Call, span: Span) -> None:
    """What lanes of a warp do, where there are no warps."""
    named = node.name == "sync" and node.args
    if named or node.name in ir.LANE_INTRINSICS:
        name = "sync_threads with a barrier_id" if named else node.name
        raise CapabilityError(
            f"the target does not support T.{name}: its lanes do not run in warps", span=span
        )


def _check_scope(table: Capabilities, node: ir.Alloc) -> None:
    scope = node.buffer.scope()
    memory = table.memories.get(scope)
    if table.memories and memory is None:
        raise CapabilityError(
            f"{node.buffer.name} is in scope {scope!r}, which the target does not have",
            span=node.span,
            hint="scopes: " + ", ".join(sorted(table.memories)),
        )
    shape: tuple[Any, ...] = node.buffer.shape
    if memory is None or memory.bytes is None or not all(isinstance(e, int) for e in shape):
        return
    size = node.buffer.dtype.bytes
    for extent in shape:
        size *= extent
    if size > memory.bytes:
        raise CapabilityError(
            f"{node.buffer.name} takes {size} bytes; {scope!r} memory has {memory.bytes}",
            span=node.span,
            hint="use a smaller tile",
        )


def _check_threads(table: Capabilities, node: ir.Launch) -> None:
    total = 1
    for count in node.threads or ():
        total *= count
    if total > table.max_threads:
        raise CapabilityError(
            f"a block has {total} threads; the target allows {table.max_threads}", span=node.span
        )


def _known(node: ir.Node, func: ir.PrimFunc) -> Span:
    return node.span if node.span.known else func.span
