"""Other names of the functions of lanes, which kernels use that were written elsewhere."""

from __future__ import annotations

from typing import Any

from tilec.language.lanes import (
    bulk_commit,
    bulk_wait,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    mbarrier_arrive,
    mbarrier_wait_parity,
    mma_commit,
    mma_fence,
    mma_wait,
    set_max_nreg,
)

barrier_arrive = mbarrier_arrive
barrier_wait = mbarrier_wait_parity
ptx_commit_group = cp_async_commit
tma_store_arrive = bulk_commit
warpgroup_arrive = mma_fence
warpgroup_commit_batch = mma_commit


def ptx_cp_async(
    dst_access_ptr: Any, src_access_ptr: Any, num_elems: Any, predicate: Any = None
) -> None:
    """`cp_async`."""
    cp_async(dst_access_ptr, src_access_ptr, num_elems, predicate)


def ptx_wait_group(num: Any) -> None:
    """`cp_async_wait`."""
    cp_async_wait(num)


def tma_store_wait(count: Any = 0, read: bool = True) -> None:
    """`bulk_wait`; sources may be overwritten afterwards."""
    bulk_wait(count, read)


def warpgroup_wait(num_mma: Any) -> None:
    """`mma_wait`."""
    mma_wait(num_mma)


def wait_wgmma(id: Any) -> None:  # noqa: A002
    """`mma_wait`."""
    mma_wait(id)


def inc_max_nreg(reg_count: Any) -> None:
    """`set_max_nreg` to more registers."""
    set_max_nreg(reg_count, 1)


def dec_max_nreg(reg_count: Any) -> None:
    """`set_max_nreg` to fewer registers."""
    set_max_nreg(reg_count, 0)
