"""What the lanes of a block agree on."""

from __future__ import annotations

from typing import Any

from tilec import ir

_PRIVATE = (ir.LOCAL, ir.LOCAL_VAR)


def divergent_names(launch: ir.Launch) -> set[Any]:
    """Variables and private buffers of a launch whose values may differ between lanes.

    A value that was read from shared or global memory at a place on which the lanes agree is one
    that they agree on, as long as no lane writes there at the same time.
    """
    found: set[Any] = set(launch.thread_vars)
    while True:
        before = len(found)
        _Pass(found).stmt(launch.body, False)
        if len(found) == before:
            return found


def diverges(expr: Any, divergent: set[Any]) -> bool:
    """Whether lanes may disagree about the value of an expression."""
    for node in ir.walk(expr):
        if isinstance(node, ir.Var) and node in divergent:
            return True
        if isinstance(node, ir.Load) and node.buffer in divergent:
            return True
        if isinstance(node, ir.Call) and not ir.is_pure(node.name):
            return True
    return False


class _Pass:
    """One step of the fixed point: adds what depends on what is divergent already."""

    def __init__(self, found: set[Any]) -> None:
        self._found = found

    def _diverges(self, expr: Any) -> bool:
        return diverges(expr, self._found)

    def stmt(self, node: Any, apart: bool) -> None:
        """Visit a statement; `apart` where lanes disagree about being here."""
        if isinstance(node, ir.Bind):
            if self._diverges(node.value):
                self._found.add(node.var)
        elif isinstance(node, (ir.Store, ir.Alloc)):
            self._written(node, apart)
        elif isinstance(node, ir.For):
            if any(self._diverges(b) for b in (node.start, node.stop, node.step)):
                self._found.add(node.var)
                apart = True
            self.stmt(node.body, apart or self._jumps_apart(node.body))
        elif isinstance(node, ir.While):
            apart = apart or self._diverges(node.cond)
            self.stmt(node.body, apart or self._jumps_apart(node.body))
        elif isinstance(node, ir.If):
            inner = apart or self._diverges(node.cond)
            self.stmt(node.then, inner)
            if node.other is not None:
                self.stmt(node.other, inner)
        else:
            if isinstance(node, ir.Evaluate):
                self._effect(node.value)
            for child in node.children:
                if isinstance(child, ir.Stmt):
                    self.stmt(child, apart)

    def _written(self, node: Any, apart: bool) -> None:
        if node.buffer.scope() not in _PRIVATE:
            return
        values = (node.init,) if isinstance(node, ir.Alloc) else (*node.indices, node.value)
        if apart or any(v is not None and self._diverges(v) for v in values):
            self._found.add(node.buffer)

    def _effect(self, value: Any) -> None:
        """Whatever an intrinsic may write into registers differs between lanes."""
        for node in ir.walk(value):
            if isinstance(node, (ir.Load, ir.BufferRegion)) and node.buffer.scope() in _PRIVATE:
                self._found.add(node.buffer)

    def _jumps_apart(self, body: ir.Stmt) -> bool:
        return jumps_apart(body, self._found)


def jumps_apart(body: ir.Stmt, divergent: set[Any]) -> bool:
    """Whether some lanes may leave a loop body earlier than others."""

    def visit(node: Any, apart: bool, depth: int) -> bool:
        if isinstance(node, ir.Return):
            return apart
        if isinstance(node, (ir.Break, ir.Continue)):
            return apart and depth == 0
        if isinstance(node, ir.If):
            inner = apart or diverges(node.cond, divergent)
            branches = [node.then] + ([node.other] if node.other is not None else [])
            return any(visit(b, inner, depth) for b in branches)
        if isinstance(node, ir.For):
            bounds = (node.start, node.stop, node.step)
            return visit(node.body, apart or any(diverges(b, divergent) for b in bounds), depth + 1)
        if isinstance(node, ir.While):
            return visit(node.body, apart or diverges(node.cond, divergent), depth + 1)
        return any(visit(c, apart, depth) for c in node.children if isinstance(c, ir.Stmt))

    return visit(body, False, 0)
