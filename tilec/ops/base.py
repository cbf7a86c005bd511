"""What every tile operation has: a contract, effects, a NumPy meaning and a generic lowering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tilec import ir

if TYPE_CHECKING:
    import numpy as np

INT32 = ir.DType("int32")


class TileOp(ir.TileOp):
    """Base class of tile operations.

    A subclass declares operands and attributes as fields and implements `check` (legality, raised
    where the user wrote the call), `reads`/`writes` (effects), `compute` (what it computes, as
    NumPy) and `lower` (loops over scalars, legal on every machine). Backends add faster lowerings
    through their lowering table; passes never switch on the class.

    Attributes:
        atomic: whether what it does to an element cannot be torn apart by another block.
        elementwise: whether an element of the (last) source matters for one element of the
            destination only, the one at its place.
        squeezes: whether dimensions of extent 1 in front of its operands do not matter.
    """

    atomic: ClassVar[bool] = False
    elementwise: ClassVar[bool] = False
    squeezes: ClassVar[bool] = False

    def compute(self, inputs: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
        """New contents of `writes()` given the contents of `reads()` (same order)."""
        raise NotImplementedError

    def lower(self) -> ir.Stmt:
        """The operation as scalar loops: the lowering that always exists."""
        raise NotImplementedError


def loop_vars(extents: tuple[Any, ...], names: str = "ijklmn") -> tuple[ir.Var, ...]:
    """Fresh loop variables for a loop nest."""
    return tuple(ir.Var(names[n % len(names)], INT32) for n in range(len(extents)))


def parallel(
    variables: tuple[ir.Var, ...],
    extents: tuple[Any, ...],
    body: ir.Stmt,
    span: Any,
    annotations: dict[str, Any] | None = None,
) -> ir.Stmt:
    """A parallel nest over `extents`; just the body where there is nothing to loop over."""
    if not variables:
        return body
    bounds = tuple(ir.as_expr(e) for e in extents)
    return ir.Parallel(variables, bounds, annotations or {}, body, span=span)


def serial(
    var: ir.Var, extent: Any, body: ir.Stmt, span: Any, annotations: dict[str, Any] | None = None
) -> ir.Stmt:
    """``for var in range(extent)``."""
    zero, one = ir.literal(0, var.dtype, span), ir.literal(1, var.dtype, span)
    stop = ir.cast(ir.as_expr(extent), var.dtype)
    return ir.For(var, zero, stop, one, "serial", annotations or {}, body, span=span)


def at(region: ir.BufferRegion, offsets: tuple[Any, ...]) -> tuple[ir.Expr, ...]:
    """Indices of the element of `region` at `offsets` (one per dimension of the buffer)."""
    return tuple(
        ir.as_expr(off if ir.const_value(low) == 0 else ir.fold_int(low + off))
        for low, off in zip(region.mins, offsets, strict=True)
    )


def spread(region: ir.BufferRegion, variables: tuple[Any, ...]) -> tuple[Any, ...]:
    """`variables` on the dimensions of `region` that are not 1, zero elsewhere."""
    it = iter(variables)
    return tuple(0 if is_one(e) else next(it) for e in region.extents)


def is_one(extent: Any) -> bool:
    """Whether an extent is the constant 1."""
    return isinstance(extent, int) and extent == 1


def squeezed(region: ir.BufferRegion) -> tuple[Any, ...]:
    """The extents of a region that are not 1."""
    return tuple(e for e in region.extents if not is_one(e))


def same_extent(a: Any, b: Any) -> bool | None:
    """True or False where decidable, None where it depends on run-time values."""
    delta = ir.difference(a, b)
    return delta == 0 if isinstance(delta, int) else None


def load(region: ir.BufferRegion, offsets: tuple[Any, ...]) -> ir.Load:
    """The element of `region` at `offsets`."""
    return ir.Load(region.buffer, at(region, offsets), region.dtype, span=region.span)


def store(region: ir.BufferRegion, offsets: tuple[Any, ...], value: ir.Expr) -> ir.Store:
    """Store into the element of `region` at `offsets`, converting to its dtype."""
    return ir.Store(
        region.buffer, at(region, offsets), ir.cast(value, region.dtype), span=region.span
    )
