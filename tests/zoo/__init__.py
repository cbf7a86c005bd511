"""The kernel zoo: what users write, each kernel with its meaning in NumPy (see README.md)."""

from __future__ import annotations

import importlib
import types

from .registry import Config, Entry

FAMILIES = (
    "gemm",
    "gemm_schedules",
    "gemm_special",
    "quantized",
    "attention",
    "decode",
    "recurrent",
    "rows",
    "elementwise",
    "reductions",
    "indexing",
    "convolution",
)
"""Modules with kernels; each lists them in ``ENTRIES``."""


def _family(name: str) -> types.ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


ENTRIES: dict[str, Entry] = {e.name: e for f in FAMILIES for e in _family(f).ENTRIES}
"""All kernels by name."""


def small() -> list[tuple[str, Entry, Config]]:
    """All small configurations: an identifier, the kernel and the configuration."""
    return [
        (f"{entry.name}-{number}", entry, entry.config(given))
        for entry in ENTRIES.values()
        for number, given in enumerate(entry.small)
    ]
