"""Scalar arithmetic: what operations mean, and what can be known about integer expressions."""

from tilec.arith.bounds import Interval
from tilec.arith.evaluate import evaluate
from tilec.arith.formats import round_to, value_dtype
from tilec.arith.intrinsics import FOLDABLE, evaluate_call, evaluate_fma, storage_dtype
from tilec.arith.modular import Modular
from tilec.arith.semantics import (
    canonical_const,
    evaluate_binary,
    evaluate_cast,
    evaluate_unary,
    round_value,
    wrap_int,
)
from tilec.arith.simplify import Simplifier, simplify

__all__ = [
    "FOLDABLE",
    "Interval",
    "Modular",
    "Simplifier",
    "canonical_const",
    "evaluate",
    "evaluate_binary",
    "evaluate_call",
    "evaluate_cast",
    "evaluate_fma",
    "evaluate_unary",
    "round_to",
    "round_value",
    "simplify",
    "storage_dtype",
    "value_dtype",
    "wrap_int",
]
