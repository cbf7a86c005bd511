"""Simplification of a whole function.

Before::

    for i in T.serial(64):
        if bx * 64 + i < 4096:          # bx < 64
            t = bx
            B[(t * 64 + i) // 64, (t * 64 + i) % 64] = A[i * 1]

After::

    for i in T.serial(64):
        B[bx, i] = A[i]
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.ir import UnOp
from tilec.transform.base import FunctionPass, PassConfigKey, PassContext
from tilec.transform.scoped import ScopedRewriter

_EMPTY = ir.Seq(())


class Simplify(FunctionPass):
    """Simplifies every expression with what is known where it stands.

    Branches that are decided go, so do loops without trips, what follows a jump, and lets of a
    variable or constant. Lets that read memory or have an effect stay where they are.
    """

    name = "simplify"
    purpose = "simplify expressions; drop decided branches, empty loops and trivial lets"

    def applies(self, ctx: PassContext) -> bool:
        """Whether the configuration wants it."""
        wanted = ctx.get(PassConfigKey.TIR_SIMPLIFY)
        return wanted is not False

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Simplify one function."""
        del ctx
        return _Simplify(func).function(func)


class _Simplify(ScopedRewriter):
    def __init__(self, func: ir.PrimFunc) -> None:
        super().__init__()
        # Lets that a buffer's shape mentions stay: buffers are not rebuilt.
        self._kept: set[int] = set()
        for node in ir.walk(func.body):
            if isinstance(node, ir.Alloc):
                for extent in (*node.buffer.shape, *(node.buffer.strides or ())):
                    if isinstance(extent, ir.Expr):
                        self._kept.update(id(v) for v in ir.free_vars(extent))

    def expr(self, node: Any) -> Any:
        return self.facts.simplify(node)

    def operand(self, node: Any) -> Any:
        if isinstance(node, ir.BufferRegion):
            return self.facts.simplify_node(node)
        return super().operand(node)

    def leaf(self, node: Any) -> Any:
        new = super().leaf(node)
        if isinstance(new, ir.Evaluate) and self.facts.keys.pure(new.value):
            return _EMPTY
        return new

    def seq(self, node: ir.Seq) -> ir.Stmt:
        new = super().seq(node)
        assert isinstance(new, ir.Seq)
        if any(isinstance(child, ir.Seq) for child in new.stmts):
            flat = ir.seq(*new.stmts)
            return flat if isinstance(flat, ir.Seq) else new.replace(stmts=(flat,))
        return new

    def bind(self, node: ir.Bind) -> ir.Stmt:
        value = self.expr(node.value)
        if isinstance(value, (ir.Const, ir.Var)) and id(node.var) not in self._kept:
            self.facts.bind_alias(node.var, value)
            return _EMPTY
        self.facts.bind_value(node.var, value)
        return node if value is node.value else node.replace(value=value)

    def check(self, node: ir.Assert) -> ir.Stmt:
        new = super().check(node)
        assert isinstance(new, ir.Assert)
        return _EMPTY if ir.const_value(new.cond) is True else new

    def loop(self, node: ir.For) -> ir.Stmt:
        start, stop, step = self.expr(node.start), self.expr(node.stop), self.expr(node.step)
        pure = all(self.facts.keys.pure(e) for e in (start, stop, step))
        first, last = (start, stop) if self.facts.bounds(step).lo > 0 else (stop, start)
        if pure and self.facts.bounds(step).lo != 0 and self._not_below(first, last):
            return _EMPTY
        new = super().loop(node)
        return _EMPTY if pure and _is_empty(getattr(new, "body", None)) else new

    def _not_below(self, first: ir.Expr, last: ir.Expr) -> bool:
        return self.facts.prove(
            ir.Binary(ir.BinOp.GE, first, last, ir.DType("bool"), span=first.span)
        )

    def parallel(self, node: ir.Parallel) -> ir.Stmt:
        extents = [self.expr(e) for e in node.extents]
        pure = all(self.facts.keys.pure(e) for e in extents)
        if pure and any(self.facts.bounds(e).hi <= 0 for e in extents):
            return _EMPTY
        new = super().parallel(node)
        return _EMPTY if pure and _is_empty(getattr(new, "body", None)) else new

    def while_loop(self, node: ir.While) -> ir.Stmt:
        cond = self.expr(node.cond)
        if ir.const_value(cond) is False:
            return _EMPTY
        return super().while_loop(node)

    def branch(self, node: ir.If) -> ir.Stmt:
        cond = self.expr(node.cond)
        known = ir.const_value(cond)
        if known is not None:
            chosen = node.then if known else node.other
            return _EMPTY if chosen is None else self.stmt(chosen)
        new = super().branch(node)
        assert isinstance(new, ir.If)
        if new.other is not None and _is_empty(new.other):
            new = new.replace(other=None)
        if not _is_empty(new.then):
            return new
        if new.other is not None:
            opposite = ir.Unary(UnOp.NOT, new.cond, new.cond.dtype, span=new.cond.span)
            return new.replace(cond=self.expr(opposite), then=new.other, other=None)
        return _EMPTY if self.facts.keys.pure(cond) else ir.Evaluate(cond, span=node.span)


def _is_empty(node: ir.Stmt | None) -> bool:
    return isinstance(node, ir.Seq) and all(_is_empty(s) for s in node.stmts)
