"""What a kernel of the zoo is: a factory, its inputs, its meaning in NumPy and its sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilec import ir

from .arrays import Draw

Config = SimpleNamespace
"""Sizes, dtype and block sizes by name."""

DEFAULT_LIMITS: Mapping[str, float] = {
    "float64": 1e-12,
    "float32": 1e-5,
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 8e-2,
    "float8_e5m2": 1.6e-1,
}
"""Largest relative Frobenius error by the dtype of the result; everything else is exact."""


@dataclass(frozen=True)
class Entry:
    """One kernel.

    Attributes:
        factory: keyword arguments to a prim_func.
        inputs: ``(config, draw) -> arrays``, one for each parameter that is not an output.
        reference: ``(config, xp, *inputs) -> expected``, the outputs and then the updated inputs,
            in float64; `xp` is NumPy or torch (`arrays.Numpy`, `arrays.Torch`). It must not change
            its arguments.
        small: configurations that take seconds at most on a CPU.
        large: a configuration that is realistic on a GPU.
        out: parameters that the kernel returns.
        updates: positions among the inputs of what the kernel changes in place.
        call_sizes: names in the configurations that only the inputs need, for sizes that the
            kernel learns from its arguments (``T.dynamic``).
        limits: largest relative error, by the configuration's dtype, where intermediate results
            are less exact than the output's dtype says.
    """

    factory: Callable[..., ir.PrimFunc]
    inputs: Callable[[Config, Draw], Sequence[np.ndarray]]
    reference: Callable[..., Sequence[Any]]
    small: Sequence[Mapping[str, Any]]
    large: Mapping[str, Any]
    out: Sequence[int] = (-1,)
    updates: Sequence[int] = ()
    call_sizes: Sequence[str] = ()
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """That of the factory."""
        return self.factory.__name__

    def config(self, given: Mapping[str, Any]) -> Config:
        """A configuration with the factory's defaults filled in.

        Raises:
            TypeError: a name that neither the factory nor the inputs know, or a missing one.
        """
        known = inspect.signature(self.factory).parameters
        unknown = set(given) - set(known) - set(self.call_sizes)
        missing = {n for n, p in known.items() if p.default is p.empty} - set(given)
        missing |= set(self.call_sizes) - set(given)
        if unknown or missing:
            raise TypeError(f"{self.name}: unknown {sorted(unknown)}, missing {sorted(missing)}")
        defaults = {n: p.default for n, p in known.items() if p.default is not p.empty}
        return Config(**{**defaults, **given})

    def make(self, config: Config) -> ir.PrimFunc:
        """The kernel, traced."""
        names = inspect.signature(self.factory).parameters
        return self.factory(**{name: getattr(config, name) for name in names})

    def limit(self, config: Config, dtype: str) -> float:
        """Largest relative error of a result with that dtype; 0 for what is exact."""
        if dtype not in DEFAULT_LIMITS:
            return 0.0
        own = self.limits.get(getattr(config, "dtype", dtype), 0.0)
        return max(own, DEFAULT_LIMITS[dtype])
