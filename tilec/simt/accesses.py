"""The accesses to shared and global memory that a statement of thread form makes, in order."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.ir import BinOp
from tilec.simt.footprint import ATOMIC, READ, UNKNOWN, WRITE, Site, Steps, site

PRIVATE = frozenset({ir.LOCAL, ir.LOCAL_VAR})
_ROW = 8  # elements of one row of the matrices that ldmatrix and stmatrix move
# Intrinsics whose first argument is an address that they write, or whose second one they read.
_ROWS = {"ldmatrix": (1, READ), "stmatrix": (0, WRITE)}
Conds = tuple[tuple[ir.Expr, bool], ...]


class Accesses:
    """Collects accesses of statements.

    Attributes:
        lets: values of immutable variables that do not read memory; indices are seen through them.
        started: destinations of asynchronous copies that have not been waited for.
    """

    def __init__(self, ignored: frozenset[ir.Buffer]) -> None:
        self._ignored = ignored
        self.lets: dict[ir.Var, ir.Expr] = {}
        self.started: list[Site] = []

    def statement(self, node: ir.Stmt, conds: Conds = ()) -> list[Site]:
        """All accesses of a statement and what is inside it."""
        found: list[Site] = []
        self._visit(node, conds, found)
        return found

    def expression(self, node: Any, conds: Conds = ()) -> list[Site]:
        """What an expression reads or changes."""
        found: list[Site] = []
        self._expr(node, conds, found)
        return found

    def seen(self, node: ir.Expr) -> ir.Expr:
        """An expression with lets replaced by their values."""
        return ir.substitute(node, self.lets) if self.lets else node

    def let(self, node: ir.Bind) -> None:
        """Remember a let, if its value stays what it is."""
        if not any(isinstance(n, (ir.Load, ir.Call)) for n in ir.walk(node.value)):
            self.lets[node.var] = self.seen(node.value)

    def steps(self, node: ir.For) -> Steps:
        """The values of a loop variable, as far as they are constant."""
        start, stop, step = (
            ir.const_value(self.seen(v)) for v in (node.start, node.stop, node.step)
        )
        if isinstance(start, int) and isinstance(step, int) and step:
            if isinstance(stop, int):
                return Steps(start, step, max(-(-(stop - start) // step), 0))
            return Steps(start, step, None)
        return UNKNOWN if not isinstance(step, int) else Steps(0, step, None)

    def _visit(self, node: Any, conds: Conds, found: list[Site]) -> None:
        if isinstance(node, ir.Bind):
            self._expr(node.value, conds, found)
            self.let(node)
        elif isinstance(node, ir.Store):
            for part in (*node.indices, node.value):
                self._expr(part, conds, found)
            self._note(node.buffer, WRITE, node.indices, conds, node, found)
        elif isinstance(node, ir.For):
            for bound in (node.start, node.stop, node.step):
                self._expr(bound, conds, found)
            self._loop(node, node.var, self.steps(node), conds, found)
        elif isinstance(node, ir.While):
            self._expr(node.cond, conds, found)
            self._loop(node, None, UNKNOWN, conds, found)
        elif isinstance(node, ir.If):
            self._expr(node.cond, conds, found)
            cond = self.seen(node.cond)
            self._visit(node.then, (*conds, (cond, True)), found)
            if node.other is not None:
                self._visit(node.other, (*conds, (cond, False)), found)
        else:
            for child in node.children:
                if isinstance(child, ir.Stmt):
                    self._visit(child, conds, found)
                else:
                    self._expr(child, conds, found)

    def _loop(
        self, node: Any, var: ir.Var | None, steps: Steps, conds: Conds, found: list[Site]
    ) -> None:
        inner: list[Site] = []
        self._visit(node.body, conds, inner)
        bound = bound_vars(node.body)
        found.extend(s.after_loop(var, steps, bound) for s in inner)

    def _expr(self, node: Any, conds: Conds, found: list[Site]) -> None:
        if isinstance(node, ir.Load):
            for index in node.indices:
                self._expr(index, conds, found)
            self._note(node.buffer, READ, node.indices, conds, node, found)
        elif isinstance(node, ir.Call) and not ir.is_pure(node.name):
            self._effect(node, conds, found)
        elif isinstance(node, ir.Select):
            self._expr(node.cond, conds, found)
            cond = self.seen(node.cond)
            self._expr(node.then, (*conds, (cond, True)), found)
            self._expr(node.other, (*conds, (cond, False)), found)
        elif isinstance(node, ir.Binary) and node.op in (BinOp.AND, BinOp.OR):
            self._expr(node.lhs, conds, found)
            under = (self.seen(node.lhs), node.op is BinOp.AND)
            self._expr(node.rhs, (*conds, under), found)
        elif isinstance(node, ir.BufferRegion):
            self._region(node, READ, conds, found)
        elif isinstance(node, ir.Node) and not isinstance(node, ir.Buffer):
            for child in node.children:
                self._expr(child, conds, found)

    def _effect(self, node: ir.Call, conds: Conds, found: list[Site]) -> None:
        args = node.args
        if node.name == "cp_async_wait":
            found.extend(self.started)
        if node.name == "cp_async":
            count = ir.const_value(args[2])
            width = count if isinstance(count, int) else 1
            self._note(args[1].buffer, READ, args[1].indices, conds, node, found, width)
            mark = len(found)
            self._note(args[0].buffer, WRITE, args[0].indices, conds, node, found, width)
            self.started.extend(found[mark:])
            return
        if node.name in _ROWS:
            place, kind = _ROWS[node.name]
            address = args[place]
            self._note(address.buffer, kind, address.indices, conds, node, found, _ROW)
            return
        for number, arg in enumerate(args):
            if isinstance(arg, ir.Load) and number == 0 and node.name.startswith("atomic_"):
                self._note(arg.buffer, ATOMIC, arg.indices, conds, node, found)
            elif isinstance(arg, ir.BufferRegion):
                # Operations on regions read all their operands but the first, which they write.
                self._region(arg, WRITE if number == 0 else READ, conds, found)
            elif isinstance(arg, ir.Node):
                self._expr(arg, conds, found)

    def _region(self, node: ir.BufferRegion, kind: str, conds: Conds, found: list[Site]) -> None:
        buffer = node.buffer
        if buffer.scope() in PRIVATE or buffer in self._ignored:
            return
        found.append(Site(buffer, kind, None, 1, conds, node.span, key=(id(buffer), kind, "all")))

    def _note(
        self,
        buffer: ir.Buffer,
        kind: str,
        indices: tuple[ir.Expr, ...],
        conds: Conds,
        node: ir.Node,
        found: list[Site],
        width: int = 1,
    ) -> None:
        if buffer.scope() in PRIVATE or buffer in self._ignored:
            return
        places = tuple(self.seen(i) for i in indices)
        found.append(site(buffer, kind, places, conds, node.span, width))


def bound_vars(node: ir.Stmt) -> set[ir.Var]:
    """Variables bound inside a statement."""
    return {n.var for n in ir.walk(node) if isinstance(n, (ir.Bind, ir.For))}
