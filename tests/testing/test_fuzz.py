"""Random programs mean on target c what the reference interpreter says."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.testing.compare import compare
from tilec.testing.generate import random_program

pytest.importorskip("tilec_c")


@pytest.mark.parametrize("seed", range(10_000, 10_016))
def test_sample(seed: int) -> None:
    assert compare(random_program(seed), "c", seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 600, 25))
def test_sweep(first: int) -> None:
    found = {seed: compare(random_program(seed), "c", seed) for seed in range(first, first + 25)}
    assert {seed: text for seed, text in found.items() if text} == {}


@pytest.mark.parametrize("seed", [50, 617])
def test_buffer_read_by_the_start_value_of_a_variable(seed: int) -> None:
    """Seeds whose buffer was moved into a loop although a later `T.alloc_var` reads it."""
    assert compare(random_program(seed), "c", seed) is None


@pytest.mark.parametrize("reads", ["init", "later loop", "condition", "index"])
def test_buffer_used_outside_the_loop_that_fills_it_stays(reads: str) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            tile = T.alloc_fragment((8,), "int32")
            for i in T.Parallel(8):
                tile[i] = A[i] + 1
            if reads == "init":
                first = T.alloc_var("int32", init=tile[3] + 0)
                for i in T.Parallel(8):
                    B[i] = first
            elif reads == "later loop":
                for i in T.Parallel(8):
                    B[i] = tile[7 - i]
            elif reads == "condition":
                if tile[2] > 3:
                    for i in T.Parallel(8):
                        B[i] = 5
            else:
                for i in T.Parallel(8):
                    B[i] = A[tile[1] % 8]

    a = np.arange(8, dtype=np.int32)
    b = np.zeros(8, np.int32)
    tilec.compile(kernel, target="c")(a, b)
    wanted = {
        "init": np.full(8, 4),
        "later loop": (a + 1)[::-1],
        "condition": np.zeros(8),
        "index": np.full(8, 2),
    }[reads]
    np.testing.assert_array_equal(b, wanted)


@pytest.mark.parametrize("seed", [188, 275, 388, 395, 492])
def test_provably_negative_indices_count_from_the_end(seed: int) -> None:
    """Seeds with ``A[bx - n]``: the interpreter has the same rule for them as a target."""
    assert compare(random_program(seed), "c", seed) is None


@pytest.mark.parametrize("source", ["A[0]", "A[0:3]", "A[bx]", "A[1:4]", "A"])
@pytest.mark.parametrize("extent", ["n", "5", "3"])
@pytest.mark.parametrize("scope", ["fragment", "shared", "local"])
def test_regions_of_tensors_with_run_time_extents(source: str, extent: str, scope: str) -> None:
    """Part of a tensor whose extent is not known is printed as a part, from whatever place."""
    if (source == "A" and extent != "3") or (source == "A[1:4]" and extent == "3"):
        pytest.skip("not legal: whole tensors have one shape, slices are inside")
    text = f"""
n = T.dynamic("n")
@T.prim_func
def main(A: T.Tensor(({extent},), "int64"), B: T.Tensor((n,), "int32"), C: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=32) as bx:
        t = T.alloc_{scope}((3,), "float64")
        T.copy({source}, t)
        for i in T.serial(3):
            C[i] = T.cast(t[i], "int32")
"""
    for seed in range(3):
        assert compare(text, "c", seed) is None
