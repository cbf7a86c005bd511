"""The builder: collects statements while a kernel's twin runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilec import ir
from tilec.diagnostics import OperandError, ScopeError, ShapeError, Span
from tilec.language.depth import limit_depth
from tilec.ops import Copy, Fill

LAUNCH, LOOP, BRANCH, ROOT = "launch", "loop", "branch", "root"
_rename = ir.Buffer.__dict__["name"].__set__
UNNAMED = "<unnamed>"
_MAX_SCALAR_LANES = 64


class Frame:
    """A block being filled with statements."""

    __slots__ = ("kind", "stmts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.stmts: list[ir.Stmt] = []

    def body(self, span: Span) -> ir.Stmt:
        """The collected statements as one."""
        if len(self.stmts) == 1 and not isinstance(self.stmts[0], (ir.Bind, ir.Alloc)):
            return self.stmts[0]
        return ir.Seq(tuple(self.stmts), span=span)


class Builder:
    """State of one trace: the stack of open blocks, function attributes, the current launch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames: list[Frame] = [Frame(ROOT)]
        self.attrs: dict[str, Any] = {}
        self.launch: Any = None
        self.eager: Any = None
        self.parallel = False
        self.parallel = False
        self._temps = 0

    def emit(self, stmt: ir.Stmt) -> None:
        """Append a statement to the innermost open block; its expressions are kept shallow."""
        if isinstance(stmt, (ir.Bind, ir.Store, ir.Evaluate, ir.Assert, ir.If)):
            key = "cond" if isinstance(stmt, (ir.Assert, ir.If)) else "value"
            value = getattr(stmt, key)
            shallow = limit_depth(value, self.temp)
            if shallow is not value:
                stmt = stmt.replace(**{key: shallow})
        self.frames[-1].stmts.append(stmt)

    @contextmanager
    def block(self, kind: str) -> Iterator[Frame]:
        """Open a block; statements go there until it closes."""
        frame = Frame(kind)
        self.frames.append(frame)
        yield frame
        self.frames.pop()

    @property
    def depth(self) -> int:
        """Number of open run-time loops and branches."""
        return sum(f.kind in (LOOP, BRANCH) for f in self.frames)

    def bind(self, name: str, value: ir.Expr) -> ir.Var:
        """Evaluate `value` here, once, under a name."""
        var = ir.Var(name, value.dtype, span=value.span)
        self.emit(ir.Bind(var, value, span=ir.caller_span()))
        return var

    def temp(self, value: ir.Expr) -> ir.Expr:
        """`value` evaluated here, unless it is a constant or variable already."""
        if isinstance(value, (ir.Var, ir.Const)):
            return value
        self._temps += 1
        return self.bind(f"t{self._temps}", value)

    def snapshot(self, value: Any) -> Any:
        """`value` with everything that memory can change later evaluated now."""
        if isinstance(value, ir.Expr):
            return self.temp(value) if reads_memory(value) else value
        if type(value) in (tuple, list):
            return type(value)(self.snapshot(v) for v in value)
        if isinstance(value, dict):
            return {k: self.snapshot(v) for k, v in value.items()}
        return value

    def store(self, buffer: ir.Buffer, index: Any, value: Any) -> None:
        """``buffer[index] = value``."""
        span = ir.caller_span()
        if buffer.scope() == ir.LOCAL_VAR and buffer.ndim == 1 and index == ():
            index = 0
        mins, extents, is_region = buffer.resolve_index(index)
        if is_region:
            self._store_region(ir.BufferRegion(buffer, mins, extents, span=span), value)
            return
        if isinstance(value, (ir.Buffer, ir.BufferRegion)):
            raise OperandError(
                f"cannot store {ir.describe(value)} into one element of {buffer.name}",
                span=span,
                hint="index the right side, or use T.copy for tiles",
            )
        self.emit(ir.Store(buffer, mins, ir.cast(value, buffer.dtype), span=span))

    def _store_region(self, target: ir.BufferRegion, value: Any) -> None:
        span = ir.caller_span()
        if isinstance(value, ir.Buffer):
            value = value.region()
        if not isinstance(value, ir.BufferRegion):
            self.emit(Fill(target, ir.cast(value, target.dtype), span=span))
            return
        op = Copy(value, target, span=span)
        op.check()
        extents = [e for e in op.extents() if isinstance(e, int)]
        count = 1
        for extent in extents:
            count *= extent
        if target.buffer is not value.buffer:
            self.emit(op)
            return
        # Source and destination share a buffer: read everything before the first write.
        if len(extents) != len(op.extents()) or count > _MAX_SCALAR_LANES:
            raise ShapeError(
                f"{target.buffer.name} is assigned to itself over {count} elements",
                span=span,
                hint="copy through another buffer with T.copy",
            )
        from tilec.ops.base import load, spread, store

        places = [tuple(int(i) for i in at) for at in _indices(extents)]
        values = [self.temp(load(value, spread(value, at))) for at in places]
        for at, item in zip(places, values, strict=True):
            self.emit(store(target, spread(target, at), item))

    def finish(self) -> ir.Stmt:
        """The traced body."""
        assert len(self.frames) == 1
        return ir.Seq(tuple(self.frames[0].stmts))


