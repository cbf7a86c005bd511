"""The reference interpreter: what a program means, computed with NumPy.

`run` executes a traced function on any machine, without a compiler. With ``check=True`` it also
finds what compiled code would not tell: undefined values, accesses outside of on-chip buffers,
iterations and blocks that disagree about an element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tilec import ir
from tilec.backend.components import Meaning
from tilec.diagnostics import ArgumentCountError
from tilec.interp.arguments import Binder
from tilec.interp.checks import Checker
from tilec.interp.machine import Machine
from tilec.interp.memory import Cells
from tilec.interp.split import SplitMachine, SplitThreadMachine, has_lanes, host_function
from tilec.interp.thread import LaneChecker, ThreadMachine, is_thread_form, lane_checker
from tilec.transform.base import PassContext
from tilec.transform.negative_index import LegalizeNegativeIndex

__all__ = ["Check", "Program", "run"]

Check = bool | Literal["strict"]
Form = Literal["tile", "thread"]


class Program:
    """A function, or a module in split form, made ready to be interpreted; call it with its inputs.

    Args:
        func: what to execute.
        meanings: of intrinsics that a backend adds (`BackendModule.meanings`).
        limit: steps that a call may take; `machine.LimitError` is raised beyond.
        negative: whether negative indices still have the meaning that the language gives them;
            passes spell it out once.
        form: "tile" or "thread"; None to find out (`tilec.interp.thread.is_thread_form`).
    """

    def __init__(
        self,
        func: ir.PrimFunc | ir.Module,
        *,
        meanings: Mapping[str, Meaning] | None = None,
        limit: int | None = None,
        negative: bool = True,
        form: Form | None = None,
    ) -> None:
        self._module = func if isinstance(func, ir.Module) else None
        if isinstance(func, ir.Module):
            form = form or ("thread" if has_lanes(func) else "tile")
            func = host_function(func)
        if negative and self._module is None:
            func = LegalizeNegativeIndex().run_function(func, PassContext())
        self._func = func
        self._lanes = is_thread_form(func) if form is None else form == "thread"
        self._meanings, self._limit = meanings, limit
        outputs = sorted(func.attrs.get("out_idx", ()))
        self._outputs: list[ir.Buffer] = [
            p for n, p in enumerate(func.params) if n in outputs and isinstance(p, ir.Buffer)
        ]
        self._inputs = [p for n, p in enumerate(func.params) if n not in outputs]

    def _machine(self, checker: Checker | None) -> Machine:
        if self._lanes:
            assert checker is None or isinstance(checker, LaneChecker)
            if self._module is not None:
                return SplitThreadMachine(self._module, checker, self._meanings, self._limit)
            return ThreadMachine(self._func, checker, self._meanings, self._limit)
        if self._module is not None:
            return SplitMachine(self._module, checker, self._meanings, self._limit)
        return Machine(self._func, checker, self._meanings, self._limit)

    def _checker(self, *, strict: bool) -> Checker:
        if not self._lanes:
            return Checker(self._func.name, strict=strict)
        if self._module is not None:  # device functions write parameters that are not in sight
            return LaneChecker(self._func.name, strict=strict, unchanged=set())
        return lane_checker(self._func, strict=strict)

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
        checker: Checker | None = None
        if check:
            checker = self._checker(strict=check == "strict")
        machine = self._machine(checker)
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


def run(
    func: ir.PrimFunc | ir.Module,
    *args: Any,
    check: Check = False,
    meanings: Mapping[str, Meaning] | None = None,
    form: Form | None = None,
) -> Any:
    """Execute a function in tile or thread form, or a module in split form.

    Args:
        func: what to execute.
        args: tensors (NumPy arrays, or anything on the CPU with ``__dlpack__``) and numbers in
            the order of the parameters; outputs (``out_idx``) are left out. Written tensors are
            changed in place.
        check: also report undefined values, accesses outside of on-chip buffers, conflicting
            iterations and races between blocks; ``"strict"`` reports accesses outside of global
            tensors as well, though these have a meaning (reads give 0, writes are dropped). In
            thread form also what nothing orders between lanes and what works beside them,
            missing fences, and barriers whose counts do not fit.
        meanings: of intrinsics that a backend adds (`BackendModule.meanings`).
        form: "tile" or "thread"; None to find out.

    Returns:
        The outputs: None without any, a tensor if there is one, else a list.

    Raises:
        ArgumentCountError, ArgumentTypeError, ArgumentValueError: arguments that do not fit.
        KernelRuntimeError: a failed assertion of the program.
        DeadlockError, DivergenceError, BarrierError: lanes that cannot go on.
        UndefinedValueError, RaceError, OutOfBoundsAccessError, MissingFenceError: found with
            `check`.
    """
    return Program(func, meanings=meanings, form=form)(*args, check=check)
