"""Matrix multiplication by matrix instructions of one warp, whichever the target has.

The warps of a block are dealt to the rows and columns of C; a warp walks over its part atom by
atom. C is in registers, laid out as the atom wants; operands come from shared memory through
`ldmatrix` or plain loads, or are in registers already where they are fragments of that layout.

Before::

    T.gemm(A_shared, B_shared, C)

After::

    for k in T.unroll(4):
        for i in T.unroll(4): ldmatrix(a[i * 8 : i * 8 + 8], A_shared[...], num=4)
        for j in T.unroll(4): ldmatrix(b[j * 8 : j * 8 + 8], B_shared[...], num=4)
        for i in T.unroll(4):
            for j in T.unroll(8):
                mma(C[i * 32 + j * 4 : i * 32 + j * 4 + 4], a[i * 8 : ...], b[j * 4 : ...])
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from tilec import ir
from tilec.layout import Fragment, Layout, make_swizzled_layout
from tilec.layout.maps import index_vars
from tilec.ops.gemm import Gemm, GemmWarpPolicy
from tilec.simt.code import INT32, cleared, effect, guarded, is_whole, less, loop, part, registers
from tilec.simt.operands import Source, source_of
from tilec.simt.partition import of_fragment
from tilec.simt.rules import Demand, LaneRule, Lanes
from tilec.transform.capabilities import MatrixAtom

_SHARED = (ir.SHARED, ir.SHARED_DYN)
_UNROLLED = 16
_LOCAL = ("local", "local", "local")


def rule() -> LaneRule:
    """The rule, for the table of a target."""
    return LaneRule(Gemm, "matrix instructions", _demands, _lower, _applies, cost=10.0)


class Tiling(NamedTuple):
    """How warps share an (M, N) tile.

    Attributes:
        atom: the instruction.
        rows: warps along M.
        columns: warps along N.
        high: atoms of one warp along M.
        wide: atoms of one warp along N.
        deep: atoms along K.
    """

    atom: MatrixAtom
    rows: int
    columns: int
    high: int
    wide: int
    deep: int

    @property
    def used(self) -> int:
        """Lanes that take part."""
        return self.rows * self.columns * self.atom.lanes


def split(
    high: int, wide: int, groups: int, policy: GemmWarpPolicy, keep: str = ""
) -> tuple[int, int]:
    """Groups of lanes along M and N, of `high` x `wide` atoms: as many as can be used.

    Args:
        high: atoms along M.
        wide: atoms along N.
        groups: at most so many.
        policy: how groups are placed, where there is a choice.
        keep: "rows" or "columns", along which there should be one group only.
    """
    best: tuple[Any, tuple[int, int]] | None = None
    for rows in range(1, groups + 1):
        if high % rows:
            continue
        for columns in range(1, groups // rows + 1):
            if wide % columns:
                continue
            across = {"rows": rows, "columns": columns}.get(keep, 0)
            taste = {GemmWarpPolicy.FullRow: -rows, GemmWarpPolicy.FullCol: -columns}
            loads = high // rows + wide // columns
            key = (across, -rows * columns, taste.get(policy, 0), loads, -rows)
            if best is None or key < best[0]:
                best = key, (rows, columns)
    assert best is not None
    return best[1]


def choose(op: Gemm, lanes: Lanes) -> Tiling | str:
    """The best tiling, or why there is none."""
    m, n, k = op.shape()
    types = (str(op.A.dtype), str(op.B.dtype), str(op.C.dtype))
    fitting = [
        a for a in lanes.capabilities.matrix_atoms
        if (a.a_dtype, a.b_dtype, a.accumulator) == types and a.homes == _LOCAL
        and not a.asynchronous
    ]  # fmt: skip
    if not fitting:
        return f"there is no instruction for {types[0]} and {types[1]} into {types[2]}"
    why = f"{lanes.count} lanes are no whole group"
    for atom in fitting:
        if lanes.count < atom.lanes or atom.lanes != lanes.warp:
            continue
        if m % atom.m or n % atom.n or k % atom.k or 0 in (m, n, k):
            why = f"({m}, {n}, {k}) is no multiple of ({atom.m}, {atom.n}, {atom.k})"
            continue
        fragments = [r.buffer.scope() == ir.FRAGMENT for r in (op.A, op.B)]
        keep = "columns" if fragments[0] else "rows" if fragments[1] else ""
        high, wide = m // atom.m, n // atom.n
        rows, columns = split(high, wide, lanes.count // atom.lanes, op.policy, keep)
        return Tiling(atom, rows, columns, high // rows, wide // columns, k // atom.k)
    return why


@lru_cache(maxsize=256)
def result_layout(tiling: Tiling) -> Fragment:
    """The fragment of C."""
    t = tiling
    return _tiled(t.atom.layouts[2], (t.rows, t.columns), (t.high, t.wide), t.columns, 1, False)


@lru_cache(maxsize=256)
def operand_layout(tiling: Tiling, number: int, swapped: bool) -> Fragment:
    """The fragment of A (0) or B (1), dimensions exchanged where `swapped`.

    All groups along the other dimension of C hold copies.
    """
    t = tiling
    if number == 0:
        groups, atoms, stride, copies, step = (t.rows, 1), (t.high, t.deep), t.columns, t.columns, 1
    else:
        groups, atoms, stride, copies, step = (t.columns, 1), (t.wide, t.deep), 1, t.rows, t.columns
    return _tiled(t.atom.layouts[number], groups, atoms, stride, copies, swapped, step)


def _tiled(
    atom: Fragment, groups: tuple[int, int], atoms: tuple[int, int], stride: int, copies: int,
    swapped: bool, step: int = 1,
) -> Fragment:  # fmt: skip
    """Atoms in rows, one after the other in registers; groups of lanes in rows.

    Args:
        atom: one atom.
        groups: of lanes along both dimensions.
        atoms: of one group along both dimensions.
        stride: groups from one row of groups to the next.
        copies: further groups that hold the same.
        swapped: whether the dimensions are exchanged.
        step: groups from one copy to the next.
    """
    variables, replica = index_vars(2), ir.Var("rep", INT32)
    order: tuple[Any, ...] = variables[::-1] if swapped else variables
    sizes = atom.input_shape
    spans = [a * s for a, s in zip(atoms, sizes, strict=True)]
    group: Any = order[0] // spans[0] * stride + order[1] // spans[1]
    if copies > 1:
        group = group + replica * step
    inner = [v % s for v, s in zip(order, sizes, strict=True)]
    numbers = [v % w // s for v, w, s in zip(order, spans, sizes, strict=True)]
    lane = atom.map_forward_thread(inner) + group * _lanes(atom)
    count = atom.register_extent
    register = (numbers[0] * atoms[1] + numbers[1]) * count + atom.map_forward_index(inner)
    shape = tuple(g * w for g, w in zip(groups, spans, strict=True))
    if swapped:
        shape = shape[::-1]
    return Fragment.from_exprs(
        shape, variables, replica, copies, ir.as_expr(lane), ir.as_expr(register)
    )


def _lanes(atom: Fragment) -> int:
    """Lanes of an atom: all of them hold something."""
    return atom.thread_extent


def _applies(op: Gemm, lanes: Lanes) -> bool | str:
    if len(op.C.extents) != 2 or not is_whole(op.C, ir.FRAGMENT):
        return "C is not a whole fragment of two dimensions"
    if op.C.buffer in (op.A.buffer, op.B.buffer):
        return "C is an operand"
    tiling = choose(op, lanes)
    if isinstance(tiling, str):
        return tiling
    wanted = [(op.C.buffer, result_layout(tiling))]
    for number, operand in enumerate((op.A, op.B)):
        name = "AB"[number]
        if operand.buffer.scope() == ir.FRAGMENT:
            if len(operand.extents) != 2 or not is_whole(operand, ir.FRAGMENT):
                return f"{name} is part of a fragment"
            wanted.append((operand.buffer, operand_layout(tiling, number, _swapped(op, number))))
        elif operand.buffer.scope() not in _SHARED:
            return f"{name} is in {operand.buffer.scope()} memory"
    for buffer, layout in wanted:
        known = lanes.fragments.get(buffer)
        if known is not None and known != layout and not known.is_equal(layout):
            return f"{buffer.name} has another layout"
        if known is None and not _invertible(layout, lanes.count):
            return f"the layout of {buffer.name} has no closed form"
    return True


@lru_cache(maxsize=256)
def _invertible(layout: Fragment, lanes: int) -> bool:
    try:
        of_fragment(layout, lanes)
    except ValueError:
        return False
    return True


def _swapped(op: Gemm, number: int) -> bool:
    """Whether the contracted dimension of an operand is its first."""
    return not op.transpose_B if number else op.transpose_A


def _demands(op: Gemm, lanes: Lanes) -> Mapping[ir.Buffer, Demand]:
    tiling = choose(op, lanes)
    assert isinstance(tiling, Tiling)
    found: dict[ir.Buffer, Demand] = {op.C.buffer: result_layout(tiling)}
    for number, operand in enumerate((op.A, op.B)):
        buffer = operand.buffer
        if buffer.scope() == ir.FRAGMENT:
            found[buffer] = operand_layout(tiling, number, _swapped(op, number))
        elif buffer not in lanes.layouts:
            layout = shared_layout(buffer)
            if layout is not None:
                found[buffer] = layout
    return found


def shared_layout(buffer: ir.Buffer) -> Layout | None:
    """The layout in which rows and columns of a tile are read without bank conflicts."""
    if buffer.strides is not None or not all(isinstance(e, int) for e in buffer.shape):
        return None
    return make_swizzled_layout(buffer)


def _lower(op: Gemm, lanes: Lanes) -> ir.Stmt:
    tiling = choose(op, lanes)
    assert isinstance(tiling, Tiling)
    t, atom, span = tiling, tiling.atom, op.span
    held = lanes.registers[op.C.buffer]
    warp: Any = lanes.index // atom.lanes
    lane: Any = lanes.index % atom.lanes
    across = t.rows * t.columns * atom.lanes > atom.lanes
    row: Any = warp // t.columns if across and t.columns > 1 else warp if across else 0
    column: Any = warp % t.columns if t.columns > 1 else 0
    sides = []
    for number, (operand, first, count) in enumerate(((op.A, row, t.high), (op.B, column, t.wide))):
        base = first * (count * (atom.n if number else atom.m))
        sides.append(
            source_of(
                operand, atom.layouts[number], _swapped(op, number), (count, t.deep), base, lane,
                lanes, f"{'ab'[number]}_regs",
            )
        )  # fmt: skip

    def step(k: Any) -> ir.Stmt:
        loads = [s.load(k) for s in sides]
        return ir.seq(*(x for x in loads if x is not None), _products(t, held, sides, k, span))

    kind = "unroll" if t.deep <= _UNROLLED else "serial"
    allocs = [ir.Alloc(s.held, span=span) for s in sides if s.owned]
    body = ir.Seq((*allocs, loop(t.deep, step, span, kind, "k")), span=span)
    cond = less(lanes.index, t.used) if t.used < lanes.count else None
    return ir.seq(*cleared(op, held), guarded(cond, body))


def _products(t: Tiling, held: ir.Buffer, sides: list[Source], k: Any, span: Any) -> ir.Stmt:
    atom = t.atom
    count = atom.layouts[2].register_extent

    def one(i: Any, j: Any) -> ir.Stmt:
        result = part(held, (i * t.wide + j) * count, count)
        a, b = sides[0].at(i, k), sides[1].at(j, k)
        return effect("mma", result, a, b, span=span, atom=atom)

    return loop(
        t.high,
        lambda i: loop(t.wide, lambda j: one(i, j), span, name="j"),
        span, name="i",
    )  # fmt: skip


__all__ = ["Tiling", "choose", "operand_layout", "registers", "result_layout", "rule", "split"]
