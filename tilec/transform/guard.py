"""Accesses that may lie outside a buffer are guarded.

A load outside gives 0, a store or atomic outside is dropped. Where the loop nest around an access
is parallel, the nest is doubled: one copy without guards for blocks that lie inside altogether,
one with guards for the others.

Before::

    for i in T.Parallel(64):
        B[bx * 64 + i] = A[bx * 64 + i]

After (100 elements)::

    if bx * 64 + 63 < 100:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i]
    else:
        for i in T.Parallel(64):
            if bx * 64 + i < 100:
                B[bx * 64 + i] = T.if_then_else(bx * 64 + i < 100, A[bx * 64 + i], 0)
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.arith import Simplifier
from tilec.ir import BinOp
from tilec.transform.base import FunctionPass, PassConfigKey, PassContext

_BOOL = ir.DType("bool")


class GuardAccesses(FunctionPass):
    """Guards what cannot be proved to be inside; proves what it can."""

    name = "guard_accesses"
    purpose = "give accesses outside a buffer a meaning: loads are 0, stores are dropped"
    needs = "tile"
    gives = "tile"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Guard a whole function."""
        if ctx.flag(PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS):
            return func
        facts = Simplifier()
        for param in func.params:
            if isinstance(param, ir.Buffer):
                for extent in param.shape:
                    if isinstance(extent, ir.Var):
                        facts.bind_range(extent, 0, extent.dtype.int_range[1])
        body = _Guard(facts).stmt(func.body)
        return func if body is func.body else func.replace(body=body)


