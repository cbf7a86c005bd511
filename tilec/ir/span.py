"""Source positions of staged operations, taken from the calling Python frame."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType, TracebackType

from tilec.diagnostics import NO_SPAN, Span

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INTERNAL: dict[CodeType, bool] = {}
_POSITIONS: dict[CodeType, list[tuple[int | None, int | None, int | None, int | None]]] = {}


def _is_internal(frame: FrameType) -> bool:
    """Whether a frame belongs to the compiler or to a dialect rather than to user source.

    A module of a backend whose functions kernels call says so with ``__tilec_dialect__``.
    """
    code = frame.f_code
    known = _INTERNAL.get(code)
    if known is None:
        known = code.co_filename.startswith(_PACKAGE) or code.co_filename.startswith("<__tilec")
        known = known or code.co_filename.endswith(("contextlib.py", "functools.py"))
        known = known or "__tilec_dialect__" in frame.f_globals
        _INTERNAL[code] = known
    return known


def frame_span(frame: FrameType) -> Span:
    """The span of the instruction that `frame` is executing."""
    return _code_span(frame.f_code, frame.f_lasti, frame.f_lineno or 0)


def _code_span(code: CodeType, last_instruction: int, fallback: int) -> Span:
    table = _POSITIONS.get(code)
    if table is None:
        table = _POSITIONS[code] = list(code.co_positions())
    index = last_instruction // 2
    line, end_line, col, end_col = table[index] if 0 <= index < len(table) else (None,) * 4
    if line is None:
        line = fallback
    return Span(
        code.co_filename,
        line,
        (col or 0) + 1,
        end_line or line,
        (end_col if end_col is not None else (col or 0)) + 1,
    )


def caller_span() -> Span:
    """The span of the innermost frame outside the compiler (`NO_SPAN` if there is none)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
    return NO_SPAN if frame is None else frame_span(frame)


def traceback_span(error: BaseException, *, innermost_only: bool = False) -> Span:
    """The span of the innermost frame of a traceback that is outside the compiler.

    With `innermost_only` that frame must be the one that raised; `NO_SPAN` otherwise.
    """
    found: TracebackType | None = None
    last = error.__traceback__
    while last is not None:
        if not _is_internal(last.tb_frame):
            found = last
        if last.tb_next is None:
            break
        last = last.tb_next
    if found is None or (innermost_only and found is not last):
        return NO_SPAN
    return _code_span(found.tb_frame.f_code, found.tb_lasti, found.tb_lineno)
