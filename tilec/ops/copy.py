"""Copy, fill and atomic accumulation of regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tilec import ir
from tilec.diagnostics import DTypeError, OperandError, ShapeError
from tilec.ops.base import (
    TileOp,
    at,
    is_one,
    load,
    loop_vars,
    parallel,
    same_extent,
    spread,
    squeezed,
    store,
)

if TYPE_CHECKING:
    import numpy as np

INSTRUCTIONS = (None, "sync", "cp_async", "tma")
EVICTION = (None, "evict_normal", "evict_first", "evict_last")


def match_extents(op: str, src: ir.BufferRegion, dst: ir.BufferRegion) -> tuple[Any, ...]:
    """The loop extents of an elementwise transfer: non-1 extents, matched in order.

    Raises:
        ShapeError: the two regions provably differ in shape.
    """
    a, b = squeezed(src), squeezed(dst)
    if len(a) == len(b):
        known = [same_extent(x, y) for x, y in zip(a, b, strict=True)]
        if False not in known:
            # Where equality is a run-time matter the dynamic extent says how much moves.
            return tuple(
                x if same or not isinstance(x, int) else y
                for x, y, same in zip(a, b, known, strict=True)
            )
    raise ShapeError(
        f"T.{op}: {src.describe()} and {dst.describe()} have different shapes",
        span=ir.caller_span(),
        hint="make the two regions equal up to dimensions of extent 1, "
        "e.g. A[i * 64:(i + 1) * 64, 0:32] for a (64, 32) tile",
    )


class Copy(TileOp):
    """``dst = src`` elementwise, converting the dtype.

    Reads outside a global buffer give 0, writes outside it are dropped. The keyword arguments are
    hints: they never change the result.
    """

    script_name: ClassVar[str] = "copy"
    squeezes: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True

    src: ir.BufferRegion
    dst: ir.BufferRegion
    coalesced_width: int | None = ir.field(default=None)
    disable_tma: bool = ir.field(default=False)
    eviction_policy: str | None = ir.field(default=None)
    prefer_instruction: str | None = ir.field(default=None)
    annotations: dict[str, Any] | None = ir.field(default=None)
    loop_layout: Any = ir.field(default=None)

    def check(self) -> None:
        """Shapes match and hints have legal values."""
        match_extents("copy", self.src, self.dst)
        span = ir.caller_span()
        if self.prefer_instruction not in INSTRUCTIONS:
            raise OperandError(
                f"T.copy: prefer_instruction={self.prefer_instruction!r}",
                span=span,
                hint="one of 'sync', 'cp_async', 'tma'",
            )
        if self.eviction_policy not in EVICTION:
            raise OperandError(
                f"T.copy: eviction_policy={self.eviction_policy!r}",
                span=span,
                hint="one of 'evict_normal', 'evict_first', 'evict_last'",
            )
        width = self.coalesced_width
        if width is not None and (not isinstance(width, int) or width < 1 or width & (width - 1)):
            raise ShapeError(
                f"T.copy: coalesced_width={width!r} is not a positive power of two", span=span
            )

    def reads(self) -> tuple[ir.BufferRegion, ...]:
        """The source."""
        return (self.src,)

    def writes(self) -> tuple[ir.BufferRegion, ...]:
        """The destination."""
        return (self.dst,)

    def extents(self) -> tuple[Any, ...]:
        """Loop extents (dimensions of extent 1 left out)."""
        return match_extents("copy", self.src, self.dst)

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """The source, reshaped to the destination (dtype conversion is the caller's)."""
        shape = tuple(int(e) if isinstance(e, int) else -1 for e in self.dst.extents)
        return (inputs[0].reshape(shape),)

    def lower(self) -> ir.Stmt:
        """A parallel elementwise loop, which keeps the hints for loops."""
        extents = self.extents()
        variables = loop_vars(extents)
        value = load(self.src, spread(self.src, variables))
        body = store(self.dst, spread(self.dst, variables), value)
        notes = dict(self.annotations or {})
        for name in ("coalesced_width", "loop_layout"):
            if getattr(self, name) is not None:
                notes[name] = getattr(self, name)
        return parallel(variables, extents, body, self.span, notes)


class Fill(TileOp):
    """Every element of `dst` becomes `value`, converted to its dtype."""

    script_name: ClassVar[str] = "fill"
    squeezes: ClassVar[bool] = True

    dst: ir.BufferRegion
    value: ir.Expr
    annotations: dict[str, Any] | None = ir.field(default=None)

    def reads(self) -> tuple[ir.BufferRegion, ...]:
        """Nothing."""
        return ()

    def writes(self) -> tuple[ir.BufferRegion, ...]:
        """The destination."""
        return (self.dst,)

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """A constant array (constant `value` only)."""
        import numpy as np

        value = ir.const_value(self.value)
        if value is None:
            raise NotImplementedError("the value of this fill is not a constant")
        return (np.full(self.dst.extents, value),)

    def lower(self) -> ir.Stmt:
        """A parallel loop of stores."""
        extents = squeezed(self.dst)
        variables = loop_vars(extents)
        body = store(self.dst, spread(self.dst, variables), self.value)
        return parallel(variables, extents, body, self.span)


class AtomicAdd(TileOp):
    """``dst += src`` elementwise and atomically, also between blocks.

    `src` is a region, or a scalar added to every element. Elements outside a global buffer are
    dropped. `memory_order` and `use_tma` are hints here.
    """

    script_name: ClassVar[str] = "atomic_add"
    squeezes: ClassVar[bool] = True
    atomic: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True

    dst: ir.BufferRegion
    src: ir.BufferRegion | ir.Expr
    memory_order: str | None = ir.field(default=None)
    use_tma: bool = ir.field(default=False)
    annotations: dict[str, Any] | None = ir.field(default=None)

    def check(self) -> None:
        """Shapes match; bool is refused."""
        if isinstance(self.src, ir.BufferRegion):
            match_extents("atomic_add", self.src, self.dst)
        if self.dst.dtype.is_bool:
            raise DTypeError("T.atomic_add on a bool buffer", span=ir.caller_span())

    def reads(self) -> tuple[ir.BufferRegion, ...]:
        """Source and destination."""
        return (self.dst, self.src) if isinstance(self.src, ir.BufferRegion) else (self.dst,)

    def writes(self) -> tuple[ir.BufferRegion, ...]:
        """The destination."""
        return (self.dst,)

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """Elementwise sum."""
        if isinstance(self.src, ir.BufferRegion):
            return (inputs[0] + inputs[1].reshape(inputs[0].shape),)
        return (inputs[0] + ir.const_value(self.src),)

    def lower(self) -> ir.Stmt:
        """A parallel loop of scalar atomics."""
        src = self.src
        extents = (
            match_extents("atomic_add", src, self.dst)
            if isinstance(src, ir.BufferRegion)
            else squeezed(self.dst)
        )
        variables = loop_vars(extents)
        target = load(self.dst, spread(self.dst, variables))
        value: ir.Expr = (
            load(src, spread(src, variables)) if isinstance(src, ir.BufferRegion) else src
        )
        call = ir.Call(
            "atomic_add", (target, ir.cast(value, self.dst.dtype)), self.dst.dtype, span=self.span
        )
        return parallel(variables, extents, ir.Evaluate(call, span=self.span), self.span)


def full_region(buffer: ir.Buffer) -> ir.BufferRegion:
    """The whole buffer."""
    return buffer.region()


def head_region(element: ir.Load, other: ir.BufferRegion) -> ir.BufferRegion:
    """The region that starts at `element` and has the extents of `other`, right-aligned.

    ``T.copy(A[i * 64, 0], tile)`` names a tile by its first element.

    Raises:
        ShapeError: `other` has more non-1 dimensions than the element's buffer.
    """
    rank = len(element.indices)
    extents = list(other.extents)
    while len(extents) > rank and is_one(extents[0]):
        extents.pop(0)
    if len(extents) > rank:
        extents = [e for e in extents if not is_one(e)]
    if len(extents) > rank:
        raise ShapeError(
            f"{element.buffer.describe()} has too few dimensions for {other.describe()}",
            span=ir.caller_span(),
        )
    full: list[Any] = [1] * (rank - len(extents)) + extents
    return ir.BufferRegion(element.buffer, element.indices, tuple(full), span=element.span)


__all__ = ["AtomicAdd", "Copy", "Fill", "at", "full_region", "head_region", "match_extents"]
