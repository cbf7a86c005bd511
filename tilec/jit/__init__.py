"""Just-in-time compilation: `jit`, `compile`, `JITKernel`."""

from tilec.jit.impl import JITImpl, compile, jit  # noqa: A004
from tilec.jit.kernel import JITKernel

__all__ = ["JITImpl", "JITKernel", "compile", "jit"]
