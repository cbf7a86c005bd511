"""The conformance kit: on target c, and what it says about backends that are wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import CapabilityError
from tilec.testing.conformance import cases, run
from tilec.testing.conformance.checks import Check, Param, program
from tilec.testing.conformance.report import Report
from tilec.testing.conformance.run import FAIL, PASS, REFUSED, Subject, run_checks, subject

pytest.importorskip("tilec_c")

ROOT = Path(__file__).parents[2]
ADD = Check(
    "add",
    "float32",
    (Param("A", (7,), "float32"), Param("O", (9,), "float32", "mark")),
    "with T.Kernel(1, threads=32):\n    for i in T.Parallel(7):\n        O[i] = A[i] + 1",
)


@pytest.fixture(scope="module")
def given() -> Subject:
    return subject("c")


def pytest_kit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The kit from outside of the checkout."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tilec.testing.conformance.plugin"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, "--pyargs", "tilec.testing.conformance", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip


def test_sample_on_c(tmp_path: Path) -> None:
    done = pytest_kit(
        tmp_path, "--tilec-target=c", "--tilec-sample=8", "--tilec-seed=1",
        "--tilec-report=r.json", "--tilec-table=t.md",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "conformance of target c" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert report["target"] == "c"
    assert report["failures"] == []
    assert report["totals"]["fail"] == 0
    assert report["totals"]["pass"] > 50
    counted = sum(
        n for row in report["table"].values() for cell in row.values() for n in cell.values()
    )
    assert counted == sum(report["totals"].values())
    page = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "--tilec-target=c --tilec-table=t.md" in page
    assert "8 passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.slow
def test_everything_on_c(given: Subject) -> None:
    report = Report()
    for group in cases.groups():
        for check, outcome in zip(group.checks, run_checks(group.checks, given), strict=True):
            report.add(check, outcome)
            assert outcome.status != FAIL, outcome.detail
    assert report.totals()[PASS] > 2500


def test_an_unknown_target_is_an_error_and_not_a_pass(tmp_path: Path) -> None:
    done = pytest_kit(tmp_path, "--tilec-target=nonesuch", "--tilec-sample=2")
    assert done.returncode != 0
    assert "target kind 'nonesuch'" in done.stdout + done.stderr


def test_groups_have_unique_names_and_samples_repeat() -> None:
    every = [group.name for group in cases.groups()]
    assert len(every) == len(set(every))
    assert cases.groups(10, 1) == cases.groups(10, 1) != cases.groups(10, 2)
    families = {group.family for group in cases.groups(16, 0)}
    assert len(families) == len(cases.FAMILIES)  # one of each to begin with


def test_every_check_can_be_traced_and_no_two_are_the_same() -> None:
    seen: set[str] = set()
    for group in cases.groups(40, 3):
        for check in group.checks:
            text = program([check])
            T.from_script(text)
            assert text not in seen or check.kind != "exact" or check.dtype == "bool", text
            seen.add(text)


# Backends that are wrong


def kernel_that(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels compute what they should, and then `change` their arguments."""
    compile_for = run.compile_for

    def wrong(func: Any, given: Subject) -> Any:
        kernel = compile_for(func, given)

        def call(*args: Any) -> None:
            kernel(*args)
            change(*args)

        return call

    monkeypatch.setattr(run, "compile_for", wrong)


