"""The error family.

Every error that a user can cause is a `TilecError`, and also the builtin that callers of such
libraries would catch. Each concrete class has one code, explained in ``docs/errors/<code>.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import ClassVar, Self

from tilec.diagnostics.render import render
from tilec.diagnostics.span import Span


class TilecError(Exception):
    """Root of all errors raised on purpose.

    Attributes:
        message: one sentence about the user's construct, without location.
        span: where it was written, or None.
        hint: what to do about it, or None.
        notes: facts that matter, such as shapes, dtypes and scopes.
    """

    code: ClassVar[str] = "TC0000"

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        hint: str | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint
        self.notes: tuple[str, ...] = tuple(notes)

    def with_span(self, span: Span | None) -> Self:
        """Fill in the place if none is known yet; returns the error itself."""
        if span is not None and span.known and (self.span is None or not self.span.known):
            self.span = span
        return self

    def __str__(self) -> str:
        return render(
            self.message,
            label=f"error[{self.code}]",
            span=self.span,
            notes=self.notes,
            hint=self.hint,
        )


class TilecWarning(UserWarning):
    """A located warning; shown through the standard `warnings` machinery."""


def warn(
    message: str,
    *,
    span: Span | None = None,
    hint: str | None = None,
    notes: Iterable[str] = (),
    category: type[Warning] = TilecWarning,
) -> None:
    """Issue a warning at the user's line, so that filters and "once per place" work as usual."""
    if span is None or not span.known:
        text = render(message, label="warning", notes=tuple(notes), hint=hint)
        warnings.warn(text, category, stacklevel=2)
        return
    text = render(message, label="warning", span=span, notes=tuple(notes), hint=hint)
    warnings.warn_explicit(text, category, span.file, span.line)


def did_you_mean(name: str, known: Iterable[str], *, listing: str = "known") -> str:
    """A hint that proposes close names, or lists what there is."""
    import difflib  # noqa: PLC0415 - only for errors

    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        scores = [difflib.SequenceMatcher(None, name, c).ratio() for c in close]
        close = [c for c, score in zip(close, scores, strict=True) if score > scores[0] - 0.1]
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    if not names:
        return f"{listing}: none"
    shown = ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")
    return f"{listing}: {shown}"


# --- TC01xx: front end ---------------------------------------------------------------------------


class UnsupportedSyntaxError(TilecError, NotImplementedError):
    """A Python construct that the staged subset cannot express."""

    code = "TC0101"


class ScopeError(TilecError, RuntimeError):
    """A run-time value used outside its region, or re-bound under run-time control."""

    code = "TC0102"


class StagedTruthError(TilecError, TypeError):
    """A run-time value used where Python needs a bool, an int or an index now."""

    code = "TC0103"


class UnknownNameError(TilecError, AttributeError):
    """A name that the language or an object does not have."""

    code = "TC0104"


class NoTraceError(TilecError, RuntimeError):
    """A language construct used outside a kernel."""

    code = "TC0105"


class JITArgumentError(TilecError, ValueError):
    """Arguments of a jitted function that do not fit its signature."""

    code = "TC0106"


class JITModeError(TilecError, ValueError):
    """Something asked of a jitted function that its lazy or eager mode does not have."""

    code = "TC0107"


class ReturnError(TilecError, RuntimeError):
    """A kernel that returns what cannot be returned."""

    code = "TC0108"


# --- TC02xx: types -------------------------------------------------------------------------------


class DTypeError(TilecError, TypeError):
    """An unknown dtype, or dtypes that do not go together."""

    code = "TC0201"


class LiteralRangeError(TilecError, ValueError):
    """A constant that its type cannot hold."""

    code = "TC0202"


class AmbiguousDivisionError(TilecError, RuntimeError):
    """A division whose rounding the program does not say."""

    code = "TC0203"


# --- TC03xx: shapes and operations ---------------------------------------------------------------


class ShapeError(TilecError, ValueError):
    """Extents that do not fit together."""

    code = "TC0301"


class IndexCountError(TilecError, IndexError):
    """More or fewer indices than the buffer has dimensions."""

    code = "TC0302"


class OutOfBoundsError(TilecError, IndexError):
    """An access that is provably outside its buffer."""

    code = "TC0303"


