typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

extern "C" __global__ void __launch_bounds__(128) k_kernel(
    const float *__restrict__ A,
    float *__restrict__ out) {
  const int32_t bx = blockIdx.x;
  const int32_t tx = threadIdx.x;
  __shared__ __align__(128) float parts[4];
  float acc = 0.0f;
  #pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
    acc = acc + A[bx * 1024 + (i * 128 + tx)];
  }
  acc = acc + __shfl_xor_sync(0xffffffffu, acc, 16, 32);
  acc = acc + __shfl_xor_sync(0xffffffffu, acc, 8, 32);
  acc = acc + __shfl_xor_sync(0xffffffffu, acc, 4, 32);
  acc = acc + __shfl_xor_sync(0xffffffffu, acc, 2, 32);
  acc = acc + __shfl_xor_sync(0xffffffffu, acc, 1, 32);
  if ((tx & 31) == 0) {
    parts[tx >> 5] = acc;
  }
  __syncthreads();
  if (tx == 0) {
    out[bx] = parts[0] + parts[1] + parts[2] + parts[3];
  }
}
