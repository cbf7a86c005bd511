"""Kernel launches and what belongs to them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tilec import ir
from tilec.diagnostics import LaunchError, NestingError, NoTraceError, OperandError
from tilec.language.builder import LAUNCH, Frame, builder

_INT32 = ir.DType("int32")
_ORDERS = ("row", "column", "mlx")
_AXES = ("x", "y", "z")


def _extent(value: Any, axis: int) -> Any:
    item = ir.fold_int(value)
    if isinstance(item, bool) or not isinstance(item, (int, ir.Expr)):
        raise LaunchError(
            f"T.Kernel: grid extent {axis} is {ir.describe(value)}",
            span=ir.caller_span(),
            hint="grid extents are ints or integer expressions",
        )
    if isinstance(item, ir.Expr) and not item.dtype.is_integer:
        raise LaunchError(
            f"T.Kernel: grid extent {axis} has dtype {item.dtype!s}", span=ir.caller_span()
        )
    if isinstance(item, int) and item < 0:
        raise LaunchError(f"T.Kernel: grid extent {axis} is {item}", span=ir.caller_span())
    return item


def _dims(what: str, value: Any) -> tuple[int, ...]:
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(items) <= 3:
        raise LaunchError(
            f"T.Kernel: {what} has {len(items)} dimensions",
            span=ir.caller_span(),
            hint="one to three",
        )
    result = []
    for item in items:
        item = ir.fold_int(item)
        if isinstance(item, bool) or not isinstance(item, int):
            raise LaunchError(
                f"T.Kernel: {what} is {value!r}",
                span=ir.caller_span(),
                hint="an int, or up to three",
            )
        if item <= 0:
            raise LaunchError(
                f"T.Kernel: {what} must be positive, got {item}",
                span=ir.caller_span(),
                hint="threads=128 is a common choice; leave it out to let the target choose"
                if what == "threads"
                else "1 for a dimension that is not used",
            )
        result.append(item)
    return tuple(result + [1] * (3 - len(result)))


class KernelFrame:
    """``with T.Kernel(...)``; entering gives the block indices."""

    def __init__(
        self, grid: tuple[Any, ...], threads: tuple[int, ...] | None, annotations: dict[str, Any]
    ) -> None:
        self.grid = grid
        self.threads = threads
        self.annotations = annotations
        self.span = ir.caller_span()
        self._names: tuple[str, ...] = ()
        self._unpacked = False
        self.layouts: dict[ir.Buffer, Any] = {}
        self._stack = ExitStack()
        self.block_vars: tuple[ir.Var, ...] = ()
        self.thread_vars: tuple[ir.Var, ...] = ()
        self._frame: Frame | None = None

    def set_names(self, names: tuple[str, ...], unpacked: bool) -> None:
        """Names of the block indices from the ``as`` clause, and whether it is a tuple."""
        self._names = names
        self._unpacked = unpacked

    def __enter__(self) -> Any:
        active = builder("T.Kernel")
        if active.eager is not None:
            active.eager.reached_kernel()
        if active.launch is not None:
            raise NestingError("T.Kernel inside another T.Kernel", span=self.span)
        count = len(self.grid)
        names = self._names
        if len(names) != count:
            if len(names) > 1:
                raise LaunchError(
                    f"T.Kernel has {count} grid dimension(s) but {len(names)} names",
                    span=self.span,
                )
            base = names[0] if names else "b"
            names = names if count == 1 and names else tuple(f"{base}{a}" for a in _AXES[:count])
        self.block_vars = tuple(ir.Var(n, _INT32, span=self.span) for n in names)
        self.thread_vars = tuple(ir.Var(f"t{a}", _INT32, span=self.span) for a in _AXES)
        active.launch = self
        self._frame = self._stack.enter_context(active.block(LAUNCH))
        return self.block_vars[0] if count == 1 and not self._unpacked else list(self.block_vars)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is not None:
            return
        active = builder("T.Kernel")
        assert self._frame is not None
        body = self._frame.body(self.span)
        self._stack.close()
        active.launch = None
        if self.layouts:
            self.annotations["layouts"] = list(self.layouts.items())
        active.emit(
            ir.Launch(
                self.block_vars,
                tuple(ir.cast(ir.as_expr(g), _INT32) for g in self.grid),
                self.thread_vars,
                self.threads,
                self.annotations,
                body,
                span=self.span,
            )
        )


def Kernel(  # noqa: N802
    *blocks: Any,
    threads: Any = None,
    prelude: str | None = None,
    cluster_dims: Any = None,
    warp: int | None = None,
) -> KernelFrame:
    """Launch a grid of blocks: ``with T.Kernel(gx, gy, threads=128) as (bx, by):``.

    Args:
        blocks: one to three grid extents (ints or expressions), x first.
        threads: lanes per block, an int or up to three; None leaves it to the backend.
        prelude: source text put before the device code.
        cluster_dims: cluster shape, a hint where clusters do not exist.
        warp: lanes of a warp; says that the body is in thread form, what each lane does.

    Raises:
        LaunchError: no or more than three extents, a non-positive count.
    """
    builder("T.Kernel")
    if not 1 <= len(blocks) <= 3:
        raise LaunchError(
            f"T.Kernel has {len(blocks)} grid dimensions",
            span=ir.caller_span(),
            hint="one to three; fold more dimensions into one and take them apart with // and %",
        )
    annotations: dict[str, Any] = {}
    if prelude is not None:
        annotations["prelude"] = str(prelude)
    if cluster_dims is not None:
        dims = _dims("cluster_dims", cluster_dims)
        if dims != (1, 1, 1):
            annotations["cluster_dims"] = list(dims)
    if warp is not None:
        annotations["warp"] = _dims("warp", warp)[0]
    grid = tuple(_extent(b, n) for n, b in enumerate(blocks))
    return KernelFrame(grid, None if threads is None else _dims("threads", threads), annotations)


def _launch(what: str) -> KernelFrame:
    frame: KernelFrame | None = builder(what).launch
    if frame is None:
        raise NoTraceError(
            f"{what} can only be used inside `with T.Kernel(...)`",
            span=ir.caller_span(),
            hint="move it into the block of T.Kernel",
        )
    return frame


def get_thread_binding(dim: int = 0) -> ir.Var:
    """The lane index along `dim` (0, 1, 2 for x, y, z)."""
    frame = _launch("T.get_thread_binding")
    if not isinstance(dim, int) or not 0 <= dim < 3:
        raise OperandError(f"T.get_thread_binding: dim {dim!r}", span=ir.caller_span())
    return frame.thread_vars[dim]


def get_thread_bindings() -> list[ir.Var]:
    """The lane indices along x, y and z."""
    return list(_launch("T.get_thread_bindings").thread_vars)


def get_block_binding(dim: int = 0) -> ir.Var:
    """The block index along `dim`."""
    return _launch("T.get_block_binding").block_vars[dim]


def get_block_bindings() -> list[ir.Var]:
    """All block indices."""
    return list(_launch("T.get_block_bindings").block_vars)


def _extents_of(frame: KernelFrame, what: str) -> tuple[int, ...]:
    if frame.threads is None:
        raise OperandError(
            f"{what} needs a thread count, which this T.Kernel leaves to the backend",
            span=ir.caller_span(),
            hint="pass threads= to T.Kernel",
        )
    return frame.threads


def get_thread_extent(dim: int = 0) -> int:
    """The number of lanes along `dim`."""
    return _extents_of(_launch("T.get_thread_extent"), "T.get_thread_extent")[dim]


def get_thread_extents() -> list[int]:
    """The numbers of lanes along x, y and z."""
    return list(_extents_of(_launch("T.get_thread_extents"), "T.get_thread_extents"))


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Hint: walk the grid in panels of `panel_size` blocks for cache reuse; never changes results.

    Raises:
        OperandError: an unknown `order` or a non-positive `panel_size`.
    """
    frame = _launch("T.use_swizzle")
    if order not in _ORDERS:
        raise OperandError(
            f"T.use_swizzle: order {order!r}",
            span=ir.caller_span(),
            hint=f"one of {', '.join(_ORDERS)}",
        )
    if isinstance(panel_size, bool) or not isinstance(panel_size, int) or panel_size < 1:
        raise OperandError(f"T.use_swizzle: panel_size {panel_size!r}", span=ir.caller_span())
    if enable:
        frame.annotations["swizzle"] = [panel_size, order]


