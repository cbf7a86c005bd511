"""Op lowerings: candidates by operation class, each with a predicate and a cost.

    LOWERINGS = LoweringTable()

    @LOWERINGS.on(Gemm, "micro_kernel", cost=1, when=lambda op, ctx: op.is_static)
    def lower_gemm(op, ctx):
        return seq(...)

A pass asks ``table.choose(op, ctx)``; among the candidates that apply, the cheapest wins, and of
equals the first registered. A class without candidates of its own uses those of its bases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tilec.diagnostics import CapabilityError, ManifestError

if TYPE_CHECKING:
    from tilec.ir import Stmt, TileOp
    from tilec.transform.base import PassContext

LowerFn = TypeVar("LowerFn", bound=Callable[..., "Stmt"])
Predicate = Callable[[Any, "PassContext"], "bool | str"]
Cost = Callable[[Any, "PassContext"], float]
GENERIC_COST = 1e9
"""Cost of a lowering that is only taken where nothing else applies."""


def _always(op: Any, ctx: PassContext) -> bool:
    del op, ctx
    return True


class Lowering(NamedTuple):
    """One way to lower an operation.

    Attributes:
        op: the operation class.
        name: what dumps and ``explain`` call it.
        lower: ``(op, ctx) -> Stmt``.
        when: ``(op, ctx)`` -> True where legal; False or the reason why not, as a string.
        cost: a number, or ``(op, ctx) -> number``; lower is better.
    """

    op: type[TileOp]
    name: str
    lower: Callable[[Any, PassContext], Stmt]
    when: Predicate = _always
    cost: float | Cost = 0.0

    def refusal(self, op: TileOp, ctx: PassContext) -> str | None:
        """Why this lowering does not apply, or None where it does."""
        verdict = self.when(op, ctx)
        if verdict is True:
            return None
        return verdict or "does not apply"

    def price(self, op: TileOp, ctx: PassContext) -> float:
        """The cost for one operation."""
        return self.cost(op, ctx) if callable(self.cost) else self.cost


class LoweringTable:
    """Lowerings of one backend; a manifest's table is not changed after registration."""

    def __init__(self, lowerings: Iterable[Lowering] = ()) -> None:
        self._by_op: dict[type, list[Lowering]] = {}
        for lowering in lowerings:
            self.add(lowering)

    def add(self, lowering: Lowering) -> None:
        """Add one candidate.

        Raises:
            ManifestError: the operation has a candidate of that name.
        """
        candidates = self._by_op.setdefault(lowering.op, [])
        if any(c.name == lowering.name for c in candidates):
            raise ManifestError(
                f"{lowering.op.__name__} has two lowerings called {lowering.name!r}"
            )
        candidates.append(lowering)

    def on(
        self,
        op: type[TileOp],
        name: str,
        *,
        when: Predicate = _always,
        cost: float | Cost = 0.0,
    ) -> Callable[[LowerFn], LowerFn]:
        """Decorator that adds a function ``(op, ctx) -> Stmt`` as a candidate."""

        def register(fn: LowerFn) -> LowerFn:
            self.add(Lowering(op, name, fn, when, cost))
            return fn

        return register

    def extended(self, other: Iterable[Lowering]) -> LoweringTable:
        """A new table with more candidates; the given tables stay as they are."""
        return LoweringTable([*self, *other])

    def candidates(self, op: type[TileOp]) -> tuple[Lowering, ...]:
        """Candidates for an operation class, its own first, then those of its bases."""
        return tuple(c for cls in op.__mro__ for c in self._by_op.get(cls, ()))

    def find(self, op: TileOp, ctx: PassContext) -> Lowering | None:
        """The cheapest candidate that applies, or None."""
        legal = [c for c in self.candidates(type(op)) if c.refusal(op, ctx) is None]
        return min(legal, key=lambda c: c.price(op, ctx), default=None)

    def choose(self, op: TileOp, ctx: PassContext) -> Lowering:
        """The cheapest candidate that applies.

        Raises:
            CapabilityError: none applies; the notes say why.
        """
        best = self.find(op, ctx)
        if best is not None:
            return best
        tried = self.candidates(type(op))
        where = f" for target {ctx.target.kind}" if ctx.target is not None else ""
        raise CapabilityError(
            f"{type(op).__name__} has no lowering{where} that applies here",
            span=op.span,
            notes=[f"{c.name}: {c.refusal(op, ctx)}" for c in tried],
        )

    def __iter__(self) -> Iterator[Lowering]:
        return (c for candidates in self._by_op.values() for c in candidates)

    def __len__(self) -> int:
        return sum(map(len, self._by_op.values()))
