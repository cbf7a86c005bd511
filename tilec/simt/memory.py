"""Where the shared buffers of a block lie.

All shared memory of a block is one allocation. A buffer is alive from the first to the last
statement that touches it; loops around these, up to the one in which it is allocated, count as a
whole, as the next trip may need what the last one left. Buffers that are never alive together may
lie at the same place; the barrier pass orders the lanes between them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilec import ir
from tilec.diagnostics import CapacityError, ShapeError
from tilec.layout import Layout
from tilec.transform.base import FunctionPass, PassContext

PLAN = "shared_plan"
BYTES = "shared_bytes"
BARRIER_SCOPE = "shared.barrier"
SCOPES = frozenset({ir.SHARED, ir.SHARED_DYN, BARRIER_SCOPE})
_ROWS = 16  # what a wide access needs
_BULK = 128  # what a bulk copy needs
_SWIZZLED = 1024  # the pattern of the widest swizzle repeats at this distance
_BARRIER = 8


class Lifetime(NamedTuple):
    """First and last statement, as numbers in program order."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are alive at some time."""
        return self.first <= other.last and other.first <= self.last


class PlanSharedMemory(FunctionPass):
    """Gives every shared buffer an offset; refuses what does not fit.

    The launch gets the annotations ``shared_plan``, pairs of buffer and byte offset, and
    ``shared_bytes``.
    """

    name = "plan_shared_memory"
    purpose = "place the shared buffers of a block in one allocation"
    needs = "thread"
    gives = "thread"

    def run_function(self, func: ir.PrimFunc, ctx: PassContext) -> ir.PrimFunc:
        """Plan every launch of a function."""
        limit = None
        if ctx.capabilities is not None:
            memory = ctx.capabilities.memories.get(ir.SHARED_DYN)
            limit = None if memory is None else memory.bytes

        def visit(node: Any) -> Any:
            if isinstance(node, ir.Launch):
                return _planned(node, limit)
            return ir.map_children(node, visit) if isinstance(node, ir.Stmt) else node

        body = visit(func.body)
        return func if body is func.body else func.replace(body=body)


def _planned(launch: ir.Launch, limit: int | None) -> ir.Launch:
    layouts = dict(launch.annotations.get("layouts", ()))
    lives = lifetimes(launch)
    sizes = {b: size_of(b, layouts.get(b)) for b in lives}
    bulk = _bulk_copied(launch)
    aligned = {b: max(alignment_of(b, layouts.get(b)), _BULK * (b in bulk)) for b in lives}
    plan = place(lives, sizes, aligned)
    total = max((plan[b] + sizes[b] for b in plan), default=0)
    if limit is not None and total > limit:
        raise _overflow(launch, sizes, lives, total, limit)
    notes = {**launch.annotations, PLAN: tuple(plan.items()), BYTES: total}
    return launch.replace(annotations=notes)


def _bulk_copied(launch: ir.Launch) -> set[ir.Buffer]:
    """Buffers that bulk copies fill or empty."""
    return {
        arg.buffer
        for node in ir.walk(launch.body)
        if isinstance(node, ir.Call) and node.name in ("bulk_load", "bulk_store")
        for arg in node.args
        if isinstance(arg, ir.BufferRegion)
    }


