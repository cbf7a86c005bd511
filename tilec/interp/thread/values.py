"""Values of expressions for lanes, and the storage that lanes access."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec import ir
from tilec.arith import evaluate_binary, storage_dtype
from tilec.diagnostics import DivergenceError, InternalError, OutOfBoundsAccessError, Span
from tilec.interp.groups import Array, Mask, is_array
from tilec.interp.ledger import READ, WRITE
from tilec.interp.memory import Cells
from tilec.interp.thread.clocks import Clocks
from tilec.interp.thread.memo import Memo
from tilec.interp.thread.tasks import LaneGroup, lanes_text
from tilec.interp.values import ATOMICS, Values
from tilec.ir import BinOp

if TYPE_CHECKING:
    from tilec.interp.thread.barriers import Barriers
    from tilec.interp.thread.checks import LaneChecker
    from tilec.interp.thread.engines import Engines

_SIMPLE = (ir.Const, ir.Var, ir.Load, ir.Call)
_FAST = {BinOp.ADD: np.add, BinOp.SUB: np.subtract, BinOp.MUL: np.multiply}
_NATIVE = {
    ir.DType(name): np.dtype(name) for name in ("float32", "float64", "int32", "int64", "uint32")
}
Meaning = Callable[["LaneValues", ir.Call, Mask], Any]


class LaneCells(Cells):
    """Storage in thread form; what is private has one copy per lane of the block, in front.

    Attributes:
        lanes: the number of copies; 0 for storage that lanes share.
        pending: by element the time of the asynchronous instruction that writes it; or None.
        linear: the elements in one dimension, where that is the same memory; else None.
        held: by element the time of the asynchronous instruction that reads it; or None.
        unfenced: by element whether it was written since the last fence of registers; or None.
    """

    def __init__(self, buffer: ir.Buffer, array: Array, *, lanes: int = 0, track: bool) -> None:
        super().__init__(buffer, array, track=track)
        self.lanes = lanes
        self.pending: Array | None = None
        self.held: Array | None = None
        self.linear: Array | None = array.reshape(-1) if array.flags.c_contiguous else None
        self.unfenced: Array | None = None
        if lanes:
            self.extents = array.shape[1:]
            self.split = True

    def take(self, flat: Array) -> Array:
        """Elements by their numbers, in the dtype that values of theirs have."""
        found = self.array.reshape(-1) if self.linear is None else self.linear
        result: Array = found[flat].astype(self.kind, copy=False)
        return result

    def put(self, flat: Array, values: Array) -> None:
        """Set elements by their numbers."""
        if self.linear is not None:
            self.linear[flat] = values
        else:
            self.array[np.unravel_index(flat, self.array.shape)] = values

    def number(self, element: Any) -> Any:
        """An element as a Python number."""
        kind = self.kind.kind
        return float(element) if kind == "f" else bool(element) if kind == "b" else int(element)

    def separate(self) -> None:
        """Copies are kept apart from the start."""

    def index_of(self, flat: int) -> tuple[list[int], int | None]:
        """The index of an element, and the lane whose copy it is in."""
        place = [int(i) for i in np.unravel_index(flat, self.array.shape)]
        return (place[1:], place[0]) if self.lanes else (place, None)


def private_cells(buffer: ir.Buffer, shape: tuple[int, ...], lanes: int, *, track: bool) -> Any:
    """Storage of which each lane has its own."""
    array = np.zeros((lanes, *shape), storage_dtype(buffer.dtype))
    cells = LaneCells(buffer, array, lanes=lanes, track=track)
    if track:
        cells.unfenced = np.ones(array.shape, bool)
    return cells


class LaneValues(Values):
    """The state of a block, and what expressions mean to its lanes.

    What the meaning of an intrinsic may use: `value` and `integer` for operands, `positions` and
    `warps` for who takes part, `elements`, `read` and `write_elements` for memory.

    Attributes:
        total: lanes of the block.
        warp: lanes of a warp.
        barriers: of the block.
        engines: what works on its own in the block.
        clocks: of the lanes, in a checked run; else None.
        meanings: of intrinsics, by name.
    """

    barriers: Barriers
    engines: Engines

    def __init__(self, checker: LaneChecker | None, meanings: Mapping[str, Meaning]) -> None:
        super().__init__(checker)
        self.watch = checker
        self.total = 1
        self.warp = 1
        self.clocks: Clocks | None = None
        self.meanings = meanings
        self._memo = Memo(self.variable)
        self._every = np.arange(0)

    # expressions

    def value(self, node: Any, mask: Mask) -> Any:
        """The value of an expression for the lanes in `mask`; the others get anything."""
        if isinstance(node, _SIMPLE):
            return super().value(node, mask)
        names = self._memo.names(id(node), (node,))
        if names is None:
            return super().value(node, mask)
        return self._memo.get(
            id(node), names, None, lambda: super(LaneValues, self).value(node, True)
        )

    def variable(self, var: ir.Var) -> Any:
        """The value of a variable, bound for these lanes or around the launch."""
        found = self.group.values.get(var)
        return super().variable(var) if found is None else found

    def _binary(self, node: ir.Binary, mask: Mask) -> Any:
        fast = _FAST.get(node.op)
        if fast is not None:
            a, b = self.value(node.lhs, mask), self.value(node.rhs, mask)
            # Numbers round, and arrays of these types compute as the language does.
            kind = _NATIVE.get(node.lhs.dtype)
            if is_array(a) and is_array(b) and a.dtype == kind and b.dtype == kind:
                return fast(a, b)
            return evaluate_binary(node.op, a, b, node.lhs.dtype)
        return super()._binary(node, mask)

    # places

    def _place(self, cells: LaneCells, indices: tuple[ir.Expr, ...]) -> Any:
        """Numbers of the elements that lanes index: an array, one number, or None.

        None stands for indices that depend on more than variables, or leave the buffer.
        """
        if cells.linear is None:
            return None
        names = self._memo.names(id(indices), indices)
        if names is None:
            return None
        lanes = self.group_of().lanes
        return self._memo.get(
            id(indices), names, lanes, lambda: self._placed(cells, indices, lanes)
        )

    def _placed(self, cells: LaneCells, indices: tuple[ir.Expr, ...], lanes: Array) -> Any:
        total: Any = lanes if cells.lanes else 0
        for index, extent in zip(indices, cells.extents, strict=True):
            at = self.value(index, True)
            inside = (at >= 0) & (at < extent)
            if not (inside.all() if is_array(inside) else inside):
                return None
            total = total * extent + (at.astype(np.int64) if is_array(at) else int(at))
        return total

    def _load(self, node: ir.Load, mask: Mask) -> Any:
        cells = self.storage(node.buffer)
        if not isinstance(cells, LaneCells) or not isinstance(self.group, LaneGroup):
            return super()._load(node, mask)
        flat = self._place(cells, node.indices)
        if flat is None:
            return super()._load(node, mask)
        if self.watch is not None:
            at = self.positions(mask)
            where = flat[at] if is_array(flat) else np.full(len(at), flat)
            if len(at):
                self.watch.access(READ, cells, where, at, node.span, self.group)
        assert cells.linear is not None
        found = cells.linear[flat]
        return found.astype(cells.kind, copy=False) if is_array(flat) else cells.number(found)

    def write(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], value: Any, mask: Mask, span: Span
    ) -> None:
        """``buffer[indices] = value``; of several values for one element the last one stays."""
        cells = self.storage(buffer)
        if not isinstance(cells, LaneCells) or not isinstance(self.group, LaneGroup):
            return super().write(buffer, indices, value, mask, span)
        flat = self._place(cells, indices)
        if flat is None:
            return super().write(buffer, indices, value, mask, span)
        at = self.positions(mask)
        if not len(at):
            return None
        if not is_array(flat):
            flat = np.full(len(self.group.lanes), flat)
        if mask is not True:
            flat = flat[at]
            value = value[at] if is_array(value) else value
        if self.watch is not None:
            given = np.broadcast_to(value, flat.shape)
            self.watch.access(WRITE, cells, flat, at, span, self.group, given)
        assert cells.linear is not None
        cells.linear[flat] = value
        return None

    # who

    def group_of(self) -> LaneGroup:
        """The running lanes."""
        group = self.group
        if not isinstance(group, LaneGroup):
            raise InternalError("an operation of lanes outside of a launch")
        return group

    def where(self) -> str:
        """Where we are, for reports."""
        return self.watch.where() if self.watch is not None else f"in a block of {self.total} lanes"

    def positions(self, mask: Mask) -> Array:
        """Positions within the group of the lanes in a mask."""
        count = len(self.group_of().lanes)
        if mask is True:
            if len(self._every) != count:
                self._every = np.arange(count)
            return self._every
        if mask is False:
            return np.arange(0)
        return np.flatnonzero(np.broadcast_to(mask, (count,)))

    def warps(self, call: ir.Call, mask: Mask, width: int | None = None) -> Array:
        """Positions of the lanes that take part, one row per warp (or per `width` lanes).

        Raises:
            DivergenceError: part of a warp gets here.
        """
        group = self.group_of()
        width = self.warp if width is None else width
        at = self.positions(mask)
        if mask is True and group.whole(width):
            return at.reshape(-1, width)
        lanes = group.lanes[at]
        numbers, first, counts = np.unique(lanes // width, return_index=True, return_counts=True)
        short = counts < width
        if not short.any():
            return at.reshape(-1, width)
        which = int(np.argmax(short))
        here = lanes[first[which] : first[which] + counts[which]]
        raise divergence(call, here, int(numbers[which]) * width, width, self)

    # memory

    def _private(self, cells: Cells, span: Span) -> bool:
        del span
        return isinstance(cells, LaneCells) and cells.lanes > 0

    def _lead(self, cells: Cells) -> tuple[Array, ...]:
        del cells
        return (self.group_of().lanes,)

    def _notice(
        self, how: str, cells: Cells, full: tuple[Any, ...], mask: Mask, span: Span,
        values: Any = None,
    ) -> None:  # fmt: skip
        if self.watch is None:
            return
        group = self.group
        if not isinstance(group, LaneGroup):
            super()._notice(how, cells, full, mask, span, values)
            return
        flat = cells.flat(full, group.shape)
        given = None if values is None else np.broadcast_to(values, group.shape)
        if mask is True:
            self.watch.access(how, cells, flat, np.arange(len(flat)), span, group, given)
            return
        at = self.positions(mask)
        if len(at):
            given = None if given is None else given[at]
            self.watch.access(how, cells, flat[at], at, span, group, given)

    def lane_cells(self, buffer: ir.Buffer) -> LaneCells:
        """Where a buffer is stored."""
        cells = self.storage(buffer)
        assert isinstance(cells, LaneCells)
        return cells

    def elements(
        self, element: Any, mask: Mask, *, write: bool = False
    ) -> tuple[LaneCells, Array, Array]:
        """The elements that lanes name, without reading them.

        Returns:
            the storage, numbers of elements in its array, and the position of the lane that names
            each; lanes that name none inside the buffer are left out.
        """
        if not isinstance(element, ir.Load):
            raise InternalError(f"expected an element, got {ir.describe(element)}")
        cells = self.lane_cells(element.buffer)
        index = [self.value(i, mask) for i in element.indices]
        where, valid = self._where(cells, index, mask, element.span, write=write)
        at = self.positions(valid)
        lead = self._lead(cells) if cells.lanes else ()
        return cells, cells.flat((*lead, *where), self.group.shape)[at], at

    def read(self, cells: LaneCells, flat: Array, at: Array, span: Span) -> Array:
        """Elements, in the dtype that values of theirs have.

        Args:
            cells: where they are.
            flat: their numbers.
            at: positions of the lanes that read them, of the same shape.
            span: of the access.
        """
        if self.watch is not None and flat.size:
            self.watch.access(READ, cells, flat.reshape(-1), at.reshape(-1), span, self.group_of())
        return cells.take(flat)

    def write_elements(
        self, cells: LaneCells, flat: Array, at: Array, values: Array, span: Span
    ) -> None:
        """Write elements; see `read`."""
        if self.watch is not None and flat.size:
            self.watch.access(
                WRITE, cells, flat.reshape(-1), at.reshape(-1), span, self.group_of(),
                values.reshape(-1),
            )  # fmt: skip
        cells.put(flat, values)

    def registers(self, region: Any, at: Array, mask: Mask) -> tuple[LaneCells, Array]:
        """A region of a private buffer: numbers of its elements, one row per lane in `at`."""
        cells = self.lane_cells(region.buffer)
        if not cells.lanes:
            raise InternalError(f"{region.describe()} is not in registers", span=region.span)
        extents = tuple(self.integer(e, mask) for e in region.extents)
        lanes = self.group_of().lanes[at]
        total: Any = 0
        outside: Any = False
        steps = np.cumprod((1, *reversed(cells.extents)))[:-1][::-1]
        for low, count, extent, step in zip(
            region.mins, extents, cells.extents, steps, strict=True
        ):
            start = self.value(low, mask)
            outside = outside | np.any((start < 0) | (start + count > extent))
            start = start[at] if is_array(start) else np.full(len(at), start)
            total = total + start * step
        if outside:
            self._region_outside(region, cells, extents, at, mask)
        inner = np.arange(math.prod(extents))
        places = np.unravel_index(inner, extents) if extents else ()
        offsets = sum((p * s for p, s in zip(places, steps, strict=True)), np.zeros_like(inner))
        size = math.prod(cells.extents)
        return cells, (lanes * size + total)[:, None] + offsets[None, :]

    def _region_outside(
        self, region: Any, cells: LaneCells, extents: tuple[int, ...], at: Array, mask: Mask
    ) -> None:
        place = []
        for low, count, extent in zip(region.mins, extents, cells.extents, strict=True):
            start = self.value(low, mask)
            first = int(start[at[0]]) if is_array(start) else int(start)
            place.append(first if first < 0 else max(first, first + count - 1, 0))
            if first < 0 or first + count > extent:
                continue
            place[-1] = first
        self.outside(cells, place, region.span, int(at[0]), write=None)

    def outside(
        self, cells: LaneCells, index: list[int], span: Span, at: int | None, *, write: bool | None
    ) -> None:
        """An instruction accesses what is not there.

        Raises:
            OutOfBoundsAccessError: always.
        """
        word = {True: "written", False: "read", None: "accessed"}[write]
        notes = [self.where(), cells.buffer.describe()]
        if at is not None:
            notes.insert(1, f"by {self.group_of().place(at)}")
        raise OutOfBoundsAccessError(
            f"{cells.buffer.name}{index} is {word}, which is outside of "
            f"{ir.shape_text(cells.extents)}",
            span=span,
            hint="what an instruction accesses lies inside its buffer",
            notes=notes,
        )

    # calls

    def _call(self, node: ir.Call, mask: Mask) -> Any:
        meaning = self.meanings.get(node.name)
        if meaning is not None:
            return meaning(self, node, mask)
        if node.name not in ATOMICS and not ir.is_pure(node.name):
            raise InternalError(
                f"intrinsic {node.name!r} has no meaning in the interpreter",
                span=node.span,
                hint="a backend gives the meanings of its own intrinsics in `meanings` of its "
                "manifest",
            )
        return super()._call(node, mask)


def divergence(
    call: ir.Call, here: Array, first: int, width: int, values: LaneValues
) -> DivergenceError:
    """Part of the lanes that work together get to a call."""
    warp = values.warp
    others = np.setdiff1d(np.arange(first, first + width), here)
    return DivergenceError(
        f"{script_name(call.name)} is done by {width} lanes together, but only "
        f"{lanes_text(here, warp)} of {first} to {first + width - 1} "
        f"{'gets' if len(here) == 1 else 'get'} here",
        span=call.span,
        hint="move it out of control flow that lanes of one warp disagree about",
        notes=[values.where(), f"{lanes_text(others, warp)} does not get here"
               if len(others) == 1 else f"{lanes_text(others, warp)} do not get here"],
    )  # fmt: skip


def script_name(name: str) -> str:
    """What the language calls an intrinsic."""
    return "T.sync_threads" if name == "sync" else f"T.{name}"
