"""Measuring and checking kernels, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.backend import Measurement, RuntimeShim
from tilec.diagnostics import JITArgumentError, OutputAllocationError
from tilec.profiler import Profiler, TensorSupplyType, close_enough, do_bench, make_inputs


class Clock:
    """A device whose time is counted by what runs on it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.evicted: list[int] = []
        self.measured: list[int] = []

    def timer(self, given: Measurement) -> list[float]:
        times = []
        self.measured.append(given.repeat)
        for _ in range(given.repeat):
            if given.before is not None:
                given.before()
            start = self.now
            given.fn()
            times.append(self.now - start)
        return times

    def evict(self, size: int) -> Callable[[], object]:
        def run() -> None:
            self.evicted.append(size)
            self.now += 5.0

        return run

    @property
    def runtime(self) -> RuntimeShim:
        return RuntimeShim(timers={"counted": self.timer}, evict=self.evict)


def test_only_the_function_is_measured_and_caches_are_emptied_before_each_call() -> None:
    clock, calls = Clock(), []

    def work() -> None:
        calls.append(1)
        clock.now += 0.002

    assert do_bench(work, warmup=10, rep=20, runtime=clock.runtime) == pytest.approx(2.0)
    assert clock.measured == [5, 10]
    assert len(calls) == 1 + 5 + 5 + 10
    assert clock.evicted == [256 << 20] * 15


def test_counts_that_are_given_win() -> None:
    clock = Clock()

    def work() -> None:
        clock.now += 0.001

    do_bench(work, _n_warmup=3, _n_repeat=4, cache_size=0, runtime=clock.runtime)
    assert clock.measured == [5, 4]
    assert clock.evicted == []


@pytest.mark.parametrize(
    ("mode", "wanted"), [("min", 1.0), ("max", 4.0), ("mean", 2.5), ("median", 2.5)]
)
def test_ways_to_summarise(mode: str, wanted: float) -> None:
    clock = Clock()
    times = iter([1.0] * 7 + [4.0, 1.0, 3.0, 2.0])

    def work() -> None:
        clock.now += next(times) * 1e-3

    found = do_bench(work, _n_warmup=1, _n_repeat=4, return_mode=mode, runtime=clock.runtime)
    assert found == pytest.approx(wanted)


def test_quantiles() -> None:
    clock = Clock()
    times = iter([1.0] * 7 + [5.0, 1.0, 3.0, 2.0, 4.0])

    def work() -> None:
        clock.now += next(times) * 1e-3

    found = do_bench(
        work, _n_warmup=1, _n_repeat=5, quantiles=(0, 0.5, 0.625, 1), runtime=clock.runtime
    )
    assert found == pytest.approx([1.0, 3.0, 3.5, 5.0])


def test_hopeless_functions_are_given_up() -> None:
    clock = Clock()

    def work() -> None:
        clock.now += 1.0

    assert do_bench(work, early_stop_baseline=10, runtime=clock.runtime) == pytest.approx(1000.0)
    assert clock.measured == [5]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"backend": "sundial"}, "backend='sundial'"),
        ({"return_mode": "mode"}, "return_mode='mode'"),
        ({"quantiles": [0.5, 2]}, "quantiles"),
    ],
)
def test_wrong_keywords(keywords: Any, message: str) -> None:
    with pytest.raises(JITArgumentError, match=message):
        do_bench(lambda: None, runtime=Clock().runtime, **keywords)


def scale(size: Any, dtype: str = "float32") -> Any:
    @T.prim_func
    def scaled(A: T.Tensor((size,), dtype), B: T.Tensor((size,), dtype)):  # type: ignore[valid-type]
        with T.Kernel(T.ceildiv(size, 64), threads=64) as block:
            for i in T.Parallel(64):
                if block * 64 + i < size:
                    B[block * 64 + i] = A[block * 64 + i] * 2

    return scaled


def test_a_kernel_is_measured_and_checked() -> None:
    kernel = tilec.compile(scale(100), out_idx=[1], target="c")
    profiler = kernel.get_profiler()
    assert isinstance(profiler, Profiler)
    assert 0 < profiler.do_bench(rep=2, warmup=1) < 1000  # type: ignore[operator]
    assert profiler.run_once().shape == (100,)
    profiler.assert_allclose(lambda a: a * 2, atol=0, rtol=0, max_mismatched_ratio=0)
    profiler.assert_consistent(3)
    with pytest.raises(AssertionError, match=r"output 0: .* of 100 elements differ"):
        profiler.assert_allclose(lambda a: a * 3)
    seen: list[Any] = []
    profiler.manual_assert_close(
        lambda a: a, manual_check_prog=lambda got, want: seen.append((got, want))
    )
    [(got, want)] = seen
    np.testing.assert_array_equal(got[0], want[0] * 2)
    assert kernel.run_once().shape == (100,)
    assert (kernel.n_regs, kernel.n_spills, kernel.resource_usage) == (None, None, {})


def test_a_result_that_is_an_argument_is_checked_too() -> None:
    profiler = tilec.compile(scale(64), target="c").get_profiler()
    profiler.assert_allclose(lambda a: a * 2, atol=0, rtol=0)


def test_dynamic_sizes_have_to_be_given() -> None:
    kernel = tilec.compile(scale(T.dynamic("n")), out_idx=[1], target="c")
    profiler = kernel.get_profiler()
    assert profiler.inputs({"n": 37})[0].shape == (37,)
    profiler.do_bench(rep=1, warmup=1, dynamic_symbolic_constraints={"n": 37})
    with pytest.raises(JITArgumentError, match="n has no value"):
        profiler.do_bench()


@pytest.mark.parametrize(
    ("supply", "dtype", "low", "high"),
    [
        (TensorSupplyType.Auto, "float16", -1, 1),
        (TensorSupplyType.Auto, "int32", -2, 2),
        (TensorSupplyType.Auto, "uint8", 0, 2),
        (TensorSupplyType.Auto, "bool", 0, 1),
        (TensorSupplyType.Integer, "float32", -2, 2),
        (TensorSupplyType.Zero, "float32", 0, 0),
        (TensorSupplyType.One, "int8", 1, 1),
        (TensorSupplyType.Randn, "float32", -10, 10),
    ],
)
def test_what_inputs_hold(supply: TensorSupplyType, dtype: str, low: int, high: int) -> None:
    params = tilec.compile(scale(1000, dtype), target="c").params if dtype != "bool" else None
    if params is None:
        params = (tilec.compile(scale(1000), target="c").params[0]._replace(dtype=T.bool),)
    [first, *_] = make_inputs(params, RuntimeShim(), supply)
    assert str(first.dtype) == dtype
    assert first.min() >= low
    assert first.max() <= high
    if low != high:
        assert first.min() != first.max()


def test_a_dtype_without_arrays() -> None:
    param = tilec.compile(scale(8), target="c").params[0]._replace(dtype=T.dtype("float32x2"))
    with pytest.raises(OutputAllocationError, match="which NumPy does not have"):
        make_inputs((param,), RuntimeShim())


def test_close_enough() -> None:
    want = np.arange(200.0)
    got = want.copy()
    got[7] += 1
    close_enough(got, want, 1e-3, 1e-3, 0.01)
    with pytest.raises(AssertionError, match=r"1 of 200 .* the first at \[7\]: 8.0 instead of 7.0"):
        close_enough(got, want, 1e-3, 1e-3, 0)
    with pytest.raises(AssertionError, match="shape"):
        close_enough(got[:3], want)
    with pytest.raises(AssertionError, match="differ"):
        close_enough(np.array([1, 2]), np.array([1, 3]), max_mismatched_ratio=0)
