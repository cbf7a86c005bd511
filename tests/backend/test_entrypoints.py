"""The scan of metadata folders agrees with the standard library."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tilec.backend.entrypoints import EntryPoint, entry_points


@pytest.mark.parametrize("group", ["tilec", "console_scripts", "pytest11", "no_such_group"])
def test_same_as_the_standard_library(group: str) -> None:
    def key(name: str) -> str:
        return name.lower().replace("-", "_").replace(".", "_")

    expected = {
        (p.name, p.value, key(p.dist.name), p.dist.version)
        for p in metadata.entry_points(group=group)
        if p.dist is not None
    }
    found = entry_points(group)
    assert {(p.name, p.value, key(p.distribution), p.version) for p in found} == expected
    assert len(found) == len(set(found))


def write(folder: Path, name: str, version: str, points: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nx")
    (info / "entry_points.txt").write_text(points)


def test_sections_comments_and_shadowing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[other]\na = x\n\n[demo]\n# note\nb = json:loads\nc=os.path : join [extra]\n"
    write(tmp_path / "one", "demo_dist", "2.0", text)
    write(tmp_path / "two", "demo_dist", "1.0", "[demo]\nold = x\n")
    (tmp_path / "two" / "empty-1.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "one"), str(tmp_path / "two"), "/no/such"])
    b, c = entry_points("demo")
    assert b == EntryPoint("b", "json:loads", "demo_dist", "2.0")
    assert b.load()("[1]") == [1]
    assert c.load().__name__ == "join"


def test_archives_are_left_to_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped-1.0.dist-info/METADATA", "Name: zipped\nVersion: 1.0\n")
        file.writestr("zipped-1.0.dist-info/entry_points.txt", "[demo]\nz = json\n")
    monkeypatch.setattr(sys, "path", [str(archive)])
    assert entry_points("demo") == (EntryPoint("z", "json", "zipped", "1.0"),)
