"""Random inputs, and the part of NumPy that references are written in, in NumPy and in torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

_EXTENDED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of that name, those of ml_dtypes included."""
    return np.dtype(getattr(ml_dtypes, name) if name in _EXTENDED else name)


class Draw:
    """Random arrays from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(
        self, shape: Sequence[int], dtype: str = "float32", scale: float = 1.0
    ) -> np.ndarray:
        """Normal values, rounded to `dtype`; small integers where that is an integer type."""
        values = self._rng.standard_normal(tuple(shape), dtype=np.float32)
        kind = numpy_dtype(dtype)
        if kind.kind in "iu":
            low = 0 if kind.kind == "u" else -127
            values = np.rint(values * 30).clip(low, 127)
        else:
            values *= np.float32(scale)
        return values.astype(kind)

    def uniform(
        self, shape: Sequence[int], dtype: str = "float32", low: float = 0.0, high: float = 1.0
    ) -> np.ndarray:
        """Uniform values."""
        return self._rng.uniform(low, high, tuple(shape)).astype(numpy_dtype(dtype))

    def integers(
        self, shape: Sequence[int], low: int, high: int, dtype: str = "int32"
    ) -> np.ndarray:
        """Integers from `low` to `high` - 1."""
        return self._rng.integers(low, high, tuple(shape), dtype=np.int64).astype(dtype)

    def mask(self, shape: Sequence[int], share: float, dtype: str = "bool") -> np.ndarray:
        """True (1) with that probability."""
        return (self._rng.random(tuple(shape)) < share).astype(dtype)

    def permutation(self, count: int, dtype: str = "int32") -> np.ndarray:
        """0 to `count` - 1 in random order."""
        return self._rng.permutation(count).astype(dtype)

    def offsets(self, parts: int, total: int) -> np.ndarray:
        """`parts` + 1 ascending int32 values from 0 to `total`; parts may be empty."""
        cuts = np.sort(self._rng.integers(0, total + 1, parts - 1))
        return np.concatenate([[0], cuts, [total]]).astype(np.int32)


class Numpy:
    """NumPy, with the few names that torch spells otherwise."""

    bool = np.bool_

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def f64(self, x: Any) -> Any:
        """As float64; a copy."""
        return np.array(x, np.float64)

    def i64(self, x: Any) -> Any:
        """As int64; a copy."""
        return np.array(x).astype(np.int64)

    def rounded(self, x: Any, dtype: str) -> Any:
        """Values rounded to `dtype`, as float64."""
        return x.astype(numpy_dtype(dtype)).astype(np.float64)

    def arange(self, count: int) -> Any:
        """0 to `count` - 1, int64."""
        return np.arange(count)

    def zeros(self, shape: Sequence[int]) -> Any:
        """Of float64."""
        return np.zeros(tuple(shape))

    def full(self, shape: Sequence[int], value: float) -> Any:
        """Of float64."""
        return np.full(tuple(shape), float(value))

    def izeros(self, shape: Sequence[int]) -> Any:
        """Of int64."""
        return np.zeros(tuple(shape), np.int64)

    def array(self, values: Any) -> Any:
        """From Python values."""
        return np.array(values)

    def repeat(self, x: Any, count: int, axis: int) -> Any:
        """Each element `count` times."""
        return np.repeat(x, count, axis=axis)

    def order(self, x: Any, axis: int = -1) -> Any:
        """Stable ascending order."""
        return np.argsort(x, axis=axis, kind="stable")

    def sorted(self, x: Any, axis: int = -1) -> Any:
        """Ascending."""
        return np.sort(x, axis=axis)

    def pick(self, x: Any, index: Any, axis: int) -> Any:
        """`take_along_axis`."""
        return np.take_along_axis(x, index, axis)

    def add_at(self, x: Any, index: Any, values: Any) -> None:
        """``x[index] += values`` along the first axis, with repeated indices."""
        np.add.at(x, index, values)

    def erf(self, x: Any) -> Any:
        """Element by element."""
        return np.vectorize(math.erf, otypes=[np.float64])(x)

    def item(self, x: Any) -> list[int]:
        """Integers as a Python list."""
        return [int(v) for v in np.asarray(x).ravel()]


class Torch:
    """The same on a torch device."""

    def __init__(self, device: str) -> None:
        import torch  # noqa: PLC0415 - optional

        self.device = device
        self.bool = torch.bool
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def f64(self, x: Any) -> Any:
        return x.to(self._torch.float64, copy=True)

    def i64(self, x: Any) -> Any:
        return x.to(self._torch.int64, copy=True)

    def rounded(self, x: Any, dtype: str) -> Any:
        # Through float32: torch rounds once where the value fits, as all of the zoo's do.
        return x.to(getattr(self._torch, dtype)).to(self._torch.float64)

    def arange(self, count: int) -> Any:
        return self._torch.arange(count, device=self.device)

    def zeros(self, shape: Sequence[int]) -> Any:
        return self._torch.zeros(tuple(shape), dtype=self._torch.float64, device=self.device)

    def full(self, shape: Sequence[int], value: float) -> Any:
        return self.zeros(shape) + value

    def izeros(self, shape: Sequence[int]) -> Any:
        return self._torch.zeros(tuple(shape), dtype=self._torch.int64, device=self.device)

    def array(self, values: Any) -> Any:
        return self._torch.as_tensor(values, device=self.device)

    def repeat(self, x: Any, count: int, axis: int) -> Any:
        return self._torch.repeat_interleave(x, count, dim=axis)

    def order(self, x: Any, axis: int = -1) -> Any:
        return self._torch.argsort(x, dim=axis, stable=True)

    def sorted(self, x: Any, axis: int = -1) -> Any:
        return self._torch.sort(x, dim=axis).values

    def pick(self, x: Any, index: Any, axis: int) -> Any:
        return self._torch.take_along_dim(x, index, axis)

    def add_at(self, x: Any, index: Any, values: Any) -> None:
        x.index_add_(0, index, values)

    def erf(self, x: Any) -> Any:
        return self._torch.special.erf(x)

    def item(self, x: Any) -> list[int]:
        return [int(v) for v in x.flatten().tolist()]

    def tensor(self, array: np.ndarray) -> Any:
        """A copy of a NumPy array on the device."""
        name = array.dtype.name
        if name in _EXTENDED:
            raw = np.ascontiguousarray(array).view(f"int{array.dtype.itemsize * 8}")
            return self._torch.from_numpy(raw).to(self.device).view(getattr(self._torch, name))
        return self._torch.from_numpy(np.array(array)).to(self.device)


def errors(xp: Numpy | Torch, actual: Any, expected: Any) -> tuple[float, float]:
    """Relative error of a result: Frobenius, and the worst element's.

    An element's error is relative to its own size or that of the typical element, whichever is
    larger. Infinities and NaNs have to be at the same places, else both are NaN.
    """
    got, want = xp.f64(actual), xp.f64(expected)
    if tuple(got.shape) != tuple(want.shape):
        raise AssertionError(f"shape {tuple(got.shape)}, expected {tuple(want.shape)}")
    finite = xp.isfinite(want)
    same = (got == want) | ((got != got) & (want != want))
    if not bool((xp.isfinite(got) == finite).all()) or not bool((same | finite).all()):
        return math.nan, math.nan
    if not math.prod(want.shape):
        return 0.0, 0.0
    zero = xp.zeros(want.shape)
    got, want = xp.where(finite, got, zero), xp.where(finite, want, zero)
    norm = float((want * want).sum()) ** 0.5
    difference = xp.abs(got - want)
    if norm == 0:
        worst = float(difference.max())
        return worst, worst
    typical = norm / math.prod(want.shape) ** 0.5
    worst = float((difference / (xp.abs(want) + typical)).max())
    return float((difference * difference).sum()) ** 0.5 / norm, worst
