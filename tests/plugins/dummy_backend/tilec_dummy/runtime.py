"""The execution backend: compiles the generated Python and calls it block by block."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tilec import ir
from tilec.backend import BackendContext, CompiledArtifact, KernelParam
from tilec.diagnostics import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    KernelRuntimeError,
)


class PythonKernel:
    """A kernel over NumPy arrays."""

    def __init__(self, artifact: CompiledArtifact, context: BackendContext) -> None:
        self.artifact = artifact
        self._functions: dict[str, Any] = {}
        source = compile(artifact.kernel_source, f"<tilec-dummy {artifact.name}>", "exec")
        exec(source, self._functions)  # running generated code is the point

    def __call__(self, *args: Any) -> Any:
        """Check the inputs, allocate the outputs, run; the outputs."""
        artifact = self.artifact
        expected = len(artifact.inputs)
        if len(args) != expected:
            raise ArgumentCountError(
                f"kernel {artifact.name} takes {expected} inputs, got {len(args)}"
            )
        known: dict[ir.Var, int] = {}
        given = iter(args)
        values: list[Any] = [None if p.is_output else next(given) for p in artifact.params]
        for param, value in zip(artifact.params, values, strict=True):
            if value is not None or not param.is_output:
                self._check(param, value, known)
        for position in artifact.out_idx:
            param = artifact.params[position]
            shape = [e if isinstance(e, int) else known[e] for e in param.shape]  # type: ignore[index]
            values[position] = np.zeros(shape, str(param.dtype))
        self._run(values)
        outputs = [values[position] for position in artifact.out_idx]
        return None if not outputs else outputs[0] if len(outputs) == 1 else outputs

    def _run(self, values: list[Any]) -> None:
        with np.errstate(all="ignore"):
            for name in self.artifact.launches:
                grid = self._functions[f"{name}_grid"](*values)
                for block in itertools.product(*(range(extent) for extent in reversed(grid))):
                    try:
                        self._functions[name](*values, *map(np.int32, reversed(block)))
                    except AssertionError as error:
                        raise KernelRuntimeError(f"kernel {name}: {error}") from None

    def _check(self, param: KernelParam, value: Any, known: dict[ir.Var, int]) -> None:
        who = f"kernel {self.artifact.name}, argument {param.name}"
        if param.by_value:
            if not isinstance(value, (int, float, np.generic)):
                raise ArgumentTypeError(f"{who}: expected a number, got {type(value).__name__}")
            return
        if not isinstance(value, np.ndarray):
            raise ArgumentTypeError(f"{who}: expected an array, got {type(value).__name__}")
        if value.dtype != np.dtype(str(param.dtype)):
            raise ArgumentTypeError(f"{who}: expected dtype {param.dtype}, got {value.dtype}")
        if value.ndim != param.ndim:
            raise ArgumentValueError(f"{who}: expected {param.ndim} axes, got {value.ndim}")
        for axis, (extent, found) in enumerate(zip(param.shape, value.shape, strict=True)):
            want = known.setdefault(extent, found) if isinstance(extent, ir.Var) else extent
            if isinstance(want, int) and want != found:
                raise ArgumentValueError(f"{who}: axis {axis} has {found} elements, not {want}")
