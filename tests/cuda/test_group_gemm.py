"""Gemms by asynchronous instructions of four warps, in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_programs import check_gemm, lowered

import tilec.language as T
from tilec import ir
from tilec.interp import run
from tilec.layout import BankModel
from tilec.simt.gemm_group import shared_layout
from tilec.transform.flatten import Operand
from tilec_cuda.arch import Arch
from tilec_cuda.capabilities import capabilities
from tilec_cuda.shared_tiles import matrix_form

HOPPER = capabilities(Arch.parse("sm_90a"))
NAME = "T.gemm: asynchronous matrix instructions"


@pytest.mark.parametrize("stages", [0, 3])
@pytest.mark.parametrize("swapped", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(
    ("block", "threads", "dtype"),
    [
        ((64, 32, 64), 128, "bfloat16"),
        ((128, 128, 32), 256, "float16"),
        ((64, 48, 128), 128, "float16"),
    ],
)
def test_gemms(
    block: tuple[int, int, int], threads: int, dtype: str, swapped: tuple[bool, bool], stages: int
) -> None:
    m, n, k = block
    notes = check_gemm(
        HOPPER, (m + 8, n, 2 * k + 16), block, (dtype, "float32"), swapped, threads, stages
    )
    fits = not (n == 48 and not swapped[1])  # rows of B of 96 bytes: swizzled in parts of 32
    assert (NAME in notes) or not fits


def test_what_has_no_instruction_takes_another_rule() -> None:
    assert NAME not in check_gemm(HOPPER, (64, 64, 32), (64, 64, 32), ("float32", "float32"))


@pytest.mark.parametrize("swapped", [(False, True), (False, False), (True, True)])
def test_bytes_are_read_along_the_contracted_dimension(swapped: tuple[bool, bool]) -> None:
    notes = check_gemm(HOPPER, (64, 32, 128), (64, 32, 64), ("int8", "int32"), swapped, 128, 2)
    assert (NAME in notes) is (swapped == (False, True))


def test_the_left_operand_in_registers() -> None:
    @T.prim_func
    def program(
        Q: T.Tensor((64, 32), "float16"),
        K: T.Tensor((32, 32), "float16"),
        V: T.Tensor((32, 16), "float16"),
        Y: T.Tensor((64, 16), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 32), "float16")
            k = T.alloc_shared((32, 32), "float16")
            v = T.alloc_shared((32, 16), "float16")
            s = T.alloc_fragment((64, 32), "float32")
            p = T.alloc_fragment((64, 32), "float16")
            o = T.alloc_fragment((64, 16), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.gemm(q, k, s, transpose_B=True, clear_accum=True)
            T.copy(s, p)
            T.gemm(p, v, o, clear_accum=True)
            T.copy(o, Y)

    func, notes = lowered(program, HOPPER)
    assert notes.count(NAME) == 2
    assert not any("shared memory" in n for n in notes)
    rng = np.random.default_rng(5)
    q, k, v = (rng.integers(-2, 3, s).astype("float16") for s in ((64, 32), (32, 32), (32, 16)))
    y = np.zeros((64, 16), "float32")
    run(func, q, k, v, y, check=True, form="thread")
    wide = [x.astype("float32") for x in (q, k, v)]
    np.testing.assert_array_equal(y, wide[0] @ wide[1].T @ wide[2])


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("columns", [16, 32, 64, 128, 256, 96])
@pytest.mark.parametrize("stages", [1, 3])
def test_layouts_have_descriptors_and_no_conflicts(rows: int, columns: int, stages: int) -> None:
    tile = ir.Buffer("tile", (stages, rows, columns), ir.DType("float16"), ir.SHARED)
    layout = shared_layout(tile)
    assert layout is not None
    assert layout.is_bijective
    zero = tuple(map(ir.as_expr, (0, 0, 0)))
    for swapped in (False, True):
        assert matrix_form(Operand(tile, zero, (1, rows, columns), layout), swapped) > 0
    model = BankModel(32, 4)
    for column in range(0, columns, 8):
        lanes = (np.zeros(8, int), np.arange(8), np.full(8, column))
        assert layout.bank_conflicts(model, lanes, 2, 8) == 0
    if columns % 64 == 0:  # eight lanes that fill a row
        at = np.arange(8) * 8
        zeros = np.zeros(8, int)
        assert layout.bank_conflicts(model, (zeros, zeros, at), 2, 8) == 0
