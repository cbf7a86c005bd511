"""Observers of a pipeline run: time, dumps, verification, callbacks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tilec.backend.pipeline import PassPipeline
    from tilec.ir import Module
    from tilec.transform.base import Pass, PassContext


class Instrument:
    """Base of observers; every method does nothing unless overridden.

    An observer must not change the module. What it raises ends the compilation.
    """

    def started(self, pipeline: PassPipeline, module: Module, ctx: PassContext) -> None:
        """Called before the first pass."""

    def passed(
        self, stage: str, p: Pass, before: Module, after: Module, form: str, seconds: float
    ) -> None:
        """Called after each pass that ran.

        Args:
            stage: name of its stage.
            p: the pass.
            before: module it took.
            after: module it gave; the same object where nothing changed.
            form: IR form of `after`.
            seconds: wall time of the pass.
        """

    def finished(self, pipeline: PassPipeline, module: Module, ctx: PassContext) -> None:
        """Called after the last pass."""


class PassTime(NamedTuple):
    """Time of one pass."""

    stage: str
    name: str
    seconds: float
    changed: bool


class Timing(Instrument):
    """Collects the time of each pass in `times`; one compilation per instance."""

    def __init__(self) -> None:
        self.times: list[PassTime] = []

    def passed(
        self, stage: str, p: Pass, before: Module, after: Module, form: str, seconds: float
    ) -> None:
        """Record one pass."""
        self.times.append(PassTime(stage, p.name, seconds, after is not before))

    def report(self, threshold_ms: float = 0.0) -> str:
        """A table, in running order, without passes faster than the threshold."""
        rows = [t for t in self.times if t.seconds * 1e3 >= threshold_ms]
        width = max((len(f"{t.stage}.{t.name}") for t in rows), default=0)
        lines = [
            f"{t.stage + '.' + t.name:<{width}} {t.seconds * 1e3:9.3f} ms"
            + ("" if t.changed else "  (no change)")
            for t in rows
        ]
        lines.append(f"{'total':<{width}} {sum(t.seconds for t in self.times) * 1e3:9.3f} ms")
        return "\n".join(lines)


class DumpIR(Instrument):
    """Writes one numbered file per pass, and a diff against the one before.

    Args:
        folder: created where needed; files of one compilation go into a subfolder named after
            the function.
    """

    def __init__(self, folder: Path | str) -> None:
        self._root = Path(folder)
        self._folder = self._root
        self._count = 0
        self._last: list[str] = []

    def started(self, pipeline: PassPipeline, module: Module, ctx: PassContext) -> None:
        """Write the input."""
        names = "_".join(module.functions) or "module"
        self._folder = self._root / re.sub(r"\W+", "_", names)[:80]
        self._folder.mkdir(parents=True, exist_ok=True)
        for old in self._folder.glob("[0-9][0-9][0-9]_*"):
            old.unlink()
        self._count = 0
        self._last = module.script().splitlines()
        self._write("input", self._last)

    def passed(
        self, stage: str, p: Pass, before: Module, after: Module, form: str, seconds: float
    ) -> None:
        """Write what the pass gave."""
        self._count += 1
        name = f"{stage}.{p.name}"
        if after is before:
            self._write(f"{name}.unchanged", [])
            return
        text = after.script().splitlines()
        self._write(name, text)
        diff = list(difflib.unified_diff(self._last, text, "before", name, lineterm="", n=2))
        self._write(name, diff, ext="diff")
        self._last = text

    def _write(self, name: str, lines: list[str], ext: str = "py") -> None:
        path = self._folder / f"{self._count:03d}_{name}.{ext}"
        path.write_text("\n".join(lines) + "\n" if lines else "", encoding="utf-8")


class Verify(Instrument):
    """Checks the module after every pass that changed it."""

    def started(self, pipeline: PassPipeline, module: Module, ctx: PassContext) -> None:
        """Check the input."""
        self._check(module, "tile")

    def passed(
        self, stage: str, p: Pass, before: Module, after: Module, form: str, seconds: float
    ) -> None:
        """Check what the pass gave."""
        if after is not before or p.gives:
            self._check(after, form)

    def _check(self, module: Module, form: str) -> None:
        from tilec.ir.verify import FORMS, verify

        if form in FORMS:  # a backend's own form is checked by its own instrument
            verify(module, form)


class Callback(Instrument):
    """Calls ``fn(stage_name, pass, module)`` after each pass."""

    def __init__(self, fn: Callable[[str, Pass, Module], object]) -> None:
        self._fn = fn

    def passed(
        self, stage: str, p: Pass, before: Module, after: Module, form: str, seconds: float
    ) -> None:
        """Pass the result on."""
        self._fn(stage, p, after)
