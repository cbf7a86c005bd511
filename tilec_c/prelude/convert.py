"""Conversions between dtypes, as `tilec.arith.semantics` defines them.

* to a half type: one rounding, to nearest even, also from float64 and from integers; overflow gives
  infinity; NaN stays NaN, with the bits that NumPy and ml_dtypes give it (float16 keeps the upper
  payload, bfloat16 has one quiet NaN of each sign);
* float to integer: towards zero. What does not fit, and NaN: int32 and int64 give their minimum; 8-
  and 16-bit types the low bits of the int32 result; uint32, and uint64 for negative numbers, the
  low bits of the int64 result; uint64 gives 2**63 otherwise;
* integer to integer: low bits; to bool: ``x != 0`` (NaN is true).
"""

from __future__ import annotations

from tilec_c.prelude.base import C_TYPE, HALVES, INTEGERS, SUFFIX, Callee, Snippet

_HALF = r"""
TILEC_INLINE float tilec_f16_to_f32(uint16_t h) {
  uint32_t m = (uint32_t)(h & 0x7fffu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t normal = m + (112u << 23), special = m + (224u << 23);
  /* subnormal: place the fraction below 2^-14 and let the subtraction normalise it, exactly */
  uint32_t tiny = tilec_bits_f32(tilec_from_bits_f32(m + (113u << 23)) - 0x1p-14f);
  uint32_t r = m >= 0x0f800000u ? special : normal;
  r = m < 0x00800000u ? tiny : r;
  return tilec_from_bits_f32(r | sign);
}
"""
_TO_HALF = r"""
TILEC_INLINE uint16_t tilec_f32_to_f16(float x) {
  uint32_t u = tilec_bits_f32(x), a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
  uint32_t normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
  /* subnormal result: adding 0.5 makes the addition itself round at the right bit */
  uint32_t tiny = tilec_bits_f32(tilec_from_bits_f32(a) + 0.5f) - 0x3f000000u;
  uint32_t nan = 0x7c00u + ((a >> 13) & 0x3ffu);
  nan = nan == 0x7c00u ? 0x7c01u : nan;
  uint32_t r = a < 0x38800000u ? tiny : normal;
  r = a >= 0x47800000u ? 0x7c00u : r;
  r = a > 0x7f800000u ? nan : r;
  return (uint16_t)(r | sign);
}
"""
_BF16 = r"""
TILEC_INLINE float tilec_bf16_to_f32(uint16_t h) { return tilec_from_bits_f32((uint32_t)h << 16); }
TILEC_INLINE uint16_t tilec_f32_to_bf16(float x) {
  uint32_t u = tilec_bits_f32(x);
  uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  r = (u & 0x7fffffffu) > 0x7f800000u ? (0x7fc0u | ((u >> 16) & 0x8000u)) : r;
  return (uint16_t)r;
}
"""
_ROUND_ODD = r"""
/* float64 to float32, rounded to odd: a second rounding then gives what one would have. */
TILEC_INLINE float tilec_round_odd_f32(double d) {
  float f = (float)d;
  double back = (double)f, ad = d < 0 ? -d : d, ab = back < 0 ? -back : back;
  uint32_t u = tilec_bits_f32(f);
  uint32_t inexact = (uint32_t)(ad < ab || ad > ab) & (uint32_t)(ab <= 0x1.fffffep127);
  uint32_t even = (u & 1u) ^ 1u, step = ad > ab ? 1u : 0xffffffffu;
  return tilec_from_bits_f32((inexact & even) ? u + step : u);
}
"""
_ROWS = r"""
/* Whole rows, with the processor's instructions where it has them (they make every NaN quiet). */
#if defined(__F16C__)
typedef float tilec_wide8 __attribute__((vector_size(32)));
typedef short tilec_half8 __attribute__((vector_size(16)));
#endif
TILEC_INLINE void tilec_widen_f16(float *restrict y, const uint16_t *restrict x, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    tilec_half8 h;
    __builtin_memcpy(&h, x + i, sizeof h);
    tilec_wide8 w = __builtin_ia32_vcvtph2ps256(h);
    __builtin_memcpy(y + i, &w, sizeof w);
  }
#endif
  for (; i < n; ++i) y[i] = tilec_f16_to_f32(x[i]);
}
TILEC_INLINE void tilec_narrow_f16(uint16_t *restrict y, const float *restrict x, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    tilec_wide8 w;
    __builtin_memcpy(&w, x + i, sizeof w);
    tilec_half8 h = (tilec_half8)__builtin_ia32_vcvtps2ph256(w, 0);
    __builtin_memcpy(y + i, &h, sizeof h);
  }
#endif
  for (; i < n; ++i) y[i] = tilec_f32_to_f16(x[i]);
}
"""
_F64_TO_F16 = r"""
TILEC_INLINE uint16_t tilec_f64_to_f16(double x) {
  uint64_t u = tilec_bits_f64(x), a = u & 0x7fffffffffffffffull;
  uint32_t nan = 0x7c00u + (uint32_t)((u >> 42) & 0x3ffu);
  nan = (nan == 0x7c00u ? 0x7c01u : nan) | (uint32_t)((u >> 48) & 0x8000u);
  uint16_t r = tilec_f32_to_f16(tilec_round_odd_f32(x));
  return a > 0x7ff0000000000000ull ? (uint16_t)nan : r;
}
"""
_F64_TO_BF16 = r"""
TILEC_INLINE uint16_t tilec_f64_to_bf16(double x) {
  return tilec_f32_to_bf16(tilec_round_odd_f32(x));
}
"""


