"""The meanings of the intrinsics that lanes have, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilec.interp.thread import barriers, copies, matrix, warps
from tilec.interp.thread.values import Meaning

MEANINGS: Mapping[str, Meaning] = MappingProxyType({
    "named_barrier_arrive": barriers.named_arrive,
    "sync_warp": warps.sync_warp,
    "shfl_sync": warps.shuffle,
    "shfl_xor": warps.shuffle,
    "shfl_up": warps.shuffle,
    "shfl_down": warps.shuffle,
    "any_sync": warps.vote,
    "all_sync": warps.vote,
    "ballot_sync": warps.vote,
    "shuffle_elect": warps.elect,
    "cp_async": copies.cp_async,
    "cp_async_commit": copies.cp_commit,
    "cp_async_wait": copies.cp_wait,
    "cp_async_barrier_noinc": copies.cp_barrier,
    "mbarrier_init": barriers.init,
    "mbarrier_arrive": barriers.arrive,
    "mbarrier_expect_tx": barriers.expect,
    "mbarrier_arrive_expect_tx": barriers.arrive,
    "fence_barrier_init": barriers.fence_init,
    "fence_proxy_async": barriers.fence_async,
    "bulk_load": copies.bulk_load,
    "bulk_store": copies.bulk_store,
    "bulk_commit": copies.bulk_commit,
    "bulk_wait": copies.bulk_wait,
    "mma": matrix.mma,
    "mma_fence": matrix.mma_fence,
    "mma_commit": matrix.mma_commit,
    "mma_wait": matrix.mma_wait,
    "ldmatrix": matrix.ldmatrix,
    "stmatrix": matrix.stmatrix,
    "set_max_nreg": warps.nothing,
})  # fmt: skip

BLOCKING = frozenset({"sync", "mbarrier_wait_parity"})
"""What lanes may wait in; the machine runs these itself."""

COLLECTIVE = frozenset({
    "sync", "named_barrier_arrive", "sync_warp", "shfl_sync", "shfl_xor", "shfl_up", "shfl_down",
    "any_sync", "all_sync", "ballot_sync", "mma", "mma_fence", "mma_commit", "mma_wait", "ldmatrix",
    "stmatrix",
})  # fmt: skip
"""What all lanes of a warp do together."""