def _beside(a: Any, o: Any) -> None:
    del a
    np.lib.stride_tricks.as_strided(o, (10,))[9] = 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a, o: o.__setitem__(3, 77), "O, element 3 of its storage (1 of 9 differ)"),
        (lambda a, o: o.__setitem__(8, 77), "O, element 8"),  # behind what the kernel writes
        (lambda a, o: a.__setitem__(0, 77), "A, element 0"),  # an input
        (_beside, "something was written beside O"),
    ],
)
def test_wrong_answers_are_found(
    change: Any, text: str, given: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_that(change, monkeypatch)
    [outcome] = run_checks([ADD], given)
    assert outcome.status == FAIL
    assert text in outcome.detail
    assert "def main(" in outcome.detail


def with_table(given: Subject, **facts: Any) -> Subject:
    """A subject whose capability table says something else than its backend does."""

    class Context:
        capabilities = dataclasses.replace(given.capabilities, **facts)
        module = given.context.module

    return given._replace(context=Context())  # type: ignore[arg-type]


def test_disclaimed_and_compiled_is_a_failure(given: Subject) -> None:
    [outcome] = run_checks([ADD], with_table(given, unsupported={"add:float32": "no adder"}))
    assert outcome.status == FAIL
    assert "disclaimed (no adder), but it compiles" in outcome.detail


def test_refused_and_not_disclaimed_is_a_failure(given: Subject) -> None:
    check = ADD._replace(
        dtype="float8_e5m2", params=tuple(p._replace(dtype="float8_e5m2") for p in ADD.params)
    )
    assert run_checks([check], given)[0].status == REFUSED
    [outcome] = run_checks([check], with_table(given, dtypes=frozenset({"*"})))
    assert outcome.status == FAIL
    assert "not disclaimed, but refused: CapabilityError" in outcome.detail


def test_one_bad_check_does_not_hide_the_others(given: Subject) -> None:
    bad = ADD._replace(
        params=tuple(p._replace(dtype="float8_e5m2") for p in ADD.params), dtype="float8_e5m2"
    )
    outcomes = run_checks([ADD, bad, ADD], with_table(given, dtypes=frozenset({"*"})))
    assert [o.status for o in outcomes] == [PASS, FAIL, PASS]


def test_tensors_of_torch(given: Subject) -> None:
    pytest.importorskip("torch")
    group = next(g for g in cases.groups() if g.name == "parameters-float16")
    elsewhere = given._replace(device="cpu:0")  # any name but "cpu" means a device of torch
    assert {o.status for o in run_checks(group.checks, elsewhere)} == {PASS}


@pytest.mark.parametrize(
    ("kind", "want", "got", "good"),
    [
        ("exact", 1.0, 1.0, True),
        ("exact", 1.0, 1.0000001, False),
        ("exact", np.nan, np.nan, True),
        ("exact", 0.0, -0.0, False),
        ("equal", 0.0, -0.0, True),
        ("math", 1.0, 1.0000004, True),
        ("math", 1.0, 1.000001, False),
        ("math", np.inf, 3e38, False),
        ("math", np.nan, 1.0, False),
        ("math", 1e-45, 4e-45, True),
        ("sum", 1.0, 1.000005, True),
        ("sum", 1.0, 1.0001, False),
    ],
)
def test_what_is_close_enough(
    kind: str, want: float, got: float, good: bool, given: Subject
) -> None:
    a, b = np.array([want], np.float32), np.array([got], np.float32)
    assert run.close(a, b, "float32", kind, given).tolist() == [good]


# The capability table and scalars


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("erf", "T.erf(A[i])"),
        ("erf:float32", "T.erf(A[i])"),
        ("truncmod", "T.truncmod(A[i], 3.0)"),
        ("mul:float32", "A[i] * 2"),
    ],
)
def test_a_table_may_disclaim_scalar_operations(key: str, text: str, given: Subject) -> None:
    func = T.from_script(program([ADD._replace(body=ADD.body.replace("A[i] + 1", text))]))
    assert run.disclaimed(func, given.capabilities) is None
    table = dataclasses.replace(given.capabilities, unsupported={key: "too hard"})
    assert run.disclaimed(func, table) == "too hard"
    context = given.context
    changed = dataclasses.replace(context.module, capabilities=lambda target: table)
    backend = dataclasses.replace(context, module=changed)
    with pytest.raises(CapabilityError, match="too hard") as caught:
        backend.lower(tilec.ir.Module({func.name: func}))
    assert caught.value.span is not None
    assert (
        caught.value.span.line
        == program([ADD]).splitlines().index("            O_0[i] = A_0[i] + 1") + 1
    )
