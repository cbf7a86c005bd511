"""Every group of checks on the target under test."""

from __future__ import annotations

import pytest

from tilec.testing.conformance.checks import Group
from tilec.testing.conformance.report import Report
from tilec.testing.conformance.run import FAIL, Subject, run_checks


def test_conformance(
    conformance_group: Group, conformance_subject: Subject, conformance_report: Report
) -> None:
    """Passes, or is refused where the capability table says so."""
    outcomes = run_checks(conformance_group.checks, conformance_subject)
    wrong = []
    for check, outcome in zip(conformance_group.checks, outcomes, strict=True):
        conformance_report.add(check, outcome)
        if outcome.status == FAIL:
            wrong.append(f"{check}\n{outcome.detail}")
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)
