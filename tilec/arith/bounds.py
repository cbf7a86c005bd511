"""Integer intervals with infinite ends."""

from __future__ import annotations

from typing import Any, NamedTuple

INF: Any = float("inf")


class Interval(NamedTuple):
    """The integers from `lo` to `hi`, both included; an end may be ``-inf`` or ``inf``."""

    lo: Any
    hi: Any

    @property
    def is_empty(self) -> bool:
        """Whether no integer is inside."""
        return bool(self.lo > self.hi)

    @property
    def is_finite(self) -> bool:
        """Whether both ends are numbers."""
        return bool(self.lo != -INF and self.hi != INF)

    @property
    def value(self) -> int | None:
        """The only integer inside, or None."""
        return int(self.lo) if self.lo == self.hi else None

    def within(self, other: Interval) -> bool:
        """Whether every integer of this interval is in `other`."""
        return bool(other.lo <= self.lo and self.hi <= other.hi)

    def __contains__(self, value: object) -> bool:
        return bool(self.lo <= value <= self.hi)


EVERYTHING = Interval(-INF, INF)
TRUTH = Interval(0, 1)


def intersect(a: Interval, b: Interval) -> Interval:
    """Integers in both."""
    return Interval(max(a.lo, b.lo), min(a.hi, b.hi))


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval around both."""
    return Interval(min(a.lo, b.lo), max(a.hi, b.hi))


def add(a: Interval, b: Interval) -> Interval:
    """Sums."""
    return Interval(a.lo + b.lo, a.hi + b.hi)


def scale(a: Interval, factor: int) -> Interval:
    """Multiples by a constant."""
    if factor == 0:
        return Interval(0, 0)
    if factor > 0:
        return Interval(a.lo * factor, a.hi * factor)
    return Interval(a.hi * factor, a.lo * factor)


def _times(x: Any, y: Any) -> Any:
    # 0 * inf is 0 here: the infinity stands for some unknown integer.
    return 0 if x == 0 or y == 0 else x * y


def multiply(a: Interval, b: Interval) -> Interval:
    """Products."""
    corners = [_times(x, y) for x in a for y in b]
    return Interval(min(corners), max(corners))


def _floor(x: Any, y: Any) -> Any:
    if x in (INF, -INF):
        return x if y > 0 else -x
    if y == INF:
        return 0 if x >= 0 else -1
    return x // y


def floordiv(a: Interval, b: Interval) -> Interval:
    """Floor quotients; a zero divisor gives 0."""
    if b.lo >= 1:
        corners = [_floor(x, y) for x in a for y in b]
        return Interval(min(corners), max(corners))
    if b.lo == 0 and b.hi >= 1:
        return hull(floordiv(a, Interval(1, b.hi)), Interval(0, 0))
    size = max(abs(a.lo), abs(a.hi))
    return Interval(-size, size)


def truncdiv(a: Interval, b: Interval) -> Interval:
    """Quotients rounded toward zero; a zero divisor gives 0."""
    if a.lo >= 0 and b.lo >= 0:
        return floordiv(a, b)
    size = max(abs(a.lo), abs(a.hi))
    return Interval(-size, size)


def floormod(a: Interval, b: Interval) -> Interval:
    """Remainders with the divisor's sign; a zero divisor gives 0."""
    if b.lo >= 1:
        if a.lo >= 0 and a.hi < b.lo:
            return a
        return Interval(0, min(b.hi - 1, a.hi) if a.lo >= 0 else b.hi - 1)
    return Interval(min(b.lo + 1, 0), max(b.hi - 1, 0))


def truncmod(a: Interval, b: Interval) -> Interval:
    """Remainders with the dividend's sign; a zero divisor gives 0."""
    if a.lo >= 0 and b.lo >= 1:
        return floormod(a, b)
    size = max(abs(b.lo), abs(b.hi)) - 1
    size = max(size, 0)
    return Interval(max(-size, a.lo) if a.lo < 0 else 0, min(size, a.hi) if a.hi > 0 else 0)


def bitand(a: Interval, b: Interval) -> Interval:
    """Bitwise and."""
    if a.lo >= 0 and b.lo >= 0:
        return Interval(0, min(a.hi, b.hi))
    if b.lo >= 0 or a.lo >= 0:
        return Interval(0, b.hi if b.lo >= 0 else a.hi)
    return EVERYTHING


def bitor(a: Interval, b: Interval) -> Interval:
    """Bitwise or, also an enclosure of exclusive or, of non-negative numbers."""
    if a.lo >= 0 and b.lo >= 0 and a.hi != INF and b.hi != INF:
        return Interval(0, (1 << max(int(a.hi), int(b.hi)).bit_length()) - 1)
    return EVERYTHING


def shift_right(a: Interval, b: Interval, bits: int) -> Interval:
    """Arithmetic right shift."""
    if b.value is not None and 0 <= b.value < bits:
        return floordiv(a, Interval(1 << b.value, 1 << b.value))
    return Interval(min(a.lo, 0), max(a.hi, 0))
