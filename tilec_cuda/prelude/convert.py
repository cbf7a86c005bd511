"""Conversions between storage types that CUDA C++ does not have.

``<from>_to_<to>`` converts; ``..._soft`` does so without the instruction that newer chips have;
``odd_<from>`` gives a float rounded to odd, which a second rounding makes correctly rounded.
"""

from __future__ import annotations

import math
import re

from tilec.arith.formats import FORMATS, Format
from tilec_cuda.prelude.base import C_TYPE, INTEGERS, Piece, bits, function

NARROW: dict[str, tuple[Format, int, int]] = {
    "e3m4": (FORMATS["float8_e3m4"], 0x70, 0x78),
    "e4m3": (FORMATS["float8_e4m3"], 0x7F, 0x7F),
    "e4m3fnuz": (FORMATS["float8_e4m3fnuz"], 0x80, 0x80),
    "e4m3b11fnuz": (FORMATS["float8_e4m3b11fnuz"], 0x80, 0x80),
    "e5m2": (FORMATS["float8_e5m2"], 0x7C, 0x7F),
    "e5m2fnuz": (FORMATS["float8_e5m2fnuz"], 0x80, 0x80),
}
"""Formats of eight bits: numbers, code of what is too large, code of NaN."""


def make(name: str) -> Piece | None:
    """The conversion of that name, or None."""
    fixed = _FIXED.get(name)
    if fixed is not None:
        return fixed
    pairs = _PAIRS.match(name)
    if pairs is not None:
        return _pairs(name, pairs[1], pairs[2], int(pairs[3]))
    if name.startswith("odd_"):
        return _odd(name[4:])
    source, _, target = name.partition("_to_")
    if source in ("f32", "f64") and target in INTEGERS:
        return _to_integer(source, target)
    soft = target.removesuffix("_soft")
    if source == "f32" and soft in NARROW and target != soft:
        return _encode(soft)
    if source in NARROW and soft == "f32" and target != soft:
        return _decode(source)
    return None


def _asm(kind: str, name: str, param: str, result: str, text: str) -> Piece:
    body = f"{result} y;\nasm({text});\nreturn {'' if result == kind else f'({kind})'}y;"
    return Piece(function(kind, name, param, body))


_FIXED: dict[str, Piece] = {
    "f16_to_f32": _asm("float", "f16_to_f32", "uint16_t x", "float",
                       '"cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)'),
    "f32_to_f16": _asm("uint16_t", "f32_to_f16", "float x", "uint16_t",
                       '"cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)'),
    "bf16_to_f32": Piece(function("float", "bf16_to_f32", "uint16_t x",
                                  "return __uint_as_float((uint32_t)x << 16);")),
    "f32_to_bf16": _asm("uint16_t", "f32_to_bf16", "float x", "uint16_t",
                        '"cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)'),
    "f32_to_bf16_soft": Piece(function("uint16_t", "f32_to_bf16_soft", "float x", """
const uint32_t u = __float_as_uint(x);
if (x != x) return 0x7fff;
return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
""")),
    # The instruction gives the largest finite number where the format has NaN or infinity.
    "f32_to_e4m3": Piece(function("uint8_t", "f32_to_e4m3", "float x", """
uint16_t y;
asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
return (uint8_t)(fabsf(x) > 464.0f ? y | 0x7f : y);
""")),
    "f32_to_e5m2": Piece(function("uint8_t", "f32_to_e5m2", "float x", """
uint16_t y;
asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
return (uint8_t)(fabsf(x) >= 61440.0f ? (y & 0x80) | 0x7c : y);
""")),
    "e4m3_to_f32": Piece(function("float", "e4m3_to_f32", "uint8_t x", """
uint32_t y;
asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"((uint16_t)x));
return tilec_f16_to_f32((uint16_t)y);
"""), ("f16_to_f32",)),
    "e5m2_to_f32": Piece(function("float", "e5m2_to_f32", "uint8_t x",
                                  "return tilec_f16_to_f32((uint16_t)(x << 8));"),
                         ("f16_to_f32",)),
    "e8m0_to_f32": Piece(function("float", "e8m0_to_f32", "uint8_t x", """
if (x == 0xff) return __uint_as_float(0x7fffffff);
return __uint_as_float(x == 0 ? 0x00400000u : (uint32_t)x << 23);
""")),
    "f32_to_e8m0": Piece(function("uint8_t", "f32_to_e8m0", "float x", """
// A power of two: the nearest, of two the larger; NaN for what is not positive.
if (!(x > 0)) return 0xff;
uint32_t u = __float_as_uint(x);
if (u < 0x00800000u) return u >= 0x00600000u ? 1 : 0;
u += 0x00400000u;
return u >= 0x7f800000u ? 0xff : (uint8_t)(u >> 23);
""")),
}  # fmt: skip


