"""The stages of lane machines, from tile form to split form.

A backend takes them as they are, or inserts and replaces some::

    PIPELINE = PassPipeline("mine", stages(RuleTable([*MY_RULES, reduce.rule()])))
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.backend import Stage
from tilec.simt import gemm_fma, gemm_group, gemm_mma
from tilec.simt.barriers import InsertBarriers
from tilec.simt.infer import InferLayouts
from tilec.simt.lanes import LowerLanes
from tilec.simt.memory import PlanSharedMemory
from tilec.simt.pipeline_loops import PipelineLoops
from tilec.simt.reduce import rule as reduction
from tilec.simt.rules import RuleTable
from tilec.simt.tiles import LowerTileOps
from tilec.transform.base import Pass, PassContext
from tilec.transform.check import CheckCapabilities
from tilec.transform.flatten import FlattenBuffers
from tilec.transform.guard import GuardAccesses
from tilec.transform.negative_index import LegalizeNegativeIndex
from tilec.transform.operands import SeparateOperands
from tilec.transform.semantic_check import SemanticCheck
from tilec.transform.simplify import Simplify
from tilec.transform.split import SplitHostDevice


class SimplifyLanes(Simplify):
    """Simplification once more, with the ranges of lanes and registers known."""

    name = "simplify_lanes"
    purpose = "simplify the code of a lane, drop lets without use"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Simplify one function."""
        func = super().run_function(func, ctx)
        uses: dict[ir.Var, int] = {}
        for node in ir.walk(func.body):
            if isinstance(node, ir.Var):
                uses[node] = uses.get(node, 0) + 1
            elif isinstance(node, ir.Alloc):  # extents are not walked
                for extent in node.buffer.shape:
                    if isinstance(extent, ir.Expr):
                        uses.update(dict.fromkeys(ir.free_vars(extent), 2))

        def idle(node: ir.Stmt) -> bool:
            return (
                isinstance(node, ir.Bind)
                and uses.get(node.var, 0) <= 1  # the let itself
                and all(
                    not isinstance(n, ir.Call) or ir.is_pure(n.name) for n in ir.walk(node.value)
                )
            )

        def visit(node: Any) -> Any:
            if not isinstance(node, ir.Seq):
                return node
            kept = tuple(s for s in node.stmts if not idle(s))
            return node if len(kept) == len(node.stmts) else node.replace(stmts=kept)

        body = ir.map_statements(func.body, visit)
        return func if body is func.body else func.replace(body=body)


def default_rules() -> RuleTable:
    """The rules that any lane machine can have; capabilities decide which of them apply."""
    return RuleTable((reduction(), gemm_group.rule(), gemm_mma.rule(), gemm_fma.rule()))


def thread_stages(
    rules: RuleTable | None = None, schedule: tuple[Pass, ...] = (PipelineLoops(),)
) -> tuple[Stage, ...]:
    """The stages up to thread form with shared memory planned and barriers.

    Args:
        rules: how the target lowers operations; `default_rules` where left out.
        schedule: passes that pipeline loops and specialise warps.
    """
    table = default_rules() if rules is None else rules
    return (
        Stage("check", (CheckCapabilities(), SemanticCheck())),
        Stage("canonicalize", (LegalizeNegativeIndex(), Simplify(), SeparateOperands())),
        Stage("schedule", schedule),
        Stage("lower_tiles", (LowerTileOps(table),)),
        Stage("layout", (InferLayouts(table),)),
        Stage("bounds", (GuardAccesses(),)),
        Stage("lanes", (LowerLanes(table), SimplifyLanes())),
        Stage("memory", (PlanSharedMemory(),)),
        Stage("sync", (InsertBarriers(),)),
    )


def stages(
    rules: RuleTable | None = None, schedule: tuple[Pass, ...] = (PipelineLoops(),)
) -> tuple[Stage, ...]:
    """All stages: thread form with barriers, then split form with flat buffers."""
    return (
        *thread_stages(rules, schedule),
        Stage("split", (SplitHostDevice(),)),
        Stage("flatten", (FlattenBuffers(),)),
    )
