"""Moving bytes: streaming stores to global memory and prefetching."""

from __future__ import annotations

from tilec_c.prelude.base import Snippet

SNIPPETS = (
    Snippet(
        "copy_out",
        r"""
/* Copy that does not read the destination's lines into the cache first: for results larger than the
   last level cache, which nobody will find in it anyway. Falls back to memcpy. The fence orders the
   streamed stores before whatever the thread publishes next. */
TILEC_INLINE void tilec_copy_out(void *dst, const void *src, int64_t bytes) {
#if defined(__AVX__) && (defined(__GNUC__) || defined(__clang__))
  typedef float tilec_line __attribute__((vector_size(32)));
  typedef float tilec_line_u __attribute__((vector_size(32), aligned(1)));
  char *d = (char *)dst;
  const char *s = (const char *)src;
  int64_t head = (int64_t)(-(uintptr_t)d & 63);
  if (bytes < 1024) { __builtin_memcpy(d, s, (uint64_t)bytes); return; }
  __builtin_memcpy(d, s, (uint64_t)head);
  int64_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    tilec_line a = *(const tilec_line_u *)(s + i), b = *(const tilec_line_u *)(s + i + 32);
#if defined(__clang__)
    __builtin_nontemporal_store(a, (tilec_line *)(d + i));
    __builtin_nontemporal_store(b, (tilec_line *)(d + i + 32));
#else
    __builtin_ia32_movntps256((float *)(d + i), a);
    __builtin_ia32_movntps256((float *)(d + i + 32), b);
#endif
  }
  __builtin_memcpy(d + i, s + i, (uint64_t)(bytes - i));
  __builtin_ia32_sfence();
#else
  __builtin_memcpy(dst, src, (uint64_t)bytes);
#endif
}
""",
    ),
    Snippet(
        "prefetch",
        r"""
/* Ask for lines that the next iteration reads; harmless for any address. */
TILEC_INLINE void tilec_prefetch(const void *p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)p + i, 0, 2);
}
""",
    ),
)
