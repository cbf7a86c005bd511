"""Pass verification: a program means the same before and after every pass.

`VerifyPasses` runs the interpreter on generated arguments before the first pass and after each one
that changed something, and compares what is in memory afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilec import ir
from tilec.backend.components import Meaning
from tilec.backend.instruments import Instrument
from tilec.diagnostics import TilecError, VerifyError
from tilec.interp import Program
from tilec.interp.groups import Array
from tilec.interp.inputs import Inputs, Unsuitable, make_inputs
from tilec.interp.machine import LimitError
from tilec.interp.split import CALL
from tilec.interp.values import ATOMICS
from tilec.ir.intrinsics import INTRINSICS
from tilec.transform.flatten import OPERANDS, REGION_CALLS
from tilec.transform.negative_index import LegalizeNegativeIndex

if TYPE_CHECKING:
    from tilec.backend.pipeline import PassPipeline
    from tilec.transform.base import Pass, PassContext

DEFAULT_LIMIT = 400_000
"""Steps that one run may take: some seconds."""
_BOXES = REGION_CALLS | {"ldmatrix", "stmatrix"}
_FORMS = ("tile", "thread", "split")
_ROUNDING = {"float64": 1e-12, "float32": 2e-5, "float16": 8e-3, "bfloat16": 6e-2}
_EXACT = ("floor", "ceil", "trunc", "nearbyint", "round", "abs", "fma", "clamp", "isnan", "isinf",
          "isfinite", "reinterpret", "copysign", "sync")  # fmt: skip
_TRIALS: tuple[dict[str, Any], ...] = (
    {}, {"low": 0, "high": 4}, {"sizes": (16,)}, {"sizes": (16,), "low": 0, "high": 4},
)  # fmt: skip
"""Arguments that are tried in turn, until the program accepts some."""


class Place(NamedTuple):
    """The first element at which two runs differ, and its values in both."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} was {self.before} and is {self.after}"


class VerifyPasses(Instrument):
    """Names the pass that changes what a program computes, and the first element it changes.

    What cannot be verified is left out and recorded as a remark: programs that find no arguments
    on which they are defined, that take more than `limit` steps, that depend on the order of atomic
    updates, or that use intrinsics without a meaning.

    Args:
        meanings: of the backend's own intrinsics.
        limit: steps that one run of the interpreter may take.

    Attributes:
        verified: names of the passes whose result was compared.
        skipped: what was left out, with the reason.
    """

    def __init__(
        self, meanings: Mapping[str, Meaning] | None = None, limit: int = DEFAULT_LIMIT
    ) -> None:
        self._meanings = dict(meanings or {})
        self._limit = limit
        self._ctx: PassContext | None = None
        self.verified: list[str] = []
        self.skipped: list[str] = []

    def started(self, pipeline: PassPipeline, module: ir.Module, ctx: PassContext) -> None:
        """Find arguments, and what the program makes of them."""
        del pipeline
        self._ctx = ctx
        self._inputs: Inputs | None = None
        self._want: Inputs | None = None
        self._negative = True
        self._between: list[str] = []
        try:
            self._baseline(module)
        except Unsuitable as reason:
            self._skip(str(reason))

    def _skip(self, reason: str) -> None:
        self.skipped.append(reason)
        if self._ctx is not None:
            self._ctx.remark("verify_passes", f"skipped: {reason}")

    def _baseline(self, module: ir.Module) -> None:
        if len(module.functions) != 1:
            raise Unsuitable("there is more than one function")
        (func,) = module.functions.values()
        self._func = func
        reason = _unordered(func) or self._unknown(module)
        if reason is not None:
            raise Unsuitable(reason)
        self._tolerance = _tolerance(func)
        program = Program(_all_given(func), meanings=self._meanings, limit=self._limit)
        for trial in _TRIALS:
            inputs = make_inputs(func, 1, real=self._tolerance is None, **trial)
            want = inputs.copy()
            try:
                program(*want.values, check=True)
            except LimitError:
                raise Unsuitable(f"it takes more than {self._limit} steps") from None
            except TilecError as error:
                found = f"the generated arguments do not suit it: {str(error).splitlines()[0]}"
                continue
            self._inputs, self._want = inputs, want
            return
        raise Unsuitable(found)

    def _unknown(self, module: ir.Module) -> str | None:
        """Why the interpreter cannot run a module."""
        for func in module.functions.values():
            for node in ir.walk(func.body):
                if isinstance(node, ir.Call) and not (
                    node.name in INTRINSICS or node.name in self._meanings or node.name == CALL
                ):
                    return f"the interpreter knows no meaning of {node.name}"
                if isinstance(node, ir.Call) and node.name in _BOXES and _is_flat(node):
                    return f"operands of {node.name} are flat, which the interpreter does not run"
        return None

    def passed(
        self, stage: str, p: Pass, before: ir.Module, after: ir.Module, form: str, seconds: float
    ) -> None:
        """Compare what the pass gave.

        Raises:
            VerifyError: it computes something else, or cannot be executed.
        """
        del seconds
        self._negative = self._negative and not isinstance(p, LegalizeNegativeIndex)
        if after is before or self._inputs is None or self._want is None:
            return
        reason = self._unknown(after)
        if form not in _FORMS:
            reason = f"{form} form is the backend's own"
        elif form == "split" and not _launches(after):
            reason = "its host function launches nothing"
        if reason is None:
            reason = self._run(f"{stage}.{p.name}", after, form)
        if reason is not None:
            self._between.append(f"{stage}.{p.name}")
            self._skip(f"after {stage}.{p.name}: {reason}")

    def _run(self, name: str, after: ir.Module, form: str) -> str | None:
        assert self._inputs is not None
        assert self._want is not None
        subject: Any = after.map(_all_given)
        if form != "split":
            (subject,) = subject.functions.values()
        got = self._inputs.copy()
        program = Program(
            subject, meanings=self._meanings, limit=self._limit, negative=self._negative
        )
        try:
            program(*got.values)
        except LimitError:
            return f"it takes more than {self._limit} steps"
        except TilecError as error:
            raise VerifyError(
                f"after pass {name} the program of {self._func.name} cannot be executed any more: "
                f"{error.message}",
                span=error.span,
                notes=self._notes(),
            ) from error
        place = first_change(self._func, self._want, got, self._tolerance)
        if place is not None:
            raise VerifyError(
                f"pass {name} changes what {self._func.name} computes: {place}",
                span=self._func.span,
                notes=self._notes(),
            )
        self.verified.append(name)
        self._between.clear()
        return None

    def _notes(self) -> list[str]:
        shown = [
            f"{param.name}: {value if np.ndim(value) == 0 else f'tensor {value.shape}'}"
            for param, value in zip(self._func.params, self._inputs.values, strict=True)  # type: ignore[union-attr]
        ]
        notes = ["arguments: " + ", ".join(shown)]
        if self._between:
            notes.append(f"not verified since the last comparison: {', '.join(self._between)}")
        return notes


