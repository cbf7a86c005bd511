"""Updates of one element: by every lane where the kernel says so, once as a tile."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
import tilec.language as T


@T.prim_func
def updates(A: T.Tensor((4,), "int32"), O: T.Tensor((3,), "int32")):  # noqa: E741
    with T.Kernel(2, threads=32):
        T.atomic_add(O[0], 1)
        T.atomic_add(O[1:2], A[0:1])
        T.atomic_add(O[2:3], 5)


@pytest.mark.parametrize("target", ["interpret", "simt"])
def test_updates_of_one_element(target: str) -> None:
    result = np.zeros(3, np.int32)
    tilec.compile(updates, target=target)(np.ones(4, np.int32), result)
    assert result.tolist() == [64, 2, 10]
