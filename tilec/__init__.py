"""tilec: a compiler for tile kernels written in Python.

``import tilec`` and ``import tilec.language as T``; decorate a kernel with ``@tilec.jit``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.diagnostics import TilecError
from tilec.jit import JITImpl, JITKernel, compile, jit  # noqa: A004
from tilec.language.scalar import cdiv
from tilec.options import options  # not lazy: the submodule of that name must not take its place

if TYPE_CHECKING:
    from tilec.backend import CompiledArtifact, Target
    from tilec.engine import lower
    from tilec.transform.config import PassConfigKey

__version__ = "0.1.0"
__all__ = [
    "CompiledArtifact",
    "JITImpl",
    "JITKernel",
    "PassConfigKey",
    "Target",
    "TilecError",
    "cdiv",
    "compile",
    "jit",
    "lower",
    "options",
]

_LAZY = {
    "CompiledArtifact": "tilec.backend",
    "PassConfigKey": "tilec.transform.config",
    "Target": "tilec.backend",
    "lower": "tilec.engine",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'tilec' has no attribute {name!r}")
