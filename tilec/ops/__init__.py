"""Tile operations: one class each with contract, effects, NumPy meaning and generic lowering."""

from tilec.ops.base import TileOp
from tilec.ops.copy import AtomicAdd, Copy, Fill, head_region, match_extents
from tilec.ops.gemm import Gemm, GemmWarpPolicy
from tilec.ops.reduce import KINDS, Reduce, identity

__all__ = [
    "KINDS",
    "AtomicAdd",
    "Copy",
    "Fill",
    "Gemm",
    "GemmWarpPolicy",
    "Reduce",
    "TileOp",
    "head_region",
    "identity",
    "match_extents",
]
