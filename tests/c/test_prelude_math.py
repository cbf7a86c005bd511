"""float32 mathematics against float64 NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilec_c.prelude import math_call, render
from tilec_c.toolchain import compile_shared, find_toolchain

_erf = np.frompyfunc(math.erf, 1, 1)


def _uniform(low: float, high: float) -> Any:
    rng = np.random.default_rng(3)
    spread = np.sign(low + high or 1) * 2.0 ** rng.uniform(-40, math.log2(abs(high)), 20_000)
    return np.concatenate([rng.uniform(low, high, 300_000), np.clip(spread, low, high)])


def _magnitudes() -> Any:
    rng = np.random.default_rng(4)
    return np.concatenate(
        [2.0 ** rng.uniform(-149, 128, 200_000), rng.uniform(0.4, 2.5, 200_000),
         1 + rng.standard_normal(50_000) * 1e-4]
    )  # fmt: skip


CASES: dict[str, tuple[Callable[[Any], Any], Any, float]] = {
    "exp": (np.exp, _uniform(-104, 88.72), 1.1),
    "exp2": (np.exp2, _uniform(-150, 127.99), 1.5),
    "exp10": (lambda x: np.power(10.0, x), _uniform(-45.2, 38.53), 2.0),
    "expm1": (np.expm1, _uniform(-20, 88.72), 1.6),
    "log": (np.log, _magnitudes(), 1.5),
    "log2": (np.log2, _magnitudes(), 2.0),
    "log10": (np.log10, _magnitudes(), 2.0),
    "log1p": (np.log1p, np.concatenate([_magnitudes(), _uniform(-0.9999, 1.0)]), 3.0),
    "tanh": (np.tanh, _uniform(-10, 10), 3.0),
    "erf": (lambda x: _erf(x).astype(np.float64), _uniform(-4.5, 4.5), 2.5),
    "sigmoid": (lambda x: np.exp(-np.logaddexp(0, -x)), _uniform(-104, 30), 3.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), _magnitudes(), 1.5),
}


@pytest.mark.parametrize("name", CASES)
def test_error_in_ulps(elementwise: Any, name: str) -> None:
    exact, samples, limit = CASES[name]
    callee = math_call(name, "float32")
    assert callee is not None
    run = elementwise(callee.features, f"{callee.name}(x)", ["float"], "float")
    x = samples.astype(np.float32)
    expected = exact(x.astype(np.float64))
    with np.errstate(all="ignore"):
        finite = np.isfinite(expected.astype(np.float32))
    unit = np.spacing(np.abs(expected[finite]).astype(np.float32)).astype(np.float64)
    error = np.abs(run(x).astype(np.float64)[finite] - expected[finite]) / np.abs(unit)
    worst = int(np.argmax(error))
    assert error[worst] <= limit, (x[finite][worst], error[worst])


INF, NAN = math.inf, math.nan
SPECIAL = {
    "exp": [(-INF, 0.0), (INF, INF), (NAN, NAN), (0.0, 1.0), (-1e30, 0.0), (1e30, INF)],
    "exp2": [(-INF, 0.0), (INF, INF), (NAN, NAN), (-149.0, 2.0**-149), (10.0, 1024.0),
             (-1e30, 0.0), (1e30, INF), (128.0, INF), (127.0, 2.0**127)],
    "exp10": [(-INF, 0.0), (INF, INF), (NAN, NAN), (0.0, 1.0), (-1e30, 0.0), (1e30, INF)],
    "expm1": [(-INF, -1.0), (INF, INF), (NAN, NAN), (-0.0, -0.0), (1e-30, 1e-30), (-1e30, -1.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (1.0, 0.0),
            (-INF, NAN)],
    "log2": [(0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (2.0**-149, -149.0), (8.0, 3.0)],
    "log10": [(0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (1.0, 0.0)],
    "log1p": [(-1.0, -INF), (INF, INF), (-2.0, NAN), (NAN, NAN), (-0.0, -0.0), (0.0, 0.0),
              (1e-30, 1e-30), (-INF, NAN)],
    "tanh": [(-INF, -1.0), (INF, 1.0), (NAN, NAN), (-0.0, -0.0), (1e-30, 1e-30)],
    "erf": [(-INF, -1.0), (INF, 1.0), (NAN, NAN), (-0.0, -0.0)],
    "sigmoid": [(-INF, 0.0), (INF, 1.0), (NAN, NAN), (0.0, 0.5)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN)],
    "round": [(0.5, 1.0), (-0.5, -1.0), (1.5, 2.0), (2.5, 3.0), (0.49999997, 0.0), (-0.0, -0.0),
              (INF, INF), (NAN, NAN), (8388609.0, 8388609.0), (-0.3, -0.0)],
    "nearbyint": [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0)],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(elementwise: Any, name: str) -> None:
    callee = math_call(name, "float32")
    assert callee is not None
    run = elementwise(callee.features, f"{callee.name}(x)", ["float"], "float")
    x = np.array([case[0] for case in SPECIAL[name]], np.float32)
    # Several vectors long, so that the vector code is what runs.
    got = run(np.tile(x, 64))[-len(x) :]
    expected = np.array([case[1] for case in SPECIAL[name]], np.float32)
    np.testing.assert_array_equal(got, expected)
    signed = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[signed]), np.signbit(expected[signed]))


VECTORISED = sorted(set(CASES) | {"round", "floor", "ceil", "trunc", "nearbyint", "sqrt", "abs"})


@pytest.mark.parametrize("name", VECTORISED)
def test_gcc_vectorises(name: str) -> None:
    if find_toolchain().family != "gcc":
        pytest.skip("asks gcc for its vectorisation report")
    callee = math_call(name, "float32")
    assert callee is not None
    source = render(callee.features) + (
        "TILEC_EXPORT void loop(float *restrict y, const float *restrict x) {\n"
        f"  for (int64_t i = 0; i < 4096; ++i) y[i] = {callee.name}(x[i]);\n}}\n"
    )
    log = compile_shared(source, extra_flags=("-fopt-info-vec-optimized",)).log
    assert "loop vectorized" in log


def test_float64_calls_the_library(elementwise: Any) -> None:
    x = np.linspace(0.1, 3.0, 101)
    for name, exact in (("exp", np.exp), ("log1p", np.log1p), ("tanh", np.tanh)):
        callee = math_call(name, "float64")
        assert callee is not None
        run = elementwise(callee.features, f"{callee.name}(x)", ["double"], "double")
        np.testing.assert_allclose(run(x), exact(x), rtol=1e-15)


def test_unknown_names_are_refused() -> None:
    assert math_call("frobnicate", "float32") is None
    assert math_call("exp", "int32") is None