def _half_snippets() -> list[Snippet]:
    found = [
        Snippet("f16_to_f32", _HALF, ("bits",)),
        Snippet("f32_to_f16", _TO_HALF, ("bits",)),
        Snippet("rows_f16", _ROWS, ("f16_to_f32", "f32_to_f16")),
        Snippet("bf16", _BF16, ("bits",)),
        Snippet("bf16_to_f32", "", ("bf16",)),
        Snippet("f32_to_bf16", "", ("bf16",)),
        Snippet("round_odd_f32", _ROUND_ODD, ("bits",)),
        Snippet("f64_to_f16", _F64_TO_F16, ("f32_to_f16", "round_odd_f32")),
        Snippet("f64_to_bf16", _F64_TO_BF16, ("bf16", "round_odd_f32")),
    ]
    for half in HALVES:
        found.append(
            Snippet(
                f"{half}_to_f64",
                f"TILEC_INLINE double tilec_{half}_to_f64(uint16_t h) "
                f"{{ return (double)tilec_{half}_to_f32(h); }}",
                (f"{half}_to_f32",),
            )
        )
        other = "bf16" if half == "f16" else "f16"
        found.append(
            Snippet(
                f"{half}_to_{other}",
                f"TILEC_INLINE uint16_t tilec_{half}_to_{other}(uint16_t h) "
                f"{{ return tilec_f32_to_{other}(tilec_{half}_to_f32(h)); }}",
                (f"{half}_to_f32", f"f32_to_{other}"),
            )
        )
    return found


