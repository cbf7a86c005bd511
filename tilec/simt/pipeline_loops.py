"""Software pipelining: copies of later trips run while a trip computes.

A tile that a trip fills from global memory and then reads becomes a ring of `num_stages` tiles.
Copies are asynchronous; one barrier a trip says both that the tile of this trip is there and that
the one to be overwritten next is done with.

Before::

    for k in T.Pipelined(n, num_stages=2):
        T.copy(A[k * 64 : k * 64 + 64], tile)
        T.gemm(tile, B, C)

After::

    for s in T.unroll(1):
        if s < n:
            for i in T.Parallel(64): ring[s, i] = A[s * 64 + i]    # asynchronous
        cp_async_commit()
    for k in range(n):
        cp_async_wait(0)
        T.sync_threads()
        if k + 1 < n:
            for i in T.Parallel(64): ring[(k + 1) % 2, i] = A[(k + 1) * 64 + i]
        cp_async_commit()
        T.gemm(ring[k % 2], B, C)

The pass orders all accesses to its rings itself (``annotations["managed"]``). What does not fit
the pattern stays where it is in the trip; where nothing fits, the loop is a serial one.
"""

from __future__ import annotations

import math
from typing import Any

from tilec import ir
from tilec.layout import Layout
from tilec.ops import Copy, TileOp
from tilec.simt.barriers import MANAGED
from tilec.simt.code import INT32, effect, number
from tilec.simt.emit import ASYNC
from tilec.simt.lanes import LAYOUTS, RINGS
from tilec.simt.tile_uses import Uses
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.lanes import LaneFacts

ENGINE = "cp_async"
_SHARED = (ir.SHARED, ir.SHARED_DYN)
_JUMPS = (ir.Break, ir.Continue, ir.Return)


