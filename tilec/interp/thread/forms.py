"""Telling functions in thread form, and what looks for mistakes in them."""

from __future__ import annotations

from tilec import ir
from tilec.interp.thread.checks import LaneChecker
from tilec.interp.thread.table import MEANINGS
from tilec.interp.values import ATOMICS


def is_thread_form(func: ir.PrimFunc) -> bool:
    """Whether a function is in thread form: its launches say how many lanes form a warp."""
    launches = [node for node in ir.walk(func.body) if isinstance(node, ir.Launch)]
    return bool(launches) and all("warp" in node.annotations for node in launches)


def lane_checker(func: ir.PrimFunc, *, strict: bool) -> LaneChecker:
    """What looks for mistakes in a function in thread form."""
    written: set[ir.Buffer] = set()
    for node in ir.walk(func.body):
        if isinstance(node, ir.Store):
            written.add(node.buffer)
        elif isinstance(node, ir.Call) and not ir.is_pure(node.name):
            first = 1 if node.name in MEANINGS or node.name in ATOMICS else len(node.args)
            for operand in node.args[:first]:
                if isinstance(operand, (ir.Load, ir.BufferRegion)):
                    written.add(operand.buffer)
    unchanged = {p for p in func.params if isinstance(p, ir.Buffer) and p not in written}
    return LaneChecker(func.name, strict=strict, unchanged=unchanged)
