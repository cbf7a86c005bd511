"""Every error class has a page, and the page's example raises exactly that error."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import tilec.diagnostics
from tilec.diagnostics import TilecError

PAGES = Path(__file__).parents[2] / "docs" / "errors"
CLASSES = {
    cls.code: cls
    for cls in vars(tilec.diagnostics).values()
    if isinstance(cls, type) and issubclass(cls, TilecError) and cls is not TilecError
}
FENCE = re.compile(r"^```python( no-run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_pages_and_classes_agree() -> None:
    assert {path.stem for path in PAGES.glob("TC*.md")} == set(CLASSES)
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\((TC\d{4})\.md\)", index) == sorted(CLASSES)


@pytest.mark.parametrize("code", sorted(CLASSES))
def test_page(code: str, tmp_path: Path) -> None:
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {code}: ")
    assert f"`tilec.diagnostics.{CLASSES[code].__name__}`" in text
    assert "\n## What to do\n" in text
    [(no_run, example)] = FENCE.findall(text)
    if no_run:
        return
    program = tmp_path / "example.py"
    program.write_text(example, encoding="utf-8")
    with pytest.raises(TilecError) as caught:
        runpy.run_path(str(program))
    assert type(caught.value) is CLASSES[code], str(caught.value)
