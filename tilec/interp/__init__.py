"""The reference interpreter: what a program in tile form means, computed with NumPy.

`run` executes a traced function on any machine, without a compiler. With ``check=True`` it also
finds what compiled code would not tell: undefined values, conflicting iterations, races between
blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import ir
from tilec.arith import storage_dtype
from tilec.diagnostics import ArgumentCountError, ArgumentTypeError, ArgumentValueError
from tilec.interp.machine import Machine
from tilec.transform.base import PassContext
from tilec.transform.negative_index import LegalizeNegativeIndex

__all__ = ["run"]


def run(func: ir.PrimFunc, *args: Any, check: bool = False) -> Any:
    """Execute a function in tile form.

    Args:
        func: what to execute.
        args: NumPy arrays for tensors and numbers for scalars, in the order of the parameters;
            outputs (``out_idx``) are left out. Written arrays are changed in place.
        check: also report undefined values, conflicting iterations and races between blocks.

    Returns:
        The outputs: None without any, an array if there is one, else a list.

    Raises:
        ArgumentCountError, ArgumentTypeError, ArgumentValueError: arguments that do not fit.
        KernelRuntimeError: a failed assertion of the program.
        UndefinedValueError, RaceError: found with `check`.
    """
    # What a negative index means is a rule of the language, which this pass spells out.
    func = LegalizeNegativeIndex().run_function(func, PassContext())
    outputs = sorted(func.attrs.get("out_idx", ()))
    inputs = [p for n, p in enumerate(func.params) if n not in outputs]
    if len(args) != len(inputs):
        raise ArgumentCountError(
            f"{func.name} expects {len(inputs)} argument(s), got {len(args)}", span=func.span
        )
    machine = Machine(func, check=check)
    for param, value in zip(inputs, args, strict=True):
        if isinstance(param, ir.Var):
            machine.bind_scalar(param, value)
        else:
            machine.bind_tensor(param, _array(func, param, value))
    results = []
    for index in outputs:
        buffer = func.params[index]
        assert isinstance(buffer, ir.Buffer)
        shape = tuple(machine.extent(e) for e in buffer.shape)
        array = np.zeros(shape, storage_dtype(buffer.dtype))
        machine.bind_tensor(buffer, array)
        results.append(array)
    machine.execute()
    if not results:
        return None
    return results[0] if len(results) == 1 else results


def _array(func: ir.PrimFunc, buffer: ir.Buffer, value: Any) -> np.ndarray[Any, Any]:
    where = f"{func.name}: argument {buffer.name}"
    if not isinstance(value, np.ndarray):
        raise ArgumentTypeError(f"{where} is {ir.describe(value)}, expected a NumPy array")
    if value.dtype != storage_dtype(buffer.dtype):
        raise ArgumentTypeError(f"{where}: dtype expected {buffer.dtype!s}, got {value.dtype}")
    if value.ndim != len(buffer.shape):
        raise ArgumentValueError(f"{where}: ndim expected {len(buffer.shape)}, got {value.ndim}")
    return value
