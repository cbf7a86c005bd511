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
from tilec.ir import BinOp
from tilec.transform.base import FunctionPass, PassConfigKey, PassContext
from tilec.transform.scoped import ScopedRewriter

_BOOL = ir.DType("bool")


class GuardAccesses(FunctionPass):
    """Guards what cannot be proved to be inside; proves what it can."""

    name = "guard_accesses"
    purpose = "give accesses outside a buffer a meaning: loads are 0, stores are dropped"
    needs = "tile"
    gives = "tile"

    def applies(self, ctx: PassContext) -> bool:
        """Unless the configuration turns it off."""
        return not ctx.flag(PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS)

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Guard a whole function."""
        del ctx
        return _Guard().function(func)


class _Guard(ScopedRewriter):
    def __init__(self) -> None:
        super().__init__()
        self._needed: list[ir.Expr] | None = None

    # statements

    def parallel(self, node: ir.Parallel) -> ir.Stmt:
        """A nest with guards in it is doubled: one copy for blocks that lie inside altogether."""
        outer, self._needed = self._needed, []
        guarded = super().parallel(node)
        needed, self._needed = self._needed, outer
        if not needed:
            return guarded
        if outer is not None:
            outer.extend(needed)
        inside = self._inside(needed, node)
        if inside is None:
            return guarded
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
            new = self.facts.simplify(new)
            if ir.const_value(new) is False:
                return None
            conds.setdefault(tuple(ir.tokens(new)), new)
        result: ir.Expr | None = None
        for cond in conds.values():
            if ir.const_value(cond) is not True:
                result = cond if result is None else ir.Binary(BinOp.AND, result, cond, _BOOL)
        return result

    def leaf(self, node: Any) -> Any:
        """A store or an effect on an element happens only where the element exists."""
        new = super().leaf(node)
        if isinstance(new, ir.Store):
            return self._guarded(new, new.buffer, new.indices)
        if isinstance(new, ir.Evaluate) and isinstance(new.value, ir.Select):
            # An effect whose result nobody wants: a plain branch.
            return ir.If(new.value.cond, new.replace(value=new.value.then), span=new.span)
        return new

    def _guarded(self, node: Any, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Stmt:
        cond = self._condition(buffer, indices)
        return node if cond is None else ir.If(cond, node, span=node.span)

    # expressions

    def expr(self, node: Any) -> Any:
        """An expression whose loads give 0 outside."""
        if isinstance(node, ir.Load):
            new = ir.map_children(node, self.operand)
            return self._selected(new, new.buffer, new.indices)
        if isinstance(node, ir.Select):
            cond = self.expr(node.cond)
            with self.facts.assume(cond):
                then = self.expr(node.then)
            with self.facts.scope():
                self.facts.add_condition(cond, truth=False)
                other = self.expr(node.other)
            return node.replace(cond=cond, then=then, other=other)
        if isinstance(node, ir.Binary) and node.op in ir.LOGICAL:
            lhs = self.expr(node.lhs)
            with self.facts.scope():  # the right side is only evaluated if the left allows it
                self.facts.add_condition(lhs, truth=node.op is BinOp.AND)
                return node.replace(lhs=lhs, rhs=self.expr(node.rhs))
        if isinstance(node, ir.Call) and not ir.is_pure(node.name):
            return self._effect(node)
        return ir.map_children(node, self.operand)

    def _effect(self, node: ir.Call) -> ir.Expr:
        """A call with an effect on an element, its first argument (an atomic update)."""
        target = node.args[0] if node.args else None
        if not isinstance(target, ir.Load):
            return ir.map_children(node, self.operand)
        target = ir.map_children(target, self.operand)
        rest = tuple(self.operand(a) if isinstance(a, ir.Node) else a for a in node.args[1:])
        new = node.replace(args=(target, *rest))
        return self._selected(new, target.buffer, target.indices)

    def _selected(
        self, node: ir.Load | ir.Call, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]
    ) -> ir.Expr:
        cond = self._condition(buffer, indices)
        if cond is None:
            return node
        zero: Any = False if node.dtype.is_bool else 0.0 if node.dtype.is_float else 0
        return ir.Select(cond, node, ir.Const(zero, node.dtype), node.dtype, span=node.span)

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
                if self.facts.prove(cond):
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
