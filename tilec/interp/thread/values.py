"""Values of expressions for lanes, and the storage that lanes access."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec import ir
from tilec.arith import storage_dtype
from tilec.diagnostics import DivergenceError, InternalError, OutOfBoundsAccessError, Span
from tilec.interp.groups import Array, Mask, is_array
from tilec.interp.ledger import READ, WRITE
from tilec.interp.memory import Cells
from tilec.interp.thread.clocks import Clocks
from tilec.interp.thread.tasks import LaneGroup, lanes_text
from tilec.interp.values import ATOMICS, Values

if TYPE_CHECKING:
    from tilec.interp.thread.barriers import Barriers
    from tilec.interp.thread.checks import LaneChecker
    from tilec.interp.thread.engines import Engines

Meaning = Callable[["LaneValues", ir.Call, Mask], Any]


class LaneCells(Cells):
    """Storage in thread form; what is private has one copy per lane of the block, in front.

    Attributes:
        lanes: the number of copies; 0 for storage that lanes share.
        pending: by element the time of the asynchronous instruction that writes it; or None.
        held: by element the time of the asynchronous instruction that reads it; or None.
        unfenced: by element whether it was written since the last fence of registers; or None.
    """

    def __init__(self, buffer: ir.Buffer, array: Array, *, lanes: int = 0, track: bool) -> None:
        super().__init__(buffer, array, track=track)
        self.lanes = lanes
        self.pending: Array | None = None
        self.held: Array | None = None
        self.unfenced: Array | None = None
        if lanes:
            self.extents = array.shape[1:]
            self.split = True

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
            return np.arange(count)
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
        result: Array = cells.array.reshape(-1)[flat].astype(cells.kind, copy=False)
        return result

    def write_elements(
        self, cells: LaneCells, flat: Array, at: Array, values: Array, span: Span
    ) -> None:
        """Write elements; see `read`."""
        if self.watch is not None and flat.size:
            self.watch.access(
                WRITE, cells, flat.reshape(-1), at.reshape(-1), span, self.group_of(),
                values.reshape(-1),
            )  # fmt: skip
        cells.array.reshape(-1)[flat] = values

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