class NestingError(TilecError, ValueError):
    """A construct inside another that cannot hold it."""

    code = "TC0304"


class LaunchError(TilecError, ValueError):
    """A launch geometry that cannot be."""

    code = "TC0305"


class OperandError(TilecError, TypeError):
    """An operand or keyword of the wrong kind."""

    code = "TC0306"


class GemmShapeError(ShapeError, AssertionError):
    """Matrix multiply operands whose shapes do not agree."""

    code = "TC0307"


# --- TC04xx: targets and plugins -----------------------------------------------------------------


class TargetError(TilecError, ValueError):
    """An unknown, malformed or undetectable target."""

    code = "TC0401"


class CapabilityError(TilecError, NotImplementedError):
    """Something that the chosen target cannot do."""

    code = "TC0402"


class PluginError(TilecError, RuntimeError):
    """A plugin that cannot be loaded or speaks another API version."""

    code = "TC0403"


class ManifestError(TilecError, ValueError):
    """A backend manifest that contradicts itself or another one."""

    code = "TC0404"


class BackendSelectionError(TilecError, ValueError):
    """An execution backend that does not exist, does not apply or is unavailable."""

    code = "TC0405"


class CapacityError(TilecError, MemoryError):
    """A block that needs more on-chip memory than the target has."""

    code = "TC0406"


# --- TC05xx: tool chain --------------------------------------------------------------------------


class ToolchainError(TilecError, RuntimeError):
    """A compiler or library that is missing or does not work."""

    code = "TC0501"


class NativeCompileError(TilecError, RuntimeError):
    """Generated source that the native compiler refused."""

    code = "TC0502"


# --- TC06xx: call time ---------------------------------------------------------------------------


class ArgumentCountError(TilecError, ValueError):
    """A kernel called with too many or too few arguments."""

    code = "TC0601"


class ArgumentTypeError(TilecError, TypeError):
    """A kernel argument of the wrong kind or dtype."""

    code = "TC0602"


class ArgumentValueError(TilecError, ValueError):
    """A kernel argument with a wrong shape, stride, device or value."""

    code = "TC0603"


class OutputAllocationError(TilecError, RuntimeError):
    """An output that cannot be allocated."""

    code = "TC0604"


class KernelRuntimeError(TilecError, RuntimeError):
    """A failure while the kernel ran, such as a device assertion."""

    code = "TC0605"


# --- TC07xx: configuration -----------------------------------------------------------------------


class OptionError(TilecError, ValueError):
    """An unknown option or an option value of the wrong type."""

    code = "TC0701"


class PassConfigError(TilecError, AttributeError):
    """An unknown pass configuration key or a value of the wrong type."""

    code = "TC0702"


# --- TC08xx: findings of the interpreter ----------------------------------------------------------


class UndefinedValueError(TilecError, RuntimeError):
    """A value is read that was never written."""

    code = "TC0801"


class RaceError(TilecError, RuntimeError):
    """Two accesses to one element, one of them a write, that nothing orders."""

    code = "TC0802"


class OutOfBoundsAccessError(TilecError, IndexError):
    """An access outside of its buffer, found while the program ran."""

    code = "TC0803"


class MissingFenceError(TilecError, RuntimeError):
    """Accesses that are ordered, but not visible to what makes the second one."""

    code = "TC0804"


class BarrierError(TilecError, RuntimeError):
    """A barrier that is not initialised, or whose count is not the number of arrivals."""

    code = "TC0805"


class DeadlockError(TilecError, RuntimeError):
    """Lanes that wait for something that cannot happen any more."""

    code = "TC0806"


class DivergenceError(TilecError, RuntimeError):
    """Part of a warp gets to what its lanes do together."""

    code = "TC0807"


# --- TC09xx: our own mistakes --------------------------------------------------------------------


class VerifyError(TilecError, RuntimeError):
    """IR that breaks a rule of its form; a compiler or plugin bug."""

    code = "TC0901"


class InternalError(TilecError, RuntimeError):
    """A state the compiler should never reach."""

    code = "TC0902"


for _cls in tuple(vars().values()):
    if isinstance(_cls, type) and issubclass(_cls, (TilecError, TilecWarning)):
        _cls.__module__ = "tilec.diagnostics"  # where users find them, and what tracebacks show
