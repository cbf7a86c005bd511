"""Parallel nests on lanes: what they access, and a partition that serves all their fragments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import Simplifier, evaluate
from tilec.diagnostics import InternalError, ShapeError
from tilec.ir import BinOp
from tilec.layout import Fragment, closed_form
from tilec.layout.maps import Array
from tilec.ops.base import is_one
from tilec.simt.grid import Axis, Grid, balanced
from tilec.simt.partition import (
    Clipped,
    FlatPartition,
    GridPartition,
    Partition,
    of_fragment,
    permuted,
    with_axis,
)

REDUCTION = "reduction"
LOOP_LAYOUT = "loop_layout"
MEMORY = (ir.GLOBAL, ir.SHARED, ir.SHARED_DYN)
_INT32 = ir.DType("int32")
_MOST = 1 << 16
_INLINE = 80


@dataclass(frozen=True, eq=False)
class Access:
    """An access to a fragment in a nest.

    Attributes:
        node: the load or store.
        places: per dimension of the fragment the position of the variable that is its index, or
            None for the only element of a dimension; None as a whole for any other indices.
    """

    node: Any
    places: tuple[int | None, ...] | None

    @property
    def buffer(self) -> ir.Buffer:
        """The fragment."""
        buffer: ir.Buffer = self.node.buffer
        return buffer

    @property
    def written(self) -> bool:
        """Whether it is a store."""
        return isinstance(self.node, ir.Store)


@dataclass(eq=False)
class Nest:
    """A parallel nest, ready to be dealt to lanes.

    Attributes:
        node: with nests inside it joined where possible, and lets of indices replaced.
        extents: ints or expressions.
        accesses: to fragments.
        tied: why its iterations must not be executed more than once, or empty.
    """

    node: ir.Parallel
    extents: tuple[Any, ...]
    accesses: list[Access] = field(default_factory=list)
    tied: str = ""

    @property
    def static(self) -> bool:
        """Whether all extents are constants."""
        return all(isinstance(e, int) for e in self.extents)

    @property
    def size(self) -> int:
        """Number of iterations, 0 where it is not constant."""
        total = 1
        for extent in self.extents:
            total *= extent if isinstance(extent, int) else 0
        return total

    def covers(self, access: Access) -> bool:
        """Whether every iteration has an element of its own."""
        places = access.places
        return places is not None and all(
            n in places or is_one(e) for n, e in enumerate(self.extents)
        )

    def full(self) -> Iterator[Access]:
        """Accesses to fragments of which every iteration has an element of its own."""
        return (a for a in self.accesses if self.covers(a))

    def partial(self) -> Iterator[Access]:
        """Accesses whose element is shared by the iterations along some variables."""
        return (a for a in self.accesses if a.places is not None and not self.covers(a))

    def along(self, layout: Fragment, access: Access) -> Fragment:
        """The layout of a fragment as one of the iterations, for an access of `full`."""
        assert access.places is not None
        rank = len(self.extents)
        kept = [n for n in range(rank) if n in access.places]
        result = permuted(layout, [access.places.index(n) for n in kept])
        for n in range(rank):
            if n not in kept:
                result = with_axis(result, n)
        return result


def prepare(node: ir.Parallel, facts: Simplifier) -> Nest:
    """What lowering wants to know about a nest."""
    joined = _joined(node)
    inlined = _inlined(joined)
    extents = tuple(_constant(facts, e) for e in inlined.extents)
    nest = Nest(inlined, extents)
    places = {id(v): n for n, v in enumerate(inlined.vars)}
    for item in ir.walk(inlined.body):
        if isinstance(item, (ir.Load, ir.Store)) and item.buffer.scope() == ir.FRAGMENT:
            nest.accesses.append(Access(item, _places(item, places, extents, facts)))
    nest.tied = _tied(inlined.body)
    return nest


def _constant(facts: Simplifier, extent: ir.Expr) -> Any:
    value = facts.simplify(extent)
    number = ir.const_value(value)
    return max(int(number), 0) if number is not None else value


def _joined(node: ir.Parallel) -> ir.Parallel:
    """One nest for nests that have nothing between them."""
    while True:
        body = node.body
        while isinstance(body, ir.Seq) and len(body.stmts) == 1:
            body = body.stmts[0]
        if not isinstance(body, ir.Parallel) or REDUCTION in body.annotations:
            return node
        if REDUCTION in node.annotations or any(
            v in node.vars or isinstance(v, ir.Load)
            for e in body.extents
            for v in ir.walk(e)
            if isinstance(v, (ir.Var, ir.Load))
        ):
            return node
        node = node.replace(
            vars=(*node.vars, *body.vars),
            extents=(*node.extents, *body.extents),
            annotations={**body.annotations, **node.annotations},
            body=body.body,
        )


def _inlined(node: ir.Parallel) -> ir.Parallel:
    """The nest with lets of plain integers and conditions replaced by their values, where these
    are small."""
    values: dict[ir.Var, Any] = {}
    gone: set[int] = set()
    for item in ir.walk(node.body):
        if not isinstance(item, ir.Bind):
            continue
        if not (item.var.dtype.is_integer or item.var.dtype.is_bool):
            continue
        value = ir.substitute(item.value, values) if values else item.value
        plain = all(not isinstance(n, (ir.Load, ir.Call)) for n in ir.walk(value))
        if plain and sum(1 for _ in ir.walk(value)) <= _INLINE:
            values[item.var] = value
            gone.add(id(item.var))
    if not values:
        return node

    def visit(item: Any) -> Any:
        if isinstance(item, ir.Bind) and id(item.var) in gone:
            return ir.Seq(())
        if isinstance(item, ir.Var):
            return values.get(item, item)
        return item if isinstance(item, ir.Buffer) else ir.map_children(item, visit)

    return node.replace(body=visit(node.body))


def _places(
    node: Any, places: Mapping[int, int], extents: tuple[Any, ...], facts: Simplifier
) -> tuple[int | None, ...] | None:
    found: list[int | None] = []
    for index, bound in zip(node.indices, node.buffer.shape, strict=True):
        number = places.get(id(index))
        if bound == 1 and (number is None or number in found or not is_one(extents[number])):
            found.append(None)
            continue
        if number is None or number in found:
            return None
        extent = extents[number]
        if isinstance(extent, int):
            if extent > bound:
                return None
        elif not facts.prove(ir.binary(BinOp.LE, extent, bound)):
            return None
        found.append(number)
    return tuple(found)


def _tied(body: ir.Stmt) -> str:
    """Why several lanes may not execute the same iteration, each keeping its own result."""
    read: set[ir.Buffer] = set()
    written: set[ir.Buffer] = set()
    for item in ir.walk(body):
        if isinstance(item, ir.Load) and item.buffer.scope() in MEMORY:
            read.add(item.buffer)
        if isinstance(item, ir.Store) and item.buffer.scope() in MEMORY:
            written.add(item.buffer)
        if isinstance(item, (ir.Bind, ir.Store, ir.Alloc, ir.If)) and any(
            isinstance(n, ir.Call) and not ir.is_pure(n.name)
            for part in item.children
            if isinstance(part, ir.Expr)
            for n in ir.walk(part)
        ):
            return "the result of an atomic update is used"
    both = read & written
    return f"{next(iter(both)).name} is read and written" if both else ""


# partitions


@dataclass(eq=False)
class Plan:
    """How lanes execute a nest.

    Attributes:
        partition: who executes what.
        registers: by access (the `id` of its node) the register as an expression of `lane` and
            `slot`, or as numbers by slot.
        failed: fragments whose elements are not where the partition needs them, with the reason.
    """

    partition: Partition
    lane: ir.Var
    slot: ir.Var
    registers: dict[int, ir.Expr | Array | None] = field(default_factory=dict)
    failed: dict[ir.Buffer, str] = field(default_factory=dict)

    @property
    def explicit(self) -> bool:
        """Whether slots have to be written out one by one."""
        return any(isinstance(r, np.ndarray) for r in self.registers.values())


class Planner:
    """Finds partitions.

    Args:
        lanes: of the block.
        warp: lanes of a warp.
        access_bytes: of the widest access.
    """

    def __init__(self, lanes: int, warp: int, access_bytes: int) -> None:
        self.lanes = lanes
        self.warp = warp
        self.access_bytes = access_bytes
        self._partitions: dict[Any, tuple[Fragment, Partition | None]] = {}

    def plan(self, nest: Nest, layouts: Mapping[ir.Buffer, Fragment]) -> Plan | None:
        """The best partition for a nest; None where it needs no fragments' consent."""
        used = [a for a in nest.accesses if a.buffer in layouts]
        if not used:
            wanted = self._wanted(nest)
            return None if wanted is None else Plan(wanted, *_names())
        if all(is_everywhere(layouts[a.buffer], self.lanes) and not a.written for a in used):
            plan = Plan(FlatPartition((1,), self.lanes), *_names())
            for access in used:
                plan.registers[id(access.node)] = None
            return plan
        best: Plan | None = None
        for partition in self._candidates(nest, layouts):
            if partition.copied and nest.tied:
                continue
            plan = self._judge(nest, partition, layouts)
            if not plan.failed:
                return plan
            if best is None or len(plan.failed) < len(best.failed):
                best = plan
        if best is None:
            best = Plan(FlatPartition((1,), self.lanes), *_names())
            why = nest.tied or "its nest has no constant extents"
            best.failed = {a.buffer: why for a in used}
        return best

    def _candidates(self, nest: Nest, layouts: Mapping[ir.Buffer, Fragment]) -> Iterator[Partition]:
        rank = len(nest.extents)
        wanted = self._wanted(nest)
        if wanted is not None:
            yield wanted
        full = [a for a in nest.full() if a.buffer in layouts]
        for access in sorted(full, key=lambda a: not a.written):
            assert access.places is not None
            places, shape = access.places, static_shape(access.buffer)
            partition = self.along(layouts[access.buffer], nest, access)
            if partition is None:
                continue
            bounds = [shape[places.index(n)] if n in places else 1 for n in range(rank)]
            if not nest.static or list(bounds) != list(nest.extents):
                partition = Clipped(partition, nest.extents, bounds)
            yield partition
        if not nest.static or nest.size > _MOST or not nest.size:
            return
        for access in nest.partial():
            layout = layouts.get(access.buffer)
            if isinstance(layout, Grid):
                grid = self._extended(layout, access, nest)
                if grid is not None:
                    yield GridPartition(grid, self.lanes)
        yield GridPartition(balanced(nest.extents, self.lanes, 1, (), self.warp), self.lanes)

    def _wanted(self, nest: Nest) -> Partition | None:
        """The partition that the program asks for, where it is one."""
        layout = nest.node.annotations.get(LOOP_LAYOUT)
        if not isinstance(layout, Fragment) or layout.input_shape != nest.extents:
            return None
        try:
            partition = of_fragment(layout, self.lanes) if layout.is_complete else None
        except (ValueError, ShapeError):
            return None
        return None if partition is None or (partition.copied and nest.tied) else partition

    def along(self, layout: Fragment, nest: Nest, access: Access) -> Partition | None:
        """The partition that follows a fragment, or None."""
        key = (id(layout), access.places, len(nest.extents))
        found = self._partitions.get(key)
        if found is None:
            try:
                along = nest.along(layout, access)
                partition: Partition | None = of_fragment(along, self.lanes)
            except (ValueError, ShapeError):
                partition = None
            found = self._partitions[key] = (layout, partition)
        return found[1]

    def _extended(self, layout: Grid, access: Access, nest: Nest) -> Grid | None:
        """A grid for the whole nest along a fragment that has fewer dimensions."""
        assert access.places is not None
        copies = list(layout.copies)
        axes: list[Axis] = []
        for n in range(len(nest.extents) - 1, -1, -1):
            extent = nest.extents[n]
            if n in access.places:
                axis = layout.axes[access.places.index(n)]
                if axis.extent != extent:
                    return None
                axes.insert(0, axis)
            elif copies:
                count, stride = max(copies)
                copies.remove((count, stride))
                axes.insert(0, Axis(extent, 1, count, stride))
            else:
                axes.insert(0, Axis(extent))
        return Grid(axes, copies)

    def _judge(
        self, nest: Nest, partition: Partition, layouts: Mapping[ir.Buffer, Fragment]
    ) -> Plan:
        """Where each access finds its element."""
        plan = Plan(partition, *_names())
        done: dict[tuple[int, tuple[int | None, ...]], Any] = {}
        for access in nest.accesses:
            layout = layouts.get(access.buffer)
            if layout is None:
                continue
            if is_everywhere(layout, self.lanes) and not access.written:
                plan.registers[id(access.node)] = None
                continue
            key = None if access.places is None else (id(access.buffer), access.places)
            if key is not None and key in done:
                found = done[key]
            else:
                found = self._register(nest, partition, layout, access, plan)
                if key is not None:
                    done[key] = found
            if isinstance(found, str):
                plan.failed.setdefault(access.buffer, found)
            else:
                plan.registers[id(access.node)] = found
        return plan

    def _register(
        self, nest: Nest, partition: Partition, layout: Fragment, access: Access, plan: Plan
    ) -> ir.Expr | Array | str:
        """The register of an access, or why a lane may not have it."""
        inner = partition.whole if isinstance(partition, Clipped) else partition
        if isinstance(inner, GridPartition) and isinstance(layout, Grid) and nest.covers(access):
            mine = nest.along(layout, access)
            assert isinstance(mine, Grid)
            if mine.axes == inner.grid.axes and mine.copies == inner.grid.copies:
                return plan.slot
        element = _elements(nest, partition, access)
        if isinstance(element, str):
            return element
        flat, inside = element
        held, register = _held(layout, flat, self.lanes)
        if (inside & ~held).any():
            return "the lanes that need its elements do not hold them"
        if access.written and not _all_written(layout, flat, inside, register, self.lanes):
            return "some copies of its elements would not be written"
        slots = np.where(inside, register, -1).max(axis=0)
        if (np.where(inside, register, slots) == slots).all():
            slots = np.maximum(slots, 0)
            form = closed_form(slots, plan.slot)
            return slots if form is None else form
        form = closed_form(
            np.where(inside, register, 0).ravel(), plan.lane * partition.slots + plan.slot
        )
        return "its registers have no closed form" if form is None else form


