"""Executes split form: a host function that launches device functions.

The host function takes the arguments; ``call_device(name, ...)`` hands tensors and numbers to the
parameters of a device function, whose blocks then run. Parameters may have been flattened: they
are the same memory with one dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec import ir
from tilec.backend.components import Meaning
from tilec.diagnostics import InternalError
from tilec.interp.checks import Checker
from tilec.interp.groups import Array, Mask
from tilec.interp.machine import Machine
from tilec.interp.memory import Cells, view_of
from tilec.interp.thread import LaneChecker, ThreadMachine

HOST, DEVICE = "host_packed", "device_kernel"
CALL = "call_device"


def host_function(module: ir.Module) -> ir.PrimFunc:
    """The function that a caller calls.

    Raises:
        InternalError: there is none, or there are several.
    """
    functions = tuple(module.functions.values())
    hosts = [f for f in functions if f.attrs.get("calling_conv") != DEVICE]
    if len(hosts) != 1:
        raise InternalError(f"a module with {len(hosts)} host functions cannot be executed")
    return hosts[0]


def has_lanes(module: ir.Module) -> bool:
    """Whether device functions are in the thread form of a machine with lanes."""
    return any(
        f.attrs.get("calling_conv") == DEVICE and "warp" in f.attrs.get("annotations", ())
        for f in module.functions.values()
    )


class _Split(Machine):
    """Adds launches of device functions to a machine that runs their bodies."""

    _functions: Mapping[str, ir.PrimFunc]

    def _evaluate(self, node: ir.Evaluate, mask: Mask) -> Mask:
        call = node.value
        if isinstance(call, ir.Call) and call.name == CALL:
            self._call_device(call, mask)
            return mask
        return super()._evaluate(node, mask)

    def _call_device(self, call: ir.Call, mask: Mask) -> None:
        name, *args = call.args
        func = self._functions.get(name)
        if func is None or len(args) != len(func.params):
            raise InternalError(f"{CALL} does not fit a device function {name!r}", span=call.span)
        values = self.values
        for param, arg in zip(func.params, args, strict=True):
            if isinstance(param, ir.Var):
                values.group.values[param] = values.value(arg, mask)
        for param, arg in zip(func.params, args, strict=True):
            if isinstance(param, ir.Buffer):
                values.cells[param] = self._parameter(param, arg)
        self._stmt(launch_of(func), mask)

    def _parameter(self, param: ir.Buffer, arg: ir.Buffer) -> Cells:
        cells = self.values.storage(arg)
        if param is arg or len(param.shape) == len(arg.shape) != 1:
            return cells if param is arg else Cells(param, cells.array)
        return Cells(param, flat_view(cells.array))


class SplitMachine(_Split):
    """One execution of a module whose device functions run once per block."""

    def __init__(
        self,
        module: ir.Module,
        checker: Checker | None,
        meanings: Mapping[str, Meaning] | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(host_function(module), checker, meanings, limit)
        self._functions = module.functions


class SplitThreadMachine(_Split, ThreadMachine):
    """One execution of a module whose device functions run once per lane."""

    def __init__(
        self,
        module: ir.Module,
        checker: LaneChecker | None,
        meanings: Mapping[str, Meaning] | None = None,
        limit: int | None = None,
    ) -> None:
        ThreadMachine.__init__(self, host_function(module), checker, meanings, limit)
        self._functions = module.functions


def launch_of(func: ir.PrimFunc) -> ir.Launch:
    """The launch that a device function was made of."""
    attrs = func.attrs
    x, y, z = (*attrs["launch"]["threads"], 1, 1)[:3]
    return ir.Launch(
        tuple(attrs["grid_vars"]),
        tuple(attrs["grid"]),
        tuple(attrs.get("thread_vars", ())),
        (x, y, z),
        dict(attrs.get("annotations", {})),
        func.body,
        span=func.span,
    )


def flat_view(array: Array) -> Array:
    """The memory of a tensor, gaps between its elements included, as one dimension."""
    size: Any = array.itemsize
    if array.size == 0:
        return array.reshape(-1)
    last = sum((e - 1) * (s // size) for e, s in zip(array.shape, array.strides, strict=True))
    return view_of(array, (last + 1,), (size,))
