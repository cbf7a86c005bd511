"""Layouts in common use."""

from __future__ import annotations

from typing import Any

from tilec.diagnostics import ShapeError
from tilec.ir import Buffer, caller_span
from tilec.layout.layout import Layout
from tilec.layout.maps import flat_index, normal_shape

CHUNK_BYTES = 16
"""Swizzles move pieces of this size, the largest that one access moves."""


def row_major(shape: Any, pitch: int | None = None) -> Layout:
    """Rows one after the other; `pitch` elements from one row to the next (default: no gap)."""
    extents = normal_shape(shape, "a layout")
    step = extents[-1] if pitch is None else pitch
    if step < extents[-1]:
        raise ShapeError(
            f"a pitch of {step} is less than the row of {extents[-1]}", span=caller_span()
        )
    return Layout(extents, lambda *i: flat_index(i[:-1], extents[:-1]) * step + i[-1])


def column_major(shape: Any) -> Layout:
    """The first index varies fastest."""
    extents = normal_shape(shape, "a layout")
    return Layout(extents, lambda *i: flat_index(i[::-1], extents[::-1]))


def panels(shape: Any, axis: int, width: int) -> Layout:
    """A matrix as panels of `width` rows (axis 0) or columns (axis 1), each stored step by step.

    Element (k, n) of a (K, N) matrix with ``axis=1`` is at ``[n // width][k][n % width]``; the last
    panel is padded to full width.
    """
    rows, columns = normal_shape(shape, "a layout of panels")
    (wide,) = normal_shape(width, "a panel")
    if axis % 2 == 1:
        depth = rows
        return Layout((rows, columns), lambda k, n: (n // wide * depth + k) * wide + n % wide)
    depth = columns
    return Layout((rows, columns), lambda m, k: (m // wide * depth + k) * wide + m % wide)


def panels_size(shape: Any, axis: int, width: int) -> int:
    """Storage elements of `panels`, the padding of the last panel included."""
    rows, columns = normal_shape(shape, "a layout of panels")
    length, depth = (columns, rows) if axis % 2 == 1 else (rows, columns)
    return -(-length // width) * width * depth


def swizzled(shape: Any, element_bits: int, chunks: int) -> Layout:
    """Rows whose 16-byte pieces are permuted: piece c of row r is stored at ``c ^ f(r)``.

    Args:
        shape: extents; the last dimension is a row, those before count rows.
        element_bits: size of an element.
        chunks: 8, 4 or 2 pieces take part; rows that lie in one stretch of 128 bytes share f.

    Raises:
        ShapeError: a row is not a whole number of groups of pieces.
    """
    extents = normal_shape(shape, "a layout")
    piece = CHUNK_BYTES * 8 // element_bits
    columns = extents[-1]
    if chunks not in (2, 4, 8) or columns % (piece * chunks):
        raise ShapeError(
            f"rows of {columns} elements of {element_bits} bits have no groups of {chunks} pieces",
            span=caller_span(),
        )
    every = 8 // chunks

    def forward(*index: Any) -> tuple[Any, ...]:
        row, column = flat_index(index[:-1], extents[:-1]), index[-1]
        chunk = column // piece
        key = row // every % chunks
        moved = (chunk // chunks) * chunks + ((chunk % chunks) ^ key)
        return (*index[:-1], moved * piece + column % piece)

    return Layout(extents, forward)


def make_swizzled_layout(buffer: Buffer, k_major: bool = True, allow_pad: bool = True) -> Layout:
    """The layout that keeps rows and columns of a matrix operand free of bank conflicts.

    The widest swizzle that the row length allows; where none fits, rows padded by one piece if
    `allow_pad`, else plain rows. `k_major` is accepted for compatibility.
    """
    del k_major
    shape = normal_shape(buffer.shape, f"buffer {buffer.name}")
    bits = buffer.dtype.bits
    piece = CHUNK_BYTES * 8 // bits
    for chunks in (8, 4, 2):
        if len(shape) >= 2 and piece and shape[-1] % (piece * chunks) == 0:
            return swizzled(shape, bits, chunks)
    if allow_pad and shape[-1] * bits % 256 == 0:
        return row_major(shape, shape[-1] + piece)
    return make_linear_layout(buffer)


def make_linear_layout(buffer: Buffer) -> Layout:
    """Plain rows."""
    return row_major(normal_shape(buffer.shape, f"buffer {buffer.name}"))
