"""Adjacent loops over the same elements become one, so that values stay in cache and registers.

Two nests with the same outer extent are merged when every element that one of them writes and the
other touches belongs to one iteration of the outer loop: both index it, in some dimension, with
the same linear expression of the loop variable. The bodies keep their order and nothing is
computed in another order within an element, so results do not change by a bit. Merging goes on
inside the merged loop. Then on-chip buffers that live in a single iteration move into the loop
and lose the dimension it runs over.

Before::

    x = T.alloc_fragment((8, 64), "float32")
    for i, j in T.Parallel(8, 64):
        x[i, j] = A[i, j] + 1
    for i, j in T.Parallel(8, 64):
        B[i, j] = x[i, j] * x[i, j]

After::

    for i in T.serial(8):
        for j in T.Parallel(64):
            x = T.alloc_var("float32")
            x = A[i, j] + 1
            B[i, j] = x * x
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec import ir
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.contract import contract
from tilec.transform.effects import Effects, effects, names_bound, separable
from tilec.transform.parallel import REDUCTION, may_vectorize

_Cache = dict[int, tuple[ir.Stmt, Effects]]


class FuseLoops(FunctionPass):
    """Merges parallel nests whose dependences stay within an iteration, and shrinks buffers."""

    name = "fuse_loops"
    purpose = "merge loops over the same elements and keep row buffers small"
    needs = "tile"
    gives = "tile"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Merge loops in every launch of a function."""

        def visit(node: Any) -> Any:
            if isinstance(node, ir.Launch):
                body = _Fuser(ctx).stmt(node.body)
                if body is not node.body:
                    body = contract(body)
                return node if body is node.body else node.replace(body=body)
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


class _Group:
    """Nests that may run in one loop, in order; the first gives the loop variable."""

    def __init__(self, first: ir.Parallel, seen: Effects) -> None:
        self.members = [first]
        self.seen = [seen]

    @property
    def var(self) -> ir.Var:
        return self.members[0].vars[0]

    def takes(self, node: ir.Parallel, found: Effects) -> bool:
        """Whether `node` (with the group's variable) may and should join."""
        first = self.members[0]
        if not _same(first.extents[0], node.extents[0]):
            return False
        if _heavy(node) and any(REDUCTION in m.annotations for m in self.members):
            return False
        if REDUCTION in node.annotations and any(map(_heavy, self.members)):
            return False
        if not any(found.buffers & other.buffers for other in self.seen):
            return False  # nothing to gain
        return all(separable(other, found, self.var) for other in self.seen)


