"""Vector loops: consecutive iterations of one lane whose accesses are wide ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import Simplifier
from tilec.ir import BinOp
from tilec.layout import Layout

MEMORY = (ir.GLOBAL, ir.SHARED, ir.SHARED_DYN)
_INT32 = ir.DType("int32")
_BOOL = ir.DType("bool")
_SIMPLE = (ir.Seq, ir.Bind, ir.Store, ir.If, ir.Evaluate)
_MOST_SWITCHES = 4
COPY_BYTES = (4, 8, 16)
"""Sizes that `cp_async` moves."""


class Vectorizer:
    """Makes vector loops where the contract of thread form allows it.

    Args:
        facts: what is known where the loop stands.
        layouts: of shared buffers that are not stored in plain rows.
        widest: bytes of the widest access by scope.
    """

    def __init__(
        self, facts: Simplifier, layouts: Mapping[ir.Buffer, Layout], widest: Mapping[str, int]
    ) -> None:
        self._facts = facts
        self._layouts = layouts
        self._widest = widest
        self._moving: set[ir.Var] = set()
        self._wide: dict[ir.Buffer, int] = {}

    def loop(
        self, body: ir.Stmt, var: ir.Var, width: int, *, asynchronous: bool = False
    ) -> tuple[ir.Stmt, dict[ir.Buffer, int]] | None:
        """``for var in vectorized(width): body``, and the alignment that global buffers need.

        None where the accesses are not wide ones, or where a wide access is nowhere in sight.
        """
        self._moving, self._wide = {var}, {}
        for node in ir.walk(body):
            if isinstance(node, ir.Stmt) and not isinstance(node, _SIMPLE):
                return None
            if isinstance(node, ir.Call) and not ir.is_pure(node.name):
                return None
            if isinstance(node, ir.Bind) and self._moves(node.value):
                self._moving.add(node.var)
        settled = self._settled(body, var, width)
        if settled is None:
            return None
        for node in ir.walk(settled):
            if isinstance(node, (ir.Load, ir.Store)) and not self._good(node, var, width):
                return None
        if not self._wide:
            return None
        needed = {b: n for b, n in self._wide.items() if b.scope() == ir.GLOBAL}
        return self._switched(settled, var, width, asynchronous, _MOST_SWITCHES), needed

    def _moves(self, value: Any) -> bool:
        return any(isinstance(n, ir.Var) and n in self._moving for n in ir.walk(value))

    # conditions

    def _settled(self, node: Any, var: ir.Var, width: int) -> Any:
        """The body with conditions that are the same for the whole vector, where they decide
        about memory; None where some is not."""
        if isinstance(node, ir.Buffer) or not isinstance(node, ir.Node):
            return node
        if isinstance(node, (ir.If, ir.Select)) and self._moves(node.cond):
            cond = self._uniform(node.cond, var, width)
            if cond is not None:
                node = node.replace(cond=cond)
            elif isinstance(node, ir.If) or self._touches(node):
                return None
        bad = False

        def visit(child: Any) -> Any:
            nonlocal bad
            new = self._settled(child, var, width)
            bad = bad or new is None
            return child if new is None else new

        new = ir.map_children(node, visit)
        return None if bad else new

    def _touches(self, node: ir.Select) -> bool:
        return any(
            isinstance(n, ir.Load) and n.buffer.scope() in MEMORY and self._moves(n)
            for part in (node.then, node.other)
            for n in ir.walk(part)
        )

    def _uniform(self, cond: ir.Expr, var: ir.Var, width: int) -> ir.Expr | None:
        """A condition that says the same about the first element as `cond` about any."""
        if not self._moves(cond):
            return cond
        if isinstance(cond, ir.Binary) and cond.op in ir.LOGICAL:
            sides = [self._uniform(s, var, width) for s in (cond.lhs, cond.rhs)]
            if sides[0] is None or sides[1] is None:
                return None
            return cond.replace(lhs=sides[0], rhs=sides[1])
        if isinstance(cond, ir.Unary) and cond.op is ir.UnOp.NOT:
            inner = self._uniform(cond.value, var, width)
            return None if inner is None else cond.replace(value=inner)
        if not isinstance(cond, ir.Binary) or not cond.lhs.dtype.is_integer:
            return None
        if any(isinstance(n, ir.Load) for n in ir.walk(cond)):
            return None
        form = ir.linear(ir.cast(cond.lhs, cond.lhs.dtype))
        form.add(ir.linear(cond.rhs), -1)
        coeff = form.terms.get(("var", id(var)), 0)
        aligned = (BinOp.LT, BinOp.GE) if coeff > 0 else (BinOp.LE, BinOp.GT)
        if abs(coeff) != 1 or cond.op not in aligned:
            return None
        first = ir.substitute(cond, {var: ir.Const(0, var.dtype)})
        if self._moves(first):
            return None
        left, right = (self._facts.residue(self._facts.simplify(s)).residue(width)
                       for s in (first.lhs, first.rhs))  # fmt: skip
        if left is None or left != right:
            return None
        return first

    # accesses

    def _good(self, node: Any, var: ir.Var, width: int) -> bool:
        buffer: ir.Buffer = node.buffer
        *lead, last = node.indices if node.indices else (ir.Const(0, _INT32),)
        if any(self._moves(i) for i in lead):
            return False
        if not self._moves(last):
            return not isinstance(node, ir.Store)
        form = ir.linear(last)
        if form.terms.get(("var", id(var)), 0) != 1 or any(
            self._moves(atom) for atom in form.atoms.values() if atom is not var
        ):
            return False
        scope = buffer.scope()
        if scope not in MEMORY:
            return scope == ir.LOCAL and self._multiple((), (self._first(last, var),), (1,), width)
        size = width * buffer.dtype.bits // 8
        if buffer.dtype.bits % 8 or size > self._widest.get(scope, 0):
            return False
        first = self._first(last, var)
        layout = self._layouts.get(buffer)
        if layout is not None:
            if not (_keeps_chunks(layout, width) and self._multiple((), (first,), (1,), width)):
                return False
        else:
            strides = buffer.element_strides()
            if strides and strides[-1] != 1:
                return False
            if not self._multiple(lead, (*lead, first), strides, width):
                return False
        self._wide[buffer] = max(size, self._wide.get(buffer, 0))
        return True

    def _first(self, index: ir.Expr, var: ir.Var) -> ir.Expr:
        return self._facts.simplify(ir.substitute(index, {var: ir.Const(0, var.dtype)}))

    def _multiple(self, lead: Any, indices: Any, strides: Any, width: int) -> bool:
        """Whether the offset of the first element is a multiple of the width."""
        del lead
        total: Any = 0
        for index, stride in zip(indices, strides, strict=True):
            step = (
                stride % width
                if isinstance(stride, int)
                else self._facts.residue(self._facts.simplify(stride)).residue(width)
            )
            if step == 0:
                continue
            at = self._facts.residue(self._facts.simplify(index))
            if step is None:
                if at.residue(width) != 0:
                    return False
                continue
            # the index times the stride, as far as it matters modulo the width
            part = width // int(np.gcd(width, step))
            rest = at.residue(part)
            if rest is None:
                return False
            total += rest * step
        return int(total) % width == 0

    # the loop

    def _switched(
        self, body: ir.Stmt, var: ir.Var, width: int, asynchronous: bool, left: int
    ) -> ir.Stmt:
        """The loop, inside of branches for conditions that hold for the vector as a whole."""
        if asynchronous:
            copy = async_copy(body, var, width)
            if copy is not None:
                return copy
        cond = self._switch(body) if left else None
        if cond is None:
            zero, one = ir.Const(0, _INT32), ir.Const(1, _INT32)
            stop = ir.Const(width, _INT32)
            return ir.For(var, zero, stop, one, "vectorized", {}, body, span=body.span)
        key = tuple(ir.tokens(cond))
        sides: list[ir.Stmt] = []
        for truth in (True, False):
            side = _decided(body, key, truth)
            if not truth:
                fresh = var.replace()
                side = ir.substitute(ir.copy_bindings(side), {var: fresh})
            else:
                fresh = var
            sides.append(
                _EMPTY
                if _is_empty(side)
                else self._switched(side, fresh, width, asynchronous, left - 1)
            )
        then, other = sides
        if _is_empty(other):
            return ir.If(cond, then, span=body.span)
        return ir.If(cond, then, other, span=body.span)

    def _switch(self, body: ir.Stmt) -> ir.Expr | None:
        """A condition that guards memory and does not depend on anything in the loop."""
        own = {n.var for n in ir.walk(body) if isinstance(n, ir.Bind)}
        for node in ir.walk(body):
            if isinstance(node, ir.If) or (
                isinstance(node, ir.Select)
                and any(
                    isinstance(n, ir.Load) and n.buffer.scope() in MEMORY
                    for part in (node.then, node.other)
                    for n in ir.walk(part)
                )
            ):
                cond = node.cond
                if not any(
                    isinstance(n, (ir.Load, ir.Call))
                    or (isinstance(n, ir.Var) and (n in self._moving or n in own))
                    for n in ir.walk(cond)
                ):
                    return cond
        return None


_EMPTY = ir.Seq(())


def _is_empty(node: ir.Stmt) -> bool:
    return isinstance(node, ir.Seq) and all(_is_empty(s) for s in node.stmts)


def _decided(node: Any, key: tuple[Any, ...], truth: bool) -> Any:
    """`node` where the condition with these tokens is true, or false."""
    if isinstance(node, ir.Buffer) or not isinstance(node, ir.Node):
        return node
    if isinstance(node, (ir.If, ir.Select)) and tuple(ir.tokens(node.cond)) == key:
        chosen = node.then if truth else node.other
        return _EMPTY if chosen is None else _decided(chosen, key, truth)
    return ir.map_children(node, lambda child: _decided(child, key, truth))


def _keeps_chunks(layout: Layout, width: int) -> bool:
    """Whether aligned runs of `width` along the last dimension are stored as aligned runs."""
    offsets = layout.offsets
    if offsets.shape[-1] % width:
        return False
    groups = offsets.reshape(-1, width)
    whole = (groups == groups[:, :1] + np.arange(width)) & (groups[:, :1] % width == 0)
    return bool(whole.all())


def async_copy(body: ir.Stmt, var: ir.Var | None, width: int) -> ir.Stmt | None:
    """A plain copy from global to shared memory as one asynchronous copy, if it is one.

    Args:
        body: what is done for one element; conditions do not depend on `var`.
        var: number of the element, from 0 on; None where there is one only.
        width: number of elements.
    """
    while isinstance(body, ir.Seq) and len(body.stmts) == 1:
        body = body.stmts[0]
    if isinstance(body, ir.If) and body.other is None and _pure(body.cond, var):
        inner = async_copy(body.then, var, width)
        return None if inner is None else body.replace(then=inner)
    if not isinstance(body, ir.Store) or body.buffer.scope() not in (ir.SHARED, ir.SHARED_DYN):
        return None
    value: Any = body.value
    more: tuple[ir.Expr, ...] = ()
    if isinstance(value, ir.Select) and ir.const_value(value.other) == 0 and _pure(value.cond, var):
        value, more = value.then, (value.cond,)
    if not isinstance(value, ir.Load) or value.buffer.scope() != ir.GLOBAL:
        return None
    if value.dtype != body.buffer.dtype or width * value.dtype.bits // 8 not in COPY_BYTES:
        return None
    zero = {} if var is None else {var: ir.Const(0, var.dtype)}
    target = ir.Load(body.buffer, body.indices, body.buffer.dtype, span=body.span)
    args = (
        ir.substitute(target, zero), ir.substitute(value, zero), ir.Const(width, _INT32), *more,
    )  # fmt: skip
    return ir.Evaluate(ir.Call("cp_async", args, _INT32, span=body.span), span=body.span)


def _pure(cond: ir.Expr, var: ir.Var | None) -> bool:
    """Whether a condition is the same for the whole vector and reads nothing."""
    return not any(n is var or isinstance(n, (ir.Load, ir.Call)) for n in ir.walk(cond))
