"""The stages of lane machines, from tile form to split form.

A backend takes them as they are, or inserts and replaces some::

    PIPELINE = PassPipeline("mine", stages(RuleTable([*MY_RULES, reduce.rule()])))
"""

from __future__ import annotations

from tilec.backend import Stage
from tilec.simt.barriers import InsertBarriers
from tilec.simt.infer import InferLayouts
from tilec.simt.lanes import LowerLanes
from tilec.simt.memory import PlanSharedMemory
from tilec.simt.reduce import rule as reduction
from tilec.simt.rules import RuleTable
from tilec.simt.tiles import LowerTileOps
from tilec.transform.base import Pass
from tilec.transform.check import CheckCapabilities
from tilec.transform.flatten import FlattenBuffers
from tilec.transform.guard import GuardAccesses
from tilec.transform.negative_index import LegalizeNegativeIndex
from tilec.transform.operands import SeparateOperands
from tilec.transform.pipelined import LowerPipelined
from tilec.transform.semantic_check import SemanticCheck
from tilec.transform.simplify import Simplify
from tilec.transform.split import SplitHostDevice


class SimplifyLanes(Simplify):
    """Simplification once more, with the ranges of lanes and registers known."""

    name = "simplify_lanes"
    purpose = "simplify the code of a lane"


def thread_stages(
    rules: RuleTable | None = None, schedule: tuple[Pass, ...] = (LowerPipelined(),)
) -> tuple[Stage, ...]:
    """The stages up to thread form with shared memory planned and barriers.

    Args:
        rules: how the target lowers operations; reductions come with it by default.
        schedule: passes that pipeline loops and specialise warps.
    """
    table = RuleTable((reduction(),)) if rules is None else rules
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
    rules: RuleTable | None = None, schedule: tuple[Pass, ...] = (LowerPipelined(),)
) -> tuple[Stage, ...]:
    """All stages: thread form with barriers, then split form with flat buffers."""
    return (
        *thread_stages(rules, schedule),
        Stage("split", (SplitHostDevice(),)),
        Stage("flatten", (FlattenBuffers(),)),
    )
