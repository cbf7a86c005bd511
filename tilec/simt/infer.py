"""Layout inference: which lane holds each element of a fragment, in which register.

Operations demand layouts first. A nest that accesses a fragment with its own variables follows its
layout, and so do all other fragments in the nest; what nothing determines is dealt out to the lanes
equally, in chunks that make wide accesses. A fragment whose elements are needed where no lane has
them is moved to shared memory, unless an operation demands it in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilec import ir
from tilec.diagnostics import InternalError, ShapeError
from tilec.layout import Fragment, Layout
from tilec.ops import TileOp
from tilec.simt.grid import balanced, everywhere
from tilec.simt.lanes import LAYOUTS, lanes_of, planner_of
from tilec.simt.nests import LOOP_LAYOUT, MEMORY, Access, Nest, Planner, is_everywhere, prepare
from tilec.simt.partition import of_fragment, permuted, with_axis
from tilec.simt.rules import SHARED, LaneRule, Lanes, RuleTable
from tilec.simt.tiles import lower_ops
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.lanes import LaneFacts
from tilec.transform.scoped import ScopedRewriter

_SMALL = 32
_ROUNDS = 64


class InferLayouts(FunctionPass):
    """Decides the layout of every fragment; those without one move to shared memory."""

    name = "infer_layouts"
    purpose = "choose who holds each element of a fragment"
    needs = "tile"
    gives = "tile"

    def __init__(self, rules: RuleTable) -> None:
        self._rules = rules

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Infer the layouts of every launch of a function."""
        for _ in range(_ROUNDS):
            found = _Collector(ctx)
            found.function(func)
            again = False
            replaced: dict[int, ir.Launch] = {}
            for part in found.launches:
                new, settled = _launch(part, self._rules, ctx)
                replaced[id(part.node)] = new
                again = again or not settled

            def visit(node: Any, table: dict[int, ir.Launch] = replaced) -> Any:
                if isinstance(node, ir.Launch):
                    return table[id(node)]
                return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

            body = visit(func.body)
            func = func if body is func.body else func.replace(body=body)
            if not again:
                return func
        raise InternalError("layout inference does not come to an end", span=func.span)


class _Part:
    """What matters about one launch."""

    def __init__(self, node: ir.Launch) -> None:
        self.node = node
        self.nests: list[Nest] = []
        self.ops: list[TileOp] = []
        self.single: dict[ir.Buffer, str] = {}
        """Fragments with accesses outside of nests; why they cannot be in registers, or empty."""
        self.fragments: list[ir.Buffer] = []


class _Collector(ScopedRewriter):
    def __init__(self, ctx: PassContext) -> None:
        super().__init__()
        self._ctx = ctx
        self.launches: list[_Part] = []
        self._part: _Part | None = None
        self._known: LaneFacts
        self._apart = False

    def launch(self, node: ir.Launch) -> ir.Stmt:
        self._part = _Part(node)
        self.launches.append(self._part)
        self._known = LaneFacts(set(node.thread_vars))
        self._known.solve(node.body)
        self._apart = False
        super().launch(node)
        self._part = None
        return node

    def _under(self, node: Any, rewrite: Callable[[Any], ir.Stmt]) -> ir.Stmt:
        outer = self._apart
        self._apart = outer or (self._part is not None and self._known.statement(node))
        for child in node.children:
            if isinstance(child, ir.Expr):
                self._look(child)
        new = rewrite(node)
        self._apart = outer
        return new

    def branch(self, node: ir.If) -> ir.Stmt:
        return self._under(node, super().branch)

    def loop(self, node: ir.For) -> ir.Stmt:
        return self._under(node, super().loop)

    def while_loop(self, node: ir.While) -> ir.Stmt:
        return self._under(node, super().while_loop)

    def alloc(self, node: ir.Alloc) -> ir.Stmt:
        if self._part is not None and node.buffer.scope() == ir.FRAGMENT:
            self._part.fragments.append(node.buffer)
        self._look(node)
        return node

    def bind(self, node: ir.Bind) -> ir.Stmt:
        self._look(node.value)
        return super().bind(node)

    def leaf(self, node: Any) -> Any:
        if self._part is not None:
            if isinstance(node, TileOp):
                self._part.ops.append(node)
            else:
                self._look(node)
        return node

    def parallel(self, node: ir.Parallel) -> ir.Stmt:
        if self._part is not None:
            nest = prepare(node, self.facts)
            self._part.nests.append(nest)
            for item in ir.walk(nest.node.body):
                if isinstance(item, ir.Alloc) and item.buffer.scope() == ir.FRAGMENT:
                    self._part.fragments.append(item.buffer)
                    self._part.single[item.buffer] = "it is allocated inside of a nest"
            for extent in node.extents:
                self._look(extent)
        return node

    def _look(self, node: ir.Node) -> None:
        """Accesses to fragments outside of nests."""
        if self._part is None:
            return
        for item in ir.walk(node):
            if isinstance(item, (ir.Load, ir.Store)) and item.buffer.scope() == ir.FRAGMENT:
                reason = ""
                if self._apart:
                    reason = "it is accessed where lanes disagree about being"
                elif isinstance(item, ir.Store) and self._known.statement(item):
                    reason = "a value that differs between lanes is stored to it"
                elif any(self._known.varying(i) for i in item.indices):
                    reason = "it is accessed at an index that differs between lanes"
                old = self._part.single.get(item.buffer, "")
                self._part.single[item.buffer] = old or reason


