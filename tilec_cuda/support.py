"""The C text behind generated launches: the driver, found by dlopen, and what is done with it."""

from __future__ import annotations

_HEAD = r"""
/* The driver API, as far as it is used; layouts and numbers are those of cuda.h. */
extern void* dlopen(const char*, int);
extern void* dlsym(void*, const char*);
extern int sched_yield(void);
extern void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) __attribute__((weak));

typedef struct {
  int id, unused;
  union { uint64_t all[8]; uint32_t cluster[3]; int32_t flag; } value;
} CUlaunchAttribute;
typedef struct {
  uint32_t grid[3], block[3], shared;
  void* stream;
  CUlaunchAttribute* attributes;
  uint32_t count;
} CUlaunchConfig;
_Static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56, "layouts");

#define TILEC_DRIVER(X) \
  X(cuInit, (unsigned)) \
  X(cuGetErrorName, (int, const char**)) \
  X(cuGetErrorString, (int, const char**)) \
  X(cuDeviceGetCount, (int*)) \
  X(cuDeviceGetAttribute, (int*, int, int)) \
  X(cuDevicePrimaryCtxRetain, (void**, int)) \
  X(cuCtxGetCurrent, (void**)) \
  X(cuCtxGetDevice, (int*)) \
  X(cuCtxPushCurrent_v2, (void*)) \
  X(cuCtxPopCurrent_v2, (void**)) \
  X(cuLibraryLoadData, (void**, const void*, void*, void*, unsigned, void*, void*, unsigned)) \
  X(cuLibraryGetKernel, (void**, void*, const char*)) \
  X(cuKernelGetFunction, (void**, void*)) \
  X(cuKernelGetAttribute, (int*, int, void*, int)) \
  X(cuKernelSetAttribute, (int, int, void*, int)) \
  X(cuStreamIsCapturing, (void*, int*)) \
  X(cuMemAllocAsync, (uint64_t*, size_t, void*)) \
  X(cuMemFreeAsync, (uint64_t, void*)) \
  X(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void*)) \
  X(cuLaunchKernelEx, (const CUlaunchConfig*, void*, void**, void**))
/* Needed for tensor maps only; older drivers do without. */
#define TILEC_OPTIONAL(X) \
  X(cuTensorMapEncodeTiled, (void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, \
                             const uint32_t*, const uint32_t*, int, int, int, int)) \
  X(cuFuncLoad, (void*))

#define TILEC_FIELD(name, arguments) int (*name) arguments;
static struct { TILEC_DRIVER(TILEC_FIELD) TILEC_OPTIONAL(TILEC_FIELD) } cu;

enum { TILEC_DEVICES = 64 };

typedef struct {
  const char* name;
  int64_t shared;  /* dynamic shared memory; -1 where only the call tells */
  int large_cluster;
  void* handle;
  unsigned char ready[TILEC_DEVICES];
} tilec_kernel;

typedef struct {
  tilec_kernel* kernel;
  int64_t grid[3], block[3], cluster[3], shared;
  int blocks, cooperative, programmatic, device;
} tilec_config;

typedef struct { int pushed; } tilec_scope;
typedef struct { uint64_t address; void* stream; int taken; } tilec_scratch;
typedef struct {
  unsigned char bits[128] __attribute__((aligned(128)));
  uint64_t key[12];
  int known;
} tilec_map;
"""

