"""Integer division, remainder, shifts and powers as `tilec.arith.semantics` defines them.

Division by zero gives 0 and ``minimum // -1`` wraps to the minimum: no input stops the process.
Shifts by a negative count or by the width or more give 0, or the sign for a right shift of a signed
value. Powers wrap; a negative exponent truncates the exact power. Addition, subtraction and
multiplication need no helper: the build uses ``-fwrapv``.
"""

from __future__ import annotations

from tilec_c.prelude.base import C_TYPE, INTEGERS, SUFFIX, Callee, Snippet


def _signed(suffix: str) -> list[Snippet]:
    t, u = C_TYPE[suffix], C_TYPE["u" + suffix[1:]]
    return [
        Snippet(
            f"truncdiv_{suffix}",
            f"""
TILEC_INLINE {t} tilec_truncdiv_{suffix}({t} a, {t} b) {{
  if (b == 0) return 0;
  return b == -1 ? ({t})(({u})0 - ({u})a) : ({t})(a / b);
}}
""",
        ),
        Snippet(
            f"truncmod_{suffix}",
            f"""
TILEC_INLINE {t} tilec_truncmod_{suffix}({t} a, {t} b) {{
  return b == 0 || b == -1 ? ({t})0 : ({t})(a % b);
}}
""",
        ),
        Snippet(
            f"floordiv_{suffix}",
            f"""
TILEC_INLINE {t} tilec_floordiv_{suffix}({t} a, {t} b) {{
  if (b == 0) return 0;
  if (b == -1) return ({t})(({u})0 - ({u})a);
  {t} q = ({t})(a / b), r = ({t})(a % b);
  return ({t})(q - (r != 0 && (r ^ b) < 0));
}}
""",
        ),
        Snippet(
            f"floormod_{suffix}",
            f"""
TILEC_INLINE {t} tilec_floormod_{suffix}({t} a, {t} b) {{
  if (b == 0 || b == -1) return 0;
  {t} r = ({t})(a % b);
  return ({t})(r != 0 && (r ^ b) < 0 ? r + b : r);
}}
""",
        ),
    ]


def _unsigned(suffix: str) -> list[Snippet]:
    t = C_TYPE[suffix]
    found = []
    for kind in ("trunc", "floor"):
        for what, op in (("div", "/"), ("mod", "%")):
            found.append(
                Snippet(
                    f"{kind}{what}_{suffix}",
                    f"TILEC_INLINE {t} tilec_{kind}{what}_{suffix}({t} a, {t} b) "
                    f"{{ return b == 0 ? ({t})0 : ({t})(a {op} b); }}",
                )
            )
    return found


def _shifts(suffix: str) -> list[Snippet]:
    t, bits = C_TYPE[suffix], int(suffix[1:])
    u = C_TYPE["u" + suffix[1:]]
    # A count is compared as unsigned, so one test also covers negative counts.
    wide = "uint64_t" if bits == 64 else "uint32_t"
    right = f"({t})(a < 0 ? -1 : 0)" if suffix[0] == "i" else f"({t})0"
    return [
        Snippet(
            f"shl_{suffix}",
            f"TILEC_INLINE {t} tilec_shl_{suffix}({t} a, {t} n) "
            f"{{ return ({u})n < {bits} ? ({t})(({wide})a << (({u})n & {bits - 1})) : ({t})0; }}",
        ),
        Snippet(
            f"shr_{suffix}",
            f"TILEC_INLINE {t} tilec_shr_{suffix}({t} a, {t} n) "
            f"{{ return ({u})n < {bits} ? ({t})(a >> (({u})n & {bits - 1})) : {right}; }}",
        ),
    ]


def _power(suffix: str) -> Snippet:
    t, u = C_TYPE[suffix], C_TYPE["u" + suffix[1:]]
    negative = (
        "if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) ? -1 : 1) : 0;"
        if suffix[0] == "i"
        else ""
    )
    return Snippet(
        f"pow_{suffix}",
        f"""
TILEC_INLINE {t} tilec_pow_{suffix}({t} a, {t} b) {{
  {negative}
  {u} r = 1, x = ({u})a;
  for ({u} n = ({u})b; n; n = ({u})(n >> 1), x = ({u})((uint64_t)x * x)) {{
    if (n & 1) r = ({u})((uint64_t)r * x);
  }}
  return ({t})r;
}}
""",
    )


SNIPPETS = tuple(
    snippet
    for suffix in INTEGERS
    for snippet in (
        *(_signed(suffix) if suffix[0] == "i" else _unsigned(suffix)),
        *_shifts(suffix),
        _power(suffix),
    )
)
_OPS = frozenset({"truncdiv", "truncmod", "floordiv", "floormod", "shl", "shr", "pow"})


def integer_call(op: str, dtype: str) -> Callee:
    """The function of two ``dtype`` values for ``truncdiv truncmod floordiv floormod shl
    shr pow``.

    Inlined with a constant divisor or count it costs what the plain operator costs.
    """
    if op not in _OPS:
        raise KeyError(op)
    name = f"{op}_{SUFFIX[dtype]}"
    return Callee(f"tilec_{name}", (name,))
