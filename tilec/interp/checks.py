"""What a checked run looks for, and how it says what it found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilec import ir
from tilec.diagnostics import OutOfBoundsAccessError, RaceError, Span, UndefinedValueError
from tilec.interp.groups import ITERATIONS, Array, Group
from tilec.interp.ledger import READ, WRITE, Clash, Ledger
from tilec.interp.memory import Cells


class Checker:
    """Watches the accesses of one execution; the first finding is raised.

    Args:
        kernel: its name.
        strict: whether accesses outside of global tensors are findings; they have a meaning.
    """

    def __init__(self, kernel: str, *, strict: bool) -> None:
        self._kernel = kernel
        self._strict = strict
        self._blocks: dict[Cells, Ledger] = {}
        self._iterations: dict[Cells, Ledger] = {}
        self._grid: tuple[int, ...] = ()
        self._block: int | None = None
        self._grid_names: tuple[str, ...] = ()
        self.loops: list[tuple[str, Any]] = []
        """Name and value of the serial loops that are running, outermost first."""

    # where we are

    def launch(self, grid: tuple[int, ...], names: tuple[str, ...]) -> None:
        """A launch starts; what came before it is done."""
        self._grid, self._grid_names = grid, names
        self._block = None
        self._blocks.clear()

    def block(self, number: int | None) -> None:
        """A block starts; None after the last one."""
        self._block = number

    def nest(self) -> None:
        """A parallel nest starts or ends."""
        self._iterations.clear()

    def _block_name(self, number: int) -> str:
        where = np.unravel_index(number, tuple(reversed(self._grid)))
        pairs = list(zip(self._grid_names, reversed(where), strict=True))
        shown = [p for p, extent in zip(pairs, self._grid, strict=True) if extent > 1] or pairs[:1]
        return "block " + ", ".join(f"{name}={int(at)}" for name, at in shown)

    def _notes(self, cells: Cells, group: Group, instance: int | None) -> list[str]:
        words = [self._kernel]
        if self._block is not None and math.prod(self._grid) > 1:
            words.append(self._block_name(self._block))
        loops = [f"{name}={value}" for name, value in self.loops if isinstance(value, int)]
        if loops:
            words.append(f"loop {', '.join(loops)}")
        if instance is not None and group.place(instance):
            words.append(group.place(instance))
        return [f"in {', '.join(words)}", cells.buffer.describe()]

    # findings

    def outside(
        self, cells: Cells, index: list[int], span: Span, group: Group, instance: int | None, *,
        write: bool,
    ) -> None:  # fmt: skip
        """An access that lies outside; legal for global tensors, which `strict` refuses."""
        if cells.buffer.scope() == ir.GLOBAL and not self._strict:
            return
        raise OutOfBoundsAccessError(
            f"{cells.buffer.name}{index} is {'written' if write else 'read'}, which is outside of "
            f"{ir.shape_text(cells.extents)}",
            span=span,
            hint="such a read gives 0 and such a write is dropped; guard it, or size the buffer "
            "for it",
            notes=self._notes(cells, group, instance),
        )

    def watches_bounds(self, cells: Cells) -> bool:
        """Whether `outside` reports accesses to a buffer."""
        return self._strict or cells.buffer.scope() != ir.GLOBAL

    def access(
        self, how: str, cells: Cells, flat: Array, instances: Any, span: Span, group: Group,
        values: Array | None = None,
    ) -> None:  # fmt: skip
        """Elements are read, written or updated.

        Args:
            how: READ, WRITE or ATOMIC.
            cells: their buffer.
            flat: their numbers in its array, one-dimensional.
            instances: of the group, one per element, or one for all; None for all together.
            span: of the access.
            group: that makes it.
            values: what is written.
        """
        if how != WRITE and cells.defined is not None:
            missing = ~cells.defined.reshape(-1)[flat]
            if missing.any():
                self._undefined(cells, flat, instances, int(np.argmax(missing)), span, group)
        outer = _outermost(group)
        if outer is not None and instances is not None and not _own(cells, outer):
            self._between_iterations(how, cells, flat, instances, span, group, outer, values)
        if cells.buffer.scope() == ir.GLOBAL and self._block is not None:
            self._between_blocks(how, cells, flat, span)
        if how != READ and cells.defined is not None:
            cells.defined.reshape(-1)[flat] = True

    def _between_blocks(self, how: str, cells: Cells, flat: Array, span: Span) -> None:
        assert self._block is not None
        ledger = self._blocks.get(cells)
        if ledger is None:
            ledger = self._blocks[cells] = Ledger(cells.array.size)
        clash = ledger.record(how, flat, self._block, span)
        if clash is not None:
            self._race(
                cells, flat, clash, how, span, self._block_name(clash.owner),
                self._block_name(clash.other),
            )  # fmt: skip

    def _between_iterations(
        self, how: str, cells: Cells, flat: Array, instances: Any, span: Span, group: Group,
        outer: Group, values: Array | None,
    ) -> None:  # fmt: skip
        owners = np.broadcast_to(np.asarray(instances), flat.shape)
        owners = owners // (group.count // outer.count)
        changes = None
        if how == WRITE and values is not None:
            values = np.broadcast_to(values, flat.shape)
            old = cells.array.reshape(-1)[flat]
            changes = _differ(old, values.astype(old.dtype, copy=False))
            if cells.defined is not None:
                changes |= ~cells.defined.reshape(-1)[flat]
        ledger = self._iterations.get(cells)
        if ledger is None:
            ledger = self._iterations[cells] = Ledger(cells.array.size)
        clash = ledger.record(how, flat, owners, span, changes)
        if clash is None and how == WRITE and values is not None:
            clash = _twice(flat, owners, values, span)
        if clash is not None:
            self._race(
                cells, flat, clash, how, span, outer.place(clash.owner), outer.place(clash.other)
            )

    def _race(
        self, cells: Cells, flat: Array, clash: Clash, how: str, span: Span, mine: str, other: str
    ) -> None:
        index, _ = cells.index_of(int(flat[clash.position]))
        word = {READ: "reads", WRITE: "writes"}.get(how, "updates")
        notes = [f"in {self._kernel}", cells.buffer.describe()]
        if clash.span.known and clash.span != span:
            notes.insert(1, f"the other access is at {clash.span}")
        raise RaceError(
            f"{mine} {word} {cells.buffer.name}{index}, which {other} {clash.verb} as well",
            span=span,
            hint="nothing orders them; let each write elements of its own, or use T.atomic_add",
            notes=notes,
        )

    def _undefined(
        self, cells: Cells, flat: Array, instances: Any, which: int, span: Span, group: Group
    ) -> None:
        index, copy = cells.index_of(int(flat[which]))
        instance = copy
        if instances is not None:
            instance = int(np.broadcast_to(np.asarray(instances), flat.shape)[which])
        raise undefined(cells, index, span, self._notes(cells, group, instance))

    def output(self, cells: Cells, span: Span) -> None:
        """The kernel has run; an output that it returns has a value everywhere."""
        if cells.defined is None or cells.defined.all():
            return
        missing = ~cells.defined.reshape(-1)
        index, _ = cells.index_of(int(np.argmax(missing)))
        raise UndefinedValueError(
            f"{cells.buffer.name}{index} is returned, but nothing was written to it",
            span=span,
            hint="the grid and the tiles must cover the whole output",
            notes=[
                f"in {self._kernel}",
                f"{int(missing.sum())} of {missing.size} elements are missing",
                cells.buffer.describe(),
            ],
        )


def undefined(cells: Cells, index: list[int], span: Span, notes: list[str]) -> UndefinedValueError:
    """An element without a value is read."""
    return UndefinedValueError(
        f"{cells.buffer.name}{index} is read before anything was written to it",
        span=span,
        hint="fill the buffer first (T.clear, T.fill, T.copy), or guard the read",
        notes=notes,
    )


def _outermost(group: Group) -> Group | None:
    """The outermost nest around a group; nests inside nests count as one iteration of it."""
    found = None
    current: Group | None = group
    while current is not None and current.kind == ITERATIONS:
        found, current = current, current.parent
    return found


def _own(cells: Cells, nest: Group) -> bool:
    """Whether every iteration of a nest has its own copy."""
    return cells.owner is not None and nest.encloses(cells.owner)


def _differ(a: Array, b: Array) -> Array:
    """Where two arrays hold different values; NaN equals NaN."""
    different = a != b
    if a.dtype.kind not in "iub":
        different &= ~((a != a) & (b != b))
    return np.asarray(different)


def _twice(flat: Array, owners: Array, values: Array, span: Span) -> Clash | None:
    """Two owners that give one element different values in the same statement."""
    order = np.argsort(flat, kind="stable")
    where, who, what = flat[order], owners[order], values[order]
    wrong = (where[1:] == where[:-1]) & (who[1:] != who[:-1]) & _differ(what[1:], what[:-1])
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    return Clash(int(order[first + 1]), int(who[first + 1]), int(who[first]), "writes", span)
