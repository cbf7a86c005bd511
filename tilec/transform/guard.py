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

An index that comes from memory is read once, so that what is tested is what is used::

    index = I[i]
    if index >= 0 and index < 100:
        B[index] = 1
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
        self._lets: list[ir.Stmt] | None = None  # where lets go; None: nowhere
        self._made: set[ir.Var] = set()
        self._joined: dict[int, ir.Seq] = {}  # a statement behind its lets, by id
        self._path: list[ir.Expr] = []  # what lets the expression at hand be evaluated

    # statements

    def stmt(self, node: Any) -> Any:
        """A statement, behind lets of the indices that its guards test."""
        outer, self._lets = self._lets, None if isinstance(node, ir.While) else []
        new = super().stmt(node)
        lets, self._lets = self._lets, outer
        if not lets:
            return new
        joined = ir.Seq((*lets, new), span=node.span)
        return self._joined.setdefault(id(joined), joined)

    def seq(self, node: ir.Seq) -> ir.Stmt:
        """Statements in order, with the lets that they need."""
        new = super().seq(node)
        if not isinstance(new, ir.Seq) or not any(id(s) in self._joined for s in new.stmts):
            return new
        parts = (self._joined[id(s)].stmts if id(s) in self._joined else (s,) for s in new.stmts)
        return new.replace(stmts=tuple(s for part in parts for s in part))

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
            if new is None or any(v in local or v in self._made for v in ir.free_vars(new)):
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
            cond, indices = self._condition(new.buffer, new.indices)
            if indices is not new.indices:
                new = new.replace(indices=indices)
            return new if cond is None else ir.If(cond, new, span=new.span)
        if isinstance(new, ir.Evaluate) and isinstance(new.value, ir.Select):
            # An effect whose result nobody wants: a plain branch.
            return ir.If(new.value.cond, new.replace(value=new.value.then), span=new.span)
        return new

    # expressions

    def expr(self, node: Any) -> Any:
        """An expression whose loads give 0 outside."""
        if isinstance(node, ir.Load):
            new = ir.map_children(node, self.operand)
            return self._selected(new, new)
        if isinstance(node, ir.Select):
            cond = self.expr(node.cond)
            then = self._under(cond, True, node.then)
            return node.replace(cond=cond, then=then, other=self._under(cond, False, node.other))
        if isinstance(node, ir.Binary) and node.op in ir.LOGICAL:
            lhs = self.expr(node.lhs)
            # The right side is only evaluated if the left allows it.
            return node.replace(lhs=lhs, rhs=self._under(lhs, node.op is BinOp.AND, node.rhs))
        if isinstance(node, ir.Call) and not ir.is_pure(node.name):
            return self._effect(node)
        return ir.map_children(node, self.operand)

    def _under(self, cond: ir.Expr, truth: bool, node: ir.Expr) -> ir.Expr:
        """`node`, which is only evaluated where `cond` is true (or false)."""
        self._path.append(cond if truth else ir.Unary(ir.UnOp.NOT, cond, _BOOL, span=cond.span))
        with self.facts.scope():
            self.facts.add_condition(cond, truth=truth)
            new: ir.Expr = self.expr(node)
        self._path.pop()
        return new

    def _effect(self, node: ir.Call) -> ir.Expr:
        """A call with an effect on an element, its first argument (an atomic update)."""
        target = node.args[0] if node.args else None
        if not isinstance(target, ir.Load):
            return ir.map_children(node, self.operand)
        target = ir.map_children(target, self.operand)
        rest = tuple(self.operand(a) if isinstance(a, ir.Node) else a for a in node.args[1:])
        new = node.replace(args=(target, *rest))
        return self._selected(new, target)

    def _selected(self, node: Any, element: ir.Load) -> ir.Expr:
        """`node`, a use of `element`, or 0 where there is no such element."""
        cond, indices = self._condition(element.buffer, element.indices)
        if indices is not element.indices:
            found = element.replace(indices=indices)
            node = found if node is element else node.replace(args=(found, *node.args[1:]))
        if cond is None:
            return node  # type: ignore[no-any-return]
        zero: Any = False if node.dtype.is_bool else 0.0 if node.dtype.is_float else 0
        return ir.Select(cond, node, ir.Const(zero, node.dtype), node.dtype, span=node.span)

    def _condition(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]
    ) -> tuple[ir.Expr | None, tuple[ir.Expr, ...]]:
        """What has to hold for an access to be inside, None where that is proved; its place."""
        if buffer.scope() == ir.LOCAL_VAR:
            return None, indices
        result: ir.Expr | None = None
        place = list(indices)
        for axis, extent in enumerate(buffer.shape):
            open_ends = [c for c in _inside_of(place[axis], extent) if not self.facts.prove(c)]
            if open_ends and _volatile(place[axis]):
                place[axis] = self._read_once(place[axis])
                open_ends = [c for c in _inside_of(place[axis], extent) if not self.facts.prove(c)]
            for cond in open_ends:
                if self._needed is not None:
                    self._needed.append(cond)
                result = cond if result is None else ir.Binary(BinOp.AND, result, cond, _BOOL)
        same = all(a is b for a, b in zip(place, indices, strict=True))
        return result, indices if same else tuple(place)

    def _read_once(self, index: ir.Expr) -> ir.Expr:
        """A let of `index` in front of the statement, if one can be there."""
        effects = (n for p in (*self._path, index) for n in ir.walk(p) if isinstance(n, ir.Call))
        if self._lets is None or not all(ir.is_pure(n.name) for n in effects):
            return index
        value = index
        for cond in reversed(self._path):  # evaluated no more often than where it stands
            zero = ir.Const(0, index.dtype)
            value = ir.Select(cond, value, zero, index.dtype, span=index.span)
        var = ir.Var("index", index.dtype, span=index.span)
        self._lets.append(ir.Bind(var, value, span=index.span))
        self._made.add(var)
        self.facts.bind_value(var, value)
        return var


def _inside_of(index: ir.Expr, extent: int | ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    zero = ir.Const(0, index.dtype)
    return ir.Binary(BinOp.GE, index, zero, _BOOL), ir.binary(BinOp.LT, index, extent)


def _volatile(index: ir.Expr) -> bool:
    """Whether reading `index` twice might give two values, or is work worth saving."""
    private = (ir.LOCAL, ir.LOCAL_VAR)
    return any(
        isinstance(n, ir.Select) or (isinstance(n, ir.Load) and n.buffer.scope() not in private)
        for n in ir.walk(index)
    )


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
