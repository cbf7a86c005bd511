"""Floating-point helpers whose C library forms are slow, missing or differ from NumPy.

``min``/``max`` ignore a NaN operand (``fmin``/``fmax``); ``min_nan``/``max_nan`` propagate it. Of
two equal operands, also of 0.0 and -0.0, the second is the result.
The library functions of that name do not vectorise; these select forms do. Half types are widened
by the caller: nothing here takes one.
"""

from __future__ import annotations

from tilec_c.prelude.base import C_TYPE, SUFFIX, Callee, Snippet


def _for(suffix: str) -> list[Snippet]:
    t, f = C_TYPE[suffix], ("f" if suffix == "f32" else "")
    return [
        Snippet(
            f"max_{suffix}",
            f"TILEC_INLINE {t} tilec_max_{suffix}({t} a, {t} b) "
            "{ return a > b || b != b ? a : b; }",
        ),
        Snippet(
            f"min_{suffix}",
            f"TILEC_INLINE {t} tilec_min_{suffix}({t} a, {t} b) "
            "{ return a < b || b != b ? a : b; }",
        ),
        Snippet(
            f"max_nan_{suffix}",
            f"TILEC_INLINE {t} tilec_max_nan_{suffix}({t} a, {t} b) "
            "{ return a > b || a != a ? a : b; }",
        ),
        Snippet(
            f"min_nan_{suffix}",
            f"TILEC_INLINE {t} tilec_min_nan_{suffix}({t} a, {t} b) "
            "{ return a < b || a != a ? a : b; }",
        ),
        Snippet(
            f"floormod_{suffix}",
            f"""
/* The remainder has the divisor's sign, also when it is zero. */
TILEC_INLINE {t} tilec_floormod_{suffix}({t} a, {t} b) {{
  {t} r = __builtin_fmod{f}(a, b);
  if (b == 0) return r;
  if (r == 0) return __builtin_copysign{f}((({t})0), b);
  return (b < 0) != (r < 0) ? r + b : r;
}}
""",
        ),
        Snippet(
            f"floordiv_{suffix}",
            f"""
/* Consistent with the remainder, so not simply floor(a / b), whose quotient may round up. */
TILEC_INLINE {t} tilec_floordiv_{suffix}({t} a, {t} b) {{
  if (b == 0) return a / b;
  {t} r = __builtin_fmod{f}(a, b), q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return __builtin_copysign{f}((({t})0), a / b);
  {t} w = __builtin_floor{f}(q);
  return q - w > ({t})0.5 ? w + 1 : w;
}}
""",
        ),
        Snippet(
            f"truncmod_{suffix}",
            f"TILEC_INLINE {t} tilec_truncmod_{suffix}({t} a, {t} b) "
            f"{{ return __builtin_fmod{f}(a, b); }}",
        ),
        Snippet(
            f"truncdiv_{suffix}",
            f"TILEC_INLINE {t} tilec_truncdiv_{suffix}({t} a, {t} b) "
            f"{{ return __builtin_trunc{f}(a / b); }}",
        ),
    ]


SNIPPETS = (*_for("f32"), *_for("f64"))
_OPS = frozenset(
    {"max", "min", "max_nan", "min_nan", "floormod", "floordiv", "truncmod", "truncdiv"}
)


def float_call(op: str, dtype: str) -> Callee:
    """The function of two float32 or float64 values for ``max min max_nan min_nan``,
    ``floordiv floormod truncdiv truncmod``."""
    if op not in _OPS or dtype not in ("float32", "float64"):
        raise KeyError((op, dtype))
    name = f"{op}_{SUFFIX[dtype]}"
    return Callee(f"tilec_{name}", (name,))
