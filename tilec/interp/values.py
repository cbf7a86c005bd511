"""Values of expressions, and reads and writes of elements, for all instances of a group at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import (
    canonical_const,
    evaluate_binary,
    evaluate_call,
    evaluate_cast,
    evaluate_unary,
    value_dtype,
)
from tilec.backend.components import Meaning
from tilec.diagnostics import CapabilityError, InternalError, NestingError, Span
from tilec.interp.checks import Checker
from tilec.interp.groups import (
    HOST,
    ITERATIONS,
    LANES,
    Array,
    Group,
    Mask,
    both,
    is_array,
    settled,
    without,
)
from tilec.interp.ledger import ATOMIC, READ, WRITE
from tilec.interp.memory import Cells
from tilec.ir import BinOp

ATOMICS = {"atomic_add": BinOp.ADD, "atomic_max": BinOp.MAX, "atomic_min": BinOp.MIN}


class Values:
    """The state of an execution, and what expressions mean in it.

    Attributes:
        group: what executes the current statement.
        cells: storage by buffer.
        checker: watches accesses, or None.
        meanings: of intrinsics that are not the language's own, by name.
    """

    def __init__(self, checker: Checker | None) -> None:
        self.meanings: Mapping[str, Meaning] = {}
        self.group = Group(HOST, (), (), None)
        self.cells: dict[ir.Buffer, Cells] = {}
        self.checker = checker
        self._rules: dict[type, Callable[[Any, Mask], Any]] = {
            ir.Const: self._const,
            ir.Var: lambda node, _mask: self.variable(node),
            ir.Load: self._load,
            ir.Cast: lambda node, mask: evaluate_cast(
                self.value(node.value, mask), node.value.dtype, node.dtype
            ),
            ir.Unary: lambda node, mask: evaluate_unary(
                node.op, self.value(node.value, mask), node.value.dtype
            ),
            ir.Binary: self._binary,
            ir.Select: self._select,
            ir.Call: self._call,
        }
        self._consts: dict[ir.Const, Any] = {}

    # expressions

    def value(self, node: Any, mask: Mask) -> Any:
        """The value of an expression for the instances in `mask`; the others get anything."""
        rule = self._rules.get(type(node))
        if rule is None:
            raise InternalError(f"no value for {type(node).__name__}", span=node.span)
        return rule(node, mask)

    def integer(self, node: Any, mask: Mask = True) -> int:
        """A value that has to be the same for all instances."""
        if isinstance(node, int):
            return node
        value = self.value(node, mask)
        return int(self.agreed(value, mask, node.span) if is_array(value) else value)

    def agreed(self, values: Array, mask: Mask, span: Span, what: str = "a value") -> Any:
        """The one number behind an array.

        Raises:
            NestingError: the instances in `mask` differ.
        """
        full = np.broadcast_to(values, self.group.shape)
        chosen = full.reshape(-1) if mask is True else full[np.broadcast_to(mask, full.shape)]
        if (chosen != chosen[0]).any():
            raise NestingError(
                f"{what} differs between lanes where all of them work together",
                span=span,
                hint="keep it in a fragment or in shared memory",
            )
        return chosen[0].item()

    def truth(self, node: ir.Expr, mask: Mask) -> Mask:
        """For which instances in `mask` a condition holds."""
        value = self.value(node, mask)
        return both(mask, value.astype(bool)) if is_array(value) else mask if value else False

    def _const(self, node: ir.Const, mask: Mask) -> Any:
        del mask
        found = self._consts.get(node)
        if found is None:
            found = self._consts[node] = canonical_const(node).value
        return found

    def _binary(self, node: ir.Binary, mask: Mask) -> Any:
        lhs = self.value(node.lhs, mask)
        if node.op in ir.LOGICAL:
            stop = node.op is BinOp.OR  # the right side is asked for where the left does not decide
            if not is_array(lhs):
                return bool(lhs) if bool(lhs) is stop else self.value(node.rhs, mask)
            left = lhs.astype(bool)
            asked = settled(without(mask, left) if stop else both(mask, left))
            if asked is False:
                return left
            rhs = self.value(node.rhs, asked)
            right = rhs.astype(bool) if is_array(rhs) else bool(rhs)
            return np.asarray(left | right if stop else left & right)
        return evaluate_binary(node.op, lhs, self.value(node.rhs, mask), node.lhs.dtype)

    def _select(self, node: ir.Select, mask: Mask) -> Any:
        cond = self.value(node.cond, mask)
        if not is_array(cond):
            return self.value(node.then if cond else node.other, mask)
        cond = cond.astype(bool)
        kind = value_dtype(node.dtype)
        sides = []
        for side, wanted in ((node.then, both(mask, cond)), (node.other, without(mask, cond))):
            asked = settled(wanted)
            sides.append(np.asarray(0 if asked is False else self.value(side, asked), kind))
        return np.where(cond, *sides)

    def _call(self, node: ir.Call, mask: Mask) -> Any:
        if node.name in ATOMICS:
            return self._atomic(node, mask)
        if node.name == "sync":
            if mask is not True:
                raise NestingError(
                    "T.sync_threads is done by all lanes together, but only some lanes get here",
                    span=node.span,
                    hint="move it out of control flow that depends on the lane index",
                )
            return 0
        if node.name in self.meanings:
            return self.meanings[node.name](self, node, mask)
        if node.name in ir.LANE_INTRINSICS:
            raise CapabilityError(
                f"T.{node.name} is part of thread form, and this is tile form",
                span=node.span,
                hint="say what each lane does, and how many lanes form a warp: "
                "T.Kernel(..., warp=...)",
            )
        args = [self.value(a, mask) for a in node.args]
        return evaluate_call(node.name, args, node.dtype, node.args[0].dtype)

    def variable(self, var: ir.Var) -> Any:
        """The value of a variable, bound in this group or around it."""
        here = self.group
        group: Group | None = here
        while group is not None:
            if var in group.values:
                value = group.values[var]
                if group is here or not is_array(value):
                    return value
                if group.kind == LANES:
                    return self._of_lanes(value, group, var.span, f"`{var.name}`")
                return value.reshape(value.shape + (1,) * (len(here.shape) - value.ndim))
            group = group.parent
        raise InternalError(f"variable `{var.name}` has no value here", span=var.span)

    @staticmethod
    def _of_lanes(value: Array, group: Group, span: Span, what: str) -> Any:
        first = value.reshape(-1)[0]
        if (value != first).any():
            raise NestingError(
                f"{what} differs between lanes and is used inside T.Parallel",
                span=span,
                hint="T.Parallel distributes its iterations itself; keep the value in a fragment "
                "or in shared memory",
            )
        del group
        return first.item()

    # elements

    def storage(self, buffer: ir.Buffer) -> Cells:
        """Where a buffer is stored."""
        found = self.cells.get(buffer)
        if found is None:
            raise InternalError(f"{buffer.describe()} is not allocated here", span=buffer.span)
        return found

    def _private(self, cells: Cells, span: Span) -> bool:
        """Whether each instance of the running group accesses a copy of its own."""
        owner = cells.owner
        if owner is None:
            return False
        if owner is self.group or owner.kind == ITERATIONS:
            return True
        if cells.split:
            raise NestingError(
                f"{cells.buffer.name} differs between lanes and is used inside T.Parallel",
                span=span,
                hint="keep it in a fragment or in shared memory",
            )
        return False

    def _where(
        self, cells: Cells, index: list[Any], mask: Mask, span: Span, *, write: bool
    ) -> tuple[tuple[Any, ...], Mask]:
        """Positions inside the extents, and the instances whose own position is inside."""
        valid: Mask = True
        for at, extent in zip(index, cells.extents, strict=True):
            inside: Any = (at >= 0) & (at < extent)
            if is_array(inside):
                if not inside.all():
                    valid = both(valid, inside)
            elif not inside:
                valid = False
        if valid is not True:
            if self.checker is not None and self.checker.watches_bounds(cells):
                self._outside(cells, index, without(mask, valid), span, write=write)
            index = [
                np.minimum(np.maximum(at, 0), extent - 1)
                for at, extent in zip(index, cells.extents, strict=True)
            ]
        return tuple(index), both(mask, valid)

    def _outside(
        self, cells: Cells, index: list[Any], wrong: Mask, span: Span, *, write: bool
    ) -> None:
        if settled(wrong) is False:
            return
        assert self.checker is not None
        shape = self.group.shape
        which = 0 if wrong is True else int(np.argmax(np.broadcast_to(wrong, shape)))
        place = [int(np.broadcast_to(at, shape).reshape(-1)[which]) for at in index]
        varies = any(map(is_array, (*index, wrong)))
        self.checker.outside(cells, place, span, self.group, which if varies else None, write=write)

    def _notice(
        self, how: str, cells: Cells, full: tuple[Any, ...], mask: Mask, span: Span,
        values: Any = None,
    ) -> None:  # fmt: skip
        """Tell the checker about an access at valid positions of `cells.array`."""
        if self.checker is None:
            return
        group = self.group
        shape = group.shape
        uniform = not any(map(is_array, (*full, mask))) and values is None
        if uniform and group.kind != ITERATIONS:
            flat = np.atleast_1d(cells.flat(full, ()))
            self.checker.access(how, cells, flat, None, span, group)
            return
        flat = cells.flat(full, shape).reshape(-1)
        who: Array = np.arange(len(flat))
        given = None if values is None else np.broadcast_to(values, shape).reshape(-1)
        if mask is not True:
            keep = np.broadcast_to(mask, shape).reshape(-1)
            flat, who = flat[keep], who[keep]
            given = None if given is None else given[keep]
        if len(flat):
            self.checker.access(how, cells, flat, who, span, group, given)

    def _load(self, node: ir.Load, mask: Mask) -> Any:
        cells = self.storage(node.buffer)
        index = [self.value(i, mask) for i in node.indices]
        private = self._private(cells, node.span) and cells.split
        if cells.empty:
            return np.zeros((), cells.kind).item()
        where, valid = self._where(cells, index, mask, node.span, write=False)
        lead = self._lead(cells) if private else ()
        full = (*lead, *where)
        if valid is not False and (self.checker is not None):
            known = settled(valid)
            if known is not False:
                self._notice(READ, cells, full, known, node.span)
        if not any(map(is_array, full)):
            if valid is False:
                return np.zeros((), cells.kind).item()
            return cells.element(where)
        result = cells.array[full].astype(cells.kind, copy=False)
        if valid is False:
            return np.zeros((), cells.kind).item()
        if is_array(valid) and valid is not mask:
            result = np.where(valid, result, np.zeros((), cells.kind))
        return result

    def _lead(self, cells: Cells) -> tuple[Array, ...]:
        """Which copy each instance accesses."""
        assert cells.owner is not None
        if cells.owner is self.group:
            return self.group.grid(len(self.group.shape))
        rank = len(self.group.shape)
        return tuple(
            axis.reshape(axis.shape + (1,) * (rank - axis.ndim))
            for axis in cells.owner.grid(len(cells.owner.shape))
        )

    def write(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], value: Any, mask: Mask, span: Span
    ) -> None:
        """``buffer[indices] = value``; of several values for one element the last one stays."""
        cells = self.storage(buffer)
        index = [self.value(i, mask) for i in indices]
        if cells.empty:
            return
        private = self._private(cells, span)
        varies = any(map(is_array, (*index, value, mask)))
        if private and (varies or cells.owner is not self.group):
            cells.separate()
        where, valid = self._where(cells, index, mask, span, write=True)
        valid = settled(valid)
        if valid is False:
            return
        lead = self._lead(cells) if private and cells.split else ()
        full = (*lead, *where)
        if not lead and not varies:
            if self.group.kind == ITERATIONS and not private:
                self._notice(WRITE, cells, full, valid, span, value)
            else:
                self._notice(WRITE, cells, full, True, span)
            cells.array[full] = value
            return
        shape = self.group.shape
        self._notice(WRITE, cells, full, valid, span, value)
        if valid is True and full and np.broadcast(*full).shape == shape:
            cells.array[full] = value
            return
        places = [np.broadcast_to(at, shape) for at in full]
        values = np.broadcast_to(value, shape)
        if valid is not True:
            chosen = np.broadcast_to(valid, shape)
            places = [at[chosen] for at in places]
            values = values[chosen]
        if places:
            cells.array[tuple(places)] = values
        else:  # a tensor without dimensions
            cells.array[()] = values.reshape(-1)[-1]

    # atomic updates

    def _atomic(self, node: ir.Call, mask: Mask) -> Any:
        """Every instance updates its element, one after the other; gives the previous values."""
        target, operand = node.args
        cells = self.storage(target.buffer)
        value = self.value(operand, mask)
        index = [self.value(i, mask) for i in target.indices]
        if cells.empty:
            return np.zeros((), cells.kind).item()
        if self._private(cells, node.span):
            cells.separate()
        where, valid = self._where(cells, index, mask, node.span, write=True)
        valid = settled(valid)
        if valid is False:
            return np.zeros((), cells.kind).item()
        full = (*(self._lead(cells) if cells.split else ()), *where)
        shape = self.group.shape
        flat = np.atleast_1d(cells.flat(full, shape)).reshape(-1)
        values = np.broadcast_to(np.asarray(value, cells.kind), shape).reshape(-1)
        who: Any = slice(None)
        if valid is not True:
            who = np.flatnonzero(np.broadcast_to(valid, shape))
            flat, values = flat[who], values[who]
        if self.checker is not None:
            instances = np.arange(self.group.count)[who]
            self.checker.access(ATOMIC, cells, flat, instances, node.span, self.group)
        before = _update(cells, flat, values, ATOMICS[node.name], node.dtype)
        if self.group.kind == HOST or not shape:
            return before[0].item()
        result = np.zeros(self.group.count, cells.kind)
        result[who] = before
        return result.reshape(shape)


def _update(cells: Cells, flat: Array, values: Array, op: BinOp, dtype: ir.DType) -> Array:
    """Apply updates in order; the values that each of them found."""
    before = np.zeros(len(flat), cells.kind)
    index = np.unravel_index(flat, cells.array.shape) if cells.array.ndim else None
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    turn = np.empty(len(flat), np.int64)
    turn[order] = np.arange(len(flat)) - np.repeat(first, np.diff(np.r_[first, len(flat)]))
    # All first updates of different elements at once, then all second ones, and so on.
    by_turn = np.argsort(turn, kind="stable")
    bounds = np.flatnonzero(np.r_[True, np.diff(turn[by_turn]) > 0, True])
    for start, stop in itertools.pairwise(bounds):
        now = by_turn[start:stop]
        at: Any = () if index is None else tuple(axis[now] for axis in index)
        old = np.atleast_1d(cells.array[at]).astype(cells.kind, copy=False)
        before[now] = old
        new = evaluate_binary(op, old, values[now], dtype)
        cells.array[at] = new if index is not None else new[0]
    return before
