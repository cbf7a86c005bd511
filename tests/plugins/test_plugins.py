"""Plugins as their own distributions, installed by pip: one that works, one that is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

KERNEL = """
import sys
import numpy as np
import tilec
from tilec_dummy import language as T

N = T.dynamic("n")

@T.prim_func
def flip(A: T.Tensor((N, 32), "float32"), B: T.Tensor((N, 32), "float32"), scale: T.float32):
    with T.Kernel(N, threads=32) as b:
        row = T.alloc_fragment((32,), "float32")
        T.copy(A[b, 0:32], row)
        for i in T.Parallel(32):
            row[i] = T.exp(row[i]) * scale
        for k in T.serial(1):
            T.reverse(row, B[b, 0:32])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed both plugins."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("plugins")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    command += ["--no-index", "--target", str(folder)]
    command += [str(HERE / "dummy_backend"), str(HERE / "broken_backend")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def python(installed: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, **env, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, env=full
    )


def run(installed: Path, tmp_path: Path, program: str, **env: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(KERNEL + program, encoding="utf-8")
    done = python(installed, str(path), **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernel_runs_through_the_plugin(installed: Path, tmp_path: Path) -> None:
    output = run(
        installed,
        tmp_path,
        """
kernel = tilec.compile(flip, out_idx=[1], target="dummy")
a = np.random.default_rng(0).random((3, 32), dtype=np.float32)
b = kernel(a, 2.0)
np.testing.assert_allclose(b, (np.exp(a) * 2)[:, ::-1], rtol=1e-6)
assert kernel.execution_backend == "python"
assert "def flip_kernel0(" in kernel.get_kernel_source()
print(kernel.explain())
print("tilec_broken" in sys.modules, "tilec_c" in sys.modules)
""",
    )
    assert "reverse: lowered as one row" in output  # its lowering was chosen
    assert "drop_single_trips: loop k runs once" in output  # its pass ran
    assert output.splitlines()[-1] == "False False"  # nobody else was imported


def test_its_configuration_target_and_errors(installed: Path, tmp_path: Path) -> None:
    output = run(
        installed,
        tmp_path,
        """
kernel = tilec.compile(flip, target="dummy", pass_configs={"dummy.keep_loops": True})
assert "runs once" not in kernel.explain()

def refused(make):
    try:
        make()
    except tilec.diagnostics.TilecError as error:
        print(type(error).__name__, "|", str(error).splitlines()[0].split(": ", 1)[-1])

@T.prim_func
def half(A: T.Tensor((4,), "bfloat16")):
    with T.Kernel(1, threads=32):
        T.clear(A)

def wrong():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.reverse(A, B)

refused(lambda: tilec.compile(half, target="dummy"))
refused(lambda: tilec.compile(flip, target={"kind": "dummy", "threads": 3}))
refused(lambda: tilec.compile(flip, target={"kind": "dummy", "max_threads": 16}))
refused(lambda: tilec.compile(flip, target="dummy", execution_backend="fast"))
refused(lambda: tilec.compile(flip, target="dummy", pass_configs={"dummy.keep": True}))
refused(lambda: kernel(np.zeros((2, 32), np.float64), np.zeros((2, 32), np.float32), 1.0))
refused(wrong)
try:
    wrong()
except tilec.diagnostics.ShapeError as error:
    print(error.span.file == __file__, "T.reverse(A, B)" in str(error))
""",
    )
    lines = output.splitlines()
    assert [line.split(" | ")[0] for line in lines[:7]] == [
        "CapabilityError",
        "TargetError",
        "CapabilityError",
        "BackendSelectionError",
        "PassConfigError",
        "ArgumentTypeError",
        "ShapeError",
    ]
    assert "dtype bfloat16 is not supported" in lines[0]
    assert "has no attribute 'threads'" in lines[1]
    assert "a block has 32 threads; the target allows 16" in lines[2]
    assert "'fast' is not one of target 'dummy'; allowed: python" in lines[3]
    assert lines[7] == "True True"  # the error points at the kernel, not into the plugin


def test_broken_plugin_is_named_when_asked_for(installed: Path, tmp_path: Path) -> None:
    output = run(
        installed,
        tmp_path,
        """
try:
    tilec.compile(flip, target="broken")
except tilec.diagnostics.PluginError as error:
    print(error.message)
try:
    tilec.compile(flip, target="dumy")
except tilec.diagnostics.TargetError as error:
    print(error)
""",
    )
    first, *rest = output.splitlines()
    assert first == (
        "target kind 'broken' is not available: plugin 'broken' (tilec-broken 6.6.6): "
        "OSError: libbroken.so.1: cannot open shared object file"
    )
    text = "\n".join(rest)
    assert "did you mean 'dummy'?" in text
    assert "not usable: plugin 'broken'" in text


def test_doctor(installed: Path) -> None:
    done = python(installed, "-m", "tilec", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout
    assert "plugin dummy: tilec-dummy 0.3.0\n  ok target dummy" in text
    assert "execution backend python: available" in text
    assert "tool chain: Python" in text
    assert "note: it is slow" in text
    assert "smoke test: a kernel compiled in" in text
    assert "plugin broken: tilec-broken 6.6.6\n  -- broken: OSError: libbroken.so.1" in text
    assert "broken plugins: broken" in text
    assert "Traceback" not in text
    verbose = python(installed, "-m", "tilec", "doctor", "--verbose", "--no-smoke")
    assert "tilec_broken/plugin.py" in verbose.stdout
    assert "smoke test" not in verbose.stdout


def test_doctor_without_anything_usable(installed: Path) -> None:
    done = python(
        installed, "-m", "tilec", "doctor", TILEC_DISABLE_PLUGINS="dummy,c", TILEC_VERBOES="1"
    )
    assert done.returncode == 1
    assert "usable targets: none; broken plugins: broken" in done.stdout
    assert "TILEC_VERBOES is not an option" in done.stdout
    assert "plugin dummy" not in done.stdout


def test_core_does_not_know_the_plugin() -> None:
    for path in (ROOT / "tilec").rglob("*.py"):
        assert "dummy" not in path.read_text(encoding="utf-8"), path
