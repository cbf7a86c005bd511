"""Executes a function in tile form.

Statements run for many instances at once: the lanes of a block, in lock step, or the iterations of
a parallel nest. A value is a number, or an array with one entry per instance; control flow that
differs between instances is a mask. Tile operations run as their own NumPy meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
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
from tilec.diagnostics import (
    ArgumentValueError,
    InternalError,
    KernelRuntimeError,
    NestingError,
    Span,
)
from tilec.interp.memory import Array, Cells, new_cells
from tilec.ir import BinOp
from tilec.ops import TileOp

_PRIVATE = (ir.LOCAL, ir.LOCAL_VAR)
_ATOMICS = {"atomic_add": BinOp.ADD, "atomic_max": BinOp.MAX, "atomic_min": BinOp.MIN}
DEFAULT_THREADS = 128


class Group:
    """Instances that run together.

    Attributes:
        count: how many.
        values: of variables: numbers, or arrays of `count`.
        cells: private buffers allocated by this group.
        parent: the group in which this one was opened.
        kind: "lane" or "iteration".
        dead: instances that have returned.
        loops: masks of the open loops' broken instances, innermost last.
    """

    def __init__(self, count: int, kind: str, parent: Group | None = None) -> None:
        self.count = count
        self.kind = kind
        self.values: dict[ir.Var, Any] = {}
        self.cells: dict[ir.Buffer, Cells] = {}
        self.parent = parent
        self.dead = np.zeros(count, bool)
        self.loops: list[Array] = []


class Machine:
    """One execution of a function."""

    def __init__(self, func: ir.PrimFunc, *, check: bool) -> None:
        self._func = func
        self._check = check
        self._group = Group(1, "lane")
        self._global: dict[ir.Buffer, Cells] = {}
        self._block = 0
        self._rules: dict[type, Callable[[Any, Array], Array]] = {
            ir.Seq: self._seq,
            ir.Bind: self._bind,
            ir.Alloc: self._alloc,
            ir.Store: self._store,
            ir.For: self._for,
            ir.Parallel: self._parallel,
            ir.While: self._while,
            ir.If: self._if,
            ir.Assert: self._assert,
            ir.Evaluate: self._evaluate,
            ir.Break: self._break,
            ir.Continue: lambda _node, mask: np.zeros_like(mask),
            ir.Return: self._return,
            ir.Launch: self._launch,
        }

    # arguments

    def bind_scalar(self, var: ir.Var, value: Any) -> None:
        """Give a scalar parameter its value."""
        source = ir.DType("float64") if isinstance(value, float) else ir.DType("int64")
        self._group.values[var] = evaluate_cast(value, source, var.dtype)

    def bind_tensor(self, buffer: ir.Buffer, array: Array) -> None:
        """Give a tensor parameter its memory; binds the shape variables it carries."""
        for axis, (extent, size) in enumerate(zip(buffer.shape, array.shape, strict=True)):
            if isinstance(extent, ir.Var) and extent not in self._group.values:
                self._group.values[extent] = size
            elif self._known(extent) and self.extent(extent) != size:
                raise ArgumentValueError(
                    f"{self._func.name}: argument {buffer.name}: shape[{axis}] expected "
                    f"{self.extent(extent)}, got {size}"
                )
        if buffer.strides is not None:
            steps = [s // array.itemsize for s in array.strides]
            for stride, step in zip(buffer.strides, steps, strict=True):
                if isinstance(stride, ir.Var):
                    self._group.values.setdefault(stride, step)
        self._global[buffer] = Cells(buffer, array, copies=False, checked=self._check)

    def _known(self, extent: Any) -> bool:
        return not isinstance(extent, ir.Expr) or all(
            v in self._group.values for v in ir.free_vars(extent)
        )

    def extent(self, value: Any) -> int:
        """The number behind an extent."""
        if isinstance(value, int):
            return value
        return int(self._uniform(value, np.ones(self._group.count, bool)))

    def execute(self) -> None:
        """Run the function."""
        with np.errstate(all="ignore"):
            self._stmt(self._func.body, np.ones(1, bool))

    # statements: each gives the instances that go on to the next one

    def _stmt(self, node: Any, mask: Array) -> Array:
        if not mask.any():
            return mask
        rule = self._rules.get(type(node))
        if rule is not None:
            return rule(node, mask)
        if isinstance(node, TileOp):
            self._tile(node, mask)
            return mask
        raise InternalError(f"no meaning for {type(node).__name__}", span=node.span)

    def _seq(self, node: ir.Seq, mask: Array) -> Array:
        for stmt in node.stmts:
            mask = self._stmt(stmt, mask)
        return mask

    def _bind(self, node: ir.Bind, mask: Array) -> Array:
        self._group.values[node.var] = self._value(node.value, mask)
        return mask

    def _alloc(self, node: ir.Alloc, mask: Array) -> Array:
        private = node.buffer.scope() in _PRIVATE or self._group.kind == "iteration"
        cells = new_cells(node.buffer, self._group.count if private else 0, checked=self._check)
        self._group.cells[node.buffer] = cells
        if node.init is not None:
            value = self._value(node.init, mask)
            self._write(node.buffer, (ir.Const(0, ir.DType("int32")),), value, mask, node.span)
        return mask

    def _store(self, node: ir.Store, mask: Array) -> Array:
        value = self._value(node.value, mask)
        self._write(node.buffer, node.indices, value, mask, node.span)
        return mask

    def _if(self, node: ir.If, mask: Array) -> Array:
        cond = self._truth(node.cond, mask)
        rest = self._stmt(node.then, mask & cond)
        other = mask & ~cond
        return rest | (self._stmt(node.other, other) if node.other is not None else other)

    def _for(self, node: ir.For, mask: Array) -> Array:
        start, stop, step = (
            self._spread(self._value(v, mask)) for v in (node.start, node.stop, node.step)
        )
        index = start.astype(np.int64)
        stop, step = stop.astype(np.int64), step.astype(np.int64)

        def going() -> Array:
            return np.where(step > 0, index < stop, index > stop)

        alive = mask.copy()
        broken = np.zeros_like(mask)
        self._group.loops.append(broken)
        while True:
            trip = alive & going()
            if not trip.any():
                break
            same = index[trip]
            uniform = bool((same == same[0]).all())
            self._group.values[node.var] = int(same[0]) if uniform else index.copy()
            self._stmt(node.body, trip)
            alive &= ~broken & ~self._group.dead
            index = index + step
        self._group.loops.pop()
        return mask & ~self._group.dead

    def _while(self, node: ir.While, mask: Array) -> Array:
        alive = mask.copy()
        broken = np.zeros_like(mask)
        self._group.loops.append(broken)
        while True:
            alive = alive & self._truth(node.cond, alive) if alive.any() else alive
            if not alive.any():
                break
            self._stmt(node.body, alive)
            alive = alive & ~broken & ~self._group.dead
        self._group.loops.pop()
        return mask & ~self._group.dead

    def _break(self, node: ir.Break, mask: Array) -> Array:
        del node
        self._group.loops[-1] |= mask
        return np.zeros_like(mask)

    def _return(self, node: ir.Return, mask: Array) -> Array:
        del node
        self._group.dead |= mask
        return np.zeros_like(mask)

    def _assert(self, node: ir.Assert, mask: Array) -> Array:
        if (mask & ~self._truth(node.cond, mask)).any():
            raise KernelRuntimeError(f"kernel {self._func.name}: {node.message}", span=node.span)
        return mask

    def _evaluate(self, node: ir.Evaluate, mask: Array) -> Array:
        if not (isinstance(node.value, ir.Call) and node.value.name == "sync"):
            self._value(node.value, mask)
        return mask

    # launches and nests

    def _launch(self, node: ir.Launch, mask: Array) -> Array:
        grid = [self.extent(g) for g in node.grid]
        threads = node.threads or (DEFAULT_THREADS, 1, 1)
        lanes = int(np.prod(threads)) if _uses_lanes(node) else 1
        outer = self._group
        for number, place in enumerate(itertools.product(*map(range, reversed(grid)))):
            self._block = number
            group = self._group = Group(lanes, "lane", outer)
            group.values.update(zip(node.grid_vars, reversed(place), strict=True))
            if lanes > 1:
                z, y, x = np.unravel_index(np.arange(lanes), tuple(reversed(threads)))
                group.values.update(zip(node.thread_vars, (x, y, z), strict=True))
            else:
                group.values.update(dict.fromkeys(node.thread_vars, 0))
            self._stmt(node.body, np.ones(lanes, bool))
        self._group = outer
        for cells in self._global.values():
            cells.forget("block")
        return mask

    def _parallel(self, node: ir.Parallel, mask: Array) -> Array:
        extents = [int(self._uniform(e, mask)) for e in node.extents]
        outer = self._group
        count = int(np.prod(extents)) if min(extents, default=1) > 0 else 0
        if count == 0:
            return mask
        group = self._group = Group(count, "iteration", outer)
        axes = np.unravel_index(np.arange(count), tuple(extents))
        group.values.update(zip(node.vars, axes, strict=True))
        try:
            self._stmt(node.body, np.ones(count, bool))
        finally:
            self._group = outer
        if self._check:
            for cells in self._visible():
                cells.forget("iteration")
        return mask

    def _visible(self) -> list[Cells]:
        result = list(self._global.values())
        group: Group | None = self._group
        while group is not None:
            result += group.cells.values()
            group = group.parent
        return result

    # tile operations

    def _tile(self, op: TileOp, mask: Array) -> None:
        regions = (*op.reads(), *op.writes())
        copies = [self._cells(r.buffer)[0] for r in regions]
        if any(c.copies for c in copies):
            for lane in np.flatnonzero(mask):
                self._tile_once(op, mask, int(lane))
            return
        self._tile_once(op, mask, int(np.argmax(mask)))

    def _tile_once(self, op: TileOp, mask: Array, lane: int) -> None:
        one = np.zeros_like(mask)
        one[lane] = True
        constants = {
            key: self._constant(getattr(op, key), one, lane)
            for key in op._fields
            if isinstance(getattr(op, key), ir.Expr)
        }
        op = op.replace(**constants) if constants else op
        # From here on every region has the place and the extents of this execution.
        placed = {
            key: self._placed(getattr(op, key), one, lane)
            for key in op._fields
            if isinstance(getattr(op, key), ir.BufferRegion)
        }
        op = op.replace(**placed)
        inputs = tuple(self._read_box(r, lane, atomic=op.atomic) for r in op.reads())
        for region, result in zip(op.writes(), op.compute(inputs), strict=True):
            source = ir.DType.of(result.dtype)
            values = np.asarray(evaluate_cast(result, source, region.dtype))
            self._write_box(region, values.reshape(_sizes(region)), lane, atomic=op.atomic)

    def _constant(self, value: ir.Expr, mask: Array, lane: int) -> Any:
        number = self._spread(self._value(value, mask))[lane].item()
        return bool(number) if value.dtype.is_bool else ir.Const(number, value.dtype)

    def _placed(self, region: ir.BufferRegion, mask: Array, lane: int) -> ir.BufferRegion:
        """A region with constants for its minima and extents."""

        def number(value: Any) -> int:
            return int(self._spread(self._value(ir.as_expr(value), mask))[lane])

        low = tuple(ir.Const(number(m), ir.DType("int64")) for m in region.mins)
        return region.replace(mins=low, extents=tuple(max(number(e), 0) for e in region.extents))

    @staticmethod
    def _clip(cells: Cells, region: ir.BufferRegion) -> tuple[list[slice], tuple[slice, ...]]:
        """Where a region and its buffer overlap: slices of the buffer, and of the region."""
        inside, box = [], []
        low = [int(m.value) for m in region.mins]  # type: ignore[attr-defined]
        for start, count, extent in zip(low, _sizes(region), cells.extents, strict=True):
            first = min(max(start, 0), extent)
            last = max(min(start + count, extent), first)
            inside.append(slice(first, last))
            box.append(slice(first - start, last - start))
        return inside, tuple(box)

    def _read_box(self, region: ir.BufferRegion, lane: int, *, atomic: bool = False) -> Array:
        """The contents of a region; 0 where it lies outside its buffer."""
        cells, _shared = self._cells(region.buffer)
        result = np.zeros(_sizes(region), value_dtype(region.dtype))
        inside, box = self._clip(cells, region)
        if self._check:
            at = self._grid(cells, inside, lane)
            if not atomic:
                self._mark_block(cells, at, region.span, write=False)
            cells.read(at, region.span)
        copy = (lane,) if cells.copies else ()
        result[box] = cells.array[(*copy, *inside)]
        return result

    def _write_box(
        self, region: ir.BufferRegion, values: Array, lane: int, *, atomic: bool = False
    ) -> None:
        """New contents of a region; what lies outside its buffer is dropped."""
        cells, _shared = self._cells(region.buffer)
        inside, box = self._clip(cells, region)
        if self._check:
            at = self._grid(cells, inside, lane)
            if not atomic:
                self._mark_block(cells, at, region.span, write=True)
            cells.define(at)
        copy = (lane,) if cells.copies else ()
        cells.array[(*copy, *inside)] = values[box].astype(cells.array.dtype, copy=False)

    def _mark_block(self, cells: Cells, at: tuple[Array, ...], span: Span, *, write: bool) -> None:
        if self._check and cells.buffer.scope() == ir.GLOBAL:
            cells.mark("block", self._block, at, span, write=write)

    @staticmethod
    def _grid(cells: Cells, inside: list[slice], lane: int) -> tuple[Array, ...]:
        """Positions of all elements of a box."""
        ranges = [np.arange(s.start, s.stop) for s in inside]
        axes = [g.reshape(-1) for g in np.meshgrid(*ranges, indexing="ij")]
        if cells.copies:
            axes.insert(0, np.full(len(axes[0]) if axes else 1, lane))
        return tuple(axes)

    # expressions

    def _spread(self, value: Any) -> Array:
        """A value as an array with one entry per instance."""
        return np.broadcast_to(np.asarray(value), (self._group.count,))

    def _uniform(self, value: Any, mask: Array) -> Any:
        values = self._spread(self._value(value, mask))[mask]
        if (values != values[0]).any():
            raise NestingError("an extent differs between lanes", span=getattr(value, "span", None))
        return values[0]

    def _truth(self, value: ir.Expr, mask: Array) -> Array:
        return self._spread(self._value(value, mask)).astype(bool)

    def _value(self, node: Any, mask: Array) -> Any:
        """The value of an expression for the instances in `mask` (others get anything)."""
        if isinstance(node, ir.Const):
            return canonical_const(node).value
        if isinstance(node, ir.Var):
            return self._variable(node)
        if isinstance(node, ir.Load):
            return self._load(node, mask)
        if isinstance(node, ir.Cast):
            return evaluate_cast(self._value(node.value, mask), node.value.dtype, node.dtype)
        if isinstance(node, ir.Unary):
            return evaluate_unary(node.op, self._value(node.value, mask), node.value.dtype)
        if isinstance(node, ir.Select):
            cond = self._truth(node.cond, mask)
            then = self._branch(node.then, mask & cond)
            other = self._branch(node.other, mask & ~cond)
            return np.where(cond, then, other)
        if isinstance(node, ir.Binary):
            lhs = self._value(node.lhs, mask)
            if node.op in ir.LOGICAL:
                left = self._spread(lhs).astype(bool)
                ask = mask & (left if node.op is BinOp.AND else ~left)
                right = self._spread(self._branch(node.rhs, ask)).astype(bool)
                return left & right if node.op is BinOp.AND else left | right
            return evaluate_binary(node.op, lhs, self._value(node.rhs, mask), node.lhs.dtype)
        if isinstance(node, ir.Call):
            if node.name in _ATOMICS:
                return self._atomic(node, mask)
            args = [self._value(a, mask) for a in node.args]
            return evaluate_call(node.name, args, node.dtype, node.args[0].dtype)
        raise InternalError(f"no value for {type(node).__name__}", span=node.span)

    def _branch(self, node: ir.Expr, mask: Array) -> Any:
        """A value that is only asked for where `mask` holds."""
        if mask.any():
            return self._value(node, mask)
        return np.zeros((), value_dtype(node.dtype))

    def _variable(self, var: ir.Var) -> Any:
        group: Group | None = self._group
        while group is not None:
            if var in group.values:
                value = group.values[var]
                if group is not self._group and isinstance(value, np.ndarray) and value.ndim:
                    return value[0]  # the same in all lanes, or the nest would be refused
                return value
            group = group.parent
        raise InternalError(f"variable `{var.name}` has no value here", span=var.span)

    # elements

    def _cells(self, buffer: ir.Buffer) -> tuple[Cells, bool]:
        """Storage of a buffer, and whether this group's instances share it."""
        found = self._global.get(buffer)
        if found is not None:
            return found, True
        group: Group | None = self._group
        while group is not None:
            if buffer in group.cells:
                cells = group.cells[buffer]
                return cells, not cells.copies or group is not self._group
            group = group.parent
        raise InternalError(f"{buffer.describe()} is not allocated here", span=buffer.span)

    def _at(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], mask: Array
    ) -> tuple[Cells, tuple[Array, ...], Array]:
        """Storage, positions and instances of an access, without those that lie outside."""
        cells, shared = self._cells(buffer)
        axes = [self._spread(self._value(i, mask)).astype(np.int64) for i in indices]
        valid = mask.copy()
        for axis, extent in zip(axes, cells.extents, strict=True):
            valid &= (axis >= 0) & (axis < extent)
        who = np.flatnonzero(valid)
        at = [axis[who] for axis in axes]
        if cells.copies:
            at.insert(0, np.zeros(len(who), np.int64) if shared else who)
        if not at:  # a scalar tensor: the same element for every instance
            return cells, (), who
        return cells, tuple(at), who

    def _mark(
        self, cells: Cells, at: tuple[Array, ...], who: Array, span: Span, *, write: bool
    ) -> None:
        if not self._check or not at:
            return
        self._mark_block(cells, at, span, write=write)
        if self._group.kind == "iteration" and not (
            cells.copies and cells.buffer in self._group.cells
        ):
            cells.mark("iteration", who, at, span, write=write)

    def _load(self, node: ir.Load, mask: Array) -> Any:
        cells, at, who = self._at(node.buffer, node.indices, mask)
        kind = value_dtype(node.dtype)
        if not at:
            return cells.array[()].astype(kind)
        self._mark(cells, at, who, node.span, write=False)
        result = np.zeros(self._group.count, kind)
        result[who] = cells.read(at, node.span)
        return result if self._group.count > 1 else result[0]

    def _write(
        self,
        buffer: ir.Buffer,
        indices: tuple[ir.Expr, ...],
        value: Any,
        mask: Array,
        span: Span,
    ) -> None:
        cells, at, who = self._at(buffer, indices, mask)
        values = self._spread(value)[who]
        if not at:
            if len(values):
                cells.array[()] = values[-1]
            return
        self._mark(cells, at, who, span, write=True)
        cells.write(at, values)

    def _atomic(self, node: ir.Call, mask: Array) -> Any:
        """One instance after the other; gives the previous values."""
        target, operand = node.args
        value = self._spread(self._value(operand, mask))
        cells, at, who = self._at(target.buffer, target.indices, mask)
        result = np.zeros(self._group.count, value_dtype(node.dtype))
        op = _ATOMICS[node.name]
        for position, instance in enumerate(who):
            place = tuple(axis[position : position + 1] for axis in at)
            old = cells.read(place, node.span) if at else cells.array[()].reshape(1)
            new = evaluate_binary(op, old, value[instance : instance + 1], node.dtype)
            if at:
                cells.write(place, new)
            else:
                cells.array[()] = np.asarray(new)[0]
            result[instance] = old[0]
        return result if self._group.count > 1 else result[0]


def _uses_lanes(node: ir.Launch) -> bool:
    """Whether what a lane does depends on which one it is."""
    lanes = set(node.thread_vars)

    def visit(item: ir.Node, *, nested: bool) -> bool:
        if isinstance(item, ir.Var):
            return item in lanes
        if isinstance(item, ir.Call) and item.name in _ATOMICS and not nested:
            return True
        inside = nested or isinstance(item, (ir.Parallel, TileOp))
        return any(visit(c, nested=inside) for c in item.children if not isinstance(c, ir.Buffer))

    return visit(node.body, nested=False)


def _sizes(region: ir.BufferRegion) -> tuple[int, ...]:
    """The extents of a region that has been placed."""
    return tuple(int(e) for e in region.extents)
