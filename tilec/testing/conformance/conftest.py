"""Hooks of the kit: what is collected, and the table at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilec.testing.conformance import plugin
from tilec.testing.conformance.cases import groups
from tilec.testing.conformance.report import Report
from tilec.testing.conformance.run import Subject, subject

REPORT = pytest.StashKey[Report]()
SUBJECT = pytest.StashKey[Subject]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """For runs by path from a tree that is not installed."""
    plugin.pytest_addoption(parser)


def _subject(config: pytest.Config) -> Subject:
    if SUBJECT not in config.stash:
        option = config.getoption
        config.stash[SUBJECT] = subject(
            option("--tilec-target"),
            execution_backend=option("--tilec-execution-backend"),
            device=option("--tilec-device"),
            ulps=option("--tilec-ulps"),
            rtol=option("--tilec-rtol"),
            seed=option("--tilec-seed"),
        )
    return config.stash[SUBJECT]


def _report(config: pytest.Config) -> Report:
    return config.stash.setdefault(REPORT, Report())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each group of checks."""
    if "conformance_group" in metafunc.fixturenames:
        option = metafunc.config.getoption
        chosen = groups(option("--tilec-sample"), option("--tilec-seed"))
        metafunc.parametrize("conformance_group", chosen, ids=[g.name for g in chosen])


@pytest.fixture
def conformance_subject(request: pytest.FixtureRequest) -> Subject:
    """The target under test."""
    return _subject(request.config)


@pytest.fixture
def conformance_report(request: pytest.FixtureRequest) -> Report:
    """Where outcomes are counted."""
    return _report(request.config)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The table, and the files that were asked for."""
    report = _report(config)
    if not report.entries:
        return
    given = _subject(config)
    terminalreporter.section(f"conformance of target {given.spec}")
    for line in report.text():
        terminalreporter.line(line)
    path = config.getoption("--tilec-report")
    if path:
        text = json.dumps(report.json(given), indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")
    path = config.getoption("--tilec-table")
    if path:
        command = (
            f"pytest --pyargs tilec.testing.conformance --tilec-target={given.spec} "
            f"--tilec-table={path}"
        )
        Path(path).write_text(report.markdown(given, command), encoding="utf-8")
