"""Pass pipelines: named, ordered stages of passes, and what is hung on them.

    C_PIPELINE = PassPipeline("c", (
        Stage("canonicalize", (Simplify(),)),
        Stage("split", (SplitHostDevice(),)),
    ))

Order is what the tuple says. A plugin derives its own pipeline from one that exists with
`insert_before`, `insert_after`, `replace` and `remove`, which return a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tilec.backend.instruments import Instrument
from tilec.diagnostics import ManifestError, PassConfigError, did_you_mean
from tilec.transform.base import ANY_FORM, Pass, PassConfigKey, PassContext

if TYPE_CHECKING:
    from tilec.ir import Module

T = TypeVar("T")
FIRST_FORM, LAST_FORM = "tile", "split"


@dataclass(frozen=True, eq=False, repr=False)
class Stage:
    """Passes that together do one thing.

    Attributes:
        name: such as ``layout`` or ``sync``.
        passes: in the order they run.
        when: whether the stage runs at all, for conditions on target or configuration.
    """

    name: str
    passes: tuple[Pass, ...]
    when: Callable[[PassContext], bool] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes", tuple(self.passes))


@dataclass(frozen=True, eq=False, repr=False)
class PassPipeline:
    """The passes of one target kind.

    Attributes:
        name: the target kind.
        stages: in the order they run.
        instruments: observers that always run with this pipeline.
    """

    name: str
    stages: tuple[Stage, ...]
    instruments: tuple[Instrument, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        object.__setattr__(self, "instruments", tuple(self.instruments))
        stages = [stage.name for stage in self.stages]
        passes = [p.name for p in self.passes]
        for what, names in (("stages", stages), ("passes", passes)):
            double = sorted({n for n in names if names.count(n) > 1})
            if double:
                raise ManifestError(
                    f"pipeline {self.name!r} has two {what} called {', '.join(double)}",
                    hint="give the second one a name that says why it runs again",
                )
        self.forms()

    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {', '.join(stage.name for stage in self.stages)}>"

    @property
    def passes(self) -> tuple[Pass, ...]:
        """All passes in order."""
        return tuple(p for stage in self.stages for p in stage.passes)

    def forms(self) -> tuple[str, ...]:
        """The IR form before the first pass and after each one.

        Raises:
            ManifestError: a pass needs another form than the one it would get.
        """
        form = FIRST_FORM
        seen = [form]
        for p in self.passes:
            if p.needs not in (ANY_FORM, form):
                raise ManifestError(
                    f"pipeline {self.name!r}: pass {p.name!r} needs {p.needs} form, "
                    f"but gets {form} form"
                )
            form = p.gives or form
            seen.append(form)
        return tuple(seen)

    def lower(
        self, module: Module, ctx: PassContext, instruments: Sequence[Instrument] = ()
    ) -> Module:
        """Run all passes.

        Args:
            module: in tile form.
            ctx: configuration, target and tables.
            instruments: observers of this run, besides the pipeline's own.

        Raises:
            TilecError: whatever a pass refuses; a note names the pass.
        """
        watching = (*self.instruments, *instruments)
        for instrument in watching:
            instrument.started(self, module, ctx)
        form = FIRST_FORM
        for stage in self._effective(ctx):
            if stage.when is not None and not stage.when(ctx):
                continue
            for p in stage.passes:
                if not p.applies(ctx):
                    continue
                form = p.gives or form
                module = _run(stage, p, module, ctx, form, watching)
        for instrument in watching:
            instrument.finished(self, module, ctx)
        return module

    def insert_before(self, anchor: str, *new: Pass | Stage) -> PassPipeline:
        """A pipeline with passes put before a pass, or stages put before a stage."""
        return self._edit(anchor, new, before=True, keep=True)

    def insert_after(self, anchor: str, *new: Pass | Stage) -> PassPipeline:
        """A pipeline with passes put after a pass, or stages put after a stage."""
        return self._edit(anchor, new, before=False, keep=True)

    def replace(self, anchor: str, *new: Pass | Stage) -> PassPipeline:
        """A pipeline with a pass or stage replaced; by nothing to remove it."""
        return self._edit(anchor, new, before=True, keep=False)

    def remove(self, anchor: str) -> PassPipeline:
        """A pipeline without a pass or stage."""
        return self.replace(anchor)

    def renamed(self, name: str) -> PassPipeline:
        """The same passes for another target kind."""
        return replace(self, name=name)

    def with_instruments(self, *instruments: Instrument) -> PassPipeline:
        """A pipeline that is always observed."""
        return replace(self, instruments=(*self.instruments, *instruments))

    def describe(self) -> str:
        """One line per pass, for people."""
        width = max((len(p.name) for p in self.passes), default=0)
        lines = [f"pipeline {self.name}"]
        for stage in self.stages:
            lines.append(f"  {stage.name}")
            lines += [f"    {p.name:<{width}}  {p.purpose}" for p in stage.passes]
        return "\n".join(lines)

    def _effective(self, ctx: PassContext) -> Iterable[Stage]:
        """The stages, with the passes that the user added through the configuration."""
        added = ctx.get(PassConfigKey.TIR_ADD_LOWER_PASS) or ()
        for item in added:
            if not isinstance(item, Pass):
                raise PassConfigError(
                    f"{PassConfigKey.TIR_ADD_LOWER_PASS.value!r} holds {item!r}",
                    hint="give tilec passes, for example made by tilec.transform.module_pass",
                )
        if not added or not self.stages:
            return self.stages
        first, *rest = self.stages
        return (first, Stage("user", tuple(added)), *rest)

    def _edit(
        self, anchor: str, new: Sequence[Pass | Stage], *, before: bool, keep: bool
    ) -> PassPipeline:
        stage_names = [stage.name for stage in self.stages]
        if anchor in stage_names:
            at = stage_names.index(anchor)
            added = [n for n in new if isinstance(n, Stage)]
            if len(added) != len(new):
                raise ManifestError(f"{anchor!r} is a stage; put stages beside it, not passes")
            stages = _splice(self.stages, at, added, before=before, keep=keep)
            return replace(self, stages=stages)
        for index, stage in enumerate(self.stages):
            names = [p.name for p in stage.passes]
            if anchor in names:
                passes = [n for n in new if isinstance(n, Pass)]
                if len(passes) != len(new):
                    raise ManifestError(f"{anchor!r} is a pass; put passes beside it, not stages")
                edited = _splice(
                    stage.passes, names.index(anchor), passes, before=before, keep=keep
                )
                stages = (
                    *self.stages[:index],
                    replace(stage, passes=edited),
                    *self.stages[index + 1 :],
                )
                return replace(self, stages=stages)
        known = [*stage_names, *(p.name for p in self.passes)]
        raise ManifestError(
            f"pipeline {self.name!r} has no stage or pass {anchor!r}",
            hint=did_you_mean(anchor, known),
        )


def _splice(
    items: tuple[T, ...], at: int, new: Sequence[T], *, before: bool, keep: bool
) -> tuple[T, ...]:
    kept = items[at : at + 1] if keep else ()
    middle = (*new, *kept) if before else (*kept, *new)
    return (*items[:at], *middle, *items[at + 1 :])


def _run(
    stage: Stage,
    p: Pass,
    module: Module,
    ctx: PassContext,
    form: str,
    watching: Sequence[Instrument],
) -> Module:
    try:
        start = time.perf_counter()
        result = p.run(module, ctx)
        seconds = time.perf_counter() - start
        for instrument in watching:
            instrument.passed(stage.name, p, module, result, form, seconds)
    except Exception as error:
        error.add_note(f"while running pass {p.name!r} ({p.purpose})")
        raise
    return result