def _float_to_integer(source: str) -> list[Snippet]:
    """float32 or float64 to each integer type, defined for every input."""
    ctype, lit = ("float", "f") if source == "f32" else ("double", "")
    # float32 has no value between -2^31 - 1 and -2^31, so both bounds are exact in both types.
    low = f"x > -2147483649.0{lit}" if source == "f64" else f"x >= -2147483648.0{lit}"
    found = [
        Snippet(
            f"{source}_to_i32",
            f"""
TILEC_INLINE int32_t tilec_{source}_to_i32({ctype} x) {{
  return {low} && x < 2147483648.0{lit} ? (int32_t)x : (int32_t)0x80000000u;
}}
""",
        ),
        Snippet(
            f"{source}_to_i64",
            f"""
TILEC_INLINE int64_t tilec_{source}_to_i64({ctype} x) {{
  return x >= -0x1p63{lit} && x < 0x1p63{lit} ? (int64_t)x : (int64_t)(1ull << 63);
}}
""",
        ),
        Snippet(
            f"{source}_to_u64",
            f"""
TILEC_INLINE uint64_t tilec_{source}_to_u64({ctype} x) {{
  uint64_t big = x < 0x1p64{lit} ? (uint64_t)x : 1ull << 63;
  return x >= 0x1p63{lit} ? big : (uint64_t)tilec_{source}_to_i64(x);
}}
""",
            (f"{source}_to_i64",),
        ),
    ]
    for target in ("i8", "i16", "u8", "u16", "u32"):
        through, t = ("i64" if target == "u32" else "i32"), C_TYPE[target]
        found.append(
            Snippet(
                f"{source}_to_{target}",
                f"TILEC_INLINE {t} tilec_{source}_to_{target}({ctype} x) "
                f"{{ return ({t})tilec_{source}_to_{through}(x); }}",
                (f"{source}_to_{through}",),
            )
        )
    return found


_STICKY = r"""
/* Fold what float64 cannot hold of a large magnitude into one bit, so that converting is exact. */
TILEC_INLINE uint64_t tilec_sticky_u64(uint64_t x) {
  return x >> 53 ? (x & ~0xfffull) | (uint64_t)((x & 0xfffull) != 0) << 12 : x;
}
"""
_STICKY_SIGNED = r"""
TILEC_INLINE int64_t tilec_sticky_i64(int64_t x) {
  uint64_t a = tilec_sticky_u64(x < 0 ? 0ull - (uint64_t)x : (uint64_t)x);
  return (int64_t)(x < 0 ? 0ull - a : a);
}
"""


def _half_to_and_from_integer() -> list[Snippet]:
    found = []
    for half in HALVES:
        for integer in INTEGERS:
            ctype = C_TYPE[integer]
            found.append(
                Snippet(
                    f"{half}_to_{integer}",
                    f"TILEC_INLINE {ctype} tilec_{half}_to_{integer}(uint16_t h) "
                    f"{{ return tilec_f32_to_{integer}(tilec_{half}_to_f32(h)); }}",
                    (f"{half}_to_f32", f"f32_to_{integer}"),
                )
            )
            # float32 is exact for every integer that float16 can represent as a finite number.
            value, needs = "(float)x", [f"f32_to_{half}"]
            if half == "bf16" and integer[1:] == "32":
                value, needs = "tilec_round_odd_f32((double)x)", [*needs, "round_odd_f32"]
            elif half == "bf16" and integer[1:] == "64":
                value = f"tilec_round_odd_f32((double)tilec_sticky_{integer}(x))"
                needs = [*needs, "round_odd_f32", f"sticky_{integer}"]
            found.append(
                Snippet(
                    f"{integer}_to_{half}",
                    f"TILEC_INLINE uint16_t tilec_{integer}_to_{half}({ctype} x) "
                    f"{{ return tilec_f32_to_{half}({value}); }}",
                    tuple(needs),
                )
            )
    return found


SNIPPETS = (
    *_half_snippets(),
    *_float_to_integer("f32"),
    *_float_to_integer("f64"),
    Snippet("sticky_u64", _STICKY),
    Snippet("sticky_i64", _STICKY_SIGNED, ("sticky_u64",)),
    *_half_to_and_from_integer(),
)
_NAMES = frozenset(snippet.name for snippet in SNIPPETS)


def convert_call(source: str, target: str) -> Callee | None:
    """How to convert a scalar from dtype ``source`` to dtype ``target``.

    Half values are ``uint16_t`` on either side. To bool, emit ``x != 0`` on the (widened) value.

    Returns:
        The function to call, or None where the plain C cast ``(type)x`` means the right thing.
    """
    name = f"{SUFFIX[source]}_to_{SUFFIX[target]}"
    if source == target or name not in _NAMES:
        if source == "bool" and SUFFIX[target] in HALVES:
            return convert_call("uint8", target)
        return None
    return Callee(f"tilec_{name}", (name,))