class PipelineLoops(FunctionPass):
    """Pipelined loops get rings and asynchronous copies where the target has them."""

    name = "pipeline_loops"
    purpose = "start the copies of later trips before they are needed"
    needs = "tile"
    gives = "tile"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Treat every launch of a function."""

        def visit(node: Any) -> Any:
            if isinstance(node, ir.Launch):
                return _Launch(node, ctx).run()
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


class _Ahead:
    """A copy that may run ahead, with what its expressions depend on written out.

    Attributes:
        stmt: the statement in the loop.
        nest: what it does, in terms of the loop variable and what is outside of the loop.
        target: the tile.
    """

    def __init__(self, stmt: ir.Stmt, nest: ir.Stmt, target: ir.Buffer) -> None:
        self.stmt = stmt
        self.nest = nest
        self.target = target


class _Launch:
    def __init__(self, node: ir.Launch, ctx: PassContext) -> None:
        self._node = node
        self._ctx = ctx
        self._facts = LaneFacts(set(node.thread_vars))
        self._facts.solve(node.body)
        self._plans: dict[int, list[_Ahead]] = {}
        self._managed: list[ir.Buffer] = []
        self._layouts: list[tuple[ir.Buffer, Any]] = list(node.annotations.get(LAYOUTS, ()))
        self._depth = 0
        self._spare = self._capacity()

    def run(self) -> ir.Launch:
        """The launch without pipelined loops."""
        loops = [
            n for n in ir.walk(self._node.body) if isinstance(n, ir.For) and n.kind == "pipelined"
        ]
        if not loops:
            return self._node
        for loop in loops:
            found = self._examine(loop)
            if isinstance(found, str):
                self._remark(loop, found)
            else:
                self._plans[id(loop)] = found
        self._private(loops)
        body = self._visit(self._node.body)
        used = set(Uses(body).buffers)
        body = _without(body, {a.target for p in self._plans.values() for a in p} - used)
        notes = dict(self._node.annotations)
        if self._managed:
            notes[MANAGED] = [*notes.get(MANAGED, ()), *self._managed]
            notes[RINGS] = list(self._managed)
            known = set(Uses(body).buffers)
            notes[LAYOUTS] = [(b, x) for b, x in self._layouts if b in known]
            if not notes[LAYOUTS]:
                del notes[LAYOUTS]
        return self._node.replace(body=body, annotations=notes)

    def _remark(self, loop: ir.For, why: str) -> None:
        self._ctx.remark(PipelineLoops.name, f"not pipelined: {why}", loop.span)

    # decisions

    def _examine(self, loop: ir.For) -> list[_Ahead] | str:
        """The copies of a loop that may run ahead, or why none may."""
        stages = int(loop.annotations.get("num_stages", 0) or 0)
        if stages < 2:
            return f"num_stages is {stages}"
        capabilities = self._ctx.capabilities
        engines = () if capabilities is None else capabilities.copy_engines
        if not any(e.name == ENGINE and e.asynchronous for e in engines):
            return "the target has no asynchronous copies by lanes"
        step = ir.const_value(loop.step)
        if not isinstance(step, int) or step < 1:
            return "its step is no positive constant"
        if any(isinstance(n, _JUMPS) for n in ir.walk(loop.body)):
            return "it may be left before its last trip"
        if self._facts.statement(loop):
            return "lanes disagree about its trips"
        if loop.annotations.get("order") is not None:
            self._ctx.remark(
                PipelineLoops.name, "order and stage are not needed: copies run ahead", loop.span
            )
        return self._copies(loop)

    def _copies(self, loop: ir.For) -> list[_Ahead] | str:
        uses = Uses(loop.body)
        lets: dict[ir.Var, Any] = {}
        inner = {loop.var}
        found: list[_Ahead] = []
        why = "no copy from global to shared memory stands in it"
        stmts = _statements(loop.body)
        for place, stmt in enumerate(stmts):
            if isinstance(stmt, ir.Bind):
                value = ir.substitute(stmt.value, lets) if lets else stmt.value
                lets[stmt.var] = value
                inner.add(stmt.var)
                continue
            copy = _as_copy(stmt)
            if copy is None:
                continue
            nest, target = copy
            nest = ir.substitute(nest, lets) if lets else nest
            reason = self._movable(nest, target, stmt, stmts[:place], uses)
            if reason:
                why = f"the copy to {target.name}: {reason}"
                self._ctx.remark(PipelineLoops.name, why, stmt.span)
            else:
                found.append(_Ahead(stmt, nest, target))
        return found or why

    def _movable(
        self, nest: ir.Stmt, target: ir.Buffer, stmt: ir.Stmt, before: list[ir.Stmt], uses: Uses
    ) -> str:
        """Why a copy has to stay where it is; empty where it may run ahead."""
        for item in ir.walk(nest):
            if isinstance(item, ir.Load) and item.buffer in uses.written:
                return f"it reads {item.buffer.name}, which the loop writes"
            if isinstance(item, ir.Call) and not ir.is_pure(item.name):
                return "it has a further effect"
        if uses.writes(target) != Uses(stmt).writes(target):
            return f"{target.name} is also written otherwise"
        if any(target in Uses(s).buffers for s in before):
            return f"{target.name} is used before it is filled"
        if target in uses.rigid:
            return f"an operation needs {target.name} as it is"
        if any(isinstance(n, ir.Alloc) and n.buffer is target for s in before for n in ir.walk(s)):
            return f"{target.name} is allocated in the loop"
        return ""

    def _private(self, loops: list[ir.For]) -> None:
        """Drop copies to tiles that are also used where no loop fills them anew."""
        total = Uses(self._node.body)
        targets = {a.target for p in self._plans.values() for a in p}
        for target in targets:
            mine = [n for n in loops if any(a.target is target for a in self._plans.get(id(n), ()))]
            nested = any(b is not a and b in set(ir.walk(a)) for a in mine for b in mine)
            inside = sum(Uses(n.body).count(target) for n in mine)
            if not nested and inside == total.count(target):
                continue
            for loop in mine:
                rest = [a for a in self._plans[id(loop)] if a.target is not target]
                self._plans[id(loop)] = rest
                self._ctx.remark(
                    PipelineLoops.name,
                    f"the copy to {target.name}: {target.name} is also used outside of the loop",
                    loop.span,
                )

    def _capacity(self) -> int | None:
        """Bytes of shared memory that are left for rings; None where there is no limit."""
        capabilities = self._ctx.capabilities
        memory = None if capabilities is None else capabilities.memories.get(ir.SHARED)
        if memory is None or memory.bytes is None:
            return None
        taken = sum(
            _bytes(n.buffer)
            for n in ir.walk(self._node.body)
            if isinstance(n, ir.Alloc) and n.buffer.scope() in _SHARED
        )
        return memory.bytes - taken

    def _stages(self, loop: ir.For, plan: list[_Ahead]) -> int:
        """As many stages as wanted, if they fit."""
        wanted = int(loop.annotations["num_stages"])
        each = sum(_bytes(a.target) for a in plan)
        stages = wanted
        while self._spare is not None and stages > 1 and (stages - 1) * each > self._spare:
            stages -= 1
        if stages < wanted:
            self._ctx.remark(
                PipelineLoops.name, f"{stages} of {wanted} stages fit in shared memory", loop.span
            )
        if self._spare is not None:
            self._spare -= (stages - 1) * each
        return stages

    # rewriting

    def _visit(self, node: Any) -> Any:
        if not isinstance(node, ir.Stmt):
            return node
        if isinstance(node, (ir.For, ir.While)):
            self._depth += 1
            inner: Any = ir.map_children(node, self._visit)
            self._depth -= 1
            if not isinstance(node, ir.For) or node.kind != "pipelined":
                return inner
            plan = self._plans.get(id(node), [])
            stages = self._stages(node, plan) if plan else 1
            if stages < 2:
                return inner.replace(kind="serial", annotations={})
            return self._pipelined(node, inner, plan, stages)
        return ir.map_children(node, self._visit)

    def _pipelined(self, node: ir.For, inner: ir.For, plan: list[_Ahead], stages: int) -> ir.Stmt:
        span, step = node.span, ir.const_value(node.step)
        assert isinstance(step, int)
        rings: dict[ir.Buffer, ir.Buffer] = {}
        layouts = dict(self._layouts)
        for ahead in plan:
            old = ahead.target
            ring = old.replace(shape=(stages, *old.shape))
            rings[old] = ring
            if isinstance(layouts.get(old), Layout):
                self._layouts.append((ring, layouts[old].expand((stages,))))
        self._managed.extend(rings.values())
        parts: list[ir.Stmt] = [ir.Alloc(r, span=span) for r in rings.values()]
        start = self._once("start", node.start, parts)
        stop = self._once("stop", node.stop, parts)
        dtype = node.var.dtype

        def copies(at: Any, slot: Any) -> ir.Stmt:
            done: list[ir.Stmt] = []
            for ahead in plan:
                nest = ir.substitute(ir.copy_bindings(ahead.nest), {node.var: at})
                done.append(_renamed(nest, {ahead.target: rings[ahead.target]}, slot))
            body = ir.seq(*done)
            return ir.If(ir.binary(ir.BinOp.LT, at, stop), body, span=span)

        if self._depth:  # the rings may still be read by the trips of the last time
            parts.append(effect("sync", span=span))
        first = ir.Var("s", INT32)
        begin: Any = ir.cast(first, dtype)
        begin = begin if step == 1 else begin * step
        begin = begin if ir.const_value(start) == 0 else start + begin
        prologue = ir.seq(copies(begin, first), effect("cp_async_commit", span=span))
        parts.append(
            ir.For(first, number(0), number(stages - 1), number(1), "unroll", {}, prologue,
                   span=span)
        )  # fmt: skip
        trip: Any = node.var if ir.const_value(start) == 0 else node.var - start
        trip = ir.cast(trip if step == 1 else trip // step, INT32)
        slot = ir.as_expr(trip % stages)
        later = ir.as_expr((trip + (stages - 1)) % stages)
        skipped = {id(a.stmt) for a in plan}
        rest = [
            new
            for old, new in zip(_statements(node.body), _statements(inner.body), strict=True)
            if id(old) not in skipped
        ]
        compute = _renamed(ir.Seq(tuple(rest), span=span), rings, slot)
        atoms = () if self._ctx.capabilities is None else self._ctx.capabilities.matrix_atoms
        engines = any(a.asynchronous and ir.SHARED in a.homes for a in atoms)
        body = ir.Seq(
            (
                effect("cp_async_wait", number(stages - 2), span=span),
                *([effect("fence_proxy_async", span=span)] if engines else []),
                effect("sync", span=span),
                copies(node.var + (stages - 1) * step, later),
                effect("cp_async_commit", span=span),
                compute,
            ),
            span=span,
        )
        parts.append(ir.For(node.var, start, stop, node.step, "serial", {}, body, span=span))
        self._ctx.remark(
            PipelineLoops.name,
            f"{stages} stages of {', '.join(a.target.name for a in plan)}", span,
        )  # fmt: skip
        return ir.Seq(tuple(parts), span=span)

    @staticmethod
    def _once(name: str, value: ir.Expr, parts: list[ir.Stmt]) -> Any:
        """A bound that is evaluated before the loop."""
        if isinstance(value, (ir.Const, ir.Var)):
            return value
        var = ir.Var(name, value.dtype, span=value.span)
        parts.append(ir.Bind(var, value, span=value.span))
        return var


def _statements(body: ir.Stmt) -> list[ir.Stmt]:
    if isinstance(body, ir.Seq):
        return [s for item in body.stmts for s in _statements(item)]
    return [body]


def _as_copy(stmt: ir.Stmt) -> tuple[ir.Parallel, ir.Buffer] | None:
    """A statement that fills a whole tile in shared memory from global memory, as a nest."""
    nest: Any = stmt
    if isinstance(stmt, Copy):
        if stmt.src.buffer.scope() != ir.GLOBAL or stmt.dst.buffer.scope() not in _SHARED:
            return None
        nest = stmt.lower()
    if not isinstance(nest, ir.Parallel):
        return None
    body = nest.body
    while isinstance(body, ir.Seq) and len(body.stmts) == 1:
        body = body.stmts[0]
    if not isinstance(body, ir.Store) or body.buffer.scope() not in _SHARED:
        return None
    value: Any = body.value
    if isinstance(value, ir.Select) and ir.const_value(value.other) == 0:
        value = value.then
    if not isinstance(value, ir.Load) or value.buffer.scope() != ir.GLOBAL:
        return None
    # All of the tile, each variable at its place.
    names = iter(zip(nest.vars, nest.extents, strict=True))
    for index, extent in zip(body.indices, body.buffer.shape, strict=True):
        if extent == 1 and ir.const_value(index) == 0:
            continue
        var, bound = next(names, (None, None))
        if index is not var or ir.const_value(bound) != extent:
            return None
    if next(names, None) is not None:
        return None
    return nest.replace(annotations={**nest.annotations, ASYNC: True}), body.buffer


def _renamed(node: Any, rings: dict[ir.Buffer, ir.Buffer], slot: ir.Expr) -> Any:
    """`node` with one slot of each ring in place of a tile."""

    def visit(item: Any) -> Any:
        if isinstance(item, ir.Buffer) or not isinstance(item, ir.Node):
            return item
        new = ir.map_children(item, visit)
        if isinstance(new, (ir.Load, ir.Store)) and new.buffer in rings:
            return new.replace(buffer=rings[new.buffer], indices=(slot, *new.indices))
        if isinstance(new, ir.BufferRegion) and new.buffer in rings:
            return new.replace(
                buffer=rings[new.buffer], mins=(slot, *new.mins), extents=(1, *new.extents)
            )
        return new

    return visit(node)


def _without(node: Any, gone: set[ir.Buffer]) -> Any:
    """Statements without the allocations of some buffers."""
    if isinstance(node, ir.Alloc) and node.buffer in gone:
        return ir.Seq((), span=node.span)
    return (
        ir.map_children(node, lambda child: _without(child, gone))
        if isinstance(node, ir.Stmt) and not isinstance(node, TileOp)
        else node
    )


def _bytes(buffer: ir.Buffer) -> int:
    size = math.prod(e for e in buffer.shape if isinstance(e, int))
    return -(-size * buffer.dtype.bits // 8 // 128) * 128
