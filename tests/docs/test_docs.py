"""The Python blocks of the README and of the documentation run, in order, and print what they say.

In a Markdown file of this project

- a ``python`` block is executed, in one namespace per document, under its own line numbers;
- a ``python raises`` block must raise; its message is its output;
- an ``output`` block after it must equal what it printed, where a line ``...`` stands for any lines
  and ``...`` within a line for any characters, and empty lines do not count;
- ``<!-- from: path -->`` before a block says that the file has these lines;
- all else (``py``, ``text``, ``sh``) is only shown.
"""

import contextlib
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = ("errors", "decisions")  # folders with tests of their own, or without programs
PAGES = [p for p in sorted(DOCS.rglob("*.md")) if p.relative_to(DOCS).parts[0] not in ELSEWHERE]
DOCUMENTS = [ROOT / "README.md", *PAGES]
IDS = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


class Block(NamedTuple):
    """A fenced block: first line of its text (1-based), info string, text, source marker."""

    line: int
    info: str
    text: str
    origin: str


def blocks(document: Path) -> list[Block]:
    found = []
    fence, start, info, origin = "", 0, "", ""
    lines = document.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if fence:
            if line.strip() == fence:
                text = "\n".join(lines[start : number - 1])
                found.append(Block(start + 1, info, text, origin))
                fence, origin = "", ""
        elif match := re.match(r"(```+)\s*(.*)", line):
            fence, info, start = match[1], match[2].strip(), number
        elif match := re.match(r"<!-- from: (\S+) -->", line):
            origin = match[1]
    assert not fence, f"{document}: a block is not closed"
    return found


def matches(actual: str, expected: str) -> bool:
    """Whether an output is the expected one; see the module docstring."""
    pattern = ""
    for line in filter(str.strip, expected.splitlines()):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            parts = line.rstrip().split("...")
            pattern += ".*".join(re.escape(part) for part in parts) + r"[ \t]*\n"
    lines = filter(str.strip, actual.splitlines())
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_blocks_run(document: Path, tmp_path: Path) -> None:
    # Kernels are read from a file: one with the code of the document at the lines where it stands.
    code = [block for block in blocks(document) if block.info.split()[:1] == ["python"]]
    lines: list[str] = []
    for block in code:
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    program = tmp_path / f"{document.stem}.py"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    namespace = {"__name__": "__document__", "__file__": str(program)}
    printed = None
    for block in blocks(document):
        if block in code:
            text = "\n" * (block.line - 1) + block.text
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                if "raises" in block.info.split():
                    with pytest.raises(Exception) as caught:  # noqa: PT011 - compared below
                        exec(compile(text, str(program), "exec"), namespace)
                    print(str(caught.value).replace(f"{program.parent}/", ""))  # noqa: T201
                else:
                    exec(compile(text, str(program), "exec"), namespace)
            printed = stream.getvalue()
        elif block.info == "output":
            assert printed is not None, f"{document}:{block.line}: output without a program"
            assert matches(printed, block.text), f"{document}:{block.line}: printed\n{printed}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_quoted_files_say_so(document: Path) -> None:
    for block in blocks(document):
        if block.origin:
            source = (ROOT / block.origin).read_text(encoding="utf-8")
            for part in re.split(r"\n *\.\.\. *\n", block.text):
                assert part.strip("\n") in source, f"{document}:{block.line}: not in {block.origin}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", link):
            assert (document.parent / link).exists(), f"{document}: {link}"


def test_the_readme_shows_the_quickstart() -> None:
    """The kernel of the README is that of the example, but for comments."""

    def kernel(path: Path) -> list[str]:
        text = path.read_text(encoding="utf-8")
        body = text[text.index("@tilec.jit") : text.index("return C\n")]
        body = re.sub(r'    """.*?"""\n', "", body, flags=re.S)
        plain = (re.sub(r"\s*#.*", "", line) for line in body.splitlines())
        return [line for line in plain if line]

    assert kernel(ROOT / "README.md") == kernel(ROOT / "examples" / "quickstart.py")
