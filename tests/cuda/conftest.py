"""The fake driver, and a context of the backend, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_cuda import CC, FakeCuda, build_driver

from tilec.backend import BackendContext, Target
from tilec_cuda.driver import use_driver


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