class _Fuser:
    def __init__(self, ctx: PassContext) -> None:
        self._ctx = ctx
        self._cache: _Cache = {}

    def stmt(self, node: Any) -> Any:
        """Merge loops below a statement."""
        if not isinstance(node, ir.Stmt):
            return node
        new = ir.map_children(node, self.stmt)
        if isinstance(new, ir.Seq):
            flat = _flat(new)
            stmts = self.block(flat)
            if stmts is not flat:
                return new.replace(stmts=stmts)
        return new

    def block(self, stmts: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        """Merge among the statements of one sequence."""
        if sum(_is_nest(s) for s in stmts) < 2:
            return stmts
        out: list[ir.Stmt | _Group] = []
        merged = False
        hoisted: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, ir.Alloc) and _constant(stmt.init) and _static(stmt.buffer):
                hoisted.append(stmt)
            elif isinstance(stmt, ir.Parallel) and _is_nest(stmt):
                merged |= self._place(stmt, out)
            else:
                out.append(stmt)
        if not merged:
            return stmts
        result: list[ir.Stmt] = []
        changed = False
        for item in out:
            if isinstance(item, _Group):
                made = self._build(item)
                changed |= len(made) != len(item.members)
                result += made
            else:
                result.append(item)
        return (*hoisted, *result) if changed else stmts

    def _effects(self, node: ir.Stmt) -> Effects:
        known = self._cache.get(id(node))
        if known is None:
            known = self._cache[id(node)] = (node, effects(node))
        return known[1]

    def _place(self, node: ir.Parallel, out: list[ir.Stmt | _Group]) -> bool:
        """Add a nest to the latest group that takes it; True if one did."""
        found = self._effects(node)
        if not found.opaque:
            for item in reversed(out):
                if isinstance(item, _Group):
                    renamed = _renamed(node, item.var)
                    if renamed is not None and item.takes(renamed, self._effects(renamed)):
                        item.members.append(renamed)
                        item.seen.append(self._effects(renamed))
                        return True
                    if any(found.conflicts(seen) for seen in item.seen):
                        break
                    continue
                if found.conflicts(self._effects(item)) or names_bound(item) & found.names:
                    break
            out.append(_Group(node, found))
        else:
            out.append(node)
        return False

    def _build(self, group: _Group) -> list[ir.Stmt]:
        """The statements of a group: one loop, preceded and followed by what gains nothing."""
        members = group.members
        heavy = [n for n, m in enumerate(members) if _heavy(m)]
        if len(heavy) < 2:
            return self._light(members)
        first, last = heavy[0], heavy[-1]
        inner: list[ir.Stmt] = []
        for node in members[first : last + 1]:
            if len(node.vars) > 1:
                inner.append(node.replace(vars=node.vars[1:], extents=node.extents[1:]))
            else:
                inner += _flat(node.body)
        stmts = self.block(tuple(inner))
        var, span = group.var, members[first].span
        zero, one = ir.Const(0, var.dtype), ir.Const(1, var.dtype)
        stop = ir.cast(members[first].extents[0], var.dtype)
        loop = ir.For(var, zero, stop, one, "serial", {}, ir.Seq(stmts), span=span)
        self._ctx.remark("fuse_loops", f"{last + 1 - first} loop nests merged over rows", span)
        return [
            *_unshared(self._light(members[:first])),
            loop,
            *_unshared(self._light(members[last + 1 :])),
        ]

    def _light(self, nodes: list[ir.Parallel]) -> list[ir.Stmt]:
        """Simple loops over one variable, merged where the result vectorises as they do."""
        result: list[ir.Parallel] = []
        for node in nodes:
            if result and not _heavy(node) and not _heavy(result[-1]):
                before = result[-1]
                body = ir.Seq((*_flat(before.body), *_flat(node.body)))
                notes = {**before.annotations, **node.annotations}
                both = before.replace(body=body, annotations=notes)
                fast = [vectorizable(n) for n in (before, node)]
                # A loop that must run in order neither gains nor loses by joining one like it.
                if (all(fast) and vectorizable(both)) or not any(fast):
                    result[-1] = both
                    continue
            result.append(node)
        fresh: list[ir.Stmt] = []
        for node in result:  # every loop needs a variable of its own again
            fresh.append(ir.copy_bindings(node) if fresh else node)
        return fresh


def vectorizable(node: ir.Parallel) -> bool:
    """Whether the loop over the only variable of a nest becomes a vector loop."""
    return may_vectorize(node.body, node.vars[-1], reduction=REDUCTION in node.annotations)


def _is_nest(node: ir.Stmt) -> bool:
    return isinstance(node, ir.Parallel) and not any(
        isinstance(n, ir.Load) for extent in node.extents for n in ir.walk(extent)
    )


def _heavy(node: ir.Parallel) -> bool:
    """Whether there are loops inside the first one."""
    return len(node.vars) > 1 or any(
        isinstance(n, (ir.For, ir.Parallel)) for n in ir.walk(node.body)
    )


def _same(a: ir.Expr, b: ir.Expr) -> bool:
    if isinstance(a, ir.Const) and isinstance(b, ir.Const):
        return bool(a.value == b.value)
    return ir.structural_equal(a, b)


def _renamed(node: ir.Parallel, var: ir.Var) -> ir.Parallel | None:
    """`node` with `var` in place of its first variable."""
    own = node.vars[0]
    if own.dtype != var.dtype:
        return None
    body = ir.substitute(node.body, {own: var})
    return node.replace(vars=(var, *node.vars[1:]), body=body)


def _unshared(nodes: Iterable[ir.Stmt]) -> list[ir.Stmt]:
    """`nodes` with variables of their own; another loop binds the common one."""
    return [ir.copy_bindings(node) for node in nodes]


def _flat(node: ir.Stmt) -> tuple[ir.Stmt, ...]:
    if isinstance(node, ir.Seq):
        return tuple(s for stmt in node.stmts for s in _flat(stmt))
    return (node,)


def _constant(init: ir.Expr | None) -> bool:
    return init is None or isinstance(init, ir.Const)


def _static(buffer: ir.Buffer) -> bool:
    return all(isinstance(extent, int) for extent in buffer.shape)
