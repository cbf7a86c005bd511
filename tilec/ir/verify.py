"""What each form of the IR may contain, and that names and types are used consistently.

Forms: ``tile`` (what the user wrote), ``thread`` (no tile operations, no `Parallel`), ``split``
(host and device functions; no `Launch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.diagnostics import NO_SPAN, ScopeError, Span, TilecError, VerifyError
from tilec.ir import stmt as s
from tilec.ir.buffer import Buffer, BufferRegion
from tilec.ir.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var
from tilec.ir.node import Node
from tilec.ir.operators import BITWISE, COMPARISONS, LOGICAL

FORMS: dict[str, tuple[type, ...]] = {
    "tile": (),
    "thread": (s.TileOp, s.Parallel),
    "split": (s.TileOp, s.Parallel, s.Launch),
}


def verify(root: s.PrimFunc | s.Module, form: str = "tile") -> None:
    """Check a function or module.

    Raises:
        ScopeError: a let, loop variable or buffer is used where it is not visible (user error).
        VerifyError: the IR breaks an invariant (compiler error), or has a node the form forbids.
    """
    functions = root.functions.values() if isinstance(root, s.Module) else (root,)
    for func in functions:
        _Verifier(form).function(func)


class _Verifier:
    def __init__(self, form: str) -> None:
        self._forbidden = FORMS[form]
        self._form = form
        self._vars: set[Var] = set()
        self._buffers: set[Buffer] = set()
        self._declared: set[Var] = set()
        self._declared_buffers: set[Buffer] = set()
        self._spans: list[Span] = [NO_SPAN]
        self._loops = 0
        self._rules: dict[type, Callable[[Any], None]] = {
            s.Seq: self._seq,
            s.Bind: self._bind,
            s.Alloc: self._alloc,
            s.Store: self._store,
            s.For: self._for,
            s.Parallel: self._parallel,
            s.While: self._while,
            s.If: self._if,
            s.Launch: self._launch,
            s.Break: self._jump,
            s.Continue: self._jump,
        }

    def function(self, func: s.PrimFunc) -> None:
        for param in func.params:
            if isinstance(param, Var):
                self._declare(param)
        # Indices of blocks and lanes, in a device function.
        for var in (*func.attrs.get("grid_vars", ()), *func.attrs.get("thread_vars", ())):
            self._declare(var)
        for param in func.params:
            if isinstance(param, Buffer):
                for extent in (*param.shape, *(param.strides or ())):
                    if isinstance(extent, Expr):
                        self._bind_shape(extent)
                self._declare_buffer(param)
        self._stmt(func.body)

    def _bind_shape(self, extent: Expr) -> None:
        from tilec.ir.visitor import free_vars

        for var in free_vars(extent):
            self._vars.add(var)
            self._declared.add(var)

    def _declare(self, var: Var) -> None:
        if var in self._declared:
            self._fail(f"variable `{var.name}` is bound twice")
        self._declared.add(var)
        self._vars.add(var)

    def _declare_buffer(self, buffer: Buffer) -> None:
        if buffer in self._declared_buffers:
            self._fail(f"buffer `{buffer.name}` is declared twice")
        self._declared_buffers.add(buffer)
        self._buffers.add(buffer)

    def _fail(self, message: str) -> None:
        raise VerifyError(f"{message} ({self._form} form)", span=self._spans[-1])

    def _stmt(self, node: s.Stmt) -> None:
        if isinstance(node, self._forbidden):
            self._fail(f"{type(node).__name__} is not legal here")
        self._spans.append(node.span if node.span is not NO_SPAN else self._spans[-1])
        rule = self._rules.get(type(node))
        if rule is not None:
            rule(node)
        else:
            for child in node.children:
                self._operand(child)
        self._spans.pop()

    def _operand(self, child: Node) -> None:
        if isinstance(child, Expr):
            self._expr(child)
        elif isinstance(child, BufferRegion):
            self._region(child)
        elif isinstance(child, Buffer):
            self._use_buffer(child, self._spans[-1])
        elif isinstance(child, s.Stmt):
            self._scoped(child)

    def _scoped(self, *bodies: s.Stmt | None) -> None:
        for body in bodies:
            if body is not None:
                saved_vars, saved_buffers = set(self._vars), set(self._buffers)
                self._stmt(body)
                self._vars, self._buffers = saved_vars, saved_buffers

    def _seq(self, node: s.Seq) -> None:
        saved_vars, saved_buffers = set(self._vars), set(self._buffers)
        for child in node.stmts:
            self._stmt(child)
        self._vars, self._buffers = saved_vars, saved_buffers

    def _bind(self, node: s.Bind) -> None:
        self._expr(node.value)
        if node.var.dtype != node.value.dtype:
            self._fail(
                f"let `{node.var.name}` is {node.var.dtype!s}, its value {node.value.dtype!s}"
            )
        self._declare(node.var)

    def _alloc(self, node: s.Alloc) -> None:
        if node.init is not None:
            self._expr(node.init)
        for extent in node.buffer.shape:
            if isinstance(extent, Expr):
                self._expr(extent)
        self._declare_buffer(node.buffer)

    def _store(self, node: s.Store) -> None:
        self._use_buffer(node.buffer, node.span)
        self._indices(node.buffer, node.indices)
        self._expr(node.value)
        lanes_ok = node.value.dtype.scalar == node.buffer.dtype.scalar
        if not lanes_ok:
            self._fail(
                f"store of {node.value.dtype!s} to {node.buffer.name} ({node.buffer.dtype!s})"
            )

    def _for(self, node: s.For) -> None:
        for bound in (node.start, node.stop, node.step):
            self._expr(bound)
            if bound.dtype != node.var.dtype:
                self._fail(f"loop `{node.var.name}`: bound of {bound.dtype!s}")
        if isinstance(node.step, Const) and node.step.value == 0:
            self._fail(f"loop `{node.var.name}` has step 0")
        self._loop((node.var,), node.body)

    def _parallel(self, node: s.Parallel) -> None:
        for extent in node.extents:
            self._expr(extent)
        self._loop(node.vars, node.body)

    def _loop(self, variables: tuple[Var, ...], body: s.Stmt) -> None:
        saved_vars, saved_buffers = set(self._vars), set(self._buffers)
        for var in variables:
            self._declare(var)
        self._loops += 1
        self._stmt(body)
        self._loops -= 1
        self._vars, self._buffers = saved_vars, saved_buffers

    def _while(self, node: s.While) -> None:
        self._condition(node.cond)
        self._loops += 1
        self._scoped(node.body)
        self._loops -= 1

    def _if(self, node: s.If) -> None:
        self._condition(node.cond)
        self._scoped(node.then, node.other)

    def _launch(self, node: s.Launch) -> None:
        for extent in node.grid:
            self._expr(extent)
        # A launch is no loop: a jump needs one inside it.
        saved, self._loops = self._loops, -1
        self._loop((*node.grid_vars, *node.thread_vars), node.body)
        self._loops = saved

    def _jump(self, node: s.Stmt) -> None:
        if not self._loops:
            self._fail(f"{type(node).__name__.lower()} outside a loop")

    def _condition(self, cond: Expr) -> None:
        self._expr(cond)
        if not cond.dtype.is_bool:
            self._fail(f"condition of type {cond.dtype!s}")

    def _region(self, region: BufferRegion) -> None:
        self._use_buffer(region.buffer, region.span)
        self._indices(region.buffer, region.mins)
        for extent in region.extents:
            if isinstance(extent, Expr):
                self._expr(extent)

    def _indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if len(indices) != len(buffer.shape):
            self._fail(f"{len(indices)} indices for {buffer.name} of rank {len(buffer.shape)}")
        for index in indices:
            self._expr(index)
            if not index.dtype.is_integer:
                self._fail(f"index of type {index.dtype!s} into {buffer.name}")

    def _use_buffer(self, buffer: Buffer, span: Span) -> None:
        if buffer not in self._buffers:
            raise ScopeError(
                f"buffer `{buffer.name}` is used outside the region where it was allocated",
                span=span if span is not NO_SPAN else self._spans[-1],
                hint="allocate it before the loop or branch",
            )

    def _expr(self, root: Expr) -> None:
        stack: list[Any] = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, Var):
                if node not in self._vars:
                    self._unbound(node)
                continue
            problem = _type_problem(node)
            if problem:
                self._fail(problem)
            if isinstance(node, Load):
                self._use_buffer(node.buffer, node.span)
                self._indices(node.buffer, node.indices)
                continue
            if isinstance(node, BufferRegion):
                self._region(node)
                continue
            if isinstance(node, Buffer):
                self._use_buffer(node, self._spans[-1])
                continue
            stack.extend(node.children)

    def _unbound(self, var: Var) -> None:
        span = self._spans[-1]
        error: TilecError
        if var in self._declared:
            error = ScopeError(
                f"immutable variable `{var.name}` is used outside its defining region",
                span=span,
                hint="a name bound inside a loop or branch ends with it; use T.alloc_var for a "
                "value that outlives it",
            )
        else:
            error = ScopeError(
                f"variable `{var.name}` is not bound in this function",
                span=span,
                hint="a T.dynamic variable must be a dimension of some tensor parameter",
            )
        raise error


def _type_problem(node: Any) -> str | None:
    """A sentence about an ill-typed node, or None."""
    if isinstance(node, Binary):
        a, b = node.lhs.dtype, node.rhs.dtype
        if a != b:
            return f"{node.op} of {a!s} and {b!s}"
        if node.op in COMPARISONS or node.op in LOGICAL:
            if not node.dtype.is_bool:
                return f"{node.op} of type {node.dtype!s}"
            if node.op in LOGICAL and not a.is_bool:
                return f"{node.op} of {a!s}"
        elif node.dtype != a:
            return f"{node.op} of {a!s} typed {node.dtype!s}"
        if node.op in BITWISE and a.is_float:
            return f"{node.op} of {a!s}"
    elif isinstance(node, Select):
        if not node.cond.dtype.is_bool:
            return f"select on {node.cond.dtype!s}"
        if not node.then.dtype == node.other.dtype == node.dtype:
            return f"select of {node.then.dtype!s} and {node.other.dtype!s}"
    elif isinstance(node, Unary) and node.dtype != node.value.dtype:
        return f"{node.op} of {node.value.dtype!s} typed {node.dtype!s}"
    elif isinstance(node, Cast) and node.value.dtype.lanes != node.dtype.lanes:
        return f"cast of {node.value.dtype!s} to {node.dtype!s}"
    return None
