"""All groups of checks, and seeded samples of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tilec.testing.conformance import control, scalars, tiles
from tilec.testing.conformance.checks import Group

FAMILIES: tuple[Callable[[], Iterator[Group]], ...] = (
    scalars.arithmetic,
    scalars.functions,
    scalars.casts,
    scalars.bits,
    scalars.scalars,
    tiles.copies,
    tiles.fills,
    tiles.reductions,
    tiles.matrices,
    tiles.atomics,
    control.parallel,
    control.pipelined,
    control.loops,
    control.parameters,
    control.lanes,
    control.launches,
)


def groups(sample: int | None = None, seed: int = 0) -> list[Group]:
    """The groups of the kit, or about `sample` of them, from all families alike."""
    families = [list(make()) for make in FAMILIES]
    if sample is None:
        return [g for family in families for g in family]
    rng = random.Random(seed)
    order = [rng.sample(family, len(family)) for family in families]
    rng.shuffle(order)
    turns = max(map(len, order))
    mixed = [family[turn] for turn in range(turns) for family in order if turn < len(family)]
    return sorted(mixed[:sample], key=lambda g: g.name)
