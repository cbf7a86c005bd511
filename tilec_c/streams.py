"""Large results are written past the cache.

A row of a result that is as large as the last level cache is formed in a local array and then
copied out with stores that do not read the destination's lines first.

Before::

    for j in T.serial(4096, annotations={"simd": True}):
        x[j] = x[j] / total
        Y[bx, j] = x[j]

After::

    for j in T.serial(4096, annotations={"simd": True}):
        x[j] = x[j] / total
    c_stream(Y[bx, 0], x[0])
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.parallel import SIMD
from tilec_c.cpu import host_cpu

STREAM = "c_stream"
_INT32 = ir.DType("int32")
_SHORTEST, _LONGEST = 2048, 64 * 1024  # bytes of one copy; each ends with a fence
_DEFAULT_CACHE = 32 << 20


class StreamResults(FunctionPass):
    """Finds vector loops that store whole rows of a large result."""

    name = "stream_results"
    purpose = "write large results past the cache"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Rewrite the vector loops of every launch."""
        large = [p for p in func.params if isinstance(p, ir.Buffer) and is_large(p)]
        if not large:
            return func
        read = {n.buffer for n in ir.walk(func.body) if isinstance(n, ir.Load)}
        streamer = _Streamer({p for p in large if p not in read}, ctx)
        body = streamer.stmt(func.body, ())
        return func if body is func.body else func.replace(body=body)


class _Streamer:
    def __init__(self, results: set[ir.Buffer], ctx: PassContext) -> None:
        self._results = results
        self._ctx = ctx

    def stmt(self, node: Any, loops: tuple[ir.Var, ...]) -> Any:
        if isinstance(node, ir.While):
            return node  # may write the same place again and again
        if isinstance(node, ir.For):
            if SIMD in node.annotations:
                return self._loop(node, loops)
            loops = (*loops, node.var)
        if not isinstance(node, ir.Stmt):
            return node
        return ir.map_children(node, lambda child: self.stmt(child, loops))

    def _loop(self, loop: ir.For, loops: tuple[ir.Var, ...]) -> ir.Stmt:
        count = ir.const_value(loop.stop)
        if not isinstance(count, int) or ir.const_value(loop.start) != 0:
            return loop
        if ir.const_value(loop.step) != 1:
            return loop
        stmts = list(loop.body.stmts if isinstance(loop.body, ir.Seq) else (loop.body,))
        before: list[ir.Stmt] = []
        after: list[ir.Stmt] = []
        for place, stmt in enumerate(stmts):
            if not (isinstance(stmt, ir.Store) and self._fits(stmt, loop.var, count, loops)):
                continue
            source = _source(stmt, loop.var, stmts[place + 1 :])
            if source is None:
                row = ir.Buffer("row", (count,), stmt.buffer.dtype, ir.LOCAL)
                before.append(ir.Alloc(row, span=stmt.span))
                stmts[place] = stmt.replace(buffer=row, indices=(loop.var,))
                source = ir.Load(row, (loop.var,), row.dtype)
            else:
                stmts[place] = ir.Seq(())
            target = ir.Load(stmt.buffer, stmt.indices, stmt.buffer.dtype)
            start = {loop.var: ir.Const(0, loop.var.dtype)}
            args = (ir.substitute(target, start), ir.substitute(source, start))
            notes = {"bytes": count * stmt.buffer.dtype.bytes}
            call = ir.Call(STREAM, args, _INT32, notes, span=stmt.span)
            after.append(ir.Evaluate(call, span=stmt.span))
            self._ctx.remark("stream_results", f"{stmt.buffer.name} past the cache", stmt.span)
        if not after:
            return loop
        left = ir.seq(*stmts)
        keeps = not (isinstance(left, ir.Seq) and not left.stmts)
        return ir.Seq((*before, *([loop.replace(body=left)] if keeps else []), *after))

    def _fits(self, store: ir.Store, var: ir.Var, count: int, loops: tuple[ir.Var, ...]) -> bool:
        """Whether a store writes a row of a result, once."""
        if store.buffer not in self._results:
            return False
        if not _SHORTEST <= count * store.buffer.dtype.bytes <= _LONGEST:
            return False
        used = {v for i in store.indices for v in ir.free_vars(i)}
        return is_row(store.indices, var) and all(v in used for v in loops)


def _source(store: ir.Store, var: ir.Var, later: list[ir.Stmt]) -> ir.Load | None:
    """The array that holds the row already, if the store only copies."""
    value = store.value
    if not isinstance(value, ir.Load) or value.buffer.scope() in (ir.GLOBAL, ir.LOCAL_VAR):
        return None
    written = {n.buffer for s in later for n in ir.walk(s) if isinstance(n, ir.Store)}
    if value.buffer in written or not is_row(value.indices, var):
        return None
    return value


def is_row(indices: tuple[ir.Expr, ...], var: ir.Var) -> bool:
    """Whether `var` runs along the last dimension with step 1, and nothing else moves with it."""
    form = ir.linear(indices[-1])
    key = ("var", id(var))
    others = [atom for name, atom in form.atoms.items() if name != key and name in form.terms]
    others += indices[:-1]
    return form.terms.get(key) == 1 and not any(var in ir.free_vars(other) for other in others)


def is_large(buffer: ir.Buffer) -> bool:
    if buffer.strides is not None or not buffer.shape:
        return False
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        if not isinstance(extent, int):
            return False
        size *= extent
    return size >= (host_cpu().l3 or _DEFAULT_CACHE)
