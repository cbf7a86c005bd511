"""Which elements the lanes of a block touch, and whether two accesses may meet.

An access is a set of linear index forms over lanes, loop variables and values that all lanes agree
on. Two accesses meet where different lanes touch one element; the answer comes from tables of the
elements, one row per lane and value of the loop variables, and is exact where the parts that are
not tabulated are the same on both sides. Everything else counts as meeting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tilec import ir
from tilec.arith import evaluate
from tilec.diagnostics import InternalError, Span

READ, WRITE, ATOMIC = "read", "write", "atomic"
_MOST_ROWS = 1 << 20
_MOST_STEPS = 4096
Array = np.ndarray[Any, Any]
_NONE: Mapping[ir.Buffer, set[ir.Buffer]] = MappingProxyType({})


class Steps(NamedTuple):
    """Values of a loop variable: ``start + step * n`` for n below `trips` (None: unknown)."""

    start: int
    step: int
    trips: int | None


UNKNOWN = Steps(0, 1, None)
_NO_LOOPS: Mapping[ir.Var, Steps] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class LaneSet:
    """Consecutive lanes of a block.

    Attributes:
        thread_vars: the lane's coordinates.
        shape: extents of the block (x, y, z).
        first, count: linear lanes.
    """

    thread_vars: tuple[ir.Var, ...]
    shape: tuple[int, ...]
    first: int
    count: int

    def lanes(self) -> Array:
        """Linear lane numbers."""
        return np.arange(self.first, self.first + self.count)

    def coordinates(self) -> dict[ir.Var, Array]:
        """The value of each thread variable, by lane."""
        left = self.lanes()
        result = {}
        for var, extent in zip(self.thread_vars, self.shape, strict=False):
            result[var] = (left % extent).astype(np.int32)
            left = left // extent
        return result

    def mask(self, cond: ir.Expr) -> Array | None:
        """Where a condition on lanes alone holds; None if it depends on more."""
        known = set(self.thread_vars)
        for node in ir.walk(cond):
            if isinstance(node, (ir.Load, ir.Call)) or (
                isinstance(node, ir.Var) and node not in known
            ):
                return None
        value = evaluate(cond, self.coordinates())
        return np.broadcast_to(np.asarray(value, bool), (self.count,))


@dataclass(frozen=True, eq=False)
class Site:
    """One access in the program.

    Attributes:
        buffer: what is touched.
        kind: READ, WRITE or ATOMIC.
        forms: a linear form per index; None where nothing is known.
        width: consecutive elements along the last dimension.
        conds: under which it happens, as (condition, truth).
        loops: variables of loops that have been left, with their values.
        stale: variables whose value at the access is not the present one.
        span: in the source.
    """

    buffer: ir.Buffer
    kind: str
    forms: tuple[ir.Linear, ...] | None
    width: int
    conds: tuple[tuple[ir.Expr, bool], ...]
    span: Span
    loops: Mapping[ir.Var, Steps] = field(default_factory=dict)
    stale: frozenset[ir.Var] = frozenset()
    key: tuple[Any, ...] = ()

    def after_loop(self, var: ir.Var | None, steps: Steps, bound: Iterable[ir.Var]) -> Site:
        """The same access seen from the next trip, or from behind the loop."""
        used = self.variables()
        loops = self.loops  # variables of loops inside have all their values already
        stale = self.stale | {v for v in bound if v in used and v is not var and v not in loops}
        if var is not None and var in used and var not in loops:
            loops = {**loops, var: steps}
        if loops is self.loops and stale == self.stale:
            return self
        key = (*self.key, tuple(map(id, loops)), tuple(sorted(map(id, stale))))
        return replace(self, loops=loops, stale=frozenset(stale), key=key)

    def variables(self) -> set[ir.Var]:
        """Variables in indices and conditions."""
        found: set[ir.Var] = set()
        for form in self.forms or ():
            for atom in form.atoms.values():
                found.update(ir.free_vars(atom))
        for cond, _ in self.conds:
            found.update(ir.free_vars(cond))
        return found


def site(
    buffer: ir.Buffer,
    kind: str,
    indices: tuple[ir.Expr, ...],
    conds: tuple[tuple[ir.Expr, bool], ...],
    span: Span,
    width: int = 1,
) -> Site:
    """An access at `indices`, whose lets have been replaced by their values."""
    forms = tuple(ir.linear(i) for i in indices)
    conds = tuple(part for cond, truth in conds for part in _parts(cond, truth))
    key = (
        id(buffer), kind, width,
        tuple((f.const, tuple(sorted(f.terms.items(), key=repr))) for f in forms),
        tuple((*ir.tokens(c), t) for c, t in conds),
    )  # fmt: skip
    return Site(buffer, kind, forms, width, conds, span, key=key)


def _parts(cond: ir.Expr, truth: bool) -> list[tuple[ir.Expr, bool]]:
    """What holds where a condition is true, or false, as single conditions."""
    if isinstance(cond, ir.Unary) and cond.op is ir.UnOp.NOT:
        return _parts(cond.value, not truth)
    if isinstance(cond, ir.Binary) and cond.op is (ir.BinOp.AND if truth else ir.BinOp.OR):
        return [*_parts(cond.lhs, truth), *_parts(cond.rhs, truth)]
    return [(cond, truth)]


def may_meet(
    a: Site,
    b: Site,
    lanes: LaneSet,
    divergent: set[Any],
    overlaps: Mapping[ir.Buffer, set[ir.Buffer]] = _NONE,
    around: Mapping[ir.Var, Steps] = _NO_LOOPS,
) -> bool:
    """Whether different lanes may touch one element, in a way whose order matters.

    Args:
        a: the earlier access.
        b: the later one.
        lanes: that make both.
        divergent: variables and buffers whose values differ between lanes.
        overlaps: buffers that share memory with a buffer.
        around: variables of the loops around both accesses, whose trip is the same for both.
    """
    if a.buffer is not b.buffer:
        # What a buffer's place held before is never read through it, but must not be lost early.
        both_read = a.kind == READ and b.kind == READ
        return lanes.count > 1 and not both_read and b.buffer in overlaps.get(a.buffer, ())
    if a.kind == b.kind and a.kind in (READ, ATOMIC):
        return False
    if a.forms is None or b.forms is None:
        return lanes.count > 1
    return _Meeting(a, b, lanes, divergent, around).decide()


class _Pair(NamedTuple):
    """The moving parts of one index on both sides, and its dimension."""

    left: ir.Linear
    right: ir.Linear
    dim: int


class _Meeting:
    def __init__(
        self,
        a: Site,
        b: Site,
        lanes: LaneSet,
        divergent: set[Any],
        around: Mapping[ir.Var, Steps],
    ) -> None:
        self._sites = (a, b)
        self._lanes = lanes
        self._divergent = divergent
        self._loops = {**a.loops, **b.loops}
        self._stale = a.stale | b.stale
        self._names = frozenset(lanes.thread_vars)  # `in` on a tuple would stage a comparison
        self._around = {v: s for v, s in around.items() if v not in self._loops}
        self._tied: dict[ir.Var, None] = {}  # of those the ones that have to be tabulated
        for one in self._sites:
            for form in one.forms or ():
                for atom in form.atoms.values():
                    names = ir.free_vars(atom)
                    if any(v in self._names or v in self._loops for v in names):
                        self._tied.update(dict.fromkeys(v for v in names if v in self._around))

    def decide(self) -> bool:
        """The answer; conditions on loops and lanes together cost more, so they come last."""
        if not self._decide(False):
            return False
        mixed = [self._extra(one) for one in self._sites]
        if not any(mixed):
            return True
        for names in mixed:
            self._tied.update(dict.fromkeys(v for v in names if v in self._around))
        return self._decide(True)

    def _extra(self, one: Site) -> dict[ir.Var, None]:
        """Loop variables in conditions of an access that can be tabulated."""
        found: dict[ir.Var, None] = {}
        for cond, _ in one.conds:
            if self._tabular(cond):
                found.update(dict.fromkeys(v for v in ir.free_vars(cond) if v not in self._names))
        return found

    def _tabular(self, cond: ir.Expr) -> bool:
        """Whether a condition is about lanes and loops of known trips alone."""
        if any(isinstance(n, (ir.Load, ir.Call)) for n in ir.walk(cond)):
            return False
        for var in ir.free_vars(cond):
            steps = self._around.get(var) or self._loops.get(var)
            known = steps is not None and steps.trips is not None and steps.trips <= _MOST_STEPS
            if var not in self._names and (var in self._stale or not known):
                return False
        return True

    def _decide(self, more: bool) -> bool:
        a, b = self._sites
        assert a.forms is not None
        assert b.forms is not None
        last = len(a.forms) - 1
        kept: list[_Pair] = []
        for dim, (left, right) in enumerate(zip(a.forms, b.forms, strict=True)):
            pair = self._moving(left, right)
            if pair is not None:
                kept.append(_Pair(*pair, dim))
        for var in self._tied:  # the same trip on both sides
            kept.append(_Pair(ir.linear(var), ir.linear(var), -1))
        ranges = self._ranges(kept)
        kept = [k for k in kept if not self._unknown(k, ranges)]
        rows = []
        for which, one in enumerate(self._sites):
            forms = [k.right if which else k.left for k in kept]
            widths = [one.width if k.dim == last else 1 for k in kept]
            columns = {v: r[which] for v, r in ranges.items()}
            table = self._table(one, forms, widths, columns, more)
            if table is None:
                return True
            rows.append(table)
        return _meet(rows[0], rows[1])

    def _moving(self, left: ir.Linear, right: ir.Linear) -> tuple[ir.Linear, ir.Linear] | None:
        """The parts of an index that differ between lanes and trips; None if unknown."""
        parts = (ir.Linear(left.const), ir.Linear(right.const))
        fixed: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
        for form, part, rest in zip((left, right), parts, fixed, strict=True):
            for name, coeff in form.terms.items():
                atom = form.atoms[name]
                kind = self._kind(atom)
                if kind is None:
                    return None
                if kind:
                    part.terms[name] = coeff
                    part.atoms[name] = atom
                else:
                    rest[name] = coeff
        return parts if fixed[0] == fixed[1] else None

    def _kind(self, atom: ir.Expr) -> bool | None:
        """Whether an atom moves with lanes or trips; None where it cannot be tabulated."""
        moving = fixed = False
        for node in ir.walk(atom):
            if isinstance(node, (ir.Load, ir.Call)):
                return None
            if isinstance(node, ir.Var):
                if node in self._stale:
                    return None
                if node in self._loops or node in self._names or node in self._tied:
                    moving = True
                elif node in self._divergent:
                    return None
                else:
                    fixed = True
        return None if moving and fixed else moving

    def _ranges(self, kept: list[_Pair]) -> dict[ir.Var, tuple[Array | None, Array | None]]:
        """Values of every loop variable on both sides; None where they are not bounded."""
        result: dict[ir.Var, tuple[Array | None, Array | None]] = {}
        for var, steps in (*self._loops.items(), *((v, self._around[v]) for v in self._tied)):
            if steps.trips is not None and steps.trips <= _MOST_STEPS:
                values = steps.start + steps.step * np.arange(max(steps.trips, 1))
                result[var] = (values, values)
            else:
                result[var] = self._window(var, steps, kept)
        return result

    def _window(
        self, var: ir.Var, steps: Steps, kept: list[_Pair]
    ) -> tuple[Array | None, Array | None]:
        """Only the distance of two trips matters where the indices are linear in the variable.

        Then one side stays at trip 0 and the other goes as far as the rest of the index reaches.
        """
        name = ("var", id(var))
        reach = None
        for left, right, _ in kept:
            users = [n for n, atom in (*left.atoms.items(), *right.atoms.items())
                     if var in ir.free_vars(atom)]  # fmt: skip
            if not users:
                continue
            coeff = left.terms.get(name, 0)
            if any(n != name for n in users) or coeff != right.terms.get(name, 0) or not coeff:
                return (None, None)
            spans = [self._spread(form, name) for form in (left, right)]
            if None in spans:
                continue
            low = min(s[0] for s in spans if s)
            high = max(s[1] for s in spans if s)
            here = -(-(high - low) // abs(coeff * steps.step))
            reach = here if reach is None else min(reach, here)
        if reach is None or reach > _MOST_STEPS:
            return (None, None)
        return (steps.step * np.arange(-reach, reach + 1), np.zeros(1, np.int64))

    def _spread(self, form: ir.Linear, but: Any) -> tuple[int, int] | None:
        """Bounds of an index without one of its terms."""
        low = high = form.const
        coordinates = self._lanes.coordinates()
        for name, coeff in form.terms.items():
            if name == but:
                continue
            values: dict[ir.Var, Any] = {}
            for axis, var in enumerate(ir.free_vars(form.atoms[name])):
                if var in coordinates:
                    column = coordinates[var]
                else:
                    steps = self._loops[var]
                    if steps.trips is None or steps.trips > _MOST_STEPS:
                        return None
                    column = steps.start + steps.step * np.arange(max(steps.trips, 1))
                shape = [1] * (axis + 1)
                shape[0] = -1
                values[var] = column.astype(np.int64).reshape(shape)
            try:
                table = np.asarray(evaluate(form.atoms[name], values)) * coeff
            except (InternalError, ValueError):
                return None
            low, high = low + int(table.min()), high + int(table.max())
        return low, high

    def _unknown(self, pair: _Pair, ranges: Mapping[ir.Var, Any]) -> bool:
        for form in (pair.left, pair.right):
            for atom in form.atoms.values():
                if any(v in ranges and ranges[v][0] is None for v in ir.free_vars(atom)):
                    return True
        return False

    def _table(
        self,
        one: Site,
        forms: list[ir.Linear],
        widths: list[int],
        ranges: Mapping[ir.Var, Array | None],
        more: bool,
    ) -> tuple[Array, Array] | None:
        """Rows (index per kept dimension) and the lane of each; None where there are too many.

        Conditions on lanes are always applied, those on loops as well with `more`.
        """
        used: dict[ir.Var, None] = {}
        for form in forms:
            for atom in form.atoms.values():
                used.update(dict.fromkeys(v for v in ir.free_vars(atom) if v in ranges))
        conds, mixed = [], []
        for cond, truth in one.conds:
            if not self._tabular(cond):
                continue
            others = [v for v in ir.free_vars(cond) if v not in self._names]
            if not others:
                conds.append((cond, truth))
            elif more and all(ranges.get(v) is not None for v in others):
                mixed.append((cond, truth))
                used.update(dict.fromkeys(others))
        lanes = self._lanes.lanes()
        rank = len(used) + 2
        values: dict[ir.Var, Array] = {}
        size = len(lanes) * max(widths, default=1)
        for axis, var in enumerate(used):
            column = ranges[var]
            assert column is not None
            size *= len(column)
            values[var] = column.reshape([-1 if n == axis + 1 else 1 for n in range(rank)])
        if size > _MOST_ROWS:
            return None
        for var, column in self._lanes.coordinates().items():
            values[var] = column.reshape([-1] + [1] * (rank - 1))
        shape = (len(lanes), *(len(ranges[v]) for v in used), max(widths, default=1))  # type: ignore[arg-type]
        columns = []
        for form, width in zip(forms, widths, strict=True):
            total: Any = np.full((1,) * rank, form.const, np.int64)
            for name, coeff in form.terms.items():
                total = total + coeff * np.asarray(evaluate(form.atoms[name], values), np.int64)
            if width > 1:
                total = total + np.arange(width)
            columns.append(np.broadcast_to(total, shape).reshape(-1))
        who = np.broadcast_to(lanes.reshape([-1] + [1] * (rank - 1)), shape).reshape(-1)
        keep = np.ones(len(lanes), bool)
        for cond, truth in conds:
            held = np.asarray(evaluate(cond, self._lanes.coordinates()), bool)
            keep &= held if truth else ~held
        if not keep.all():
            chosen = keep[who - self._lanes.first]
            who, columns = who[chosen], [c[chosen] for c in columns]
        if mixed:
            holds = np.ones(shape, bool)
            for cond, truth in mixed:
                met = np.asarray(evaluate(cond, values), bool)
                holds &= met if truth else ~met
            there = holds.reshape(-1)
            if not keep.all():
                there = there[chosen]
            who, columns = who[there], [c[there] for c in columns]
        table = np.stack(columns, axis=1) if columns else np.zeros((len(who), 0), np.int64)
        return table, who


def _meet(a: tuple[Array, Array], b: tuple[Array, Array]) -> bool:
    """Whether some row is in both tables for different lanes."""
    if not len(a[1]) or not len(b[1]):
        return False
    low = np.minimum(a[0].min(axis=0), b[0].min(axis=0))
    extent = np.maximum(a[0].max(axis=0), b[0].max(axis=0)) - low + 1
    if math.prod(int(e) for e in extent) >= 1 << 62:
        return True
    keys = []
    for rows, _ in (a, b):
        key = np.zeros(len(rows), np.int64)
        for column, start, size in zip(rows.T, low, extent, strict=True):
            key = key * size + (column - start)
        keys.append(key)
    (key_a, first_a, last_a), (key_b, first_b, last_b) = (
        _lanes_of(key, who) for key, (_, who) in zip(keys, (a, b), strict=True)
    )
    _, at_a, at_b = np.intersect1d(key_a, key_b, assume_unique=True, return_indices=True)
    same = (
        (first_a[at_a] == last_a[at_a])
        & (first_b[at_b] == last_b[at_b])
        & (first_a[at_a] == first_b[at_b])
    )
    return not bool(same.all())


def _lanes_of(key: Array, who: Array) -> tuple[Array, Array, Array]:
    """Per element the lowest and the highest lane that touches it."""
    order = np.lexsort((who, key))
    key, who = key[order], who[order]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    ends = np.r_[starts[1:], len(key)] - 1
    return key[starts], who[starts], who[ends]
