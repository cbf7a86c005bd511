"""Tile operations: regions are read, the operation computes with NumPy, regions are written."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import evaluate_cast
from tilec.backend.components import Meaning
from tilec.diagnostics import NestingError, Span
from tilec.interp.groups import Array, Group, Mask, is_array
from tilec.interp.ledger import ATOMIC, READ, WRITE
from tilec.interp.memory import Cells
from tilec.interp.values import Values
from tilec.ops import TileOp

_INT64 = ir.DType("int64")


class Box:
    """A region at its place.

    Attributes:
        region: with constants for its minima and extents.
        cells: where its buffer is stored.
        copy: whose copy of a private buffer is meant, as an index in front of the others.
        inside: the part of the buffer that it covers.
        part: the same part, relative to the region.
    """

    def __init__(self, region: ir.BufferRegion, cells: Cells, copy: tuple[int, ...]) -> None:
        self.region = region
        self.cells = cells
        self.copy = copy if cells.split else ()
        self.shape = tuple(int(e) for e in region.extents)
        inside, part = [], []
        for low, count, extent in zip(self.lows, self.shape, cells.extents, strict=True):
            first = min(max(low, 0), extent)
            last = max(min(low + count, extent), first)
            inside.append(slice(first, last))
            part.append(slice(first - low, last - low))
        self.inside = tuple(inside)
        self.part = tuple(part)

    @property
    def lows(self) -> list[int]:
        """The first index along each axis."""
        return [int(ir.const_value(m) or 0) for m in self.region.mins]

    @property
    def sticks_out(self) -> bool:
        """Whether some of it lies outside of the buffer."""
        return any(
            s.stop - s.start < count for s, count in zip(self.inside, self.shape, strict=True)
        )

    def flat(self) -> Array:
        """The numbers of the elements that are inside, in the shape of `inside`."""
        ranges = [np.arange(s.start, s.stop) for s in self.inside]
        grid = np.ix_(*ranges) if ranges else ()
        shape = tuple(len(r) for r in ranges)
        return self.cells.flat((*self.copy, *grid), shape)


def contents(box: Box) -> Array:
    """The contents of a region; 0 where it lies outside of its buffer."""
    cells = box.cells
    where: tuple[Any, ...] = (*box.copy, *box.inside)
    found = cells.array[where].astype(cells.kind)
    if not box.sticks_out:
        return np.asarray(found)
    result = np.zeros(box.shape, cells.kind)
    result[box.part] = found
    return result


class Tiles:
    """Runs tile operations in the state of `values`."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def run(self, op: TileOp, mask: Mask) -> None:
        """Execute an operation.

        Raises:
            NestingError: some lanes only get here, or an operand differs between lanes, and no
                operand is private to a lane.
        """
        group = self._values.group
        # A private destination of lanes of which only some get here becomes one per lane.
        written = [self._values.storage(r.buffer) for r in op.writes()]
        if mask is not True:
            for cells in written:
                if cells.owner is group:
                    cells.separate()
        buffers = [r.buffer for r in (*op.reads(), *op.writes())]
        split = any(self._values.storage(b).split for b in buffers)
        if split:
            for cells in written:
                if cells.owner is group:
                    cells.separate()
            for instance in np.flatnonzero(np.broadcast_to(mask, group.shape)):
                self._once(op, group, int(instance))
            return
        if mask is not True:
            raise NestingError(
                f"T.{op.script_name} is done by all lanes together, but only some lanes get here",
                span=op.span,
                hint="move it out of control flow that depends on the lane index",
            )
        self._once(op, group, None)

    def _once(self, op: TileOp, group: Group, instance: int | None) -> None:
        copy = () if instance is None else tuple(
            int(i) for i in np.unravel_index(instance, group.shape)
        )  # fmt: skip
        changes: dict[str, Any] = {}
        for key in op._fields:
            operand = getattr(op, key)
            if isinstance(operand, ir.BufferRegion):
                changes[key] = self._placed(operand, op, copy)
            elif isinstance(operand, ir.Expr):
                number = self._number(operand, op, copy)
                flag = operand.dtype.is_bool
                changes[key] = bool(number) if flag else ir.Const(number, operand.dtype)
        op = op.replace(**changes)
        sources = [Box(r, self._values.storage(r.buffer), copy) for r in op.reads()]
        targets = [Box(r, self._values.storage(r.buffer), copy) for r in op.writes()]
        if self._values.checker is not None:
            self._watch(op, sources, targets, instance)
        inputs = tuple(contents(box) for box in sources)
        for box, result in zip(targets, op.compute(inputs), strict=True):
            self._write(box, result)

    # what a backend's own intrinsics do

    def calling(self, meaning: Meaning) -> Meaning:
        """A meaning that gets an `Execution` to work with."""

        def run(values: Values, call: ir.Call, mask: Mask) -> Any:
            del values
            if mask is not True:
                raise NestingError(f"{call.name} is done by all lanes together", span=call.span)
            value = meaning(_Operands(self, call), call, mask)
            return 0 if value is None else value

        return run

    def place(self, region: ir.BufferRegion, by: ir.Node, *, write: bool) -> Box:
        """A region that all lanes access together, at its place."""
        placed = self._placed(region, by, ())
        box = Box(placed, self._values.storage(region.buffer), ())
        checker, group = self._values.checker, self._values.group
        if checker is not None:
            if box.sticks_out and checker.watches_bounds(box.cells):
                self._outside(box, by.span, group, None, write=write)
            how = WRITE if write else READ
            checker.access(how, box.cells, box.flat().reshape(-1), None, by.span, group)
        return box

    def _number(self, value: ir.Expr, op: ir.Node, copy: tuple[int, ...]) -> Any:
        number = self._values.value(value, True)
        if not is_array(number):
            return number
        full: Array = np.broadcast_to(number, self._values.group.shape)
        if copy:
            return np.asarray(full[copy]).item()
        if (full != full.reshape(-1)[0]).any():
            raise NestingError(
                f"{_title(op)} is done by all lanes together, but an operand depends on "
                "the lane index",
                span=op.span,
                hint="copy element by element in a loop, or index with T.Parallel variables",
            )
        return full.reshape(-1)[0].item()

    def _placed(
        self, region: ir.BufferRegion, op: ir.Node, copy: tuple[int, ...]
    ) -> ir.BufferRegion:
        def number(value: Any) -> int:
            return value if isinstance(value, int) else int(self._number(value, op, copy))

        mins = tuple(ir.Const(number(m), _INT64) for m in region.mins)
        return region.replace(mins=mins, extents=tuple(max(number(e), 0) for e in region.extents))

    @staticmethod
    def _write(box: Box, result: Any) -> None:
        """Set the part of a region that is inside its buffer."""
        source = ir.DType.of(result.dtype)
        values = np.asarray(evaluate_cast(result, source, box.region.dtype))
        where: tuple[Any, ...] = (*box.copy, *box.inside)
        box.cells.array[where] = values.reshape(box.shape)[box.part]

    def _watch(
        self, op: TileOp, sources: list[Box], targets: list[Box], instance: int | None
    ) -> None:
        checker, group = self._values.checker, self._values.group
        assert checker is not None
        wanted = _wanted(sources[-1], targets[0]) if op.elementwise and sources else None
        accesses = [(READ, box) for box in sources] + [(WRITE, box) for box in targets]
        for how, box in accesses:
            span = box.region.span if box.region.span.known else op.span
            if box.sticks_out and checker.watches_bounds(box.cells):
                self._outside(box, span, group, instance, write=how is WRITE)
            flat = box.flat()
            if how is READ and box is sources[-1] and wanted is not None:
                flat = flat[wanted]
            atomic = op.atomic and box.cells.buffer in [t.cells.buffer for t in targets]
            checker.access(
                ATOMIC if atomic else how, box.cells, flat.reshape(-1), instance, span, group
            )

    def _outside(
        self, box: Box, span: Span, group: Group, instance: int | None, *, write: bool
    ) -> None:
        place = []
        for low, count, extent in zip(box.lows, box.shape, box.cells.extents, strict=True):
            place.append(low if low < 0 else max(extent, low) if low + count > extent else low)
        if 0 in box.shape:
            return
        checker = self._values.checker
        assert checker is not None
        checker.outside(box.cells, place, span, group, instance, write=write)


class _Operands:
    """The `Execution` that the meaning of one call works with."""

    def __init__(self, tiles: Tiles, call: ir.Call) -> None:
        self._tiles = tiles
        self._call = call

    def value(self, node: Any) -> Any:
        return node if isinstance(node, int) else self._tiles._values.value(node, True)

    def read(self, region: ir.BufferRegion) -> Array:
        return contents(self._tiles.place(region, self._call, write=False))

    def write(self, region: ir.BufferRegion, values: Array) -> None:
        Tiles._write(self._tiles.place(region, self._call, write=True), values)


def _title(node: ir.Node) -> str:
    name = getattr(node, "script_name", "")
    return f"T.{name}" if name else str(getattr(node, "name", ""))


def _wanted(source: Box, target: Box) -> Array | None:
    """Which elements of an elementwise source, of those inside, end up inside the target."""
    if not target.sticks_out:
        return None
    kept = np.zeros(target.shape, bool)
    kept[target.part] = True
    if kept.size != np.prod(source.shape, dtype=int):
        return None
    return np.asarray(kept.reshape(source.shape)[source.part])
