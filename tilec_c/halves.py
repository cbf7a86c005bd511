"""float16 rows are converted by rows where the processor can.

Processors with conversion instructions convert eight elements at once, but C compilers only use
them on single elements. So a vector loop over float16 rows is split: conversion before, float32
arithmetic, conversion after.

Before::

    for j in T.serial(4096, annotations={"simd": True}):
        Y[bx, j] = T.cast(T.cast(X[bx, j], "float32") * 2, "float16")

After::

    c_widen(wide[0], X[bx, 0])
    for j in T.serial(4096, annotations={"simd": True}):
        narrow[j] = wide[j] * 2
    c_narrow(Y[bx, 0], narrow[0])
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.parallel import SIMD
from tilec_c.cpu import host_cpu
from tilec_c.streams import is_large, is_row

WIDEN, NARROW = "c_widen", "c_narrow"
_HALF, _WIDE, _INT32 = ir.DType("float16"), ir.DType("float32"), ir.DType("int32")
_SHORTEST, _LONGEST = 64, 16 * 1024  # elements


class ConvertRows(FunctionPass):
    """Moves conversions of float16 rows out of vector loops."""

    name = "convert_rows"
    purpose = "convert float16 rows with the processor's instructions"

    def applies(self, ctx: PassContext) -> bool:
        """Whether the processor has such instructions."""
        del ctx
        return "f16c" in host_cpu().flags

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Rewrite the vector loops of a function."""

        def visit(node: Any) -> Any:
            if isinstance(node, ir.For) and SIMD in node.annotations:
                return _split(node, ctx)
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


def _split(loop: ir.For, ctx: PassContext) -> ir.Stmt:
    count = ir.const_value(loop.stop)
    if ir.const_value(loop.start) != 0 or ir.const_value(loop.step) != 1:
        return loop
    if not isinstance(count, int) or not _SHORTEST <= count <= _LONGEST:
        return loop
    splitter = _Splitter(loop, count)
    stmts = splitter.widen()
    stmts = splitter.narrow(stmts)
    if not splitter.before and not splitter.after:
        return loop
    ctx.remark("convert_rows", f"{count} elements at once", loop.span)
    middle: list[ir.Stmt] = [loop.replace(body=ir.seq(*stmts))] if stmts else []
    return ir.Seq((*splitter.before, *middle, *splitter.after))


