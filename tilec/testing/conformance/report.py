"""Counts outcomes and shows them: text for terminals, Markdown for pages, JSON for programs."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any, NamedTuple

import tilec
from tilec.testing.conformance.checks import DTYPES, Check
from tilec.testing.conformance.run import FAIL, PASS, REFUSED, Outcome, Subject

_SHORT = {"bool": "bool", "bfloat16": "bf16", "tfloat32": "tf32"}


class Entry(NamedTuple):
    """One check and how it ended."""

    op: str
    dtype: str
    note: str
    outcome: Outcome


class Report:
    """What a run of the kit found, by operation and dtype."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, check: Check, outcome: Outcome) -> None:
        """Record an outcome."""
        self.entries.append(Entry(check.op, check.dtype, check.note, outcome))

    def totals(self) -> dict[str, int]:
        """How many passed, were refused, failed."""
        count = Counter(e.outcome.status for e in self.entries)
        return {status: count[status] for status in (PASS, REFUSED, FAIL)}

    def table(self) -> dict[str, dict[str, dict[str, int]]]:
        """Counts by operation, dtype and status; operations in the order of their first check."""
        result: dict[str, dict[str, dict[str, int]]] = {}
        for entry in self.entries:
            cell = result.setdefault(entry.op, {}).setdefault(entry.dtype, {})
            cell[entry.outcome.status] = cell.get(entry.outcome.status, 0) + 1
        return result

    def refusals(self) -> dict[str, list[str]]:
        """The reasons for refusals of dtypes that are not refused altogether, with their rows."""
        found: dict[str, dict[str, None]] = {}
        known = set(self._columns()[0])
        for entry in self.entries:
            if entry.outcome.status == REFUSED and entry.dtype in known:
                found.setdefault(entry.outcome.detail, {})[entry.op] = None
        return {reason: list(ops) for reason, ops in sorted(found.items())}

    def json(self, given: Subject) -> dict[str, Any]:
        """Everything, for a file."""
        return {
            "target": str(given.spec),
            "execution_backend": given.context.execution_backend.name,
            "tilec": tilec.__version__,
            "seed": given.seed,
            "totals": self.totals(),
            "table": self.table(),
            "refusals": self.refusals(),
            "failures": [
                {"op": e.op, "dtype": e.dtype, "note": e.note, "detail": e.outcome.detail}
                for e in self.entries
                if e.outcome.status == FAIL
            ],
        }

    def _columns(self) -> tuple[list[str], list[str]]:
        """Dtypes with a column of their own, and those that were refused everywhere."""
        seen: dict[str, set[str]] = {}
        for entry in self.entries:
            seen.setdefault(entry.dtype, set()).add(entry.outcome.status)
        used = [d for d in DTYPES if d in seen]
        return (
            [d for d in used if seen[d] != {REFUSED}],
            [d for d in used if seen[d] == {REFUSED}],
        )

    def grid(self) -> tuple[list[str], list[list[str]], list[str]]:
        """Header, rows and the dtypes left out because everything on them was refused."""
        columns, refused = self._columns()
        rows = [
            [op, *(_cell(cells.get(dtype)) for dtype in columns)]
            for op, cells in self.table().items()
        ]
        rows = [row for row in rows if any(row[1:])]
        return ["", *map(_short, columns)], rows, refused

    def text(self) -> list[str]:
        """The table as lines for a terminal."""
        head, rows, refused = self.grid()
        widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
        lines = [
            " ".join(
                text.ljust(width) if n == 0 else text.rjust(width)
                for n, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in [head, *rows]
        ]
        if refused:
            lines.append(f"refused as the capability table says: {', '.join(refused)}")
        lines += [f"refused: {text} ({_few(ops)})" for text, ops in self.refusals().items()]
        totals = self.totals()
        lines.append(f"{totals[PASS]} passed, {totals[REFUSED]} refused, {totals[FAIL]} failed")
        return lines

    def markdown(self, given: Subject, command: str) -> str:
        """The table as a page."""
        head, rows, refused = self.grid()
        totals = self.totals()
        kind = given.context.target.kind
        lines = [
            f"# Conformance of target `{kind}`",
            "",
            "Written by this command; do not edit:",
            "",
            "```sh",
            command,
            "```",
            "",
            (
                f"tilec {tilec.__version__}, execution backend "
                f"{given.context.execution_backend.name}, {_machine()}: "
                f"**{totals[PASS]} passed, {totals[REFUSED]} refused, {totals[FAIL]} failed**, "
                "nothing skipped."
            ),
            "",
            (
                "Rows are operations, columns the dtype they are applied to. A number counts "
                "checks that gave what the reference interpreter gives: each is a kernel of "
                "its own shape, scopes or flags. `r` was refused with a located "
                "`CapabilityError`, as the target's capability table says; `F` failed. Empty "
                "cells are combinations that the language does not have, or that no check is "
                "made of."
            ),
            "",
            "| " + " | ".join(head) + " |",
            "|" + " --- |" + " ---: |" * (len(head) - 1),
            *("| " + " | ".join([f"`{row[0]}`", *row[1:]]) + " |" for row in rows),
        ]
        if refused:
            lines += ["", "Refused altogether: " + ", ".join(f"`{d}`" for d in refused) + "."]
        return "\n".join(lines) + "\n"


def _cell(counts: dict[str, int] | None) -> str:
    if not counts:
        return ""
    parts = [str(counts[PASS])] if PASS in counts else []
    parts += ["r"] if REFUSED in counts else []
    parts += [f"F{counts[FAIL]}"] if FAIL in counts else []
    return "/".join(parts)


def _short(dtype: str) -> str:
    name = dtype.replace("uint", "u").replace("int", "i").replace("float", "f")
    return _SHORT.get(dtype, name)


def _few(ops: list[str]) -> str:
    return ", ".join(ops[:6]) + (f" and {len(ops) - 6} more" if len(ops) > 6 else "")


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"
