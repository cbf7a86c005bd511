"""Passes of this backend, its pipeline and its op lowerings."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.backend import (
    FunctionPass,
    LoweringTable,
    Pass,
    PassContext,
    PassPipeline,
    Stage,
)
from tilec.diagnostics import CapabilityError
from tilec.transform.check import CheckCapabilities
from tilec.transform.lanes import SerializeLanes
from tilec_dummy.ops import Reverse, element

INT32 = ir.DType("int32")
ZERO, ONE = ir.Const(0, INT32), ir.Const(1, INT32)
LOWERINGS = LoweringTable()


def is_row(op: Reverse, ctx: PassContext) -> bool | str:
    """Whether there is only one axis to run over."""
    long = [e for e in op.src.extents if not isinstance(e, int) or e != 1]
    return len(long) == 1 or "has more than one axis"


@LOWERINGS.on(Reverse, "row", when=is_row)
def reverse_row(op: Reverse, ctx: PassContext) -> ir.Stmt:
    """One axis: a single loop that counts down on the source's side."""
    ctx.remark("reverse", "lowered as one row", op.span)
    [extent] = [ir.as_expr(e) for e in op.src.extents if not isinstance(e, int) or e != 1]
    i = ir.Var("back", INT32)
    source = ir.Load(op.src.buffer, element(op.src, (extent - 1 - i,)), op.src.buffer.dtype)
    value = ir.cast(source, op.dst.buffer.dtype)
    body = ir.Store(op.dst.buffer, element(op.dst, (i,)), value, span=op.span)
    return ir.For(i, ZERO, extent, ONE, "serial", {}, body, span=op.span)


class LowerTiles(FunctionPass):
    """Tile operations and parallel loops become serial loops over scalars."""

    name = "lower_tiles"
    purpose = "turn tile operations and parallel loops into serial loops"
    needs = "tile"
    gives = "thread"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Ask the lowering table first, then the operation itself."""

        def visit(node: Any) -> Any:
            if isinstance(node, ir.TileOp):
                found = ctx.lowerings.find(node, ctx) if ctx.lowerings is not None else None
                lowered = node.lower() if found is None else found.lower(node, ctx)  # type: ignore[attr-defined]
                return visit(lowered)
            if isinstance(node, ir.Parallel):
                body = visit(node.body)
                for var, extent in reversed(list(zip(node.vars, node.extents, strict=True))):
                    body = ir.For(var, ZERO, extent, ONE, "serial", {}, body, span=node.span)
                return body
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        return func.replace(body=visit(func.body))


def runs_once(loop: ir.For) -> bool:
    """Whether a loop with constant bounds makes exactly one trip."""
    start, stop, step = map(ir.const_value, (loop.start, loop.stop, loop.step))
    if start is None or stop is None or step is None:
        return False
    return len(range(int(start), int(stop), int(step))) == 1


class DropSingleTrips(FunctionPass):
    """A loop of exactly one trip becomes a let."""

    name = "drop_single_trips"
    purpose = "replace loops of one trip by their body"
    needs = "thread"

    def applies(self, ctx: PassContext) -> bool:
        """Unless the configuration says otherwise."""
        return not ctx.flag("dummy.keep_loops")

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Rewrite bottom-up."""

        def visit(node: Any) -> Any:
            if not isinstance(node, ir.Stmt):
                return node
            node = ir.map_children(node, visit)
            if isinstance(node, ir.For) and runs_once(node):
                if any(isinstance(inner, (ir.Break, ir.Continue)) for inner in ir.walk(node.body)):
                    return node
                ctx.remark(self.name, f"loop {node.var.name} runs once", node.span)
                return ir.seq(ir.Bind(node.var, node.start, span=node.span), node.body)
            return node

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


class SplitLaunches(Pass):
    """Each launch becomes a device function that takes the block's indices."""

    name = "split_launches"
    purpose = "make a device function of every launch"
    needs = "thread"
    gives = "split"

    def run(self, module: ir.Module, ctx: PassContext) -> ir.Module:
        """Split every function."""
        functions: dict[str, ir.PrimFunc] = {}
        for func in module.functions.values():
            body = func.body
            launches = body.stmts if isinstance(body, ir.Seq) else (body,)
            for number, launch in enumerate(launches):
                if not isinstance(launch, ir.Launch):
                    raise CapabilityError(
                        "target dummy runs nothing between launches", span=launch.span
                    )
                name = f"{func.name}_kernel{number}"
                attrs = {"calling_conv": "device_kernel", "launch": {"grid": launch.grid}}
                params = (*func.params, *launch.grid_vars)
                functions[name] = ir.PrimFunc(name, params, launch.body, attrs, span=launch.span)
            host = func.replace(body=ir.Seq(())).with_attr("calling_conv", "host_packed")
            functions[func.name] = host
        return ir.Module(functions)


PIPELINE = PassPipeline(
    "dummy",
    (
        Stage("check", (CheckCapabilities(),)),
        Stage("lower_tiles", (SerializeLanes(), LowerTiles())),
        Stage("split", (SplitLaunches(),)),
    ),
).insert_after("lower_tiles", Stage("tidy", (DropSingleTrips(),)))
