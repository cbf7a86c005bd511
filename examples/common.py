"""What the examples share: random input, the comparison with NumPy and a timer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-3}
"""Largest relative Frobenius error, by storage dtype; all accumulate in float32."""


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of that name; bfloat16 comes from the package ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes  # noqa: PLC0415 - optional

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def storage_dtypes() -> Iterator[str]:
    """The dtypes that can be shown here."""
    yield "float32"
    yield "float16"
    try:
        numpy_dtype("bfloat16")
    except ImportError:
        return
    yield "bfloat16"


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Standard normal values, rounded to `dtype`."""
    return rng.standard_normal(shape, dtype=np.float32).astype(numpy_dtype(dtype))


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference over the norm of the expected values."""
    expected = np.asarray(expected, np.float64)
    difference = np.asarray(actual, np.float64) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected))


def best_ms(call: Callable[[], object], repeat: int = 5) -> float:
    """The shortest of `repeat` calls, in milliseconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def report(what: str, dtype: str, actual: np.ndarray, expected: np.ndarray, ms: float) -> bool:
    """Print one line about a result and say whether it is right."""
    error = relative_error(actual, expected)
    good = error < TOLERANCE[dtype]  # False for NaN as well
    verdict = "ok" if good else f"WRONG, limit {TOLERANCE[dtype]:.0e}"
    print(f"{what}, {dtype}: error {error:.1e} ({verdict}), {ms:.2f} ms")
    return good