def size_of(buffer: ir.Buffer, layout: Layout | None = None) -> int:
    """Bytes of a shared buffer, padding of its layout included.

    Raises:
        ShapeError: an extent is not constant.
    """
    if layout is not None:
        count = layout.size
    else:
        count = 1
        for extent in buffer.shape:
            if not isinstance(extent, int):
                raise ShapeError(
                    f"{buffer.describe()} needs constant extents on this target",
                    span=buffer.span,
                    hint="tile the dimension by a constant block size",
                )
            count *= extent
    return -(-count * buffer.dtype.bits * buffer.dtype.lanes // 8)


def alignment_of(buffer: ir.Buffer, layout: Layout | None = None) -> int:
    """Bytes to which the start of a shared buffer is aligned."""
    if buffer.scope() == BARRIER_SCOPE:
        return _BARRIER
    return _ROWS if layout is None else _SWIZZLED


def lifetimes(launch: ir.Launch) -> dict[ir.Buffer, Lifetime]:
    """When each shared buffer that is touched is alive; barriers live as long as the block."""
    found: dict[ir.Buffer, list[int]] = {}
    loops: list[tuple[ir.Stmt, int]] = []
    homes: dict[ir.Buffer, int] = {}  # how many loops are around the allocation
    open_uses: list[list[ir.Buffer]] = []
    clock = 0

    def touch(buffer: ir.Buffer) -> None:
        if buffer.scope() not in SCOPES:
            return
        home = homes.setdefault(buffer, 0)
        start = loops[home][1] if len(loops) > home else clock
        span = found.setdefault(buffer, [start, clock])
        span[0], span[1] = min(span[0], start), max(span[1], clock)
        for depth in range(home, len(loops)):
            open_uses[depth].append(buffer)

    def visit(node: Any) -> None:
        nonlocal clock
        clock += 1
        if isinstance(node, ir.Alloc):
            homes[node.buffer] = len(loops)
        looping = isinstance(node, (ir.For, ir.While))
        if looping:
            loops.append((node, clock))
            open_uses.append([])
        for child in node.children:
            if isinstance(child, ir.Stmt):
                visit(child)
                continue
            if isinstance(node, ir.Alloc) and child is node.buffer:
                continue  # the first value of a variable may be read from another one, though
            for item in ir.walk(child):
                if isinstance(item, ir.Buffer):
                    touch(item)
        if looping:
            clock += 1
            loops.pop()
            for buffer in open_uses.pop():
                found[buffer][1] = max(found[buffer][1], clock)

    visit(launch.body)
    result = {}
    for buffer, (first, last) in found.items():
        whole = buffer.scope() == BARRIER_SCOPE
        result[buffer] = Lifetime(0, clock) if whole else Lifetime(first, last)
    return result


def place(
    lives: dict[ir.Buffer, Lifetime], sizes: dict[ir.Buffer, int], alignments: dict[ir.Buffer, int]
) -> dict[ir.Buffer, int]:
    """Offsets such that buffers that are alive together do not overlap; largest ones first."""
    order = sorted(lives, key=lambda b: (-alignments[b], -sizes[b], lives[b]))
    plan: dict[ir.Buffer, int] = {}
    for buffer in order:
        taken = sorted(
            (plan[other], plan[other] + sizes[other])
            for other in plan
            if lives[other].overlaps(lives[buffer])
        )
        at = 0
        for low, high in taken:
            if at + sizes[buffer] <= low:
                break
            at = max(at, -(-high // alignments[buffer]) * alignments[buffer])
        plan[buffer] = at
    return plan


def _overflow(
    launch: ir.Launch,
    sizes: dict[ir.Buffer, int],
    lives: dict[ir.Buffer, Lifetime],
    total: int,
    limit: int,
) -> CapacityError:
    rows = [
        f"{b.name} {ir.shape_text(b.shape)} {b.dtype!s}: {sizes[b]} bytes"
        for b in sorted(lives, key=lambda b: -sizes[b])
    ]
    largest = max(lives, key=lambda b: sizes[b])
    return CapacityError(
        f"a block needs {total} bytes of shared memory, the target has {limit}",
        span=largest.span if largest.span.known else launch.span,
        notes=tuple(rows),
        hint="use smaller tiles or fewer stages",
    )


def overlapping(launch: ir.Launch) -> dict[ir.Buffer, set[ir.Buffer]]:
    """For each shared buffer the others that share bytes with it."""
    layouts = dict(launch.annotations.get("layouts", ()))
    plan = dict(launch.annotations.get(PLAN, ()))
    spans = {b: (at, at + size_of(b, layouts.get(b))) for b, at in plan.items()}
    result: dict[ir.Buffer, set[ir.Buffer]] = {}
    for one, (low, high) in spans.items():
        for other, (start, stop) in spans.items():
            if one is not other and low < stop and start < high:
                result.setdefault(one, set()).add(other)
    return result