def _is_flat(call: ir.Call) -> bool:
    """Whether `FlattenBuffers` has left only the first element of a call's regions."""
    sizes = [a.extents for a in call.args if isinstance(a, ir.BufferRegion)]
    return OPERANDS in call.attrs or sizes == [(1,)]


def _launches(module: ir.Module) -> bool:
    """Whether a host function says itself which device functions run; a runtime may do that."""
    return any(
        isinstance(node, ir.Call) and node.name == CALL
        for func in module.functions.values()
        for node in ir.walk(func.body)
    )


def _all_given(func: ir.PrimFunc) -> ir.PrimFunc:
    """The function with its outputs as arguments."""
    return func.with_attr("out_idx", ()) if "out_idx" in func.attrs else func


def first_change(
    func: ir.PrimFunc, want: Inputs, got: Inputs, tolerance: float | None
) -> Place | None:
    """The first element that two runs leave different, in the order of the parameters.

    Args:
        func: whose parameters the inputs are.
        want: after the first run.
        got: after the second.
        tolerance: of floats, relative to the largest one; None for the same bits, any NaN being as
            good as another.
    """
    for n, param in enumerate(func.params):
        a, b = want.storage[n], got.storage[n]
        if a is None or b is None:
            continue
        if _same(a, b, tolerance).all():
            continue
        wrong = np.argwhere(~_same(want.values[n], got.values[n], tolerance))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            return Place(f"{param.name}{list(at)}", want.values[n][at], got.values[n][at])
        at = (int(np.argmax(~_same(a, b, tolerance))),)
        return Place(f"the gap at {at[0]} of the memory of {param.name}", a[at], b[at])
    return None


def _same(a: Array, b: Array, tolerance: float | None) -> Array:
    equal = np.asarray(a == b)
    if a.dtype.kind in "iub":
        return equal
    nan = np.asarray((a != a) & (b != b))
    if tolerance is None:
        zero = np.asarray((a == 0) & (b == 0))
        return np.asarray((equal & (~zero | (np.signbit(a) == np.signbit(b)))) | nan)
    with np.errstate(all="ignore"):
        wide, other = a.astype(np.float64), b.astype(np.float64)
        scale = np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0)
        near = np.abs(wide - other) <= tolerance * max(scale, 1e-30)
    return np.asarray(equal | nan | near)


def _unordered(func: ir.PrimFunc) -> str | None:
    """Why the results of a function depend on an order that nothing fixes."""
    alone: set[int] = set()
    for node in ir.walk(func.body):
        if isinstance(node, ir.Evaluate):
            alone.add(id(node.value))
    for node in ir.walk(func.body):
        if isinstance(node, ir.Call) and node.name in ATOMICS and id(node) not in alone:
            return "it uses what an atomic update found, which depends on the order of updates"
    return None


def _tolerance(func: ir.PrimFunc) -> float | None:
    """How far floats may move; None where nothing leaves the order of operations open."""
    if not any(_is_open(node) for node in ir.walk(func.body)):
        return None
    typed = (n for n in ir.walk(func.body) if isinstance(n, (ir.Expr, ir.Buffer)))
    dtypes = {n.dtype.scalar for n in (*typed, *func.params)}
    return max((_ROUNDING.get(str(d), 0.5) for d in dtypes if d.is_float), default=None)


def _is_open(node: Any) -> bool:
    """Whether a node sums in any order, or computes a function that is not exact."""
    if isinstance(node, ir.TileOp):
        return not getattr(node, "elementwise", False)
    return isinstance(node, ir.Call) and node.name not in _EXACT
