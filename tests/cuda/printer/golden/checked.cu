typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

extern "C" __global__ void __launch_bounds__(128) k_kernel(const int32_t *__restrict__ A) {
  const int32_t tx = threadIdx.x;
  if (!(A[tx] >= 0)) {
    printf("100 %% of \"A\" is positive\n");
    __trap();
  }
}
