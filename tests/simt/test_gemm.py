"""Gemm rules: multiply-add for every shape, matrix instructions where the target has them."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_programs import check_gemm, lowered

import tilec.language as T
from tilec import ir
from tilec.interp import run
from tilec.layout import BankModel, swizzled
from tilec.ops.gemm import GemmWarpPolicy
from tilec.simt.gemm_fma import blocked
from tilec.simt.gemm_mma import split
from tilec.transform.capabilities import Capabilities

PLAIN = Capabilities(lanes=32)
BOTH = [(False, False), (False, True), (True, False), (True, True)]


@pytest.mark.parametrize("swapped", BOTH)
@pytest.mark.parametrize(
    ("size", "threads"),
    [
        ((37, 29, 23), 128),
        ((3, 5, 8), 128),
        ((64, 64, 16), 128),
        ((17, 96, 6), 96),
    ],
)
def test_multiply_add(size: tuple[int, int, int], threads: int, swapped: tuple[bool, bool]) -> None:
    notes = check_gemm(PLAIN, size, size, ("float32", "float32"), swapped, threads)
    assert "T.gemm: multiply-add" in notes


@pytest.mark.parametrize(("dtype", "acc"), [("float16", "float32"), ("int8", "int32")])
def test_operands_are_widened(dtype: str, acc: str) -> None:
    assert "T.gemm: multiply-add" in check_gemm(PLAIN, (30, 20, 12), (15, 20, 4), (dtype, acc))


@pytest.mark.parametrize("lanes", [1, 7, 32, 96, 128, 256])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (13, 7), (64, 64), (128, 96), (256, 1)])
def test_blocks_hold_every_element_once(m: int, n: int, lanes: int) -> None:
    grid = blocked(m, n, lanes, 4, GemmWarpPolicy.Square)
    assert grid.is_complete
    assert grid.lanes <= lanes
    assert grid.thread_extent <= lanes
    least = -(-m * n // lanes)
    assert grid.register_extent < 4 * least + 4  # nothing near all of it on one lane


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (GemmWarpPolicy.Square, (2, 2)),
        (GemmWarpPolicy.FullRow, (4, 1)),
        (GemmWarpPolicy.FullCol, (1, 4)),
    ],
)
def test_policies_place_groups(policy: GemmWarpPolicy, expected: tuple[int, int]) -> None:
    assert split(8, 8, 4, policy) == expected


def test_groups_divide_the_atoms() -> None:
    for high in range(1, 13):
        for wide in range(1, 13):
            for groups in range(1, 9):
                for policy in GemmWarpPolicy:
                    rows, columns = split(high, wide, groups, policy)
                    assert rows * columns <= groups
                    assert high % rows == 0
                    assert wide % columns == 0


def test_a_fragment_operand_passes_through_shared_memory() -> None:
    @T.prim_func
    def program(
        A: T.Tensor((32, 16), "float32"),
        B: T.Tensor((16, 24), "float32"),
        C: T.Tensor((32, 24), "float32"),
    ):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((32, 16), "float32")
            b = T.alloc_shared((16, 24), "float32")
            c = T.alloc_fragment((32, 24), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    func, notes = lowered(program, PLAIN)
    assert "T.gemm: multiply-add" in notes
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype("float32") for s in ((32, 16), (16, 24)))
    c = np.full((32, 24), np.nan, "float32")
    run(func, a, b, c, check=True, form="thread")
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("flag", [0, 1])
def test_accumulators_are_cleared_on_a_condition(flag: int) -> None:
    @T.prim_func
    def program(A: T.Tensor((16, 16), "float32"), C: T.Tensor((16, 16), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.fill(c, 3)
            T.gemm(a, a, c, clear_accum=n > 0)
            T.copy(c, C)

    func, _ = lowered(program, PLAIN)
    a = np.random.default_rng(0).integers(-4, 5, (16, 16)).astype("float32")
    c = np.zeros((16, 16), "float32")
    run(func, a, c, flag, check=True, form="thread")
    np.testing.assert_array_equal(c, a @ a + (0 if flag else 3))


@pytest.mark.parametrize("columns", [16, 32, 64, 128, 256])
def test_swizzles_serve_matrices_and_copies(columns: int) -> None:
    """Eight rows of 16 bytes, and 16-byte writes along rows, use every bank once."""
    model = BankModel(32, 4)
    chunks = min(columns * 2 // 16, 8)
    layout = swizzled((64, columns), 16, chunks)
    row = np.arange(8)
    for column in range(0, columns, 8):
        assert layout.bank_conflicts(model, (row, np.full(8, column)), 2, 8) == 0
    piece = np.arange(8)  # a quarter of a warp is served at a time
    for first in range(0, 64 * columns // 8, 8):
        at = (first + piece) * 8
        assert layout.bank_conflicts(model, (at // columns, at % columns), 2, 8) == 0


def test_functions_are_in_thread_form() -> None:
    from gemm_programs import gemm_program

    func, _ = lowered(gemm_program((32, 32, 32), (32, 32, 32), ("float32", "float32")), PLAIN)
    assert not any(isinstance(n, (ir.TileOp, ir.Parallel)) for n in ir.walk(func.body))


def test_one_element() -> None:
    check_gemm(PLAIN, (1, 1, 1), (1, 1, 1), ("float32", "float32"), threads=32)
