"""Lane programs on a machine with one lane.

A kernel may name its lanes (``tx = T.get_thread_binding()``). Here the lanes run in lock step,
statement by statement: a statement that depends on the lane is executed for all lanes before the
next one starts, so that what one lane writes to shared memory the others see, as the language's
automatic barriers promise. State that differs between lanes becomes an array over lanes.

Before::

    x = s[tx] + 1
    s[63 - tx] = x

After::

    x = T.alloc_local((64,), "int32")
    for tx in T.serial(64):
        x[tx] = s[tx] + 1
    for tx in T.serial(64):
        s[63 - tx] = x[tx]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec import ir
from tilec.diagnostics import NestingError, Span
from tilec.ops import TileOp
from tilec.transform.base import PassContext, StatementPass
from tilec.transform.parallel import ONE_LANE

_INT32 = ir.DType("int32")
_PRIVATE = (ir.LOCAL, ir.LOCAL_VAR)
DEFAULT_THREADS = 128


class SerializeLanes(StatementPass):
    """Replaces lane indices by loops; leaves launches that name no lane alone."""

    name = "serialize_lanes"
    purpose = "run the lanes of a block one after the other, statement by statement"
    needs = "tile"
    gives = "tile"

    def statement(self, node: Any, ctx: PassContext) -> Any:
        """A launch with its lanes as loops."""
        if not isinstance(node, ir.Launch):
            return node
        default = DEFAULT_THREADS
        if ctx.capabilities is not None:
            default = int(ctx.capabilities.features.get("default_threads", default))
        return _serialize(node, default)


def _serialize(launch: ir.Launch, default: int) -> ir.Launch:
    threads = launch.threads or (default, 1, 1)
    facts = LaneFacts(set(launch.thread_vars))
    facts.solve(launch.body)
    if not facts.found and not any(v in facts.threads for v in ir.free_vars(launch.body)):
        return launch
    lanes = _Lanes(launch.thread_vars, threads, facts)
    notes = {**launch.annotations, ONE_LANE: True}
    return launch.replace(body=lanes.block(launch.body), annotations=notes)


def _is_effect(node: Any) -> bool:
    return isinstance(node, ir.Call) and not ir.is_pure(node.name) and node.name != "sync"


class LaneFacts:
    """Which variables, private buffers and statements depend on the lane (a fixed point)."""

    def __init__(self, thread_vars: set[ir.Var]) -> None:
        self.threads = thread_vars
        self.vars: set[ir.Var] = set(thread_vars)
        self.buffers: set[ir.Buffer] = set()
        self.found = False
        self._changed = True

    def solve(self, body: ir.Stmt) -> None:
        while self._changed:
            self._changed = False
            self._visit(body, inside=False)

    def varying(self, value: Any) -> bool:
        """Whether an expression or region differs between lanes, or has an effect per lane."""
        for node in ir.walk(value):
            if isinstance(node, ir.Var) and node in self.vars:
                return True
            if isinstance(node, (ir.Load, ir.BufferRegion)) and node.buffer in self.buffers:
                return True
            if _is_effect(node):
                return True
        return False

    def statement(self, node: ir.Stmt) -> bool:
        """Whether a statement has to run once per lane."""
        if isinstance(node, (ir.Bind, ir.Store, ir.Evaluate, ir.Assert)):
            if isinstance(node, ir.Store) and node.buffer in self.buffers:
                return True
            return any(self.varying(c) for c in node.children if isinstance(c, ir.Expr))
        if isinstance(node, ir.Alloc):
            return node.buffer in self.buffers
        if isinstance(node, ir.If):
            return self.varying(node.cond)
        if isinstance(node, ir.For):
            return any(map(self.varying, (node.start, node.stop, node.step))) or self._jumps(
                node.body, inside=False
            )
        if isinstance(node, ir.While):
            return self.varying(node.cond) or self._jumps(node.body, inside=False)
        if isinstance(node, TileOp):
            return any(self.varying(c) for c in node.children)
        if isinstance(node, ir.Parallel):
            return any(map(self.varying, node.extents))
        return False

    def _jumps(self, node: ir.Stmt, *, inside: bool) -> bool:
        """Whether a break or continue of this loop is taken by some lanes only."""
        if isinstance(node, (ir.Break, ir.Continue)):
            return inside
        if isinstance(node, (ir.For, ir.While, ir.Parallel)):
            return False
        here = inside or (isinstance(node, ir.If) and self.varying(node.cond))
        return any(self._jumps(c, inside=here) for c in node.children if isinstance(c, ir.Stmt))

    def _visit(self, node: ir.Stmt, *, inside: bool) -> None:
        per_lane = inside or self.statement(node)
        if per_lane or any(isinstance(c, ir.Expr) and self.varying(c) for c in node.children):
            self.found = True
        if isinstance(node, ir.Bind) and self.varying(node.value):
            self._add(self.vars, node.var)
        elif isinstance(node, ir.Store) and node.buffer.scope() in _PRIVATE:
            if per_lane or any(self.varying(x) for x in (*node.indices, node.value)):
                self._add(self.buffers, node.buffer)
        elif isinstance(node, ir.Alloc) and node.init is not None and self.varying(node.init):
            self._add(self.buffers, node.buffer)
        elif isinstance(node, TileOp):
            if any(self.varying(r) for r in node.reads()) or per_lane:
                for region in node.writes():
                    if region.buffer.scope() in _PRIVATE:
                        self._add(self.buffers, region.buffer)
        elif isinstance(node, ir.For) and per_lane:
            self._add(self.vars, node.var)
        if isinstance(node, ir.Parallel):
            return  # its iterations, not the lanes, run the body
        for child in node.children:
            if isinstance(child, ir.Stmt):
                self._visit(child, inside=per_lane)

    def _add(self, group: set[Any], item: Any) -> None:
        if item not in group:
            group.add(item)
            self._changed = True


class _Lanes:
    """Rebuilds the body of one launch."""

    def __init__(
        self, thread_vars: tuple[ir.Var, ...], threads: tuple[int, ...], facts: LaneFacts
    ) -> None:
        self._threads = threads
        self._vars = thread_vars
        self._facts = facts
        self._count = threads[0] * threads[1] * threads[2]
        self._arrays: dict[ir.Buffer, ir.Buffer] = {}
        self._bound: dict[ir.Var, ir.Buffer | ir.Expr] = {}

    def block(self, node: ir.Stmt) -> ir.Stmt:
        """A statement outside of any lane loop."""
        if isinstance(node, ir.Seq):
            return self._sequence(node.stmts, node.span)
        if self._facts.statement(node):
            made = self._per_lane(node)
            return ir.Seq(made.stmts, span=node.span) if isinstance(made, _Splice) else made
        if isinstance(node, (ir.If, ir.For, ir.While)):
            return ir.map_children(
                node, lambda c: self.block(c) if isinstance(c, ir.Stmt) else self._expr(c, None)
            )
        if isinstance(node, ir.Parallel):
            check_nest(node, self._facts)
            return node
        if isinstance(node, ir.Evaluate) and is_sync(node):
            return ir.Seq((), span=node.span)
        return node

    def _sequence(self, stmts: tuple[ir.Stmt, ...], span: Span) -> ir.Stmt:
        result: list[ir.Stmt] = []
        for index, stmt in enumerate(stmts):
            if only_returns(stmt) and self._facts.statement(stmt):
                assert isinstance(stmt, ir.If)
                rest = ir.Seq(stmts[index + 1 :], span=span)
                guard = ir.If(ir.unary(ir.UnOp.NOT, stmt.cond), rest, span=stmt.span)
                result.append(self.block(guard))
                break
            per_lane = not isinstance(stmt, ir.Seq) and self._facts.statement(stmt)
            new = self._per_lane(stmt) if per_lane else self.block(stmt)
            if isinstance(new, _Splice) or (isinstance(new, ir.Seq) and not new.stmts):
                result.extend(new.stmts)
            else:
                result.append(new)
        return ir.Seq(tuple(result), span=span)

    def _per_lane(self, node: ir.Stmt) -> ir.Stmt:
        if isinstance(node, ir.Alloc):
            return self._alloc(node)
        if isinstance(node, ir.Bind):
            return self._bind(node)
        if isinstance(node, TileOp) and not self._touches_private(node):
            # One collective operation cannot have a different operand in every lane.
            raise NestingError(
                f"T.{node.script_name} is done by all lanes together, but an operand depends on "
                "the lane index",
                span=node.span,
                hint="copy element by element in a loop, or index with T.Parallel variables",
            )
        return self._loop(lambda lane: self._inner(node, lane), node.span)

    def _touches_private(self, node: TileOp) -> bool:
        return any(r.buffer in self._facts.buffers for r in (*node.reads(), *node.writes()))

    def _loop(self, body: Callable[[ir.Expr], ir.Stmt], span: Span) -> ir.Stmt:
        """``for tz: for ty: for tx: body`` with fresh lane variables."""
        fresh = tuple(ir.Var(v.name, _INT32, span=span) for v in self._vars)
        zero, one = ir.Const(0, _INT32), ir.Const(1, _INT32)
        values: list[ir.Expr] = [
            v if n > 1 else zero for v, n in zip(fresh, self._threads, strict=True)
        ]
        lane: Any = values[0]
        for axis, scale in ((1, self._threads[0]), (2, self._threads[0] * self._threads[1])):
            if self._threads[axis] > 1:
                lane = lane + values[axis] * scale
        stmt = ir.substitute(body(lane), dict(zip(self._vars, values, strict=True)))
        for var, count in zip(fresh, self._threads, strict=True):
            if count > 1:
                stop = ir.Const(count, _INT32)
                stmt = ir.For(var, zero, stop, one, "serial", {}, stmt, span=span)
        return stmt

    def _alloc(self, node: ir.Alloc) -> ir.Stmt:
        old = node.buffer
        shape = (self._count, *(old.shape if old.scope() == ir.LOCAL else ()))
        array = ir.Buffer(old.name, shape, old.dtype, ir.LOCAL, span=old.span)
        self._arrays[old] = array
        made = ir.Alloc(array, span=node.span)
        if node.init is None:
            return made
        init = node.init
        start = self._loop(
            lambda lane: ir.Store(array, (lane,), self._expr(init, lane), span=node.span),
            node.span,
        )
        return _Splice((made, start), span=node.span)

    def _bind(self, node: ir.Bind) -> ir.Stmt:
        if not any(isinstance(n, ir.Load) or _is_effect(n) for n in ir.walk(node.value)):
            # Cheaper to compute again in every lane loop than to keep.
            self._bound[node.var] = node.value
            return ir.Seq((), span=node.span)
        array = ir.Buffer(node.var.name, (self._count,), node.var.dtype, ir.LOCAL, span=node.span)
        fill = self._loop(
            lambda lane: ir.Store(array, (lane,), self._expr(node.value, lane), span=node.span),
            node.span,
        )
        self._bound[node.var] = array
        # The array is allocated in the same block, so it is visible wherever the let was.
        return _Splice((ir.Alloc(array, span=node.span), fill), span=node.span)

    def _inner(self, node: ir.Stmt, lane: ir.Expr) -> ir.Stmt:
        """A statement inside a lane loop."""
        if isinstance(node, TileOp):
            if not self._touches_private(node):
                self._collective(node, f"T.{node.script_name}")
            return self._inner(as_loops(node.lower()), lane)
        if isinstance(node, ir.Parallel):
            self._collective(node, "T.Parallel")
        if isinstance(node, ir.Evaluate) and is_sync(node):
            self._collective(node, "T.sync_threads")
        if isinstance(node, ir.Return):
            raise NestingError(
                "`return` in nested control flow that depends on the lane",
                span=node.span,
                hint="return at the top level of the kernel, or guard the rest with `if`",
            )

        def visit(child: Any) -> Any:
            return (
                self._inner(child, lane) if isinstance(child, ir.Stmt) else self._expr(child, lane)
            )

        if isinstance(node, ir.Store) and node.buffer in self._arrays:
            array = self._arrays[node.buffer]
            rest = node.indices if node.buffer.scope() == ir.LOCAL else ()
            indices = (lane, *(self._expr(i, lane) for i in rest))
            return ir.Store(array, indices, self._expr(node.value, lane), span=node.span)
        return ir.map_children(node, visit)

    def _collective(self, node: ir.Stmt, what: str) -> None:
        raise NestingError(
            f"{what} is done by all lanes together, but only some lanes may get here",
            span=node.span,
            hint="move it out of control flow that depends on the lane index",
        )

    def _expr(self, value: Any, lane: ir.Expr | None) -> Any:
        """An operand with lane state looked up in its arrays."""

        def visit(node: Any) -> Any:
            if isinstance(node, ir.Var):
                known = self._bound.get(node)
                if isinstance(known, ir.Buffer) and lane is not None:
                    return ir.Load(known, (lane,), known.dtype, span=node.span)
                return visit(known) if isinstance(known, ir.Expr) else node
            if isinstance(node, ir.Load) and node.buffer in self._arrays and lane is not None:
                array = self._arrays[node.buffer]
                rest = node.indices if node.buffer.scope() == ir.LOCAL else ()
                indices = (lane, *(visit(i) for i in rest))
                return ir.Load(array, indices, node.dtype, span=node.span)
            return ir.map_children(node, visit) if isinstance(node, ir.Node) else node

        return visit(value)


def check_nest(node: ir.Parallel, facts: LaneFacts) -> None:
    """Refuse a nest that depends on which lane it runs on.

    Raises:
        NestingError: the lane index, or a value that differs between lanes, is used in it.
    """
    for item in ir.walk(node.body):
        if isinstance(item, ir.Var) and item in facts.threads:
            raise NestingError(
                f"the lane index `{item.name}` is used inside T.Parallel",
                span=node.span,
                hint="T.Parallel distributes its iterations itself; use its own variables",
            )
        if (
            isinstance(item, (ir.Load, ir.Store, ir.BufferRegion)) and item.buffer in facts.buffers
        ) or (isinstance(item, ir.Var) and item in facts.vars):
            raise NestingError(
                "a value that differs between lanes is used inside T.Parallel",
                span=node.span,
                hint="keep it in a fragment or in shared memory",
            )


class _Splice(ir.Seq):
    """Statements that belong to the enclosing block (their allocations outlive them)."""


def is_sync(node: ir.Evaluate) -> bool:
    return isinstance(node.value, ir.Call) and node.value.name == "sync"


def only_returns(node: ir.Stmt) -> bool:
    """``if cond: return`` with nothing else."""
    if not isinstance(node, ir.If) or node.other is not None:
        return False
    body = node.then.stmts if isinstance(node.then, ir.Seq) else (node.then,)
    return len(body) == 1 and isinstance(body[0], ir.Return)


def as_loops(node: Any) -> Any:
    """Parallel nests as serial loops (one lane runs them)."""
    if isinstance(node, ir.Parallel):
        body = as_loops(node.body)
        zero = ir.Const(0, _INT32)
        for var, extent in reversed(list(zip(node.vars, node.extents, strict=True))):
            body = ir.For(
                var, zero, extent, ir.Const(1, _INT32), "serial", {}, body, span=node.span
            )
        return body
    return ir.map_children(node, as_loops) if isinstance(node, ir.Stmt) else node
