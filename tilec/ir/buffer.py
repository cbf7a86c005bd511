"""Buffers, regions of buffers, and the sink that stores go to while a kernel is traced."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from tilec.diagnostics import (
    IndexCountError,
    NoTraceError,
    OperandError,
    OutOfBoundsError,
    ShapeError,
    StagedTruthError,
)
from tilec.ir.dtype import INT32, INT64, DType
from tilec.ir.expr import Const, Expr, Load, as_expr, cast
from tilec.ir.linear import difference, fold_int
from tilec.ir.node import Node, field
from tilec.ir.span import caller_span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilec.ir.stmt import Stmt

GLOBAL, SHARED, SHARED_DYN = "global", "shared", "shared.dyn"
FRAGMENT, LOCAL, LOCAL_VAR = "local.fragment", "local", "local.var"


class Emitter(Protocol):
    """Where traced statements go; implemented by the front end's builder."""

    def emit(self, stmt: Stmt) -> None:
        """Append a statement to the block being traced."""

    def store(self, buffer: Buffer, index: Any, value: Any) -> None:
        """``buffer[index] = value``."""


EMITTER: ContextVar[Emitter | None] = ContextVar("tilec_emitter", default=None)


def emitter(what: str) -> Emitter:
    """The active emitter.

    Raises:
        NoTraceError: `what` was used outside a kernel.
    """
    current = EMITTER.get()
    if current is None:
        raise NoTraceError(
            f"{what} can only be used inside a kernel that is being traced",
            span=caller_span(),
            hint="decorate the function with @T.prim_func or @tilec.jit",
        )
    return current


class Buffer(Node):
    """A typed array of `shape` elements in a memory scope. Compared by identity.

    Attributes:
        shape: ints or integer expressions.
        strides: element strides, or None for contiguous row-major.
        scope: "global", "shared", "shared.dyn", "local.fragment", "local", "local.var" or a
            scope that a backend declares.
    """

    name: str
    shape: tuple[int | Expr, ...]
    dtype: DType
    _scope: str = field(default=GLOBAL)
    strides: tuple[int | Expr, ...] | None = field(default=None)

    __hash__ = object.__hash__

    def scope(self) -> str:
        """The memory scope."""
        return self._scope

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def data(self) -> Buffer:
        """The storage behind the buffer (the buffer itself)."""
        return self

    def describe(self) -> str:
        """A phrase for error messages, e.g. ``buffer A (64, 32) float16 in global``."""
        return f"buffer {self.name} {shape_text(self.shape)} {self.dtype!s} in {self._scope}"

    def element_strides(self) -> tuple[int | Expr, ...]:
        """Strides in elements, row-major if none were given."""
        if self.strides is not None:
            return self.strides
        result: list[int | Expr] = []
        step: Any = 1
        for extent in reversed(self.shape):
            result.append(fold_int(step))
            step = step * extent
        return tuple(reversed(result))

    def region(self) -> BufferRegion:
        """The whole buffer as a region."""
        zero = tuple(Const(0, DType("int32")) for _ in self.shape)
        return BufferRegion(self, zero, tuple(self.shape), span=caller_span())

    def __getitem__(self, index: Any) -> Any:
        """``A[i, j]`` is an element, ``A[a:b, j]`` a region."""
        mins, extents, is_region = self.resolve_index(index)
        if is_region:
            return BufferRegion(self, mins, extents, span=caller_span())
        return Load(self, mins, self.dtype, span=caller_span())

    def __setitem__(self, index: Any, value: Any) -> None:
        emitter(f"a store to {self.name}").store(self, index, value)

    def __iter__(self) -> Any:
        raise OperandError(f"{self.describe()} cannot be iterated over", span=caller_span())

    def __bool__(self) -> bool:
        raise StagedTruthError(
            f"{self.describe()} has no truth value",
            span=caller_span(),
            hint=f"test one element, e.g. {self.name}[0] > 0",
        )

    def resolve_index(self, index: Any) -> tuple[tuple[Expr, ...], tuple[int | Expr, ...], bool]:
        """Normalise an index: minima, extents and whether any part is a slice.

        Raises:
            IndexCountError: the number of indices differs from the rank.
            OutOfBoundsError: a constant index or slice is outside the buffer.
        """
        items = index if isinstance(index, tuple) else (index,)
        if len(items) != len(self.shape):
            raise IndexCountError(
                f"{self.name} has {len(self.shape)} dimension(s) {shape_text(self.shape)} "
                f"but is indexed with {len(items)}",
                span=caller_span(),
                hint="give one index or slice per dimension",
            )
        mins: list[Expr] = []
        extents: list[int | Expr] = []
        region = False
        for axis, (item, extent) in enumerate(zip(items, self.shape, strict=True)):
            if isinstance(item, slice):
                region = True
                low, size = self._resolve_slice(item, extent, axis)
            else:
                low, size = self._resolve_one(item, extent, axis), 1
            mins.append(low)
            extents.append(size)
        return tuple(mins), tuple(extents), region

    def _resolve_one(self, item: Any, extent: int | Expr, axis: int) -> Expr:
        value = fold_int(item)
        if isinstance(value, (bool, float)):
            raise OperandError(
                f"index {value!r} of {self.name} is not an integer", span=caller_span()
            )
        if isinstance(value, int):
            if isinstance(extent, int) and not -extent <= value < extent:
                raise OutOfBoundsError(
                    f"index {value} is outside dimension {axis} of {self.name}, which has "
                    f"{extent} element(s)",
                    span=caller_span(),
                    hint=f"indices are 0 to {extent - 1}, or -{extent} to -1 from the end",
                )
            if value < 0:
                return as_expr(fold_int(extent + value))
            return as_expr(value)
        expr = as_expr(item)
        if not expr.dtype.is_integer:
            raise OperandError(
                f"an index of {self.name} has dtype {expr.dtype!s}; indices are integers",
                span=caller_span(),
                hint="cast it with T.cast(i, 'int32')",
            )
        # Indices are int32 or int64, so that comparing one with an extent cannot wrap.
        if expr.dtype.is_uint and expr.dtype.bits >= 32:
            return cast(expr, INT64)
        return cast(expr, INT32) if expr.dtype.bits < 32 else expr

    def _resolve_slice(self, item: slice, extent: int | Expr, axis: int) -> tuple[Expr, int | Expr]:
        if item.step is not None and fold_int(item.step) != 1:
            raise OperandError(
                f"a slice of {self.name} has step {item.step!r}; slices have no step",
                span=caller_span(),
                hint="copy the elements in a T.Parallel loop",
            )
        start = 0 if item.start is None else fold_int(item.start)
        stop = extent if item.stop is None else fold_int(item.stop)
        if isinstance(start, int) and start < 0:
            start = fold_int(extent + start)
        if isinstance(stop, int) and stop < 0:
            stop = fold_int(extent + stop)
        size = difference(stop, start)
        bad = isinstance(size, int) and size < 0
        if isinstance(extent, int):
            bad = bad or (isinstance(start, int) and not 0 <= start <= extent)
            bad = bad or (isinstance(stop, int) and not 0 <= stop <= extent)
            # A tile that moves over a tensor may be larger: global accesses are guarded.
            bad = bad or (isinstance(size, int) and size > extent and self.scope() != GLOBAL)
        if bad:
            raise OutOfBoundsError(
                f"slice {item.start}:{item.stop} is outside dimension {axis} of {self.name}, "
                f"which has {extent} element(s)",
                span=caller_span(),
                hint=f"bounds are 0 to {extent}; where a tile of global memory may stick out, give "
                "its first element, as in T.copy(A[i, j], tile)",
            )
        return as_expr(start), size


