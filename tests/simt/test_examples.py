"""The examples on a lane machine, run lane by lane."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tilec.options import options

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("softmax", (5, 100)),
        ("rms_norm", (3, 257)),
        ("layer_norm", (5, 64)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows(name: str, sizes: tuple[int, ...], dtype: str, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module(name)
    with options(target="simt"):
        assert module.run(*sizes, dtype)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("topk", (9, 50, 4, "float32")),
        ("flash_attention", ((1, 2, 70, 32), "float16", True)),
        ("dequant_gemm", (33, 40, 64, "float16")),
        ("conv2d", ((1, 6, 7, 5, 9), "float32")),
    ],
)
def test_tiles(name: str, args: tuple[Any, ...], monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module(name)
    with options(target="simt"):
        assert module.run(*args)
