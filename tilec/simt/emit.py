"""Nests as the code of one lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import Simplifier
from tilec.ir import BinOp
from tilec.simt.barriers import INDEPENDENT
from tilec.simt.nests import MEMORY, Nest, Plan
from tilec.simt.partition import FlatPartition, Partition
from tilec.simt.rules import Lanes
from tilec.simt.vectors import Vectorizer, async_copy

_INT32 = ir.DType("int32")
_INT64 = ir.DType("int64")
_BOOL = ir.DType("bool")
_UNROLLED = 32
ASYNC = "async"


class NestEmitter:
    """Writes the lane code of nests.

    Args:
        lanes: who executes them.
        facts: what is known where the nest stands.
        widest: bytes of the widest access by scope.
        alignment: collects the alignment that wide accesses need, by global buffer.
    """

    def __init__(
        self,
        lanes: Lanes,
        facts: Simplifier,
        widest: dict[str, int],
        alignment: dict[ir.Buffer, int],
    ) -> None:
        self._lanes = lanes
        self._facts = facts
        self._widest = widest
        self._alignment = alignment

    def emit(self, nest: Nest, plan: Plan | None) -> ir.Stmt:
        """The code of a lane for a nest; `plan` is None where it touches memory only."""
        if nest.size == 0 and nest.static:
            return ir.Seq((), span=nest.node.span)
        return _marked(nest, self._emitted(nest, plan))

    def _emitted(self, nest: Nest, plan: Plan | None) -> ir.Stmt:
        free = plan is None or (isinstance(plan.partition, FlatPartition) and not plan.failed)
        if free:
            return self._memory(nest, plan)
        assert plan is not None
        return self._along(nest, plan)

    # nests that follow a fragment

    def _along(self, nest: Nest, plan: Plan) -> ir.Stmt:
        partition = plan.partition
        in_memory = any(
            isinstance(n, (ir.Load, ir.Store)) and n.buffer.scope() in MEMORY
            for n in ir.walk(nest.node.body)
        )
        if in_memory and not plan.explicit:
            for width in _widths(partition.chunk, self._narrowest(nest), self._top()):
                found = self._vector(nest, plan, partition, width, partition.slots // width)
                if found is not None:
                    return found
        if not plan.explicit:
            return self._turns(
                partition.slots, "unroll", lambda slot: self._body(nest, plan, partition, slot)
            )
        parts = []
        for number in range(partition.slots):
            body = self._body(nest, plan, partition, ir.Const(number, _INT32))
            parts.append(ir.copy_bindings(body) if number else body)
        return ir.Seq(tuple(parts), span=nest.node.span)

    # nests that touch memory only

    def _memory(self, nest: Nest, plan: Plan | None) -> ir.Stmt:
        extents = nest.extents
        last = extents[-1]
        known = (
            last & -last
            if isinstance(last, int)
            else np.gcd(self._facts.residue(last).coeff, self._facts.residue(last).base)
        )
        size = nest.size
        top = int(known) & -int(known) if known else 1
        hint = nest.node.annotations.get("coalesced_width")
        for width in _widths(top, self._narrowest(nest), self._top()):
            if isinstance(hint, int) and width > max(hint, self._least(nest)):
                continue
            if size and size // width < self._lanes.count and width > self._least(nest):
                continue  # every lane gets something first
            partition = FlatPartition(extents, self._lanes.count, width)
            turns = partition.turns()
            found = self._vector(nest, plan, partition, width, turns)
            if found is not None:
                return found
        partition = FlatPartition(extents, self._lanes.count)
        return self._loop(
            partition.turns(), lambda slot: self._body(nest, plan, partition, slot), nest
        )

    def _least(self, nest: Nest) -> int:
        """Elements that an asynchronous copy moves at least."""
        if not nest.node.annotations.get(ASYNC):
            return 1
        return max(4 // self._narrowest(nest), 1)

    def _top(self) -> int:
        return max(self._widest.values(), default=1)

    @staticmethod
    def _narrowest(nest: Nest) -> int:
        """Bytes of the smallest element in memory that the nest touches."""
        sizes = [
            n.buffer.dtype.bits // 8
            for n in ir.walk(nest.node.body)
            if isinstance(n, (ir.Load, ir.Store)) and n.buffer.scope() in MEMORY
        ]
        return max(min(sizes, default=0), 1)

    # loops

    def _vector(
        self, nest: Nest, plan: Plan | None, partition: Partition, width: int, turns: Any
    ) -> ir.Stmt | None:
        """Turns of vectors, or None where the accesses are not wide."""
        turn, inner = ir.Var("t", _INT32), ir.Var("v", _INT32)
        one_turn = isinstance(turns, int) and turns == 1
        base: Any = ir.Const(0, _INT32) if one_turn else turn * width
        with self._facts.scope():
            if not one_turn:
                self._facts.bind_range(turn, 0, turns - 1)
            self._facts.bind_range(inner, 0, width - 1)
            conds = partition.active(self._lanes.index, base)
            for cond in conds:
                self._facts.add_condition(self._facts.simplify(cond))
            body = self._content(nest, plan, partition, base + inner, base)
            first, body = self._once(nest, partition, body, base)
            maker = Vectorizer(self._facts, self._lanes.layouts, self._widest)
            asynchronous = bool(nest.node.annotations.get(ASYNC))
            found = maker.loop(body, inner, width, asynchronous=asynchronous)
        if found is None:
            return None
        loop, needed = found
        for buffer, size in needed.items():
            self._alignment[buffer] = max(size, self._alignment.get(buffer, 0))
        guarded = _guarded([*conds, *first], loop)
        if one_turn:
            return guarded
        return self._wrapped(turn, turns, guarded, self._unrolled(turns, plan))

    def _loop(self, turns: Any, make: Callable[[ir.Expr], ir.Stmt], nest: Nest) -> ir.Stmt:
        del nest
        kind = "unroll" if isinstance(turns, int) and turns <= _UNROLLED else "serial"
        return self._turns(turns, kind, make)

    def _unrolled(self, turns: Any, plan: Plan | None) -> str:
        if plan is not None and not isinstance(plan.partition, FlatPartition):
            return "unroll"
        return "unroll" if isinstance(turns, int) and turns <= _UNROLLED else "serial"

    def _turns(self, turns: Any, kind: str, make: Callable[[ir.Expr], ir.Stmt]) -> ir.Stmt:
        if isinstance(turns, int) and turns == 1:
            return make(ir.Const(0, _INT32))
        turn = ir.Var("t", _INT32)
        with self._facts.scope():
            self._facts.bind_range(turn, 0, turns - 1)
            body = make(turn)
        return self._wrapped(turn, turns, body, kind)

    @staticmethod
    def _wrapped(turn: ir.Var, turns: Any, body: ir.Stmt, kind: str) -> ir.Stmt:
        zero, one = ir.Const(0, _INT32), ir.Const(1, _INT32)
        stop = ir.cast(ir.as_expr(turns), _INT32)
        return ir.For(turn, zero, stop, one, kind, {}, body, span=body.span)

    def _body(self, nest: Nest, plan: Plan | None, partition: Partition, slot: ir.Expr) -> ir.Stmt:
        """What a lane does in one slot."""
        with self._facts.scope():
            conds = [self._facts.simplify(c) for c in partition.active(self._lanes.index, slot)]
            for cond in conds:
                self._facts.add_condition(cond)
            body = self._content(nest, plan, partition, slot, slot)
            first, body = self._once(nest, partition, body, slot)
        if nest.node.annotations.get(ASYNC):
            body = _each_async(body)
        return _guarded([*conds, *first], body)

    # contents

    def _content(
        self, nest: Nest, plan: Plan | None, partition: Partition, slot: ir.Expr, base: ir.Expr
    ) -> ir.Stmt:
        """The body of the nest at a slot, with registers for fragments."""
        del base
        lane = self._lanes.index
        places = [self._facts.simplify(i) for i in partition.indices(lane, slot)]
        values = {v: ir.cast(at, v.dtype) for v, at in zip(nest.node.vars, places, strict=True)}

        def visit(item: Any) -> Any:
            if isinstance(item, ir.Var):
                return values.get(item, item)
            if isinstance(item, ir.Buffer) or not isinstance(item, ir.Node):
                return item
            if isinstance(item, (ir.Load, ir.Store)) and item.buffer in self._lanes.registers:
                return self._register(item, plan, slot, visit)
            return ir.map_children(item, visit)

        new: ir.Stmt = self._simple(visit(nest.node.body))
        return new

    def _register(self, node: Any, plan: Plan | None, slot: ir.Expr, visit: Any) -> Any:
        buffer = self._lanes.registers[node.buffer]
        assert plan is not None
        found = plan.registers[id(node)]
        if found is None:  # every lane has all elements
            place: Any = ir.Const(0, _INT32)
            for index, extent in zip(node.indices, node.buffer.shape, strict=True):
                place = place * extent + visit(index)
        elif isinstance(found, np.ndarray):
            number = ir.const_value(slot)
            assert isinstance(number, int)
            place = ir.Const(int(found[number]), _INT32)
        else:
            place = ir.substitute(found, {plan.lane: self._lanes.index, plan.slot: slot})
        changes: dict[str, Any] = {"buffer": buffer, "indices": (place,)}
        if isinstance(node, ir.Store):
            changes["value"] = visit(node.value)
        return node.replace(**changes)

    def _simple(self, node: Any) -> Any:
        """A statement with simplified expressions and nests inside it as loops."""
        if isinstance(node, ir.Expr):
            return self._facts.simplify(node)
        if isinstance(node, ir.Parallel):
            node = serial(node)
        if isinstance(node, ir.For):
            start, stop, step = (
                self._facts.simplify(e) for e in (node.start, node.stop, node.step)
            )
            with self._facts.scope():
                if ir.const_value(step) == 1:
                    self._facts.bind_range(node.var, start, stop - 1)
                body = self._simple(node.body)
            return node.replace(start=start, stop=stop, step=step, body=body)
        if isinstance(node, ir.If):
            cond = self._facts.simplify(node.cond)
            known = ir.const_value(cond)
            if known is not None:
                chosen = node.then if known else node.other
                return ir.Seq(()) if chosen is None else self._simple(chosen)
            with self._facts.scope():
                self._facts.add_condition(cond)
                then = self._simple(node.then)
            other = node.other
            if other is not None:
                with self._facts.scope():
                    self._facts.add_condition(cond, False)
                    other = self._simple(other)
            return node.replace(cond=cond, then=then, other=other)
        if isinstance(node, ir.Buffer) or not isinstance(node, ir.Node):
            return node
        return ir.map_children(node, self._simple)

    def _once(
        self, nest: Nest, partition: Partition, body: ir.Stmt, slot: ir.Expr
    ) -> tuple[list[ir.Expr], ir.Stmt]:
        """Effects by the first of the lanes that execute an iteration: as a condition for all
        of the body where it has nothing but effects, else inside of it."""
        if not partition.copied or nest.tied:
            return [], body
        conds = [self._facts.simplify(c) for c in partition.first(self._lanes.index, slot)]
        conds = [c for c in conds if ir.const_value(c) is not True]
        if not conds:
            return [], body
        kinds = {_effect(n) for n in ir.walk(body) if isinstance(n, (ir.Store, ir.Evaluate))}
        if kinds == {True}:
            return conds, body
        if True not in kinds:
            return [], body

        def visit(item: Any) -> Any:
            if isinstance(item, (ir.Store, ir.Evaluate)):
                return _guarded(conds, item) if _effect(item) else item
            return ir.map_children(item, visit) if isinstance(item, ir.Stmt) else item

        new: ir.Stmt = visit(body)
        return [], new


def _marked(nest: Nest, code: ir.Stmt) -> ir.Stmt:
    """The code of a nest with a note that its lanes never meet, where that is hard to see."""
    touched: dict[ir.Buffer, int] = {}
    stored: set[ir.Buffer] = set()
    opaque = not nest.static
    for node in ir.walk(code):
        if isinstance(node, (ir.Load, ir.Store)) and node.buffer.scope() in MEMORY:
            touched[node.buffer] = touched.get(node.buffer, 0) + 1
            if isinstance(node, ir.Store):
                stored.add(node.buffer)
                opaque = opaque or any(
                    isinstance(n, ir.Load) for i in node.indices for n in ir.walk(i)
                )
    if not stored or not (opaque or any(touched[b] > 1 for b in stored)):
        return code
    if isinstance(code, ir.For):
        return code.replace(annotations={**code.annotations, INDEPENDENT: True})
    zero, one = ir.Const(0, _INT32), ir.Const(1, _INT32)
    notes = {INDEPENDENT: True}
    return ir.For(ir.Var("t", _INT32), zero, one, one, "unroll", notes, code, span=code.span)


def _effect(node: ir.Store | ir.Evaluate) -> bool:
    """Whether other lanes can see what a statement does."""
    if isinstance(node, ir.Store):
        return node.buffer.scope() in MEMORY
    return any(isinstance(n, ir.Call) and not ir.is_pure(n.name) for n in ir.walk(node.value))


def _guarded(conds: list[ir.Expr], body: ir.Stmt) -> ir.Stmt:
    cond: ir.Expr | None = None
    for item in conds:
        if ir.const_value(item) is True:
            continue
        cond = item if cond is None else ir.Binary(BinOp.AND, cond, item, _BOOL)
    return body if cond is None else ir.If(cond, body, span=body.span)


def _each_async(node: Any) -> Any:
    """Copies of single elements as asynchronous ones where they may be."""
    if isinstance(node, (ir.Store, ir.If)):
        copy = async_copy(node, None, 1)
        if copy is not None:
            return copy
    return ir.map_children(node, _each_async) if isinstance(node, ir.Stmt) else node


def _widths(chunk: int, bytes_each: int, top: int) -> list[int]:
    """Numbers of elements worth trying as vectors, widest first."""
    found = []
    width = 1 << (chunk.bit_length() - 1) if chunk else 1
    while width > 1:
        if chunk % width == 0 and width * bytes_each <= top:
            found.append(width)
        width //= 2
    return found


def serial(node: ir.Parallel) -> ir.Stmt:
    """A nest as loops of one lane."""
    body = node.body
    for var, extent in reversed(list(zip(node.vars, node.extents, strict=True))):
        zero, one = ir.Const(0, var.dtype), ir.Const(1, var.dtype)
        body = ir.For(var, zero, extent, one, "serial", {}, body, span=node.span)
    return body
