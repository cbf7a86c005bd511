"""Text of a diagnostic: location, message, source line with caret, notes and hint."""

from __future__ import annotations

import linecache
from collections.abc import Sequence

from tilec.diagnostics.span import Span

_TAB = 4
_MAX_SITES = 6
"""Call sites shown; deeper recursion is summarised."""


def render(
    message: str,
    *,
    label: str,
    span: Span | None = None,
    notes: Sequence[str] = (),
    hint: str | None = None,
) -> str:
    """Format one diagnostic.

    Args:
        message: one sentence about the user's construct; further lines are kept as they are.
        label: kind and code, such as ``error[TC0301]``.
        span: the place; nothing is shown for an unknown one.
        notes: facts that matter (shapes, dtypes, scopes), one line each.
        hint: what to do about it.
    """
    lines: list[str] = []
    if span is None or not span.known:
        lines.append(f"{label}: {message}")
    else:
        lines.append(f"{_place(span)}: {label}: {message}")
        lines += frame(span)
        sites = [site for site in span.call_sites() if site.known]
        for site in sites[:_MAX_SITES]:
            lines.append(f"{_place(site)}: note: called from here")
            lines += frame(site)
        if len(sites) > _MAX_SITES:
            lines.append(f"  = note: {len(sites) - _MAX_SITES} more call sites are not shown")
    lines += [_item("note", note) for note in notes]
    if hint:
        lines.append(_item("hint", hint))
    return "\n".join(lines)


def frame(span: Span) -> list[str]:
    """The source line and an underline, or nothing where the source cannot be read."""
    source = linecache.getline(span.file, span.line).rstrip("\r\n")
    if not source.strip():
        return []
    first = min(_char_column(source, span.col), len(source) + 1)
    if span.end_line == span.line:
        last = _char_column(source, span.end_col)
    else:
        last = len(source.rstrip()) + 1
    last = min(max(last, first + 1), len(source) + 2)
    text, columns = _layout(source)
    start, stop = columns[first - 1], columns[min(last - 1, len(columns) - 1)]
    number = f"{span.line:>5}"
    return [
        f"{number} | {text}",
        f"{' ' * len(number)} | {' ' * start}{'^' * max(stop - start, 1)}",
    ]


def _place(span: Span) -> str:
    col = span.col
    source = linecache.getline(span.file, span.line)
    if source:
        col = _char_column(source, col)
    return f"{span.file}:{span.line}:{col}"


def _char_column(source: str, column: int) -> int:
    """The 1-based character column of a 1-based UTF-8 byte column."""
    if column <= 1 or source.isascii():
        return max(column, 1)
    return len(source.encode()[: column - 1].decode(errors="ignore")) + 1


def _item(kind: str, text: str) -> str:
    return f"  = {kind}: " + text.replace("\n", "\n" + " " * (6 + len(kind)))


def _layout(source: str) -> tuple[str, list[int]]:
    """Expand tabs; the display column at which each character (and the end) starts."""
    out: list[str] = []
    columns: list[int] = []
    at = 0
    for char in source:
        columns.append(at)
        if char == "\t":
            width = _TAB - at % _TAB
            char = " " * width
        else:
            width = _width(char)
        out.append(char)
        at += width
    columns.append(at)
    return "".join(out), columns


def _width(char: str) -> int:
    """Terminal cells taken by one character."""
    if char.isascii():
        return 1
    import unicodedata  # noqa: PLC0415 - only for the rare non-ASCII source line

    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
