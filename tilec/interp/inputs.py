"""Arguments for a function, made from its signature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import evaluate, evaluate_cast, storage_dtype
from tilec.interp.groups import Array
from tilec.interp.memory import view_of

_GAP = 3  # elements between rows whose stride is a parameter


class Unsuitable(Exception):
    """No arguments can be made; the message says why."""


class Inputs:
    """The arguments of one call.

    Attributes:
        values: one per parameter: a number, or a tensor.
        storage: the memory of each tensor, gaps between strided elements included; None for a
            number.
    """

    def __init__(self, values: list[Any], storage: list[Array | None]) -> None:
        self.values = values
        self.storage = storage

    def copy(self) -> Inputs:
        """The same arguments in memory of their own."""
        storage = [None if s is None else s.copy() for s in self.storage]
        values = [
            v if s is None else _view(s, v.shape, v.strides)
            for v, s in zip(self.values, storage, strict=True)
        ]
        return Inputs(values, storage)


def make_inputs(
    func: ir.PrimFunc,
    seed: int,
    *,
    sizes: Sequence[int] = (5, 13, 7, 3, 11),
    low: int = -4,
    high: int = 6,
    real: bool = False,
    most: int = 1 << 22,
) -> Inputs:
    """Arguments for every parameter, outputs included; the same ones for the same arguments.

    Args:
        func: whose signature counts.
        seed: of the contents.
        sizes: of run-time extents, in the order in which they appear; they are used in turn.
        low: least value of an element; 0 for unsigned types.
        high: where elements end.
        real: floats are real numbers between `low` and `high`, not whole ones.
        most: elements in all.

    Raises:
        Unsuitable: an extent that cannot be computed, or too many elements.
    """
    rng = np.random.default_rng(seed)
    known = _extents(func, sizes)
    values: list[Any] = []
    storage: list[Array | None] = []
    total = 0
    for param in func.params:
        if isinstance(param, ir.Var):
            known.setdefault(param, _scalar(param, rng))
            values.append(known[param])
            storage.append(None)
            continue
        shape = tuple(max(_number(e, known), 0) for e in param.shape)
        steps = _strides(param, shape, known)
        count = 1 + sum((e - 1) * s for e, s in zip(shape, steps, strict=True))
        count = 0 if 0 in shape else count
        total += count
        if total > most:
            raise Unsuitable(f"its arguments have more than {most} elements")
        flat = _contents(param.dtype, count, rng, low, high, real=real)
        storage.append(flat)
        values.append(_view(flat, shape, tuple(s * flat.itemsize for s in steps)))
    return Inputs(values, storage)


def _extents(func: ir.PrimFunc, sizes: Sequence[int]) -> dict[ir.Var, Any]:
    """Values of the variables in shapes; those in strides come later."""
    found: dict[ir.Var, Any] = {}
    for param in func.params:
        for extent in param.shape if isinstance(param, ir.Buffer) else ():
            for var in ir.free_vars(extent) if isinstance(extent, ir.Expr) else ():
                if var not in found:
                    found[var] = sizes[len(found) % len(sizes)]
    return found


def _number(value: Any, known: dict[ir.Var, Any]) -> int:
    if isinstance(value, int):
        return value
    missing = [v.name for v in ir.free_vars(value) if v not in known]
    if missing:
        raise Unsuitable(f"nothing says what {', '.join(missing)} is")
    return int(evaluate(value, known))


def _strides(param: ir.Buffer, shape: tuple[int, ...], known: dict[ir.Var, Any]) -> tuple[int, ...]:
    """Element strides; a free one leaves a gap behind each row."""
    given: Sequence[Any] = param.strides or (None,) * len(shape)
    steps: list[int] = []
    tight = 1
    for extent, stride in reversed(list(zip(shape, given, strict=True))):
        unknown = [v for v in ir.free_vars(stride) if v not in known] if _symbolic(stride) else []
        if stride is None:
            step = tight
        elif not unknown:
            step = _number(stride, known)
        else:
            step = tight if not steps else tight + _GAP
            for var in unknown:
                known[var] = step
            step = _number(stride, known)
        steps.append(step)
        tight = max(tight, step * max(extent, 1))
    return tuple(reversed(steps))


def _symbolic(value: Any) -> bool:
    return isinstance(value, ir.Expr)


def _scalar(var: ir.Var, rng: np.random.Generator) -> Any:
    if var.dtype.is_bool:
        return True
    if var.dtype.is_float:
        return 1.5
    if not (var.dtype.is_int or var.dtype.is_uint):
        raise Unsuitable(f"{var.name} is a {var.dtype!s}")
    return int(rng.integers(1, 5))


def _contents(
    dtype: ir.DType, count: int, rng: np.random.Generator, low: int, high: int, *, real: bool
) -> Array:
    low = 0 if dtype.is_uint or dtype.is_bool else low
    source = "float64" if real and dtype.is_float else "int64"
    if source == "float64":
        made: Array = rng.uniform(low, high, count)
    else:
        made = rng.integers(low, 2 if dtype.is_bool else max(high, low + 1), count)
    cast = evaluate_cast(made, ir.DType(source), dtype)
    return np.asarray(cast).reshape(count).astype(storage_dtype(dtype))


def _view(flat: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    if 0 in shape or not shape:
        return flat.reshape(shape)
    assert math.prod(shape) > 0
    return view_of(flat, shape, strides)
