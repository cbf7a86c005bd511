"""Inputs for kernels that are measured or checked, and what counts as equal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from tilec import ir
from tilec.backend.artifact import KernelParam
from tilec.backend.components import RuntimeShim
from tilec.diagnostics import JITArgumentError, OutputAllocationError
from tilec.host.abi import HOST_MEMORY
from tilec.host.evaluate import compile_int


class TensorSupplyType(IntEnum):
    """What generated inputs hold."""

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def make_inputs(
    params: Sequence[KernelParam],
    runtime: RuntimeShim,
    supply: TensorSupplyType = TensorSupplyType.Auto,
    sizes: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> list[Any]:
    """One value per parameter: NumPy arrays for host memory, torch tensors for a device.

    Args:
        params: the inputs of a kernel.
        runtime: of the device.
        supply: what they hold.
        sizes: values of dynamic variables and of scalar parameters, by name.
        seed: of the numbers.

    Raises:
        JITArgumentError: a dynamic variable or a scalar without a value.
        OutputAllocationError: an element type that the framework does not have.
    """
    known = dict(sizes or {})
    random = np.random.default_rng(seed)
    values: list[Any] = []
    for param in params:
        if param.by_value:
            if param.name not in known:
                raise _without_value(param.name)
            values.append(known[param.name])
            continue
        shape = tuple(_extent(extent, known) for extent in param.shape)
        numbers = _numbers(param, shape, supply, random)
        if runtime.dlpack_device in HOST_MEMORY:
            values.append(numbers.astype(_numpy_dtype(param)))
        else:
            values.append(_torch_tensor(param, numbers, runtime))
    return values


def _without_value(name: str) -> JITArgumentError:
    return JITArgumentError(
        f"inputs cannot be generated: {name} has no value",
        hint=f"give dynamic_symbolic_constraints={{{name!r}: ...}}, or input_tensors",
    )


def _extent(extent: int | ir.Expr, known: Mapping[str, Any]) -> int:
    if isinstance(extent, int):
        return extent
    env = {}
    for var in ir.free_vars(extent):
        if var.name not in known:
            raise _without_value(var.name)
        env[var] = int(known[var.name])
    return compile_int(extent)(env)


def _numbers(
    param: KernelParam, shape: tuple[int, ...], supply: TensorSupplyType, random: Any
) -> Any:
    """Values of a wide type that fit the narrow one."""
    dtype = param.dtype
    if supply == TensorSupplyType.Zero:
        return np.zeros(shape, "float32")
    if supply == TensorSupplyType.One:
        return np.ones(shape, "float32")
    if dtype.is_bool:
        return random.integers(0, 2, shape)
    if dtype.is_uint:
        return random.integers(0, 3, shape)
    if not dtype.is_float or supply == TensorSupplyType.Integer:
        return random.integers(-2, 3, shape)
    if supply in (TensorSupplyType.Normal, TensorSupplyType.Randn):
        return random.standard_normal(shape, "float32")
    return random.random(shape, "float32") * 2 - 1


def _numpy_dtype(param: KernelParam) -> Any:
    name = "float32" if param.dtype.code == "tfloat" else str(param.dtype)
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes  # optional, for few dtypes
    except ImportError:
        ml_dtypes = None
    kind = getattr(ml_dtypes, name, None)
    if kind is None:
        raise OutputAllocationError(
            f"input {param.name} has dtype {name}, which NumPy does not have",
            hint="pass input_tensors",
        )
    return np.dtype(kind)


def _torch_tensor(param: KernelParam, numbers: Any, runtime: RuntimeShim) -> Any:
    try:
        import torch
    except ImportError as error:
        raise OutputAllocationError(
            f"input {param.name} cannot be made on the device without torch ({error})",
            hint="install torch, or pass input_tensors",
        ) from None
    kind = getattr(torch, str(param.dtype), None)
    if param.dtype.code == "tfloat":
        kind = torch.float32
    if kind is None:
        raise OutputAllocationError(
            f"input {param.name} has dtype {param.dtype!s}, which torch does not have",
            hint="pass input_tensors",
        )
    return torch.from_numpy(np.asarray(numbers)).to(runtime.torch_device).to(kind)


def as_numpy(value: Any) -> Any:
    """A tensor's elements as float64, int64 or bool, for comparison."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        host = value.detach().cpu()
        if not host.dtype.is_floating_point:
            return host.numpy()
        return host.to(torch.float64).numpy()
    array = np.asarray(value)
    return array if array.dtype.kind in "biu" else array.astype("float64")


def close_enough(
    got: Any,
    want: Any,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    name: str = "the result",
) -> None:
    """Check that all but a share of the elements agree.

    Raises:
        AssertionError: they do not, or the shapes differ.
    """
    a, b = as_numpy(got), as_numpy(want)
    if a.shape != b.shape:
        raise AssertionError(f"{name} has shape {a.shape}, expected {b.shape}")
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    else:
        wrong = a != b
    count = int(wrong.sum())
    if count > max_mismatched_ratio * max(a.size, 1):
        place = tuple(int(axis[0]) for axis in np.nonzero(wrong))
        raise AssertionError(
            f"{name}: {count} of {a.size} elements differ (allowed: {max_mismatched_ratio:.2%}); "
            f"the first at {list(place)}: {a[place]} instead of {b[place]}"
        )
