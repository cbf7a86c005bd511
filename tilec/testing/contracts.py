"""Contracts of operations: what may be combined, what is refused and how, as tables.

A `Contract` names what varies (axes) and the rules that make a combination illegal; what breaks no
rule is legal. Tests are made from it: a legal combination gives on a target what the interpreter
gives, an illegal one is refused at the line of the call with the rule's error class. The tables are
in `tilec.testing.contracts_tiles` and `tilec.testing.contracts_scalars`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import tilec.language as T
from tilec.diagnostics import TilecError
from tilec.testing.conformance.checks import Check, program
from tilec.testing.conformance.run import FAIL, Subject, compile_for, run_checks

HERE = "# here"
"""Marks the line of a program that is to be refused."""


class Rule(NamedTuple):
    """One reason to refuse a combination.

    Attributes:
        why: what is wrong, for people.
        error: the class that is raised, exactly.
        broken: whether a combination breaks the rule; axes are attributes of its argument.
    """

    why: str
    error: type[TilecError]
    broken: Callable[[Any], bool]


class Contract(NamedTuple):
    """Everything about one operation, or one aspect of it.

    Attributes:
        name: unique.
        axes: what varies, with the values it takes.
        rules: of several that are broken any may be the one that is reported.
        build: the program of a combination; the call's line ends in `HERE`.
    """

    name: str
    axes: Mapping[str, Sequence[Any]]
    rules: tuple[Rule, ...]
    build: Callable[[Any], Check]

    def size(self) -> int:
        """Number of combinations."""
        count = 1
        for choices in self.axes.values():
            count *= len(choices)
        return count


class Case(NamedTuple):
    """A combination: its contract, the values of the axes, and the rules that it breaks."""

    contract: Contract
    values: tuple[Any, ...]
    broken: tuple[Rule, ...]

    @property
    def legal(self) -> bool:
        """Whether it breaks no rule."""
        return not self.broken

    def __str__(self) -> str:
        pairs = zip(self.contract.axes, self.values, strict=True)
        text = ", ".join(f"{axis}={value!r}" for axis, value in pairs)
        reasons = " and ".join(rule.why for rule in self.broken)
        return f"{self.contract.name}: {text}" + (f" ({reasons})" if reasons else "")

    def check(self) -> Check:
        """Its program."""
        return self.contract.build(_namespace(self.contract, self.values))


def _namespace(contract: Contract, values: Iterable[Any]) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip(contract.axes, values, strict=True)))


def _case(contract: Contract, values: tuple[Any, ...]) -> Case:
    where = _namespace(contract, values)
    return Case(contract, values, tuple(r for r in contract.rules if r.broken(where)))


def all_cases(contract: Contract) -> Iterator[Case]:
    """Every combination."""
    for values in itertools.product(*contract.axes.values()):
        yield _case(contract, values)


def sample(contract: Contract, legal: int, illegal: int, seed: int = 0) -> list[Case]:
    """A seeded choice: `legal` combinations that have as many different values as possible, and
    `illegal` for each rule."""
    rng = random.Random(f"{contract.name} {seed}")
    if contract.size() <= 4000:
        pool = list(all_cases(contract))
        rng.shuffle(pool)
    else:
        choices = [list(v) for v in contract.axes.values()]
        pool = [_case(contract, tuple(rng.choice(c) for c in choices)) for _ in range(4000)]
    chosen: list[Case] = []
    for rule in contract.rules:
        broken = [c for c in pool if c.broken == (rule,)]  # and no other: its error is the one
        assert broken, f"{contract.name}: nothing breaks just the rule {rule.why!r}"
        chosen += broken[:illegal]
    seen: set[tuple[int, Any]] = set()
    good = [c for c in pool if c.legal]
    for taken in range(min(legal, len(good))):
        best = max(good, key=lambda c: len(_news(c, seen)))
        news = _news(best, seen)
        if not news:  # every value that is legal anywhere is there
            return chosen + good[: legal - taken]
        good.remove(best)
        seen |= news
        chosen.append(best)
    return chosen


def _news(case: Case, seen: set[tuple[int, Any]]) -> set[tuple[int, Any]]:
    return {(n, repr(v)) for n, v in enumerate(case.values)} - seen


def refusal(case: Case, given: Subject) -> str | None:
    """What is wrong with how an illegal combination is refused; None if it is as a rule says.

    It is refused while it is traced, or at the latest when it is compiled; in both cases at the
    line of the call.
    """
    expected = {rule.error for rule in case.broken}
    text = program([case.check()])
    line = 1 + next(n for n, row in enumerate(text.splitlines()) if row.endswith(HERE))
    try:
        compile_for(T.from_script(text), given)
    except TilecError as error:
        if type(error) not in expected:
            names = " or ".join(sorted(kind.__name__ for kind in expected))
            found = type(error).__name__
            return f"{case}: {names} expected, got {found}: {error}\n{text}"
        span = error.span
        if span is None or span.line != line or not span.file.startswith("<tilec script"):
            return f"{case}: refused at {span}, not at line {line}: {error}\n{text}"
        return None
    except Exception as error:  # noqa: BLE001 - any other exception is a bug to report
        return f"{case}: {type(error).__name__}: {error}\n{text}"
    return f"{case}: accepted\n{text}"


def differences(cases: Sequence[Case], given: Subject, together: int = 24) -> list[str]:
    """What is wrong with legal combinations on a target; `together` share a compilation."""
    found = []
    for start in range(0, len(cases), together):
        part = cases[start : start + together]
        try:
            outcomes = run_checks([c.check() for c in part], given)
        except TilecError:
            found += [f for c in part if (f := _accepted(c)) is not None]
            part = [c for c in part if _accepted(c) is None]
            outcomes = run_checks([c.check() for c in part], given)
        found += [
            f"{case}: {outcome.detail}"
            for case, outcome in zip(part, outcomes, strict=True)
            if outcome.status == FAIL
        ]
    return found


def _accepted(case: Case) -> str | None:
    """Why a legal combination cannot even be traced."""
    try:
        T.from_script(program([case.check()]))
    except TilecError as error:
        return f"{case}: legal, but refused: {error}"
    return None
