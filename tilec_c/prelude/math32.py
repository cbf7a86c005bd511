"""float32 mathematics that compilers vectorise, and the library's names for float64.

Each function is branch-free scalar code: called in a plain loop it becomes vector code. Special
values (infinities, NaN, signed zero, overflow, subnormal results) are those of C's mathematics
library. Largest errors seen over dense samples with fused multiply-add, in units in the last place:
1.0 for exp, exp2, log, log2, log10; 1.5 for exp10, expm1, log1p, erf, rsqrt; 2.1 for tanh, sigmoid.

Method: argument reduction to a small interval and a polynomial fitted by the Remez algorithm for
relative error. Selections come last rather than clamps first, because gcc merges chains of clamps
into slow mask code. Sine, cosine and tangent stay with the library: an exact reduction of every
argument was tried, and gcc 12 does not vectorise it.
"""

from __future__ import annotations

from tilec_c.prelude.base import SUFFIX, Callee, Snippet

_POW2 = r"""
/* p * 2^n for p in [0.5, 2] and n = t - 1.5 * 2^23 held in the low bits of t, |n| < 280: in two
   steps, so that subnormal results are rounded once and the largest ones do not overflow early. */
TILEC_INLINE float tilec_scale_f32(float p, float t) {
  uint32_t k = tilec_bits_f32(t), h = (uint32_t)((int32_t)(k << 9) >> 10);
  float a = tilec_from_bits_f32(tilec_bits_f32(p) + (h << 23));
  return a * tilec_from_bits_f32(((k - h) << 23) + 0x3f800000u);
}
"""
_EXP_POLY = r"""
/* e^r for |r| <= 0.35 */
TILEC_INLINE float tilec_exp_poly(float r) {
  float p = 0.00138131447f;
  p = TILEC_FMAF(p, r, 0.0083694188271f);
  p = TILEC_FMAF(p, r, 0.041668456784f);
  p = TILEC_FMAF(p, r, 0.16666514791f);
  p = TILEC_FMAF(p, r, 0.49999993051f);
  return TILEC_FMAF(p, r * r, r) + 1.0f;
}
"""
_EXP = r"""
TILEC_INLINE float tilec_exp_f32(float x) {
  float t = TILEC_FMAF(x, 1.44269504f, 0x1.8p23f), n = t - 0x1.8p23f;
  float r = TILEC_FMAF(n, -0.693359375f, x);
  r = TILEC_FMAF(n, 2.12194440e-4f, r);
  float y = tilec_scale_f32(tilec_exp_poly(r), t);
  y = x < -103.98f ? 0.0f : y;
  return x > 88.73f ? TILEC_INF : y;
}
"""
_EXP2 = r"""
TILEC_INLINE float tilec_exp2_f32(float x) {
  float t = x + 0x1.8p23f, r = x - (t - 0x1.8p23f);
  float p = 0.00015352317555f;
  p = TILEC_FMAF(p, r, 0.0013400170113f);
  p = TILEC_FMAF(p, r, 0.009618449959f);
  p = TILEC_FMAF(p, r, 0.055503293497f);
  p = TILEC_FMAF(p, r, 0.24022647742f);
  p = TILEC_FMAF(p, r, 0.69314720418f);
  float y = tilec_scale_f32(TILEC_FMAF(p, r, 1.0f), t);
  y = x < -150.0f ? 0.0f : y;
  return x >= 128.0f ? TILEC_INF : y;
}
"""
_EXP10 = r"""
TILEC_INLINE float tilec_exp10_f32(float x) {
  float t = TILEC_FMAF(x, 3.32192809f, 0x1.8p23f), n = t - 0x1.8p23f;
  float r = TILEC_FMAF(n, -0.301025391f, x);      /* log10(2), upper bits: n times it is exact */
  r = TILEC_FMAF(n, -4.60503907e-6f, r);
  /* r * ln(10) needs more than one rounding's worth of bits only through its upper part */
  float y = tilec_scale_f32(tilec_exp_poly(TILEC_FMAF(r, 2.30258512f, r * -3.19754367e-8f)), t);
  y = x < -45.16f ? 0.0f : y;
  return x > 38.54f ? TILEC_INF : y;
}
"""
_EXPM1 = r"""
TILEC_INLINE float tilec_expm1_f32(float x) {
  float t = TILEC_FMAF(x, 1.44269504f, 0x1.8p23f), n = t - 0x1.8p23f;
  float r = TILEC_FMAF(n, -0.693359375f, x);
  r = TILEC_FMAF(n, 2.12194440e-4f, r);
  float p = 0.00019915622898f;
  p = TILEC_FMAF(p, r, 0.0013942045979f);
  p = TILEC_FMAF(p, r, 0.0083332706245f);
  p = TILEC_FMAF(p, r, 0.041666342129f);
  p = TILEC_FMAF(p, r, 0.16666666826f);
  p = TILEC_FMAF(p, r, 0.50000000492f);
  p = TILEC_FMAF(p, r * r, r);
  /* 2^n (e^r - 1) + (2^n - 1), at half scale so that n = 128 does not overflow */
  float s = tilec_from_bits_f32((tilec_bits_f32(t) << 23) + 0x3f000000u);
  float y = 2.0f * TILEC_FMAF(s, p, s - 0.5f);
  y = x < -17.4f ? -1.0f : y;
  y = x > 88.73f ? TILEC_INF : y;
  return x == 0.0f ? x : y;
}
"""
_LOG_PARTS = r"""
/* x = 2^e * (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1], and q with log(1 + f) = f + f^2 q. */
typedef struct { float e, f, q; } tilec_log_parts;
TILEC_INLINE tilec_log_parts tilec_log_split(float x) {
  float subnormal = x < 0x1p-126f ? 1.0f : 0.0f;
  float y = x < 0x1p-126f ? x * 0x1p23f : x;
  uint32_t u = tilec_bits_f32(y) + (0x3f800000u - 0x3f3504f3u);
  tilec_log_parts r;
  r.e = (float)((int32_t)(u >> 23) - 127) - 23.0f * subnormal;
  r.f = tilec_from_bits_f32((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float f = r.f, p = 0.067366189909f;
  p = TILEC_FMAF(p, f, -0.11694751382f);
  p = TILEC_FMAF(p, f, 0.11906000505f);
  p = TILEC_FMAF(p, f, -0.12404782184f);
  p = TILEC_FMAF(p, f, 0.14216715239f);
  p = TILEC_FMAF(p, f, -0.16667789696f);
  p = TILEC_FMAF(p, f, 0.20002267337f);
  p = TILEC_FMAF(p, f, -0.25000024613f);
  p = TILEC_FMAF(p, f, 0.33333310181f);
  r.q = TILEC_FMAF(p, f, -0.49999999755f);
  return r;
}
TILEC_INLINE float tilec_log_special(float x, float y) {
  y = x == TILEC_INF ? TILEC_INF : y;
  y = x == 0.0f ? -TILEC_INF : y;
  return x < 0.0f || x != x ? TILEC_NAN : y;
}
"""
_LOG = r"""
TILEC_INLINE float tilec_log_f32(float x) {
  tilec_log_parts s = tilec_log_split(x);
  float low = TILEC_FMAF(s.f * s.f, s.q, s.e * -2.12194440e-4f);
  return tilec_log_special(x, (low + s.f) + s.e * 0.693359375f);
}
"""
_LOG2 = r"""
TILEC_INLINE float tilec_log2_f32(float x) {
  tilec_log_parts s = tilec_log_split(x);
  float w = s.f * s.f * s.q;                    /* (f + w) log2(e), log2(e) = 1.4375 + low */
  float low = TILEC_FMAF(w, 1.44269504f, s.f * 0.00519504089f);
  return tilec_log_special(x, TILEC_FMAF(s.f, 1.4375f, low) + s.e);
}
"""
_LOG10 = r"""
TILEC_INLINE float tilec_log10_f32(float x) {
  tilec_log_parts s = tilec_log_split(x);
  float w = s.f * s.f * s.q;                    /* log10(e) = 0.43359375 + low, log10(2) likewise */
  float low = TILEC_FMAF(w, 0.434294482f, s.f * 7.00731903e-4f);
  low = TILEC_FMAF(s.e, 4.60503907e-6f, low);
  return tilec_log_special(x, TILEC_FMAF(s.f, 0.43359375f, low) + s.e * 0.301025391f);
}
"""
_LOG1P = r"""
TILEC_INLINE float tilec_log1p_f32(float x) {
  float u = 1.0f + x, d = u - 1.0f;
  float lost = x > 1.0f ? 1.0f - (u - x) : x - d;      /* what rounding took from 1 + x */
  float c = u > 0.0f && u < TILEC_INF ? lost / u : 0.0f;
  float y = tilec_log_f32(u) + c;
  return x > -0x1p-25f && x < 0x1p-25f ? x : y;
}
"""
_TANH = r"""
TILEC_INLINE float tilec_tanh_f32(float x) {
  float a = __builtin_fabsf(x), t = tilec_expm1_f32(2.0f * a), y = t / (t + 2.0f);
  y = a > 9.02f ? 1.0f : y;
  return __builtin_copysignf(y, x);
}
"""
_SIGMOID = r"""
TILEC_INLINE float tilec_sigmoid_f32(float x) {
  float e = tilec_exp_f32(-__builtin_fabsf(x));
  return (x >= 0.0f || x != x ? 1.0f : e) / (1.0f + e);
}
"""
_ERF = r"""
TILEC_INLINE float tilec_erf_f32(float x) {
  float a = __builtin_fabsf(x), t = x * x, p = 8.3695902154e-5f;
  p = TILEC_FMAF(p, t, -0.00081425843468f);
  p = TILEC_FMAF(p, t, 0.005201021798f);
  p = TILEC_FMAF(p, t, -0.026859394072f);
  p = TILEC_FMAF(p, t, 0.11283695419f);
  p = TILEC_FMAF(p, t, -0.3761263373f);
  p = TILEC_FMAF(p, t, 0.12837916664f);
  float small = TILEC_FMAF(p, a, a), q = -2.082852411e-5f;
  q = TILEC_FMAF(q, a, 0.00043139254397f);
  q = TILEC_FMAF(q, a, -0.004156250286f);
  q = TILEC_FMAF(q, a, 0.025080605111f);
  q = TILEC_FMAF(q, a, -0.10822036763f);
  q = TILEC_FMAF(q, a, -0.63340086476f);
  q = TILEC_FMAF(q, a, -1.1294884f);
  q = TILEC_FMAF(q, a, 0.00016920388592f);
  float large = 1.0f - tilec_exp_f32(q);
  float y = a < 0.92f ? small : large;
  y = a > 3.95f ? 1.0f : y;
  return __builtin_copysignf(y, x);
}
"""
_ROUND = r"""
TILEC_INLINE TYPE tilec_round_SUFFIX(TYPE x) {
  TYPE w = __builtin_truncL(x), away = __builtin_fabsL(x - w) >= (TYPE)0.5 ? (TYPE)1 : (TYPE)0;
  return __builtin_copysignL(__builtin_fabsL(w) + away, x);
}
"""
_RSQRT = r"""
TILEC_INLINE float tilec_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
"""
_RSQRT64 = r"""
TILEC_INLINE double tilec_rsqrt_f64(double x) { return 1.0 / __builtin_sqrt(x); }
"""
_SIGMOID64 = r"""
TILEC_INLINE double tilec_sigmoid_f64(double x) {
  double e = __builtin_exp(-__builtin_fabs(x));
  return (x >= 0.0 || x != x ? 1.0 : e) / (1.0 + e);
}
"""
_EXP10_64 = r"""
TILEC_INLINE double tilec_exp10_f64(double x) { return __builtin_pow(10.0, x); }
"""


