"""Tile form becomes thread form: what one lane of a block executes.

Before::

    with T.Kernel(8, threads=32) as bx:
        tile = T.alloc_fragment((128,), "float32")
        for i in T.Parallel(128):
            tile[i] = A[bx * 128 + i]

After::

    with T.Kernel(8, threads=32) as bx:
        tile = T.alloc_local((4,), "float32")
        for v in T.vectorized(4):
            tile[v] = A[bx * 128 + tx * 4 + v]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilec import ir
from tilec.diagnostics import InternalError, NestingError
from tilec.layout import Fragment, Layout
from tilec.ops import TileOp
from tilec.simt.emit import NestEmitter
from tilec.simt.nests import MEMORY, Nest, Planner, prepare
from tilec.simt.relayout import spill
from tilec.simt.rules import Lanes, RuleTable
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.capabilities import Capabilities
from tilec.transform.lanes import (
    DEFAULT_THREADS,
    LaneFacts,
    check_nest,
    is_sync,
    only_returns,
)
from tilec.transform.scoped import ScopedRewriter

LAYOUTS, ALIGNMENT, WARP = "layouts", "alignment", "warp"
RINGS = "rings"
_INT32 = ir.DType("int32")
_BOOL = ir.DType("bool")
_PRIVATE = (ir.LOCAL, ir.LOCAL_VAR)


def threads_of(launch: ir.Launch, ctx: PassContext) -> tuple[int, int, int]:
    """Lanes of a block (x, y, z): the program's choice, else the target's."""
    if launch.threads is not None:
        x, y, z = (*launch.threads, 1, 1)[:3]
        return x, y, z
    features = {} if ctx.capabilities is None else ctx.capabilities.features
    return int(features.get("default_threads", DEFAULT_THREADS)), 1, 1


def lanes_of(launch: ir.Launch, ctx: PassContext) -> Lanes:
    """What is known about the lanes of a launch before any layout is decided."""
    capabilities = ctx.capabilities or Capabilities()
    threads = threads_of(launch, ctx)
    index: Any = None
    stride = 1
    for var, extent in zip(launch.thread_vars, threads, strict=True):
        if extent > 1:
            part: Any = var if stride == 1 else var * stride
            index = part if index is None else index + part
        stride *= extent
    # A last warp of which only some lanes exist makes groups of fewer lanes, all of them complete.
    warp = math.gcd(capabilities.lanes, stride)
    lanes = Lanes(
        ctx, capabilities, stride, ir.as_expr(0 if index is None else index), warp,
        rings=frozenset(launch.annotations.get(RINGS, ())),
    )  # fmt: skip
    for buffer, layout in launch.annotations.get(LAYOUTS, ()):
        if isinstance(layout, Fragment):
            lanes.fragments[buffer] = layout
        elif isinstance(layout, Layout):
            lanes.layouts[buffer] = layout
    return lanes


def access_widths(capabilities: Capabilities) -> dict[str, int]:
    """Bytes of the widest access by scope."""
    widest = max(capabilities.vector_bytes, default=1)
    found = {}
    for scope in MEMORY:
        memory = capabilities.memories.get(scope)
        sizes = memory.access_bytes if memory is not None else (widest,)
        found[scope] = min(max(sizes), memory.alignment if memory is not None else widest)
    return found


def planner_of(lanes: Lanes) -> Planner:
    """A planner for these lanes."""
    widest = max(access_widths(lanes.capabilities).values())
    return Planner(lanes.count, lanes.warp, widest)


class LowerLanes(FunctionPass):
    """Nests are dealt to lanes, operations lowered by their rules, fragments become registers."""

    name = "lower_lanes"
    purpose = "write what each lane of a block executes"
    needs = "tile"
    gives = "thread"

    def __init__(self, rules: RuleTable) -> None:
        self._rules = rules

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Lower every launch of a function."""
        return _Lower(self._rules, ctx).function(func)


