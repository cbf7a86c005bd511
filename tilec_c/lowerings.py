"""Lowerings of tile operations that the CPU has something better for than loops."""

from __future__ import annotations

from tilec import ir
from tilec.backend import LoweringTable
from tilec.ops import Gemm
from tilec.transform.base import PassContext
from tilec_c.gemm import GemmSpec, supports

LOWERINGS = LoweringTable()
_ON_CHIP = (ir.SHARED, ir.SHARED_DYN, ir.FRAGMENT, ir.LOCAL)


def _types(op: Gemm) -> GemmSpec:
    m, n, k = op.shape()
    names = (str(op.A.dtype), str(op.B.dtype), str(op.C.dtype))
    return GemmSpec(m, n, k, *names, op.transpose_A, op.transpose_B)


def _fits(op: Gemm, ctx: PassContext) -> bool | str:
    del ctx
    if not supports(_types(op)):
        return "the micro-kernel does not know these element types"
    if min(op.shape()) < 1:
        return "an extent is 0"
    for region in (op.A, op.B, op.C):
        if region.buffer.scope() not in _ON_CHIP:
            return f"{region.buffer.name} is not on chip"
        for low, size, extent in zip(region.mins, region.extents, region.buffer.shape, strict=True):
            start = ir.const_value(low)
            if not isinstance(start, int) or not isinstance(size, int):
                return f"the place of {region.buffer.name} is not constant"
            if not isinstance(extent, int) or start + size > extent:
                return f"a part of {region.buffer.name} is outside it"
    return True


@LOWERINGS.on(Gemm, "micro-kernel", when=_fits, cost=1)
def lower_gemm(op: Gemm, ctx: PassContext) -> ir.Stmt:
    """A call of a generated micro-kernel; see `tilec_c.gemm`."""
    del ctx
    dtype = ir.DType("int32")
    call = ir.Call("c_gemm", (op.A, op.B, op.C), dtype, {"spec": _types(op)}, span=op.span)
    stmt: ir.Stmt = ir.Evaluate(call, span=op.span)
    if op.clear_accum is False:
        return stmt
    cleared = call.replace(attrs={"spec": _clear(_types(op))})
    fresh: ir.Stmt = ir.Evaluate(cleared, span=op.span)
    if op.clear_accum is True:
        return fresh
    return ir.If(ir.truth(op.clear_accum), fresh, stmt, span=op.span)


def _clear(spec: GemmSpec) -> GemmSpec:
    from dataclasses import replace

    return replace(spec, clear=True)
