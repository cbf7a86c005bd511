"""Rendering of errors: text, caret placement, call sites."""

from __future__ import annotations

import linecache
import pickle
import warnings

import pytest

from tilec.diagnostics import (
    NO_SPAN,
    GemmShapeError,
    ShapeError,
    Span,
    TilecError,
    TilecWarning,
    did_you_mean,
    warn,
)

FILE = "<render-test>"
SOURCE = [
    "def kernel(A, B):\n",
    "\tT.copy(A, B)\n",
    '    T.print("漢字", A)  # wide\n',
    "    T.gemm(\n",
    "        A, B)\n",
]


@pytest.fixture(autouse=True)
def _source() -> None:
    linecache.cache[FILE] = (sum(map(len, SOURCE)), None, SOURCE, FILE)


def span(line: int, first: str, *, end_line: int | None = None) -> Span:
    text = SOURCE[line - 1]
    col = len(text[: text.index(first)].encode())
    return Span(FILE, line, col + 1, end_line or line, col + len(first.encode()) + 1)


def test_message_without_place() -> None:
    assert str(ShapeError("extents differ")) == "error[TC0301]: extents differ"
    assert str(ShapeError("extents differ", span=NO_SPAN)) == "error[TC0301]: extents differ"


def test_full_text() -> None:
    error = ShapeError(
        "T.copy: A and B differ",
        span=span(2, "T.copy(A, B)"),
        notes=["A: float16[4, 4]\nin shared", "B: float16[8, 4]"],
        hint="slice A",
    )
    assert str(error).splitlines() == [
        "<render-test>:2:2: error[TC0301]: T.copy: A and B differ",
        "    2 |     T.copy(A, B)",
        "      |     ^^^^^^^^^^^^",
        "  = note: A: float16[4, 4]",
        "          in shared",
        "  = note: B: float16[8, 4]",
        "  = hint: slice A",
    ]


def test_wide_characters_take_two_cells() -> None:
    lines = str(ShapeError("x", span=span(3, "A"))).splitlines()
    assert lines[0].startswith("<render-test>:3:19:")  # characters, not bytes
    assert lines[1] == '    3 |     T.print("漢字", A)  # wide'
    assert lines[2] == "      | " + " " * 20 + "^"
    under = str(ShapeError("x", span=span(3, "漢字"))).splitlines()[2]
    assert under.count("^") == 4


def test_several_lines_are_underlined_to_the_end_of_the_first() -> None:
    lines = str(ShapeError("x", span=span(4, "T.gemm(", end_line=5))).splitlines()
    assert lines[2] == "      |     ^^^^^^^"


def test_call_sites_follow_innermost_first() -> None:
    outer = span(2, "T.copy(A, B)")
    inner = Span(FILE, 1, 1, 1, 4, call_site=outer)
    lines = str(ShapeError("x", span=inner)).splitlines()
    assert lines[0].startswith("<render-test>:1:1: error")
    assert lines[3] == "<render-test>:2:2: note: called from here"
    assert inner.call_sites() == (outer,)


def test_deep_call_chains_are_cut() -> None:
    site: Span | None = None
    for _ in range(10):
        site = Span(FILE, 1, 1, 1, 4, call_site=site)
    text = str(ShapeError("x", span=site))
    assert text.count("called from here") == 6
    assert "3 more call sites are not shown" in text


def test_unreadable_source_and_odd_columns_do_not_fail() -> None:
    assert str(ShapeError("x", span=Span("/no/such/file.py", 3, 1, 3, 2))) == (
        "/no/such/file.py:3:1: error[TC0301]: x"
    )
    for col, end in ((0, 0), (500, 900), (5, 2)):
        assert "^" in str(ShapeError("x", span=Span(FILE, 2, col, 2, end)))


def test_with_span_fills_only_a_missing_place() -> None:
    first, second = span(2, "T.copy(A, B)"), Span(FILE, 1, 1, 1, 4)
    error = ShapeError("x")
    assert error.with_span(NO_SPAN).span is None
    assert error.with_span(first).with_span(second) is error
    assert error.span == first


def test_builtin_bases_and_pickling() -> None:
    with pytest.raises(AssertionError):
        raise GemmShapeError("inner extents differ")
    with pytest.raises(ValueError, match="inner extents"):
        raise GemmShapeError("inner extents differ")
    error = ShapeError("x", hint="h", notes=["n"], span=span(2, "A"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)


def test_warning_sits_on_the_user_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("odd", span=span(2, "A"))
        warn("odd")
    assert caught[0].filename == FILE
    assert caught[0].lineno == 2
    assert caught[1].filename == __file__
    assert issubclass(caught[0].category, TilecWarning)


def test_did_you_mean() -> None:
    assert did_you_mean("verbos", ["verbose", "cc"]) == "did you mean 'verbose'?"
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("zzz", []) == "known: none"


def test_every_class_has_its_own_code() -> None:
    def family(cls: type[TilecError]) -> set[type[TilecError]]:
        return {cls}.union(*(family(sub) for sub in cls.__subclasses__()))

    classes = {cls for cls in family(TilecError) if cls.__module__.startswith("tilec.")}
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
