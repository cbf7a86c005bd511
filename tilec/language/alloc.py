"""Allocation of on-chip buffers and scalars."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.diagnostics import OperandError, ShapeError
from tilec.language.builder import BRANCH, UNNAMED, builder
from tilec.language.lanes import fence_barrier_init, mbarrier_init, shuffle_elect, sync_threads
from tilec.language.launch import _launch


def _alloc(what: str, shape: Any, dtype: Any, scope: str) -> ir.Buffer:
    active = builder(what)
    _launch(what)
    extents = ir.check_shape(shape, what)
    for extent in extents:
        if not isinstance(extent, int):
            raise ShapeError(
                f"{what}: extent `{extent!r}` is not a compile-time constant",
                span=ir.caller_span(),
                hint="on-chip buffers have static shapes; tile by a constant block size",
            )
    if not isinstance(scope, str):
        raise OperandError(f"{what}: scope {scope!r}", span=ir.caller_span())
    buffer = ir.Buffer(UNNAMED, extents, ir.DType.of(dtype), scope, span=ir.caller_span())
    active.emit(ir.Alloc(buffer, span=ir.caller_span()))
    return buffer


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> ir.Buffer:
    """A tile that all lanes of the block share; static shape, undefined contents."""
    return _alloc("T.alloc_shared", shape, dtype, scope)


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> ir.Buffer:
    """A tile in registers, owned by the block as a whole."""
    return _alloc("T.alloc_fragment", shape, dtype, scope)


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> ir.Buffer:
    """An array of which every lane has its own copy."""
    return _alloc("T.alloc_local", shape, dtype, scope)


def alloc_buffer(shape: Any, dtype: Any = "float32", scope: str = "shared.dyn") -> ir.Buffer:
    """A buffer in any scope."""
    return _alloc("T.alloc_buffer", shape, dtype, scope)


def alloc_var(dtype: Any, *args: Any, scope: str = "local.var", init: Any = None) -> ir.Load:
    """A mutable scalar, one per lane: ``x = T.alloc_var("int32", init=0)``.

    Afterwards ``x = value`` and ``x += value`` store, and the bare name reads.
    """
    rest = list(args)
    if rest and not isinstance(rest[0], str):
        if init is not None:
            raise OperandError("T.alloc_var: init is given twice", span=ir.caller_span())
        init = rest.pop(0)
    if rest:
        scope = rest.pop(0)
    if rest or not isinstance(scope, str):
        raise OperandError("T.alloc_var takes a dtype, an initial value and a scope",
                           span=ir.caller_span())  # fmt: skip
    active = builder("T.alloc_var")
    _launch("T.alloc_var")
    buffer = ir.Buffer(UNNAMED, (1,), ir.DType.of(dtype), scope, span=ir.caller_span())
    start = None if init is None else ir.cast(init, buffer.dtype)
    active.emit(ir.Alloc(buffer, start, span=ir.caller_span()))
    zero = ir.Const(0, ir.DType("int32"))
    return ir.Load(buffer, (zero,), buffer.dtype, span=ir.caller_span())


def alloc_barrier(arrive_count: Any) -> ir.Buffer:
    """An array of transaction barriers in shared memory, ready for use.

    One lane initialises them with their arrive counts; then all lanes meet.

    Args:
        arrive_count: arrivals of each phase, an int, or one per barrier.

    Raises:
        ShapeError: an arrive count below 1.
    """
    active = builder("T.alloc_barrier")
    _launch("T.alloc_barrier")
    counts = list(arrive_count) if isinstance(arrive_count, (tuple, list)) else [arrive_count]
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ShapeError(
                f"T.alloc_barrier: arrive count {count!r} must be a positive int",
                span=ir.caller_span(),
            )
    buffer = ir.Buffer(
        UNNAMED, (len(counts),), ir.DType("uint64"), "shared.barrier", span=ir.caller_span()
    )
    active.emit(ir.Alloc(buffer, span=ir.caller_span()))
    with active.block(BRANCH) as frame:
        for number, count in enumerate(counts):
            mbarrier_init(buffer[number], count)
        fence_barrier_init()
    span = ir.caller_span()
    active.emit(ir.If(shuffle_elect(0), frame.body(span), span=span))
    sync_threads()
    return buffer
