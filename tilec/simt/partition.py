"""Which lane executes which iterations of a nest, in which order.

A partition has *slots*: a lane runs through slots 0, 1, ... and executes one iteration in each. It
says which iteration that is as expressions of lane and slot, to be emitted, and as tables, to
reason with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tilec import ir
from tilec.ir import BinOp
from tilec.layout import Fragment, closed_form
from tilec.layout.maps import Array, index_vars
from tilec.simt.grid import Axis, Grid

_INT32 = ir.DType("int32")
_BOOL = ir.DType("bool")
Extents = tuple[Any, ...]


class Partition:
    """A way to deal the iterations of a nest to lanes.

    Attributes:
        lanes: lanes of the block.
        slots: per lane.
        chunk: consecutive slots, from multiples of it on, are consecutive along the last variable.
        copied: whether several lanes execute the same iteration.
    """

    lanes: int
    slots: int
    chunk: int = 1
    copied: bool = False

    def indices(self, lane: ir.Expr, slot: ir.Expr) -> tuple[ir.Expr, ...]:
        """The iteration, perhaps beyond what `active` allows."""
        raise NotImplementedError

    def active(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        """Conditions under which a lane has an iteration in a slot."""
        raise NotImplementedError

    def first(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        """Conditions under which a lane is the one that has effects."""
        del lane, slot
        return []

    @cached_property
    def table(self) -> tuple[Array, ...]:
        """The iteration by variable, of shape (lanes, slots); whatever where not `valid`."""
        raise NotImplementedError

    @cached_property
    def valid(self) -> Array:
        """Where a lane has an iteration, of shape (lanes, slots)."""
        raise NotImplementedError


class GridPartition(Partition):
    """The iterations of a nest like the elements of a grid."""

    def __init__(self, grid: Grid, lanes: int) -> None:
        self.grid = grid
        self.lanes = lanes
        self.slots = grid.registers
        self.chunk = grid.axes[-1].chunk
        self.copied = bool(grid.copies)

    def indices(self, lane: ir.Expr, slot: ir.Expr) -> tuple[ir.Expr, ...]:
        return self.grid.indices(lane, slot)

    def active(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        conds = [_less(lane, self.grid.lanes)] if self.grid.lanes < self.lanes else []
        for axis, piece in zip(self.grid.axes, self.grid.pieces(lane, slot), strict=True):
            if not axis.exact:  # an extent is a whole number of chunks
                conds.append(_less(piece, axis.extent // axis.chunk))
        return conds

    def first(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        del slot
        whole = self.grid.lanes
        conds: list[ir.Expr] = []
        for count, stride in self.grid.copies:
            if stride * count >= whole:
                conds.append(_less(lane, stride))
            else:
                conds.append(_equal(lane // stride % count, 0))
        return conds

    @cached_property
    def table(self) -> tuple[Array, ...]:
        lane = np.arange(self.lanes)[:, None]
        slot = np.arange(self.slots)[None, :]
        found = []
        for axis in self.grid.axes:
            at = lane // axis.stride % axis.lanes + slot // axis.pitch % axis.turns * axis.lanes
            if axis.chunk > 1:
                at = at * axis.chunk + slot % axis.chunk
            found.append(np.broadcast_to(at, (self.lanes, self.slots)))
        return tuple(found)

    @cached_property
    def valid(self) -> Array:
        result: Array = np.broadcast_to(
            np.arange(self.lanes)[:, None] < self.grid.lanes, (self.lanes, self.slots)
        )
        for axis, at in zip(self.grid.axes, self.table, strict=True):
            result = result & (at < axis.extent)
        return result


class FlatPartition(Partition):
    """Chunks of iterations in row-major order, dealt out one to a lane in turn.

    Extents may be expressions, the last one only with chunks of one iteration.
    """

    def __init__(self, extents: Extents, lanes: int, chunk: int = 1) -> None:
        self.extents = extents
        self.lanes = lanes
        self.chunk = chunk
        self.pieces: Extents = (*extents[:-1], extents[-1] // chunk) if chunk > 1 else extents
        self.static = all(isinstance(e, int) for e in extents)
        self.total: Any = 1
        for piece in self.pieces:
            self.total = self.total * piece
        self.slots = -(-self.total // lanes) * chunk if self.static else chunk

    def turns(self) -> Any:
        """Chunks per lane, an int or an expression."""
        if self.static:
            return self.slots // self.chunk
        return (self.total + (self.lanes - 1)) // self.lanes

    def piece(self, lane: ir.Expr, slot: ir.Expr) -> Any:
        """The number of the chunk."""
        number: Any = slot if self.chunk == 1 else slot // self.chunk
        return lane + number * self.lanes

    def indices(self, lane: ir.Expr, slot: ir.Expr) -> tuple[ir.Expr, ...]:
        rest = self.piece(lane, slot)
        found: list[Any] = []
        for n, extent in enumerate(reversed(self.pieces)):
            if n + 1 == len(self.pieces):
                found.append(rest)
            else:
                found.append(rest % extent)
                rest = rest // extent
        if self.chunk > 1:
            found[0] = found[0] * self.chunk + slot % self.chunk
        return tuple(reversed(found))

    def active(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        if self.static and self.total % self.lanes == 0:
            return []
        return [ir.binary(BinOp.LT, self.piece(lane, slot), self.total)]

    @cached_property
    def table(self) -> tuple[Array, ...]:
        assert self.static
        lane = np.arange(self.lanes)[:, None]
        slot = np.arange(self.slots)[None, :]
        piece = np.minimum(lane + slot // self.chunk * self.lanes, max(self.total - 1, 0))
        found = list(np.unravel_index(piece, self.pieces))
        if self.chunk > 1:
            found[-1] = found[-1] * self.chunk + slot % self.chunk
        return tuple(found)

    @cached_property
    def valid(self) -> Array:
        lane = np.arange(self.lanes)[:, None]
        slot = np.arange(self.slots)[None, :]
        return np.asarray(lane + slot // self.chunk * self.lanes < self.total)


class TablePartition(Partition):
    """The iterations of a nest like the elements of any fragment.

    Args:
        fragment: its dimensions are the variables of the nest.
        lanes: of the block.

    Raises:
        ValueError: the inverse of the fragment cannot be written down.
    """

    def __init__(self, fragment: Fragment, lanes: int) -> None:
        self.fragment = fragment
        self.lanes = lanes
        self.slots = fragment.register_extent
        self.used = fragment.thread_extent
        if self.used > lanes:
            raise ValueError(f"it needs {self.used} lanes, the block has {lanes}")
        threads = fragment.thread_table
        registers = fragment.register_table
        size = int(np.prod(fragment.input_shape))
        flat = np.broadcast_to(np.arange(size).reshape(*fragment.input_shape, 1), threads.shape)
        inverse = np.full((lanes, self.slots), -1, np.int64)
        inverse[threads, registers] = flat
        self._inverse = inverse
        self.copied = bool((threads != threads[..., :1]).any())
        owners = np.broadcast_to(threads[..., :1], threads.shape)
        self._owner = np.zeros((lanes, self.slots), np.int64)
        self._owner[threads, registers] = owners
        if (inverse[: self.used] < 0).any():
            raise ValueError("some registers of some lanes are empty")
        self._lane, self._slot = ir.Var("lane", _INT32), ir.Var("slot", _INT32)
        self._forms = self._indices()
        self._owner_form = self._split(self._owner[: self.used]) if self.copied else None
        if self.copied and self._owner_form is None:
            raise ValueError("the first holder of an element has no closed form")
        self.chunk = self._chunk()

    def _indices(self) -> tuple[ir.Expr, ...]:
        shape = self.fragment.input_shape
        parts = np.unravel_index(self._inverse[: self.used], shape)
        found = [self._split(p) for p in parts]
        if all(f is not None for f in found):
            return tuple(f for f in found if f is not None)
        flat = self._split(self._inverse[: self.used])
        if flat is None:
            raise ValueError("its inverse has no closed form")
        rest: Any = flat
        result: list[Any] = []
        for n, extent in enumerate(reversed(shape)):
            result.append(rest if n + 1 == len(shape) else rest % extent)
            rest = rest // extent
        return tuple(reversed(result))

    def _split(self, table: Array) -> ir.Expr | None:
        """An expression in lane and slot for a table of shape (used, slots)."""
        for combine, op in ((np.add, BinOp.ADD), (np.bitwise_xor, BinOp.BITXOR)):
            column, row = table[:, :1], table[:1, :]
            rest = row - row[0, 0] if op is BinOp.ADD else row ^ row[0, 0]
            if np.array_equal(combine(column, rest), table):
                by_lane = closed_form(column.ravel(), self._lane)
                by_slot = closed_form(rest.ravel(), self._slot)
                if by_lane is not None and by_slot is not None:
                    return ir.binary(op, by_lane, by_slot)
        number = self._lane * self.slots + self._slot
        return closed_form(table.ravel(), number)

    def _chunk(self) -> int:
        """The longest run along the last dimension from multiples of its length on."""
        inverse = self._inverse[: self.used]
        last = self.fragment.input_shape[-1]
        chunk = 1
        while self.slots % (2 * chunk) == 0 and chunk < 64:
            groups = inverse.reshape(self.used, -1, 2 * chunk)
            runs = groups == groups[..., :1] + np.arange(2 * chunk)
            if not (
                runs.all() and last % (2 * chunk) == 0 and (groups[..., 0] % (2 * chunk) == 0).all()
            ):
                break
            chunk *= 2
        return chunk

    def _at(self, expr: ir.Expr, lane: ir.Expr, slot: ir.Expr) -> ir.Expr:
        return ir.substitute(expr, {self._lane: lane, self._slot: slot})

    def indices(self, lane: ir.Expr, slot: ir.Expr) -> tuple[ir.Expr, ...]:
        return tuple(self._at(f, lane, slot) for f in self._forms)

    def active(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        del slot
        return [_less(lane, self.used)] if self.used < self.lanes else []

    def first(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        if self._owner_form is None:
            return []
        return [_equal(lane, self._at(self._owner_form, lane, slot))]

    @cached_property
    def table(self) -> tuple[Array, ...]:
        inverse = np.maximum(self._inverse, 0)
        return tuple(np.unravel_index(inverse, self.fragment.input_shape))

    @cached_property
    def valid(self) -> Array:
        return self._inverse >= 0


class Clipped(Partition):
    """A partition of a larger domain, of which only the iterations below `extents` exist."""

    def __init__(self, whole: Partition, extents: Extents, bounds: Sequence[int]) -> None:
        self.whole = whole
        self.lanes, self.slots, self.copied = whole.lanes, whole.slots, whole.copied
        last, bound = extents[-1], bounds[-1]
        fits = isinstance(last, int) and last % whole.chunk == 0
        self.chunk = whole.chunk if fits or last is bound else 1
        self._extents = extents
        self._bounds = tuple(bounds)

    def indices(self, lane: ir.Expr, slot: ir.Expr) -> tuple[ir.Expr, ...]:
        return self.whole.indices(lane, slot)

    def active(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        conds = self.whole.active(lane, slot)
        indices = self.whole.indices(lane, slot)
        for index, extent, bound in zip(indices, self._extents, self._bounds, strict=True):
            if not (isinstance(extent, int) and extent >= bound):
                conds.append(ir.binary(BinOp.LT, index, extent))
        return conds

    def first(self, lane: ir.Expr, slot: ir.Expr) -> list[ir.Expr]:
        return self.whole.first(lane, slot)

    @cached_property
    def table(self) -> tuple[Array, ...]:
        return self.whole.table

    @cached_property
    def valid(self) -> Array:
        result = self.whole.valid
        for at, extent in zip(self.whole.table, self._extents, strict=True):
            if isinstance(extent, int):
                result = result & (at < extent)
        return result


def of_fragment(fragment: Fragment, lanes: int) -> Partition:
    """The partition whose iterations are the elements of a fragment.

    Raises:
        ValueError: see `TablePartition`.
    """
    if isinstance(fragment, Grid):
        if fragment.lanes > lanes:
            raise ValueError(f"it needs {fragment.lanes} lanes, the block has {lanes}")
        return GridPartition(fragment, lanes)
    return TablePartition(fragment, lanes)


def permuted(fragment: Fragment, order: Sequence[int]) -> Fragment:
    """The same places with the dimensions in another order: new dimension n was order[n]."""
    if list(order) == list(range(len(order))) and len(order) == len(fragment.input_shape):
        return fragment
    if isinstance(fragment, Grid):
        return Grid.of_axes([fragment.axes[n] for n in order], fragment.copies)
    zero = {
        v: 0 * v for n, v in enumerate(fragment.variables) if n not in order
    }  # dimensions of one element
    thread, register = (ir.substitute(e, zero) for e in (fragment.thread, fragment.register))
    return Fragment.from_exprs(
        tuple(fragment.input_shape[n] for n in order),
        tuple(fragment.variables[n] for n in order),
        fragment.replica,
        fragment.replicate_extent,
        thread,
        register,
    )


def with_axis(fragment: Fragment, axis: int) -> Fragment:
    """The fragment with one more dimension, of one element."""
    if isinstance(fragment, Grid):
        axes = list(fragment.axes)
        axes.insert(axis, Axis(1))
        return Grid.of_axes(axes, fragment.copies)
    shape = list(fragment.input_shape)
    shape.insert(axis, 1)
    variables = list(index_vars(len(shape)))
    rest = [v for n, v in enumerate(variables) if n != axis]
    values = dict(zip(fragment.variables, rest, strict=True))
    return Fragment.from_exprs(
        tuple(shape), tuple(variables), fragment.replica, fragment.replicate_extent,
        ir.substitute(fragment.thread, values), ir.substitute(fragment.register, values),
    )  # fmt: skip


def _less(value: Any, bound: int) -> ir.Expr:
    return ir.Binary(BinOp.LT, value, ir.Const(bound, _INT32), _BOOL)


def _equal(value: Any, other: Any) -> ir.Expr:
    rhs = other if isinstance(other, ir.Expr) else ir.Const(other, _INT32)
    return ir.Binary(BinOp.EQ, value, rhs, _BOOL)
