"""The reducer finds small programs, and only ones that still fail."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.testing.shrink import shrink

PROGRAM = """
import math
a = 1
def f(x, y):
    for i in range(10):
        if x > 3:
            y = y + i * 2
        else:
            y = max(x, 4 * y + 100)
    return y
with open("nothing") as g:
    b = [f(1, 2), f(a, 17)]
print(b)
"""


def test_keeps_what_the_predicate_needs_and_little_else():
    small = shrink(PROGRAM, lambda text: "max(" in text and _parses(text))
    assert "max(" in small
    assert len(small.splitlines()) <= 3


def test_result_still_fails():
    def failing(text: str) -> bool:
        return _parses(text) and text.count("f(") >= 2 and "range" in text

    small = shrink(PROGRAM, failing)
    assert failing(small)
    assert len(small) < len(PROGRAM) / 2


def test_numbers_get_smaller():
    small = shrink("x = 1000\n", lambda text: _value(text) >= 37)
    assert _value(small) == 37


def test_a_program_without_the_problem_is_refused():
    with pytest.raises(ValueError, match="does not show"):
        shrink("x = 1\n", lambda _text: False)


def _parses(text: str) -> bool:
    ast.parse(text)
    return True


def _value(text: str) -> int:
    (node,) = ast.parse(text).body or [ast.Pass()]
    value = getattr(getattr(node, "value", None), "value", -1)
    return value if isinstance(value, int) else -1


def test_command_line(tmp_path: Path):
    script = tmp_path / "wrong.py"
    script.write_text("a = 1\nb = 2\nif a < b:\n    print('x', a)\n    raise KeyError('gone')\n")
    out = tmp_path / "small.py"
    command = [sys.executable, "-m", "tilec", "reduce", str(script), "--message", "KeyError"]
    done = subprocess.run([*command, "-o", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert out.read_text().strip() == "raise KeyError()" or "KeyError" in out.read_text()
    assert len(out.read_text().splitlines()) == 1
    wrong = subprocess.run(
        [*command[:-1], "no such text"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 1
    assert "does not print" in wrong.stderr
