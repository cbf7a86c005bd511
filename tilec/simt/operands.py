"""Operands of matrix instructions in registers: where they come from.

From shared memory through `ldmatrix`, where the atom's layout is made of 8x8 matrices of 16-bit
elements, else through plain loads as wide as layout and memory allow; or from a fragment that
holds them already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tilec import ir
from tilec.layout import Fragment, closed_form
from tilec.layout.maps import Array
from tilec.simt.code import INT32, effect, element, keeps_runs, loop, part, registers
from tilec.simt.rules import Lanes

_ROWS = 8
_WORD = 4


class Source(NamedTuple):
    """An operand of one group of lanes.

    Attributes:
        held: its registers.
        owned: whether these are to be allocated.
        load: the statement that fills them for a step along K, or None.
        at: ``(number, k)`` -> the registers of an atom.
    """

    held: ir.Buffer
    owned: bool
    load: Callable[[Any], ir.Stmt | None]
    at: Callable[[Any, Any], ir.BufferRegion]


def source_of(
    operand: ir.BufferRegion,
    atom: Fragment,
    swapped: bool,
    counts: tuple[int, int],
    base: Any,
    lane: Any,
    lanes: Lanes,
    name: str,
) -> Source:
    """Where an operand comes from.

    Args:
        operand: (rows, k) elements; (k, rows) if `swapped`.
        atom: the layout of one atom, (rows, k).
        swapped: see `operand`.
        counts: atoms of the group along rows and along k.
        base: first row of the group.
        lane: within the group.
        lanes: of the block.
        name: of the registers.
    """
    size = atom.register_extent
    count, deep = counts
    if operand.buffer.scope() == ir.FRAGMENT:
        held = lanes.registers[operand.buffer]
        return Source(
            held, False, lambda _k: None, lambda i, k: part(held, (i * deep + k) * size, size)
        )
    held = registers(name, count * size, operand.dtype, operand.span)
    rows, columns = atom.input_shape
    span = operand.span

    def place(i: Any, k: Any, row: Any, column: Any) -> ir.Load:
        at_row, at_column = base + (i * rows + row), k * columns + column
        if swapped:
            return element(operand, at_column, at_row)
        return element(operand, at_row, at_column)

    matrices = _matrices(atom) if operand.dtype.bits == 16 else None
    if matrices is not None and keeps_runs(operand, lanes, _ROWS):
        load = _by_matrices(held, matrices, atom, count, swapped, lane, place, span)
    else:
        load = _by_element(held, atom, count, swapped, lane, lanes, operand, place, span)
    return Source(held, True, load, lambda i, _k: part(held, i * size, size))


@lru_cache(maxsize=128)
def _matrices(atom: Fragment) -> tuple[tuple[int, int], ...] | None:
    """The first elements of the 8x8 matrices that make up an atom, in order of registers."""
    if atom.replicate_extent > 1 or atom.register_extent % 2 or atom.thread_extent != 4 * _ROWS:
        return None
    rows, columns = _inverse(atom)
    lane = np.arange(4 * _ROWS)
    found = []
    for q in range(0, atom.register_extent, 2):
        first = int(rows[0, q]), int(columns[0, q])
        for extra in (0, 1):
            right = (
                (rows[:, q + extra] == first[0] + lane // 4)
                & (columns[:, q + extra] == first[1] + 2 * (lane % 4) + extra)
            )  # fmt: skip
            if not right.all():
                return None
        found.append(first)
    return tuple(found)


def _inverse(atom: Fragment) -> tuple[Array, Array]:
    """Row and column of what a lane (first axis) has in a register."""
    threads, places = atom.thread_table[..., 0], atom.register_table[..., 0]
    flat = np.zeros((atom.thread_extent, atom.register_extent), np.int64)
    flat[threads, places] = np.arange(threads.size).reshape(threads.shape)
    rows, columns = np.unravel_index(flat, atom.input_shape)
    return rows, columns


def _by_matrices(
    held: ir.Buffer, matrices: tuple[tuple[int, int], ...], atom: Fragment, count: int,
    swapped: bool, lane: Any, place: Callable[..., ir.Load], span: Any,
) -> Callable[[Any], ir.Stmt]:  # fmt: skip
    """Loads of up to four matrices, of one atom or of neighbours."""
    together = 1
    while len(matrices) * together * 2 <= 4 and count % (2 * together) == 0:
        together *= 2
    group = [(r + n * atom.input_shape[0], c) for n in range(together) for r, c in matrices]
    wide = next(n for n in (4, 2, 1) if len(group) % n == 0)
    size = atom.register_extent * together
    number = np.arange(4 * _ROWS)

    def load(k: Any) -> ir.Stmt:
        def one(i: Any, part_of: int) -> ir.Stmt:
            chosen = group[part_of : part_of + wide]
            # Lanes beyond the matrices give addresses that nobody reads, but legal ones.
            q, r = number // _ROWS % wide, number % _ROWS
            row = np.array([chosen[n][0] for n in q])
            column = np.array([chosen[n][1] for n in q])
            row, column = (row, column + r) if swapped else (row + r, column)
            source = place(i * together, k, _form(row, lane), _form(column, lane))
            target = part(held, i * size + part_of * 2, wide * 2)
            return effect("ldmatrix", target, source, span=span, num=wide, transpose=swapped)

        return loop(
            count // together,
            lambda i: ir.seq(*(one(i, n) for n in range(0, len(group), wide))),
            span, name="i",
        )  # fmt: skip

    return load


def _form(table: Array, lane: Any) -> Any:
    if (table == table[0]).all():
        return int(table[0])
    var = ir.Var("lane", INT32)
    found = closed_form(table, var)
    assert found is not None, "places of a matrix by lane are sums of bits"
    return ir.substitute(found, {var: ir.as_expr(lane)})


def _by_element(
    held: ir.Buffer, atom: Fragment, count: int, swapped: bool, lane: Any, lanes: Lanes,
    operand: ir.BufferRegion, place: Callable[..., ir.Load], span: Any,
) -> Callable[[Any], ir.Stmt]:  # fmt: skip
    """Loads of elements that are neighbours in registers and memory."""
    rows, columns = _inverse(atom)
    last, other = (rows, columns) if swapped else (columns, rows)
    size = atom.register_extent
    width = 1
    while size % (2 * width) == 0 and 2 * width * operand.dtype.bits <= 128:
        runs = last.reshape(len(last), -1, 2 * width)
        same = other.reshape(len(last), -1, 2 * width)
        if not (
            (runs == runs[..., :1] + np.arange(2 * width)).all()
            and (runs[..., 0] % (2 * width) == 0).all()
            and (same == same[..., :1]).all()
            and keeps_runs(operand, lanes, 2 * width)
        ):
            break
        width *= 2
    row_lane, row_slot = _sum_of(rows)
    column_lane, column_slot = _sum_of(columns)

    def load(k: Any) -> ir.Stmt:
        def one(i: Any, first: int) -> ir.Stmt:
            row = _form(row_lane, lane) + int(row_slot[first])
            column = _form(column_lane, lane) + int(column_slot[first])

            def copy(v: Any) -> ir.Stmt:
                at = (row + v, column) if swapped else (row, column + v)
                value = place(i, k, *(at if width > 1 else (row, column)))
                return ir.Store(held, (i * size + first + v,), value, span=span)

            return loop(width, copy, span, "vectorized", "v")

        return loop(
            count,
            lambda i: ir.seq(*(one(i, n) for n in range(0, size, width))),
            span, name="i",
        )  # fmt: skip

    return load


def _sum_of(table: Array) -> tuple[Array, Array]:
    """A table over (lane, register) as the sum of one over lanes and one over registers."""
    by_lane, by_slot = table[:, 0], table[0] - table[0, 0]
    assert np.array_equal(by_lane[:, None] + by_slot, table), "an atom is a grid of runs"
    return by_lane, by_slot
