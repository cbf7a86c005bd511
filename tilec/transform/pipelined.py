"""Software pipelining where there are no asynchronous copies: the loop as it is written.

Before::

    for k in T.Pipelined(8, num_stages=3): ...

After::

    for k in T.serial(8): ...
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.base import PassContext, StatementPass


class LowerPipelined(StatementPass):
    """Pipelined loops become serial ones; stage counts and orders are hints."""

    name = "lower_pipelined"
    purpose = "run pipelined loops one trip after the other"
    needs = "tile"
    gives = "tile"

    def statement(self, node: Any, ctx: PassContext) -> Any:
        """A pipelined loop as a serial one."""
        del ctx
        if isinstance(node, ir.For) and node.kind == "pipelined":
            return node.replace(kind="serial", annotations={})
        return node
