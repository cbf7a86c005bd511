"""The reference interpreter: what a program in tile form means, computed with NumPy.

`run` executes a traced function on any machine, without a compiler. With ``check=True`` it also
finds what compiled code would not tell: undefined values, accesses outside of on-chip buffers,
iterations and blocks that disagree about an element.
"""

from __future__ import annotations

from typing import Any, Literal

from tilec import ir
from tilec.diagnostics import ArgumentCountError
from tilec.interp.arguments import Binder
from tilec.interp.checks import Checker
from tilec.interp.machine import Machine
from tilec.interp.memory import Cells
from tilec.transform.base import PassContext
from tilec.transform.negative_index import LegalizeNegativeIndex

__all__ = ["Check", "Program", "run"]

Check = bool | Literal["strict"]


class Program:
    """A function made ready to be interpreted; call it with its inputs."""

    def __init__(self, func: ir.PrimFunc) -> None:
        # What a negative index means is a rule of the language, which this pass spells out.
        self._func = LegalizeNegativeIndex().run_function(func, PassContext())
        outputs = sorted(func.attrs.get("out_idx", ()))
        self._outputs: list[ir.Buffer] = [
            p for n, p in enumerate(func.params) if n in outputs and isinstance(p, ir.Buffer)
        ]
        self._inputs = [p for n, p in enumerate(func.params) if n not in outputs]

    def __call__(self, *args: Any, check: Check = False) -> Any:
        """Execute it; see `run`."""
        func = self._func
        if len(args) != len(self._inputs):
            raise ArgumentCountError(
                f"Kernel expected {len(self._inputs)} inputs, but {len(args)} are provided",
                notes=(f"{func.name}({', '.join(p.name for p in self._inputs)})",),
            )
        binder = Binder(func)
        binder.bind(self._inputs, args)
        results = [binder.output(buffer) for buffer in self._outputs]
        checker = Checker(func.name, strict=check == "strict") if check else None
        machine = Machine(func, checker)
        machine.values.group.values.update(binder.scalars)
        for buffer, array in binder.arrays.items():
            track = checker is not None and buffer in self._outputs
            machine.values.cells[buffer] = Cells(buffer, array, track=track)
        machine.execute()
        if checker is not None:
            for buffer in self._outputs:
                checker.output(machine.values.cells[buffer], buffer.span)
        given = [binder.result(array) for array in results]
        if not given:
            return None
        return given[0] if len(given) == 1 else given


def run(func: ir.PrimFunc, *args: Any, check: Check = False) -> Any:
    """Execute a function in tile form.

    Args:
        func: what to execute.
        args: tensors (NumPy arrays, or anything on the CPU with ``__dlpack__``) and numbers in
            the order of the parameters; outputs (``out_idx``) are left out. Written tensors are
            changed in place.
        check: also report undefined values, accesses outside of on-chip buffers, conflicting
            iterations and races between blocks; ``"strict"`` reports accesses outside of global
            tensors as well, though these have a meaning (reads give 0, writes are dropped).

    Returns:
        The outputs: None without any, a tensor if there is one, else a list.

    Raises:
        ArgumentCountError, ArgumentTypeError, ArgumentValueError: arguments that do not fit.
        KernelRuntimeError: a failed assertion of the program.
        UndefinedValueError, RaceError, OutOfBoundsAccessError: found with `check`.
    """
    return Program(func)(*args, check=check)
