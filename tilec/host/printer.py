"""Expressions and statements of host functions as portable C11, without a library behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from tilec import ir
from tilec.backend.c_family import SHORT, VALUE, CodePrinter, ExprPrinter, NameTable
from tilec.diagnostics import CapabilityError, InternalError
from tilec.ir import DType

FLOAT32 = DType("float32")
_BODIES: Mapping[str, tuple[str, str]] = {  # op: (signed, unsigned)
    "floordiv": (
        """\
  if (b == 0) return 0;
  if (b == -1) return ({t})(0 - ({u})a);
  return ({t})(a / b - (a % b != 0 && (a % b ^ b) < 0));""",
        "  return b ? ({t})(a / b) : 0;",
    ),
    "floormod": (
        """\
  if (b == 0 || b == -1) return 0;
  return ({t})(a % b + (a % b != 0 && (a % b ^ b) < 0 ? b : 0));""",
        "  return b ? ({t})(a % b) : 0;",
    ),
    "truncdiv": (
        "  if (b == 0) return 0;\n  return b == -1 ? ({t})(0 - ({u})a) : ({t})(a / b);",
        "  return b ? ({t})(a / b) : 0;",
    ),
    "truncmod": (
        "  return b == 0 || b == -1 ? 0 : ({t})(a % b);",
        "  return b ? ({t})(a % b) : 0;",
    ),
    "min": ("  return b < a ? b : a;",) * 2,
    "max": ("  return b > a ? b : a;",) * 2,
    "shl": ("  return b >= 0 && b < {bits} ? ({t})(({w})a << b) : 0;",
            "  return b < {bits} ? ({t})(({w})a << b) : 0;"),
    "shr": ("  return b >= 0 && b < {bits} ? ({t})(a >> b) : a < 0 ? -1 : 0;",
            "  return b < {bits} ? ({t})(a >> b) : 0;"),
}  # fmt: skip
_ABS = "static inline {t} {name}({t} a) {{ return a < 0 ? ({t})(0 - ({u})a) : a; }}\n"
_SATURATE = """\
static inline {t} {name}({f} a) {{
  if (a != a) return 0;
  if (a <= ({f}){low}) return {low};
  return a >= ({f}){high} ? {high} : ({t})a;
}}
"""
_ROUND = """\
static inline float tilec_host_round(double a, int digits, int least, double limit) {
  if (a != a || a == 0.0 || a - a != 0.0) return (float)a;
  int exponent;
  __builtin_frexp(a, &exponent);
  if (exponent < least) exponent = least;
  const double unit = __builtin_ldexp(1.0, exponent - digits);
  const double rounded = __builtin_rint(a / unit) * unit;
  if (rounded >= limit) return __builtin_inff();
  return rounded <= -limit ? -__builtin_inff() : (float)rounded;
}
"""
_FLOATS = {
    "fmin": "(b < a || a != a) ? b : a",
    "fmax": "(b > a || a != a) ? b : a",
    "floordiv": "__builtin_floor{s}(a / b)",
    "floormod": "a - __builtin_floor{s}(a / b) * b",
    "truncdiv": "__builtin_trunc{s}(a / b)",
    "truncmod": "__builtin_fmod{s}(a, b)",
}
_MATH = frozenset(
    {
        "exp",
        "exp2",
        "exp10",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "pow",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "floor",
        "ceil",
        "trunc",
        "round",
        "nearbyint",
        "rint",
        "fabs",
        "fmod",
        "ldexp",
        "copysign",
        "hypot",
        "fma",
    }
)
_PREDICATES = frozenset({"isnan", "isinf", "isfinite"})


class HostExprPrinter(ExprPrinter):
    """Prints host expressions; remembers which helper functions the text needs.

    Attributes:
        helpers: definitions by name, in order of first use.
    """

    WRAPS: ClassVar[bool] = False  # the stub must mean the same under every compiler's flags

    def __init__(self, names: NameTable | None = None) -> None:
        super().__init__(names)
        self.helpers: dict[str, str] = {}

    def helper(self, op: str, dtype: DType) -> str:
        """The name of an integer helper."""
        name = f"tilec_host_{op}_{SHORT[str(dtype)]}"
        if name not in self.helpers:
            self.helpers[name] = _integer_helper(op, name, dtype)
        return name

    def math(self, name: str, double: bool) -> str:
        """The name of a mathematical function: a compiler builtin or a helper."""
        suffix = "" if double else "f"
        if name in _PREDICATES:
            return f"__builtin_{name}"
        if name in _FLOATS:
            full, kind = f"tilec_host_{name}{suffix}", "double" if double else "float"
            body = _FLOATS[name].format(s=suffix)
            text = f"static inline {kind} {full}({kind} a, {kind} b) {{ return {body}; }}\n"
            self.helpers.setdefault(full, text)
            return full
        if name not in _MATH:
            raise CapabilityError(f"`{name}` cannot be computed on the host")
        return f"__builtin_{name}{suffix}"

    def convert(self, source: DType, target: DType) -> str:
        """The name of a saturating conversion from a float to an integer type."""
        if not (source.is_float and target.is_integer):
            raise InternalError(f"the host does not convert {source!s} to {target!s}")
        name = f"tilec_host_{SHORT[str(source)]}_to_{SHORT[str(target)]}"
        low, high = target.int_range
        suffix = "ull" if target.is_uint else "ll"
        low_text = "0" if low == 0 else f"(-{-(low + 1)}{suffix} - 1)"
        self.helpers.setdefault(
            name,
            _SATURATE.format(
                t=VALUE[str(target)],
                f=VALUE[str(source)],
                name=name,
                low=low_text,
                high=f"{high}{suffix}",
            ),
        )
        return name

    def rounded(self, text: str, dtype: DType, source: DType = FLOAT32) -> tuple[str, int]:
        """A value rounded to float16 or bfloat16, held in a float."""
        del source
        self.helpers.setdefault("tilec_host_round", _ROUND)
        digits, least, limit = (
            (11, -13, "65536.0") if dtype.code == "float" else (8, -125, "0x1p128")
        )
        return f"tilec_host_round({text}, {digits}, {least}, {limit})", 13

    def load(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> str:
        """Host code touches no elements."""
        del indices
        raise InternalError(f"host code reads or writes {buffer.describe()}")


def _integer_helper(op: str, name: str, dtype: DType) -> str:
    t = VALUE[str(dtype)]
    u = t if t.startswith("u") else f"u{t}"
    if op == "abs":
        return _ABS.format(t=t, u=u, name=name)
    if op == "pow":
        return _power(name, t, u, dtype)
    body = _BODIES[op][0 if dtype.is_int else 1].format(
        t=t, u=u, w="uint64_t" if dtype.bits == 64 else "uint32_t", bits=dtype.bits
    )
    return f"static inline {t} {name}({t} a, {t} b) {{\n{body}\n}}\n"


def _power(name: str, t: str, u: str, dtype: DType) -> str:
    negative = "  if (b < 0) return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;\n"
    return (
        f"static inline {t} {name}({t} a, {t} b) {{\n{negative if dtype.is_int else ''}"
        f"  uint64_t result = 1, base = ({u})a;\n"
        "  for (uint64_t n = (uint64_t)b; n; n >>= 1, base *= base) if (n & 1) result *= base;\n"
        f"  return ({t})result;\n}}\n"
    )


class HostPrinter(CodePrinter):
    """Prints the body of a host function; the stub generator prints launches and assertions."""

    def __init__(
        self,
        exprs: HostExprPrinter,
        launch: Callable[[HostPrinter, ir.Call], None],
        assertion: Callable[[HostPrinter, ir.Assert], None],
    ) -> None:
        super().__init__(exprs)
        self._launch = launch
        self._assertion = assertion

    def effect(self, call: ir.Call) -> None:
        """A launch, or a call with a rule of its own."""
        if call.name == "call_device":
            self._launch(self, call)
        else:
            super().effect(call)

    def assertion(self, node: ir.Assert) -> None:
        """A check that ends the call with an error."""
        self._assertion(self, node)

    def leave(self) -> None:
        """The end of the function, with success."""
        self.line("return 0;")
