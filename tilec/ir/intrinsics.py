"""Scalar intrinsics: names that `Call` may carry, with arity and kind.

An open set: a backend adds its own (`Intrinsic` in its manifest) beside their meaning and printing.
"""

from __future__ import annotations

from typing import NamedTuple


class Intrinsic(NamedTuple):
    """What a pass must know about an intrinsic.

    Attributes:
        name: as in `Call.name`.
        arity: number of arguments, or -1 for any.
        kind: "float" (computed in a float type; integers are converted to float32), "same"
            (result has the argument type), "bool" (predicate) or "effect" (has side effects).
        pure: whether two calls with equal arguments may be merged or moved.
    """

    name: str
    arity: int
    kind: str
    pure: bool = True


_FLOAT1 = (
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
    "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "sigmoid",
)  # fmt: skip
_ROUND = ("floor", "ceil", "trunc", "nearbyint", "round")

# What lanes of a block do together or start without waiting; see docs/internals/thread-form.md.
# All count as effects: none may be moved across another, or under a condition.
_LANES = {
    "named_barrier_arrive": 2, "sync_warp": 0,
    "shfl_sync": 3, "shfl_xor": 3, "shfl_up": 3, "shfl_down": 3,
    "any_sync": 1, "all_sync": 1, "ballot_sync": 1, "shuffle_elect": 1,
    "cp_async": -1, "cp_async_commit": 0, "cp_async_wait": 1, "cp_async_barrier_noinc": 1,
    "mbarrier_init": 2, "mbarrier_arrive": 1, "mbarrier_expect_tx": 2,
    "mbarrier_arrive_expect_tx": 2, "mbarrier_wait_parity": 2,
    "fence_barrier_init": 0, "fence_proxy_async": 0,
    "bulk_load": 3, "bulk_store": 2, "bulk_commit": 0, "bulk_wait": 1,
    "mma": -1, "mma_fence": 0, "mma_commit": 0, "mma_wait": 1,
    "ldmatrix": 2, "stmatrix": 2, "set_max_nreg": 2,
}  # fmt: skip

INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        *(Intrinsic(name, 1, "float") for name in _FLOAT1),
        *(Intrinsic(name, 1, "same") for name in (*_ROUND, "abs")),
        *(Intrinsic(name, 2, "float") for name in ("atan2", "hypot", "copysign", "fmod")),
        Intrinsic("fma", 3, "float"),
        Intrinsic("clamp", 3, "same"),
        *(Intrinsic(name, 1, "bool") for name in ("isnan", "isinf", "isfinite")),
        Intrinsic("reinterpret", 1, "bits"),
        Intrinsic("atomic_add", -1, "effect", pure=False),
        Intrinsic("atomic_max", -1, "effect", pure=False),
        Intrinsic("atomic_min", -1, "effect", pure=False),
        Intrinsic("sync", -1, "effect", pure=False),
        *(Intrinsic(name, arity, "effect", pure=False) for name, arity in _LANES.items()),
    )
}

LANE_INTRINSICS = frozenset(_LANES)
"""What only targets have whose lanes run in warps."""


def is_pure(name: str) -> bool:
    """Whether calls of `name` have no effect (unknown names count as effectful)."""
    known = INTRINSICS.get(name)
    return known is not None and known.pure
