"""Parallel nests become loops; the innermost is marked where it may run as vectors.

Before::

    for i, j in T.Parallel(8, 64):
        C[i, j] = A[i, j] + 1

After::

    for i in T.serial(8):
        for j in T.serial(64, annotations={"simd": True}):
            C[i, j] = A[i, j] + 1
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.base import PassContext, StatementPass

SIMD = "simd"
REDUCTION = "reduction"
"""Annotation of a nest that combines elements into variables, in any order."""
ONE_LANE = "one_lane"
"""Annotation of a launch whose body runs once per block, however many lanes were asked for."""


class LowerParallel(StatementPass):
    """Iterations in order; conflicting writes keep the value of the last one."""

    name = "lower_parallel"
    purpose = "turn parallel nests into loops, the innermost of them vector loops"
    needs = "tile"
    gives = "thread"

    def statement(self, node: Any, ctx: PassContext) -> Any:
        """A parallel nest or vector loop as plain loops."""
        del ctx
        if isinstance(node, ir.Parallel):
            return _loops(node)
        if isinstance(node, ir.Launch):
            return node.replace(annotations={**node.annotations, ONE_LANE: True})
        if isinstance(node, ir.For) and node.kind == "vectorized":
            notes = {SIMD: True} if may_vectorize(node.body, node.var) else {}
            return node.replace(kind="serial", annotations=notes)
        return node


def _loops(node: ir.Parallel) -> ir.Stmt:
    body = node.body
    axes = list(zip(node.vars, node.extents, strict=True))
    for depth, (var, extent) in enumerate(reversed(axes)):
        notes: dict[str, Any] = {}
        reduction = node.annotations.get(REDUCTION)
        if depth == 0 and may_vectorize(node.body, var, reduction=reduction is not None):
            notes = {SIMD: True} if reduction is None else {SIMD: True, REDUCTION: reduction}
        zero, one = ir.Const(0, var.dtype), ir.Const(1, var.dtype)
        body = ir.For(var, zero, extent, one, "serial", notes, body, span=node.span)
    return body


def accumulators(body: ir.Stmt) -> dict[ir.Buffer, ir.BinOp]:
    """Variables into which a loop combines values, ``acc = acc op value``, and the operators.

    A variable that is read or written in another way as well, or lives in the loop, is left out.
    """
    own = {node.buffer for node in ir.walk(body) if isinstance(node, ir.Alloc)}
    found: dict[ir.Buffer, ir.BinOp] = {}
    uses: dict[ir.Buffer, int] = {}
    for node in ir.walk(body):
        if isinstance(node, (ir.Load, ir.Store)) and node.buffer.scope() == ir.LOCAL_VAR:
            uses[node.buffer] = uses.get(node.buffer, 0) + 1
        if isinstance(node, ir.Store) and node.buffer.scope() == ir.LOCAL_VAR:
            value = node.value
            if not isinstance(value, ir.Binary) or not isinstance(value.lhs, ir.Load):
                continue
            if value.lhs.buffer is node.buffer:
                found[node.buffer] = value.op
    return {b: op for b, op in found.items() if uses[b] == 2 and b not in own}


def may_vectorize(body: ir.Stmt, var: ir.Var, *, reduction: bool = False) -> bool:
    """Whether iterations over `var` touch each other's elements in no way.

    Every buffer that is written is only accessed at one place, and that place moves with `var`.
    With `reduction` accumulators are excepted.
    """
    places: dict[ir.Buffer, set[Any]] = {}
    written: dict[ir.Buffer, tuple[ir.Expr, ...]] = {}
    own: set[ir.Buffer] = set(accumulators(body)) if reduction else set()
    for node in ir.walk(body):
        if isinstance(node, (ir.For, ir.While, ir.Break, ir.Continue, ir.Return, ir.Assert)):
            return False
        if isinstance(node, ir.Alloc):
            own.add(node.buffer)
        if isinstance(node, ir.Call) and not ir.is_pure(node.name):
            return False
        if isinstance(node, (ir.Load, ir.Store)):
            key = tuple(token for i in node.indices for token in ir.tokens(i))
            places.setdefault(node.buffer, set()).add(key)
            if isinstance(node, ir.Store):
                written[node.buffer] = node.indices
    for buffer, indices in written.items():
        if buffer in own:
            continue
        if len(places[buffer]) > 1 or not any(_moves_with(i, var) for i in indices):
            return False
    return True


def _moves_with(index: ir.Expr, var: ir.Var) -> bool:
    """Whether `index` is linear in `var` with a coefficient other than 0."""
    form = ir.linear(index)
    return any(atom is var for atom in form.atoms.values()) and not any(
        atom is not var and var in ir.free_vars(atom) for atom in form.atoms.values()
    )
