"""What rewritten kernels call: decides whether control flow happens now or is staged."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilec import ir
from tilec.diagnostics import (
    NestingError,
    OperandError,
    ReturnError,
    ScopeError,
    UnsupportedSyntaxError,
)
from tilec.ir import BinOp
from tilec.language.builder import (
    BRANCH,
    LOOP,
    UNNAMED,
    Poison,
    builder,
    current,
    is_mutable_var,
    name_buffer,
)
from tilec.language.loops import LoopSpec, serial

_UNBOUND = object()
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip
_INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv, "Mod": operator.imod, "Pow": operator.ipow,
    "LShift": operator.ilshift, "RShift": operator.irshift, "BitOr": operator.ior,
    "BitXor": operator.ixor, "BitAnd": operator.iand, "MatMult": operator.imatmul,
}  # fmt: skip
Peek = Callable[[], Any]


def peek(get: Peek) -> Any:
    """The value of a name, or a marker if it is unbound."""
    try:
        return get()
    except NameError:
        return _UNBOUND


def enter() -> int:
    """The nesting depth at which a function starts."""
    active = current()
    return active.depth if active is not None else 0


def assign(name: str, value: Any, old: Peek) -> Any:
    """``name = value``: a let, a store to a mutable variable, or a plain Python binding."""
    active = current()
    if active is None:
        return value
    if isinstance(value, ir.Buffer):
        name_buffer(value, name)
        return value
    if is_mutable_var(value) and value.buffer.name == UNNAMED:
        name_buffer(value.buffer, name)
        return value
    before = peek(old)
    if is_mutable_var(before) and not isinstance(value, Poison):
        if isinstance(value, (ir.Expr, bool, int, float)) or hasattr(value, "dtype"):
            active.store(before.buffer, 0, value)
            return before
        raise OperandError(
            f"cannot assign {ir.describe(value)} to the scalar variable `{name}`",
            span=ir.caller_span(),
        )
    if isinstance(value, (ir.Var, ir.Const)):
        return value
    if isinstance(value, ir.Expr):
        return active.bind(name, value)
    if type(value) in (tuple, list, dict):
        return active.snapshot(value)
    return value


def param(name: str, value: Any) -> Any:
    """A helper's argument: memory is read when the helper is called, not later."""
    active = current()
    if active is not None and isinstance(value, ir.Expr) and not is_mutable_var(value):
        return assign(name, value, lambda: None) if not isinstance(value, ir.Var) else value
    return value


def snapshot(value: Any) -> Any:
    """The right side of a multiple assignment, evaluated before anything is written."""
    active = current()
    return value if active is None else active.snapshot(value)


def effect(value: Any) -> Any:
    """An expression statement: calls with an effect are emitted."""
    active = current()
    if active is not None and isinstance(value, ir.Call) and not ir.is_pure(value.name):
        active.emit(ir.Evaluate(value, span=value.span))
    return value


def inplace(symbol: str, old: Any, value: Any) -> Any:
    """``old op= value`` for a name."""
    return _INPLACE[symbol](old, value)


def annotated(name: str, annotation: Any, value: Any) -> Any:
    """``name: annotation = value``: a dtype annotation converts."""
    if isinstance(annotation, ir.DType) and not isinstance(annotation, type):
        if isinstance(value, (ir.Expr, bool, int, float)):
            return ir.cast(value, annotation)
        raise OperandError(
            f"`{name}: {annotation!s}` is given {ir.describe(value)}", span=ir.caller_span()
        )
    return value


def annotate_param(name: str, annotation: Any, value: Any) -> Any:
    """``A: T.Tensor[...]`` in the body of an eager kernel."""
    active = builder("a parameter annotation")
    if active.eager is None:
        raise UnsupportedSyntaxError(
            f"`{name}` is annotated in the body, which only eager kernels do",
            span=ir.caller_span(),
            hint="annotate it in the signature, or decorate the function with @tilec.jit",
        )
    return active.eager.annotate(name, annotation, value)


def named(context: Any, names: tuple[str, ...], unpacked: bool) -> Any:
    """Tell a context manager what its targets are called and whether they are a tuple."""
    hook = getattr(context, "set_names", None)
    if callable(hook):
        hook(names, unpacked)
    return context


def return_(value: Any, depth: int, kind: str) -> bool:
    """A ``return``; True if Python returns now, False if the return was staged."""
    active = current()
    if active is None or active.depth <= depth:
        return True
    if kind == "kernel" and value is None:
        active.emit(ir.Return(span=ir.caller_span()))
        return False
    raise ReturnError(
        "a value cannot be returned under run-time control flow"
        if value is not None
        else "a helper cannot return under run-time control flow",
        span=ir.caller_span(),
        hint="assign to a T.alloc_var and return after the branch, or use `a if cond else b`",
    )


def assert_(test: Any, message: Callable[[], Any]) -> None:
    """``assert``: at run time for staged conditions, now for Python values."""
    active = current()
    if active is not None and isinstance(test, ir.Expr):
        span = ir.caller_span()
        text = str(message()) or f"assertion failed: {test!r}"
        active.emit(ir.Assert(ir.truth(test), text, span=span))
        return
    if not test:
        raise AssertionError(message())


