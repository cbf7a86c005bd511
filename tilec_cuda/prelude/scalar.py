"""Scalar operators whose meaning CUDA C++ does not have (see `tilec.arith.semantics`)."""

from __future__ import annotations

from collections.abc import Callable

from tilec_cuda.prelude.base import C_TYPE, INTEGERS, Piece, bits, function


def make(name: str) -> Piece | None:
    """``<op>_<type>``, such as ``floordiv_i32``."""
    op, _, suffix = name.rpartition("_")
    if suffix in INTEGERS:
        maker = _INTEGER.get(op)
        return None if maker is None else maker(suffix)
    if suffix in ("f32", "f64"):
        floats = _FLOAT.get(op)
        return None if floats is None else floats(suffix)
    return None


def _signed(suffix: str) -> bool:
    return suffix[0] == "i"


def _two(op: str, suffix: str, body: str, needs: tuple[str, ...] = ()) -> Piece:
    kind = C_TYPE[suffix]
    return Piece(function(kind, f"{op}_{suffix}", f"{kind} a, {kind} b", body), needs)


def _one(op: str, suffix: str, body: str, needs: tuple[str, ...] = ()) -> Piece:
    kind = C_TYPE[suffix]
    return Piece(function(kind, f"{op}_{suffix}", f"{kind} a", body), needs)


def _truncdiv(suffix: str) -> Piece:
    kind = C_TYPE[suffix]
    if not _signed(suffix):
        return _two("truncdiv", suffix, "return b == 0 ? 0 : a / b;")
    negated = f"({kind})(0u - (u{kind})a)"  # the least number divided by -1 is itself
    return _two("truncdiv", suffix, f"return b == 0 ? 0 : b == -1 ? {negated} : ({kind})(a / b);")


def _truncmod(suffix: str) -> Piece:
    zero = "b == 0 || b == -1" if _signed(suffix) else "b == 0"
    return _two("truncmod", suffix, f"return {zero} ? 0 : a % b;")


def _floordiv(suffix: str) -> Piece:
    kind = C_TYPE[suffix]
    negated = f"({kind})(0u - (u{kind})a)"
    body = f"""
if (b == 0) return 0;
if (b == -1) return {negated};
return a / b - (a % b != 0 && (a ^ b) < 0);
"""
    return _two("floordiv", suffix, body)


def _floormod(suffix: str) -> Piece:
    kind = C_TYPE[suffix]
    body = f"""
if (b == 0 || b == -1) return 0;
const {kind} r = a % b;
return r != 0 && (r ^ b) < 0 ? r + b : r;
"""
    return _two("floormod", suffix, body)


def _shl(suffix: str) -> Piece:
    kind = C_TYPE[suffix]
    wide, width = "uint64_t" if bits(suffix) == 64 else "uint32_t", bits(suffix)
    return _two("shl", suffix, f"return ({wide})b < {width} ? ({kind})(({wide})a << b) : 0;")


def _shr(suffix: str) -> Piece:
    wide = "uint64_t" if bits(suffix) == 64 else "uint32_t"
    out = "(a < 0 ? -1 : 0)" if _signed(suffix) else "0"
    return _two("shr", suffix, f"return ({wide})b < {bits(suffix)} ? a >> b : {out};")


def _pow(suffix: str) -> Piece:
    kind = C_TYPE[suffix]
    wide = "uint64_t" if bits(suffix) == 64 else "uint32_t"
    inverse = "if (b < 0) return a == 1 || (a == -1 && (b & 1) == 0) ? 1 : a == -1 ? -1 : 0;\n"
    body = f"""
{inverse if _signed(suffix) else ""}{wide} base = ({wide})a, result = 1;
for (; b > 0; b >>= 1) {{
  if (b & 1) result *= base;
  base *= base;
}}
return ({kind})result;
"""
    return _two("pow", suffix, body)


def _order(op: str, symbol: str) -> Callable[[str], Piece]:
    return lambda suffix: _two(op, suffix, f"return a {symbol} b ? a : b;")


def _abs(suffix: str) -> Piece:
    kind = C_TYPE[suffix]
    return _one("abs", suffix, f"return a < 0 ? ({kind})(0u - (u{kind})a) : a;")


_INTEGER: dict[str, Callable[[str], Piece]] = {
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "shl": _shl,
    "shr": _shr,
    "pow": _pow,
    "min": _order("min", "<"),
    "max": _order("max", ">"),
    "abs": _abs,
}


def _f(suffix: str) -> str:
    return "f" if suffix == "f32" else ""


def _float_floormod(suffix: str) -> Piece:
    f, kind = _f(suffix), C_TYPE[suffix]
    body = f"""
// The remainder has the divisor's sign, also when it is zero.
const {kind} r = fmod{f}(a, b);
if (b == 0) return r;
if (r == 0) return copysign{f}(0.0{f}, b);
return (b < 0) != (r < 0) ? r + b : r;
"""
    return _two("floormod", suffix, body)


def _float_floordiv(suffix: str) -> Piece:
    f, kind = _f(suffix), C_TYPE[suffix]
    body = f"""
// Consistent with the remainder, so not simply floor(a / b), whose quotient may round up.
if (b == 0) return a / b;
const {kind} r = fmod{f}(a, b);
{kind} q = (a - r) / b;
if (r != 0 && (b < 0) != (r < 0)) q -= 1;
if (q == 0) return copysign{f}(0.0{f}, a / b);
const {kind} whole = floor{f}(q);
return q - whole > ({kind})0.5 ? whole + 1 : whole;
"""
    return _two("floordiv", suffix, body)


def _either(op: str, symbol: str) -> Callable[[str], Piece]:
    """A NaN operand is ignored; of two equal operands, also 0 and -0, the second is taken."""
    return lambda suffix: _two(op, suffix, f"return a {symbol} b || b != b ? a : b;")


def _keep_nan(op: str, symbol: str) -> Callable[[str], Piece]:
    return lambda suffix: _two(op, suffix, f"return a {symbol} b || a != a ? a : b;")


def _sigmoid(suffix: str) -> Piece:
    f, kind = _f(suffix), C_TYPE[suffix]
    body = f"""
const {kind} e = exp{f}(-fabs{f}(a)), y = 1 / (1 + e);
return a < 0 ? e * y : y;
"""
    return _one("sigmoid", suffix, body)


_BITS: dict[str, tuple[str, str]] = {
    "f32": ("__float_as_uint", "__uint_as_float"),
    "f64": ("(uint64_t)__double_as_longlong", "__longlong_as_double"),
}
_FLOAT: dict[str, Callable[[str], Piece]] = {
    "floormod": _float_floormod,
    "floordiv": _float_floordiv,
    "truncmod": lambda s: _two("truncmod", s, f"return fmod{_f(s)}(a, b);"),
    "truncdiv": lambda s: _two("truncdiv", s, f"return trunc{_f(s)}(a / b);"),
    "min": _either("min", "<"),
    "max": _either("max", ">"),
    "min_nan": _keep_nan("min_nan", "<"),
    "max_nan": _keep_nan("max_nan", ">"),
    "sigmoid": _sigmoid,
    "bits": lambda s: Piece(
        function(f"uint{s[1:]}_t", f"bits_{s}", f"{C_TYPE[s]} a", f"return {_BITS[s][0]}(a);")
    ),
    "from_bits": lambda s: Piece(
        function(C_TYPE[s], f"from_bits_{s}", f"uint{s[1:]}_t a", f"return {_BITS[s][1]}(a);")
    ),
}
