"""How long a function takes on its device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tilec.backend.components import Measurement, RuntimeShim, Timer
from tilec.backend.registry import registry
from tilec.diagnostics import JITArgumentError, did_you_mean

WALL = "wall"
DEFAULT = "event"
"""The usual way to measure: the device's preferred timer, the clock for host memory."""

_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": lambda times: sum(times) / len(times),
    "median": lambda times: quantile(times, 0.5),
}
_ESTIMATES = 5
_MOST = 10_000


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    fast_flush: bool = True,
    backend: str = DEFAULT,
    return_mode: str = "mean",
    device: int | None = None,
    cache_size: int = 256,
    early_stop_baseline: float | None = None,
    *,
    runtime: RuntimeShim | None = None,
) -> float | list[float]:
    """Milliseconds that a call takes, with caches that hold nothing of it.

    Args:
        fn: does the work, on the current stream where it is asynchronous.
        warmup: milliseconds to run before measuring.
        rep: milliseconds to measure.
        _n_warmup: number of calls before measuring; 0 for as many as fit into `warmup`.
        _n_repeat: number of measured calls; 0 for as many as fit into `rep`.
        quantiles: give these quantiles, as a list, instead of one number.
        fast_flush: accepted for compatibility; caches are always overwritten in words.
        backend: the way to measure: ``"event"`` for the device's usual one, ``"wall"`` for the
            host's clock, or another one of the runtime's.
        return_mode: ``"mean"``, ``"median"``, ``"min"`` or ``"max"``.
        device: index; the current one by default.
        cache_size: MiB written before each call, to evict what is in caches; 0 for none.
        early_stop_baseline: milliseconds; a function whose first calls all take longer is measured
            no further.
        runtime: of the device; that of the default target by default.

    Raises:
        JITArgumentError: an unknown way to measure or mode, or a quantile outside 0 to 1.
    """
    del fast_flush
    if return_mode not in _MODES:
        raise JITArgumentError(
            f"return_mode={return_mode!r}", hint=did_you_mean(return_mode, _MODES, listing="modes")
        )
    if quantiles is not None and not all(0 <= q <= 1 for q in quantiles):
        raise JITArgumentError(f"quantiles={quantiles!r} are not all between 0 and 1")
    if runtime is None:
        known = registry()
        runtime = known.backend(known.target()).runtime
    index = -1 if device is None else device
    timer = find_timer(runtime, backend, index)
    before = None
    if cache_size and runtime.evict is not None:
        before = runtime.evict(cache_size << 20)
    fn()
    runtime.synchronize(index)
    first = timer(Measurement(fn, _ESTIMATES, before, index))
    estimate = max(sum(first) / len(first) * 1e3, 1e-6)
    if early_stop_baseline is not None and min(first) * 1e3 > early_stop_baseline:
        return _summary(first, quantiles, return_mode)
    for _ in range(_n_warmup or min(max(1, int(warmup / estimate)), _MOST)):
        fn()
    runtime.synchronize(index)
    count = _n_repeat or min(max(1, int(rep / estimate)), _MOST)
    return _summary(timer(Measurement(fn, count, before, index)), quantiles, return_mode)


def find_timer(runtime: RuntimeShim, name: str, device: int = -1) -> Timer:
    """A way to measure.

    Raises:
        JITArgumentError: the runtime does not have it.
    """
    if name in runtime.timers:
        return runtime.timers[name]
    if name == DEFAULT and runtime.timers:
        return next(iter(runtime.timers.values()))
    if name in (DEFAULT, WALL):
        return _clock(runtime, device)
    raise JITArgumentError(
        f"backend={name!r}", hint=did_you_mean(name, [*runtime.timers, WALL], listing="known")
    )


def _clock(runtime: RuntimeShim, device: int) -> Timer:
    def measure(given: Measurement) -> list[float]:
        times = []
        for _ in range(given.repeat):
            if given.before is not None:
                given.before()
            runtime.synchronize(device)
            start = time.perf_counter()
            given.fn()
            runtime.synchronize(device)
            times.append(time.perf_counter() - start)
        return times

    return measure


def quantile(times: Sequence[float], share: float) -> float:
    """A quantile, between the two nearest values."""
    ordered = sorted(times)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _summary(
    times: Sequence[float], quantiles: Sequence[float] | None, mode: str
) -> float | list[float]:
    if quantiles is not None:
        return [quantile(times, share) * 1e3 for share in quantiles]
    return _MODES[mode](times) * 1e3
