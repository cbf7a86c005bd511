"""Compile small C programs from the prelude and call them on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from tilec_c.prelude import render
from tilec_c.toolchain import compile_shared

C_DTYPES = {
    "float": np.float32, "double": np.float64,
    "int8_t": np.int8, "int16_t": np.int16, "int32_t": np.int32, "int64_t": np.int64,
    "uint8_t": np.uint8, "uint16_t": np.uint16, "uint32_t": np.uint32, "uint64_t": np.uint64,
}  # fmt: skip

Elementwise = Callable[[Iterable[str], str, Sequence[str], str], Callable[..., Any]]


@pytest.fixture
def elementwise() -> Elementwise:
    """Make ``out[i] = expression`` over arrays; the expression reads x, y, z."""

    def build(
        features: Iterable[str], expression: str, inputs: Sequence[str], output: str
    ) -> Callable[..., Any]:
        names = "xyz"[: len(inputs)]
        params = "".join(f"const {t} *restrict p{n}, " for n, t in zip(names, inputs, strict=True))
        loads = "".join(f"{t} {n} = p{n}[i]; " for n, t in zip(names, inputs, strict=True))
        source = render(features) + (
            f"TILEC_EXPORT void loop({params}{output} *restrict out, int64_t n) {{\n"
            f"  for (int64_t i = 0; i < n; ++i) {{ {loads}out[i] = {expression}; }}\n}}\n"
        )
        function = ctypes.CDLL(str(compile_shared(source).path)).loop

        def call(*arrays: Any) -> Any:
            typed = [
                np.ascontiguousarray(a, C_DTYPES[t]) for a, t in zip(arrays, inputs, strict=True)
            ]
            out = np.empty(typed[0].shape, C_DTYPES[output])
            pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*typed, out)]
            function(*pointers, ctypes.c_int64(out.size))
            return out

        return call

    return build
