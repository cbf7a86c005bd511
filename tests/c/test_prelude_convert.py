"""Conversions against NumPy, ml_dtypes and the language's scalar semantics."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilec.arith.semantics import evaluate_cast
from tilec.ir.dtype import DType
from tilec_c.prelude import C_TYPE, SUFFIX, convert_call

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
INTEGERS = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)]
ALL_HALVES = np.arange(65536, dtype=np.uint16)


def floats32() -> Any:
    """Random bit patterns, every half-way point between halves, and their neighbours."""
    rng = np.random.default_rng(1)
    random = rng.integers(0, 2**32, 400_000, dtype=np.uint64).astype(np.uint32)
    with np.errstate(invalid="ignore"):
        grids = [ALL_HALVES.view(h).astype(np.float32).view(np.uint32) for h in HALVES.values()]
    near = [g + np.uint32(d) for g in grids for d in (0, 1, 2, 0x0FFF, 0x1000, 0x1001)]
    near += [grids[1] + np.uint32(d) for d in (0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    return np.concatenate([random, *near]).view(np.float32)


@pytest.mark.parametrize("half", HALVES)
def test_half_to_float32_is_exact_for_every_value(elementwise: Any, half: str) -> None:
    callee = convert_call(half, "float32")
    assert callee is not None
    run = elementwise(callee.features, f"{callee.name}(x)", ["uint16_t"], "float")
    with np.errstate(invalid="ignore"):
        expected = ALL_HALVES.view(HALVES[half]).astype(np.float32)
    np.testing.assert_array_equal(run(ALL_HALVES).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("half", HALVES)
def test_float32_to_half_has_numpys_bits(elementwise: Any, half: str) -> None:
    callee = convert_call("float32", half)
    assert callee is not None
    run = elementwise(callee.features, f"{callee.name}(x)", ["float"], "uint16_t")
    values = floats32()
    with np.errstate(all="ignore"):
        expected = values.astype(HALVES[half]).view(np.uint16)
    np.testing.assert_array_equal(run(values), expected)


def test_float64_to_float16_rounds_once(elementwise: Any) -> None:
    callee = convert_call("float64", "float16")
    assert callee is not None
    run = elementwise(callee.features, f"{callee.name}(x)", ["double"], "uint16_t")
    rng = np.random.default_rng(2)
    grid = ALL_HALVES.view(np.float16).astype(np.float64)
    finite = grid[np.isfinite(grid)]
    middle = (finite[:-1] + finite[1:]) / 2
    values = np.concatenate(
        [
            rng.integers(0, 2**63, 200_000, dtype=np.uint64).view(np.float64),
            rng.standard_normal(200_000) * 10.0 ** rng.integers(-9, 6, 200_000),
            grid,
            middle,
            np.nextafter(middle, np.inf),
            np.nextafter(middle, -np.inf),
            [
                65519.999999,
                65520.0,
                -1e300,
                1e-300,
                5e-324,
                -5e-324,
                2.0**-25,
                2.0**-25 * 1.0000001,
            ],
        ]
    )
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(run(values), expected)
    # Through float32 these would round up twice.
    assert run(np.array([1 + 2.0**-11 + 2.0**-40])).view(np.float16)[0] == 1 + 2.0**-10


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
def test_float_to_integer(elementwise: Any, source: str, target: str) -> None:
    callee = convert_call(source, target)
    assert callee is not None
    suffix, out = C_TYPE[SUFFIX[source]], C_TYPE[SUFFIX[target]]
    run = elementwise(callee.features, f"{callee.name}(x)", [suffix], out)
    edges = [s * 2.0**e + d for e in range(66) for s in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)]
    values: Any = np.array([*edges, np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 127.9, -128.9])
    with np.errstate(all="ignore"):
        values = values.astype(HALVES.get(source) or np.dtype(source))
    storage = values.view(np.uint16) if source in HALVES else values
    got = run(storage)
    for value, result in zip(values.astype(np.float64), got, strict=True):
        assert int(result) == evaluate_cast(float(value), DType(source), DType(target)), value


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("source", [*INTEGERS, "bool", "float64"])
def test_number_to_half(elementwise: Any, source: str, half: str) -> None:
    callee = convert_call(source, half)
    assert callee is not None
    run = elementwise(callee.features, f"{callee.name}(x)", [C_TYPE[SUFFIX[source]]], "uint16_t")
    values: Any
    if source == "bool":
        values = np.array([0, 1], np.uint8)
    elif source == "float64":
        values = np.array([0.1, -3.7, 1e9, 65519.0, 65520.0, 1e-7, np.inf, 1 + 2.0**-8 + 2.0**-40])
    else:
        info = np.iinfo(source)
        near = [s * (2**e) + d for e in range(64) for s in (1, -1) for d in (-1, 0, 1)]
        kept = [v for v in near if info.min <= v <= info.max]
        values = np.array([*kept, info.min, info.max, 65519 & info.max, 65520 & info.max], source)
    got = run(values).view(HALVES[half]).astype(np.float64)
    for value, result in zip(values.tolist(), got, strict=True):
        assert result == evaluate_cast(value, DType(source), DType(half)), value


@pytest.mark.parametrize(("source", "target"), [("float16", "bfloat16"), ("bfloat16", "float16")])
def test_half_to_half(elementwise: Any, source: str, target: str) -> None:
    callee = convert_call(source, target)
    assert callee is not None
    run = elementwise(callee.features, f"{callee.name}(x)", ["uint16_t"], "uint16_t")
    values = ALL_HALVES.view(HALVES[source])
    with np.errstate(all="ignore"):
        expected = values.astype(np.float32).astype(HALVES[target]).view(np.uint16)
    np.testing.assert_array_equal(run(ALL_HALVES), expected)


def test_plain_casts_need_no_function() -> None:
    assert convert_call("int32", "int8") is None
    assert convert_call("int32", "float32") is None
    assert convert_call("float32", "float64") is None
    assert convert_call("bool", "int32") is None
    assert convert_call("float16", "float16") is None