class _Lower(ScopedRewriter):
    def __init__(self, rules: RuleTable, ctx: PassContext) -> None:
        super().__init__()
        self._rules_of_ops = rules
        self._ctx = ctx
        self._lanes: Lanes
        self._planner: Planner
        self._emitter: NestEmitter
        self._known: LaneFacts
        self._apart = False
        self._inside = False
        self._spilling = False

    # launches

    def launch(self, node: ir.Launch) -> ir.Stmt:
        """A launch with a known number of lanes."""
        threads = threads_of(node, self._ctx)
        node = node.replace(threads=threads)
        self._lanes = lanes_of(node, self._ctx)
        self._planner = planner_of(self._lanes)
        alignment: dict[ir.Buffer, int] = {}
        self._emitter = NestEmitter(
            self._lanes, self.facts, access_widths(self._lanes.capabilities), alignment
        )
        self._known = LaneFacts(set(node.thread_vars))
        self._known.solve(node.body)
        self._apart, self._inside = False, True
        for buffer, layout in self._lanes.fragments.items():
            size = max(layout.register_extent, 1)
            self._lanes.registers[buffer] = ir.Buffer(
                buffer.name, (size,), buffer.dtype, ir.LOCAL, span=buffer.span
            )
        new = super().launch(node)
        self._inside = False
        assert isinstance(new, ir.Launch)
        notes = dict(new.annotations)
        kept = [(b, x) for b, x in notes.pop(LAYOUTS, ()) if isinstance(x, Layout)]
        notes[WARP] = self._lanes.warp
        notes.pop(RINGS, None)
        if kept:
            notes[LAYOUTS] = kept
        if alignment:
            notes[ALIGNMENT] = list(alignment.items())
        return new.replace(annotations=notes)

    # statements

    def seq(self, node: ir.Seq) -> ir.Stmt:
        """Statements in order; what follows a return of some lanes is for the others only."""
        if self._inside:
            for place, stmt in enumerate(node.stmts):
                if only_returns(stmt) and self._known.statement(stmt):
                    assert isinstance(stmt, ir.If)
                    rest = ir.Seq(node.stmts[place + 1 :], span=node.span)
                    guard = ir.If(ir.unary(ir.UnOp.NOT, stmt.cond), rest, span=stmt.span)
                    node = node.replace(stmts=(*node.stmts[:place], guard))
                    break
        return super().seq(node)

    def branch(self, node: ir.If) -> ir.Stmt:
        """A branch; lanes may disagree about it."""
        return self._under(node, super().branch)

    def loop(self, node: ir.For) -> ir.Stmt:
        """A loop; lanes may disagree about its trips."""
        return self._under(node, super().loop)

    def while_loop(self, node: ir.While) -> ir.Stmt:
        """A loop with a condition; lanes may disagree about it."""
        return self._under(node, super().while_loop)

    def _under(self, node: Any, rewrite: Callable[[Any], ir.Stmt]) -> ir.Stmt:
        outer = self._apart
        self._apart = outer or (self._inside and self._known.statement(node))
        new = rewrite(node)
        self._apart = outer
        return new

    def alloc(self, node: ir.Alloc) -> ir.Stmt:
        """Registers for a fragment, anything else as it is."""
        registers = self._lanes.registers.get(node.buffer) if self._inside else None
        if registers is not None:
            return ir.Alloc(registers, span=node.span)
        if node.buffer.scope() == ir.FRAGMENT:
            raise InternalError(f"{node.buffer.describe()} has no layout", span=node.span)
        return super().alloc(node)

    def leaf(self, node: Any) -> Any:
        """Stores, effects and operations."""
        if not self._inside:
            return super().leaf(node)
        if isinstance(node, TileOp):
            return self._operation(node)
        if isinstance(node, ir.Evaluate) and is_sync(node) and self._apart:
            self._collective(node, "T.sync_threads")
        if isinstance(node, ir.Return) and self._apart:
            raise NestingError(
                "`return` in nested control flow that depends on the lane",
                span=node.span,
                hint="return at the top level of the kernel, or guard the rest with `if`",
            )
        new = super().leaf(node)
        return self._store(node, new) if isinstance(node, ir.Store) else new

    def _store(self, old: ir.Store, new: Any) -> ir.Stmt:
        """A store outside of nests: by one lane where all lanes agree about it."""
        if not isinstance(new, ir.Store):
            return new  # type: ignore[no-any-return]
        registers = self._lanes.registers.get(new.buffer)
        if registers is not None:  # every lane has all elements
            place = self._row_major(new.buffer, new.indices)
            return new.replace(buffer=registers, indices=(place,))
        if new.buffer.scope() not in MEMORY:
            return new
        if self._apart or self._known.statement(old):
            return new
        if self._lanes.count == 1:
            return new
        zero = ir.Const(0, _INT32)
        first = ir.Binary(ir.BinOp.EQ, self._lanes.index, zero, _BOOL)
        return ir.If(first, new, span=new.span)

    # nests and operations

    def parallel(self, node: ir.Parallel) -> ir.Stmt:
        """A nest, dealt to the lanes."""
        if not self._inside:
            return super().parallel(node)
        if self._apart:
            self._collective(node, "T.Parallel")
        check_nest(node, self._known)
        nest = prepare(node, self.facts)
        layouts = self._lanes.fragments
        plan = self._planner.plan(nest, layouts)
        if plan is not None and plan.failed:
            return self._spilled(nest, plan.failed)
        return self._emitter.emit(nest, plan)

    def _spilled(self, nest: Nest, failed: dict[ir.Buffer, str]) -> ir.Stmt:
        """A nest some of whose fragments pass through shared memory."""
        before, node, after = spill(nest, failed)
        for buffer, reason in failed.items():
            self._ctx.remark(
                self.name_of, f"{buffer.name} passes through shared memory: {reason}", node.span
            )
        if self._spilling:
            names = ", ".join(b.name for b in failed)
            raise InternalError(f"the elements of {names} cannot be reached", span=node.span)
        parts: list[ir.Stmt] = []
        for stmt in (*before, node, *after):
            self._spilling = stmt is not node
            parts.append(self.stmt(stmt))
        self._spilling = False
        return ir.Seq(tuple(parts), span=node.span)

    name_of = LowerLanes.name

    def _operation(self, node: TileOp) -> ir.Stmt:
        if self._apart:
            self._collective(node, f"T.{node.script_name}")
        rule = self._rules_of_ops.choose(node, self._lanes)
        if rule is None:
            raise InternalError(f"T.{node.script_name} has no rule", span=node.span)
        self._ctx.remark(self.name_of, f"T.{node.script_name}: {rule.name}", node.span)
        new = rule.lower(node, self._lanes)
        return ir.map_statements(new, self._inner)

    def _inner(self, node: Any) -> Any:
        """Nests that a rule left."""
        return self.parallel(node) if isinstance(node, ir.Parallel) else node

    def _collective(self, node: ir.Stmt, what: str) -> None:
        raise NestingError(
            f"{what} is done by all lanes together, but only some lanes may get here",
            span=node.span,
            hint="move it out of control flow that depends on the lane index",
        )

    # expressions

    def expr(self, node: Any) -> Any:
        """Elements of fragments that every lane holds become registers."""
        if not self._inside:
            return node
        if isinstance(node, ir.Load) and node.buffer in self._lanes.registers:
            place = self._row_major(node.buffer, tuple(self.expr(i) for i in node.indices))
            return node.replace(buffer=self._lanes.registers[node.buffer], indices=(place,))
        return ir.map_children(node, self.operand)

    def _row_major(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Expr:
        place: Any = ir.Const(0, _INT32)
        for index, extent in zip(indices, buffer.shape, strict=True):
            place = place * extent + index
        return self.facts.simplify(place)
