"""Leaving out any one barrier, wait, commit, fence or arrival is found, whatever the schedule.

Each kernel of `lane_kernels` is run with every statement of synchronisation left out in turn. The
tables say what is reported: the code, and what the message names. Score: all 37 are found. Of the
25 wrong numbers 24 are found; the one that is not changes nothing.
"""

from __future__ import annotations

from typing import Any

import lane_kernels
import numpy as np
import pytest
from lane_kernels import matrices
from lane_mutations import statements, weakened, without

from tilec import interp
from tilec.diagnostics import TilecError

RACE, FENCE, BARRIER, DEADLOCK = "TC0802", "TC0804", "TC0805", "TC0806"
Expected = list[tuple[str, str, str]]

RING: Expected = [
    ("cp_async_commit", RACE, "sa["),
    ("cp_async_wait", RACE, "sa["),
    ("sync", RACE, "sa["),
    ("cp_async_commit", RACE, "sa["),
]
SPECIALISED: Expected = [
    ("mbarrier_init", BARRIER, "full[0]"),
    ("mbarrier_init", BARRIER, "empty[0]"),
    ("fence_barrier_init", FENCE, "empty[0]"),
    ("sync", RACE, "empty[0]"),
    ("mbarrier_wait_parity", RACE, "sa["),  # the producer overtakes the consumers
    ("mbarrier_arrive_expect_tx", DEADLOCK, "full[0]"),
    ("mbarrier_wait_parity", RACE, "sb["),  # the consumers overtake the producer
    ("mbarrier_arrive", DEADLOCK, "full[0]"),
    ("fence_proxy_async", FENCE, "out["),
    ("sync", RACE, "out["),
    ("bulk_commit", RACE, "bulk_store"),
    ("bulk_wait", RACE, "bulk_store"),
]
ASYNCHRONOUS: Expected = [
    ("mbarrier_init", BARRIER, "full[0]"),
    ("mbarrier_init", BARRIER, "full[1]"),
    ("fence_barrier_init", FENCE, "full[0]"),
    ("sync", RACE, "full[0]"),
    ("cp_async_barrier_noinc", DEADLOCK, "full[0]"),
    ("mbarrier_wait_parity", RACE, "sa["),
    ("fence_proxy_async", FENCE, "sa["),
    ("mma_fence", FENCE, "c["),
    ("mma_commit", RACE, "sa["),
    ("mma_wait", RACE, "sa["),
    ("sync", RACE, "sa["),
]
ATTENTION: Expected = [("sync", RACE, "sq["), ("sync", RACE, "sk["), ("sync", RACE, "sk[")]
REDUCTION: Expected = [
    ("sync_warp", RACE, "turned["),
    ("sync", RACE, "parts["),
    ("named_barrier_arrive", DEADLOCK, "barrier 1"),
]


def numbers(rows: int, columns: int) -> Any:
    return np.random.default_rng(1).integers(-9, 9, (rows, columns)).astype(np.float32)


def halves(rows: int) -> Any:
    return [matrices(rows, 32, 32, seed)[0] for seed in range(3)]


KERNELS: dict[str, tuple[Any, tuple[Any, ...], tuple[int, ...], Expected]] = {
    "ring of 3": (
        lane_kernels.pipelined_gemm(32, 64, 128, 32, 64, 32, 3), matrices(32, 64, 128)[:2],
        (32, 64), RING,
    ),
    "ring of 2": (
        lane_kernels.pipelined_gemm(32, 64, 128, 32, 64, 32, 2), matrices(32, 64, 128)[:2],
        (32, 64), RING,
    ),
    "specialised": (
        lane_kernels.specialised_gemm(32, 32, 128, 32, 32, 32, 2), matrices(32, 32, 128)[:2],
        (32, 32), SPECIALISED,
    ),
    "asynchronous": (
        lane_kernels.asynchronous_gemm(64, 16, 128, 2), matrices(64, 16, 128)[:2], (64, 16),
        ASYNCHRONOUS,
    ),
    "attention": (lane_kernels.attention(64, 32), tuple(halves(64)), (64, 32), ATTENTION),
    "reduction": (lane_kernels.reduction(512), (numbers(4, 512),), (4,), REDUCTION),
}  # fmt: skip
CASES = [
    (kernel, number, *line)
    for kernel, (_, _, _, expected) in KERNELS.items()
    for number, line in enumerate(expected)
]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernel_itself_passes_and_every_statement_has_a_case(kernel: str) -> None:
    func, args, shape, expected = KERNELS[kernel]
    interp.run(func, *args, np.zeros(shape, np.float32), check=True)
    assert statements(func) == [name for name, _, _ in expected]


@pytest.mark.parametrize(
    ("kernel", "number", "name", "code", "needle"),
    CASES,
    ids=[f"{kernel}-{number}-{name}" for kernel, number, name, _, _ in CASES],
)
def test_leaving_it_out_is_found(
    kernel: str, number: int, name: str, code: str, needle: str
) -> None:
    del name
    func, args, shape, _ = KERNELS[kernel]
    with pytest.raises(TilecError) as caught:
        interp.run(without(func, number), *args, np.zeros(shape, np.float32), check=True)
    assert caught.value.code == code, str(caught.value)
    assert needle in caught.value.message
    assert caught.value.span is not None
    assert caught.value.span.known


HARMLESS = {("specialised", "sync: another barrier")}  # no other statement uses either of them


@pytest.mark.parametrize("kernel", KERNELS)
def test_wrong_numbers_are_found(kernel: str) -> None:
    func, args, shape, _ = KERNELS[kernel]
    for what, wrong in weakened(func):
        if (kernel, what) in HARMLESS:
            interp.run(wrong, *args, np.zeros(shape, np.float32), check=True)
            continue
        with pytest.raises(TilecError) as caught:
            interp.run(wrong, *args, np.zeros(shape, np.float32), check=True)
        assert caught.value.code in (RACE, BARRIER, DEADLOCK), what