def _round(suffix: str, ctype: str, letter: str) -> Snippet:
    text = _ROUND.replace("TYPE", ctype).replace("SUFFIX", suffix)
    for name in ("trunc", "fabs", "copysign"):
        text = text.replace(f"{name}L(", f"{name}{letter}(")
    return Snippet(f"round_{suffix}", text)


SNIPPETS = (
    Snippet("scale_f32", _POW2, ("bits",)),
    Snippet("exp_poly", _EXP_POLY, ("fma",)),
    Snippet("exp_f32", _EXP, ("scale_f32", "exp_poly")),
    Snippet("exp2_f32", _EXP2, ("scale_f32", "fma")),
    Snippet("exp10_f32", _EXP10, ("scale_f32", "exp_poly")),
    Snippet("expm1_f32", _EXPM1, ("bits", "fma")),
    Snippet("log_parts", _LOG_PARTS, ("bits", "fma")),
    Snippet("log_f32", _LOG, ("log_parts",)),
    Snippet("log2_f32", _LOG2, ("log_parts",)),
    Snippet("log10_f32", _LOG10, ("log_parts",)),
    Snippet("log1p_f32", _LOG1P, ("log_f32",)),
    Snippet("tanh_f32", _TANH, ("expm1_f32",)),
    Snippet("sigmoid_f32", _SIGMOID, ("exp_f32",)),
    Snippet("erf_f32", _ERF, ("exp_f32",)),
    _round("f32", "float", "f"),
    _round("f64", "double", ""),
    Snippet("rsqrt_f32", _RSQRT),
    Snippet("rsqrt_f64", _RSQRT64),
    Snippet("sigmoid_f64", _SIGMOID64),
    Snippet("exp10_f64", _EXP10_64),
)
_NAMES = frozenset(snippet.name for snippet in SNIPPETS)

