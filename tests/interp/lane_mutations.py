"""Programs with one statement of synchronisation left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec import ir

SYNCHRONISATION = frozenset({
    "sync", "named_barrier_arrive", "sync_warp", "cp_async_commit", "cp_async_wait",
    "cp_async_barrier_noinc", "mbarrier_init", "mbarrier_arrive", "mbarrier_expect_tx",
    "mbarrier_arrive_expect_tx", "mbarrier_wait_parity", "fence_barrier_init",
    "fence_proxy_async", "bulk_commit", "bulk_wait", "mma_fence", "mma_commit", "mma_wait",
})  # fmt: skip


def _call(node: Any) -> str | None:
    if isinstance(node, ir.Evaluate) and isinstance(node.value, ir.Call):
        name = node.value.name
        return name if name in SYNCHRONISATION else None
    return None


def statements(func: ir.PrimFunc) -> list[str]:
    """Names of the statements that can be left out, in the order of the text."""
    found: list[str] = []

    def visit(node: Any) -> Any:
        name = _call(node)
        if name is not None:
            found.append(name)
            return node
        return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

    visit(func.body)
    return found


def without(func: ir.PrimFunc, number: int) -> ir.PrimFunc:
    """The function without one of its `statements`."""
    seen = -1

    def visit(node: Any) -> Any:
        nonlocal seen
        if _call(node) is not None:
            seen += 1
            return ir.Seq(()) if seen == number else node
        return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

    return func.replace(body=visit(func.body))


def _plus(call: ir.Call, argument: int, amount: int) -> ir.Call:
    args = list(call.args)
    old = args[argument]
    value = ir.const_value(old)
    if value is None:
        args[argument] = ir.Binary(ir.BinOp.ADD, old, ir.Const(amount, old.dtype), old.dtype)
    else:
        args[argument] = ir.Const(value + amount, old.dtype)
    return call.replace(args=tuple(args))


def _changes(call: ir.Call) -> list[tuple[str, ir.Call]]:
    """Wrong numbers for one call."""
    name = call.name
    if name in ("cp_async_wait", "mma_wait", "bulk_wait"):
        return [("one group more", _plus(call, 0, 1))]
    if name == "mbarrier_init":
        fewer = [("an arrival less", _plus(call, 1, -1))] if call.args[1].value > 1 else []
        return [("an arrival more", _plus(call, 1, 1)), *fewer]
    if name == "mbarrier_wait_parity":
        return [("the other parity", _plus(call, 1, 1))]
    if name == "mbarrier_arrive_expect_tx":
        return [("more bytes", _plus(call, 1, 16)), ("fewer bytes", _plus(call, 1, -16))]
    if name in ("sync", "named_barrier_arrive") and call.args:
        return [
            ("a warp more", _plus(call, 1, 32)),
            ("a warp less", _plus(call, 1, -32)),
            ("another barrier", _plus(call, 0, 1)),
        ]
    return []


def weakened(func: ir.PrimFunc) -> Iterator[tuple[str, ir.PrimFunc]]:
    """Every function with one wrong number in its synchronisation, and what is wrong."""
    found: list[tuple[ir.Evaluate, str, ir.Call]] = []

    def look(node: Any) -> None:
        if isinstance(node, ir.Evaluate) and isinstance(node.value, ir.Call):
            found.extend((node, what, call) for what, call in _changes(node.value))
        for child in node.children:
            if isinstance(child, ir.Stmt):
                look(child)

    look(func.body)
    for old, what, call in found:

        def visit(node: Any, old: ir.Evaluate = old, call: ir.Call = call) -> Any:
            if node is old:
                return old.replace(value=call)
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        assert isinstance(old.value, ir.Call)
        yield f"{old.value.name}: {what}", func.replace(body=visit(func.body))
