"""The wheels: their content, and a kernel run from them without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"tilec": ROOT, "tilec_c": ROOT / "tilec_c", "tilec_cuda": ROOT / "tilec_cuda"}
NOT_SHIPPED = {"pyproject.toml", "README.md", "LICENSE"}

PROGRAM = """
import numpy as np
import tilec, tilec_c
import tilec.language as T

assert {root!r} not in tilec.__file__ and {root!r} not in tilec_c.__file__

@T.prim_func
def add(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32"),
        C: T.Tensor((256,), "float32")):
    with T.Kernel(2, threads=128) as block:
        for i in T.Parallel(128):
            C[block * 128 + i] = A[block * 128 + i] + B[block * 128 + i]

kernel = tilec.compile(add, out_idx=[2], target="c")
a, b = np.random.rand(2, 256).astype("float32")
assert np.array_equal(kernel(a, b), a + b)
print("ran", tilec.__version__)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TILEC_"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheels")
    for path in DISTRIBUTIONS.values():
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=path)
    return folder


def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_content_is_what_git_tracks(wheels: Path, name: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = run("git", "ls-files", "--cached", "--others", "--exclude-standard", name)
    expected = {path for path in tracked.split() if (ROOT / path).exists()}
    if name != "tilec":
        expected -= {f"{name}/{other}" for other in NOT_SHIPPED}
    [wheel] = wheels.glob(f"{name}-*.whl")
    assert content(wheel) == expected


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_licence_and_types_are_shipped(wheels: Path, name: str) -> None:
    [wheel] = wheels.glob(f"{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)
    assert f"{name}/py.typed" in names


@pytest.mark.slow
def test_a_kernel_runs_from_wheels_alone(wheels: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--find-links", wheels, "tilec[c]", cwd=tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(root=str(ROOT)), encoding="utf-8")
    assert run(python, program, cwd=tmp_path).startswith("ran ")
    report = run(tmp_path / "venv" / "bin" / "tilec", "doctor", cwd=tmp_path)
    assert "usable targets: c" in report