_TAIL = r"""
static const char* tilec_driver_path = "libcuda.so.1";
static const void* tilec_given_image;
extern const unsigned char tilec_image[] __attribute__((weak));
static void* tilec_library;
static void* tilec_contexts[TILEC_DEVICES];
static int tilec_shared_limit[TILEC_DEVICES];
static int tilec_lock, tilec_started;

TILEC_EXPORT void tilec_cuda_set_image(const void* image) { tilec_given_image = image; }
TILEC_EXPORT void tilec_cuda_set_driver(const char* path) { tilec_driver_path = path; }

static void tilec_acquire(void) {
  while (__atomic_exchange_n(&tilec_lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}
static void tilec_release_lock(int* unused) {
  (void)unused;
  __atomic_store_n(&tilec_lock, 0, __ATOMIC_RELEASE);
}
#define TILEC_LOCKED \
  int locked __attribute__((cleanup(tilec_release_lock), unused)) = (tilec_acquire(), 1)

TILEC_COLD int tilec_driver_failed(void* self, const char* kernel, const char* what,
                                   const char* call, int status) {
  const char *name = NULL, *text = NULL;
  if (cu.cuGetErrorName(status, &name) || !name) name = "unknown CUDA error";
  if (cu.cuGetErrorString(status, &text) || !text) text = "the driver has no text for it";
  return tilec_fail(self, "RuntimeError", "kernel %s: %s: %s: %s (%s, status %d)", kernel, what,
                    name, text, call, status);
}

/* Looks the driver up and initialises it. */
TILEC_COLD int tilec_start(void* self, const char* kernel) {
  TILEC_LOCKED;
  if (tilec_started) return 0;
  void* driver = dlopen(tilec_driver_path, 2 /* RTLD_NOW */);
  if (!driver)
    return tilec_fail(self, "RuntimeError", "kernel %s: the CUDA driver %s was not found", kernel,
                      tilec_driver_path);
#define TILEC_FIND(name, arguments) \
  *(void**)&cu.name = dlsym(driver, #name); \
  if (!cu.name) \
    return tilec_fail(self, "RuntimeError", \
                      "kernel %s: the CUDA driver has no " #name ": it is too old", kernel);
#define TILEC_TRY(name, arguments) *(void**)&cu.name = dlsym(driver, #name);
  TILEC_DRIVER(TILEC_FIND)
  TILEC_OPTIONAL(TILEC_TRY)
  const int status = cu.cuInit(0);
  if (status)
    return tilec_driver_failed(self, kernel, "the driver cannot be started", "cuInit", status);
  __atomic_store_n(&tilec_started, 1, __ATOMIC_RELEASE);
  return 0;
}

/* Loads the image, and one kernel on the current device. */
TILEC_COLD int tilec_load(void* self, const char* kernel, int device, void* stream,
                          tilec_kernel* k) {
  TILEC_LOCKED;
  if (k->ready[device]) return 0;
  int capturing = 0, status = cu.cuStreamIsCapturing(stream, &capturing);
  if (status == 906 /* another stream captures, and this one is the default stream */) {
    status = 0;
    capturing = 1;
  }
  if (status)
    return tilec_driver_failed(self, kernel, "the stream is not usable", "cuStreamIsCapturing",
                               status);
  if (capturing)
    return tilec_fail(self, "RuntimeError",
                      "kernel %s: its first call on device %d is in a graph capture, where nothing "
                      "may be loaded; call it once before", kernel, device);
  if (!tilec_library) {
    const void* image = tilec_given_image ? tilec_given_image : tilec_image;
    if (!image)
      return tilec_fail(self, "RuntimeError", "kernel %s: the library has no device code", kernel);
    status = cu.cuLibraryLoadData(&tilec_library, image, NULL, NULL, 0, NULL, NULL, 0);
    if (status) {
      tilec_library = NULL;
      return tilec_driver_failed(self, kernel, "the device code cannot be loaded",
                                 "cuLibraryLoadData", status);
    }
  }
  if (!k->handle) {
    status = cu.cuLibraryGetKernel(&k->handle, tilec_library, k->name);
    if (status) {
      k->handle = NULL;
      return tilec_driver_failed(self, kernel, "the device code lacks the kernel",
                                 "cuLibraryGetKernel", status);
    }
  }
  int limit = 0, fixed = 0;
  status = cu.cuDeviceGetAttribute(&limit, 97, device);
  if (!status) status = cu.cuKernelGetAttribute(&fixed, 1, k->handle, device);
  if (status)
    return tilec_driver_failed(self, kernel, "the device cannot be asked", "cuDeviceGetAttribute",
                               status);
  limit -= fixed;
  tilec_shared_limit[device] = limit;
  const int64_t shared = k->shared < 0 ? limit : k->shared;
  if (shared > limit)
    return tilec_fail(self, "RuntimeError",
                      "kernel %s: a block needs %lld bytes of shared memory, device %d has %d",
                      kernel, (long long)shared + fixed, device, limit + fixed);
  if (shared > 48 * 1024 - fixed) {
    status = cu.cuKernelSetAttribute(8, (int)shared, k->handle, device);
    if (status)
      return tilec_driver_failed(self, kernel, "shared memory is refused", "cuKernelSetAttribute",
                                 status);
  }
  if (k->large_cluster) {
    status = cu.cuKernelSetAttribute(14, 1, k->handle, device);
    if (status)
      return tilec_driver_failed(self, kernel, "a cluster of this size is refused",
                                 "cuKernelSetAttribute", status);
  }
  void* function = NULL;
  status = cu.cuKernelGetFunction(&function, k->handle);
  if (!status && cu.cuFuncLoad) status = cu.cuFuncLoad(function);
  if (status)
    return tilec_driver_failed(self, kernel, "the device code cannot be loaded",
                               "cuKernelGetFunction", status);
  __atomic_store_n(&k->ready[device], 1, __ATOMIC_RELEASE);
  return 0;
}

static void tilec_leave(tilec_scope* scope) {
  void* context = NULL;
  if (scope->pushed) cu.cuCtxPopCurrent_v2(&context);
}

/* Makes a context of the device current: the caller's if it is one, else the primary one. */
static int tilec_enter(void* self, const char* kernel, int device, void* stream,
                       tilec_config* config, tilec_scope* scope) {
  if (TILEC_UNLIKELY(!__atomic_load_n(&tilec_started, __ATOMIC_ACQUIRE)) &&
      tilec_start(self, kernel))
    return -1;
  void* current = NULL;
  int at = -1, status = cu.cuCtxGetCurrent(&current);
  if (!status && current) status = cu.cuCtxGetDevice(&at);
  if (TILEC_UNLIKELY(status))
    return tilec_driver_failed(self, kernel, "there is no context", "cuCtxGetCurrent", status);
  if (device < 0) device = current ? at : 0;
  if (TILEC_UNLIKELY(device >= TILEC_DEVICES))
    return tilec_fail(self, "ValueError", "kernel %s: device index %d is too large", kernel,
                      device);
  if (at != device) {
    void* primary = __atomic_load_n(&tilec_contexts[device], __ATOMIC_ACQUIRE);
    if (!primary) {
      status = cu.cuDevicePrimaryCtxRetain(&primary, device);
      if (status)
        return tilec_driver_failed(self, kernel, "the device has no context",
                                   "cuDevicePrimaryCtxRetain", status);
      __atomic_store_n(&tilec_contexts[device], primary, __ATOMIC_RELEASE);
    }
    status = cu.cuCtxPushCurrent_v2(primary);
    if (TILEC_UNLIKELY(status))
      return tilec_driver_failed(self, kernel, "the device has no context", "cuCtxPushCurrent",
                                 status);
    scope->pushed = 1;
  }
  config->device = device;
  if (TILEC_UNLIKELY(!__atomic_load_n(&config->kernel->ready[device], __ATOMIC_ACQUIRE)))
    return tilec_load(self, kernel, device, stream, config->kernel);
  return 0;
}

/* Loads all kernels on a device ahead of the first call. */
TILEC_EXPORT int tilec_cuda_prepare(int device) {
  void* const self = (void*)&tilec_host_caller;
  for (int n = 0; n < TILEC_KERNELS; ++n) {
    tilec_config config = {0};
    tilec_scope scope __attribute__((cleanup(tilec_leave))) = {0};
    config.kernel = &tilec_kernels[n];
    if (tilec_enter(self, tilec_kernels[n].name, device, NULL, &config, &scope)) return -1;
  }
  return 0;
}

static inline void* tilec_stream_of(void* self, const TVMFFIAny* result, int device) {
  if (self == (const void*)&tilec_host_caller) return result ? result->v_ptr : NULL;
  return TVMFFIEnvGetStream ? TVMFFIEnvGetStream(2, device < 0 ? 0 : device) : NULL;
}

/* Whether the launch cannot be; sets `blocks` where there is something to launch. */
static int tilec_check_grid(void* self, const char* kernel, tilec_config* config) {
  static const int64_t most[3] = {INT32_MAX, 65535, 65535};
  config->blocks = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t extent = config->grid[axis];
    if (TILEC_UNLIKELY(extent < 0 || extent > most[axis]))
      return tilec_fail(self, "ValueError",
                        "kernel %s: grid[%d] expected 0 to %lld blocks, got %lld", kernel, axis,
                        (long long)most[axis], (long long)extent);
    if (extent == 0) config->blocks = 0;
    const int64_t cluster = config->cluster[axis];
    if (TILEC_UNLIKELY(cluster > 1 && extent % cluster))
      return tilec_fail(self, "ValueError",
                        "kernel %s: grid[%d] expected a multiple of the cluster's %lld blocks, got "
                        "%lld", kernel, axis, (long long)cluster, (long long)extent);
  }
  return 0;
}

TILEC_COLD int tilec_launch_failed(void* self, const char* kernel, const tilec_config* c,
                                   int status) {
  char what[160];
  __builtin_snprintf(what, sizeof what,
                     "the launch of %lld x %lld x %lld blocks of %lld threads with %lld bytes of "
                     "shared memory failed", (long long)c->grid[0], (long long)c->grid[1],
                     (long long)c->grid[2], (long long)(c->block[0] * c->block[1] * c->block[2]),
                     (long long)c->shared);
  return tilec_driver_failed(self, kernel, what, "cuLaunchKernelEx", status);
}

static int tilec_launch(void* self, const char* kernel, void* stream, const tilec_config* c,
                        void** params) {
  if (TILEC_UNLIKELY(c->shared < 0 || c->shared > tilec_shared_limit[c->device]))
    return tilec_fail(self, "RuntimeError",
                      "kernel %s: a block needs %lld bytes of shared memory, device %d has %d",
                      kernel, (long long)c->shared, c->device, tilec_shared_limit[c->device]);
  CUlaunchAttribute attributes[3];
  CUlaunchConfig config = {
      {(uint32_t)c->grid[0], (uint32_t)c->grid[1], (uint32_t)c->grid[2]},
      {(uint32_t)c->block[0], (uint32_t)c->block[1], (uint32_t)c->block[2]},
      (uint32_t)c->shared, stream, attributes, 0};
  if (c->cluster[0]) {
    CUlaunchAttribute* a = &attributes[config.count++];
    *a = (CUlaunchAttribute){.id = 4};
    for (int axis = 0; axis < 3; ++axis) a->value.cluster[axis] = (uint32_t)c->cluster[axis];
  }
  if (c->cooperative)
    attributes[config.count++] = (CUlaunchAttribute){.id = 2, .value.flag = 1};
  if (c->programmatic)
    attributes[config.count++] = (CUlaunchAttribute){.id = 6, .value.flag = 1};
  const int status = cu.cuLaunchKernelEx(&config, c->kernel->handle, params, NULL);
  return TILEC_UNLIKELY(status) ? tilec_launch_failed(self, kernel, c, status) : 0;
}

/* Encodes a tensor map unless it is the one of last time. key: device, address, extents from the
   last dimension on, and strides in bytes of all but the last dimension. */
__attribute__((unused)) static int tilec_encode(
    void* self, const char* kernel, const char* name, tilec_map* map, const uint64_t* key, int rank,
    int dtype, int item, const uint32_t* box, int swizzle) {
  static const uint32_t ones[5] = {1, 1, 1, 1, 1};
  const size_t bytes = sizeof(uint64_t) * (size_t)(1 + 2 * rank);
  if (map->known && __builtin_memcmp(map->key, key, bytes) == 0) return 0;
  const uint64_t *extents = key + 2, *strides = key + 2 + rank;
  for (int axis = 0; axis < rank; ++axis)
    if (extents[axis] == 0 || extents[axis] > UINT64_C(1) << 32)
      return tilec_fail(self, "ValueError",
                        "kernel %s: argument %s: shape[%d] expected 1 to 2**32 elements, which the "
                        "copy engine can describe, got %lld", kernel, name, rank - 1 - axis,
                        (long long)extents[axis]);
  uint64_t steps[4] = {0};
  for (int axis = 0; axis < rank - 1; ++axis) {
    /* The step along an extent of 1 means nothing, but has to be a legal one. */
    steps[axis] = extents[axis + 1] == 1 ? 16 : strides[axis];
    if (steps[axis] % 16 || steps[axis] >= UINT64_C(1) << 40)
      return tilec_fail(self, "ValueError",
                        "kernel %s: argument %s: strides[%d] expected a multiple of 16 bytes for "
                        "the copy engine, got %lld elements of %d bytes", kernel, name,
                        rank - 2 - axis, (long long)strides[axis] / item, item);
  }
  if (!cu.cuTensorMapEncodeTiled)
    return tilec_fail(self, "RuntimeError",
                      "kernel %s: the CUDA driver has no cuTensorMapEncodeTiled: it is too old",
                      kernel);
  const int status = cu.cuTensorMapEncodeTiled(
      map->bits, dtype, (uint32_t)rank, (void*)(uintptr_t)key[1], extents, steps, box, ones, 0,
      swizzle, 2, 0);
  map->known = 0;
  if (status)
    return tilec_driver_failed(self, kernel, "a tensor cannot be described to the copy engine",
                               "cuTensorMapEncodeTiled", status);
  __builtin_memcpy(map->key, key, bytes);
  map->known = 1;
  return 0;
}

__attribute__((unused)) static void tilec_free(tilec_scratch* scratch) {
  if (scratch->taken) cu.cuMemFreeAsync(scratch->address, scratch->stream);
}

/* Scratch memory in the order of the stream: a node of the graph where one is captured. */
__attribute__((unused)) static int tilec_allocate(
    void* self, const char* kernel, const char* name, void* stream, int64_t bytes, int fill,
    tilec_scratch* scratch) {
  if (bytes <= 0) return 0;
  int status = cu.cuMemAllocAsync(&scratch->address, (size_t)bytes, stream);
  if (status) {
    char what[160];
    __builtin_snprintf(what, sizeof what, "%lld bytes of scratch memory (%s) cannot be had",
                       (long long)bytes, name);
    return tilec_driver_failed(self, kernel, what, "cuMemAllocAsync", status);
  }
  scratch->stream = stream;
  scratch->taken = 1;
  if (fill < 0) return 0;
  status = cu.cuMemsetD8Async(scratch->address, (unsigned char)fill, (size_t)bytes, stream);
  if (status)
    return tilec_driver_failed(self, kernel, "scratch memory cannot be filled", "cuMemsetD8Async",
                               status);
  return 0;
}
"""

SUPPORT: tuple[str, str] = (_HEAD, _TAIL)
"""What comes before and after the table of kernels."""