class _Splitter:
    def __init__(self, loop: ir.For, count: int) -> None:
        self.before: list[ir.Stmt] = []
        self.after: list[ir.Stmt] = []
        self._var = loop.var
        self._loop = loop
        self._count = count
        body = loop.body
        self._stmts = list(body.stmts) if isinstance(body, ir.Seq) else [body]
        self._stored = [n.buffer for n in ir.walk(body) if isinstance(n, ir.Store)]
        self._loaded = {n.buffer for n in ir.walk(body) if isinstance(n, ir.Load)}
        self._bound = {n.var for n in ir.walk(body) if isinstance(n, ir.Bind)}

    def widen(self) -> list[ir.Stmt]:
        """Take conversions to float32 out of the loop."""
        wide: dict[Any, ir.Load] = {}
        seen: set[ir.Buffer] = set()
        result: list[ir.Stmt] = []

        def visit(node: Any) -> Any:
            if isinstance(node, (ir.Select, ir.Buffer)):
                return node  # evaluated for some elements only
            source = self._half_row(node)
            if source is None:
                return ir.map_children(node, visit) if isinstance(node, ir.Node) else node
            key = tuple(ir.tokens(source))
            if key not in wide:
                wide[key] = self._local(self.before, "wide", _WIDE)
                self._widen(wide[key], source)
            return wide[key]

        for stmt in self._stmts:
            if not isinstance(stmt, (ir.Store, ir.Bind)):
                result.append(stmt)
                seen |= {n for n in ir.walk(stmt) if isinstance(n, ir.Buffer)}
                continue
            source = self._half_row(stmt.value)
            if isinstance(stmt, ir.Store) and source is not None and self._whole(stmt, seen):
                self._widen(ir.Load(stmt.buffer, stmt.indices, _WIDE), source)
            else:
                result.append(stmt.replace(value=visit(stmt.value)))
            seen |= {n for n in ir.walk(stmt) if isinstance(n, ir.Buffer)}
        return result

    def narrow(self, stmts: list[ir.Stmt]) -> list[ir.Stmt]:
        """Take conversions to float16 out of the loop."""
        result: list[ir.Stmt] = []
        for place, stmt in enumerate(stmts):
            if not self._narrows(stmt):
                result.append(stmt)
                continue
            value = stmt.value.value  # type: ignore[attr-defined]
            later = {n.buffer for s in stmts[place + 1 :] for n in ir.walk(s)
                     if isinstance(n, ir.Store)}  # fmt: skip
            if self._is_source(value, later):
                source = value
            else:
                source = self._local(self.before, "narrow", _WIDE)
                result.append(
                    stmt.replace(buffer=source.buffer, indices=source.indices, value=value)
                )
            self._narrow(stmt, source)
        return result

    def _is_source(self, value: ir.Expr, later: set[ir.Buffer]) -> bool:
        """Whether the row to be converted is in an array already, and stays there."""
        if not isinstance(value, ir.Load) or value.buffer.scope() == ir.LOCAL_VAR:
            return False
        free = value.buffer not in later and _contiguous(value.buffer)
        return free and self._row(value.indices)

    def _narrow(self, store: Any, source: ir.Load) -> None:
        target = ir.Load(store.buffer, store.indices, _HALF)
        if not is_large(store.buffer):
            self._call(self.after, NARROW, target, source)
            return
        half = self._local(self.after, "half", _HALF)  # then it can be streamed
        self._call(self.after, NARROW, half, source)
        fresh = ir.Var(self._var.name, self._var.dtype)
        copy = ir.substitute(store.replace(value=half), {self._var: fresh})
        self.after.append(self._loop.replace(var=fresh, body=copy, annotations={SIMD: True}))

    def _widen(self, target: ir.Load, source: ir.Load) -> None:
        self._call(self.before, WIDEN, target, source)

    def _call(self, where: list[ir.Stmt], name: str, target: ir.Load, source: ir.Load) -> None:
        start = {self._var: ir.Const(0, self._var.dtype)}
        target, source = ir.substitute(target, start), ir.substitute(source, start)
        # A region is read only; a load in a call with effects counts as written.
        region = ir.BufferRegion(source.buffer, source.indices, (1,) * source.buffer.ndim)
        call = ir.Call(name, (target, region), _INT32, {"count": self._count})
        where.append(ir.Evaluate(call, span=self._loop.span))

    def _local(self, where: list[ir.Stmt], name: str, dtype: ir.DType) -> ir.Load:
        buffer = ir.Buffer(name, (self._count,), dtype, ir.LOCAL)
        where.append(ir.Alloc(buffer, span=self._loop.span))
        return ir.Load(buffer, (self._var,), dtype)

    def _row(self, indices: tuple[ir.Expr, ...]) -> bool:
        used = {n for i in indices for n in ir.walk(i)}
        if used & self._bound or any(isinstance(n, ir.Load) for n in used):
            return False
        return is_row(indices, self._var)

    def _half_row(self, node: Any) -> ir.Load | None:
        """The row that ``T.cast(row[j], "float32")`` reads, if the loop leaves it alone."""
        if not isinstance(node, ir.Cast) or node.dtype != _WIDE:
            return None
        value = node.value
        if not isinstance(value, ir.Load) or value.dtype != _HALF:
            return None
        if value.buffer.scope() == ir.LOCAL_VAR or value.buffer in self._stored:
            return None
        return value if _contiguous(value.buffer) and self._row(value.indices) else None

    def _whole(self, store: ir.Store, seen: set[ir.Buffer]) -> bool:
        """Whether a store of a converted row may become the conversion itself."""
        buffer = store.buffer
        on_chip = buffer.scope() not in (ir.GLOBAL, ir.LOCAL_VAR)
        return on_chip and buffer not in seen and buffer.dtype == _WIDE and self._row(store.indices)

    def _narrows(self, stmt: ir.Stmt) -> bool:
        if not isinstance(stmt, ir.Store) or stmt.buffer.dtype != _HALF:
            return False
        buffer, value = stmt.buffer, stmt.value
        if not isinstance(value, ir.Cast) or value.value.dtype != _WIDE:
            return False
        if buffer.scope() == ir.LOCAL_VAR or buffer in self._loaded:
            return False
        once = sum(b is buffer for b in self._stored) == 1
        return once and _contiguous(buffer) and self._row(stmt.indices)


def _contiguous(buffer: ir.Buffer) -> bool:
    """Whether elements of a row are neighbours."""
    return buffer.strides is None or ir.const_value(buffer.strides[-1]) == 1
