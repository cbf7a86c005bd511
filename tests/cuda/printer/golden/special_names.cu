typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

extern "C" __global__ void __launch_bounds__(128) k_kernel(
    float *__restrict__ half_1,
    float *__restrict__ v__shared__,
    float *__restrict__ threadIdx_1,
    float *__restrict__ float4_1,
    float *__restrict__ tilec_shared_,
    float *__restrict__ int8_t_,
    float *__restrict__ gru00f6u00dfe,
    float *__restrict__ expf_1) {
  const int32_t tx = threadIdx.x;
  const int32_t warpSize_1 = tx >> 5;
  half_1[tx] = (float)warpSize_1;
  v__shared__[tx] = (float)warpSize_1;
  threadIdx_1[tx] = (float)warpSize_1;
  float4_1[tx] = (float)warpSize_1;
  tilec_shared_[tx] = (float)warpSize_1;
  int8_t_[tx] = (float)warpSize_1;
  gru00f6u00dfe[tx] = (float)warpSize_1;
  expf_1[tx] = (float)warpSize_1;
}
