"""What works on its own beside the lanes: its components, and groups that lanes wait for."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from tilec.diagnostics import NO_SPAN, Span
from tilec.interp.groups import Array
from tilec.interp.thread.tasks import lane_text, lanes_text
from tilec.interp.thread.values import LaneValues


class Groups:
    """Per lane, times up to which the groups that it has committed go."""

    def __init__(self) -> None:
        self._times: dict[int, list[int]] = defaultdict(list)

    def commit(self, lane: int, time: int) -> None:
        """What was started up to a time forms a group with all that is not in one yet."""
        self._times[lane].append(time)

    def done(self, lane: int, left: int) -> int:
        """The time up to which all is done once at most `left` groups are open."""
        times = self._times[lane]
        return times[-1 - left] if len(times) > left else 0


class StoreEngine(NamedTuple):
    """The two sides of the bulk stores of a lane: reading shared and writing global memory."""

    read: int
    write: int


class Engines:
    """The engines of one block; only a checked run needs them."""

    def __init__(self, values: LaneValues) -> None:
        self._values = values
        self._copies: int | None = None
        self.copy_groups = Groups()
        self.stores: dict[int, StoreEngine] = {}
        self.store_groups = Groups()
        self.store_reads = Groups()
        self.store_span = NO_SPAN
        self._matrix: dict[int, int] = {}
        self.matrix_groups = Groups()
        self.matrix_done = np.zeros(values.total, np.int64)

    @property
    def copies(self) -> int | None:
        """The component of the asynchronous copies of lane 0; those of the others follow."""
        return self._copies

    def copy_components(self, lanes: Array) -> Array:
        """The components of the asynchronous copies of lanes."""
        clocks, warp = self._values.clocks, self._values.warp
        assert clocks is not None
        if self._copies is None:
            self._copies = clocks.count
            for lane in range(self._values.total):
                text = f"the cp_async of {lane_text(lane, warp)}"
                clocks.engine(("cp_async", lane), text, generic=True)
        return self._copies + lanes

    def store(self, lane: int, span: Span) -> StoreEngine:
        """The components of the bulk stores of a lane, which starts one at a place."""
        self.store_span = span
        found = self.stores.get(lane)
        if found is None:
            clocks = self._values.clocks
            assert clocks is not None
            text = f"the bulk_store of {lane_text(lane, self._values.warp)}"
            parts = (clocks.engine((side, lane), text, generic=False) for side in ("read", "write"))
            found = self.stores[lane] = StoreEngine(*parts)
        return found

    def matrix(self, lanes: Array) -> int:
        """The component of the asynchronous matrix instructions of the lanes of a warp.

        Also where several warps work together each waits for its own part only.
        """
        clocks = self._values.clocks
        assert clocks is not None
        first = int(lanes[0])
        text = f"the asynchronous mma of {lanes_text(lanes, self._values.warp)}"
        number = clocks.engine(("mma", first, len(lanes)), text, generic=False)
        for lane in lanes:
            self._matrix[int(lane)] = number
        return number

    def matrix_of(self, lane: int) -> int | None:
        """The component of the matrix instructions of a lane, if it has started any."""
        return self._matrix.get(lane)
