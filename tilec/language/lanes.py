"""What lanes of a block do together or start without waiting: barriers, shuffles, engines.

Needs a target whose blocks have lanes; see ``docs/internals/thread-form.md`` for the meanings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tilec import ir, ops
from tilec.diagnostics import DTypeError, OperandError, did_you_mean
from tilec.language.builder import builder
from tilec.language.launch import _launch
from tilec.language.tile import region

_INT32, _UINT32, _BOOL = ir.DType("int32"), ir.DType("uint32"), ir.DType("bool")
FULL_MASK = 0xFFFFFFFF
_CP_BYTES = (4, 8, 16)
_ATOMS: ContextVar[dict[str, Any] | None] = ContextVar("tilec_atoms", default=None)


@contextmanager
def known_atoms(atoms: Iterable[Any]) -> Iterator[None]:
    """Matrix atoms that `matrix_atom` finds by name inside the block."""
    token = _ATOMS.set({**(_ATOMS.get() or {}), **{atom.name: atom for atom in atoms}})
    try:
        yield
    finally:
        _ATOMS.reset(token)


def matrix_atom(atom: Any) -> Any:
    """A matrix atom by name; an atom is given back.

    Raises:
        OperandError: no atom of this name is known here (`from_script` takes them).
    """
    if not isinstance(atom, str):
        return atom
    known = _ATOMS.get() or {}
    if atom not in known:
        raise OperandError(
            f"there is no matrix atom {atom!r} here",
            span=ir.caller_span(),
            hint=did_you_mean(atom, list(known)) or "pass the atoms of the target to from_script",
        )
    return known[atom]


def _call(
    name: str, args: tuple[Any, ...], dtype: ir.DType = _INT32, attrs: dict[str, Any] | None = None
) -> ir.Call:
    return ir.Call(name, args, dtype, attrs or {}, span=ir.caller_span())


def _effect(
    name: str, *args: Any, shown: str | None = None, attrs: dict[str, Any] | None = None
) -> None:
    """Append an intrinsic to the kernel being traced."""
    what = f"T.{shown or name}"
    _launch(what)
    call = _call(name, args, attrs=attrs)
    builder(what).emit(ir.Evaluate(call, span=ir.caller_span()))


def _value(name: str, args: tuple[Any, ...], dtype: ir.DType) -> ir.Call:
    _launch(f"T.{name}")
    return _call(name, args, dtype)


def _integer(what: str, value: Any) -> ir.Expr:
    result = ir.as_expr(value)
    if not result.dtype.is_integer:
        raise DTypeError(f"{what} is {result.dtype!s}, not an integer", span=ir.caller_span())
    return result


def _constant(what: str, value: Any, low: int, high: int | None = None) -> ir.Expr:
    number = ir.const_value(value)
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or number < low
        or (high is not None and number > high)
    ):
        wanted = f"{low} to {high}" if high is not None else f"at least {low}"
        raise OperandError(
            f"{what} is {ir.describe(value)}; a constant of {wanted}", span=ir.caller_span()
        )
    return ir.as_expr(number)


def _element(what: str, value: Any) -> ir.Load:
    """An element that is named, not read."""
    if isinstance(value, ir.Buffer) and value.shape == (1,):
        value = value[0]
    if not isinstance(value, ir.Load):
        raise OperandError(
            f"{what} is {ir.describe(value)}, not an element",
            span=ir.caller_span(),
            hint="name its first element, such as A[i, 0]",
        )
    return value


def _barrier(what: str, value: Any) -> ir.Load:
    element = _element(f"{what}: the barrier", value)
    if element.buffer.scope() != "shared.barrier":
        raise OperandError(
            f"{what}: {element.buffer.describe()} is not a barrier",
            span=ir.caller_span(),
            hint="T.alloc_barrier makes them",
        )
    return element


# barriers of the block


def sync_threads(barrier_id: Any = None, arrive_count: Any = None) -> None:
    """A barrier for all lanes of the block, or the named barrier of `arrive_count` lanes.

    Raises:
        OperandError: only one of the two is given, or they are not constants.
    """
    if barrier_id is None and arrive_count is None:
        _effect("sync", shown="sync_threads")
        return
    if barrier_id is None or arrive_count is None:
        raise OperandError(
            "T.sync_threads: barrier_id and arrive_count are given together",
            span=ir.caller_span(),
        )
    number = _constant("T.sync_threads: barrier_id", barrier_id, 1)
    count = _constant("T.sync_threads: arrive_count", arrive_count, 1)
    _effect("sync", number, count, shown="sync_threads")


def named_barrier_arrive(barrier_id: Any, thread_count: Any) -> None:
    """Arrive at the named barrier of `thread_count` lanes without waiting."""
    number = _constant("T.named_barrier_arrive: barrier_id", barrier_id, 1)
    count = _constant("T.named_barrier_arrive: thread_count", thread_count, 1)
    _effect("named_barrier_arrive", number, count)


def sync_warp(mask: Any = None) -> None:
    """Order the memory accesses of the lanes of a warp."""
    _full(mask, "T.sync_warp")
    _effect("sync_warp")


def _full(mask: Any, what: str) -> None:
    if mask is not None and ir.const_value(mask) != FULL_MASK:
        raise OperandError(
            f"{what}: mask {ir.describe(mask)}",
            span=ir.caller_span(),
            hint="all lanes of a warp take part: 0xffffffff",
        )


# shuffles and votes


def _shuffle(name: str, value: Any, other: Any, width: Any, mask: Any) -> ir.Call:
    _full(mask, f"T.{name}")
    lanes = _constant(f"T.{name}: width", width, 1)
    count = ir.const_value(lanes)
    assert isinstance(count, int)
    if count & (count - 1):
        raise OperandError(f"T.{name}: width {count} is not a power of two", span=ir.caller_span())
    what = ir.as_expr(value)
    return _value(name, (what, _integer(f"T.{name}: the lane", other), lanes), what.dtype)


def shfl_sync(value: Any, srcLane: Any, width: int = 32, mask: int = FULL_MASK) -> Any:  # noqa: N803
    """The value of lane ``srcLane % width`` of each `width` lanes."""
    return _shuffle("shfl_sync", value, srcLane, width, mask)


def shfl_xor(value: Any, delta: Any, width: int = 32, mask: int = FULL_MASK) -> Any:
    """The value of the lane whose number differs in the bits of `delta`, below `width`."""
    number = ir.const_value(delta)
    if number is not None and not 0 <= number < width:
        raise OperandError(
            f"T.shfl_xor: delta {number} is not below the width {width}", span=ir.caller_span()
        )
    return _shuffle("shfl_xor", value, delta, width, mask)


def shfl_up(value: Any, delta: Any, width: int = 32, mask: int = FULL_MASK) -> Any:
    """The value of the lane `delta` before; the own one where that is outside of the group."""
    return _shuffle("shfl_up", value, delta, width, mask)


def shfl_down(value: Any, delta: Any, width: int = 32, mask: int = FULL_MASK) -> Any:
    """The value of the lane `delta` behind; the own one where that is outside of the group."""
    return _shuffle("shfl_down", value, delta, width, mask)


def _vote(name: str, predicate: Any, mask: Any, dtype: ir.DType) -> ir.Call:
    _full(mask, f"T.{name}")
    given = ir.as_expr(predicate)
    if given.dtype.is_float:
        raise DTypeError(
            f"T.{name} takes a condition, not a {given.dtype!s}",
            hint="compare it with something",
        )
    return _value(name, (ir.truth(given),), dtype)


def any_sync(predicate: Any, mask: int = FULL_MASK) -> Any:
    """1 where `predicate` holds in any lane of the warp, else 0; int32."""
    return _vote("any_sync", predicate, mask, _INT32)


def all_sync(predicate: Any, mask: int = FULL_MASK) -> Any:
    """1 where `predicate` holds in all lanes of the warp, else 0; int32."""
    return _vote("all_sync", predicate, mask, _INT32)


def ballot_sync(predicate: Any, mask: int = FULL_MASK) -> Any:
    """A bit per lane of the warp, set where `predicate` holds; uint32."""
    return _vote("ballot_sync", predicate, mask, _UINT32)


def shuffle_elect(thread_extent: Any) -> Any:
    """True in the first of every `thread_extent` lanes; 0: of the block."""
    return _value(
        "shuffle_elect", (_constant("T.shuffle_elect: thread_extent", thread_extent, 0),), _BOOL
    )


# asynchronous copies of a few elements


def cp_async(dst: Any, src: Any, count: Any, predicate: Any = None) -> None:
    """Start copying `count` elements (4, 8 or 16 bytes) from global to shared memory.

    With a false `predicate` zeros are written and nothing is read.

    Raises:
        OperandError: another number of bytes, or operands that are not elements.
        DTypeError: two dtypes.
    """
    to, origin = _element("T.cp_async: dst", dst), _element("T.cp_async: src", src)
    number = _constant("T.cp_async: count", count, 1)
    if to.dtype != origin.dtype:
        raise DTypeError(
            f"T.cp_async from {origin.dtype!s} to {to.dtype!s}: it converts nothing",
            span=ir.caller_span(),
        )
    size = int(ir.const_value(number) or 0) * to.dtype.bits
    if size % 8 or size // 8 not in _CP_BYTES:
        raise OperandError(
            f"T.cp_async copies 4, 8 or 16 bytes, not {size / 8:g}", span=ir.caller_span()
        )
    extra = () if predicate is None else (ir.truth(predicate),)
    _effect("cp_async", to, origin, number, *extra)


def cp_async_commit() -> None:
    """The copies that this lane started since the last commit form a group."""
    _effect("cp_async_commit")


def cp_async_wait(n: Any) -> None:
    """Wait until at most the `n` newest groups of this lane are open."""
    _effect("cp_async_wait", _constant("T.cp_async_wait: n", n, 0))


def cp_async_barrier_noinc(barrier: Any) -> None:
    """Arrive at a transaction barrier when all copies this lane started are done."""
    _effect("cp_async_barrier_noinc", _barrier("T.cp_async_barrier_noinc", barrier))


# transaction barriers


def mbarrier_init(mbarrier: Any, count: Any) -> None:
    """Set up a transaction barrier; by one lane, then `fence_barrier_init` and `sync_threads`."""
    _effect(
        "mbarrier_init", _barrier("T.mbarrier_init", mbarrier),
        _integer("T.mbarrier_init: count", count),
    )  # fmt: skip


def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> None:
    """One arrival.

    Raises:
        OperandError: `cta_id`, the barrier of another block.
    """
    if cta_id is not None:
        raise OperandError(
            "T.mbarrier_arrive: cta_id", span=ir.caller_span(),
            hint="blocks of a cluster are not supported",
        )  # fmt: skip
    _effect("mbarrier_arrive", _barrier("T.mbarrier_arrive", mbarrier))


def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """The phase also waits for `tx` bytes."""
    _effect(
        "mbarrier_expect_tx", _barrier("T.mbarrier_expect_tx", mbarrier),
        _integer("T.mbarrier_expect_tx: tx", tx),
    )  # fmt: skip


def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """One arrival; the phase also waits for `tx` bytes."""
    _effect(
        "mbarrier_arrive_expect_tx", _barrier("T.mbarrier_arrive_expect_tx", mbarrier),
        _integer("T.mbarrier_arrive_expect_tx: tx", tx),
    )  # fmt: skip


def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """Wait until the phase with this parity has completed."""
    _effect(
        "mbarrier_wait_parity", _barrier("T.mbarrier_wait_parity", mbarrier),
        _integer("T.mbarrier_wait_parity: parity", parity),
    )  # fmt: skip


def fence_barrier_init() -> None:
    """Make initialised barriers visible to the block and to copy engines."""
    _effect("fence_barrier_init")


def fence_proxy_async() -> None:
    """Make what is ordered before visible to bulk copies and asynchronous matrix instructions."""
    _effect("fence_proxy_async")


# copies of boxes


def _boxes(dst: Any, src: Any, what: str) -> tuple[ir.BufferRegion, ir.BufferRegion]:
    if isinstance(src, ir.Load):
        to = region(dst, f"{what}: the destination")
        return to, ops.head_region(src, to)
    origin = region(src, f"{what}: the source")
    if isinstance(dst, ir.Load):
        return ops.head_region(dst, origin), origin
    return region(dst, f"{what}: the destination"), origin


def bulk_load(dst: Any, src: Any, barrier: Any) -> None:
    """One lane starts copying a box of global to shared memory, whose bytes complete `barrier`.

    Elements outside of the tensor become 0.
    """
    to, origin = _boxes(dst, src, "T.bulk_load")
    _effect("bulk_load", to, origin, _barrier("T.bulk_load", barrier))


def bulk_store(dst: Any, src: Any, reduce: str | None = None) -> None:
    """One lane starts copying a box of shared to global memory.

    Elements outside of the tensor are dropped. With `reduce` ("add", "min", "max") they are
    combined with what is there.
    """
    if reduce not in (None, "add", "min", "max"):
        raise OperandError(
            f"T.bulk_store: reduce {reduce!r}", span=ir.caller_span(), hint="add, min or max"
        )
    to, origin = _boxes(dst, src, "T.bulk_store")
    _effect("bulk_store", to, origin, attrs={"reduce": reduce} if reduce else None)


def bulk_commit() -> None:
    """The bulk stores that this lane started since the last commit form a group."""
    _effect("bulk_commit")


def bulk_wait(n: Any = 0, read: bool | None = None) -> None:
    """Wait until at most `n` groups are open; with `read` until sources may be overwritten."""
    _effect(
        "bulk_wait",
        _constant("T.bulk_wait: n", n, 0),
        attrs=None if read is None else {"read": bool(read)},
    )


# matrix instructions


def mma(
    C: Any,  # noqa: N803
    A: Any,  # noqa: N803
    B: Any,  # noqa: N803
    accumulate: Any = None,
    *,
    atom: Any,
    transpose_a: bool | None = None,
    transpose_b: bool | None = None,
) -> None:
    """``C = A @ B + (C if accumulate else 0)`` by a matrix atom; `accumulate` is true if left out.

    Args:
        C, A, B: regions of registers, or of shared memory, as the atom has it.
        accumulate: a bool or a predicate.
        atom: a `MatrixAtom`, or its name.
        transpose_a, transpose_b: of operands in shared memory.
    """
    operands = [region(x, f"T.mma: {n}") for n, x in (("C", C), ("A", A), ("B", B))]
    keep = () if accumulate is None else (ir.truth(accumulate),)
    attrs: dict[str, Any] = {"atom": matrix_atom(atom)}
    for key, flag in (("transpose_a", transpose_a), ("transpose_b", transpose_b)):
        if flag is not None:
            attrs[key] = bool(flag)
    _effect("mma", *operands, *keep, attrs=attrs)


def mma_fence() -> None:
    """Registers that were written are ready for asynchronous atoms."""
    _effect("mma_fence")


def mma_commit() -> None:
    """The asynchronous atoms started since the last commit form a group."""
    _effect("mma_commit")


def mma_wait(n: Any = 0) -> None:
    """Wait until at most the `n` newest groups of asynchronous atoms are open."""
    _effect("mma_wait", _constant("T.mma_wait: n", n, 0))


def _matrices(num: Any, transpose: bool, what: str) -> dict[str, Any]:
    if num not in (1, 2, 4):
        raise OperandError(f"{what}: num {num!r}", span=ir.caller_span(), hint="1, 2 or 4")
    return {"num": num, "transpose": bool(transpose)}


def ldmatrix(dst: Any, src: Any, num: int = 1, transpose: bool = False) -> None:
    """Load `num` matrices of 8 x 8 elements; row r of matrix q is at the element of lane 8 q + r.

    Args:
        dst: a region of ``2 * num`` registers.
        src: the lane's element of shared memory.
        num: 1, 2 or 4.
        transpose: whether lanes receive columns.
    """
    to, origin = region(dst, "T.ldmatrix: dst"), _element("T.ldmatrix: src", src)
    _effect("ldmatrix", to, origin, attrs=_matrices(num, transpose, "T.ldmatrix"))


def stmatrix(dst: Any, src: Any, num: int = 1, transpose: bool = False) -> None:
    """The inverse of `ldmatrix`: `dst` is an element, `src` a region of registers."""
    to, origin = _element("T.stmatrix: dst", dst), region(src, "T.stmatrix: src")
    _effect("stmatrix", to, origin, attrs=_matrices(num, transpose, "T.stmatrix"))


def set_max_nreg(reg_count: Any, is_inc: Any) -> None:
    """The register budget of a warp group; no meaning for values."""
    count = _constant("T.set_max_nreg: reg_count", reg_count, 1)
    _effect("set_max_nreg", count, _constant("T.set_max_nreg: is_inc", is_inc, 0, 1))
