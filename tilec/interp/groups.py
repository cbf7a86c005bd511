"""Instances that run together, and masks over them.

A *group* is what executes one statement at a time: the host (one instance), the lanes of a block,
or the iterations of a parallel nest. A value is a Python number where it is the same for all
instances by construction, else an array with one axis per axis of the group (extent 1 where it does
not vary along it). A mask is True, False, or such an array of bools.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilec import ir

Array = np.ndarray[Any, Any]
Mask = Any  # bool | Array; a name for signatures

HOST, LANES, ITERATIONS = "host", "lanes", "iterations"


class Group:
    """Instances that run together.

    Attributes:
        kind: "host", "lanes" or "iterations".
        shape: one extent per axis; the last one varies fastest in the order of the language.
        names: what each axis counts, for reports.
        values: of variables.
        parent: the group in which this one was opened, or None.
        dead: instances that have returned.
        broken: per open loop the instances that have left it, innermost last.
    """

    def __init__(
        self, kind: str, shape: tuple[int, ...], names: tuple[str, ...], parent: Group | None
    ) -> None:
        self.kind = kind
        self.shape = shape
        self.names = names
        self.parent = parent
        self.values: dict[ir.Var, Any] = {}
        self.dead: Mask = False
        self.broken: list[Mask] = []
        self._grid: tuple[Array, ...] | None = None

    @property
    def count(self) -> int:
        """How many instances."""
        return math.prod(self.shape)

    def grid(self, rank: int) -> tuple[Array, ...]:
        """The number of every instance along each axis, for arrays with `rank` axes."""
        if self._grid is None or (self._grid and self._grid[0].ndim != rank):
            axes = []
            for axis, extent in enumerate(self.shape):
                shape = [1] * rank
                shape[axis] = extent
                axes.append(np.arange(extent).reshape(shape))
            self._grid = tuple(axes)
        return self._grid

    def encloses(self, inner: Group) -> bool:
        """Whether `inner` was opened in this group, directly or not."""
        group: Group | None = inner
        while group is not None:
            if group is self:
                return True
            group = group.parent
        return False

    def place(self, instance: int) -> str:
        """An instance for people, such as ``iteration i=3, j=5``."""
        if self.kind == HOST or not self.shape:
            return ""
        where = np.unravel_index(instance, self.shape)
        shown = [
            f"{name}={int(at)}"
            for name, at, extent in zip(self.names, where, self.shape, strict=True)
            if extent > 1 or len(self.shape) == 1
        ]
        if self.kind == LANES:
            shown.reverse()  # x first, as in the source
        word = "lane" if self.kind == LANES else "iteration"
        return f"{word} {', '.join(shown)}" if shown else ""


def both(a: Mask, b: Mask) -> Mask:
    """``a and b``."""
    if a is True:
        return b
    if b is True:
        return a
    if a is False or b is False:
        return False
    return a & b


def either(a: Mask, b: Mask) -> Mask:
    """``a or b``."""
    if a is False:
        return b
    if b is False:
        return a
    if a is True or b is True:
        return True
    return a | b


def without(a: Mask, b: Mask) -> Mask:
    """``a and not b``."""
    if b is False or a is False:
        return a
    if b is True:
        return False
    return ~b if a is True else a & ~b


def settled(mask: Mask) -> Mask:
    """The same mask, as True or False where all instances agree."""
    if mask is True or mask is False:
        return mask
    if mask.all():
        return True
    return mask if mask.any() else False


def is_array(value: Any) -> bool:
    """Whether a value may differ between instances."""
    return isinstance(value, np.ndarray)
