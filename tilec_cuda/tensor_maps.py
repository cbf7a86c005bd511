"""Descriptors of global tensors for the bulk copy engine.

Before::

    bulk_load(A_shared[0], A[o], full[0])

After, with ``tensor_maps = (TensorMap("A_map", A, (128, 64), 128),)``::

    bulk_load(A_shared[0], A[o], full[0], by * 128, k * 64)      # map=0, panels=((0, 0),)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilec import ir
from tilec.arith.facts import Facts
from tilec.diagnostics import InternalError
from tilec.transform.base import FunctionPass, PassContext
from tilec.transform.flatten import OPERANDS, Operand
from tilec_cuda.shared_tiles import panels

_LIMIT = 256
_INT32 = ir.DType("int32")


class TensorMap(NamedTuple):
    """What the host encodes.

    Attributes:
        name: of the parameter.
        buffer: the global tensor, with its logical shape and strides.
        box: elements of one copy, by dimension, first dimension first.
        swizzle: bytes within which pieces are permuted in shared memory; 0 for none.
    """

    name: str
    buffer: ir.Buffer
    box: tuple[int, ...]
    swizzle: int


class MakeTensorMaps(FunctionPass):
    """Gives every bulk copy a tensor map and coordinates."""

    name = "make_tensor_maps"
    purpose = "describe the tensors of bulk copies to the copy engine"
    needs = "split"
    gives = "split"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Rewrite the bulk copies of a device function."""
        del ctx
        if func.attrs.get("calling_conv") != "device_kernel":
            return func
        made: list[TensorMap] = []

        def visit(node: Any) -> Any:
            if isinstance(node, ir.Call) and node.name in ("bulk_load", "bulk_store"):
                return _rewrite(node, made)
            return ir.map_children(node, visit) if isinstance(node, ir.Node) else node

        body = visit(func.body)
        if not made:
            return func
        launch = dict(func.attrs["launch"])
        launch["attrs"] = {**launch.get("attrs", {}), "tensor_maps": tuple(made)}
        return func.replace(body=body).with_attr({"tensor_maps": tuple(made), "launch": launch})


def _rewrite(call: ir.Call, made: list[TensorMap]) -> ir.Call:
    if "map" in call.attrs:
        return call
    operands: tuple[Operand, ...] = call.attrs[OPERANDS]
    load = call.name == "bulk_load"
    tile, tensor = (operands[0], operands[1]) if load else (operands[1], operands[0])
    found = panels(tile)
    if found is None:
        raise InternalError(f"no bulk copy of the layout of {tile.buffer.name}", span=call.span)
    _check_start(tile, call)
    box = [ir.const_value(e) for e in tensor.extents]
    if any(not isinstance(e, int) for e in box) or not 1 <= len(box) <= 5:
        raise InternalError(f"no bulk copy of a box {tensor.extents}", span=call.span)
    sizes = [int(e) for e in box if isinstance(e, int)]
    if [e for e in sizes if e > 1] != [e for e in tile.extents if e != 1]:
        raise InternalError("the two sides of a bulk copy have different extents", span=call.span)
    sizes[-1] = found.width
    if max(sizes) > _LIMIT:
        raise InternalError(f"a bulk copy of {tuple(sizes)} is too large", span=call.span)
    record = TensorMap(f"{tensor.buffer.name}_map", tensor.buffer, tuple(sizes), found.swizzle)
    number = next((n for n, m in enumerate(made) if _same(m, record)), len(made))
    if number == len(made):
        made.append(record)
    item = tile.buffer.dtype.bytes
    places = tuple((n * found.width, n * found.step // item) for n in range(found.number))
    coords = tuple(ir.cast(m, _INT32) for m in tensor.mins)
    attrs = {**call.attrs, "map": number, "panels": places}
    return call.replace(args=(*call.args[: 3 if load else 2], *coords), attrs=attrs)


def _same(a: TensorMap, b: TensorMap) -> bool:
    return a.buffer is b.buffer and a.box == b.box and a.swizzle == b.swizzle


def _check_start(tile: Operand, call: ir.Call) -> None:
    """The region starts at multiples of its extents."""
    facts = Facts()
    for low, extent in zip(tile.mins, tile.extents, strict=True):
        if isinstance(extent, int) and facts.residue(low).residue(extent) != 0:
            raise InternalError(
                f"a bulk copy of {tile.buffer.name} starts at {low!r}, which is not known to be a "
                f"multiple of its extent {extent}",
                span=call.span,
            )
