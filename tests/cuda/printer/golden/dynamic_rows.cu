typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

static __device__ __forceinline__ float tilec_f16_to_f32(uint16_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}

extern "C" __global__ void __launch_bounds__(128) k_kernel(
    const uint16_t *__restrict__ A,
    float *__restrict__ out,
    const int32_t n,
    const float scale,
    const int32_t stride) {
  const int32_t bx = blockIdx.x;
  const int32_t tx = threadIdx.x;
  if (bx * 4 + (tx >> 5) < n) {
    out[(int64_t)(bx * 4 + (tx >> 5)) * 64 + (int64_t)((tx & 31) * 2)] = tilec_f16_to_f32(A[(int64_t)(bx * 4 + (tx >> 5)) * (int64_t)stride + (int64_t)((tx & 31) * 2)]) * scale;
  }
}
