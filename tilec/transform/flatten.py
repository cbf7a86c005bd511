"""Multi-dimensional accesses become offsets into flat storage.

On-chip buffers are stored in rows; `pitch` (an attribute of the launch) may widen the rows of
some. Offsets are formed in 64 bits.

Before::

    s = T.alloc_shared((64, 32), "float32")
    s[i, j] = A[i, j]

After::

    s = T.alloc_shared((2048,), "float32")
    s[i * 32 + j] = A[i * 1024 + j]
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.base import FunctionPass, PassContext

_INT64 = ir.DType("int64")
PITCHES = "pitches"


class FlattenBuffers(FunctionPass):
    """Gives every buffer one dimension."""

    name = "flatten_buffers"
    purpose = "turn indices into offsets"
    needs = "split"
    gives = "split"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Flatten a device function; the host function keeps its buffers."""
        del ctx
        if func.attrs.get("calling_conv") != "device_kernel":
            return func
        flat = _Flattener(dict(func.attrs.get("annotations", {}).get(PITCHES, ())))
        body = flat.visit(func.body)
        params = tuple(flat.buffer(p) if isinstance(p, ir.Buffer) else p for p in func.params)
        return func.replace(body=body, params=params)


class _Flattener:
    def __init__(self, pitches: dict[ir.Buffer, int]) -> None:
        self._pitches = pitches
        self._flat: dict[ir.Buffer, ir.Buffer] = {}

    def strides(self, buffer: ir.Buffer) -> list[Any]:
        """Element strides of a buffer's storage."""
        pitch = self._pitches.get(buffer)
        if pitch is None:
            return list(buffer.element_strides())
        steps: list[Any] = [1, pitch]
        for extent in reversed(buffer.shape[1:-1]):
            steps.append(steps[-1] * extent)
        return list(reversed(steps))

    def buffer(self, buffer: ir.Buffer) -> ir.Buffer:
        """The one-dimensional storage of a buffer."""
        if buffer.scope() == ir.LOCAL_VAR:
            return buffer
        found = self._flat.get(buffer)
        if found is None:
            steps = self.strides(buffer)
            size: Any = steps[0] * buffer.shape[0] if steps else 1
            shape = (ir.fold_int(size),)
            found = self._flat[buffer] = buffer.replace(shape=shape, strides=None)
        return found

    def offset(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Expr:
        """The offset of an element in elements."""
        total: Any = None
        constant = 0
        for index, step in zip(indices, self.strides(buffer), strict=True):
            value = ir.const_value(index)
            if isinstance(value, int) and isinstance(step, int):
                constant += value * step
                continue
            term: Any = ir.cast(index, _INT64)
            if not isinstance(step, int):
                term = term * ir.cast(step, _INT64)
            elif step != 1:
                term = term * step
            total = term if total is None else total + term
        if total is None:
            return ir.Const(constant, _INT64)
        return total + constant if constant else total  # type: ignore[no-any-return]

    def visit(self, node: Any) -> Any:
        """Rewrite a node."""
        if isinstance(node, ir.Alloc):
            init = None if node.init is None else self.visit(node.init)
            return node.replace(buffer=self.buffer(node.buffer), init=init)
        if isinstance(node, (ir.Load, ir.Store)):
            new = ir.map_children(node, lambda c: c if isinstance(c, ir.Buffer) else self.visit(c))
            if node.buffer.scope() == ir.LOCAL_VAR:
                return new
            offset = self.offset(node.buffer, new.indices)
            return new.replace(buffer=self.buffer(node.buffer), indices=(offset,))
        if isinstance(node, ir.BufferRegion):
            mins = tuple(self.visit(m) for m in node.mins)
            offset = self.offset(node.buffer, mins)
            return node.replace(buffer=self.buffer(node.buffer), mins=(offset,), extents=(1,))
        if isinstance(node, ir.Node):
            return ir.map_children(node, self.visit)
        return node
