"""Walking statements with what is known at each place: loop ranges, block indices, guards, lets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilec import ir
from tilec.arith import Simplifier
from tilec.ir import BinOp


class ScopedRewriter:
    """Rebuilds a function; `facts` holds what is known where the walk stands.

    Subclasses override `expr` (every expression of a statement), `operand` (regions and other
    operands) and the statement methods. The same object comes back where nothing changed.
    """

    def __init__(self) -> None:
        self.facts = Simplifier()
        self._rules: dict[type, Callable[[Any], ir.Stmt]] = {
            ir.Seq: self.seq,
            ir.Bind: self.bind,
            ir.Alloc: self.alloc,
            ir.Assert: self.check,
            ir.For: self.loop,
            ir.Parallel: self.parallel,
            ir.While: self.while_loop,
            ir.If: self.branch,
            ir.Launch: self.launch,
        }

    def function(self, func: ir.PrimFunc) -> ir.PrimFunc:
        """Rewrite one function."""
        for param in func.params:
            if isinstance(param, ir.Buffer):
                for extent in param.shape:
                    if isinstance(extent, ir.Var):
                        self.facts.bind_range(extent, 0, extent.dtype.int_range[1])
        body = self.stmt(func.body)
        return func if body is func.body else func.replace(body=body)

    # Hooks

    def expr(self, node: Any) -> Any:
        """Rewrite an expression."""
        return node

    def operand(self, node: Any) -> Any:
        """Rewrite an operand: an expression, a region of a buffer, anything else as it is."""
        if isinstance(node, ir.Expr):
            return self.expr(node)
        if isinstance(node, ir.Stmt):
            return self.stmt(node)
        if isinstance(node, ir.BufferRegion):
            return ir.map_children(node, self.operand)
        return node

    # Statements

    def stmt(self, node: Any) -> Any:
        """Rewrite a statement."""
        rule = self._rules.get(type(node))
        return rule(node) if rule is not None else self.leaf(node)

    def leaf(self, node: Any) -> Any:
        """A statement without body: stores, tile operations, jumps, backends' own."""
        return ir.map_children(node, self.operand)

    def seq(self, node: ir.Seq) -> ir.Stmt:
        """Statements in order; what one establishes holds for the rest."""
        new: list[ir.Stmt] = []
        with self.facts.scope():
            for child in node.stmts:
                result = self.stmt(child)
                new.append(result)
                if exits(result):
                    break
                if isinstance(result, ir.If) and result.other is None and exits(result.then):
                    self.facts.add_condition(result.cond, False)
        same = len(new) == len(node.stmts)
        if same and all(a is b for a, b in zip(new, node.stmts, strict=True)):
            return node
        return node.replace(stmts=tuple(new))

    def bind(self, node: ir.Bind) -> ir.Stmt:
        """A let."""
        value = self.expr(node.value)
        self.facts.bind_value(node.var, value)
        return node if value is node.value else node.replace(value=value)

    def alloc(self, node: ir.Alloc) -> ir.Stmt:
        """An allocation with, perhaps, an initial value."""
        if node.init is None:
            return node
        init = self.expr(node.init)
        return node if init is node.init else node.replace(init=init)

    def check(self, node: ir.Assert) -> ir.Stmt:
        """A run-time assertion."""
        cond = self.expr(node.cond)
        self.facts.add_condition(cond)
        return node if cond is node.cond else node.replace(cond=cond)

    def _range(self, var: ir.Var, extent: Any) -> None:
        self.facts.bind_range(var, 0, minus_one(extent))

    def loop(self, node: ir.For) -> ir.Stmt:
        """A counted loop."""
        start, stop, step = self.expr(node.start), self.expr(node.stop), self.expr(node.step)
        with self.facts.scope():
            stride = ir.const_value(step)
            if self.facts.bounds(step).lo > 0:
                self.facts.bind_range(node.var, start, minus_one(stop))
            elif isinstance(stride, int) and stride < 0:
                self.facts.bind_range(node.var, plus_one(stop), start)
            first = ir.const_value(start)
            if isinstance(stride, int) and isinstance(first, int) and abs(stride) > 1:
                self.facts.bind_residue(node.var, stride, first)
            body = self.stmt(node.body)
        return _changed(node, start=start, stop=stop, step=step, body=body)

    def parallel(self, node: ir.Parallel) -> ir.Stmt:
        """A nest of independent iterations."""
        extents = _exprs(node.extents, self.expr)
        with self.facts.scope():
            for var, extent in zip(node.vars, extents, strict=True):
                self._range(var, extent)
            body = self.stmt(node.body)
        return _changed(node, extents=extents, body=body)

    def while_loop(self, node: ir.While) -> ir.Stmt:
        """A loop with a condition."""
        cond = self.expr(node.cond)
        with self.facts.assume(cond):
            body = self.stmt(node.body)
        return _changed(node, cond=cond, body=body)

    def branch(self, node: ir.If) -> ir.Stmt:
        """A branch; each side knows the condition."""
        cond = self.expr(node.cond)
        with self.facts.assume(cond):
            then = self.stmt(node.then)
        other = node.other
        if other is not None:
            with self.facts.scope():
                self.facts.add_condition(cond, False)
                other = self.stmt(other)
        return _changed(node, cond=cond, then=then, other=other)

    def launch(self, node: ir.Launch) -> ir.Stmt:
        """A kernel; block and lane indices lie in the grid."""
        grid = _exprs(node.grid, self.expr)
        with self.facts.scope():
            for var, extent in zip(node.grid_vars, grid, strict=True):
                self._range(var, extent)
            for var, count in zip(node.thread_vars, node.threads or (), strict=False):
                self.facts.bind_range(var, 0, count - 1)
            body = self.stmt(node.body)
        return _changed(node, grid=grid, body=body)


def exits(node: ir.Stmt | None) -> bool:
    """Whether control never goes on to the next statement."""
    if isinstance(node, (ir.Break, ir.Continue, ir.Return)):
        return True
    if isinstance(node, ir.Seq):
        return bool(node.stmts) and exits(node.stmts[-1])
    return isinstance(node, ir.If) and exits(node.then) and exits(node.other)


def minus_one(value: Any) -> Any:
    """``value - 1`` of an int or expression."""
    return _offset(value, BinOp.SUB)


def plus_one(value: Any) -> Any:
    """``value + 1`` of an int or expression."""
    return _offset(value, BinOp.ADD)


def _offset(value: Any, op: BinOp) -> Any:
    number = ir.const_value(value)
    if isinstance(number, int):
        return number - 1 if op is BinOp.SUB else number + 1
    one = ir.Const(1, value.dtype, span=value.span)
    return ir.Binary(op, value, one, value.dtype, span=value.span)


def _exprs(values: tuple[ir.Expr, ...], fn: Callable[[ir.Expr], ir.Expr]) -> tuple[ir.Expr, ...]:
    new = tuple(fn(v) for v in values)
    return values if all(a is b for a, b in zip(new, values, strict=True)) else new


N = TypeVar("N", bound=ir.Node)


def _changed(node: N, **fields: Any) -> N:
    same = all(getattr(node, key) is value for key, value in fields.items())
    return node if same else node.replace(**fields)
