"""Atomic updates of several neighbouring elements at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec import ir
from tilec.backend.c_family import SHORT
from tilec_cuda.rows import at, step_between

if TYPE_CHECKING:
    from tilec_cuda.stmt import CudaPrinter


def vector_update(printer: CudaPrinter, node: ir.For, body: ir.Stmt, count: int) -> bool:
    """Print ``for v: atomic_add(C[base + v], value)`` as updates of several elements, if it is one.

    The values are computed first, in a loop of their own.
    """
    call = body.value if isinstance(body, ir.Evaluate) else None
    if not isinstance(call, ir.Call) or call.name != "atomic_add":
        return False
    target, value = call.args
    if call.attrs.get("memory_order") not in (None, "relaxed"):
        return False
    width = _width(printer.expr.arch.number, target.dtype, count)
    if target.buffer.scope() != ir.GLOBAL or width < 2 or len(target.indices) != 1:
        return False
    index = target.indices[0]
    step = step_between(printer.expr.facts, index, node.var)
    if step.terms or step.const != 1:
        return False
    part = ir.Buffer(f"{target.buffer.name}_part", (count,), target.dtype, ir.LOCAL)
    store = ir.Store(part, (ir.cast(node.var, "int64"),), value, span=node.span)
    piece = printer.expr.piece(f"red_add_v{width}_{SHORT[str(target.dtype)]}")
    printer.stmt(ir.Alloc(part, span=node.span))
    printer.stmt(node.replace(body=store))
    name = printer.expr.names(part)
    for first in range(0, count, width):
        place = at(index, node.var, first)
        address = f"&{printer.expr.load(target.buffer, (place,))}"
        printer.line(f"{piece}({address}, {name}{f' + {first}' if first else ''});")
    return True


def _width(number: int, dtype: ir.DType, count: int) -> int:
    """Elements of the widest update, 1 where there is none."""
    sizes: tuple[int, ...] = ()
    if str(dtype) == "float32" and number >= 90:
        sizes = (4, 2)
    elif str(dtype) in ("float16", "bfloat16") and number >= 90:
        sizes = (8, 4, 2)
    elif str(dtype) == "float16":
        sizes = (2,)
    return next((size for size in sizes if count % size == 0), 1)
