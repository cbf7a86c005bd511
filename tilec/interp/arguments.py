"""What a caller gives and gets: arrays, numbers, and the variables that shapes bind."""

from __future__ import annotations

import numbers
import sys
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import evaluate, evaluate_cast, storage_dtype
from tilec.diagnostics import ArgumentTypeError, ArgumentValueError
from tilec.interp.groups import Array


class Binder:
    """Binds the arguments of one call.

    Attributes:
        scalars: values of scalar parameters and of variables in shapes and strides.
        arrays: by tensor parameter.
        framework: module of the tensors that were given, if they were not NumPy's.
    """

    def __init__(self, func: ir.PrimFunc) -> None:
        self._func = func
        self.scalars: dict[ir.Var, Any] = {}
        self.arrays: dict[ir.Buffer, Array] = {}
        self.framework: Any = None

    def bind(self, params: list[ir.Buffer | ir.Var], args: tuple[Any, ...]) -> None:
        """Take the inputs; every shape is checked once all variables are known.

        Raises:
            ArgumentTypeError, ArgumentValueError: an argument that does not fit.
        """
        for param, value in zip(params, args, strict=True):
            if isinstance(param, ir.Var):
                self.scalars[param] = self._scalar(param, value)
        checks: list[tuple[str, Any, int]] = []
        for param, value in zip(params, args, strict=True):
            if isinstance(param, ir.Buffer) and not (value is None and not self._uses(param)):
                self._tensor(param, self._array(param, value), checks)
        for what, expected, found in checks:
            wanted = self.extent(expected)
            if wanted != found:
                raise ArgumentValueError(f"{what} expected {wanted}, got {found}")

    def _where(self, param: ir.Buffer | ir.Var) -> str:
        return f"kernel {self._func.name}: argument {param.name}"

    def _scalar(self, var: ir.Var, value: Any) -> Any:
        integer = isinstance(value, (bool, np.bool_, numbers.Integral))
        real = integer or isinstance(value, (float, np.floating))
        if not (real if var.dtype.is_float else integer):
            raise ArgumentTypeError(
                f"{self._where(var)}: expected {var.dtype!s}, got {ir.describe(value)}"
            )
        if var.dtype.is_float:
            return evaluate_cast(float(value), ir.DType("float64"), var.dtype)
        if var.dtype.is_bool:
            return bool(value)
        low, high = var.dtype.int_range
        if not low <= int(value) <= high:
            raise ArgumentValueError(
                f"{self._where(var)}: {int(value)} does not fit {var.dtype!s} ({low} to {high})"
            )
        return int(value)

    def _uses(self, buffer: ir.Buffer) -> bool:
        return any(node is buffer for node in ir.walk(self._func.body))

    def _array(self, buffer: ir.Buffer, value: Any) -> Array:
        where = self._where(buffer)
        array = value if isinstance(value, np.ndarray) else self._foreign(where, value)
        stored = storage_dtype(buffer.dtype)
        if array.dtype != stored:
            raise ArgumentTypeError(f"{where}: dtype expected {buffer.dtype!s}, got {array.dtype}")
        if array.ndim != len(buffer.shape):
            raise ArgumentValueError(
                f"{where}: ndim expected {len(buffer.shape)}, got {array.ndim}"
            )
        return array

    def _foreign(self, where: str, value: Any) -> Array:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            self.framework = torch
            if value.device.type != "cpu":
                raise ArgumentValueError(f"{where}: device expected cpu, got {value.device}")
            return from_torch(torch, value)
        if hasattr(value, "__dlpack__"):
            try:
                return np.from_dlpack(value)
            except (BufferError, RuntimeError, TypeError) as error:
                raise ArgumentTypeError(f"{where}: {error}") from error
        raise ArgumentTypeError(f"{where}: expected a tensor, got {ir.describe(value)}")

    def _tensor(self, buffer: ir.Buffer, array: Array, checks: list[tuple[str, Any, int]]) -> None:
        where = self._where(buffer)
        for axis, (extent, size) in enumerate(zip(buffer.shape, array.shape, strict=True)):
            if not self._solve(extent, size):
                checks.append((f"{where}: shape[{axis}]", extent, size))
        if buffer.strides is not None:
            for axis, (stride, size) in enumerate(zip(buffer.strides, array.strides, strict=True)):
                step = size // max(array.itemsize, 1)
                if not self._solve(stride, step) and array.shape[axis] > 1 and array.size:
                    checks.append((f"{where}: strides[{axis}]", stride, step))
        self.arrays[buffer] = array

    def _solve(self, value: Any, found: int) -> bool:
        """Bind the one unknown variable of an extent that is linear in it."""
        if not isinstance(value, ir.Expr):
            return False
        inner = value
        while isinstance(inner, ir.Cast):
            inner = inner.value
        unknown = [v for v in ir.free_vars(inner) if v not in self.scalars]
        if len(unknown) != 1:
            return False
        var = unknown[0]
        if inner is var:
            self.scalars[var] = found
            return True
        at_zero, at_one = (evaluate(inner, {**self.scalars, var: n}) for n in (0, 1))
        scale = int(at_one) - int(at_zero)
        if scale == 0:
            return False
        self.scalars[var] = (found - int(at_zero)) // scale
        return False  # whether it divides is checked like any other extent

    def extent(self, value: Any) -> int:
        """The number behind an extent of a parameter."""
        if isinstance(value, int):
            return value
        unknown = [v.name for v in ir.free_vars(value) if v not in self.scalars]
        if unknown:
            raise ArgumentValueError(
                f"kernel {self._func.name}: nothing says what {', '.join(unknown)} is"
            )
        return int(evaluate(value, self.scalars))

    def output(self, buffer: ir.Buffer) -> Array:
        """A new tensor for an output."""
        shape = tuple(max(self.extent(e), 0) for e in buffer.shape)
        array = np.zeros(shape, storage_dtype(buffer.dtype))
        self.arrays[buffer] = array
        return array

    def result(self, array: Array) -> Any:
        """An output in the caller's own kind of tensor."""
        return array if self.framework is None else to_torch(self.framework, array)


def from_torch(torch: Any, tensor: Any) -> Array:
    """The same memory as an array, narrow floats included."""
    tensor = tensor.detach()
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16" or name.startswith("float8"):
        bits = torch.int16 if name == "bfloat16" else torch.uint8
        array: Array = tensor.view(bits).numpy().view(storage_dtype(ir.DType(name)))
        return array
    plain: Array = tensor.numpy()
    return plain


def to_torch(torch: Any, array: Array) -> Any:
    """The same memory as a tensor, narrow floats included."""
    name = array.dtype.name
    if name == "bfloat16" or name.startswith("float8"):
        bits = np.int16 if name == "bfloat16" else np.uint8
        return torch.from_numpy(array.view(bits)).view(getattr(torch, name))
    return torch.from_numpy(array)
