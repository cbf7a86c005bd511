"""Matrix multiplication by asynchronous instructions of several warps.

Such an instruction reads its right operand, and the left one unless that is in registers, from
shared memory by itself. What lanes wrote there has to be handed over to it first.

Before::

    T.gemm(A_shared, B_shared, C)

After::

    T.fence_proxy_async()
    T.sync_threads()
    T.mma_fence()
    for k in T.unroll(4):
        mma(C[0:64], A_shared[g * 64 : g * 64 + 64, k * 16 : k * 16 + 16], B_shared[...])
    T.mma_commit()
    T.mma_wait(0)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tilec import ir
from tilec.layout import Layout
from tilec.layout.standard import CHUNK_BYTES
from tilec.ops.gemm import Gemm
from tilec.simt.code import cleared, effect, guarded, is_whole, less, loop, part
from tilec.simt.gemm_mma import Tiling, operand_layout, result_layout, split
from tilec.simt.partition import of_fragment
from tilec.simt.rules import Demand, LaneRule, Lanes

_SHARED = (ir.SHARED, ir.SHARED_DYN)
_ROWS = (128, 64, 32)  # bytes of the rows that swizzles know
_UNROLLED = 16
_MOST_REGISTERS = 224


def rule() -> LaneRule:
    """The rule, for the table of a target."""
    return LaneRule(Gemm, "asynchronous matrix instructions", _demands, _lower, _applies, cost=5.0)


def choose(op: Gemm, lanes: Lanes) -> Tiling | str:
    """The best tiling, or why there is none."""
    m, n, k = op.shape()
    types = (str(op.A.dtype), str(op.B.dtype), str(op.C.dtype))
    left = "local" if op.A.buffer.scope() == ir.FRAGMENT else "shared"
    homes = (left, "shared", "local")
    fitting = [
        a for a in lanes.capabilities.matrix_atoms
        if a.asynchronous and (a.a_dtype, a.b_dtype, a.accumulator) == types and a.homes == homes
    ]  # fmt: skip
    if not fitting:
        return f"there is no instruction for {types[0]} and {types[1]} into {types[2]}"
    best: tuple[Any, Tiling] | None = None
    for atom in fitting:
        if lanes.count % atom.lanes or m % atom.m or n % atom.n or k % atom.k or not k:
            continue
        keep = "columns" if left == "local" else ""
        groups = lanes.count // atom.lanes
        rows, columns = split(m // atom.m, n // atom.n, groups, op.policy, keep)
        tiling = Tiling(
            atom, rows, columns, m // atom.m // rows, n // atom.n // columns, k // atom.k
        )
        key = (-rows * columns, tiling.wide)
        if best is None or key < best[0]:
            best = key, tiling
    if best is None:
        return f"({m}, {n}, {k}) on {lanes.count} lanes is no multiple of an instruction's shape"
    if result_layout(best[1]).register_extent > _MOST_REGISTERS:
        return "the result does not fit into registers"
    return best[1]


def _swapped(op: Gemm, number: int) -> bool:
    return not op.transpose_B if number else op.transpose_A


def _applies(op: Gemm, lanes: Lanes) -> bool | str:
    if len(op.C.extents) != 2 or not is_whole(op.C, ir.FRAGMENT):
        return "C is not a whole fragment of two dimensions"
    tiling = choose(op, lanes)
    if isinstance(tiling, str):
        return tiling
    wanted = [(op.C.buffer, result_layout(tiling))]
    for number, operand in enumerate((op.A, op.B)):
        name, buffer = "AB"[number], operand.buffer
        if buffer.scope() == ir.FRAGMENT:
            if number or len(operand.extents) != 2 or not is_whole(operand, ir.FRAGMENT):
                return f"{name} is part of a fragment"
            if op.transpose_A:
                return "A is transposed in registers"
            wanted.append((buffer, operand_layout(tiling, 0, False)))
            continue
        if buffer.scope() not in _SHARED:
            return f"{name} is in {buffer.scope()} memory"
        if buffer.dtype.bits != 16 and _swapped(op, number):
            return f"{name} is transposed, which is for elements of 16 bits only"
        layout = shared_layout(buffer)
        if layout is None or any(ir.const_value(m) != 0 for m in operand.mins[-2:]):
            return f"rows of {name} are no multiple of 32 bytes, or it is part of a tile"
        if tuple(operand.extents[-2:]) != tuple(buffer.shape[-2:]):
            return f"{name} is part of a tile"
        known = lanes.layouts.get(buffer)
        if known is not None and known != layout and not known.is_equal(layout):
            return f"{name} has another layout"
    for buffer, fragment in wanted:
        held = lanes.fragments.get(buffer)
        if held is not None and held != fragment and not held.is_equal(fragment):
            return f"{buffer.name} has another layout"
        try:
            of_fragment(fragment, lanes.count)
        except ValueError as error:
            return f"the layout of {buffer.name}: {error}"
    return True


def shared_layout(buffer: ir.Buffer) -> Layout | None:
    """Panels of the widest rows that the instructions know, pieces of 16 bytes permuted."""
    shape = tuple(e for e in buffer.shape if isinstance(e, int))
    if len(shape) < max(len(buffer.shape), 2) or buffer.strides is not None or shape[-2] % 8:
        return None
    return _panels(shape, buffer.dtype.bits)


@lru_cache(maxsize=128)
def _panels(shape: tuple[int, ...], bits: int) -> Layout | None:
    row = next((b for b in _ROWS if shape[-1] * bits % (b * 8) == 0), None)
    if row is None or bits % 8:
        return None
    width, piece = row * 8 // bits, CHUNK_BYTES * 8 // bits
    pieces, every = row // CHUNK_BYTES, 128 // row

    def place(*index: Any) -> tuple[Any, ...]:
        *lead, r, c = index
        inner = c % width
        moved = (inner // piece) ^ (r // every % pieces)
        return (*lead, c // width, r, moved * piece + inner % piece)

    return Layout(shape, place)


def _demands(op: Gemm, lanes: Lanes) -> Mapping[ir.Buffer, Demand]:
    tiling = choose(op, lanes)
    assert isinstance(tiling, Tiling)
    found: dict[ir.Buffer, Demand] = {op.C.buffer: result_layout(tiling)}
    for number, operand in enumerate((op.A, op.B)):
        if operand.buffer.scope() == ir.FRAGMENT:
            found[operand.buffer] = operand_layout(tiling, number, False)
        else:
            layout = shared_layout(operand.buffer)
            assert layout is not None
            found[operand.buffer] = layout
    return found


def _lower(op: Gemm, lanes: Lanes) -> ir.Stmt:
    tiling = choose(op, lanes)
    assert isinstance(tiling, Tiling)
    t, atom, span = tiling, tiling.atom, op.span
    held = lanes.registers[op.C.buffer]
    group: Any = lanes.index // atom.lanes
    single = lanes.count == atom.lanes
    row: Any = 0 if single or t.rows == 1 else group // t.columns
    column: Any = 0 if single or t.columns == 1 else group % t.columns
    count = atom.layouts[2].register_extent

    def left(i: Any, k: Any) -> ir.BufferRegion:
        if op.A.buffer.scope() == ir.FRAGMENT:
            size = atom.layouts[0].register_extent
            return part(lanes.registers[op.A.buffer], (i * t.deep + k) * size, size)
        first = (row * t.high + i) * atom.m
        return _box(op.A, (first, atom.m), (k * atom.k, atom.k), op.transpose_A)

    def right(j: Any, k: Any) -> ir.BufferRegion:
        first = (column * t.wide + j) * atom.n
        return _box(op.B, (first, atom.n), (k * atom.k, atom.k), not op.transpose_B)

    def one(i: Any, j: Any, k: Any) -> ir.Stmt:
        result = part(held, (i * t.wide + j) * count, count)
        swapped = {}
        if op.transpose_A:
            swapped["transpose_a"] = True
        if not op.transpose_B:
            swapped["transpose_b"] = True
        return effect("mma", result, left(i, k), right(j, k), span=span, atom=atom, **swapped)

    kind = "unroll" if t.deep <= _UNROLLED else "serial"
    products = loop(
        t.deep,
        lambda k: loop(
            t.high,
            lambda i: loop(t.wide, lambda j: one(i, j, k), span, name="j"),
            span, name="i",
        ),
        span, kind, "k",
    )  # fmt: skip
    body = ir.seq(
        effect("mma_fence", span=span),
        products,
        effect("mma_commit", span=span),
        effect("mma_wait", 0, span=span),
    )
    cond = less(lanes.index, t.used) if t.used < lanes.count else None
    handed: list[ir.Stmt] = []
    if any(r.buffer.scope() in _SHARED and r.buffer not in lanes.rings for r in (op.A, op.B)):
        # What lanes wrote becomes visible to the instruction, then all have done so.
        handed = [effect("fence_proxy_async", span=span), effect("sync", span=span)]
    return ir.seq(*cleared(op, held), *handed, guarded(cond, body))


def _box(
    operand: ir.BufferRegion, rows: tuple[Any, int], depth: tuple[Any, int], swapped: bool
) -> ir.BufferRegion:
    """A (rows, k) box of an operand; (k, rows) if `swapped`."""
    first, second = (depth, rows) if swapped else (rows, depth)
    lead = operand.mins[:-2]
    mins = (*lead, ir.as_expr(first[0]), ir.as_expr(second[0]))
    extents = (*(1 for _ in lead), first[1], second[1])
    return ir.BufferRegion(operand.buffer, mins, extents, span=operand.span)
