"""Expressions as C text with the semantics of `tilec.arith.semantics`.

Values of float16, bfloat16 and narrower are held in a ``float`` that the narrow format has
exactly: loads widen, every operation rounds, stores narrow. Narrow integers are cast back to their
width after each operation, because C computes them as ``int``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tilec import ir
from tilec.arith import round_value
from tilec.backend.c_family.literals import float_literal, int_literal, round_float
from tilec.backend.c_family.names import NameTable
from tilec.backend.c_family.types import SHORT, STORAGE, VALUE, is_small_float, unsupported
from tilec.diagnostics import InternalError, Span
from tilec.ir import BinOp, DType, UnOp

TERNARY, OR, AND, BIT_OR, BIT_XOR, BIT_AND = range(1, 7)
EQUAL, ORDER, SHIFT, ADD, MUL, UNARY, ATOM = range(7, 14)
_OPERATORS: dict[BinOp, tuple[str, int]] = {
    BinOp.ADD: ("+", ADD), BinOp.SUB: ("-", ADD), BinOp.MUL: ("*", MUL), BinOp.DIV: ("/", MUL),
    BinOp.BITAND: ("&", BIT_AND), BinOp.BITOR: ("|", BIT_OR), BinOp.BITXOR: ("^", BIT_XOR),
    BinOp.EQ: ("==", EQUAL), BinOp.NE: ("!=", EQUAL), BinOp.LT: ("<", ORDER),
    BinOp.LE: ("<=", ORDER), BinOp.GT: (">", ORDER), BinOp.GE: (">=", ORDER),
    BinOp.AND: ("&&", AND), BinOp.OR: ("||", OR),
}  # fmt: skip
FLOAT32 = DType("float32")
# Sums, differences and products of 0 and 1, not being 0; compilers miss that in vector loops.
_BOOL_ARITHMETIC = {
    BinOp.ADD: BinOp.BITOR, BinOp.SUB: BinOp.BITXOR, BinOp.MUL: BinOp.BITAND
}  # fmt: skip
_DIVISIONS = frozenset({BinOp.FLOORDIV, BinOp.FLOORMOD, BinOp.TRUNCDIV, BinOp.TRUNCMOD})
_BITS = (BIT_OR, BIT_XOR, BIT_AND)
Text = tuple[str, int]


class ExprPrinter:
    """Prints expressions; a subclass overrides the hooks for its dialect of C.

    Hooks: `storage_type`, `value_type`, `helper`, `convert` and `math` (names of
    library functions), `float_special`, `intrinsics` (a table by call name) and `load`.

    Attributes:
        names: gives names to variables and buffers.
        wide_vars: ids of integer variables that are declared as ``int64_t`` whatever their dtype.
    """

    WRAPS: ClassVar[bool] = True
    """Whether signed overflow wraps in this dialect (a compiler flag); otherwise it is avoided."""

    def __init__(self, names: NameTable | None = None) -> None:
        self.names = NameTable() if names is None else names
        self.wide_vars: set[int] = set()
        self._rules: dict[type, Callable[[Any], Text]] = {
            ir.Var: self._var,
            ir.Const: lambda n: self.const(n.value, n.dtype),
            ir.Binary: self._binary,
            ir.Unary: self._unary,
            ir.Select: self._select,
            ir.Cast: self._cast,
            ir.Load: self._load,
            ir.Call: self._call,
        }
        self._intrinsics: dict[str, Callable[[ir.Call], Text]] = dict(self.intrinsics())

    def __call__(self, expr: Any, level: int = 0) -> str:
        """The text of an expression, in parentheses where it binds weaker than `level`."""
        if isinstance(expr, int):
            expr = ir.as_expr(int(expr))
        text, own = self.text(expr)
        return f"({text})" if own < level else text

    def text(self, expr: ir.Expr) -> Text:
        """The text of an expression and how strongly it binds."""
        rule = self._rules.get(type(expr))
        if rule is None:
            raise InternalError(f"no C text for {type(expr).__name__}", span=expr.span)
        return rule(expr)

    # hooks

    def storage_type(self, dtype: DType, span: Span | None = None) -> str:
        """The C type of an array element."""
        known = STORAGE.get(str(dtype))
        if known is None:
            raise unsupported(dtype, span)
        return known

    def value_type(self, dtype: DType, span: Span | None = None) -> str:
        """The C type of a variable that holds a value."""
        known = VALUE.get(str(dtype))
        if known is None:
            raise unsupported(dtype, span)
        return known

    def helper(self, op: str, dtype: DType) -> str:
        """The name of the library function for `op` on `dtype`; override to collect features."""
        return f"tilec_{op}_{SHORT[str(dtype)]}"

    def convert(self, source: DType, target: DType) -> str:
        """The name of a conversion between storage types that C does not have."""
        return f"tilec_{SHORT[str(source)]}_to_{SHORT[str(target)]}"

    def math(self, name: str, double: bool) -> str:
        """The name of a mathematical function on float or double."""
        return f"tilec_{name}" if double else f"tilec_{name}f"

    def float_special(self, value: float, double: bool) -> str:
        """Infinity or NaN."""
        suffix = "" if double else "f"
        if math.isnan(value):
            return f'__builtin_nan{suffix}("")'
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"

    def intrinsics(self) -> Mapping[str, Callable[[ir.Call], Text]]:
        """Printing rules of calls by name; extend in subclasses."""
        return {
            "abs": self._abs,
            "clamp": self._clamp,
            "isnan": lambda n: self._on_float(n, "{0} != {0}", "isnan"),
            "isinf": lambda n: self._on_float(n, "", "isinf"),
            "isfinite": lambda n: self._on_float(n, "", "isfinite"),
            "reinterpret": self._reinterpret,
            "address_of": lambda n: (f"&{self(n.args[0], ATOM)}", UNARY),
            "likely": lambda n: self.text(n.args[0]),
        }

    def load(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> str:
        """An element as an lvalue of the storage type."""
        name = self.names(buffer)
        if buffer.scope() == ir.LOCAL_VAR:
            return name
        if len(indices) != 1:
            raise InternalError(f"{buffer.describe()} is not flat")
        return f"{name}[{self(indices[0])}]"

    def may_overflow(self, node: ir.Binary | ir.Unary) -> bool:
        """Whether a sum, difference, product or negation has to be computed without a sign."""
        return not self.WRAPS and node.dtype.is_int

    # conversions between storage and value

    def widen(self, text: str, dtype: DType) -> Text:
        """A stored element as a value."""
        if is_small_float(dtype):
            return f"{self.convert(dtype, FLOAT32)}({text})", ATOM
        return text, ATOM

    def stored(self, value: ir.Expr, level: int = 0) -> str:
        """A value as it is stored in an array element."""
        if is_small_float(value.dtype):
            return self.unrounded(value)
        return self(value, level)

    def unrounded(self, value: ir.Expr) -> str:
        """A float16/bfloat16 value in its storage type, rounded once."""
        text, level = self.text(value)
        prefix = f"{self.convert(value.dtype, FLOAT32)}("
        if level == ATOM and text.startswith(prefix) and _closes_at_end(text, len(prefix) - 1):
            return text[len(prefix) : -1]  # it was just widened
        return f"{self.convert(FLOAT32, value.dtype)}({text})"

    def rounded(self, text: str, dtype: DType, source: DType = FLOAT32) -> Text:
        """`text`, a computation in `source`, rounded to a narrow format."""
        return f"{self.convert(dtype, FLOAT32)}({self.convert(source, dtype)}({text}))", ATOM

    # nodes

    def _var(self, node: ir.Var) -> Text:
        name = self.names(node)
        if id(node) in self.wide_vars and node.dtype.bits != 64:
            return f"({self.value_type(node.dtype)}){name}", UNARY
        return name, ATOM

    def const(self, value: float, dtype: DType) -> Text:
        """A constant."""
        if dtype.is_bool:
            return "1" if value else "0", ATOM
        if dtype.is_integer:
            text = int_literal(int(value), dtype)
            return text, UNARY if text.startswith("-") else ATOM
        if str(dtype) not in SHORT:
            raise unsupported(dtype, None)
        native = dtype.code in ("float", "bfloat")
        number = round_float(float(value), dtype) if native else float(round_value(value, dtype))
        double = dtype.bits == 64
        if not math.isfinite(number):
            text = self.float_special(number, double)
        else:
            text = float_literal(number, not double)
        return text, UNARY if text.startswith("-") else ATOM

    def _narrow(self, text: str, level: int, dtype: DType) -> Text:
        """Cut an integer computation back to the width of its type."""
        if dtype.is_integer and dtype.bits < 32:
            inner = text if level >= UNARY else f"({text})"
            return f"({self.value_type(dtype)}){inner}", UNARY
        return text, level

    def _operand(self, node: ir.Expr, level: int, other: ir.Expr) -> str:
        """An operand; small constants beside a wide value need no suffix."""
        if (
            isinstance(node, ir.Const)
            and not isinstance(other, ir.Const)
            and node.dtype.is_integer
            and node.dtype.bits == 64
            and 0 <= node.value < 2**31
        ):
            return str(node.value)
        text, own = self.text(node)
        parent = level if level in _BITS else level - 1
        unclear = parent in _BITS and own != parent and own < UNARY  # C readers stumble here
        return f"({text})" if own < level or unclear else text

    def _binary(self, node: ir.Binary) -> Text:
        dtype = node.lhs.dtype
        op = node.op
        if op in _DIVISIONS:
            return self._division(node)
        if op in ir.SHIFTS:
            return self._shift(node)
        if op in (BinOp.MIN, BinOp.MAX, BinOp.POW):
            return self._function(op.value, node, dtype)
        if dtype.is_bool:
            op = _BOOL_ARITHMETIC.get(op, op)
        symbol, level = _OPERATORS[op]
        lhs = self._operand(node.lhs, level, node.rhs)
        rhs = self._operand(node.rhs, level + 1, node.lhs)
        if op is BinOp.AND or op is BinOp.OR:
            lhs, rhs = self(node.lhs, BIT_OR), self(node.rhs, BIT_OR)
            if isinstance(node.lhs, ir.Binary) and node.lhs.op is op:
                lhs = self(node.lhs)
        text = f"{lhs} {symbol} {rhs}"
        if node.dtype.is_bool:
            return text, level
        if is_small_float(dtype):
            return self.rounded(text, dtype)
        if op in (BinOp.ADD, BinOp.SUB, BinOp.MUL) and self.may_overflow(node):
            wide = "uint64_t" if dtype.bits == 64 else "uint32_t"
            text = f"({wide}){self(node.lhs, UNARY)} {symbol} ({wide}){self(node.rhs, UNARY)}"
            return f"({self.value_type(dtype)})({text})", UNARY
        if dtype == DType("uint16") and op is BinOp.MUL:
            text = f"{lhs} * (uint32_t){self(node.rhs, UNARY)}"  # int would overflow
        return self._narrow(text, level, dtype)

    def _division(self, node: ir.Binary) -> Text:
        dtype = node.lhs.dtype
        if dtype.is_float:
            return self._function(node.op.value, node, dtype)
        if dtype.is_bool:  # like the numbers 0 and 1
            dtype = DType("uint8")
        divisor = node.rhs.value if isinstance(node.rhs, ir.Const) else None
        floor = node.op in (BinOp.FLOORDIV, BinOp.FLOORMOD)
        plain = divisor is not None and divisor > 0
        if plain and (not floor or dtype.is_uint):
            symbol = "/" if node.op in (BinOp.FLOORDIV, BinOp.TRUNCDIV) else "%"
            lhs = self._operand(node.lhs, MUL, node.rhs)
            rhs = self._operand(node.rhs, UNARY, node.lhs)
            return self._narrow(f"{lhs} {symbol} {rhs}", MUL, dtype)
        if dtype.is_uint:
            name = "truncdiv" if node.op in (BinOp.FLOORDIV, BinOp.TRUNCDIV) else "truncmod"
            return self._function(name, node, dtype)
        return self._function(node.op.value, node, dtype)

    def _shift(self, node: ir.Binary) -> Text:
        dtype = node.lhs.dtype
        count = node.rhs.value if isinstance(node.rhs, ir.Const) else None
        if count is None or not 0 <= count < dtype.bits:
            return self._function(node.op.value, node, dtype)
        rhs = str(int(count))
        if node.op is BinOp.SHR:
            return f"{self(node.lhs, ADD)} >> {rhs}", SHIFT
        lhs = self(node.lhs, ADD)
        if dtype.is_int:  # shifting a negative number left is not defined in C
            unsigned = "uint64_t" if dtype.bits == 64 else "uint32_t"
            lhs = f"({unsigned}){self(node.lhs, UNARY)}"
            return f"({self.value_type(dtype)})({lhs} << {rhs})", UNARY
        return self._narrow(f"{lhs} << {rhs}", SHIFT, dtype)

    def _function(self, name: str, node: ir.Binary, dtype: DType) -> Text:
        """A binary operator that is a library function."""
        args = f"{self(node.lhs)}, {self(node.rhs)}"
        if dtype.is_float:
            name = {"min": "fmin", "max": "fmax"}.get(name, name)
            text = f"{self.math(name, dtype.bits == 64)}({args})"
            if is_small_float(dtype) and node.op not in (BinOp.MIN, BinOp.MAX):
                return self.rounded(text, dtype)
            return text, ATOM
        return f"{self.helper(name, dtype)}({args})", ATOM

    def _unary(self, node: ir.Unary) -> Text:
        if node.op is UnOp.NOT:
            return f"!{self(node.value, UNARY)}", UNARY
        inner = self(node.value, UNARY)
        if node.op is UnOp.BITNOT:
            if node.dtype.is_bool:
                return f"!{inner}", UNARY
            return self._narrow(f"~{inner}", UNARY, node.dtype)
        if self.may_overflow(node):
            zero = ir.Const(0, node.dtype)
            return self._binary(ir.Binary(BinOp.SUB, zero, node.value, node.dtype))
        space = " " if inner.startswith("-") else ""
        return self._narrow(f"-{space}{inner}", UNARY, node.dtype)

    def _select(self, node: ir.Select) -> Text:
        cond, then = self(node.cond, OR), self(node.then, OR)
        return f"{cond} ? {then} : {self(node.other, TERNARY)}", TERNARY

    def _cast(self, node: ir.Cast) -> Text:
        source, target = node.value.dtype, node.dtype
        inner = node.value
        if isinstance(inner, ir.Var) and id(inner) in self.wide_vars and target == DType("int64"):
            return self.names(inner), ATOM
        if target.is_bool:
            zero = ir.Const(0.0 if source.is_float else 0, source)
            return f"{self(inner, ORDER)} != {self(zero)}", EQUAL
        held = FLOAT32 if is_small_float(source) else source
        if source.is_float and target.is_integer:
            return f"{self.convert(held, target)}({self(inner)})", ATOM
        if is_small_float(target):
            if held.is_bool or (held.is_integer and held.bits < 32):
                return self.rounded(f"(float){self(inner, UNARY)}", target)
            return self.rounded(self(inner), target, held)
        if is_small_float(source) and target == DType("float32"):
            return self.text(inner)
        return f"({self.value_type(target)}){self(inner, UNARY)}", UNARY

    def _load(self, node: ir.Load) -> Text:
        text = self.load(node.buffer, node.indices)
        if node.buffer.scope() == ir.LOCAL_VAR:
            return text, ATOM
        return self.widen(text, node.dtype)

    def _call(self, node: ir.Call) -> Text:
        rule = self._intrinsics.get(node.name)
        if rule is not None:
            return rule(node)
        known = ir.INTRINSICS.get(node.name)
        if known is None or known.kind == "effect":
            raise InternalError(f"no C text for intrinsic {node.name!r}", span=node.span)
        dtype = node.args[0].dtype
        if not dtype.is_float:  # floor, ceil, ... of an integer
            return self.text(node.args[0])
        args = ", ".join(self(a) for a in node.args)
        text = f"{self.math(node.name, dtype.bits == 64)}({args})"
        return self.rounded(text, dtype) if is_small_float(dtype) else (text, ATOM)

    def _abs(self, node: ir.Call) -> Text:
        dtype = node.args[0].dtype
        inner = self(node.args[0])
        if dtype.is_float:
            return f"{self.math('fabs', dtype.bits == 64)}({inner})", ATOM
        if not dtype.is_int:
            return self.text(node.args[0])
        return f"{self.helper('abs', dtype)}({inner})", ATOM

    def _clamp(self, node: ir.Call) -> Text:
        value, low, high = node.args
        lower = ir.Binary(BinOp.MAX, value, low, node.dtype)
        return self.text(ir.Binary(BinOp.MIN, lower, high, node.dtype))

    def _on_float(self, node: ir.Call, pattern: str, name: str) -> Text:
        arg = node.args[0]
        if not arg.dtype.is_float:
            return ("1" if name == "isfinite" else "0"), ATOM
        if pattern and isinstance(arg, (ir.Var, ir.Const)):
            return pattern.format(self(arg, ORDER)), EQUAL
        # Such functions give any number but 0 for true; a bool is 0 or 1.
        return f"{self.math(name, arg.dtype.bits == 64)}({self(arg)}) != 0", EQUAL

    def _reinterpret(self, node: ir.Call) -> Text:
        source, target = node.args[0].dtype, node.dtype
        if source == target:
            return self.text(node.args[0])
        inner = node.args[0]
        text, level = self(inner, UNARY), UNARY
        if is_small_float(source):
            text = self.unrounded(inner)
        elif source.is_float:
            text = f"{self.helper('bits', source)}({self(inner)})"
        if is_small_float(target):
            return self.widen(f"({self.storage_type(target)}){text}", target)
        if target.is_float:
            return f"{self.helper('from_bits', target)}({text})", ATOM
        return f"({self.value_type(target)}){text}", level


def _closes_at_end(text: str, start: int) -> bool:
    """Whether the parenthesis opened at `start` is closed by the last character."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position == len(text) - 1
    return False
