"""Tile operations that no rule lowers to lane code become nests.

Before::

    T.copy(A[bx * 64:bx * 64 + 64], tile)
    T.reduce_sum(tile_shared, total)

After::

    for i in T.Parallel(64):
        tile[i] = A[bx * 64 + i]
    tile_shared_part = T.alloc_fragment((64,), "float32")
    for i in T.Parallel(64):
        tile_shared_part[i] = tile_shared[i]
    T.reduce_sum(tile_shared_part, total)
"""

from __future__ import annotations

import math
from typing import Any

from tilec import ir
from tilec.diagnostics import NestingError
from tilec.ops import Copy, Reduce, TileOp
from tilec.simt.lanes import lanes_of
from tilec.simt.rules import Lanes, RuleTable
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.lanes import LaneFacts, as_loops

_PRIVATE = (ir.LOCAL, ir.LOCAL_VAR)
_MOST_REGISTERS = 128


class LowerTileOps(FunctionPass):
    """Operations with a rule stay; the others become nests, or loops of each lane where an
    operand is private to it."""

    name = "lower_tile_ops"
    purpose = "turn tile operations without a rule into nests"
    needs = "tile"
    gives = "tile"

    def __init__(self, rules: RuleTable) -> None:
        self._rules = rules

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Lower the operations of every launch of a function."""

        def visit(node: Any) -> Any:
            if isinstance(node, ir.Launch):
                return lower_ops(node, self._rules, lanes_of(node, ctx))
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


def lower_ops(launch: ir.Launch, rules: RuleTable, lanes: Lanes) -> ir.Launch:
    """A launch whose operations all have a rule."""
    if not any(isinstance(n, TileOp) for n in ir.walk(launch.body)):
        return launch
    facts = LaneFacts(set(launch.thread_vars))
    facts.solve(launch.body)
    body = _Lowering(rules, lanes, facts).visit(launch.body, False)
    return launch.replace(body=body)


class _Lowering:
    def __init__(self, rules: RuleTable, lanes: Lanes, facts: LaneFacts) -> None:
        self._rules = rules
        self._lanes = lanes
        self._facts = facts

    def visit(self, node: Any, apart: bool) -> Any:
        """A statement; `apart` where only some lanes get."""
        if not isinstance(node, ir.Stmt):
            return node
        if isinstance(node, TileOp):
            return self._operation(node, apart)
        inner = apart or (
            isinstance(node, (ir.If, ir.For, ir.While)) and self._facts.statement(node)
        )

        def child(item: Any) -> Any:
            return self.visit(item, inner)

        new: ir.Stmt = ir.map_children(node, child)
        if isinstance(new, ir.Seq) and any(isinstance(s, _Spliced) for s in new.stmts):
            parts = (s.stmts if isinstance(s, _Spliced) else (s,) for s in new.stmts)
            return ir.Seq(tuple(s for part in parts for s in part), span=new.span)
        return new

    def _operation(self, op: TileOp, apart: bool) -> ir.Stmt:
        name = op.script_name or type(op).__name__
        self._lanes.capabilities.require(name, span=op.span)
        if self._private(op):
            loops: ir.Stmt = as_loops(op.lower())
            return loops
        if apart:
            raise NestingError(
                f"T.{name} is done by all lanes together, but only some lanes may get here",
                span=op.span,
                hint="move it out of control flow that depends on the lane index",
            )
        if any(self._facts.varying(c) for c in op.children):
            raise NestingError(
                f"T.{name} is done by all lanes together, but an operand depends on the lane index",
                span=op.span,
                hint="copy element by element in a loop, or index with T.Parallel variables",
            )
        if self._rules.choose(op, self._lanes) is not None:
            return op
        for reason in self._rules.refusals(op, self._lanes):
            self._lanes.ctx.remark("lower_tile_ops", f"T.{name}: not {reason}", op.span)
        if isinstance(op, Reduce):
            prepared = self._reduction(op)
            if prepared is not None:
                return prepared
            return op.lower_rows()
        lowered = op.lower()
        if op.atomic and isinstance(lowered, ir.Evaluate):
            # One element, but not one update by each lane.
            one = ir.Const(1, ir.DType("int32"))
            return ir.Parallel((ir.Var("i", one.dtype),), (one,), {}, lowered, span=op.span)
        return lowered

    def _private(self, op: TileOp) -> bool:
        """Whether every lane does all of it: a result, or what differs, is its own."""
        if any(r.buffer.scope() in _PRIVATE for r in op.writes()):
            return True
        return any(
            r.buffer.scope() in _PRIVATE and r.buffer in self._facts.buffers for r in op.reads()
        )

    def _reduction(self, op: Reduce) -> ir.Stmt | None:
        """A reduction of a whole fragment into a whole fragment, copies around it."""
        extents = op.src.extents
        results = op.dst.extents
        if not all(isinstance(e, int) and e > 0 for e in (*extents, *results)):
            return None
        stays = is_whole_fragment(op.src)
        if not stays and math.prod(extents) > _MOST_REGISTERS * self._lanes.count:
            return None
        before: list[ir.Stmt] = []
        after: list[ir.Stmt] = []
        changes: dict[str, Any] = {}
        if not stays:
            part = _fragment(f"{op.src.buffer.name}_part", extents, op.src, before)
            before.append(Copy(op.src, part, span=op.span).lower())
            changes["src"] = part
        if not is_whole_fragment(op.dst):
            result = _fragment(f"{op.dst.buffer.name}_part", results, op.dst, before)
            if not op.clear:
                before.append(Copy(op.dst, result, span=op.span).lower())
            after.append(Copy(result, op.dst, span=op.span).lower())
            changes["dst"] = result
        new = op.replace(**changes)
        if not changes or self._rules.choose(new, self._lanes) is None:
            return None
        return _Spliced((*before, new, *after), span=op.span)


class _Spliced(ir.Seq):
    """Statements that belong to the enclosing block (their allocations outlive them)."""


def is_whole_fragment(region: ir.BufferRegion) -> bool:
    """Whether a region is a fragment as a whole."""
    return (
        region.buffer.scope() == ir.FRAGMENT
        and all(ir.const_value(m) == 0 for m in region.mins)
        and tuple(region.extents) == tuple(region.buffer.shape)
    )


def _fragment(
    name: str, extents: tuple[Any, ...], like: ir.BufferRegion, before: list[ir.Stmt]
) -> ir.BufferRegion:
    buffer = ir.Buffer(name, extents, like.dtype, ir.FRAGMENT, span=like.span)
    before.append(ir.Alloc(buffer, span=like.span))
    return buffer.region()