def annotate_layout(layout_map: dict[Any, Any]) -> None:
    """Hint: wanted physical layouts, ``{buffer: Layout | Fragment | callable}``.

    A callable maps logical indices to physical ones. Results never depend on it.

    Raises:
        OperandError: a key is not an on-chip buffer, or a value is not a layout.
    """
    from tilec.layout import Fragment, Layout

    frame = _launch("T.annotate_layout")
    for buffer, layout in dict(layout_map).items():
        if not isinstance(buffer, ir.Buffer) or buffer.scope() == ir.GLOBAL:
            raise OperandError(
                f"T.annotate_layout: {ir.describe(buffer)} is not an on-chip buffer",
                span=ir.caller_span(),
            )
        made = (
            Layout(buffer.shape, layout)
            if callable(layout) and not isinstance(layout, (Layout, Fragment))
            else layout
        )
        if not isinstance(made, (Layout, Fragment)):
            raise OperandError(
                f"T.annotate_layout: {layout!r} is not a layout for {buffer.name}",
                span=ir.caller_span(),
                hint="pass a T.Layout, a T.Fragment or a function of the indices",
            )
        frame.layouts[buffer] = made


def annotate_launch(**notes: Any) -> None:
    """Attach facts that passes know to the launch being traced."""
    _launch("T.annotate_launch").annotations.update(notes)


def func_attr(attrs: dict[str, Any]) -> None:
    """Attach attributes to the function being traced."""
    builder("T.func_attr").attrs.update(attrs)