def _launch(part: _Part, rules: RuleTable, ctx: PassContext) -> tuple[ir.Launch, bool]:
    """The launch with the layouts decided; whether it is final."""
    node = part.node
    lanes = lanes_of(node, ctx)
    solver = _Solver(part, lanes, rules)
    moved = solver.run()
    notes = dict(node.annotations)
    if not moved:
        pairs: list[tuple[ir.Buffer, Any]] = list(solver.lanes.layouts.items())
        for buffer in part.fragments:
            layout = solver.lanes.fragments[buffer]
            pairs.append((buffer, layout))
            ctx.remark("infer_layouts", f"{buffer.name}: {_describe(layout)}", buffer.span)
        notes[LAYOUTS] = pairs
        return node.replace(annotations=notes), True
    buffers: dict[ir.Buffer, ir.Buffer] = {}
    for buffer, reason in moved.items():
        buffers[buffer] = buffer.replace(_scope=ir.SHARED)
        ctx.remark("infer_layouts", f"{buffer.name} is in shared memory: {reason}", buffer.span)
    notes[LAYOUTS] = [(b, x) for b, x in notes.get(LAYOUTS, ()) if b not in buffers]
    body = ir.substitute(node.body, {}, buffers)
    node = node.replace(body=body, annotations=notes)
    return lower_ops(node, rules, lanes_of(node, ctx)), False


def _describe(layout: Fragment) -> str:
    copies = layout.replicate_extent
    what = f"{layout.register_extent} register(s) of {layout.thread_extent} lane(s)"
    return what if copies == 1 else f"{what}, {copies} copies"


