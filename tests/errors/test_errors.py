"""Wrong programs and what the compiler says about them.

Each `<theme>/<case>.py` is a program with one mistake; `<case>.err` is the whole message. After a
change of a message run `pytest tests/errors --update-golden` and read the difference: a message
has the place, the source line, a caret under what is wrong, and a hint.
"""

import re
import runpy
from pathlib import Path

import pytest

from tilec.diagnostics import TilecError

HERE = Path(__file__).parent
CASES = sorted(path for path in HERE.glob("*/*.py"))
IDS = [f"{path.parent.name}/{path.stem}" for path in CASES]


def message(case: Path) -> str:
    """What the program says, with paths relative to this folder, whatever plugins are installed."""
    with pytest.raises(TilecError) as caught:
        runpy.run_path(str(case))
    text = str(caught.value).replace(f"{HERE}/", "")
    return re.sub(r"installed: auto[\w, ]*", "installed: auto, ...", text) + "\n"


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_message(case: Path, request: pytest.FixtureRequest) -> None:
    golden = case.with_suffix(".err")
    actual = message(case)
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(actual, encoding="utf-8")
    assert golden.exists(), "no golden file: run pytest tests/errors --update-golden"
    assert actual == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_message_is_complete(case: Path) -> None:
    """Place, code, the line of the program, a caret under it, and a hint."""
    name = f"{case.parent.name}/{case.name}"
    lines = case.with_suffix(".err").read_text(encoding="utf-8").splitlines()
    head = re.match(rf"{re.escape(name)}:(\d+):(\d+): error\[TC\d{{4}}\]: .+", lines[0])
    assert head, lines[0]
    line, column = int(head[1]), int(head[2])
    source = case.read_text(encoding="utf-8").splitlines()[line - 1]
    at = next(i for i, text in enumerate(lines) if text == f"{line:>5} | {source}")
    assert re.fullmatch(rf" {{5}} \| {{{column}}}\^+", lines[at + 1]), lines[at + 1]
    assert any(text.startswith("  = hint: ") for text in lines)


def test_no_golden_file_without_a_program() -> None:
    orphans = [path.name for path in HERE.glob("*/*.err") if not path.with_suffix(".py").exists()]
    assert not orphans


def test_codes_are_documented() -> None:
    """Every code that a golden file shows has a page."""
    pages = HERE.parents[1] / "docs" / "errors"
    codes = {
        code
        for path in HERE.glob("*/*.err")
        for code in re.findall(r"error\[(TC\d{4})\]", path.read_text(encoding="utf-8"))
    }
    assert not [code for code in sorted(codes) if not (pages / f"{code}.md").exists()]
