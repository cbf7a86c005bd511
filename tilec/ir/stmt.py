"""Statements, functions and modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tilec.ir.buffer import Buffer, BufferRegion
from tilec.ir.expr import Expr, Var
from tilec.ir.node import Node, field


class Stmt(Node):
    """A statement."""


class Seq(Stmt):
    """Statements in order. Lets and allocations are visible to the end of their `Seq`."""

    stmts: tuple[Stmt, ...]


class Bind(Stmt):
    """An immutable let: `value` is evaluated here, once."""

    var: Var
    value: Expr


class Alloc(Stmt):
    """Allocates an on-chip or local buffer; contents are undefined unless `init` is given."""

    buffer: Buffer
    init: Expr | None = field(default=None)


class Store(Stmt):
    """``buffer[indices] = value``; `value` has the buffer's dtype."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


class For(Stmt):
    """``for var in range(start, stop, step)``.

    `kind` is "serial", "unroll", "vectorized", "pipelined" or a kind a backend declares. Bounds
    are evaluated once, before the loop; `step` is a non-zero constant or positive expression.
    """

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    kind: str
    annotations: dict[str, Any]
    body: Stmt


class Parallel(Stmt):
    """A loop nest whose iterations are independent and may run in any order."""

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    annotations: dict[str, Any]
    body: Stmt


class While(Stmt):
    """``while cond``; `cond` is evaluated before every trip."""

    cond: Expr
    body: Stmt


class If(Stmt):
    """``if cond: then else: other``."""

    cond: Expr
    then: Stmt
    other: Stmt | None = field(default=None)


class Assert(Stmt):
    """A run-time assertion with a message."""

    cond: Expr
    message: str


class Evaluate(Stmt):
    """Evaluates an expression for its effect."""

    value: Expr


class Break(Stmt):
    """Leaves the innermost loop."""


class Continue(Stmt):
    """Goes to the next trip of the innermost loop."""


class Return(Stmt):
    """Ends the block (inside a launch) or the function."""


class Launch(Stmt):
    """One ``with T.Kernel(...)``: `body` runs once per block of `grid`.

    Attributes:
        grid_vars, grid: block indices and extents, x first.
        thread_vars, threads: lane indices and counts (x, y, z); `threads` is None where the
            backend chooses.
        annotations: hints and attributes (``cluster_dims``, ``prelude``, ...).
    """

    grid_vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    thread_vars: tuple[Var, ...]
    threads: tuple[int, ...] | None
    annotations: dict[str, Any]
    body: Stmt


class TileOp(Stmt):
    """Base of tile operations (`tilec.ops`); an open set, one class per operation.

    Subclasses declare operands as fields (`BufferRegion` or `Expr`) and attributes as Python
    values, and say what is legal, what is read and written, and what is computed.
    """

    script_name: ClassVar[str] = ""

    def reads(self) -> tuple[BufferRegion, ...]:
        """Regions the operation reads."""
        raise NotImplementedError

    def writes(self) -> tuple[BufferRegion, ...]:
        """Regions the operation writes."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise a located error if the operands are illegal."""


class PrimFunc(Node):
    """A function over buffers and scalars.

    Attributes:
        params: `Buffer` (scope "global") and `Var` in the order of the source.
        attrs: e.g. ``out_idx``, ``calling_conv``; treat as read-only.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: dict[str, Any] = field(default={})

    def script(self, **options: Any) -> str:
        """The function as Python text that runs again (`tilec.language.from_script`)."""
        from tilec.ir.printer import script

        return script(self, **options)

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> PrimFunc:
        """A copy with attributes added."""
        new = dict(key) if isinstance(key, Mapping) else {key: value}
        return self.replace(attrs={**self.attrs, **new})

    @property
    def buffer_map(self) -> dict[str, Buffer]:
        """Buffer parameters by name."""
        return {p.name: p for p in self.params if isinstance(p, Buffer)}


class Module(Node):
    """Functions by name, in a fixed order."""

    functions: dict[str, PrimFunc]

    def script(self) -> str:
        """All functions as text."""
        return "\n\n".join(f.script() for f in self.functions.values())

    def map(self, fn: Any) -> Module:
        """A module with `fn` applied to every function (self if nothing changed)."""
        new = {name: fn(f) for name, f in self.functions.items()}
        if all(new[k] is self.functions[k] for k in new):
            return self
        return self.replace(functions={f.name: f for f in new.values()})


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order, flattened; a single one stays bare."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
