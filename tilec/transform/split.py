"""Host and device functions.

Each `Launch` becomes a device function; what is left is the host function, which calls them.

Before::

    def add(A, B):
        with T.Kernel(n) as bx: ...

After::

    def add_kernel(A, B, n): ...          # calling_conv="device_kernel", grid=(n,)
    def add(A, B): call_device("add_kernel", A, B, n)      # calling_conv="host_packed"
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.diagnostics import NestingError
from tilec.transform.base import Pass, PassContext

_INT32 = ir.DType("int32")
_ATTRIBUTES = ("layouts", "shared_plan", "shared_bytes", "alignment")  # of the function instead
_HOST_STATEMENTS = (ir.Seq, ir.Bind, ir.If, ir.Assert, ir.For, ir.Evaluate)


class SplitHostDevice(Pass):
    """One device function per launch, one host function."""

    name = "split_host_device"
    purpose = "separate the host function from the device functions"
    needs = "thread"
    gives = "split"

    def run(self, module: ir.Module, ctx: PassContext) -> ir.Module:
        """Split every function of a module."""
        device_type, lanes = 1, 1
        if ctx.capabilities is not None:
            device_type = int(ctx.capabilities.features.get("dlpack_device", 1))
            lanes = ctx.capabilities.lanes
        functions: dict[str, ir.PrimFunc] = {}
        for func in module.functions.values():
            for part in _Splitter(func, device_type, lanes > 1).run():
                functions[part.name] = part
        return module.replace(functions=functions)


class _Splitter:
    def __init__(self, func: ir.PrimFunc, device_type: int, lane_machine: bool) -> None:
        self._func = func
        self._lane_machine = lane_machine
        self._device_type = device_type
        self._kernels: list[ir.PrimFunc] = []

    def run(self) -> list[ir.PrimFunc]:
        """The host function and the device functions."""
        func = self._func
        body = self._host(func.body)
        used, written = accesses(func)
        host = func.replace(
            body=body,
            attrs={
                **func.attrs,
                "calling_conv": "host_packed",
                "out_idx": list(func.attrs.get("out_idx", ())),
                "used": sorted(b.name for b in used),
                "written": sorted(b.name for b in written),
                "device_type": self._device_type,
            },
        )
        return [host, *self._kernels]

    def _host(self, node: ir.Stmt) -> ir.Stmt:
        if isinstance(node, ir.Launch):
            return self._launch(node)
        if not isinstance(node, _HOST_STATEMENTS):
            raise NestingError(
                f"a {type(node).__name__.lower()} outside T.Kernel cannot run on the host",
                span=node.span,
                hint="move it into `with T.Kernel(...)`",
            )
        for child in node.children:
            if not isinstance(child, ir.Stmt):
                _refuse_loads(child, node)
        return ir.map_children(node, lambda c: self._host(c) if isinstance(c, ir.Stmt) else c)

    def _launch(self, node: ir.Launch) -> ir.Stmt:
        for count in node.grid:
            _refuse_loads(count, node)
        index = len(self._kernels)
        name = f"{self._func.name}_kernel" + (f"_{index}" if index else "")
        kernel = ir.PrimFunc(name, (), node.body, {}, span=node.span)
        used, _written = accesses(kernel)
        bound = _bound_vars(node)
        free: dict[ir.Var, None] = {}
        for item in (*node.grid, node.body):
            for var in ir.free_vars(item):
                if var not in bound:
                    free.setdefault(var)
        for buffer in used:
            for extent in (*buffer.shape, *(buffer.strides or ())):
                if isinstance(extent, ir.Expr):
                    for var in ir.free_vars(extent):
                        free.setdefault(var)
        buffers = [p for p in self._func.params if isinstance(p, ir.Buffer) and p in used]
        params = (*buffers, *free)
        launch: dict[str, Any] = {"grid": node.grid, "threads": tuple(node.threads or (1,))}
        attrs: dict[str, Any] = {
            "calling_conv": "device_kernel",
            "grid": node.grid,
            "grid_vars": node.grid_vars,
            "thread_vars": node.thread_vars,
            "launch": launch,
            "annotations": {k: v for k, v in node.annotations.items() if k not in _ATTRIBUTES},
        }
        if self._lane_machine and "layouts" in node.annotations:
            attrs["layouts"] = dict(node.annotations["layouts"])
        if "shared_plan" in node.annotations:
            attrs["shared_plan"] = dict(node.annotations["shared_plan"])
            launch["shared_bytes"] = node.annotations["shared_bytes"]
        if "alignment" in node.annotations:
            needed = {b.name: v for b, v in dict(node.annotations["alignment"]).items()}
            launch["attrs"] = {"alignment": needed}
        self._kernels.append(kernel.replace(params=params, attrs=attrs))
        call = ir.Call("call_device", (name, *params), _INT32, span=node.span)
        return ir.Evaluate(call, span=node.span)


def _refuse_loads(value: ir.Node, stmt: ir.Stmt) -> None:
    for item in ir.walk(value):
        if isinstance(item, ir.Load):
            raise NestingError(
                f"{item.buffer.describe()} is read outside T.Kernel",
                span=item.span if item.span.line else stmt.span,
                hint="read it inside `with T.Kernel(...)`",
            )


def accesses(func: ir.PrimFunc) -> tuple[set[ir.Buffer], set[ir.Buffer]]:
    """Global buffers that a function uses, and those that it writes."""
    used: set[ir.Buffer] = set()
    written: set[ir.Buffer] = set()
    for node in ir.walk(func.body):
        if isinstance(node, ir.Store) and node.buffer.scope() == ir.GLOBAL:
            written.add(node.buffer)
        if isinstance(node, ir.Buffer) and node.scope() == ir.GLOBAL:
            used.add(node)
        if isinstance(node, ir.Call) and not ir.is_pure(node.name):
            for arg in node.args:
                if isinstance(arg, ir.Load) and arg.buffer.scope() == ir.GLOBAL:
                    written.add(arg.buffer)
    return used, written


def _bound_vars(node: Any) -> set[ir.Var]:
    bound: set[ir.Var] = set()
    for item in ir.walk(node):
        if isinstance(item, (ir.Bind, ir.For)):
            bound.add(item.var)
        elif isinstance(item, ir.Launch):
            bound.update(item.grid_vars, item.thread_vars)
    return bound
