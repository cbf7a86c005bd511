"""The builder of small kernels, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from host_kernels import CC, Builder

from tilec.host import HostCallable


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., HostCallable]:
    """The builder; tests that need it are skipped where there is no C compiler."""
    if CC is None:
        pytest.skip("no C compiler")
    return Builder(tmp_path_factory.mktemp("host"))
