"""Mistakes that only the whole function shows, reported at the user's line before lowering."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.diagnostics import NestingError, OutOfBoundsError, Span
from tilec.transform.base import FunctionPass, PassConfigKey, PassContext
from tilec.transform.scoped import ScopedRewriter

_ON_CHIP = frozenset({ir.SHARED, ir.SHARED_DYN, ir.FRAGMENT, ir.LOCAL, ir.LOCAL_VAR})


class SemanticCheck(FunctionPass):
    """Nesting of parallel loops, jumps out of them, private buffers, indices out of range."""

    name = "semantic_check"
    purpose = "report illegal nesting and on-chip indices that are out of range"
    needs = "tile"

    def applies(self, ctx: PassContext) -> bool:
        """Unless the configuration turns it off."""
        return not ctx.flag(PassConfigKey.TL_DISABLE_PRELOWER_SEMANTIC_CHECK)

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Check one function; it comes back as it is.

        Raises:
            NestingError: a loop, jump or operation where it cannot stand.
            OutOfBoundsError: an index of an on-chip buffer lies outside for all trips.
        """
        del ctx
        _Check(func).function(func)
        return func


class _Check(ScopedRewriter):
    def __init__(self, func: ir.PrimFunc) -> None:
        super().__init__()
        self._spans: list[Span] = [func.span]
        self._parallel: list[ir.Parallel] = []
        self._inside: set[ir.Buffer] = set()
        self._jump_leaves_parallel = False

    def stmt(self, node: Any) -> Any:
        self._spans.append(node.span if node.span.known else self._spans[-1])
        super().stmt(node)
        self._spans.pop()
        # Nothing is rebuilt: callers get the node they gave.
        return node

    def _span(self, node: ir.Node) -> Span:
        return node.span if node.span.known else self._spans[-1]

    # Nesting

    def parallel(self, node: ir.Parallel) -> ir.Stmt:
        if self._parallel:
            raise NestingError(
                "T.Parallel inside T.Parallel, whose iterations are elements",
                span=self._spans[-1],
                hint="give all extents to one loop: for i, j in T.Parallel(M, N)",
            )
        saved, self._jump_leaves_parallel = self._jump_leaves_parallel, True
        self._parallel.append(node)
        super().parallel(node)
        self._parallel.pop()
        self._jump_leaves_parallel = saved
        return node

    def loop(self, node: ir.For) -> ir.Stmt:
        if self._parallel and node.kind == "pipelined":
            raise NestingError(
                "T.Pipelined inside T.Parallel, whose iterations are elements",
                span=self._spans[-1],
                hint="put the T.Pipelined loop outside, or make it T.serial",
            )
        saved, self._jump_leaves_parallel = self._jump_leaves_parallel, False
        super().loop(node)
        self._jump_leaves_parallel = saved
        return node

    def while_loop(self, node: ir.While) -> ir.Stmt:
        saved, self._jump_leaves_parallel = self._jump_leaves_parallel, False
        super().while_loop(node)
        self._jump_leaves_parallel = saved
        return node

    def alloc(self, node: ir.Alloc) -> ir.Stmt:
        if self._parallel:
            self._inside.add(node.buffer)
        return super().alloc(node)

    def leaf(self, node: Any) -> Any:
        if isinstance(node, (ir.Break, ir.Continue)) and self._jump_leaves_parallel:
            word = type(node).__name__.lower()
            raise NestingError(
                f"`{word}` in T.Parallel, whose iterations have no order",
                span=self._spans[-1],
                hint="guard the statements with `if`, or make the loop T.serial",
            )
        if isinstance(node, ir.TileOp) and self._parallel:
            regions = (*node.reads(), *node.writes())
            if not all(e == 1 for r in regions for e in r.extents if isinstance(e, int)) or any(
                isinstance(e, ir.Expr) for r in regions for e in r.extents
            ):
                raise NestingError(
                    f"T.{node.script_name or type(node).__name__} is done by the whole block, but "
                    "is inside T.Parallel, whose iterations are elements",
                    span=self._spans[-1],
                    hint="move it out of the loop, or make the loop T.serial",
                )
        if isinstance(node, ir.Store):
            self._access(node.buffer, node.indices, node)
        return super().leaf(node)

    # Accesses

    def expr(self, node: Any) -> Any:
        if isinstance(node, (ir.Var, ir.Const)):
            return node
        if isinstance(node, ir.Select):
            self.expr(node.cond)
            with self.facts.assume(node.cond):
                self.expr(node.then)
            with self.facts.scope():
                self.facts.add_condition(node.cond, False)
                self.expr(node.other)
            return node
        if isinstance(node, ir.Binary) and node.op in ir.LOGICAL:
            self.expr(node.lhs)
            with self.facts.scope():
                self.facts.add_condition(node.lhs, node.op is ir.BinOp.AND)
                self.expr(node.rhs)
            return node
        if isinstance(node, ir.Load):
            self._access(node.buffer, node.indices, node)
        for child in node.children:
            self.operand(child)
        return node

    def operand(self, node: Any) -> Any:
        if isinstance(node, ir.BufferRegion):
            self._region(node)
        return super().operand(node)

    def _access(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], node: ir.Node) -> None:
        if buffer.scope() == ir.LOCAL and buffer not in self._inside:
            self._private(buffer, indices, node)
        if buffer.scope() not in _ON_CHIP or self.facts.unreachable:
            return
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            if isinstance(extent, int):
                low, high = self.facts.bounds(index)
                # An index below zero counts from the end.
                if low >= extent or high < -extent:
                    self._outside(buffer, axis, index, (low, high), node)

    def _outside(
        self,
        buffer: ir.Buffer,
        axis: int,
        index: ir.Expr,
        found: tuple[Any, Any],
        node: ir.Node,
    ) -> None:
        low, high = found
        what = f"is {low}" if low == high else f"is from {low} to {high}"
        text = "index" if isinstance(index, ir.Const) else f"index `{index!r}`"
        raise OutOfBoundsError(
            f"{text} {what}, outside dimension {axis} of {buffer.name}, which has "
            f"{buffer.shape[axis]} element(s)",
            span=self._span(node),
            hint=f"{buffer.name} was allocated as {ir.shape_text(buffer.shape)}",
        )

    def _region(self, region: ir.BufferRegion) -> None:
        buffer = region.buffer
        if buffer.scope() not in _ON_CHIP or self.facts.unreachable:
            return
        for axis, (low, size) in enumerate(zip(region.mins, region.extents, strict=True)):
            extent = buffer.shape[axis]
            if isinstance(extent, int) and isinstance(size, int):
                first = self.facts.bounds(low)
                if first.lo + size > extent:
                    raise OutOfBoundsError(
                        f"a slice of {size} from {first.lo} or later ends outside dimension {axis} "
                        f"of {buffer.name}, which has {extent} element(s)",
                        span=self._span(region),
                        hint=f"{buffer.name} was allocated as {ir.shape_text(buffer.shape)}",
                    )

    def _private(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], node: ir.Node) -> None:
        variables = {v: None for loop in self._parallel for v in loop.vars}
        for index in indices:
            for var in ir.free_vars(index):
                if var in variables:
                    raise NestingError(
                        f"{buffer.name} is private to each lane, but is indexed by `{var.name}`, "
                        "whose iterations T.Parallel spreads over the lanes",
                        span=self._span(node),
                        hint=f"allocate {buffer.name} with T.alloc_fragment or T.alloc_shared, or "
                        "make the loop T.serial",
                    )
