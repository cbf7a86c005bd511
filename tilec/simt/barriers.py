"""Barriers where lanes of a block would otherwise meet in memory unordered.

Walking a block in order, the pass keeps the accesses to shared and global memory since the last
barrier. Before a statement that touches an element which another lane has written, or writes one
which another lane has touched, goes a barrier; buffers that lie at one place count as one. Loop
bodies are walked twice, the second time with what their own last trip left behind.

Before::

    s[tid] = A[tid]
    B[tid] = s[127 - tid]

After::

    s[tid] = A[tid]
    T.sync_threads()
    B[tid] = s[127 - tid]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec import ir
from tilec.diagnostics import NestingError
from tilec.simt.accesses import PRIVATE, Accesses, Conds, bound_vars
from tilec.simt.footprint import WRITE, LaneSet, Site, Steps, may_meet
from tilec.simt.memory import overlapping
from tilec.simt.uniform import divergent_names, diverges, jumps_apart
from tilec.transform.base import FunctionPass, PassContext

MANAGED = "managed"
GROUPS = "groups"
INDEPENDENT = "independent"  # a note on a loop: its lanes never touch the same elements
_FEW_TRIPS = 64
_INT32 = ir.DType("int32")
_BOOL = ir.DType("bool")


class InsertBarriers(FunctionPass):
    """Puts `sync` before statements that need it, outside of what lanes disagree about."""

    name = "insert_barriers"
    purpose = "order the lanes of a block where they meet in memory"
    needs = "thread"
    gives = "thread"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Treat every launch of a function."""
        del ctx

        def visit(node: Any) -> Any:
            if isinstance(node, ir.Launch):
                return node.replace(body=_Inserter(node).run())
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


