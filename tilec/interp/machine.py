"""Executes a function in tile form.

Statements run for many instances at once: the lanes of a block, in lock step, or the iterations of
a parallel nest (`tilec.interp.groups`). Each statement gives the instances that go on to the next.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilec import ir
from tilec.backend.components import Meaning
from tilec.diagnostics import InternalError, KernelRuntimeError, NestingError
from tilec.interp.checks import Checker
from tilec.interp.groups import (
    ITERATIONS,
    LANES,
    Group,
    Mask,
    both,
    either,
    is_array,
    settled,
    without,
)
from tilec.interp.memory import allocate
from tilec.interp.tiles import Tiles
from tilec.interp.values import Values
from tilec.ops import TileOp
from tilec.transform.parallel import ONE_LANE, REDUCTION, SIMD

PRIVATE = (ir.LOCAL, ir.LOCAL_VAR)
DEFAULT_THREADS = 128
_ZERO = (ir.Const(0, ir.DType("int32")),)


class LimitError(Exception):
    """An execution took more steps than it was allowed."""


class Machine:
    """One execution of a function.

    Args:
        func: what to execute.
        checker: looks for mistakes, or None.
        meanings: of intrinsics that a backend adds, by name.
        limit: steps (statements, weighted by the instances that run them) that it may take.

    Attributes:
        values: the state; arguments are put there before `execute`.
    """

    def __init__(
        self,
        func: ir.PrimFunc,
        checker: Checker | None,
        meanings: Mapping[str, Meaning] | None = None,
        limit: int | None = None,
    ) -> None:
        self._func = func
        self._checker = checker
        self.values = Values(checker)
        self._tiles = Tiles(self.values)
        given = (meanings or {}).items()
        self.values.meanings = {name: self._tiles.calling(meaning) for name, meaning in given}
        self._left = limit
        self._rules: dict[type, Callable[[Any, Mask], Mask]] = {
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
            ir.Continue: lambda _node, _mask: False,
            ir.Return: self._return,
            ir.Launch: self._launch,
        }

    def execute(self) -> None:
        """Run the function."""
        with np.errstate(all="ignore"):
            self._stmt(self._func.body, True)

    def _count(self) -> None:
        """One step more."""
        if self._left is not None:
            self._left -= 1 + (self.values.group.count >> 9)
            if self._left < 0:
                raise LimitError

    def _stmt(self, node: Any, mask: Mask) -> Mask:
        self._count()
        rule = self._rules.get(type(node))
        if rule is not None:
            return rule(node, mask)
        if isinstance(node, TileOp):
            self._tiles.run(node, mask)
            return mask
        raise InternalError(f"no meaning for {type(node).__name__}", span=node.span)

    def _seq(self, node: ir.Seq, mask: Mask) -> Mask:
        for stmt in node.stmts:
            mask = self._stmt(stmt, mask)
            if mask is False:
                break
        return mask

    def _bind(self, node: ir.Bind, mask: Mask) -> Mask:
        values = self.values
        values.group.values[node.var] = values.value(node.value, mask)
        return mask

    def _alloc(self, node: ir.Alloc, mask: Mask) -> Mask:
        buffer, values, group = node.buffer, self.values, self.values.group
        shape = tuple(values.integer(e, mask) for e in buffer.shape)
        alone = group.kind == ITERATIONS or (group.kind == LANES and buffer.scope() in PRIVATE)
        owner = group if alone else None
        # The start value may read an older buffer of the same name, or the same one in a loop.
        start = None if node.init is None else values.value(node.init, mask)
        track = self._checker is not None
        values.cells[buffer] = allocate(buffer, shape, owner=owner, track=track)
        if start is not None:
            values.write(buffer, _ZERO, start, mask, node.span)
        return mask

    def _store(self, node: ir.Store, mask: Mask) -> Mask:
        value = self.values.value(node.value, mask)
        self.values.write(node.buffer, node.indices, value, mask, node.span)
        return mask

    def _evaluate(self, node: ir.Evaluate, mask: Mask) -> Mask:
        self.values.value(node.value, mask)
        return mask

    def _if(self, node: ir.If, mask: Mask) -> Mask:
        cond = self.values.truth(node.cond, mask)
        yes = settled(cond)
        if yes is mask or (yes is True and mask is True):
            return self._stmt(node.then, mask)
        no = settled(without(mask, yes))
        rest = self._stmt(node.then, yes) if yes is not False else False
        if no is not False and node.other is not None:
            no = self._stmt(node.other, no)
        return settled(either(rest, no))

    def _assert(self, node: ir.Assert, mask: Mask) -> Mask:
        if settled(without(mask, self.values.truth(node.cond, mask))) is not False:
            raise KernelRuntimeError(f"kernel {self._func.name}: {node.message}", span=node.span)
        return mask

    # loops

    def _for(self, node: ir.For, mask: Mask) -> Mask:
        values = self.values
        bounds = [values.value(v, mask) for v in (node.start, node.stop, node.step)]
        if any(map(is_array, bounds)):
            return self._for_each(node, bounds, mask)
        group = values.group
        alone = group.kind == ITERATIONS or mask is True
        if alone and SIMD in node.annotations and REDUCTION not in node.annotations:
            return self._at_once(node, bounds, mask)
        start, stop, step = (int(b) for b in bounds)
        group.broken.append(False)
        loops = self._checker.loops if self._checker is not None else None
        alive = mask
        for index in range(start, stop, step) if step else ():
            group.values[node.var] = index
            if loops is not None:
                loops.append((node.var.name, index))
            self._stmt(node.body, alive)
            if loops is not None:
                loops.pop()
            alive = self._staying(alive)
            if alive is False:
                break
        group.broken.pop()
        return self._living(mask)

    def _at_once(self, node: ir.For, bounds: list[Any], mask: Mask) -> Mask:
        """A vector loop; a wrong claim that its iterations are independent changes results."""
        values = self.values
        outer = values.group
        nested = outer.kind == ITERATIONS
        places = np.arange(*(int(b) for b in bounds))
        if not len(places):
            return mask
        lead = outer.shape if nested else ()
        names = (*(outer.names if nested else ()), node.var.name)
        group = Group(ITERATIONS, (*lead, len(places)), names, outer)
        group.values[node.var] = places.reshape((1,) * len(lead) + (-1,))
        values.group = group
        if self._checker is not None and not nested:
            self._checker.nest()
        try:
            self._stmt(node.body, settled(_widened(mask, len(group.shape))))
        finally:
            values.group = outer
            if self._checker is not None and not nested:
                self._checker.nest()
        return mask

    def _for_each(self, node: ir.For, bounds: list[Any], mask: Mask) -> Mask:
        """A loop whose bounds differ between instances."""
        group = self.values.group
        index, stop, step = (np.asarray(b).astype(np.int64) for b in bounds)
        group.broken.append(False)
        alive = mask
        while True:
            going = np.where(step > 0, index < stop, (step < 0) & (index > stop))
            alive = settled(both(alive, going))
            if alive is False:
                break
            group.values[node.var] = index
            self._stmt(node.body, alive)
            alive = self._staying(alive)
            index = index + step
        group.broken.pop()
        return self._living(mask)

    def _while(self, node: ir.While, mask: Mask) -> Mask:
        group = self.values.group
        group.broken.append(False)
        alive = mask
        while alive is not False:
            alive = settled(self.values.truth(node.cond, alive))
            if alive is False:
                break
            self._stmt(node.body, alive)
            alive = self._staying(alive)
        group.broken.pop()
        return self._living(mask)

    def _staying(self, alive: Mask) -> Mask:
        """The instances that start the next trip of the innermost loop."""
        group = self.values.group
        if group.broken[-1] is False and group.dead is False:
            return alive
        return settled(without(without(alive, group.broken[-1]), group.dead))

    def _living(self, mask: Mask) -> Mask:
        dead = self.values.group.dead
        return mask if dead is False else settled(without(mask, dead))

    def _break(self, node: ir.Break, mask: Mask) -> Mask:
        group = self.values.group
        if not group.broken:
            raise NestingError("`break` outside of a loop", span=node.span)
        group.broken[-1] = either(group.broken[-1], mask)
        return False

    def _return(self, node: ir.Return, mask: Mask) -> Mask:
        del node
        group = self.values.group
        group.dead = settled(either(group.dead, mask))
        return False

    # launches and nests

    def _launch(self, node: ir.Launch, mask: Mask) -> Mask:
        values, checker = self.values, self._checker
        grid = tuple(max(values.integer(g), 0) for g in node.grid)
        one = ONE_LANE in node.annotations
        x, y, z = (1, 1, 1) if one else node.threads or (DEFAULT_THREADS, 1, 1)
        names = tuple(v.name for v in reversed(node.thread_vars))
        outer = values.group
        if checker is not None:
            checker.launch(grid, tuple(v.name for v in node.grid_vars))
        for number, place in enumerate(itertools.product(*map(range, reversed(grid)))):
            group = values.group = Group(LANES, (z, y, x), names, outer)
            group.values.update(zip(node.grid_vars, reversed(place), strict=True))
            for var, axis in zip(reversed(node.thread_vars), group.grid(3), strict=True):
                group.values[var] = axis if axis.size > 1 else 0
            if checker is not None:
                checker.block(number)
            try:
                self._stmt(node.body, True)
            finally:
                values.group = outer
        if checker is not None:
            checker.block(None)
        return mask

    def _parallel(self, node: ir.Parallel, mask: Mask) -> Mask:
        values = self.values
        outer = values.group
        if REDUCTION in node.annotations:
            return self._ordered(node, mask)
        nested = outer.kind == ITERATIONS
        if not nested and mask is not True:
            raise NestingError(
                "T.Parallel is done by all lanes together, but only some lanes get here",
                span=node.span,
                hint="move it out of control flow that depends on the lane index",
            )
        extents = [values.value(e, mask) for e in node.extents]
        lead = outer.shape if nested else ()
        rank = len(lead) + len(extents)
        inner_mask: Mask = mask
        sizes = []
        for axis, extent in enumerate(extents):
            if not is_array(extent):
                sizes.append(max(int(extent), 0))
                continue
            if not nested:
                extent = values.agreed(extent, mask, node.span, "an extent")
                sizes.append(max(int(extent), 0))
                continue
            # A nest whose extent differs between the iterations around it.
            sizes.append(max(int(extent.max()), 0))
            shape = [1] * rank
            shape[len(lead) + axis] = sizes[-1]
            wide = extent.reshape(extent.shape + (1,) * len(extents))
            exists = np.arange(sizes[-1]).reshape(shape) < wide
            inner_mask = both(_widened(inner_mask, rank), exists)
        shape_all = (*lead, *sizes)
        if math.prod(shape_all) == 0:
            return mask
        names = (*(outer.names if nested else ()), *(v.name for v in node.vars))
        group = Group(ITERATIONS, shape_all, names, outer)
        axes = group.grid(rank)
        for var, axis_values in zip(node.vars, axes[len(lead) :], strict=True):
            group.values[var] = axis_values
        values.group = group
        if self._checker is not None and not nested:
            self._checker.nest()
        try:
            self._stmt(node.body, settled(_widened(inner_mask, rank)))
        finally:
            values.group = outer
            if self._checker is not None and not nested:
                self._checker.nest()
        return mask

    def _ordered(self, node: ir.Parallel, mask: Mask) -> Mask:
        """Iterations one after the other, as each of them reads what the last one wrote."""
        sizes = [self.values.integer(e, mask) for e in node.extents]
        for place in itertools.product(*map(range, sizes)):
            self.values.group.values.update(zip(node.vars, place, strict=True))
            self._stmt(node.body, mask)
        return mask


def _widened(mask: Mask, rank: int) -> Mask:
    """A mask with further axes behind its own."""
    if not is_array(mask) or mask.ndim == rank:
        return mask
    return mask.reshape(mask.shape + (1,) * (rank - mask.ndim))
