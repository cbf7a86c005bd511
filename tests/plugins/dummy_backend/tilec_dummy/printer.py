"""Device functions as Python source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec import ir
from tilec.backend import BackendContext, DeviceProgram
from tilec.diagnostics import CapabilityError

PRELUDE = '''\
import numpy as np


def _load(array, index):
    """An element, 0 outside."""
    if all(0 <= i < n for i, n in zip(index, array.shape)):
        return array[index]
    return array.dtype.type(0)


def _store(array, index, value):
    """Set an element; nothing outside."""
    if all(0 <= i < n for i, n in zip(index, array.shape)):
        array[index] = value


def _cast(value, dtype):
    """A number in another dtype; what uint64 has no room for is 2**63."""
    if dtype is np.uint64 and isinstance(value, np.floating):
        if not -(2.0**63) <= value < 2.0**64:
            return np.uint64(2**63)
        value = int(value) % 2**64
    return np.asarray(value).astype(dtype)[()]


def _larger(a, b):
    """The maximum; NaN is ignored, and of two equal ones the second counts."""
    return a if a > b or b != b else b


def _smaller(a, b):
    """The minimum; NaN is ignored, and of two equal ones the second counts."""
    return a if a < b or b != b else b
'''
OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "pow": "**",
    "shl": "<<", "shr": ">>", "bitand": "&", "bitor": "|", "bitxor": "^", "eq": "==", "ne": "!=",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip
FUNCTIONS = {"min": "_smaller", "max": "_larger", "truncmod": "np.fmod"}
CALLS = {
    "exp": "np.exp", "exp2": "np.exp2", "log": "np.log", "log2": "np.log2", "sqrt": "np.sqrt",
    "sin": "np.sin", "cos": "np.cos", "tanh": "np.tanh", "floor": "np.floor", "ceil": "np.ceil",
    "abs": "np.abs", "rsqrt": "1 / np.sqrt", "isnan": "np.isnan", "isinf": "np.isinf",
}  # fmt: skip


def emit(module: ir.Module, context: BackendContext) -> DeviceProgram:
    """One Python module with every device function and its grid."""
    parts = [PRELUDE]
    for func in module.functions.values():
        parts.append(FunctionPrinter(func).text())
    return DeviceProgram("py", "\n\n".join(parts), tuple(module.functions))


class FunctionPrinter:
    """Prints one device function; names are made unique."""

    def __init__(self, func: ir.PrimFunc) -> None:
        self.func = func
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Any, str] = {}
        self.taken = {"np", "_load", "_store", "_cast", "_larger", "_smaller"}

    def text(self) -> str:
        """The function, and the one that gives its grid."""
        params = ", ".join(self.name(p) for p in self.func.params)
        self.shapes()
        grid = self.func.attrs["launch"]["grid"]
        inputs = ", ".join(self.name(p) for p in self.func.params[: -len(grid)])
        body = [*self.lines, f"    return ({' '.join(self.expr(g) + ',' for g in grid)})"]
        head = "\n".join([f"def {self.func.name}_grid({inputs}):", *body])
        self.stmt(self.func.body)
        return head + "\n\n\n" + "\n".join([f"def {self.func.name}({params}):", *self.lines])

    def shapes(self) -> None:
        """Dynamic extents, from the arrays that have them."""
        for param in self.func.params:
            if isinstance(param, ir.Buffer):
                for axis, extent in enumerate(param.shape):
                    if isinstance(extent, ir.Var) and extent not in self.names:
                        value = f"np.{extent.dtype}({self.name(param)}.shape[{axis}])"
                        self.line(f"{self.name(extent)} = {value}")

    def name(self, node: Any) -> str:
        """A unique Python name for a variable or buffer."""
        if node not in self.names:
            name, number = node.name, 0
            while name in self.taken:
                number += 1
                name = f"{node.name}_{number}"
            self.taken.add(name)
            self.names[node] = name
        return self.names[node]

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def block(self, head: str, body: Iterable[ir.Stmt]) -> None:
        """A compound statement."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        for stmt in body:
            self.stmt(stmt)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def stmt(self, node: ir.Stmt) -> None:
        """Print a statement."""
        match node:
            case ir.Seq():
                for inner in node.stmts:
                    self.stmt(inner)
            case ir.Bind():
                self.line(f"{self.name(node.var)} = {self.expr(node.value)}")
            case ir.Store():
                array, index = self.name(node.buffer), self.index(node.indices)
                self.line(f"_store({array}, {index}, {self.expr(node.value)})")
            case ir.Alloc():
                shape = ", ".join(self.extent(e) for e in node.buffer.shape)
                start = "0" if node.init is None else self.expr(node.init)
                self.line(
                    f"{self.name(node.buffer)} = np.full(({shape},), {start}, "
                    f"np.{self.dtype(node.buffer.dtype)})"
                )
            case ir.For():
                bounds = ", ".join(self.expr(e) for e in (node.start, node.stop, node.step))
                dtype = self.dtype(node.var.dtype)
                head = f"for {self.name(node.var)} in map(np.{dtype}, range({bounds})):"
                self.block(head, (node.body,))
            case ir.While():
                self.block(f"while {self.expr(node.cond)}:", (node.body,))
            case ir.If():
                self.block(f"if {self.expr(node.cond)}:", (node.then,))
                if node.other is not None:
                    self.block("else:", (node.other,))
            case ir.Assert():
                self.block(f"if not {self.expr(node.cond)}:", ())
                self.lines[-1] = (
                    "    " * (self.depth + 1) + f"raise AssertionError({node.message!r})"
                )
            case ir.Evaluate():
                if not (isinstance(node.value, ir.Call) and node.value.name == "sync"):
                    self.line(self.expr(node.value))
            case ir.Break():
                self.line("break")
            case ir.Continue():
                self.line("continue")
            case ir.Return():
                self.line("return")
            case _:
                raise CapabilityError(f"no Python for {type(node).__name__}", span=node.span)

    def expr(self, node: ir.Expr) -> str:
        """Print an expression."""
        match node:
            case ir.Var():
                return self.name(node)
            case ir.Const():
                return (
                    f'np.{self.dtype(node.dtype)}("{node.value}")'
                    if isinstance(node.value, float)
                    else f"np.{self.dtype(node.dtype)}({node.value})"
                )
            case ir.Binary():
                left, right, op = self.expr(node.lhs), self.expr(node.rhs), node.op.value
                if op in OPERATORS:
                    return f"({left} {OPERATORS[op]} {right})"
                if op in FUNCTIONS:
                    return f"{FUNCTIONS[op]}({left}, {right})"
                raise CapabilityError(f"no Python for operator {op}", span=node.span)
            case ir.Unary():
                sign = {"neg": "-", "bitnot": "~", "not": "not "}[node.op.value]
                return f"({sign}{self.expr(node.value)})"
            case ir.Select():
                other = self.expr(node.other)
                return f"({self.expr(node.then)} if {self.expr(node.cond)} else {other})"
            case ir.Cast():
                return f"_cast({self.expr(node.value)}, np.{self.dtype(node.dtype)})"
            case ir.Load():
                return f"_load({self.name(node.buffer)}, {self.index(node.indices)})"
            case ir.Call() if node.name in CALLS:
                return f"({CALLS[node.name]}({', '.join(map(self.expr, node.args))}))"
            case _:
                what = node.name if isinstance(node, ir.Call) else type(node).__name__
                raise CapabilityError(f"target dummy cannot compute {what}", span=node.span)

    def index(self, indices: tuple[ir.Expr, ...]) -> str:
        """A tuple of indices."""
        return f"({' '.join(self.expr(i) + ',' for i in indices)})"

    def extent(self, extent: int | ir.Expr) -> str:
        """An extent of a shape."""
        return str(extent) if isinstance(extent, int) else self.expr(extent)

    def dtype(self, dtype: ir.DType) -> str:
        """NumPy's name of a dtype."""
        return "bool_" if dtype.is_bool else str(dtype)