class _Guard:
    def __init__(self, facts: Simplifier) -> None:
        self._facts = facts
        self._needed: list[ir.Expr] | None = None

    # statements

    def stmt(self, node: Any) -> Any:
        """Guard a statement under the facts that hold where it stands."""
        if isinstance(node, ir.Seq):
            with self._facts.scope():
                new = tuple(self.stmt(s) for s in node.stmts)
            same = all(a is b for a, b in zip(new, node.stmts, strict=True))
            return node if same else node.replace(stmts=new)
        if isinstance(node, ir.Parallel):
            return self._parallel(node)
        if isinstance(node, ir.Launch):
            return self._scoped(node, list(zip(node.grid_vars, node.grid, strict=True)), node)
        if isinstance(node, ir.For):
            return self._for(node)
        if isinstance(node, ir.While):
            cond = self._expr(node.cond)
            with self._facts.scope():
                return node.replace(cond=cond, body=self.stmt(node.body))
        if isinstance(node, ir.If):
            return self._if(node)
        if isinstance(node, ir.Bind):
            new = ir.map_children(node, self._value)
            self._facts.bind_value(new.var, new.value)
            return new
        if isinstance(node, ir.Store):
            return self._store(node)
        if isinstance(node, ir.Evaluate):
            return self._evaluate(node)
        if isinstance(node, ir.Assert):
            new = ir.map_children(node, self._value)
            self._facts.add_condition(new.cond)
            return new
        return ir.map_children(node, self._value)

    def _scoped(self, node: Any, ranges: list[tuple[ir.Var, ir.Expr]], launch: Any = None) -> Any:
        with self._facts.scope():
            for var, extent in ranges:
                self._facts.bind_range(var, 0, extent - 1)
            if launch is not None and launch.threads is not None:
                for var, count in zip(launch.thread_vars, launch.threads, strict=True):
                    self._facts.bind_range(var, 0, count - 1)
            return node.replace(body=self.stmt(node.body))

    def _for(self, node: ir.For) -> ir.Stmt:
        step = ir.const_value(node.step)
        bounds = {key: self._expr(getattr(node, key)) for key in ("start", "stop", "step")}
        with self._facts.scope():
            if isinstance(step, int) and step > 0:
                self._facts.bind_range(node.var, bounds["start"], bounds["stop"] - 1)
            elif isinstance(step, int) and step < 0:
                self._facts.bind_range(node.var, bounds["stop"] + 1, bounds["start"])
            return node.replace(body=self.stmt(node.body), **bounds)

    def _if(self, node: ir.If) -> ir.Stmt:
        cond = self._expr(node.cond)
        with self._facts.scope():
            self._facts.add_condition(cond)
            then = self.stmt(node.then)
        other = node.other
        if other is not None:
            with self._facts.scope():
                self._facts.add_condition(cond, truth=False)
                other = self.stmt(other)
        return node.replace(cond=cond, then=then, other=other)

    def _parallel(self, node: ir.Parallel) -> ir.Stmt:
        outer, self._needed = self._needed, []
        guarded = self._scoped(node, list(zip(node.vars, node.extents, strict=True)))
        needed, self._needed = self._needed, outer
        if not needed:
            return guarded  # type: ignore[no-any-return]
        if outer is not None:
            outer.extend(needed)
        inside = self._inside(needed, node)
        if inside is None:
            return guarded  # type: ignore[no-any-return]
        return ir.If(inside, ir.copy_bindings(node), guarded, span=node.span)

    def _inside(self, needed: list[ir.Expr], node: ir.Parallel) -> ir.Expr | None:
        """A condition on the nest as a whole under which no guard is needed, if there is one."""
        local = set(node.vars) | {n.var for n in ir.walk(node.body) if isinstance(n, ir.Bind)}
        ranges = dict(zip(node.vars, node.extents, strict=True))
        for item in ir.walk(node.body):
            if isinstance(item, ir.For):
                local.add(item.var)
                if ir.const_value(item.start) == 0 and ir.const_value(item.step) == 1:
                    ranges[item.var] = item.stop
        conds: dict[Any, ir.Expr] = {}
        for cond in needed:
            new = _for_all(cond, ranges)
            if new is None or any(v in local for v in ir.free_vars(new)):
                return None
            if any(isinstance(n, ir.Load) for n in ir.walk(new)):
                return None  # memory may change while the nest runs
            new = self._facts.simplify(new)
            if ir.const_value(new) is False:
                return None
            conds.setdefault(tuple(ir.tokens(new)), new)
        result: ir.Expr | None = None
        for cond in conds.values():
            if ir.const_value(cond) is not True:
                result = cond if result is None else ir.Binary(BinOp.AND, result, cond, _BOOL)
        return result

    def _store(self, node: ir.Store) -> ir.Stmt:
        indices = tuple(self._expr(i) for i in node.indices)
        new = node.replace(indices=indices, value=self._expr(node.value))
        return self._guarded(new, node.buffer, indices)

    def _evaluate(self, node: ir.Evaluate) -> ir.Stmt:
        call = node.value
        if isinstance(call, ir.Call) and call.args and isinstance(call.args[0], ir.Load):
            target = call.args[0]
            indices = tuple(self._expr(i) for i in target.indices)
            rest = tuple(self._value(a) for a in call.args[1:])
            new = node.replace(value=call.replace(args=(target.replace(indices=indices), *rest)))
            return self._guarded(new, target.buffer, indices)
        return ir.map_children(node, self._value)

    def _guarded(self, node: Any, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Stmt:
        cond = self._condition(buffer, indices)
        return node if cond is None else ir.If(cond, node, span=node.span)

    # expressions

    def _value(self, node: Any) -> Any:
        return self._expr(node) if isinstance(node, ir.Expr) else node

    def _expr(self, node: Any) -> Any:
        if isinstance(node, ir.Load):
            new = ir.map_children(node, self._value)
            cond = self._condition(new.buffer, new.indices)
            if cond is None:
                return new
            zero = ir.Const(0.0 if node.dtype.is_float else 0, node.dtype)
            if node.dtype.is_bool:
                zero = ir.Const(False, node.dtype)
            return ir.Select(cond, new, zero, node.dtype, span=node.span)
        if isinstance(node, ir.Select):
            cond = self._expr(node.cond)
            with self._facts.assume(cond):
                then = self._expr(node.then)
            with self._facts.scope():
                self._facts.add_condition(cond, truth=False)
                other = self._expr(node.other)
            return node.replace(cond=cond, then=then, other=other)
        if isinstance(node, ir.Binary) and node.op is BinOp.AND:
            lhs = self._expr(node.lhs)
            with self._facts.assume(lhs):
                return node.replace(lhs=lhs, rhs=self._expr(node.rhs))
        if isinstance(node, ir.Call) and node.args and isinstance(node.args[0], ir.Load):
            if not ir.is_pure(node.name):
                return self._effect(node)
        return ir.map_children(node, self._value) if isinstance(node, ir.Expr) else node

    def _effect(self, node: ir.Call) -> ir.Expr:
        target = node.args[0]
        indices = tuple(self._expr(i) for i in target.indices)
        rest = tuple(self._value(a) for a in node.args[1:])
        new = node.replace(args=(target.replace(indices=indices), *rest))
        cond = self._condition(target.buffer, indices)
        if cond is None:
            return new
        zero = ir.Const(0.0 if node.dtype.is_float else 0, node.dtype)
        return ir.Select(cond, new, zero, node.dtype, span=node.span)

    def _condition(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Expr | None:
        """What has to hold for an access to be inside; None where that is proved."""
        if buffer.scope() == ir.LOCAL_VAR:
            return None
        result: ir.Expr | None = None
        for index, extent in zip(indices, buffer.shape, strict=True):
            zero = ir.Const(0, index.dtype)
            for cond in (
                ir.Binary(BinOp.GE, index, zero, _BOOL),
                ir.binary(BinOp.LT, index, extent),
            ):
                if self._facts.prove(cond):
                    continue
                if self._needed is not None:
                    self._needed.append(cond)
                result = cond if result is None else ir.Binary(BinOp.AND, result, cond, _BOOL)
        return result


def _for_all(cond: ir.Expr, ranges: dict[ir.Var, ir.Expr]) -> ir.Expr | None:
    """``index >= 0`` or ``index < extent`` for all values of the loop variables in `ranges`."""
    assert isinstance(cond, ir.Binary)
    upper = cond.op is BinOp.LT
    form = ir.linear(cond.lhs)
    total: Any = form.const
    for key, coeff in form.terms.items():
        atom = form.atoms[key]
        if isinstance(atom, ir.Var) and atom in ranges:
            if (coeff > 0) is upper:
                total = total + (ranges[atom] - 1) * coeff
        elif any(v in ranges for v in ir.free_vars(atom)):
            return None
        else:
            total = total + atom * coeff
    return ir.binary(cond.op, ir.cast(ir.as_expr(total), cond.lhs.dtype), cond.rhs)