def and_(*values: Callable[[], Any]) -> Any:
    """``a and b``; staged from the first staged operand on."""
    return _logical(BinOp.AND, values)


def or_(*values: Callable[[], Any]) -> Any:
    """``a or b``; staged from the first staged operand on."""
    return _logical(BinOp.OR, values)


def _logical(op: BinOp, values: tuple[Callable[[], Any], ...]) -> Any:
    result: Any = None
    stop = op is BinOp.OR
    for index, get in enumerate(values):
        value = get()
        if isinstance(result, ir.Expr):
            if isinstance(value, ir.Expr):
                result = ir.binary(op, ir.truth(result), ir.truth(value))
            elif bool(value) is stop:
                return value if index == 0 else ir.literal(stop, ir.DType("bool"))
        else:
            result = value
            if not isinstance(value, ir.Expr) and bool(value) is stop:
                return value
    return result


def not_(value: Any) -> Any:
    """``not value``."""
    return ir.unary(ir.UnOp.NOT, value) if isinstance(value, ir.Expr) else not value


def ifexp(cond: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """``then if cond else other``."""
    if isinstance(cond, ir.Expr):
        return ir.select(cond, then(), other())
    return then() if cond else other()


def chain(first: Any, *rest: Any) -> Any:
    """A chained comparison; every operand is evaluated once."""
    result: Any = True
    left = first
    for symbol, get in zip(rest[::2], rest[1::2], strict=True):
        right = get()
        test = _COMPARE[symbol](left, right)
        if isinstance(test, ir.Expr) or isinstance(result, ir.Expr):
            result = test if result is True else ir.binary(BinOp.AND, ir.truth(result), test)
        elif not test:
            return False
        left = right
    return result


def _changed(name: str, what: str) -> Poison:
    return Poison(
        f"`{name}` is re-bound {what}, so its value is not known here",
        "use T.alloc_var for a scalar that changes at run time, or `a if cond else b`",
    )


class _Names:
    """Saved values of the names that a block assigns."""

    def __init__(self, names: dict[str, Peek]) -> None:
        self.saved = {name: peek(get) for name, get in names.items()}

    def before(self, name: str) -> Any:
        value = self.saved[name]
        if value is _UNBOUND:
            return Poison(
                f"`{name}` is not bound on this path", "bind it before the branch or loop"
            )
        return value


class If:
    """One ``if`` statement."""

    def __init__(self, cond: Any, **names: Peek) -> None:
        if isinstance(cond, Poison):
            bool(cond)
        self.cond = cond
        self.staged = isinstance(cond, ir.Expr) and current() is not None
        self._names: _Names | None = None
        self._then_values: dict[str, Any] = {}
        if self.staged:
            self._active = builder("if")
            self._names = _Names(names)
            self.cond = ir.truth(cond)
            self._span = ir.caller_span()
            self._index = -1
        else:
            self.cond = bool(cond)

    @contextmanager
    def then(self) -> Iterator[bool]:
        """The first branch."""
        if not self.staged:
            yield self.cond
            return
        with self._active.block(BRANCH) as frame:
            yield True
        node = ir.If(self.cond, frame.body(self._span), span=self._span)
        self._active.emit(node)
        self._index = len(self._active.frames[-1].stmts) - 1

    @contextmanager
    def orelse(self) -> Iterator[bool]:
        """The second branch."""
        if not self.staged:
            yield not self.cond
            return
        with self._active.block(BRANCH) as frame:
            yield True
        stmts = self._active.frames[-1].stmts
        node = stmts[self._index]
        stmts[self._index] = node.replace(other=frame.body(self._span))

    def restore(self, name: str, get: Peek) -> Any:
        """The value a name has before the second branch."""
        assert self._names is not None
        self._then_values[name] = peek(get)
        return self._names.before(name)

    def merge(self, name: str, get: Peek) -> Any:
        """The value a name has after both branches."""
        assert self._names is not None
        before = self._names.saved[name]
        after = peek(get)
        if after is before and self._then_values[name] is before:
            return before
        if isinstance(after, Poison) and before is _UNBOUND and self._then_values[name] is after:
            return after
        return _changed(name, "under a run-time condition")


class _Looping:
    """What ``for`` and ``while`` share."""

    staged = False

    def __init__(self, names: dict[str, Peek]) -> None:
        self._names = _Names(names)
        self._active = current()
        self._depth = 0

    def carry(self, name: str, get: Peek) -> Any:
        """The value a name has at the start of a trip."""
        value = get() if name not in self._names.saved else self._names.saved[name]
        if is_mutable_var(value):
            return value
        if value is _UNBOUND:
            return self._names.before(name)
        return Poison(
            f"`{name}` is re-bound in this run-time loop and read before that, so it would have "
            "to carry a value from one trip to the next",
            "use T.alloc_var for a value that a loop updates, "
            "or assign it before it is read in the body",
        )

    def after(self, name: str, get: Peek) -> Any:
        """The value a name has after the loop."""
        value = peek(get)
        if is_mutable_var(value) and self._names.saved.get(name) is value:
            return value
        if name not in self._names.saved:
            return Poison(
                f"the loop variable `{name}` is used after its loop",
                "a run-time loop variable ends with its loop",
            )
        return _changed(name, "in a run-time loop")

    def break_(self) -> bool:
        """A ``break``; True if Python breaks now."""
        return self._jump(ir.Break, "break")

    def continue_(self) -> bool:
        """A ``continue``; True if Python continues now."""
        return self._jump(ir.Continue, "continue")

    def _jump(self, node: type[ir.Stmt], word: str) -> bool:
        if self.staged:
            assert self._active is not None
            self._active.emit(node(span=ir.caller_span()))
            return False
        if self._active is not None and self._active.depth > self._depth:
            raise UnsupportedSyntaxError(
                f"`{word}` in a compile-time loop depends on a run-time condition",
                span=ir.caller_span(),
                hint="make the loop a run-time loop (T.serial), or the condition a Python value",
            )
        return True


class Loop(_Looping):
    """One ``for`` statement."""

    def __init__(self, iterable: Any, targets: tuple[str, ...], **names: Peek) -> None:
        super().__init__(names)
        self._iterable = iterable
        self._targets = targets
        self.staged = isinstance(iterable, LoopSpec)
        self._span = ir.caller_span()

    def __iter__(self) -> Iterator[Any]:
        if not self.staged:
            for item in self._iterable:
                if self._active is not None:
                    self._depth = self._active.depth
                yield item
            return
        active = builder("a run-time loop")
        spec: LoopSpec = self._iterable
        variables = spec.variables(self._targets, self._span)
        outer = active.parallel
        if outer and spec.kind in ("parallel", "pipelined"):
            raise NestingError(
                f"T.{spec.kind.capitalize()} inside T.Parallel, whose iterations are elements",
                span=self._span,
                hint="give all extents to one loop: for i, j in T.Parallel(M, N)",
            )
        active.parallel = outer or spec.kind == "parallel"
        with active.block(LOOP) as frame:
            yield variables[0] if len(variables) == 1 and not spec.as_tuple else variables
        active.parallel = outer
        body = frame.body(self._span)
        if spec.kind == "parallel":
            _check_private(body, variables)
        active.emit(spec.build(body, self._span))


def _check_private(body: ir.Stmt, variables: tuple[ir.Var, ...]) -> None:
    """Refuse per-lane arrays indexed by iterations, which no lane owns.

    Raises:
        NestingError: an element of a T.alloc_local array is chosen by a T.Parallel variable.
    """
    own = {node.buffer for node in ir.walk(body) if isinstance(node, ir.Alloc)}
    for node in ir.walk(body):
        if not isinstance(node, (ir.Load, ir.Store)) or node.buffer.scope() != ir.LOCAL:
            continue
        inner = (v for index in node.indices for v in ir.walk(index))
        if node.buffer not in own and any(v is x for v in inner for x in variables):
            raise NestingError(
                f"{node.buffer.name} is a T.alloc_local array, one per thread, but is indexed by "
                "a T.Parallel variable",
                span=node.span,
                hint="use T.alloc_fragment for a tile that the threads of a block share out",
            )


class While(_Looping):
    """One ``while`` statement."""

    def __init__(
        self, test: Callable[[], Any], tested: tuple[str, ...], forever: bool, **names: Peek
    ) -> None:
        super().__init__(names)
        self._test = test
        self._span = ir.caller_span()
        mark = len(self._active.frames[-1].stmts) if self._active is not None else 0
        self._first: Any = True if forever else test()
        if self._active is not None and len(self._active.frames[-1].stmts) != mark:
            raise UnsupportedSyntaxError(
                "the condition of `while` has an effect, which would happen only once",
                span=self._span,
                hint="use `while True` with `if ...: break`",
            )
        self.staged = self._active is not None and (forever or isinstance(self._first, ir.Expr))
        if self.staged:
            for name in tested:
                value = self._names.saved[name]
                if not is_mutable_var(value):
                    raise ScopeError(
                        f"`{name}` is tested by `while` and re-bound in its body",
                        span=self._span,
                        hint="use T.alloc_var for a value that a loop updates",
                    )

    def __iter__(self) -> Iterator[None]:
        if not self.staged:
            value = self._first
            while value:
                if self._active is not None:
                    self._depth = self._active.depth
                yield None
                value = self._test()
            return
        active = builder("while")
        with active.block(LOOP) as frame:
            yield None
        cond = (
            ir.Const(True, ir.DType("bool"), span=self._span)
            if self._first is True
            else ir.truth(self._first)
        )
        active.emit(ir.While(cond, frame.body(self._span), span=self._span))


def iterate(func: Any, *args: Any, **keywords: Any) -> Any:
    """The iterable of a ``for``: ``range`` becomes a run-time loop, anything else is called."""
    if func is builtins.range and current() is not None and not keywords:
        return serial(*args)
    return func(*args, **keywords)
