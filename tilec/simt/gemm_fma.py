"""Matrix multiplication by multiply-add: the rule that serves every shape and dtype.

A lane has a small block of C in registers. In each step it reads a piece of a column of A and of a
row of B from shared memory and adds their outer product to its block.

Before::

    T.gemm(A_shared, B_shared, C)

After::

    for p in range(K):
        for i in T.unroll(8): a[i] = A_shared[tm + 16 * i, p]
        for j in T.unroll(8): b[j] = B_shared[p, tn * 8 + j]
        for i, j in ...: C[i * 8 + j] += a[i] * b[j]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from tilec import ir
from tilec.layout import Fragment
from tilec.ops.gemm import Gemm, GemmWarpPolicy
from tilec.simt.code import (
    cleared,
    element,
    guarded,
    is_whole,
    keeps_runs,
    less,
    loop,
    registers,
)
from tilec.simt.grid import Axis, Grid
from tilec.simt.partition import of_fragment
from tilec.simt.rules import SHARED, Demand, LaneRule, Lanes

_SHARED = (ir.SHARED, ir.SHARED_DYN)
_WIDEST = 16


def rule() -> LaneRule:
    """The rule, for the table of a target."""
    return LaneRule(Gemm, "multiply-add", _demands, _lower, _applies, cost=100.0)


def _applies(op: Gemm, lanes: Lanes) -> bool | str:
    if len(op.C.extents) != 2 or not is_whole(op.C, ir.FRAGMENT):
        return "C is not a whole fragment of two dimensions"
    if 0 in op.shape():
        return "it has no elements"
    for name, operand in (("A", op.A), ("B", op.B)):
        if operand.buffer.scope() not in (*_SHARED, ir.FRAGMENT):
            return f"{name} is in {operand.buffer.scope()} memory"
    if op.C.buffer in (op.A.buffer, op.B.buffer):
        return "C is an operand"
    layout = lanes.fragments.get(op.C.buffer)
    if layout is not None:
        try:
            of_fragment(layout, lanes.count)
        except ValueError as error:
            return f"the layout of C: {error}"
    return True


def _demands(op: Gemm, lanes: Lanes) -> Mapping[ir.Buffer, Demand]:
    found: dict[ir.Buffer, Demand] = {
        r.buffer: SHARED for r in (op.A, op.B) if r.buffer.scope() == ir.FRAGMENT
    }
    if op.C.buffer not in lanes.fragments:
        m, n, _ = op.shape()
        found[op.C.buffer] = blocked(m, n, lanes.count, _chunk(op, lanes), op.policy)
    return found


def _chunk(op: Gemm, lanes: Lanes) -> int:
    """Columns that a lane has side by side: one wide access to a row of B."""
    del lanes
    size = max(op.B.dtype.bits // 8, op.C.dtype.bits // 8, 1)
    return max(_WIDEST // size, 1)


@lru_cache(maxsize=512)
def blocked(m: int, n: int, lanes: int, chunk: int, policy: GemmWarpPolicy) -> Grid:
    """The grid of an (m, n) tile whose blocks are small and nearly square.

    Args:
        m: rows.
        n: columns.
        lanes: at most so many are used.
        chunk: columns side by side at most.
        policy: decides between blocks that are equally good.
    """
    best: tuple[Any, Grid] | None = None
    while chunk >= 1:
        pieces = -(-n // chunk)
        if n % chunk == 0:
            for rows in range(1, min(lanes, m) + 1):
                columns = min(lanes // rows, pieces)
                high, wide = -(-m // rows), -(-pieces // columns) * chunk
                taste = {GemmWarpPolicy.FullRow: -rows, GemmWarpPolicy.FullCol: -columns}
                key = (high * wide, high + wide, taste.get(policy, 0), -chunk, rows)
                if best is None or key < best[0]:
                    axes = [Axis(m, 1, rows, columns), Axis(n, chunk, columns, 1)]
                    best = key, Grid(axes)
        chunk //= 2
    assert best is not None
    return best[1]


class _Side(NamedTuple):
    """The rows of A, or the columns of B, that a lane needs.

    Attributes:
        region: the operand.
        contracted: whether its last dimension is the contracted one.
        axis: of C's grid.
        number: of them, in registers.
        place: number of one of them, by its register.
        cond: whether that one exists; None where all do.
        held: registers for `step` values of each.
    """

    region: ir.BufferRegion
    contracted: bool
    axis: Axis
    number: int
    place: Callable[[Any], Any]
    cond: Callable[[Any], ir.Expr | None]
    held: ir.Buffer

    def register(self, i: Any, q: Any) -> Any:
        """Where value `q` of row `i` is; values that are neighbours in memory are so here."""
        step = int(self.held.shape[0]) // self.number
        if step == 1:
            return i
        return i * step + q if self.contracted else q * self.number + i


def _lower(op: Gemm, lanes: Lanes) -> ir.Stmt:
    layout = lanes.fragments[op.C.buffer]
    held = lanes.registers[op.C.buffer]
    if not isinstance(layout, Grid):
        return ir.seq(*cleared(op, held), _by_register(op, lanes, layout, held))
    return ir.seq(*cleared(op, held), _blocked(op, lanes, layout, held))


def _by_register(op: Gemm, lanes: Lanes, layout: Fragment, held: ir.Buffer) -> ir.Stmt:
    """Any layout of C: one register after the other."""
    partition = of_fragment(layout, lanes.count)
    k = op.shape()[2]
    dtype = op.C.dtype

    def one(p: Any, r: Any) -> ir.Stmt:
        row, column = partition.indices(lanes.index, r)
        a = element(op.A, p, row) if op.transpose_A else element(op.A, row, p)
        b = element(op.B, column, p) if op.transpose_B else element(op.B, p, column)
        total = held[r] + ir.cast(a, dtype) * ir.cast(b, dtype)
        body: ir.Stmt = ir.Store(held, (r,), total, span=op.span)
        for cond in partition.active(lanes.index, r):
            body = ir.If(cond, body, span=op.span)
        return body

    def step(p: Any) -> ir.Stmt:
        return loop(partition.slots, lambda r: one(p, r), op.span, name="r")

    return loop(k, step, op.span, "serial", "p")


def _blocked(op: Gemm, lanes: Lanes, grid: Grid, held: ir.Buffer) -> ir.Stmt:
    m, n, k = op.shape()
    del m, n
    step = next(s for s in (4, 2, 1) if k % s == 0)
    left = _side(op, lanes, grid, 0, step)
    right = _side(op, lanes, grid, 1, step)
    dtype = op.C.dtype

    def product(i: Any, j: Any, q: Any) -> ir.Stmt:
        place = _register(grid, i, j)
        total = held[place] + left.held[left.register(i, q)] * right.held[right.register(j, q)]
        store: ir.Stmt = ir.Store(held, (place,), total, span=op.span)
        return guarded(left.cond(i), guarded(right.cond(j), store))

    def turn(p: Any) -> ir.Stmt:
        first = p * step if step > 1 else p
        sums = loop(
            step,
            lambda q: loop(
                left.number,
                lambda i: loop(right.number, lambda j: product(i, j, q), op.span, name="j"),
                op.span, name="i",
            ),
            op.span, name="q",
        )  # fmt: skip
        return ir.seq(
            _loads(left, lanes, first, step, dtype, op.span),
            _loads(right, lanes, first, step, dtype, op.span),
            sums,
        )

    body = ir.seq(
        ir.Alloc(left.held, span=op.span),
        ir.Alloc(right.held, span=op.span),
        loop(k // step, turn, op.span, "serial", "p"),
    )
    cond = less(lanes.index, grid.lanes) if grid.lanes < lanes.count else None
    return guarded(cond, body if isinstance(body, ir.Seq) else ir.Seq((body,), span=op.span))


def _side(op: Gemm, lanes: Lanes, grid: Grid, number: int, step: int) -> _Side:
    axis = grid.axes[number]
    region = op.B if number else op.A
    contracted = op.transpose_B if number else not op.transpose_A
    lane: Any = lanes.index // axis.stride % axis.lanes if axis.lanes > 1 else ir.as_expr(0)

    def place(i: Any) -> Any:
        if axis.chunk == 1:
            return i * axis.lanes + lane
        return (i // axis.chunk * axis.lanes + lane) * axis.chunk + i % axis.chunk

    def cond(i: Any) -> ir.Expr | None:
        return None if axis.exact else less(place(i), axis.extent)

    count = axis.turns * axis.chunk
    held = registers("b" if number else "a", count * step, op.C.dtype, op.span)
    return _Side(region, contracted, axis, count, place, cond, held)


def _register(grid: Grid, i: Any, j: Any) -> Any:
    total: Any = None
    for at, axis in zip((i, j), grid.axes, strict=True):
        if axis.chunk > 1:
            term = at // axis.chunk * axis.pitch + at % axis.chunk
            if axis.pitch == axis.chunk:
                term = at
        else:
            term = at * axis.pitch
        total = term if total is None else total + term
    return total


def _loads(side: _Side, lanes: Lanes, first: Any, step: int, dtype: ir.DType, span: Any) -> ir.Stmt:
    """`step` values of every row (column) of a side, in wide accesses where they can be."""
    widest = max(_WIDEST * 8 // max(side.region.dtype.bits, 1), 1)

    def load(i: Any, at: Any, q: Any) -> ir.Stmt:
        rest = first + q
        value = (
            element(side.region, at, rest) if side.contracted else element(side.region, rest, at)
        )
        return ir.Store(side.held, (side.register(i, q),), ir.cast(value, dtype), span=span)

    if side.contracted:
        wide = 1 < step <= widest and keeps_runs(side.region, lanes, step)

        def row(i: Any) -> ir.Stmt:
            kind = "vectorized" if wide else "unroll"
            body = loop(step, lambda q: load(i, side.place(i), q), span, kind, "v")
            return guarded(side.cond(i), body)

        return loop(side.number, row, span, name="i")
    chunk = side.axis.chunk
    if 1 < chunk <= widest and side.axis.exact and keeps_runs(side.region, lanes, chunk):

        def turn(q: Any, t: Any) -> ir.Stmt:
            begin = side.place(t * chunk)
            return loop(chunk, lambda v: load(t * chunk + v, begin + v, q), span, "vectorized", "v")

        turns = side.number // chunk
        return loop(
            step, lambda q: loop(turns, lambda t: turn(q, t), span, name="t"), span, name="q"
        )
    return loop(
        step,
        lambda q: loop(
            side.number,
            lambda i: guarded(side.cond(i), load(i, side.place(i), q)),
            span, name="i",
        ),
        span, name="q",
    )  # fmt: skip
