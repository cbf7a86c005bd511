"""What must agree between the distributions of this repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BACKENDS = ("tilec_c", "tilec_cuda")


def project(folder: str = ".") -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


def version(folder: str) -> str:
    text = (ROOT / folder / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert match, f"{folder}/__init__.py has no version"
    return match[1]


def test_versions_agree() -> None:
    assert {version(folder) for folder in BACKENDS} == {version("tilec")}


def test_pins_agree() -> None:
    minor = ".".join(version("tilec").split(".")[:2])
    extras = project()["project"]["optional-dependencies"]
    for folder in BACKENDS:
        name = project(folder)["project"]["name"]
        assert extras[name.removeprefix("tilec-")] == [f"{name}=={minor}.*"]
        assert f"tilec=={minor}.*" in project(folder)["project"]["dependencies"]


def test_licences_are_copies() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    for folder in BACKENDS:
        copy = ROOT / folder / "LICENSE"
        assert not copy.is_symlink()
        assert copy.read_bytes() == text


def test_projects_say_the_same() -> None:
    main = project()["project"]
    for folder in BACKENDS:
        own = project(folder)["project"]
        for key in ("requires-python", "license", "license-files"):
            assert own[key] == main[key], (folder, key)
        assert own["name"] == folder.replace("_", "-")
        assert own["entry-points"]["tilec"], f"{folder} offers no plugin"


def test_changelog_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {version('tilec')}" in text


def test_no_stdlib_names_inside_backends() -> None:
    """A command run inside the folder would import them instead of the standard library."""
    import sys

    for folder in BACKENDS:
        names = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__", "__main__"}
        assert not names & set(sys.stdlib_module_names)