def _indices(extents: list[int]) -> list[tuple[int, ...]]:
    result: list[tuple[int, ...]] = [()]
    for extent in extents:
        result = [(*head, i) for head in result for i in range(extent)]
    return result


def reads_memory(value: ir.Expr) -> bool:
    """Whether the value depends on memory or has an effect (so that *when* it is read matters)."""
    return any(
        isinstance(n, ir.Load) or (isinstance(n, ir.Call) and not ir.is_pure(n.name))
        for n in ir.walk(value)
    )


def current() -> Builder | None:
    """The builder of the trace that is running, if any."""
    found = ir.EMITTER.get()
    return found if isinstance(found, Builder) else None


def builder(what: str) -> Builder:
    """The running trace's builder.

    Raises:
        NoTraceError: there is none.
    """
    found = ir.emitter(what)
    assert isinstance(found, Builder)
    return found


def is_mutable_var(value: Any) -> bool:
    """Whether `value` is a read of a T.alloc_var scalar."""
    return isinstance(value, ir.Load) and value.buffer.scope() == ir.LOCAL_VAR


def name_buffer(buffer: ir.Buffer, name: str) -> None:
    """Give a freshly allocated buffer the name it was assigned to."""
    if buffer.name == UNNAMED:
        _rename(buffer, name)


def _narrow(span: Span, message: str) -> Span:
    """The part of a span's line that is the name which the message is about."""
    import linecache
    import re

    name = re.search(r"`(\w+)`", message)
    if name is None or span.line != span.end_line:
        return span
    line = linecache.getline(span.file, span.line)
    found = re.compile(rf"\b{name.group(1)}\b").search(line, max(span.col - 1, 0))
    if found is None or not line.isascii():
        return span
    return Span(span.file, span.line, found.start() + 1, span.line, found.end() + 1)


class Poison:
    """Stands for a name whose value is not known after (or inside) run-time control flow.

    Any use raises a located `ScopeError` that explains why.
    """

    __slots__ = ("_hint", "_message")

    def __init__(self, message: str, hint: str) -> None:
        object.__setattr__(self, "_message", message)
        object.__setattr__(self, "_hint", hint)

    def _raise(self, *_args: Any, **_keywords: Any) -> Any:
        message = object.__getattribute__(self, "_message")
        raise ScopeError(
            message,
            span=_narrow(ir.caller_span(), message),
            hint=object.__getattribute__(self, "_hint"),
        )

    def __getattr__(self, name: str) -> Any:
        return self._raise()

    __call__ = __bool__ = __iter__ = __len__ = __getitem__ = __setitem__ = __index__ = _raise
    __int__ = __float__ = __neg__ = __invert__ = __abs__ = __eq__ = __ne__ = __lt__ = _raise
    __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = _raise
    __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = _raise
    __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = _raise
    __rlshift__ = __rshift__ = __rrshift__ = __pow__ = __rpow__ = __str__ = __hash__ = _raise
    __repr__ = _raise
