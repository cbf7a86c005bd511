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


def mutations(func: ir.PrimFunc) -> Iterator[tuple[str, ir.PrimFunc]]:
    """Every function with one statement less, by the name and number of the statement."""
    for number, name in enumerate(statements(func)):
        yield f"{number}:{name}", without(func, number)
