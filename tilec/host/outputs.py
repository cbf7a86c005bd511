"""Outputs that the runtime allocates: their shapes, and arrays of the caller's kind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec import ir
from tilec.diagnostics import (
    ArgumentTypeError,
    ArgumentValueError,
    InternalError,
    OutputAllocationError,
)
from tilec.host.binding import SHAPE, Step, plan_outputs
from tilec.host.evaluate import Evaluator, compile_int
from tilec.host.packing import Frame, ffi, tensor_type
from tilec.ir import Buffer, DType, Var

if TYPE_CHECKING:
    from tilec.backend.artifact import KernelParam
    from tilec.backend.components import RuntimeShim


class OutputAllocator:
    """Allocates the outputs of one kernel.

    Raises:
        ShapeError: an output whose shape no input determines.
    """

    def __init__(
        self,
        kernel: str,
        params: Sequence[KernelParam],
        out_idx: Sequence[int],
        runtime: RuntimeShim | None = None,
    ) -> None:
        self._kernel = kernel
        self._allocate = None if runtime is None else runtime.allocate
        self._params = tuple(params)
        self._outputs = tuple(out_idx)
        nodes = [_node(p) for p in params]
        plan = plan_outputs(kernel, nodes, tuple(out_idx))
        steps = [s for position in plan.order for s in plan.steps[position]] + list(plan.late)
        self._solve = [(s, compile_int(s.rest)) for s in steps if s.solve is not None]
        self._scalars = [
            (i, node)
            for i, node in enumerate(nodes)
            if isinstance(node, Var) and node.dtype.is_integer
        ]
        self._shapes: list[tuple[int, ...] | list[Evaluator]] = []
        for position in self._outputs:
            extents = [ir.fold_int(e) for e in params[position].shape]
            if all(isinstance(e, int) for e in extents):
                self._shapes.append(tuple(extents))
            else:
                self._shapes.append([compile_int(e) for e in extents])
        self._numpy: dict[DType, Any] = {}

    def allocate(self, values: Sequence[Any], frame: Frame) -> list[Any]:
        """New tensors for the outputs, uninitialised.

        Args:
            values: one per parameter; those of outputs are ignored.
            frame: with the packed inputs.

        Raises:
            ArgumentTypeError, ArgumentValueError: an input that determines a shape is missing or
                has another rank.
            OutputAllocationError: no memory, or no array type for the dtype.
        """
        env: dict[Var, int] | None = None
        like = _framework(values)
        results = []
        for position, shape in zip(self._outputs, self._shapes, strict=True):
            param = self._params[position]
            if isinstance(shape, list):
                if env is None:
                    env = self._environment(values, frame)
                known = tuple(max(evaluate(env), 0) for evaluate in shape)
            else:
                known = shape
            try:
                if like is not None:
                    torch, device = like
                    dtype = self._torch_dtype(torch, param)
                    results.append(torch.empty(known, dtype=dtype, device=device))
                elif self._allocate is not None:
                    model, index = self._model(values, frame)
                    results.append(self._allocate(model, known, param.dtype, index))
                else:
                    results.append(np.empty(known, self._numpy_dtype(param)))
            except (MemoryError, ValueError, RuntimeError) as error:
                if isinstance(error, OutputAllocationError):
                    raise
                raise OutputAllocationError(
                    f"kernel {self._kernel}: output {param.name} {ir.shape_text(known)} "
                    f"{param.dtype!s} cannot be allocated: {error}"
                ) from error
        return results

    def _model(self, values: Sequence[Any], frame: Frame) -> tuple[Any, int]:
        """The first tensor among the inputs and its device; (None, -1) without one."""
        for position, value in enumerate(values):
            if self._params[position].by_value or value is None or position in self._outputs:
                continue
            return value, frame.device_of(position)
        return None, -1

    def _environment(self, values: Sequence[Any], frame: Frame) -> dict[Var, int]:
        """The values of dynamic variables. What the stub will refuse anyway counts as 0."""
        env = {node: int(frame.ints[2 * i + 1]) for i, node in self._scalars}
        for step, rest in self._solve:
            assert step.solve is not None
            given = self._extent(step, values, frame) - rest(env)
            value = given // step.scale
            low, high = step.solve.dtype.int_range
            env[step.solve] = value if max(low, 0) <= value <= high else 0
        return env

    def _extent(self, step: Step, values: Sequence[Any], frame: Frame) -> int:
        param = self._params[step.param]
        where = f"kernel {self._kernel}: argument {param.name}"
        if values[step.param] is None:
            raise ArgumentTypeError(
                f"{where}: expected a tensor {ir.shape_text(param.shape)} {param.dtype!s}, got None"
            )
        tensor = ffi().cast(tensor_type(), frame.ints[2 * step.param + 1])
        if tensor.ndim != len(param.shape):
            raise ArgumentValueError(
                f"{where}: ndim expected {len(param.shape)}, got {tensor.ndim}"
            )
        if step.field == SHAPE:
            return int(tensor.shape[step.axis])
        if tensor.strides:
            return int(tensor.strides[step.axis])
        stride = 1
        for axis in range(step.axis + 1, tensor.ndim):
            stride *= int(tensor.shape[axis])
        return stride

    def _numpy_dtype(self, param: KernelParam) -> Any:
        known = self._numpy.get(param.dtype)
        if known is None:
            known = self._numpy[param.dtype] = self._find_numpy_dtype(param)
        return known

    def _find_numpy_dtype(self, param: KernelParam) -> Any:
        name = "float32" if param.dtype.code == "tfloat" else str(param.dtype)
        if param.dtype.bits >= 8 and param.dtype.lanes == 1:
            try:
                return np.dtype(name)
            except TypeError:
                pass
            try:
                import ml_dtypes  # noqa: PLC0415 - optional, and needed for few dtypes
            except ImportError:
                raise OutputAllocationError(
                    f"kernel {self._kernel}: output {param.name} has dtype {name}, which NumPy "
                    "has only with ml_dtypes",
                    hint="pip install ml_dtypes, or pass the output as an argument",
                ) from None
            scalar = getattr(ml_dtypes, name, None)
            if scalar is not None:
                return np.dtype(scalar)
        raise OutputAllocationError(
            f"kernel {self._kernel}: output {param.name} has dtype {name}, which NumPy does not "
            "have",
            hint="pass the output as an argument",
        )

    def _torch_dtype(self, torch: Any, param: KernelParam) -> Any:
        name = "float32" if param.dtype.code == "tfloat" else str(param.dtype)
        known = getattr(torch, name, None)
        if param.dtype.bits < 8 or not isinstance(known, torch.dtype):
            raise OutputAllocationError(
                f"kernel {self._kernel}: output {param.name} has dtype {name}, which torch does "
                "not have",
                hint="pass the output as an argument",
            )
        return known


def _framework(values: Sequence[Any]) -> tuple[Any, Any] | None:
    """torch and a device if any input is a torch tensor; torch is never imported here."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    tensor = getattr(torch, "Tensor", None)  # absent while torch itself is being imported
    if tensor is None:
        return None
    for value in values:
        # torch's own instance check is slow, so the usual types are told apart without it.
        kind = type(value)
        if kind is tensor or (kind is not np.ndarray and isinstance(value, tensor)):
            return torch, value.device
    return None


def _node(param: KernelParam) -> Buffer | Var:
    if param.node is None:
        raise InternalError(f"parameter {param.name} has no IR node")
    return param.node
