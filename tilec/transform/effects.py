"""What a statement touches, and whether two loops touch each other's elements.

Indices are compared as linear forms; a form that depends on memory, or on a variable bound inside
the loops, proves nothing. Distinct buffers are distinct memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tilec import ir

_OPAQUE = (
    ir.TileOp, ir.Launch, ir.While, ir.Break, ir.Continue, ir.Return, ir.Assert, ir.BufferRegion,
)  # fmt: skip


class Access(NamedTuple):
    """One load or store; `forms` has a linear form per index, None where it reads memory."""

    buffer: ir.Buffer
    forms: tuple[ir.Linear | None, ...]
    write: bool


class Effects:
    """What a statement does.

    Attributes:
        accesses: by buffer, those allocated inside left out.
        reads, writes: buffers.
        names: variables and buffers of the outside that it mentions.
        bound: variables that it binds.
        opaque: it does something else too, so nothing may move past it.
    """

    __slots__ = ("accesses", "bound", "names", "opaque", "reads", "writes")

    def __init__(self) -> None:
        self.accesses: dict[ir.Buffer, list[Access]] = {}
        self.reads: set[ir.Buffer] = set()
        self.writes: set[ir.Buffer] = set()
        self.names: set[Any] = set()
        self.bound: set[ir.Var] = set()
        self.opaque = False

    @property
    def buffers(self) -> set[ir.Buffer]:
        """All buffers of the outside that are touched."""
        return self.reads | self.writes

    def conflicts(self, other: Effects) -> bool:
        """Whether the order of two statements matters."""
        return bool(
            self.opaque or other.opaque or self.writes & other.buffers or other.writes & self.reads
        )


def effects(root: ir.Stmt) -> Effects:
    """The effects of a statement."""
    found = Effects()
    lets: dict[ir.Var, Any] = {}
    own: set[ir.Buffer] = set()

    def add(node: ir.Load | ir.Store) -> None:
        write = isinstance(node, ir.Store)
        forms = tuple(_form(i, lets) for i in node.indices)
        found.accesses.setdefault(node.buffer, []).append(Access(node.buffer, forms, write))
        (found.writes if write else found.reads).add(node.buffer)

    for node in ir.walk(root):
        if isinstance(node, _OPAQUE) or (isinstance(node, ir.Call) and not ir.is_pure(node.name)):
            found.opaque = True
            found.names.clear()
            return found
        if isinstance(node, ir.Bind):
            found.bound.add(node.var)
            if not any(isinstance(n, ir.Load) for n in ir.walk(node.value)):
                lets[node.var] = ir.substitute(node.value, lets)
        elif isinstance(node, ir.For):
            found.bound.add(node.var)
        elif isinstance(node, ir.Parallel):
            found.bound.update(node.vars)
        elif isinstance(node, ir.Alloc):
            own.add(node.buffer)
        elif isinstance(node, (ir.Load, ir.Store)):
            add(node)
            found.names.add(node.buffer)
        elif isinstance(node, ir.Var):
            found.names.add(node)
    found.names -= own
    found.names -= found.bound
    found.reads -= own
    found.writes -= own
    for buffer in own:
        found.accesses.pop(buffer, None)
    return found


def names_bound(node: Any) -> set[Any]:
    """What later statements of the same sequence see of `node`: a let, a buffer."""
    if isinstance(node, ir.Bind):
        return {node.var}
    return {node.buffer} if isinstance(node, ir.Alloc) else set()


def separable(first: Effects, second: Effects, var: ir.Var) -> bool:
    """Whether iterations of two loops over `var` meet in elements of the same iteration only.

    Then the loops may be merged. Both must use the same variable.
    """
    if first.opaque or second.opaque:
        return False
    bound = (first.bound | second.bound) - {var}
    for buffer, before in first.accesses.items():
        after = second.accesses.get(buffer)
        if after is None or not (buffer in first.writes or buffer in second.writes):
            continue
        if not distinct(buffer):
            return False
        for a in before:
            for b in after:
                if (a.write or b.write) and separating(a, b, var, bound) is None:
                    return False
    return True


def separating(a: Access, b: Access, var: ir.Var, bound: Iterable[ir.Var]) -> int | None:
    """A dimension in which both accesses have the same index, one that moves with `var`.

    The same element then means the same value of `var`. `bound` are variables with different
    values in different iterations.
    """
    if a.buffer.scope() == ir.LOCAL_VAR:
        return None
    key = ("var", id(var))
    moving = {*bound, var}
    for dim, (left, right) in enumerate(zip(a.forms, b.forms, strict=True)):
        if left is None or right is None or key not in left.terms:
            continue
        if left.const != right.const or left.terms != right.terms:
            continue
        others = (atom for name, atom in left.atoms.items() if name != key and name in left.terms)
        if not any(v in moving for atom in others for v in ir.free_vars(atom)):
            return dim
    return None


def distinct(buffer: ir.Buffer) -> bool:
    """Whether different indices are different elements (strides may make rows overlap)."""
    if buffer.strides is None:
        return True
    pairs: list[tuple[int, int]] = []
    for stride, extent in zip(buffer.strides, buffer.shape, strict=True):
        if not isinstance(stride, int) or not isinstance(extent, int):
            return False
        pairs.append((abs(stride), extent))
    reach = 0
    for stride, extent in sorted(pairs):
        if extent > 1:
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
    return True


def _form(index: ir.Expr, lets: dict[ir.Var, Any]) -> ir.Linear | None:
    if isinstance(index, (ir.Var, ir.Const)) and index not in lets:
        return ir.linear(index)
    if any(isinstance(n, ir.Load) for n in ir.walk(index)):
        return None
    return ir.linear(ir.substitute(index, lets) if lets else index)
