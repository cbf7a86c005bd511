"""What the host side needs to know about a function's parameters."""

from __future__ import annotations

from tilec import ir
from tilec.backend.artifact import KernelParam
from tilec.diagnostics import JITArgumentError


def normalize_out_idx(func: ir.PrimFunc, out_idx: object = None) -> tuple[int, ...]:
    """Positions of the parameters that the caller may leave out, ascending.

    Args:
        func: the function; its attribute ``out_idx`` is used where none is given.
        out_idx: an int, or a list of ints; negative ones count from the end.

    Raises:
        JITArgumentError: not a position of a buffer parameter, or given twice.
    """
    given = func.attrs.get("out_idx") if out_idx is None else out_idx
    if given is None:
        return ()
    items = list(given) if isinstance(given, (list, tuple)) else [given]
    count = len(func.params)
    positions: list[int] = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int):
            raise JITArgumentError(
                f"out_idx of {func.name} is {item!r}; it must be an int or a list of ints",
                span=func.span,
            )
        if not -count <= item < count:
            raise JITArgumentError(
                f"out_idx {item} is out of range for {func.name}, which has {count} parameter(s)",
                span=func.span,
                hint=f"positions are 0 to {count - 1}, or {-count} to -1 from the end",
            )
        position = item % count
        if position in positions:
            raise JITArgumentError(
                f"out_idx of {func.name} names parameter {position} twice", span=func.span
            )
        if not isinstance(func.params[position], ir.Buffer):
            raise JITArgumentError(
                f"out_idx {item} of {func.name} is the scalar `{func.params[position].name}`; "
                "outputs are tensors",
                span=func.span,
            )
        positions.append(position)
    return tuple(sorted(positions))


def kernel_params(func: ir.PrimFunc, out_idx: tuple[int, ...] = ()) -> tuple[KernelParam, ...]:
    """The parameters of a function in tile form, with what its body does with them."""
    read, written, mentioned = _effects(func)
    params = []
    for position, node in enumerate(func.params):
        used = node in mentioned
        if isinstance(node, ir.Buffer):
            params.append(
                KernelParam(
                    node.name,
                    node.dtype,
                    tuple(node.shape),
                    node.strides,
                    read=node in read,
                    written=node in written,
                    used=used,
                    is_output=position in out_idx,
                    node=node,
                )
            )
        else:
            params.append(
                KernelParam(node.name, node.dtype, by_value=True, read=used, used=used, node=node)
            )
    return tuple(params)


def _effects(func: ir.PrimFunc) -> tuple[set[ir.Node], set[ir.Node], set[ir.Node]]:
    """Buffers that are read and written, and all buffers and variables mentioned in the body."""
    read: set[ir.Node] = set()
    written: set[ir.Node] = set()
    mentioned: set[ir.Node] = set()
    for node in ir.walk(func.body):
        if isinstance(node, ir.Var):
            mentioned.add(node)
        elif isinstance(node, ir.Load):
            read.add(node.buffer)
        elif isinstance(node, ir.Store):
            written.add(node.buffer)
        elif isinstance(node, ir.TileOp):
            read.update(region.buffer for region in node.reads())
            written.update(region.buffer for region in node.writes())
        elif isinstance(node, ir.BufferRegion):
            mentioned.add(node.buffer)
    return read, written, mentioned | read | written
