typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

static __device__ __forceinline__ uint32_t tilec_shared_address(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
static __device__ __forceinline__ void tilec_cp_async_16_if(void *to, const void *from, bool given) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               : : "r"(tilec_shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(given ? 16 : 0)
               : "memory");
}

extern "C" __global__ void __launch_bounds__(128) k_kernel(
    uint16_t *__restrict__ a,
    uint16_t *__restrict__ out,
    const int32_t n) {
  const int32_t tx = threadIdx.x;
  __shared__ __align__(1024) uint16_t s[2048];
  tilec_cp_async_16_if(&s[tx * 8], &a[(0 + tx) * 8], tx < n);
  asm volatile("cp.async.commit_group;" ::: "memory");
  tilec_cp_async_16_if(&s[tx * 8 + 1024], &a[(128 + tx) * 8], tx < n);
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  for (int32_t i = 0; i < 8; ++i) {
    out[tx * 8 + i] = s[(127 - tx) * 8 + i + 1024];
  }
}
