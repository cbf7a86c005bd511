"""The fake driver, and a context of the backend, for the tests of this folder."""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cuda import CC, FakeCuda, build_driver

from tilec.backend import BackendContext, Target
from tilec.backend.entrypoints import entry_points
from tilec.diagnostics import ToolchainError
from tilec_cuda.driver import use_driver
from tilec_cuda.nvrtc import find_nvrtc

PROJECT = Path(__file__).parents[2] / "tilec_cuda"
_metadata: list[tempfile.TemporaryDirectory[str]] = []


def _register() -> None:
    """Make the plugin known where the tree was copied to a machine and not installed."""
    if any(point.name == "cuda" for point in entry_points("tilec")):
        return
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    _metadata.append(tempfile.TemporaryDirectory())
    folder = Path(_metadata[0].name) / "tilec_cuda-0.dist-info"
    folder.mkdir()
    points = "".join(f"{k} = {v}\n" for k, v in project["entry-points"]["tilec"].items())
    (folder / "entry_points.txt").write_text(f"[tilec]\n{points}", encoding="utf-8")
    (folder / "METADATA").write_text(f"Name: {project['name']}\nVersion: 0\n", encoding="utf-8")
    sys.path.append(_metadata[0].name)


_register()


_WITHOUT_NVRTC = "needs NVRTC: pip install nvidia-cuda-nvrtc"


def _nvrtc_is_missing() -> bool:
    try:
        find_nvrtc()
    except ToolchainError:
        return True
    return False


@pytest.fixture
def nvrtc() -> None:
    """For tests that ask what is available; those that compile are skipped without it."""
    if _nvrtc_is_missing():
        pytest.skip(_WITHOUT_NVRTC)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Without NVRTC, what compiles is skipped; the rest of the backend is tested all the same."""
    try:
        return (yield)
    except ToolchainError:
        if not _nvrtc_is_missing():
            raise
        pytest.skip(_WITHOUT_NVRTC)


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> FakeCuda:
    """The fake driver, built once."""
    if CC is None:
        pytest.skip("no C compiler")
    return FakeCuda(build_driver(tmp_path_factory.mktemp("driver")))


@pytest.fixture
def fake(fake_library: FakeCuda) -> Iterator[FakeCuda]:
    """A freshly started machine with one device."""
    fake_library.reset()
    with use_driver(fake_library.driver):
        yield fake_library
    fake_library.reset()


@pytest.fixture
def context() -> BackendContext:
    """Code for sm_90a, through NVRTC and the driver."""
    from tilec_cuda.plugin import CUDA

    target = CUDA.target_kinds[0].resolve(Target("cuda", {"arch": "sm_90a"}))  # type: ignore[union-attr]
    return BackendContext(CUDA, target, CUDA.execution_backends[0], CUDA.host_codegens[0])