def _names() -> tuple[ir.Var, ir.Var]:
    return ir.Var("lane", _INT32), ir.Var("slot", _INT32)


def static_shape(buffer: ir.Buffer) -> tuple[int, ...]:
    """The shape of an on-chip buffer."""
    return tuple(int(e) for e in buffer.shape if isinstance(e, int))


def is_everywhere(layout: Fragment, lanes: int) -> bool:
    """Whether every lane holds everything, in row-major order."""
    return (
        isinstance(layout, Grid)
        and layout.copies == (((lanes, 1),) if lanes > 1 else ())
        and all(a.lanes == 1 for a in layout.axes)
    )


def _elements(nest: Nest, partition: Partition, access: Access) -> tuple[Array, Array] | str:
    """Flat numbers of the elements by lane and slot, and where they exist."""
    values = dict(zip(nest.node.vars, partition.table, strict=True))
    inside = partition.valid
    flat: Array = np.zeros((), np.int64)
    for index, extent in zip(access.node.indices, static_shape(access.buffer), strict=True):
        known = set(ir.free_vars(index))
        if any(isinstance(n, (ir.Load, ir.Call)) for n in ir.walk(index)):
            return "an index of it comes from memory"
        if any(v not in values for v in known):
            return "an index of it is not made of the variables of T.Parallel"
        try:
            at = np.asarray(evaluate(index, {v: values[v].astype(np.int32) for v in known}))
        except InternalError:
            return "an index of it cannot be tabulated"
        at = at.astype(np.int64)
        inside = inside & (at >= 0) & (at < extent)
        flat = flat * extent + np.clip(at, 0, extent - 1)
    return np.broadcast_to(flat, inside.shape), inside


