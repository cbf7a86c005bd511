"""Fragments that pass through shared memory around a nest.

Before::

    for i in T.Parallel(64):
        x[i] = tile[63 - i]

After::

    for i in T.Parallel(64):
        tile_shared[i] = tile[i]
    for i in T.Parallel(64):
        x[i] = tile_shared[63 - i]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec import ir
from tilec.ops.base import loop_vars
from tilec.simt.nests import Nest


def spill(nest: Nest, buffers: Iterable[ir.Buffer]) -> tuple[list[ir.Stmt], ir.Stmt, list[ir.Stmt]]:
    """Statements before a nest, the nest, and statements after it, with `buffers` in shared
    memory meanwhile."""
    node = nest.node
    before: list[ir.Stmt] = []
    after: list[ir.Stmt] = []
    moved: dict[ir.Buffer, ir.Buffer] = {}
    for buffer in buffers:
        shared = ir.Buffer(
            f"{buffer.name}_shared", buffer.shape, buffer.dtype, ir.SHARED, span=buffer.span
        )
        moved[buffer] = shared
        before.append(ir.Alloc(shared, span=node.span))
        before.append(_copied(buffer, shared, node.span))
        if any(a.written for a in nest.accesses if a.buffer is buffer):
            after.append(_copied(shared, buffer, node.span))
    return before, ir.substitute(node, {}, moved), after


def _copied(source: ir.Buffer, target: ir.Buffer, span: Any) -> ir.Stmt:
    extents = tuple(ir.as_expr(e) for e in source.shape)
    variables = loop_vars(extents)
    value = ir.Load(source, variables, source.dtype, span=span)
    return ir.Parallel(
        variables, extents, {}, ir.Store(target, variables, value, span=span), span=span
    )
