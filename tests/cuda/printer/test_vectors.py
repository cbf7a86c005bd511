"""Vectorized loops: what the printed text does, and how wide its accesses are."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_programs import (
    ARCHES,
    assert_same,
    check_compiles,
    host_compile,
    kernel_text,
    source,
    storage,
)
from scalar_cases import rng_for
from vector_cases import LANES, Case, cases, module

from tilec.arith import round_to, value_dtype
from tilec.ir import DType

CASES = {case.name: case for case in cases()}


def inputs(case: Case) -> list[Any]:
    """Small numbers, in the storage dtypes, the output's old content last."""
    rng = rng_for("vectors", case.name)
    return [
        rng.integers(0, 2 if d == "bool" else 20, (LANES, 32)).astype(storage(d))
        for d in case.dtypes
    ]


def check(case: Case, arrays: list[Any], result: Any) -> None:
    """Compare a result with what has to come out."""
    operands = [a.astype(value_dtype(DType(d))) for a, d in zip(arrays, case.dtypes, strict=True)]
    output = case.dtypes[-1]
    wanted = case.expected(*operands)
    if DType(output).is_float:
        wanted = round_to(wanted, DType(output))
    assert_same(result.ravel(), wanted.ravel(), output, case.name, [])


@pytest.mark.parametrize("name", CASES)
def test_on_the_host(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    program, _buffers = module(case)
    library = host_compile(source(program, "sm_75"), tmp_path)
    arrays = inputs(case)
    held = [np.ascontiguousarray(a).copy() for a in arrays]
    for lane in range(LANES):
        library.set_lane(lane)
        library.k_kernel(*(ctypes.c_void_p(a.ctypes.data) for a in held))
    check(case, arrays, held[-1])


@pytest.mark.parametrize("name", CASES)
def test_compiles(name: str) -> None:
    program, _buffers = module(CASES[name])
    arch = ARCHES[list(CASES).index(name) % len(ARCHES)]
    check_compiles(program, arch)


@pytest.mark.parametrize(
    ("name", "loads", "stores"),
    [
        ("sum-bfloat16-float32-bfloat16-8", ["u16_8", "f32_8"], ["u16_8"]),
        ("sum-float32-float32-float8_e4m3-16", ["f32_16", "f32_16"], ["u8_16"]),
        ("copy-int8-16", ["i8_16"], ["i8_16"]),
        ("guarded", ["i32_4"], ["i32_4", "i32_4"]),
        ("selected", ["i32_4"], ["i32_4"]),
        ("two-guards", ["i32_4"], ["i32_4"]),
        ("by-element", [], ["i32_4"]),
        ("in-place", ["u16_8", "u16_8"], ["u16_8"]),
        ("written-then-read", ["i32_4"], []),
        ("spread", [], ["i32_4"]),
        ("broadcast", ["f32_4"], ["f32_4"]),
        ("twice", ["f32_4", "f32_4"], ["f32_4"]),
    ],
)
def test_wide_accesses(name: str, loads: list[str], stores: list[str]) -> None:
    text = kernel_text(module(CASES[name])[0])
    assert sorted(re.findall(r"\*\(const tilec_vec_(\w+) \*\)&", text)) == sorted(loads)
    assert re.findall(r"\*\(tilec_vec_(\w+) \*\)&", text) == stores
