"""What every snippet shares: the snippet type, type names, and the first lines of each program."""

from __future__ import annotations

from typing import NamedTuple


class Snippet(NamedTuple):
    """One named piece of C and the names of the pieces it needs."""

    name: str
    text: str
    needs: tuple[str, ...] = ()


class Callee(NamedTuple):
    """How generated code calls something: the C function's name and the features that define it."""

    name: str
    features: tuple[str, ...] = ()


# Type suffix by dtype name.
SUFFIX: dict[str, str] = {
    "bool": "bool",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip
# Storage type by suffix.
C_TYPE: dict[str, str] = {
    "bool": "uint8_t",
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double",
}  # fmt: skip
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
HALVES = ("f16", "bf16")

SNIPPETS = (
    Snippet(
        "base",
        r"""
#include <stdint.h>
#define TILEC_EXPORT __attribute__((visibility("default")))
#define TILEC_INLINE static inline __attribute__((always_inline, unused))
#define TILEC_NOINLINE static __attribute__((noinline, unused))
#define TILEC_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define TILEC_LIKELY(x) __builtin_expect(!!(x), 1)
#define TILEC_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TILEC_INF (__builtin_inff())
#define TILEC_NAN (__builtin_nanf(""))
""",
    ),
    Snippet(
        "bits",
        r"""
#define TILEC_BITS(name, to, from) \
  TILEC_INLINE to name(from x) { to y; __builtin_memcpy(&y, &x, sizeof y); return y; }
TILEC_BITS(tilec_bits_f32, uint32_t, float)
TILEC_BITS(tilec_from_bits_f32, float, uint32_t)
TILEC_BITS(tilec_bits_f64, uint64_t, double)
TILEC_BITS(tilec_from_bits_f64, double, uint64_t)
""",
    ),
    Snippet(
        "fma",
        r"""
/* One rounding where the processor can, two where a fused operation would be a library call. */
#if defined(__FMA__) || defined(__aarch64__)
#define TILEC_FMAF(a, b, c) __builtin_fmaf((a), (b), (c))
#else
#define TILEC_FMAF(a, b, c) ((a) * (b) + (c))
#endif
""",
    ),
)  # fmt: skip
