"""Options: precedence, parsing, refusals."""

from __future__ import annotations

import contextvars
from pathlib import Path

import pytest

from tilec.diagnostics import OptionError
from tilec.options import Options, options


def test_default_variable_and_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEC_NUM_THREADS", raising=False)
    assert options.num_threads == 0
    assert Options.num_threads.source() == "default"
    monkeypatch.setenv("TILEC_NUM_THREADS", "3")
    assert options.num_threads == 3
    assert Options.num_threads.source() == "TILEC_NUM_THREADS"
    with options(num_threads=5, verbose=True):
        assert (options.num_threads, options.verbose) == (5, True)
        assert Options.num_threads.source() == "block"
        with options(num_threads=None, verbose=False):
            assert (options.num_threads, options.verbose) == (5, False)
        assert options.verbose
    assert options.num_threads == 3


def test_other_contexts_do_not_see_a_block() -> None:
    fresh = contextvars.Context()
    with options(num_threads=7):
        assert fresh.run(lambda: options.num_threads) != 7


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("TILEC_VERBOSE", "yes", "verbose", True),
        ("TILEC_CACHE", "off", "cache", False),
        ("TILEC_CACHE_DIR", "/tmp/somewhere", "cache_dir", Path("/tmp/somewhere")),
        ("TILEC_TARGET", '{"kind": "x", "arch": "y"}', "target", {"kind": "x", "arch": "y"}),
        ("TILEC_TARGET", " x ", "target", "x"),
        ("CC", "ccache gcc", "cc", ("ccache", "gcc")),
        ("TILEC_DISABLE_PLUGINS", "a, b", "disable_plugins", ("a", "b")),
        ("TILEC_TRACEBACK", "full", "traceback", "full"),
        ("TILEC_VERBOSE", "", "verbose", False),
    ],
)
def test_variables(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: object
) -> None:
    monkeypatch.delenv("TILEC_CC", raising=False)
    monkeypatch.setenv(variable, text)
    assert getattr(options, name) == value


def test_own_variable_wins_over_the_customary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "one")
    monkeypatch.setenv("TILEC_CC", "two")
    assert options.cc == ("two",)


def test_bad_values_name_option_and_expectation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_VERBOSE", "maybe")
    with pytest.raises(OptionError, match=r"TILEC_VERBOSE: expected a bool .*'maybe'"):
        _ = options.verbose
    with pytest.raises(OptionError, match="option num_threads: expected a whole number"):
        options(num_threads=-1).__enter__()
    with pytest.raises(OptionError, match="num_threads"):
        options(num_threads=True).__enter__()
    with pytest.raises(ValueError, match="one of 'short', 'full'"):
        options(traceback="long").__enter__()


def test_unknown_option_is_refused_with_candidates() -> None:
    with pytest.raises(OptionError, match="no option 'verbos'") as info:
        options(verbos=True).__enter__()
    assert info.value.hint == "did you mean 'verbose'?"


def test_unknown_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_VERBOES", "1")
    assert "TILEC_VERBOES" in options.unknown_variables()
    assert "TILEC_VERBOSE" not in options.unknown_variables()


def test_options_cannot_be_assigned() -> None:
    with pytest.raises(AttributeError, match="with options"):
        options.verbose = True


def test_every_option_is_documented() -> None:
    for option in options.table():
        assert option.doc.endswith("."), option.name
        assert option.expects
        assert option.variables[0] == "TILEC_" + option.name.upper()


def test_reachable_from_the_package() -> None:
    import tilec

    assert tilec.options is options
    with tilec.options(num_threads=2):
        assert tilec.options.num_threads == 2