class BufferRegion(Node):
    """A box of a buffer: per dimension a start and an extent."""

    buffer: Buffer
    mins: tuple[Expr, ...]
    extents: tuple[int | Expr, ...]

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        """Extents of the box, one per dimension of the buffer."""
        return self.extents

    def describe(self) -> str:
        """A phrase for error messages."""
        if shape_text(self.extents) == shape_text(self.buffer.shape):
            return self.buffer.describe()
        return f"region {shape_text(self.extents)} of {self.buffer.describe()}"

    def __getitem__(self, index: Any) -> Any:
        """An element or sub-region, relative to the region; extent-1 dims may be left out."""
        items = index if isinstance(index, tuple) else (index,)
        kept = [i for i, e in enumerate(self.extents) if e != 1 or isinstance(e, Expr)]
        if len(items) == len(self.extents):
            kept = list(range(len(self.extents)))
        view = Buffer(
            self.buffer.name, tuple(self.extents[i] for i in kept), self.dtype, self.buffer.scope()
        )
        mins, extents, is_region = view.resolve_index(items)
        full_mins = list(self.mins)
        full_extents: list[int | Expr] = [1] * len(self.mins)
        for axis, low, size in zip(kept, mins, extents, strict=True):
            full_mins[axis] = as_expr(fold_int(self.mins[axis] + low))
            full_extents[axis] = size
        if is_region:
            return BufferRegion(
                self.buffer, tuple(full_mins), tuple(full_extents), span=caller_span()
            )
        return Load(self.buffer, tuple(full_mins), self.dtype, span=caller_span())

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        where = emitter(f"a store to {self.buffer.name}")
        if isinstance(target, Load):
            where.store(target.buffer, target.indices, value)
        else:
            slices = tuple(
                slice(m, m + e) for m, e in zip(target.mins, target.extents, strict=True)
            )
            where.store(target.buffer, slices, value)


def shape_text(shape: Iterable[int | Expr]) -> str:
    """A shape as text, e.g. ``(64, n)``."""
    items = [str(s) if isinstance(s, int) else repr(s) for s in shape]
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def check_shape(shape: Any, what: str) -> tuple[int | Expr, ...]:
    """Normalise a shape given as int, expression or sequence.

    Raises:
        ShapeError: an extent is negative or not an integer.
    """
    items = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    result: list[int | Expr] = []
    for item in items:
        value = fold_int(item)
        if isinstance(value, bool) or not isinstance(value, (int, Expr)):
            raise ShapeError(f"{what}: {item!r} is not an extent", span=caller_span())
        if isinstance(value, int) and value < 0:
            raise ShapeError(f"{what}: extent {value} is negative", span=caller_span())
        if isinstance(value, Expr) and not value.dtype.is_integer:
            raise ShapeError(
                f"{what}: extent `{value!r}` has dtype {value.dtype!s}", span=caller_span()
            )
        result.append(value)
    return tuple(result)
