"""Grids: tiles dealt out to lanes along each dimension, as equally as the extents allow.

A grid cuts the dimensions of a tile into chunks of consecutive elements, gives each dimension a
number of lanes and deals the chunks of a dimension to them in turn. That is how fragments are laid
out that no operation wants otherwise: reductions, transposes and broadcasts of a grid are grids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tilec import ir
from tilec.layout import Fragment
from tilec.layout.maps import index_vars

_INT32 = ir.DType("int32")
_CROSSING = 16  # elements per lane that are worth as much as combining warps in shared memory


@dataclass(frozen=True)
class Axis:
    """One dimension of a grid.

    Attributes:
        extent: elements.
        chunk: consecutive elements that stay together.
        lanes: lanes along this dimension.
        stride: distance of two such lanes.
        pitch: distance of the registers of two chunks of one lane.
    """

    extent: int
    chunk: int = 1
    lanes: int = 1
    stride: int = 1
    pitch: int = 1

    @property
    def turns(self) -> int:
        """Chunks that a lane has at most."""
        return -(-self.extent // (self.chunk * self.lanes))

    @property
    def exact(self) -> bool:
        """Whether all lanes have equally many whole chunks."""
        return self.extent == self.turns * self.chunk * self.lanes


class Grid(Fragment):
    """A fragment that is a grid.

    Args:
        axes: one per dimension; at most one has chunks of more than one element.
        copies: (count, stride) of lanes that hold the same elements.
    """

    __slots__ = ("axes", "copies")

    def __init__(self, axes: Sequence[Axis], copies: Sequence[tuple[int, int]] = ()) -> None:
        pitch = max((a.chunk for a in axes), default=1)
        numbered: list[Axis] = []
        for axis in reversed(axes):
            numbered.insert(0, replace(axis, pitch=pitch))
            pitch *= axis.turns
        self.axes: tuple[Axis, ...] = tuple(numbered)
        self.copies: tuple[tuple[int, int], ...] = tuple((n, s) for n, s in copies if n > 1)
        self._build()

    def _build(self) -> None:
        variables = index_vars(len(self.axes))
        replica = ir.Var("rep", _INT32)
        lane: Any = ir.Const(0, _INT32)
        register: Any = ir.Const(0, _INT32)
        for var, axis in zip(variables, self.axes, strict=True):
            piece: Any = var // axis.chunk
            lane = lane + piece % axis.lanes * axis.stride
            register = register + piece // axis.lanes * axis.pitch + var % axis.chunk
        rest: Any = replica
        for count, stride in self.copies:
            lane = lane + rest % count * stride
            rest = rest // count
        shape = tuple(a.extent for a in self.axes)
        total = math.prod(n for n, _ in self.copies)
        self._set(shape, variables, replica, total, lane, register)

    @classmethod
    def of_axes(cls, axes: Sequence[Axis], copies: tuple[tuple[int, int], ...]) -> Grid:
        """A grid whose registers are numbered as the axes say."""
        self = cls.__new__(cls)
        self.axes = tuple(axes)
        self.copies = copies
        self._build()
        return self

    @property
    def lanes(self) -> int:
        """Lanes that hold something: all below this number."""
        return (
            1
            + sum((a.lanes - 1) * a.stride for a in self.axes)
            + sum((n - 1) * s for n, s in self.copies)
        )

    @property
    def registers(self) -> int:
        """Registers per lane."""
        return self.chunk * math.prod(a.turns for a in self.axes)

    @property
    def chunk(self) -> int:
        """Consecutive elements that a lane has in consecutive registers."""
        return max((a.chunk for a in self.axes), default=1)

    def fold(self, axis: int) -> Grid:
        """The grid of a reduction along `axis`: all lanes along it hold the result."""
        axis %= len(self.axes)
        gone = self.axes[axis]
        rest = self.axes[:axis] + self.axes[axis + 1 :]
        return Grid(rest or (Axis(1),), (*self.copies, (gone.lanes, gone.stride)))

    def indices(self, lane: ir.Expr, slot: ir.Expr) -> tuple[ir.Expr, ...]:
        """The element that a lane has in a register (perhaps beyond the extent)."""
        found: list[ir.Expr] = []
        for axis, piece in zip(self.axes, self.pieces(lane, slot), strict=True):
            if axis.chunk > 1:
                scaled: Any = piece
                inner: Any = slot
                found.append(scaled * axis.chunk + inner % axis.chunk)
            else:
                found.append(piece)
        return tuple(found)

    def pieces(self, lane: ir.Expr, slot: ir.Expr) -> tuple[ir.Expr, ...]:
        """The chunk that a lane has in a register, by dimension."""
        found: list[ir.Expr] = []
        for axis in self.axes:
            at: Any = lane // axis.stride % axis.lanes if axis.lanes > 1 else None
            if axis.turns > 1:
                turn: Any = slot // axis.pitch % axis.turns
                turn = turn * axis.lanes
                at = turn if at is None else at + turn
            found.append(ir.Const(0, _INT32) if at is None else at)
        return tuple(found)


def everywhere(shape: Sequence[int], lanes: int) -> Grid:
    """All lanes hold everything."""
    return Grid([Axis(e) for e in shape], ((lanes, 1),))


@lru_cache(maxsize=4096)
def balanced(
    shape: tuple[int, ...], lanes: int, chunk: int = 1, folded: tuple[int, ...] = (), warp: int = 1
) -> Grid:
    """The grid with the fewest registers; of these the one with most lanes along the last axis.

    Args:
        shape: of the tile.
        lanes: at most so many are used.
        chunk: wanted number of consecutive elements along the last dimension; a smaller one is
            taken where it does not divide the extent or leaves lanes idle.
        folded: dimensions along which lanes have to combine values.
        warp: lanes of a warp.
    """
    while chunk > 1 and (shape[-1] % chunk or math.prod(shape) // chunk < lanes):
        chunk //= 2
    pieces = (*shape[:-1], shape[-1] // chunk)
    counts = _shares(pieces, lanes, folded, warp, _CROSSING // chunk)
    axes: list[Axis] = []
    stride = 1
    for n in range(len(shape) - 1, -1, -1):
        wide = chunk if n == len(shape) - 1 else 1
        axes.insert(0, Axis(shape[n], wide, counts[n], stride))
        stride *= counts[n]
    return Grid(axes)


def _shares(
    pieces: tuple[int, ...], lanes: int, folded: tuple[int, ...], warp: int, crossing: int
) -> tuple[int, ...]:
    """Lanes per dimension: least work per lane, then most lanes along the last dimensions.

    Where lanes combine values they are a power of two within a warp, or whole warps, which costs
    as much as `crossing` chunks.
    """
    best: tuple[Any, ...] | None = None

    def search(axis: int, left: int, counts: tuple[int, ...], work: int, more: int) -> None:
        nonlocal best
        if axis < 0:
            key = (work + more, *(-c for c in reversed(counts)))
            if best is None or key < best[0]:
                best = (key, counts)
            return
        extent = pieces[axis]
        for count in _divisors(left):
            if count >= 2 * extent and count > 1:
                break
            extra = 0
            if axis in folded and count > 1:
                reach = math.prod(counts) * count
                if reach > warp and reach % warp == 0 and warp % math.prod(counts) == 0:
                    extra = crossing
                elif count & (count - 1) or warp % reach:
                    continue
            turns = -(-extent // count)
            search(axis - 1, left // count, (count, *counts), work * turns, more + extra)

    search(len(pieces) - 1, lanes, (), 1, 0)
    assert best is not None
    counts: tuple[int, ...] = best[1]
    return counts


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
