"""Multi-dimensional accesses become offsets into flat storage.

On-chip buffers are stored in rows; `pitches` (an annotation of the launch) may widen the rows of
some, and the attribute ``layouts`` of the function may place elements elsewhere. Offsets are formed
in 64 bits. A call in `REGION_CALLS` needs more of a region than its first element: its attribute
``operands`` keeps an `Operand` for each.

Before::

    s = T.alloc_shared((64, 32), "float32")
    s[i, j] = A[i, j]

After::

    s = T.alloc_shared((2048,), "float32")
    s[i * 32 + j] = A[i * 1024 + j]
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilec import ir
from tilec.layout import Layout
from tilec.transform.base import FunctionPass, PassContext

_INT64 = ir.DType("int64")
PITCHES = "pitches"
PLAN = "shared_plan"
LAYOUTS = "layouts"
REGION_CALLS = frozenset({"mma", "bulk_load", "bulk_store"})
OPERANDS = "operands"


class Operand(NamedTuple):
    """What a region was before it was flattened.

    Attributes:
        buffer: with its logical shape.
        mins: first element, logical indices.
        extents: of the box.
        layout: how the buffer is stored; None for rows one after the other.
    """

    buffer: ir.Buffer
    mins: tuple[ir.Expr, ...]
    extents: tuple[int | ir.Expr, ...]
    layout: Layout | None = None


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
        pitches = dict(func.attrs.get("annotations", {}).get(PITCHES, ()))
        flat = _Flattener(pitches, dict(func.attrs.get(LAYOUTS, ())))
        body = flat.visit(func.body)
        params = tuple(flat.buffer(p) if isinstance(p, ir.Buffer) else p for p in func.params)
        attrs = dict(func.attrs)
        if PLAN in attrs:
            attrs[PLAN] = {flat.buffer(b): at for b, at in attrs[PLAN].items()}
        return func.replace(body=body, params=params, attrs=attrs)


class _Flattener:
    def __init__(
        self, pitches: dict[ir.Buffer, int], layouts: dict[ir.Buffer, Layout] | None = None
    ) -> None:
        self._pitches = pitches
        self._layouts = layouts or {}
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
            layout = self._layouts.get(buffer)
            steps = self.strides(buffer)
            size: Any = steps[0] * buffer.shape[0] if steps else 1
            shape = (ir.fold_int(size) if layout is None else layout.size,)
            found = self._flat[buffer] = buffer.replace(shape=shape, strides=None)
        return found

    def offset(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Expr:
        """The offset of an element in elements."""
        total: Any = None
        constant = 0
        layout = self._layouts.get(buffer)
        steps = self.strides(buffer)
        if layout is not None:
            indices = tuple(map(ir.as_expr, layout.map(*indices)))
            steps = row_steps(layout.output_shape)
        for index, step in zip(indices, steps, strict=True):
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

    def operand(self, arg: Any) -> Operand | None:
        """What a call has to know about a region."""
        if not isinstance(arg, ir.BufferRegion):
            return None
        mins = tuple(self.visit(m) for m in arg.mins)
        return Operand(arg.buffer, mins, arg.extents, self._layouts.get(arg.buffer))

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
        if isinstance(node, ir.Call) and node.name in REGION_CALLS:
            operands = tuple(map(self.operand, node.args))
            call = ir.map_children(node, self.visit)
            return call.replace(attrs={**node.attrs, OPERANDS: operands})
        if isinstance(node, ir.BufferRegion):
            mins = tuple(self.visit(m) for m in node.mins)
            offset = self.offset(node.buffer, mins)
            return node.replace(buffer=self.buffer(node.buffer), mins=(offset,), extents=(1,))
        if isinstance(node, ir.Node):
            return ir.map_children(node, self.visit)
        return node


def row_steps(shape: tuple[int, ...]) -> list[int]:
    """Element strides of rows one after the other."""
    steps = [1]
    for extent in reversed(shape[1:]):
        steps.append(steps[-1] * extent)
    return steps[::-1]
