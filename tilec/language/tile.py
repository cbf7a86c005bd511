"""Tile operations of the language: they check their operands where they are called."""

from __future__ import annotations

from typing import Any

from tilec import ir, ops
from tilec.diagnostics import DTypeError, NestingError, OperandError
from tilec.language.builder import builder, is_mutable_var
from tilec.language.launch import _launch
from tilec.ops import GemmWarpPolicy
from tilec.ops.base import is_one


def region(value: Any, what: str) -> ir.BufferRegion:
    """A buffer, region or element as a region.

    Raises:
        OperandError: `value` is none of them.
    """
    if isinstance(value, ir.Buffer):
        return value.region()
    if isinstance(value, ir.BufferRegion):
        return value
    if isinstance(value, ir.Load):
        return ir.BufferRegion(
            value.buffer, value.indices, (1,) * len(value.indices), span=ir.caller_span()
        )
    raise OperandError(
        f"{what} is {ir.describe(value)}, not a tile",
        span=ir.caller_span(),
        hint="pass a buffer, a slice such as A[0:64, :], or an element",
    )


def emit_tile_op(op: ops.TileOp) -> None:
    """Check a tile operation and append it to the kernel being traced.

    The entry point for operations that a backend's dialect adds.
    """
    name = f"T.{type(op).script_name or type(op).__name__}"
    _launch(name)
    try:
        op.check()
    except Exception as error:
        locate = getattr(error, "with_span", None)
        if callable(locate):
            locate(ir.caller_span())
        raise
    active = builder(name)
    regions = (*op.reads(), *op.writes())
    if active.parallel and not all(is_one(extent) for r in regions for extent in r.extents):
        raise NestingError(
            f"{name} is done by the whole block, but is inside T.Parallel, whose iterations are "
            "elements",
            span=ir.caller_span(),
            hint="move it out of the loop, or make the loop T.serial",
        )
    active.emit(op)


