"""Rendering, integers, float helpers, atomics, memory."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilec.arith.semantics import evaluate_binary
from tilec.ir.dtype import DType
from tilec_c.prelude import (
    C_TYPE,
    FEATURES,
    SUFFIX,
    atomic_call,
    float_call,
    integer_call,
    render,
)
from tilec_c.toolchain import compile_shared

INTEGERS = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)]


def test_render_gives_the_same_text_for_the_same_set() -> None:
    text = render(["erf_f32", "atomic_add_f16"])
    assert text == render(iter(["atomic_add_f16", "erf_f32", "erf_f32"]))
    assert text.index("tilec_exp_poly(float r) {") < text.index("tilec_erf_f32(float x) {")
    assert "tilec_log_split" not in text
    with pytest.raises(KeyError, match="no C prelude feature named 'nope'"):
        render(["nope"])


def test_every_feature_compiles_alone_in_order_and_without_warnings() -> None:
    seen: set[str] = set()
    for snippet in FEATURES.values():
        assert set(snippet.needs) <= seen, snippet.name
        seen.add(snippet.name)
    flags = ("-Wall", "-Wextra", "-Werror")
    compile_shared(render(FEATURES), extra_flags=flags)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "op", ["truncdiv", "truncmod", "floordiv", "floormod", "shl", "shr", "pow"]
)
def test_integer_operations(elementwise: Any, op: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    edge = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100, info.max, info.max - 1, info.min]
    if info.min < 0:
        edge += [-1, -2, -3, -7, -8, -100, info.min + 1]
    kept = sorted({v for v in edge if info.min <= v <= info.max})
    a = np.array([p for p in kept for _ in kept], dtype)
    b = np.array([q for _ in kept for q in kept], dtype)
    callee = integer_call(op, dtype)
    ctype = C_TYPE[SUFFIX[dtype]]
    run = elementwise(callee.features, f"{callee.name}(x, y)", [ctype, ctype], ctype)
    got = run(a, b)
    for x, y, result in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        assert result == evaluate_binary(op, x, y, DType(dtype)), (x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["min", "max", "floordiv", "floormod", "truncdiv", "truncmod"])
def test_float_operations(elementwise: Any, op: str, dtype: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 2.5, -2.5, 7.0, -7.0, 1e30, -1e-30, 3.3,
              np.inf, -np.inf, np.nan, 0.3, 0.9, 1e-45]  # fmt: skip
    a = np.repeat(np.array(values, dtype), len(values))
    b = np.tile(np.array(values, dtype), len(values))
    callee = float_call(op, dtype)
    ctype = C_TYPE[SUFFIX[dtype]]
    run = elementwise(callee.features, f"{callee.name}(x, y)", [ctype, ctype], ctype)
    expected = evaluate_binary(op, a, b, DType(dtype))
    got = run(a, b)
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


@pytest.mark.parametrize(("op", "exact"), [("min_nan", np.minimum), ("max_nan", np.maximum)])
def test_nan_propagating_forms(elementwise: Any, op: str, exact: Any) -> None:
    a = np.array([1, 2, np.nan, 1, np.nan, np.inf], np.float32)
    b = np.array([2, 1, 1, np.nan, np.nan, -np.inf], np.float32)
    callee = float_call(op, "float32")
    run = elementwise(callee.features, f"{callee.name}(x, y)", ["float", "float"], "float")
    np.testing.assert_array_equal(run(a, b), exact(a, b))


ATOMIC_TYPES = ["int32", "uint32", "int64", "uint8", "int16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*ATOMIC_TYPES, "float16", "bfloat16"])
@pytest.mark.parametrize("op", ["add", "min", "max"])
def test_atomics_from_many_threads(op: str, dtype: str) -> None:
    callee = atomic_call(op, dtype)
    ctype = C_TYPE[SUFFIX[dtype]]
    source = render(callee.features) + (
        f"TILEC_EXPORT void run({ctype} *p, const {ctype} *v, {ctype} *was) {{\n"
        "#pragma omp parallel for schedule(dynamic, 1)\n"
        f"  for (int64_t i = 0; i < 1000; ++i) was[i] = {callee.name}(p, v[i % 8]);\n}}\n"
    )
    half = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
    kind = half.get(dtype) or np.dtype(dtype)
    steps = np.array([1, 0, 1, 0, 0, 1, 0, 1] if op == "add" else [3, 9, 1, 4, 8, 2, 5, 7])
    v, p, was = steps.astype(kind), np.full(1, 5).astype(kind), np.zeros(1000).astype(kind)
    run = ctypes.CDLL(str(compile_shared(source).path)).run
    run(*(ctypes.c_void_p(a.ctypes.data) for a in (p, v, was)))
    # bfloat16 stops counting at 256 and uint8 wraps: repeat what one thread would do.
    expected = {"min": 1, "max": 9}.get(op)
    if expected is None:
        total = np.full(1, 5).astype(kind)
        with np.errstate(over="ignore"):
            for _ in range(500):
                total = (total + np.ones(1).astype(kind)).astype(kind)
        expected = total[0]
    assert p[0] == expected
    assert 5 in was


@pytest.mark.parametrize("dtype", ["int32", "uint64"])
def test_bitwise_and_exchange_atomics(dtype: str) -> None:
    ctype = C_TYPE[SUFFIX[dtype]]
    calls = {op: atomic_call(op, dtype) for op in ("and", "or", "xor", "exch", "cas", "load")}
    body = "".join(
        f"  out[{i}] = {calls[op].name}(p{args});\n"
        for i, (op, args) in enumerate(
            [("or", ", 12"), ("and", ", 10"), ("xor", ", 3"), ("exch", ", 77"), ("cas", ", 1, 2"),
             ("cas", ", 77, 5"), ("load", "")]
        )
    )  # fmt: skip
    source = render(f for c in calls.values() for f in c.features)
    source += f"TILEC_EXPORT void run({ctype} *p, {ctype} *out) {{\n{body}}}\n"
    p, out = np.array([3], dtype), np.zeros(7, dtype)
    run = ctypes.CDLL(str(compile_shared(source).path)).run
    run(ctypes.c_void_p(p.ctypes.data), ctypes.c_void_p(out.ctypes.data))
    assert out.tolist() == [3, 15, 10, 9, 77, 77, 5]


def test_copy_out_copies_exactly_its_bytes() -> None:
    source = render(["copy_out"]) + (
        "TILEC_EXPORT void run(char *d, const char *s, int64_t n) { tilec_copy_out(d, s, n); }\n"
    )
    run = ctypes.CDLL(str(compile_shared(source).path)).run
    data = np.random.default_rng(0).integers(0, 256, 10_000).astype(np.uint8)
    for offset in (0, 1, 4, 32, 63):
        for size in (0, 1, 63, 64, 1023, 1024, 1025, 5000, 8191):
            out = np.full(10_000, 7, np.uint8)
            start = 64 + offset
            run(
                ctypes.c_void_p(out.ctypes.data + start),
                ctypes.c_void_p(data.ctypes.data + 3),
                ctypes.c_int64(size),
            )
            np.testing.assert_array_equal(out[start : start + size], data[3 : 3 + size])
            assert (out[:start] == 7).all()
            assert (out[start + size :] == 7).all()


def test_stream_writes_its_bytes_at_any_alignment() -> None:
    source = render(["stream"]) + (
        "TILEC_EXPORT void run(char *d, const char *s, int64_t n) {\n"
        "  tilec_stream(d, s, n); tilec_stream_fence();\n}\n"
    )
    run = ctypes.CDLL(str(compile_shared(source).path)).run
    data = np.arange(1024, dtype=np.uint8)
    out = np.zeros(2048, np.uint8)
    aligned = -out.ctypes.data % 64
    for start, size in ((aligned, 256), (aligned, 100), (aligned + 4, 256), (aligned, 0)):
        out[:] = 7
        run(
            ctypes.c_void_p(out.ctypes.data + start),
            ctypes.c_void_p(data.ctypes.data + 1),
            ctypes.c_int64(size),
        )
        np.testing.assert_array_equal(out[start : start + size], data[1 : 1 + size])
        assert (out[:start] == 7).all()
        assert (out[start + size :] == 7).all()