class _Solver:
    def __init__(self, part: _Part, lanes: Lanes, rules: RuleTable) -> None:
        self._part = part
        self._rules = rules
        self.lanes = lanes
        self._planner: Planner = planner_of(lanes)
        self._hints = dict(lanes.fragments)
        lanes.fragments.clear()
        self._wanted: set[ir.Buffer] = set()  # in registers, by an operation
        self._moved: dict[ir.Buffer, str] = {}
        self._chosen: list[tuple[TileOp, LaneRule]] = []
        self._asked: dict[int, frozenset[ir.Buffer]] = {}  # what was known when an op was asked

    def run(self) -> dict[ir.Buffer, str]:
        """Decide; gives the fragments that move to shared memory, and why."""
        self._check_hints()
        self._operations()
        self._singles()
        if self._moved:
            return self._moved
        self._spread()
        self._judge()
        return self._moved

    # what is given

    def _check_hints(self) -> None:
        for buffer, layout in self._hints.items():
            if buffer not in self._part.fragments:
                continue
            reason = self._unfit(buffer, layout)
            if reason:
                self.lanes.ctx.remark(
                    "infer_layouts", f"the layout given for {buffer.name} is not used: {reason}",
                    buffer.span,
                )  # fmt: skip
            else:
                self.lanes.fragments[buffer] = layout
        for buffer, given in list(self.lanes.layouts.items()):
            if given.input_shape != buffer.shape or not given.is_injective:
                del self.lanes.layouts[buffer]
                self.lanes.ctx.remark(
                    "infer_layouts", f"the layout given for {buffer.name} is not used: it does "
                    "not give every element a place", buffer.span,
                )  # fmt: skip

    def _unfit(self, buffer: ir.Buffer, layout: Fragment) -> str:
        if layout.input_shape != buffer.shape:
            return f"it is one of {layout.input_shape}"
        if layout.thread_extent > self.lanes.count:
            return f"it needs {layout.thread_extent} lanes"
        if not layout.is_complete:
            return "some elements share a register"
        try:
            of_fragment(layout, self.lanes.count)
        except (ValueError, ShapeError) as error:
            return str(error)
        return ""

    def _operations(self) -> None:
        for op in self._part.ops:
            rule = self._rules.choose(op, self.lanes)
            if rule is None:
                continue
            self._chosen.append((op, rule))
            if rule.folds is not None:
                continue  # what it would like follows from other layouts; see `_step`
            for buffer, demand in rule.demands(op, self.lanes).items():
                if isinstance(demand, Layout):
                    self.lanes.layouts[buffer] = demand
                elif isinstance(demand, Fragment):
                    self.lanes.fragments.setdefault(buffer, demand)
                    self._wanted.add(buffer)
                elif demand == SHARED and buffer.scope() == ir.FRAGMENT:
                    self._moved.setdefault(buffer, f"{rule.name} reads it there")

    def _singles(self) -> None:
        for buffer in self._part.fragments:
            shape = tuple(e for e in buffer.shape if isinstance(e, int))
            if len(shape) < len(buffer.shape) or 0 in shape or not shape:
                self._moved[buffer] = "its shape is not a positive constant"
                continue
            size = math.prod(shape)
            if buffer in self._part.single:
                reason = self._part.single[buffer]
                if not reason and size > _SMALL:
                    reason = "single elements of it are accessed outside of T.Parallel"
                if (
                    not reason
                    and buffer in self.lanes.fragments
                    and not is_everywhere(self.lanes.fragments[buffer], self.lanes.count)
                ):
                    if buffer in self._wanted:
                        reason = "an operation wants it in another layout"
                    else:
                        del self.lanes.fragments[buffer]
                if reason:
                    self._moved[buffer] = reason
                    continue
            elif size > 1:
                continue
            self.lanes.fragments.setdefault(buffer, everywhere(shape, self.lanes.count))

    # propagation

    def _spread(self) -> None:
        while True:
            while self._step():
                pass
            if not self._seed():
                return

    def _set(self, buffer: ir.Buffer, layout: Fragment) -> bool:
        if buffer in self.lanes.fragments or buffer.scope() != ir.FRAGMENT:
            return False
        if layout.input_shape != tuple(buffer.shape):
            return False
        self.lanes.fragments[buffer] = layout
        return True

    def _hint(self, buffer: ir.Buffer, layout: Fragment) -> bool:
        """Take a layout that the program asks for, if it is one."""
        return not self._unfit(buffer, layout) and self._set(buffer, layout)

    def _step(self) -> bool:
        changed = False
        for op, rule in self._chosen:
            known = frozenset(
                r.buffer for r in (*op.reads(), *op.writes()) if r.buffer in self.lanes.fragments
            )
            if self._asked.get(id(op)) == known:
                continue
            self._asked[id(op)] = known
            for buffer, demand in rule.demands(op, self.lanes).items():
                if isinstance(demand, Fragment):
                    changed = self._set(buffer, demand) or changed
        for nest in self._part.nests:
            changed = self._follow(nest) or changed
        return changed

    def _follow(self, nest: Nest) -> bool:
        """Give the fragments of a nest the layout that one of them has."""
        unknown = [a for a in nest.accesses if a.buffer not in self.lanes.fragments]
        if not any(a.places is not None for a in unknown):
            return False
        leader = self._leader(nest)
        if leader is None:
            return False
        changed = False
        for access in unknown:
            layout = _derived(leader, access)
            if layout is not None:
                changed = self._set(access.buffer, layout) or changed
        return changed

    def _leader(self, nest: Nest) -> Fragment | None:
        """The layout of the iterations of a nest, as far as it is known."""
        known = [a for a in nest.full() if a.buffer in self.lanes.fragments]
        known = [
            a for a in known if not is_everywhere(self.lanes.fragments[a.buffer], self.lanes.count)
        ] or known
        for access in sorted(known, key=lambda a: (a.buffer not in self._wanted, not a.written)):
            return nest.along(self.lanes.fragments[access.buffer], access)
        return None

    def _seed(self) -> bool:
        """Deal out the largest tile that has no layout yet."""
        for nest in self._part.nests:
            layout = nest.node.annotations.get(LOOP_LAYOUT)
            if isinstance(layout, Fragment) and layout.input_shape == nest.extents:
                taken = False
                for access in nest.accesses:
                    derived = _derived(layout, access)
                    taken = (derived is not None and self._hint(access.buffer, derived)) or taken
                if taken:
                    return True
        best: tuple[int, Any] | None = None
        for buffer in self._part.fragments:
            if buffer not in self.lanes.fragments:
                size = math.prod(e for e in buffer.shape if isinstance(e, int))
                if best is None or size > best[0]:
                    best = (size, buffer)
        if best is None:
            return False
        for nest in self._part.nests:
            if (
                nest.static
                and nest.size > best[0]
                and not any(nest.full())
                and any(a.buffer not in self.lanes.fragments for a in nest.partial())
            ):
                best = (nest.size, nest)
        subject = best[1]
        if isinstance(subject, ir.Buffer):
            shape = tuple(e for e in subject.shape if isinstance(e, int))
            grid = balanced(
                shape, self.lanes.count, self._chunk(subject), self._folded(subject),
                self.lanes.warp,
            )  # fmt: skip
            return self._set(subject, grid)
        grid = balanced(subject.extents, self.lanes.count, self._width([subject]), (),
                        self.lanes.warp)  # fmt: skip
        changed = False
        for access in subject.partial():
            layout = _derived(grid, access)
            if layout is not None:
                changed = self._set(access.buffer, layout) or changed
        if not changed:  # no fragment of it can follow: each on its own
            for access in subject.partial():
                shape = tuple(e for e in access.buffer.shape if isinstance(e, int))
                own = balanced(shape, self.lanes.count, 1, (), self.lanes.warp)
                changed = self._set(access.buffer, own) or changed
        return changed

    def _related(self, buffer: ir.Buffer) -> set[ir.Buffer]:
        """Fragments that will have the layout of `buffer`."""
        found = {buffer}
        while True:
            more = {
                b.buffer
                for nest in self._part.nests
                for a in nest.full()
                if a.buffer in found
                for b in nest.full()
                if b.places == a.places
            }
            if more <= found:
                return found
            found |= more

    def _folded(self, buffer: ir.Buffer) -> tuple[int, ...]:
        related = self._related(buffer)
        axes = {
            axis
            for op, rule in self._chosen
            if rule.folds is not None
            for b, axis in rule.folds(op).items()
            if b in related
        }
        return tuple(sorted(axes))

    def _chunk(self, buffer: ir.Buffer) -> int:
        """Consecutive elements that make the widest accesses to memory."""
        related = self._related(buffer)
        nests = [
            nest
            for nest in self._part.nests
            if any(
                a.buffer in related and a.places is not None
                and a.places[-1] == len(nest.extents) - 1
                for a in nest.full()
            )
        ]  # fmt: skip
        return self._width(nests)

    def _width(self, nests: list[Nest]) -> int:
        sizes = [
            n.buffer.dtype.bits // 8
            for nest in nests
            for n in ir.walk(nest.node.body)
            if isinstance(n, (ir.Load, ir.Store)) and n.buffer.scope() in MEMORY
        ]
        if not sizes:
            return 1
        return max(self._planner.access_bytes // max(min(sizes), 1), 1)

    # the result

    def _judge(self) -> None:
        """Move fragments to shared memory that some nest cannot get at."""
        for nest in self._part.nests:
            plan = self._planner.plan(nest, self.lanes.fragments)
            if plan is None or not plan.failed:
                continue
            for buffer, reason in plan.failed.items():
                if buffer not in self._wanted:
                    self._moved.setdefault(buffer, reason)


def _derived(leader: Fragment, access: Access) -> Fragment | None:
    """The layout of a fragment in a nest whose iterations are laid out like `leader`."""
    places = access.places
    if places is None:
        return None
    layout = leader
    rank = len(leader.input_shape)
    try:
        for n in reversed(range(rank)):
            if n not in places:
                if len(layout.input_shape) == 1:
                    return None
                layout = layout.fold(n)
    except ShapeError:
        return None
    kept = [n for n in range(rank) if n in places]
    order = [kept.index(p) for p in places if p is not None]
    layout = permuted(layout, order) if order != list(range(len(order))) else layout
    for axis, place in enumerate(places):
        if place is None:
            layout = with_axis(layout, axis)
    return layout