class _Inserter:
    """Inserts barriers into one launch."""

    def __init__(self, launch: ir.Launch) -> None:
        self._launch = launch
        self._divergent = divergent_names(launch)
        x, y, z = launch.threads or (1, 1, 1)
        self._lanes = LaneSet(launch.thread_vars, (x, y, z), 0, x * y * z)
        self._barrier = 0  # the named barrier of the part of the block at hand; 0: all of it
        self._pending: dict[Any, Site] = {}
        self._left: ir.Return | None = None  # where some lanes may have ended already
        self._managed = frozenset(launch.annotations.get(MANAGED, ()))
        self._overlaps = overlapping(launch)
        # A managed buffer matters only to those that come to lie at its place.
        ignored = frozenset(b for b in self._managed if b not in self._overlaps)
        self._accesses = Accesses(ignored)
        self._around: dict[ir.Var, Steps] = {}  # short loops around the statement at hand

    def run(self) -> ir.Stmt:
        """The body with barriers."""
        if self._lanes.count == 1:
            return self._launch.body
        return self._stmt(self._launch.body, ())

    # what is known

    def _clashes(self, sites: Iterable[Site]) -> tuple[Site, Site] | None:
        for later in sites:
            for earlier in self._pending.values():
                if self._meet(earlier, later):
                    return earlier, later
        return None

    def _meet(self, earlier: Site, later: Site) -> bool:
        if earlier.buffer is later.buffer and later.buffer in self._managed:
            return False
        return may_meet(earlier, later, self._lanes, self._divergent, self._overlaps, self._around)

    def _remember(self, sites: Iterable[Site]) -> None:
        for one in sites:
            self._pending.setdefault(one.key, one)

    def _sync(self, node: ir.Stmt) -> ir.Stmt:
        """A barrier in front of `node`."""
        if self._left is not None:
            raise NestingError(
                "lanes meet in memory here, but some of them may have returned before",
                span=node.span,
                notes=(f"the return is at {self._left.span}",),
                hint="put the rest of the block under the opposite condition instead",
            )
        self._pending.clear()
        args: tuple[ir.Expr, ...] = ()
        if self._barrier:
            args = (ir.Const(self._barrier, _INT32), ir.Const(self._lanes.count, _INT32))
        return ir.Evaluate(ir.Call("sync", args, _INT32, span=node.span), span=node.span)

    def _ordered(self, node: ir.Stmt, sites: list[Site]) -> list[ir.Stmt]:
        """A barrier if `sites`, which `node` touches first, need one; they are pending then."""
        barrier = [self._sync(node)] if self._clashes(sites) else []
        self._remember(sites)
        return barrier

    # statements

    def _stmt(self, node: Any, conds: Conds) -> ir.Stmt:
        """A statement that all lanes reach together."""
        if isinstance(node, ir.Seq):
            return self._seq(node, conds)
        if isinstance(node, ir.For):
            return self._for(node, conds)
        if isinstance(node, ir.While):
            return self._while(node, conds)
        if isinstance(node, ir.If):
            return self._if(node, conds)
        return self._leaf(node, conds)

    def _seq(self, node: ir.Seq, conds: Conds) -> ir.Stmt:
        new: list[ir.Stmt] = []
        for child in node.stmts:
            done = self._stmt(child, conds)
            new.extend(done.stmts if isinstance(done, ir.Seq) else (done,))
        same = len(new) == len(node.stmts) and all(
            a is b for a, b in zip(new, node.stmts, strict=True)
        )
        return node if same else node.replace(stmts=tuple(new))

    def _leaf(self, node: ir.Stmt, conds: Conds) -> ir.Stmt:
        if isinstance(node, ir.Evaluate) and isinstance(node.value, ir.Call):
            if node.value.name == "sync" and len(node.value.args) in (0, 2):
                if self._is_ours(node.value):
                    self._pending.clear()
                return node
            if node.value.name == "cp_async_wait":
                # What the copies wrote becomes the work of the lane that waits, as of now.
                self._remember(self._accesses.statement(node, conds))
                self._accesses.started.clear()
                return node
        parts = self._apart(node, conds)
        new: list[ir.Stmt] = []
        for part in parts:
            new += [*self._ordered(part, self._accesses.statement(part, conds)), part]
        return ir.Seq(tuple(new), span=node.span) if len(new) > 1 else new[0]

    def _is_ours(self, call: ir.Call) -> bool:
        """Whether a barrier is one of all the lanes at hand."""
        if not call.args:
            return not self._barrier
        return ir.const_value(call.args[1]) == self._lanes.count

    def _apart(self, node: ir.Stmt, conds: Conds) -> list[ir.Stmt]:
        """A statement whose reads come before its writes, in two where lanes meet in it."""
        value = self._meets_itself(node, conds)
        if value is None:
            return [node]
        var = ir.Var("value", value.dtype)
        if diverges(value, self._divergent):
            self._divergent.add(var)
        return [ir.Bind(var, value, span=node.span), _with_value(node, var)]

    def _meets_itself(self, node: ir.Stmt, conds: Conds) -> ir.Expr | None:
        """The value of a store or an update that reads what another lane changes in it."""
        value = _value_of(node)
        if value is None:
            return None
        reads = self._accesses.expression(value, conds)
        whole = self._accesses.statement(node, conds)
        return value if any(self._meet(read, whole[-1]) for read in reads) else None

    # loops

    def _for(self, node: ir.For, conds: Conds) -> ir.Stmt:
        bounds = (node.start, node.stop, node.step)
        if INDEPENDENT in node.annotations:
            sites = self._accesses.statement(node, conds)
            return _after(self._ordered(node, sites), node)
        apart = any(diverges(b, self._divergent) for b in bounds)
        if apart or jumps_apart(node.body, self._divergent) or node.kind == "vectorized":
            return self._block(node, conds)
        sites = [s for b in bounds for s in self._accesses.expression(b, conds)]
        before = self._ordered(node, sites)
        steps = self._accesses.steps(node)
        if steps.trips is not None and steps.trips <= _FEW_TRIPS:
            self._around[node.var] = steps
        if self._pending and self._clashes(self._accesses.statement(node, conds)):
            # Once before the loop rather than in every trip.
            before.append(self._sync(node))
        body = self._trips(node.body, node.var, steps, conds, ())
        self._around.pop(node.var, None)
        return _after(before, node if body is node.body else node.replace(body=body))

    def _while(self, node: ir.While, conds: Conds) -> ir.Stmt:
        if diverges(node.cond, self._divergent) or jumps_apart(node.body, self._divergent):
            return self._block(node, conds)
        test = self._accesses.expression(node.cond, conds)
        before = self._ordered(node, test)
        # The condition is read again behind every trip.
        body = self._trips(node.body, None, Steps(0, 1, None), conds, test)
        return _after(before, node if body is node.body else node.replace(body=body))

    def _trips(
        self,
        body: ir.Stmt,
        var: ir.Var | None,
        steps: Steps,
        conds: Conds,
        test: Iterable[Site],
    ) -> ir.Stmt:
        entry = dict(self._pending)
        bound = bound_vars(body)

        def once() -> ir.Stmt:
            new = self._stmt(body, conds)
            if test:
                behind = self._clashes(test)
                if behind is not None:
                    new = ir.seq(new, self._sync(body))
                self._remember(test)
            left = [one.after_loop(var, steps, bound) for one in self._pending.values()]
            self._pending = {one.key: one for one in left}
            return new

        once()
        self._pending.update(entry)
        new = once()
        if not steps.trips:
            self._pending.update(entry)
        return new

    # branches

    def _if(self, node: ir.If, conds: Conds) -> ir.Stmt:
        if diverges(node.cond, self._divergent):
            parts = self._parts(node)
            if parts is None:
                return self._block(node, conds)
            return self._groups(node, parts, conds)
        before = self._ordered(node, self._accesses.expression(node.cond, conds))
        cond = self._accesses.seen(node.cond)
        entry = dict(self._pending)
        then = self._stmt(node.then, (*conds, (cond, True)))
        behind, self._pending = self._pending, entry
        other = node.other
        if other is not None:
            other = self._stmt(other, (*conds, (cond, False)))
        self._pending = {**behind, **self._pending}
        same = then is node.then and other is node.other
        return _after(before, node if same else node.replace(then=then, other=other))

    def _parts(self, node: ir.If) -> list[tuple[int, int, int]] | None:
        """The groups (first lane, lanes, barrier) that take the branches of a condition."""
        groups = self._launch.annotations.get(GROUPS, ())
        mask = None if not groups or self._barrier else self._lanes.mask(node.cond)
        if mask is None:
            return None
        found = []
        for truth in (True, False):
            lanes = self._lanes.lanes()[mask == truth]
            match = [g for g in groups if len(lanes) == g[1] and lanes[0] == g[0]]
            if truth and not match:
                return None
            if match:
                found.append(match[0])
        return found

    def _groups(self, node: ir.If, parts: list[tuple[int, int, int]], conds: Conds) -> ir.Stmt:
        """Branches that parts of the block take: each is ordered by a barrier of its own."""
        before = self._ordered(node, self._accesses.statement(node, conds))
        branches: list[ir.Stmt | None] = [node.then, node.other]
        outer = (self._lanes, self._barrier, self._pending)
        for number, branch in enumerate(branches):
            if branch is None:
                continue
            if number >= len(parts):
                inner = self._block(branch, conds)
            else:
                first, count, barrier = parts[number]
                self._lanes = LaneSet(self._lanes.thread_vars, self._lanes.shape, first, count)
                self._barrier, self._pending = barrier, {}
                inner = self._stmt(branch, conds)
                self._lanes, self._barrier, self._pending = outer
            branches[number] = inner
        then, other = branches
        same = then is node.then and other is node.other
        return _after(before, node if same else node.replace(then=then, other=other))

    # what lanes disagree about

    def _block(self, node: ir.Stmt, conds: Conds) -> ir.Stmt:
        """A statement that only some lanes reach, or not together: no barrier inside."""
        sites = self._accesses.statement(node, conds)
        clash = self._inner_clash(sites)
        if clash is not None:
            pieces = self._cut(node, conds)
            if pieces is None:
                raise NestingError(
                    f"lanes meet in {clash[1].buffer.name} inside of control flow about which "
                    "they may disagree, so that no barrier can order them",
                    span=clash[1].span if clash[1].span.known else node.span,
                    notes=(f"the other access is at {clash[0].span}",),
                    hint="move the condition on the lane into each statement",
                )
            return self._seq(ir.Seq(tuple(pieces), span=node.span), conds)
        for item in ir.walk(node):
            if isinstance(item, ir.Return):
                self._left = item
        return _after(self._ordered(node, sites), node)

    def _inner_clash(self, sites: list[Site]) -> tuple[Site, Site] | None:
        for number, later in enumerate(sites):
            for earlier in sites[:number]:
                if WRITE in (later.kind, earlier.kind) and self._meet(earlier, later):
                    return earlier, later
        return None

    def _cut(self, node: ir.Stmt, conds: Conds) -> list[ir.Stmt] | None:
        """A branch as one branch per statement, so that barriers fit in between."""
        if not isinstance(node, ir.If) or node.other is not None:
            return None
        if any(isinstance(n, (ir.Break, ir.Continue, ir.Return)) for n in ir.walk(node.then)):
            return None
        cond = ir.Var("here", _BOOL)
        self._divergent.add(cond)
        inner = (*conds, (self._accesses.seen(node.cond), True))
        result: list[ir.Stmt] = [ir.Bind(cond, node.cond, span=node.cond.span)]
        lets: list[ir.Bind] = []
        for child in node.then.stmts if isinstance(node.then, ir.Seq) else (node.then,):
            if isinstance(child, ir.Alloc):
                result.append(child)
                continue
            if isinstance(child, ir.Bind):
                if any(isinstance(n, (ir.Load, ir.Call)) for n in ir.walk(child.value)):
                    return None
                lets.append(child)
                continue
            value = self._meets_itself(child, inner)
            parts = [child]
            if value is not None:
                held = ir.Buffer("held", (1,), value.dtype, ir.LOCAL_VAR)
                self._divergent.add(held)
                result.append(ir.Alloc(held, span=child.span))
                zero = (ir.Const(0, _INT32),)
                first = ir.Store(held, zero, value, span=child.span)
                load = ir.Load(held, zero, value.dtype, span=child.span)
                parts = [first, _with_value(child, load)]
            for part in parts:
                used = ir.copy_bindings(ir.Seq((*lets, part), span=child.span)) if lets else part
                result.append(ir.If(cond, used, span=child.span))
        return result


def _value_of(node: ir.Stmt) -> ir.Expr | None:
    """What a store or an atomic update of memory that lanes share brings there."""
    if isinstance(node, ir.Store):
        return node.value if node.buffer.scope() not in PRIVATE else None
    call = node.value if isinstance(node, ir.Evaluate) else None
    if isinstance(call, ir.Call) and call.name.startswith("atomic_") and len(call.args) > 1:
        return call.args[1]  # type: ignore[no-any-return]
    return None


def _with_value(node: ir.Stmt, value: ir.Expr) -> ir.Stmt:
    """The same store or update of another value."""
    if isinstance(node, ir.Store):
        return node.replace(value=value)
    assert isinstance(node, ir.Evaluate)
    assert isinstance(node.value, ir.Call)
    call = node.value
    return node.replace(value=call.replace(args=(call.args[0], value, *call.args[2:])))


def _after(before: list[ir.Stmt], node: ir.Stmt) -> ir.Stmt:
    return ir.Seq((*before, node), span=node.span) if before else node
