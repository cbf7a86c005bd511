"""How tiles in shared memory look to the hardware: swizzles, panels, descriptors.

The hardware knows tiles of rows of 128, 64 or 32 bytes, whose pieces of 16 bytes are permuted by
address bits; a wider tile is several *panels* of such rows. What a buffer's layout is, its table
says.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tilec import ir
from tilec.diagnostics import InternalError
from tilec.layout import Layout, row_major
from tilec.transform.flatten import Operand

PIECE = 16
UNIT = 128
"""Bulk copies start at multiples of so many bytes of shared memory."""
_CODES = {128: 1, 64: 2, 32: 3}
_ROWS = 8


class Panels(NamedTuple):
    """A tile as rows of equal length.

    Attributes:
        swizzle: bytes of a row whose pieces are permuted; 0 where they are not.
        width: elements of a row of a panel.
        number: of panels.
        step: bytes from one panel to the next.
    """

    swizzle: int
    width: int
    number: int
    step: int


def layout_of(operand: Operand) -> Layout:
    """The layout of the buffer of an operand."""
    if operand.layout is not None:
        return operand.layout
    return row_major(operand.buffer.shape)


def panels(operand: Operand) -> Panels | None:
    """How the region is stored, as panels; None where the hardware has no word for it.

    The answer holds for every region of these extents that starts at multiples of them.
    """
    extents = tuple(_static(e) for e in operand.extents)
    return _panels(layout_of(operand), extents, operand.buffer.dtype.bytes)


@lru_cache(maxsize=256)
def _panels(layout: Layout, extents: tuple[int, ...], item: int) -> Panels | None:
    whole = layout.offsets * item
    starts = [range(0, n - e + 1, e) for n, e in zip(whole.shape, extents, strict=True)]
    table: Any = None
    first: Any = None
    for start in itertools.product(*starts):
        part = whole[tuple(slice(s, s + e) for s, e in zip(start, extents, strict=True))]
        first = part.flat[0] if first is None else first
        if (part.flat[0] - first) % UNIT:
            return None
        part = part - part.flat[0]
        if table is None:
            table = part
        elif not np.array_equal(table, part):
            return None
    if table is None:
        return None
    table = table.reshape(-1, extents[-1])
    plain = _plain(table, item)
    if plain is not None and plain.number > 1 and plain.step % UNIT:
        plain = None
    if plain is not None and plain.number == 1:
        return plain
    for swizzle in (128, 64, 32):
        found = _rows(table, swizzle, item)
        if found is not None:
            return found
    return plain


def _rows(table: Any, swizzle: int, item: int) -> Panels | None:
    width = swizzle // item
    rows, columns = table.shape
    if width == 0 or columns % width:
        return None
    row = np.arange(rows)[:, None]
    byte = np.arange(width)[None, :] * item
    key = row * swizzle // 128 % (swizzle // PIECE)
    expected = row * swizzle + ((byte // PIECE) ^ key) * PIECE + byte % PIECE
    return _repeated(table, expected, swizzle, width)


def _plain(table: Any, item: int) -> Panels | None:
    rows, columns = table.shape
    for width in range(columns, 0, -1):
        if columns % width == 0:
            size = width * item
            expected = np.arange(rows)[:, None] * size + np.arange(width)[None, :] * item
            found = _repeated(table, expected, 0, width)
            if found is not None:
                return found
    return None


def _repeated(table: Any, expected: Any, swizzle: int, width: int) -> Panels | None:
    count = table.shape[1] // width
    step = int(table[0, width] - table[0, 0]) if count > 1 else 0
    for panel in range(count):
        part = table[:, panel * width : (panel + 1) * width]
        if not np.array_equal(part, expected + panel * step):
            return None
    return Panels(swizzle, width, count, step)


def matrix_form(operand: Operand, transposed: bool) -> int:
    """The constant part of the descriptor of a matrix operand.

    Args:
        operand: (m, k) or (n, k) elements; (k, m) or (k, n) where `transposed`.
        transposed: whether the contracted dimension is the slower one.

    Raises:
        InternalError: the layout is none that descriptors can express.
    """
    shape = tuple(_static(e) for e in operand.buffer.shape)
    return _matrix_form(layout_of(operand), shape[-2:], operand.buffer.dtype.bytes, transposed)


@lru_cache(maxsize=256)
def _matrix_form(layout: Layout, shape: tuple[int, int], item: int, transposed: bool) -> int:
    table = layout.offsets.reshape(-1, *shape) * item
    first = table[0]
    for swizzle in (128, 64, 32):
        found = _rows(first, swizzle, item)
        if found is not None:
            _check_steps(table, _ROWS * swizzle, layout)
            leading = found.step if transposed and found.number > 1 else PIECE
            return _form(leading, _ROWS * swizzle, _CODES[swizzle])
    steps = _core_steps(first, item)
    if steps is None:
        raise InternalError(f"no matrix descriptor for {layout!r}")
    _check_steps(table, PIECE, layout)
    along_rows, along_pieces = steps
    if transposed:
        return _form(along_rows, along_pieces, 0)
    return _form(along_pieces, along_rows, 0)


def _core_steps(table: Any, item: int) -> tuple[int, int] | None:
    """Bytes from eight rows to the next, and from a piece to the next, without a swizzle."""
    rows, columns = table.shape
    width = PIECE // item
    if rows % _ROWS or columns % width:
        return None
    down = int(table[_ROWS, 0]) if rows > _ROWS else 128
    right = int(table[0, width]) if columns > width else 128
    row, byte = np.arange(rows)[:, None], np.arange(columns)[None, :] * item
    expected = row // _ROWS * down + row % _ROWS * PIECE + byte // PIECE * right + byte % PIECE
    return (down, right) if np.array_equal(table, expected) else None


def _check_steps(table: Any, unit: int, layout: Layout) -> None:
    if np.any((table[:, 0, 0] - table[0, 0, 0]) % unit):
        raise InternalError(f"tiles of {layout!r} do not start at multiples of {unit} bytes")


def _form(leading: int, stride: int, code: int) -> int:
    return (leading >> 4) << 16 | (stride >> 4) << 32 | code << 62


def _static(extent: int | ir.Expr) -> int:
    if not isinstance(extent, int):
        raise InternalError(f"a tile in shared memory has the dynamic extent {extent!r}")
    return extent
