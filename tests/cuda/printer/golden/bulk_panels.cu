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
struct __align__(64) tilec_tensor_map { uint64_t opaque[16]; };
static __device__ __forceinline__ void tilec_bulk_load_2d(void *to, const tilec_tensor_map *map, uint64_t *bar,
    int32_t c0, int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4}], [%2];"
               : : "r"(tilec_shared_address(to)), "l"(map),
                 "r"(tilec_shared_address(bar)), "r"(c0), "r"(c1) : "memory");
}
static __device__ __forceinline__ void tilec_bulk_store_2d(const tilec_tensor_map *map, const void *from,
    int32_t c0, int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
               " [%0, {%2, %3}], [%1];"
               : : "l"(map), "r"(tilec_shared_address(from)),
                 "r"(c0), "r"(c1) : "memory");
}
static __device__ __forceinline__ void tilec_mbarrier_arrive_expect_tx(uint64_t *bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"(tilec_shared_address(bar)), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void tilec_mbarrier_init(uint64_t *bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               : : "r"(tilec_shared_address(bar)), "r"(count) : "memory");
}
static __device__ __forceinline__ void tilec_mbarrier_wait_parity(uint64_t *bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(tilec_shared_address(bar)), "r"(parity) : "memory");
  } while (!done);
}

extern "C" __global__ void __launch_bounds__(128) k_kernel(
    const __grid_constant__ tilec_tensor_map a_map,
    const __grid_constant__ tilec_tensor_map out_map,
    uint16_t *__restrict__ a,
    uint16_t *__restrict__ out) {
  const int32_t bx = blockIdx.x;
  const int32_t tx = threadIdx.x;
  __shared__ __align__(1024) uint16_t s[4096];
  __shared__ __align__(8) uint64_t bars[1];
  if (tx == 0) {
    tilec_mbarrier_init(bars, 1);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (tx == 0) {
    tilec_mbarrier_arrive_expect_tx(bars, 4096);
    tilec_bulk_load_2d(&s[2048], &a_map, bars, bx * 128, bx * 16);
    tilec_bulk_load_2d(&s[3072], &a_map, bars, bx * 128 + 64, bx * 16);
  }
  tilec_mbarrier_wait_parity(bars, 0);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (tx == 0) {
    tilec_bulk_store_2d(&out_map, &s[2048], bx * 128, bx * 16);
    tilec_bulk_store_2d(&out_map, &s[3072], bx * 128 + 64, bx * 16);
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
