"""Kernels in thread form compute what NumPy does, with all checks."""

from __future__ import annotations

import time

import numpy as np
import pytest
from lane_kernels import REGISTER_ATOM, matrices, pipelined_gemm, specialised_gemm

import tilec
import tilec.language as T
from tilec import interp
from tilec.ir import structural_equal


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("stages", [2, 3])
def test_pipelined_gemm(stages: int, check: bool) -> None:
    kernel = pipelined_gemm(64, 64, 96, 32, 64, 32, stages)
    a, b, wanted = matrices(64, 64, 96)
    c = np.zeros_like(wanted)
    interp.run(kernel, a, b, c, check=check)
    np.testing.assert_array_equal(c, wanted)


def test_a_script_of_thread_form_is_the_same_program() -> None:
    kernel = pipelined_gemm(64, 64, 64, 32, 32, 32, 2)
    again = T.from_script(kernel.script(), atoms=[REGISTER_ATOM])
    assert structural_equal(again, kernel)


def test_a_gemm_is_fast_enough_to_be_used() -> None:
    kernel = pipelined_gemm(256, 256, 256, 128, 128, 32, 3)
    a, b, wanted = matrices(256, 256, 256)
    c = np.zeros_like(wanted)
    program = interp.Program(kernel)
    start = time.process_time()
    program(a, b, c)
    spent = time.process_time() - start
    np.testing.assert_array_equal(c, wanted)
    assert spent < 5


def test_the_interpreter_as_a_target_runs_lanes() -> None:
    kernel = tilec.compile(
        specialised_gemm(32, 32, 64, 32, 32, 32, 2), target={"kind": "interpret", "check": True}
    )
    a, b, wanted = matrices(32, 32, 64)
    c = np.zeros_like(wanted)
    kernel(a, b, c)
    np.testing.assert_array_equal(c, wanted)
