"""Moving bytes: streaming stores to global memory and prefetching."""

from __future__ import annotations

from tilec_c.prelude.base import Snippet

_STREAM = r"""
/* Write whole lines of 64 bytes without reading them into the cache first: for results larger than
   the last level cache, which nobody will find there anyway. Copies plainly where the destination
   is not aligned to a line, and on processors without such stores. A thread calls the fence after
   its last one, before it tells others that the result is there. */
TILEC_INLINE void tilec_stream(void *dst, const void *src, int64_t bytes) {
#if defined(__AVX__)
  typedef float tilec_half_line __attribute__((vector_size(32)));
  typedef float tilec_half_line_u __attribute__((vector_size(32), aligned(1)));
  if (((uintptr_t)dst & 63) == 0 && (bytes & 63) == 0) {
    for (int64_t i = 0; i < bytes; i += 32) {
      tilec_half_line v = *(const tilec_half_line_u *)((const char *)src + i);
#if defined(__clang__)
      __builtin_nontemporal_store(v, (tilec_half_line *)((char *)dst + i));
#else
      __builtin_ia32_movntps256((float *)((char *)dst + i), v);
#endif
    }
    return;
  }
#endif
  __builtin_memcpy(dst, src, (uint64_t)bytes);
}
TILEC_INLINE void tilec_stream_fence(void) {
#if defined(__AVX__)
  __builtin_ia32_sfence();
#endif
}
"""
_COPY_OUT = r"""
/* tilec_stream for any address and size; tilec_copy_out is the same with its fence. */
TILEC_INLINE void tilec_stream_any(void *dst, const void *src, int64_t bytes) {
  int64_t head = (int64_t)(-(uintptr_t)dst & 63), body = (bytes - head) & ~(int64_t)63;
  if (bytes < 1024) { __builtin_memcpy(dst, src, (uint64_t)bytes); return; }
  __builtin_memcpy(dst, src, (uint64_t)head);
  tilec_stream((char *)dst + head, (const char *)src + head, body);
  int64_t done = head + body;
  __builtin_memcpy((char *)dst + done, (const char *)src + done, (uint64_t)(bytes - done));
}
TILEC_INLINE void tilec_copy_out(void *dst, const void *src, int64_t bytes) {
  tilec_stream_any(dst, src, bytes);
  tilec_stream_fence();
}
"""
_TRANSPOSE8 = r"""
/* An 8 by 8 square of 4-byte elements, transposed in registers; pitches in elements. */
typedef uint32_t tilec_v8 __attribute__((vector_size(32)));
typedef uint32_t tilec_v8u __attribute__((vector_size(32), aligned(4)));
#if defined(__clang__)
#define TILEC_SHUFFLE8(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TILEC_SHUFFLE8(a, b, ...) __builtin_shuffle(a, b, (tilec_v8){__VA_ARGS__})
#endif
#define TILEC_LOW(a, b) TILEC_SHUFFLE8(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define TILEC_HIGH(a, b) TILEC_SHUFFLE8(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define TILEC_LOW2(a, b) TILEC_SHUFFLE8(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define TILEC_HIGH2(a, b) TILEC_SHUFFLE8(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define TILEC_LOW4(a, b) TILEC_SHUFFLE8(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define TILEC_HIGH4(a, b) TILEC_SHUFFLE8(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
TILEC_INLINE void tilec_transpose8(const void *src, int64_t pitch, void *dst, int64_t out) {
  const uint32_t *s = (const uint32_t *)src;
  uint32_t *d = (uint32_t *)dst;
  tilec_v8 r[8], t[8], q[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = *(const tilec_v8u *)(s + i * pitch);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = TILEC_LOW(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = TILEC_HIGH(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    q[4 * i] = TILEC_LOW2(t[4 * i], t[4 * i + 2]);
    q[4 * i + 1] = TILEC_HIGH2(t[4 * i], t[4 * i + 2]);
    q[4 * i + 2] = TILEC_LOW2(t[4 * i + 1], t[4 * i + 3]);
    q[4 * i + 3] = TILEC_HIGH2(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    *(tilec_v8u *)(d + i * out) = TILEC_LOW4(q[i], q[i + 4]);
    *(tilec_v8u *)(d + (i + 4) * out) = TILEC_HIGH4(q[i], q[i + 4]);
  }
}
"""

SNIPPETS = (
    Snippet("stream", _STREAM),
    Snippet("copy_out", _COPY_OUT, ("stream",)),
    Snippet(
        "prefetch",
        r"""
/* Ask for lines that the next iteration reads; harmless for any address. */
TILEC_INLINE void tilec_prefetch(const void *p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)p + i, 0, 2);
}
""",
    ),
    Snippet(
        "fused",
        r"""
/* A function whose products and sums are fused where the processor can, whatever -ffp-contract says
   for the rest of the file. TILEC_FUSE opens its body. */
#if defined(__clang__)
#define TILEC_FUSED static __attribute__((noinline, unused))
#define TILEC_FUSE _Pragma("clang fp contract(fast)")
#else
#define TILEC_FUSED static __attribute__((noinline, unused, optimize("fp-contract=fast")))
#define TILEC_FUSE
#endif
""",
    ),
    Snippet(
        "transpose8",
        _TRANSPOSE8,
    ),
)
