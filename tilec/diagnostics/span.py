"""Where in the user's source something was written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text.

    Lines and columns are 1-based; columns count UTF-8 bytes, as Python's own positions do (`ast`,
    ``co_positions``), so that no source is read while tracing; the renderer shows characters.
    `end_col` is exclusive.

    Attributes:
        file: path as the code object knows it; `linecache` finds the text under this name.
        line: first line; 0 where nothing is known.
        col: first column.
        end_line: last line.
        end_col: one past the last column.
        call_site: where the code was called from, for code inlined from a macro or helper.
    """

    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    call_site: Span | None = None

    @property
    def known(self) -> bool:
        """Whether this names a place."""
        return self.line > 0

    def call_sites(self) -> tuple[Span, ...]:
        """The places this code was inlined through, innermost first."""
        chain: list[Span] = []
        site = self.call_site
        while site is not None:
            chain.append(site)
            site = site.call_site
        return tuple(chain)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"


NO_SPAN = Span("<unknown>", 0, 0, 0, 0)