_PAIRS = re.compile(r"(pack|unpack)_(f16|bf16|e4m3|e5m2)_(\d+)\Z")
_PACK = {
    "f16": """
uint32_t y;
asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(from[i + 1]), "f"(from[i]));
*(uint32_t *)(to + i) = y;
""",
    # The instructions of the narrowest formats saturate; that is put right.
    "e4m3": """
uint16_t y;
asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(from[i + 1]), "f"(from[i]));
if (fabsf(from[i]) > 464.0f) y |= 0x7f;
if (fabsf(from[i + 1]) > 464.0f) y |= 0x7f00;
*(uint16_t *)(to + i) = y;
""",
    "e5m2": """
uint16_t y;
asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(from[i + 1]), "f"(from[i]));
if (fabsf(from[i]) >= 61440.0f) y = (y & 0xff80) | 0x7c;
if (fabsf(from[i + 1]) >= 61440.0f) y = (y & 0x80ff) | 0x7c00;
*(uint16_t *)(to + i) = y;
""",
}
_PACK["bf16"] = _PACK["f16"].replace("f16x2", "bf16x2")
_UNPACK = {
    "bf16": """
const uint32_t x = *(const uint32_t *)(from + i);
to[i] = __uint_as_float(x << 16);
to[i + 1] = __uint_as_float(x & 0xffff0000);
""",
    "e4m3": """
uint32_t y;
asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(*(const uint16_t *)(from + i)));
to[i] = tilec_f16_to_f32((uint16_t)y);
to[i + 1] = tilec_f16_to_f32((uint16_t)(y >> 16));
""",
}
_UNPACK["e5m2"] = _UNPACK["e4m3"].replace("e4m3", "e5m2")


def _pairs(name: str, what: str, kind: str, count: int) -> Piece | None:
    """``pack_<type>_<count>`` and ``unpack_...``: an even number of elements, two at once."""
    text = (_PACK if what == "pack" else _UNPACK).get(kind)
    if text is None or count % 2:
        return None
    store = "uint16_t" if kind.endswith("16") else "uint8_t"
    to, source = ("float", store) if what == "unpack" else (store, "float")
    inner = "\n".join(f"  {line}" for line in text.strip().splitlines())
    body = f"#pragma unroll\nfor (int32_t i = 0; i < {count}; i += 2) {{\n{inner}\n}}"
    needs = ("f16_to_f32",) if "tilec_f16_to_f32" in text else ()
    return Piece(function("void", name, f"{to} *to, const {source} *from", body), needs)


def _odd(source: str) -> Piece | None:
    to_float = {
        "f64": "__double2float_rz", "i32": "__int2float_rz", "u32": "__uint2float_rz",
        "i64": "__ll2float_rz", "u64": "__ull2float_rz",
    }.get(source)  # fmt: skip
    if to_float is None:
        return None
    kind = C_TYPE[source]
    body = f"""
const float y = {to_float}(x);
return ({kind})y == x ? y : __uint_as_float(__float_as_uint(y) | 1);
"""
    return Piece(function("float", f"odd_{source}", f"{kind} x", body))