def _pair(src: Any, dst: Any, what: str) -> tuple[ir.BufferRegion, ir.BufferRegion]:
    """Both sides as regions; an element is the head of a region like the other side."""
    element = (isinstance(src, ir.Load), isinstance(dst, ir.Load))
    if element[0] and not element[1] and not is_mutable_var(src):
        to = region(dst, f"{what}: the destination")
        return ops.head_region(src, to), to
    if element[1] and not element[0] and not is_mutable_var(dst):
        source = region(src, f"{what}: the source")
        return source, ops.head_region(dst, source)
    return region(src, f"{what}: the source"), region(dst, f"{what}: the destination")


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: dict[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy a tile: ``T.copy(A[i * 64:(i + 1) * 64, :], A_shared)``, converting the dtype.

    Each side is a buffer, a slice, or an element (the head of a region with the other side's
    extents). Out-of-range reads of global memory give 0, out-of-range writes are dropped.
    Keyword arguments are hints.

    Raises:
        ShapeError: the regions differ in shape.
    """
    source, target = _pair(src, dst, "T.copy")
    emit_tile_op(
        ops.Copy(
            source,
            target,
            coalesced_width,
            disable_tma,
            eviction_policy,
            prefer_instruction,
            annotations,
            loop_layout,
            span=ir.caller_span(),
        )
    )


def fill(buffer: Any, value: Any, annotations: dict[str, Any] | None = None) -> None:
    """Set every element of a buffer, region or element to `value` (converted to its dtype)."""
    target = region(buffer, "T.fill: the destination")
    if not isinstance(value, (ir.Expr, bool, int, float)) and not hasattr(value, "dtype"):
        raise OperandError(f"T.fill: the value is {ir.describe(value)}", span=ir.caller_span())
    emit_tile_op(ops.Fill(target, ir.cast(value, target.dtype), annotations, span=ir.caller_span()))


def clear(buffer: Any, annotations: dict[str, Any] | None = None) -> None:
    """Set every element of a buffer, region or element to 0."""
    if is_mutable_var(buffer):
        builder("T.clear").store(buffer.buffer, 0, 0)
        return
    fill(buffer, 0, annotations)


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    mbar: Any = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Tile matrix product: ``C += op(A) @ op(B)``, or ``C =`` with `clear_accum`.

    A is (M, K) or (K, M) with `transpose_A`, B is (K, N) or (N, K) with `transpose_B`, C is
    (M, N). Extents are static; leading dimensions are 1. `policy` is a hint.

    Raises:
        GemmShapeError: M, K or N of the operands differ.
        DTypeError: operand dtypes differ or cannot accumulate into C's.
    """
    if mbar is not None:
        raise OperandError(
            "T.gemm: mbar= belongs to asynchronous matrix units", span=ir.caller_span()
        )
    if not isinstance(clear_accum, (bool, ir.Expr)):
        raise OperandError(f"T.gemm: clear_accum is {clear_accum!r}", span=ir.caller_span())
    emit_tile_op(
        ops.Gemm(
            region(A, "T.gemm: A"),
            region(B, "T.gemm: B"),
            region(C, "T.gemm: C"),
            bool(transpose_A),
            bool(transpose_B),
            GemmWarpPolicy(policy),
            clear_accum,
            annotations,
            span=ir.caller_span(),
        )
    )


def reduce(
    buffer: Any,
    out: Any,
    reduce_type: str,
    dim: int,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Reduce a tile along `dim` (negative counts from the end) into `out`.

    `out` has the shape of `buffer` without `dim`, or with extent 1 there. `clear=False` combines
    with the old contents of `out`. Max and min ignore NaN unless `nan_propagate`.

    Raises:
        ShapeError: `dim` out of range or a wrong output shape.
        DTypeError: a bitwise reduction of floats.
    """
    src, dst = (
        region(buffer, f"T.reduce_{reduce_type}: the source"),
        region(out, f"T.reduce_{reduce_type}: the destination"),
    )
    if isinstance(dim, int) and not isinstance(dim, bool) and -len(src.extents) <= dim < 0:
        dim += len(src.extents)
    emit_tile_op(
        ops.Reduce(
            src,
            dst,
            reduce_type,
            dim,
            bool(clear),
            batch,
            bool(nan_propagate),
            annotations,
            span=ir.caller_span(),
        )
    )


def reduce_sum(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Sum along `dim`; see `reduce`."""
    reduce(buffer, out, "sum", dim, clear, batch, annotations=annotations)


def reduce_abssum(
    buffer: Any, out: Any, dim: int = -1, batch: int = 1, annotations: dict[str, Any] | None = None
) -> None:
    """Sum of absolute values along `dim`; always clears `out`."""
    reduce(buffer, out, "abssum", dim, True, batch, annotations=annotations)


def reduce_max(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Maximum along `dim`; see `reduce`."""
    reduce(buffer, out, "max", dim, clear, batch, nan_propagate, annotations)


def reduce_min(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Minimum along `dim`; see `reduce`."""
    reduce(buffer, out, "min", dim, clear, batch, nan_propagate, annotations)


def reduce_absmax(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Maximum of absolute values along `dim`; see `reduce`."""
    reduce(buffer, out, "absmax", dim, clear, batch, nan_propagate, annotations)


def reduce_bitand(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Bitwise and along `dim`; integers and bool only."""
    reduce(buffer, out, "bitand", dim, clear, batch, annotations=annotations)


def reduce_bitor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Bitwise or along `dim`; integers and bool only."""
    reduce(buffer, out, "bitor", dim, clear, batch, annotations=annotations)


def reduce_bitxor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Bitwise exclusive or along `dim`; integers and bool only."""
    reduce(buffer, out, "bitxor", dim, clear, batch, annotations=annotations)


_MEMORY_ORDERS = (None, "relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")


def atomic_add(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    use_tma: bool = False,
    annotations: dict[str, Any] | None = None,
) -> Any:
    """Add atomically to an element, or elementwise to a tile.

    Element form (`dst` an element and `value` a scalar): with `return_prev` the old value is
    returned. Tile form: `value` is a tile of the same shape or a scalar.

    Raises:
        OperandError: an unknown memory order, or `return_prev` on a tile.
    """
    _check_order("atomic_add", memory_order)
    tile = isinstance(dst, (ir.Buffer, ir.BufferRegion)) or isinstance(
        value, (ir.Buffer, ir.BufferRegion)
    )
    if not tile:
        return _atomic_element("atomic_add", dst, value, memory_order, return_prev)
    if return_prev:
        raise OperandError(
            "T.atomic_add: return_prev is for elements, not tiles", span=ir.caller_span()
        )
    if isinstance(value, (ir.Buffer, ir.BufferRegion)):
        source, target = _pair(value, dst, "T.atomic_add")
        operand: Any = source
    else:
        target = region(dst, "T.atomic_add: the destination")
        operand = ir.cast(value, target.dtype)
    emit_tile_op(
        ops.AtomicAdd(target, operand, memory_order, use_tma, annotations, span=ir.caller_span())
    )
    return None


def _check_order(name: str, memory_order: Any) -> None:
    if memory_order not in _MEMORY_ORDERS:
        raise OperandError(
            f"T.{name}: memory_order {memory_order!r}",
            span=ir.caller_span(),
            hint=f"one of {', '.join(o for o in _MEMORY_ORDERS if o)}",
        )


def _atomic_element(
    name: str, dst: Any, value: Any, memory_order: str | None, return_prev: bool
) -> Any:
    active = builder(f"T.{name}")
    _launch(f"T.{name}")
    _check_order(name, memory_order)
    if not isinstance(dst, ir.Load):
        raise OperandError(
            f"T.{name}: the destination is {ir.describe(dst)}, not an element",
            span=ir.caller_span(),
            hint="pass an element such as C[i, j]",
        )
    if dst.dtype.is_bool:
        raise DTypeError(f"T.{name} on a bool buffer", span=ir.caller_span())
    call = ir.Call(
        name,
        (dst, ir.cast(value, dst.dtype)),
        dst.dtype,
        {"memory_order": memory_order} if memory_order else {},
        span=ir.caller_span(),
    )
    if return_prev:
        return active.temp(call)  # evaluated here, once
    active.emit(ir.Evaluate(call, span=ir.caller_span()))
    return None


def atomic_max(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False
) -> Any:
    """``dst = max(dst, value)`` atomically, on an element."""
    return _atomic_element("atomic_max", dst, value, memory_order, return_prev)


def atomic_min(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False
) -> Any:
    """``dst = min(dst, value)`` atomically, on an element."""
    return _atomic_element("atomic_min", dst, value, memory_order, return_prev)
