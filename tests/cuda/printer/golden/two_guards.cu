typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

struct __align__(16) tilec_vec_i32_4 { int32_t v[4]; };

extern "C" __global__ void __launch_bounds__(128) k_kernel(
    const int32_t *__restrict__ a0,
    int32_t *__restrict__ out) {
  const int32_t tx = threadIdx.x;
  const tilec_vec_i32_4 a0_v = tx < 100 || tx > 50 ? *(const tilec_vec_i32_4 *)&a0[tx * 32] : tilec_vec_i32_4{};
  tilec_vec_i32_4 out_v;
  #pragma unroll
  for (int32_t v = 0; v < 4; ++v) {
    out_v.v[v] = (int32_t)((uint32_t)(tx < 100 ? a0_v.v[v] : 7) + (uint32_t)(tx > 50 ? a0_v.v[v] : 1));
  }
  *(tilec_vec_i32_4 *)&out[tx * 32] = out_v;
}
