"""Facts of the kind "x is `base` modulo `coeff`"."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple


class Modular(NamedTuple):
    """The integers ``coeff * k + base``; ``coeff == 0`` means exactly `base`."""

    coeff: int
    base: int

    def residue(self, divisor: int) -> int | None:
        """The remainder of a floor division by `divisor` > 0, if it is the same for all."""
        return self.base % divisor if self.coeff % divisor == 0 else None


ANYTHING = Modular(1, 0)


def make(coeff: int, base: int) -> Modular:
    """A fact with its base reduced."""
    coeff = abs(coeff)
    return Modular(coeff, base % coeff if coeff else base)


def constant(value: int) -> Modular:
    """Exactly `value`."""
    return Modular(0, value)


def add(a: Modular, b: Modular) -> Modular:
    """Sums."""
    return make(gcd(a.coeff, b.coeff), a.base + b.base)


def scale(a: Modular, factor: int) -> Modular:
    """Multiples by a constant."""
    return make(a.coeff * factor, a.base * factor)


def multiply(a: Modular, b: Modular) -> Modular:
    """Products."""
    return make(gcd(a.coeff * b.coeff, gcd(a.coeff * b.base, a.base * b.coeff)), a.base * b.base)


def union(a: Modular, b: Modular) -> Modular:
    """Values of either."""
    return make(gcd(gcd(a.coeff, b.coeff), a.base - b.base), a.base)


def floordiv(a: Modular, divisor: int) -> Modular:
    """Floor quotients by a positive constant."""
    if divisor > 0 and a.coeff % divisor == 0:
        return make(a.coeff // divisor, a.base // divisor)
    return ANYTHING


def floormod(a: Modular, divisor: int) -> Modular:
    """Remainders by a positive constant."""
    if divisor <= 0:
        return ANYTHING
    known = a.residue(divisor)
    return constant(known) if known is not None else make(gcd(a.coeff, divisor), a.base)
