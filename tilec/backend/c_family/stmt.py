"""Statements as C text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilec import ir
from tilec.backend.c_family.expr import ORDER, ExprPrinter
from tilec.diagnostics import NO_SPAN, InternalError, Span

INT64 = ir.DType("int64")


class CodePrinter:
    """Prints statements of flat, scalar code; a subclass overrides the hooks for its dialect.

    Hooks: `pragmas` (lines before a loop), `alloc` (storage of a buffer), `assertion`, `leave`
    (what a `Return` becomes), `effect` (an evaluated call) and `loop_type`.
    """

    def __init__(self, exprs: ExprPrinter | None = None, *, line_directives: bool = False) -> None:
        self.expr = ExprPrinter() if exprs is None else exprs
        self.lines: list[str] = []
        self._indent = 0
        self._line_directives = line_directives
        self._last: tuple[str, int] | None = None
        self._rules: dict[type, Callable[[Any], None]] = {
            ir.Seq: self._seq,
            ir.Bind: self._bind,
            ir.Alloc: self.alloc,
            ir.Store: self._store,
            ir.For: self._for,
            ir.While: self._while,
            ir.If: self._if,
            ir.Assert: self.assertion,
            ir.Evaluate: self._evaluate,
            ir.Break: lambda _n: self.line("break;"),
            ir.Continue: lambda _n: self.line("continue;"),
            ir.Return: lambda _n: self.leave(),
        }

    # text

    def line(self, text: str = "") -> None:
        """Append one line at the current indentation."""
        self.lines.append("  " * self._indent + text if text else "")

    def directive(self, text: str) -> None:
        """Append a preprocessor line."""
        self.lines.append("  " * self._indent + text)

    @contextmanager
    def block(self, header: str, close: str = "}") -> Iterator[None]:
        """``header {`` ... ``}``."""
        self.line(f"{header} {{" if header else "{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line(close)

    def text(self) -> str:
        """Everything printed so far."""
        return "\n".join(self.lines) + "\n"

    def comment(self, text: str) -> None:
        """A comment of one line."""
        self.line(f"// {text}".replace("\\", "/").replace("\n", " "))

    # statements

    def stmt(self, node: ir.Stmt) -> None:
        """Print a statement."""
        rule = self._rules.get(type(node))
        if rule is None:
            raise InternalError(f"no C text for {type(node).__name__}", span=node.span)
        if self._line_directives and not isinstance(node, ir.Seq):
            self._line_directive(node.span)
        rule(node)

    def _line_directive(self, span: Span) -> None:
        if span is NO_SPAN or span.line <= 0 or (span.file, span.line) == self._last:
            return
        self._last = (span.file, span.line)
        name = span.file.replace("\\", "\\\\").replace('"', '\\"')
        self.lines.append(f'#line {span.line} "{name}"')

    def _seq(self, node: ir.Seq) -> None:
        for child in node.stmts:
            self.stmt(child)

    def body(self, header: str, node: ir.Stmt | None, close: str = "}") -> None:
        """A statement as the braced body of `header`."""
        with self.block(header, close):
            if node is not None:
                self.stmt(node)

    def _bind(self, node: ir.Bind) -> None:
        kind = self.expr.value_type(node.var.dtype, node.span)
        value = self.expr(node.value)
        self.line(f"const {kind} {self.expr.names(node.var)} = {value};")

    def _store(self, node: ir.Store) -> None:
        target = self.expr.load(node.buffer, node.indices)
        if node.buffer.scope() == ir.LOCAL_VAR:
            self.line(f"{target} = {self.expr(node.value)};")
        else:
            self.line(f"{target} = {self.expr.stored(node.value)};")

    def _while(self, node: ir.While) -> None:
        self.body(f"while ({self.expr(node.cond)})", node.body)

    def _if(self, node: ir.If, word: str = "if") -> None:
        header = f"{word} ({self.expr(node.cond)})"
        if node.other is None:
            self.body(header, node.then)
            return
        with self.block(header, close=""):
            self.stmt(node.then)
        self.lines.pop()
        if isinstance(node.other, ir.If):
            self._if(node.other, "} else if")
        else:
            self.body("} else", node.other)

    def _evaluate(self, node: ir.Evaluate) -> None:
        value = node.value
        if isinstance(value, ir.Call):
            self.effect(value)
        elif not isinstance(value, (ir.Const, ir.Var)):
            self.line(f"(void)({self.expr(value)});")

    def loop_type(self, var: ir.Var) -> str:
        """The C type of a loop variable.

        64 bits whatever its dtype: the values are bounded, and a variable that may wrap around
        keeps C compilers from vectorising.
        """
        if var.dtype == ir.DType("uint64"):
            return "uint64_t"
        self.expr.wide_vars.add(id(var))
        return "int64_t"

    def _for(self, node: ir.For) -> None:
        if not isinstance(node.step, ir.Const) or node.step.value == 0:
            raise InternalError("a loop step is not constant", span=node.span)
        step = int(node.step.value)
        kind = self.loop_type(node.var)
        name = self.expr.names(node.var)
        start = self._bound(node.start)
        stop = self._bound(node.stop, ORDER + 1)
        if not _is_simple(node.stop):
            end = self.expr.names.fresh(f"{name}_end")
            self.line(f"const {kind} {end} = {stop};")
            stop = end
        for text in self.pragmas(node):
            self.directive(text)
        compare = "<" if step > 0 else ">"
        advance = {1: f"++{name}", -1: f"--{name}"}.get(
            step, f"{name} {'+' if step > 0 else '-'}= {abs(step)}"
        )
        self.body(f"for ({kind} {name} = {start}; {name} {compare} {stop}; {advance})", node.body)

    def _bound(self, bound: ir.Expr, level: int = 0) -> str:
        if isinstance(bound, ir.Const):
            return str(bound.value)
        if isinstance(bound, ir.Var) and id(bound) in self.expr.wide_vars:
            return self.expr.names(bound)
        return self.expr(bound, level)

    # hooks

    def pragmas(self, node: ir.For) -> list[str]:
        """Lines before a loop."""
        del node
        return []

    def alloc(self, node: ir.Alloc) -> None:
        """Storage of a buffer: a variable for ``local.var``, else an array."""
        buffer = node.buffer
        name = self.expr.names(buffer)
        if buffer.scope() == ir.LOCAL_VAR:
            kind = self.expr.value_type(buffer.dtype, node.span)
            init = ir.literal(0, buffer.dtype, node.span) if node.init is None else node.init
            self.line(f"{kind} {name} = {self.expr(init)};")
            return
        kind = self.expr.storage_type(buffer.dtype, node.span)
        (size,) = buffer.shape
        if not isinstance(size, int):
            raise InternalError(f"{buffer.describe()} has a dynamic size", span=node.span)
        self.line(f"_Alignas(64) {kind} {name}[{max(size, 1)}];")

    def assertion(self, node: ir.Assert) -> None:
        """A run-time assertion."""
        raise InternalError("this dialect has no assertions", span=node.span)

    def leave(self) -> None:
        """What ``return`` becomes."""
        self.line("return;")

    def effect(self, call: ir.Call) -> None:
        """A call that is evaluated for its effect."""
        if call.name == "comment":
            self.comment(str(call.args[0]))
            return
        self.line(f"{self.expr(call)};")


def _is_simple(bound: ir.Expr) -> bool:
    """Whether evaluating a loop bound again on every trip is free and gives the same value."""
    if isinstance(bound, (ir.Const, ir.Var)):
        return True
    if isinstance(bound, ir.Cast):
        return _is_simple(bound.value)
    return False