def _to_integer(source: str, target: str) -> Piece:
    """Truncates; what does not fit gives what x86-64 gives (see `tilec.arith.semantics`)."""
    wide = bits(target) > 32 or target == "u32"
    kind, value = C_TYPE[target], C_TYPE[source]
    f = "f" if source == "f32" else ""
    if wide:
        low, high, least = f"-0x1p63{f}", f"0x1p63{f}", "(int64_t)(1ull << 63)"
        whole = "int64_t"
        inside = f"x >= {low} && x < {high}"
    else:
        high, least, whole = f"0x1p31{f}", "(int32_t)(1u << 31)", "int32_t"
        inside = f"x >= -0x1p31f && x < {high}" if f else "x > -0x1.00000002p31 && x < 0x1p31"
    body = f"return ({kind})({inside} ? ({whole})x : {least});"
    if target == "u64":
        body = f"if (x >= 0x1p63{f} && x < 0x1p64{f}) return (uint64_t)x;\n{body}"
    return Piece(function(kind, f"{source}_to_{target}", f"{value} x", body))


def _encode(name: str) -> Piece:
    fmt, over, nan = NARROW[name]
    mantissa, low = fmt.mantissa, fmt.min_exponent
    largest = largest_code(fmt)
    drop = 23 - mantissa
    sign = "sign" if fmt.negative_zero else "(code ? sign : 0)"
    too_large = f"sign | {over:#x}" if fmt.negative_zero else f"{over:#x}"
    body = f"""
const uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80;
uint32_t a = u & 0x7fffffff, code;
if (a > 0x7f800000) return {nan:#x};
if (a < {(127 + low) << 23:#x}) {{
  code = (uint32_t)rintf(__uint_as_float(a) * 0x1p{mantissa - low}f);
}} else {{
  a += {(1 << (drop - 1)) - 1:#x} + (a >> {drop} & 1);
  code = (a >> {drop}) - {(126 + low) << mantissa};
}}
if (code > {largest:#x}) return {too_large};
return {sign} | code;
"""
    return Piece(function("uint8_t", f"f32_to_{name}_soft", "float x", body))


def _decode(name: str) -> Piece:
    fmt, over, _nan = NARROW[name]
    mantissa, low = fmt.mantissa, fmt.min_exponent
    largest = largest_code(fmt)
    if fmt.overflow == "inf":
        beyond = f"if (code == {over:#x}) return __uint_as_float(sign | 0x7f800000);\n"
    else:
        beyond = ""
    if fmt.negative_zero:
        special = f"{beyond}if (code > {largest:#x}) return __uint_as_float(sign | 0x7fffffff);"
    else:
        special = "if (x == 0x80) return __uint_as_float(0xffffffff);"
    body = f"""
const uint32_t code = x & 0x7f, sign = (uint32_t)(x & 0x80) << 24;
{special}
const float small = (float)code * 0x1p{low - mantissa}f;
const uint32_t a = code < {1 << mantissa} ? __float_as_uint(small)
                               : (code << {23 - mantissa}) + {(126 + low) << 23:#x};
return __uint_as_float(sign | a);
"""
    return Piece(function("float", f"{name}_to_f32_soft", "uint8_t x", body))


def largest_code(fmt: Format) -> int:
    """The code of the largest finite number."""
    exponent, value = fmt.min_exponent, fmt.largest
    while value >= 2.0 ** (exponent + 1):
        exponent += 1
    whole = int(value / 2.0 ** (exponent - fmt.mantissa))
    return ((exponent - fmt.min_exponent + 1) << fmt.mantissa) + whole - (1 << fmt.mantissa)


def encode(value: float, name: str) -> int:
    """The code of a number that an eight-bit format has exactly, or of NaN or infinity."""
    if name == "e8m0":
        return 0xFF if value != value else math.frexp(value)[1] - 1 + 127
    fmt, over, nan = NARROW[name]
    if value != value:
        return nan
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    if math.isinf(value):
        return sign | over
    size = abs(value)
    exponent = max(math.frexp(size)[1] - 1, fmt.min_exponent) if size else fmt.min_exponent
    whole = int(size / 2.0 ** (exponent - fmt.mantissa))
    return sign | (((exponent - fmt.min_exponent) << fmt.mantissa) + whole)
