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
static __device__ __forceinline__ uint64_t tilec_matrix_descriptor(const void *p, uint64_t form) {
  return form | (tilec_shared_address(p) & 0x3ffff) >> 4;
}
static __device__ __forceinline__ void tilec_wgmma_m64n32k16_f32_bf16_bf16(float *c, uint64_t a, uint64_t b, uint32_t more) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;"
               " wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16"
               " {%0, %1, %2, %3, %4, %5, %6, %7,"
               "   %8, %9, %10, %11, %12, %13, %14, %15},"
               " %16, %17, p, 1, 1, 0, 0; }"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                 "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
               : "l"(a), "l"(b), "r"(more));
}

extern "C" __global__ void __launch_bounds__(128) k_kernel(
    const uint16_t *__restrict__ in_a,
    const uint16_t *__restrict__ in_b,
    float *__restrict__ out) {
  const int32_t tx = threadIdx.x;
  __shared__ __align__(1024) uint16_t a[4096];
  for (int32_t i = 0; i < 32; ++i) {
    a[(i * 2 + (tx >> 6)) * 64 + ((((tx & 63) >> 3) ^ ((i * 2 + (tx >> 6)) & 7)) * 8 + (tx & 7))] = in_a[((i * 128 + tx) >> 6) * 64 + ((i * 128 + tx) & 63)];
  }
  __shared__ __align__(1024) uint16_t b[2048];
  for (int32_t i_1 = 0; i_1 < 16; ++i_1) {
    b[(i_1 * 2 + (tx >> 6)) * 64 + ((((tx & 63) >> 3) ^ ((i_1 * 2 + (tx >> 6)) & 7)) * 8 + (tx & 7))] = in_b[((i_1 * 128 + tx) >> 6) * 64 + ((i_1 * 128 + tx) & 63)];
  }
  float c[16];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  #pragma unroll
  for (int32_t i_2 = 0; i_2 < 4; ++i_2) {
    tilec_wgmma_m64n32k16_f32_bf16_bf16(c, tilec_matrix_descriptor(&a[i_2 * 16], 0x4000004000010000ull), tilec_matrix_descriptor(&b[i_2 * 16], 0x4000004000010000ull), i_2 > 0);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int32_t i_3 = 0; i_3 < 16; ++i_3) {
    out[tx * 16 + i_3] = c[i_3];
  }
}
