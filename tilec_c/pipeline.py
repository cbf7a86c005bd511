"""The passes of the CPU backend, in order."""

from __future__ import annotations

from tilec.backend import PassPipeline, Stage
from tilec.transform.check import CheckCapabilities
from tilec.transform.flatten import FlattenBuffers
from tilec.transform.fuse import FuseLoops
from tilec.transform.guard import GuardAccesses
from tilec.transform.lanes import SerializeLanes
from tilec.transform.negative_index import LegalizeNegativeIndex
from tilec.transform.operands import SeparateOperands
from tilec.transform.parallel import LowerParallel
from tilec.transform.pipelined import LowerPipelined
from tilec.transform.semantic_check import SemanticCheck
from tilec.transform.simplify import Simplify
from tilec.transform.split import SplitHostDevice
from tilec.transform.tiles import LowerTiles
from tilec_c.halves import ConvertRows
from tilec_c.layouts import ChoosePitches
from tilec_c.prefetch import PrefetchRows
from tilec_c.streams import StreamResults

PIPELINE = PassPipeline(
    "c",
    (
        Stage("check", (CheckCapabilities(), SemanticCheck())),
        Stage("canonicalize", (LegalizeNegativeIndex(), Simplify(), SeparateOperands())),
        # One lane, no asynchronous copies: loops and lanes run one after the other.
        Stage("schedule", (LowerPipelined(), SerializeLanes())),
        Stage("lower_tiles", (LowerTiles(),)),
        Stage("layout", (ChoosePitches(),)),
        Stage("fuse", (FuseLoops(),)),
        Stage("bounds", (GuardAccesses(),)),
        Stage("loops", (LowerParallel(), ConvertRows(), StreamResults(), PrefetchRows())),
        Stage("split", (SplitHostDevice(),)),
        Stage("memory", (FlattenBuffers(),)),
    ),
)
