"""Software pipelining where there are no asynchronous copies: the loop as it is written.

Before::

    for k in T.Pipelined(8, num_stages=3): ...

After::

    for k in T.serial(8): ...
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.base import FunctionPass, PassContext


class LowerPipelined(FunctionPass):
    """Pipelined loops become serial ones; stage counts and orders are hints."""

    name = "lower_pipelined"
    purpose = "run pipelined loops one trip after the other"
    needs = "tile"
    gives = "tile"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Rewrite every pipelined loop of a function."""
        del ctx

        def visit(node: Any) -> Any:
            if not isinstance(node, ir.Stmt):
                return node
            new = ir.map_children(node, visit)
            if isinstance(new, ir.For) and new.kind == "pipelined":
                return new.replace(kind="serial", annotations={})
            return new

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)