def _held(layout: Fragment, flat: Array, lanes: int) -> tuple[Array, Array]:
    """Whether each lane (first axis) holds elements, and in which register."""
    copies = layout.replicate_extent
    threads = layout.thread_table.reshape(-1, copies)
    registers = layout.register_table.reshape(-1, copies)
    lane = np.arange(lanes)[:, None]
    if copies == 1:
        return threads[flat, 0] == lane, registers[flat, 0]
    size = len(threads)
    if lanes * size <= 1 << 22:
        place = np.full((lanes, size), -1, np.int32)
        element = np.broadcast_to(np.arange(size)[:, None], threads.shape)
        inside = threads < lanes
        place[threads[inside], element[inside]] = registers[inside]
        register = place[lane, flat]
        return register >= 0, np.maximum(register, 0)
    held = np.zeros(flat.shape, bool)
    register = np.zeros(flat.shape, np.int64)
    for copy in range(copies):
        here = threads[flat, copy] == lane
        register = np.where(here & ~held, registers[flat, copy], register)
        held |= here
    return held, register


def _all_written(layout: Fragment, flat: Array, inside: Array, register: Array, lanes: int) -> bool:
    """Whether of each element that is written all copies are."""
    if layout.replicate_extent == 1:
        return True
    width = layout.register_extent
    lane = np.broadcast_to(np.arange(lanes)[:, None], flat.shape)
    written = np.unique((lane * width + register)[inside])
    elements = np.unique(flat[inside])
    slots = layout.slots.reshape(-1, layout.replicate_extent)[elements]
    return bool(np.isin(np.unique(slots), written).all())
