"""How tile operations become lane code: the interface between layout inference and operations.

A `LaneRule` says for one operation class when it applies, which layouts it demands of its operands
and what each lane executes. Layout inference (`tilec.simt.infer`) asks the rules for their demands,
decides the layout of every on-chip buffer, and the lowering (`tilec.simt.lanes`) then calls
`lower`. Operations without an applicable rule become parallel nests through `TileOp.lower`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tilec import ir
from tilec.layout import Fragment, Layout
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities

SHARED = "shared memory"
"""A demand on a fragment: it has to live in shared memory."""

Demand = Fragment | Layout | str


@dataclass
class Lanes:
    """What lowering knows about the lanes that execute a statement.

    Attributes:
        ctx: of the compilation.
        capabilities: of the target.
        count: lanes that execute the statement together: those of the block, or of a part of it
            where the schedule gave parts of the block work of their own.
        index: linear lane number within them, int32.
        warp: lanes of a warp.
        fragments: the layout of each fragment that lives in registers, over `index`.
        registers: its registers, a ``local`` buffer of shape (register_extent,).
        layouts: of shared buffers that are not stored in plain rows.
        memo: what rules found out about layouts, by keys of their own.
        rings: shared buffers whose contents the schedule hands over, to lanes and engines alike.
    """

    ctx: PassContext
    capabilities: Capabilities
    count: int
    index: ir.Expr
    warp: int
    fragments: dict[ir.Buffer, Fragment] = field(default_factory=dict)
    registers: dict[ir.Buffer, ir.Buffer] = field(default_factory=dict)
    layouts: dict[ir.Buffer, Layout] = field(default_factory=dict)
    rings: frozenset[ir.Buffer] = frozenset()
    memo: dict[Any, Any] = field(default_factory=dict)


class LaneRule(NamedTuple):
    """One way to lower an operation to lane code.

    Attributes:
        op: the operation class.
        name: what dumps and ``explain`` call it.
        demands: ``(op, lanes)`` -> layouts that operands must have: a `Fragment` for a fragment
            buffer, a `Layout` for a shared one, `SHARED` for a fragment that must not live in
            registers. Buffers left out may have any. ``lanes.fragments`` holds what is decided.
        lower: ``(op, lanes) -> Stmt`` in thread form; fragments are accessed through
            ``lanes.registers``.
        when: ``(op, lanes)`` -> True where it applies; False or the reason why not.
        cost: lower is better.
        folds: ``(op)`` -> dimensions of fragments along which lanes combine values; layouts that
            are free to choose keep those within few lanes.
    """

    op: type[ir.TileOp]
    name: str
    demands: Callable[[Any, Lanes], Mapping[ir.Buffer, Demand]]
    lower: Callable[[Any, Lanes], ir.Stmt]
    when: Callable[[Any, Lanes], bool | str]
    cost: float = 0.0
    folds: Callable[[Any], Mapping[ir.Buffer, int]] | None = None


class RuleTable:
    """The rules of one target, cheapest first among those that apply."""

    def __init__(self, rules: Iterable[LaneRule] = ()) -> None:
        self._rules = sorted(rules, key=lambda rule: rule.cost)

    def __iter__(self) -> Any:
        return iter(self._rules)

    def choose(self, op: ir.TileOp, lanes: Lanes) -> LaneRule | None:
        """The cheapest rule that applies, or None."""
        for rule in self._rules:
            if isinstance(op, rule.op) and rule.when(op, lanes) is True:
                return rule
        return None

    def refusals(self, op: ir.TileOp, lanes: Lanes) -> list[str]:
        """Why the rules of this operation that do not apply do not, for ``explain``."""
        found = []
        for rule in self._rules:
            if isinstance(op, rule.op):
                verdict = rule.when(op, lanes)
                if verdict is not True:
                    found.append(f"{rule.name}: {verdict or 'does not apply'}")
        return found
