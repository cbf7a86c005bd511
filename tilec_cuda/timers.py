"""Measuring time on the device: by events around each call, or around a replayed graph."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tilec.backend import Measurement
from tilec.diagnostics import TilecError
from tilec_cuda.driver import CAPTURE_RELAXED, Driver, driver
from tilec_cuda.streams import current_stream, default_stream

_NON_BLOCKING = 1


def _index(found: Driver) -> int:
    current = found.current_device()
    return 0 if current is None else current


def _stream() -> int:
    return current_stream(-1)


@contextmanager
def _events(found: Driver, count: int) -> Iterator[list[int]]:
    made: list[int] = []
    try:
        for _ in range(count):
            made.append(found.handle("cuEventCreate", 0))
        yield made
    finally:
        for event in made:
            with suppress(TilecError):
                found.call("cuEventDestroy_v2", event)


def _elapsed(found: Driver, events: Sequence[int]) -> list[float]:
    """Seconds between the events of each pair."""
    found.call("cuEventSynchronize", events[-1])
    times = []
    for start, stop in zip(events[::2], events[1::2], strict=True):
        value = ctypes.c_float()
        found.call("cuEventElapsedTime", ctypes.byref(value), start, stop)
        times.append(value.value * 1e-3)
    return times


def by_events(given: Measurement) -> Sequence[float]:
    """Each call between two events on the current stream."""
    found = driver()
    index = _index(found) if given.device < 0 else given.device
    with found.on(index), _events(found, 2 * given.repeat) as events:
        stream = current_stream(given.device)
        for start, stop in zip(events[::2], events[1::2], strict=True):
            if given.before is not None:
                given.before()
            found.call("cuEventRecord", start, stream)
            given.fn()
            found.call("cuEventRecord", stop, stream)
        return _elapsed(found, events)


def by_graph(given: Measurement) -> Sequence[float]:
    """Each call as a graph that is captured once and replayed, so that launching costs little.

    The work must go to the current stream and must not synchronise; with torch, it may allocate.
    """
    found = driver()
    index = _index(found) if given.device < 0 else given.device
    torch = sys.modules.get("torch")
    capture = _own_graph
    if torch is not None and torch.cuda.is_initialized():
        capture = _torch_graph
    with (
        found.on(index),
        capture(found, given.fn) as (stream, replay),
        _events(found, 2 * given.repeat) as events,
    ):
        for start, stop in zip(events[::2], events[1::2], strict=True):
            if given.before is not None:
                given.before()
            found.call("cuEventRecord", start, stream)
            replay()
            found.call("cuEventRecord", stop, stream)
        return _elapsed(found, events)


Captured = tuple[int, Callable[[], object]]
"""The stream that is the current one, and what replays the graph on it."""


@contextmanager
def _torch_graph(found: Driver, fn: Callable[[], object]) -> Iterator[Captured]:
    """Captured by torch, whose allocator has to know."""
    del found
    torch: Any = sys.modules["torch"]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fn()  # loads what is loaded at a first call
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    yield _stream(), graph.replay
    torch.cuda.synchronize()


@contextmanager
def _own_graph(found: Driver, fn: Callable[[], object]) -> Iterator[Captured]:
    """Captured on a stream of its own: the default stream cannot be."""
    with _side_stream(found) as stream:
        graph = _captured(found, stream, fn)
        try:
            yield stream, lambda: found.call("cuGraphLaunch", graph, stream)
        finally:
            found.call("cuStreamSynchronize", stream)
            found.call("cuGraphExecDestroy", graph)


@contextmanager
def _side_stream(found: Driver) -> Iterator[int]:
    """A new stream, made the current one."""
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None:
        with cupy.cuda.Stream(non_blocking=True) as made:
            yield int(made.ptr)
        return
    stream = found.handle("cuStreamCreate", _NON_BLOCKING)
    try:
        with default_stream(stream):
            yield stream
    finally:
        found.call("cuStreamDestroy_v2", stream)


def _captured(found: Driver, stream: int, fn: Callable[[], object]) -> int:
    fn()  # loads what is loaded at a first call
    found.call("cuStreamSynchronize", stream)
    found.call("cuStreamBeginCapture_v2", stream, CAPTURE_RELAXED)
    try:
        fn()
    except BaseException:
        with suppress(TilecError):
            found.handle_last("cuStreamEndCapture", stream)
        raise
    graph = found.handle_last("cuStreamEndCapture", stream)
    try:
        return found.handle("cuGraphInstantiateWithFlags", graph, 0)
    finally:
        found.call("cuGraphDestroy", graph)


def evict(size: int) -> Callable[[], object]:
    """A function that overwrites `size` bytes of device memory, so that the cache is full of it."""
    found = driver()
    index = _index(found)
    memory = _Memory(found, index, size)

    def run() -> None:
        with found.on(index):
            found.call("cuMemsetD8Async", memory.address, 0, size, _stream())

    return run


class _Memory:
    """Device memory that lives as long as this object."""

    def __init__(self, found: Driver, index: int, size: int) -> None:
        self._driver, self._index = found, index
        value = ctypes.c_uint64()
        with found.on(index):
            found.call("cuMemAlloc_v2", ctypes.byref(value), size)
        self.address: Any = value.value

    def __del__(self) -> None:
        with suppress(Exception), self._driver.on(self._index):
            self._driver.call("cuMemFree_v2", self.address)


TIMERS = {"event": by_events, "cudagraph": by_graph, "cupti": by_events}
"""By name; ``cupti`` is an alias: the events of a busy stream hold no time of launching either."""