# Intrinsic name -> the C library's stem, called as a compiler builtin (no header needed).
_LIBRARY: dict[str, str] = {
    "abs": "fabs", "fabs": "fabs", "acos": "acos", "acosh": "acosh", "asin": "asin",
    "asinh": "asinh", "atan": "atan", "atan2": "atan2", "atanh": "atanh", "cbrt": "cbrt",
    "ceil": "ceil", "copysign": "copysign", "cos": "cos", "cosh": "cosh", "erf": "erf",
    "erfc": "erfc", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "floor": "floor",
    "fma": "fma", "fmod": "fmod", "hypot": "hypot", "ldexp": "ldexp", "lgamma": "lgamma",
    "log": "log", "log10": "log10", "log1p": "log1p", "log2": "log2", "nearbyint": "rint",
    "nextafter": "nextafter", "pow": "pow", "rint": "rint", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "tgamma": "tgamma",
    "trunc": "trunc",
}  # fmt: skip


def math_call(name: str, dtype: str) -> Callee | None:
    """The C function for an IR mathematics intrinsic on float32 or float64 values.

    ``round`` takes halves away from zero, ``nearbyint`` to even; ``fma`` is exact on every machine
    (a library call where the processor lacks it). Half types: widen, call for float32, narrow.

    Returns:
        What to call, or None for a name that C does not know.
    """
    own = f"{name}_{SUFFIX[dtype]}"
    if own in _NAMES:
        return Callee(f"tilec_{own}", (own,))
    stem = _LIBRARY.get(name)
    if stem is None or dtype not in ("float32", "float64"):
        return None
    return Callee(f"__builtin_{stem}{'f' if dtype == 'float32' else ''}")
