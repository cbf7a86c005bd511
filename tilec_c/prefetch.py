"""While a row is being computed, the next one is fetched.

In a loop over rows that reads each row of a large array, computes on it in the cache and goes on,
memory would rest during the computation. One of the loops that compute is marked, and asks for
the next row piece by piece.

Before::

    for i in T.serial(4):
        for j in T.serial(4096, annotations={"simd": True}):
            x[j] = X[bx * 4 + i, j]
        for j in T.serial(4096, annotations={"simd": True}):
            x[j] = T.exp(x[j])

After: the second loop has the annotations ``prefetch`` (``X[bx * 4 + i + 1, 0]``) and
``prefetch_bytes`` (16384).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec import ir
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.parallel import SIMD
from tilec_c.halves import WIDEN
from tilec_c.streams import is_large, is_row

PREFETCH, PREFETCH_BYTES = "prefetch", "prefetch_bytes"
PREFETCH_PART = 512
"""Iterations of the computing loop between two requests."""
_SHORTEST, _LONGEST = 2048, 64 * 1024  # bytes of a row


class PrefetchRows(FunctionPass):
    """Marks a loop that computes with the row that comes next."""

    name = "prefetch_rows"
    purpose = "fetch the next row while one is being computed"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Look at every loop over rows."""
        large = {p for p in func.params if isinstance(p, ir.Buffer) and is_large(p)}
        if not large:
            return func

        def visit(node: Any) -> Any:
            if not isinstance(node, ir.Stmt):
                return node
            new = ir.map_children(node, visit)
            if isinstance(new, ir.Seq) and any(isinstance(s, ir.Seq) for s in new.stmts):
                new = ir.Seq(ir.seq(*new.stmts).stmts)  # type: ignore[attr-defined]
            if isinstance(new, ir.For) and isinstance(new.body, ir.Seq) and _by_one(new):
                return _rows(new, new.body, large, ctx)
            return new

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


def _rows(loop: ir.For, body: ir.Seq, large: set[ir.Buffer], ctx: PassContext) -> ir.For:
    """Mark one loop in the body of a loop over rows."""
    ahead: ir.Load | None = None
    size = 0
    candidates: list[int] = []
    for place, stmt in enumerate(body.stmts):
        if ahead is None:
            ahead, size = _row_converted(stmt, loop.var, large)
            for inner in _vector_loops(stmt) if ahead is None else ():
                count = ir.const_value(inner.stop)
                ahead = _row_read(inner, loop.var, large)
                if ahead is not None:
                    size = int(count or 0) * ahead.dtype.bytes
                    break
        elif isinstance(stmt, ir.For) and _computes(stmt, large):
            candidates.append(place)
    if ahead is None or not candidates or not _SHORTEST <= size <= _LONGEST:
        return loop
    # Prefer the loop that takes longest.
    costly = [n for n in candidates if any(isinstance(x, ir.Call) for x in ir.walk(body.stmts[n]))]
    chosen = (costly or candidates)[0]
    one = ir.Const(1, loop.var.dtype)
    following = {loop.var: ir.Binary(ir.BinOp.ADD, loop.var, one, loop.var.dtype)}
    target = body.stmts[chosen]
    assert isinstance(target, ir.For)
    notes = {**target.annotations, PREFETCH: ir.substitute(ahead, following), PREFETCH_BYTES: size}
    stmts = (*body.stmts[:chosen], target.replace(annotations=notes), *body.stmts[chosen + 1 :])
    ctx.remark("prefetch_rows", f"rows of {ahead.buffer.name}", target.span)
    return loop.replace(body=body.replace(stmts=stmts))


def _by_one(loop: ir.For) -> bool:
    return SIMD not in loop.annotations and ir.const_value(loop.step) == 1


def _vector_loops(node: ir.Stmt) -> Iterator[ir.For]:
    """Vector loops of a statement, also those of a branch that handles whole blocks."""
    if isinstance(node, ir.For) and SIMD in node.annotations:
        yield node
    elif isinstance(node, ir.If):
        yield from _vector_loops(node.then)
    elif isinstance(node, ir.Seq):
        for stmt in node.stmts:
            yield from _vector_loops(stmt)


def _row_converted(node: ir.Stmt, row: ir.Var, large: set[ir.Buffer]) -> tuple[ir.Load | None, int]:
    """The same for a row that is read in order to be converted, and its size."""
    if isinstance(node, ir.If):
        node = node.then
    for stmt in node.stmts if isinstance(node, ir.Seq) else (node,):
        call = stmt.value if isinstance(stmt, ir.Evaluate) else None
        if isinstance(call, ir.Call) and call.name == WIDEN:
            region: ir.BufferRegion = call.args[1]
            used = {v for low in region.mins for v in ir.free_vars(low)}
            if region.buffer in large and row in used:
                size = int(call.attrs["count"]) * region.dtype.bytes
                return ir.Load(region.buffer, region.mins, region.dtype), size
    return None, 0


def _row_read(inner: ir.For, row: ir.Var, large: set[ir.Buffer]) -> ir.Load | None:
    """The start of a row of a large array that `inner` reads, if it moves with `row`."""
    if ir.const_value(inner.start) != 0 or not isinstance(ir.const_value(inner.stop), int):
        return None
    for node in ir.walk(inner.body):
        if not (isinstance(node, ir.Load) and node.buffer in large):
            continue
        if any(isinstance(n, ir.Load) for i in node.indices for n in ir.walk(i)):
            continue
        bound = {n.var for n in ir.walk(inner.body) if isinstance(n, ir.Bind)}
        used = {v for i in node.indices for v in ir.free_vars(i)}
        if row in used and not used & bound and is_row(node.indices, inner.var):
            return ir.substitute(node, {inner.var: ir.Const(0, inner.var.dtype)})
    return None


def _computes(loop: ir.For, large: set[ir.Buffer]) -> bool:
    """Whether a vector loop is of constant length and leaves memory alone."""
    count = ir.const_value(loop.stop)
    if SIMD not in loop.annotations or ir.const_value(loop.start) != 0:
        return False
    if not isinstance(count, int) or count < PREFETCH_PART or count % (count // PREFETCH_PART):
        return False
    return not any(
        isinstance(n, (ir.Load, ir.Store)) and n.buffer in large for n in ir.walk(loop.body)
    )
