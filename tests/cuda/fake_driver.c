/* A CUDA driver on host memory, for tests: it records launches and fails when it is told to.

   Device memory is host memory. A kernel is known by the name it is asked for; how its parameters
   look is told by fake_signature. Settings and records are plain global state of one process. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int id, pad; union { uint64_t all[8]; uint32_t words[16]; } value; } attribute;
typedef struct {
  uint32_t grid[3], block[3], shared;
  void* stream;
  attribute* attributes;
  uint32_t count;
} config;

enum { DEVICES = 4, KERNELS = 64, LAUNCHES = 64, PARAMS = 32, BYTES = 128, RULES = 16 };

typedef struct { char name[128]; int sizes[PARAMS], count, attributes[DEVICES][32], loaded; } kernel;
typedef struct {
  char name[128];
  uint32_t grid[3], block[3], shared, cluster[3];
  int cooperative, programmatic, device, count, sizes[PARAMS];
  void* stream;
  unsigned char params[PARAMS][BYTES];
} launch;
typedef struct { char name[64]; int status, after; } rule;

static kernel kernels[KERNELS];
static int kernel_count;
static launch launches[LAUNCHES];
static int launch_count;
static rule rules[RULES];
static int rule_count;
static int devices = 1, major = 9, minor = 0, shared_limit = 232448, image_count, encodes;
static int64_t allocated;
static char log_text[1 << 16];
static size_t log_size;
static _Thread_local void* stack[16] = {0};
static _Thread_local int depth;
static int contexts[DEVICES];
static void* capturing;
static float clock_ms;

static void note(const char* name) {
  const size_t size = strlen(name);
  if (log_size + size + 2 > sizeof log_text) return;
  memcpy(log_text + log_size, name, size);
  log_size += size;
  log_text[log_size++] = ' ';
  log_text[log_size] = 0;
}

static int entered(const char* name) {
  note(name);
  for (int n = 0; n < rule_count; ++n)
    if (!strcmp(rules[n].name, name)) {
      if (rules[n].after > 0) --rules[n].after;
      else if (rules[n].after == 0) return rules[n].status;
    }
  return 0;
}
#define ENTER(name) do { int bad = entered(name); if (bad) return bad; } while (0)

/* --- for the tests ---------------------------------------------------------------------------- */

void fake_reset(void) {
  launch_count = rule_count = image_count = encodes = 0;
  for (int n = 0; n < kernel_count; ++n) memset(kernels[n].attributes, 0, sizeof kernels[n].attributes);
  devices = 1, major = 9, minor = 0, shared_limit = 232448;
  capturing = NULL, clock_ms = 0, log_text[0] = 0, log_size = 0;
  depth = 0;
}
void fake_devices(int count, int a, int b, int shared) {
  devices = count, major = a, minor = b, shared_limit = shared;
}
void fake_fail(const char* name, int status, int after) {
  rule* r = &rules[rule_count++];
  snprintf(r->name, sizeof r->name, "%s", name);
  r->status = status, r->after = after;
}
void fake_heal(void) { rule_count = 0; }
void fake_capture(void* stream) { capturing = stream; }
static kernel* find(const char* name) {
  for (int n = 0; n < kernel_count; ++n)
    if (!strcmp(kernels[n].name, name)) return &kernels[n];
  if (kernel_count == KERNELS) abort();
  kernel* k = &kernels[kernel_count++];
  snprintf(k->name, sizeof k->name, "%s", name);
  return k;
}
void fake_signature(const char* name, int count, const int* sizes) {
  kernel* k = find(name);
  k->count = count;
  memcpy(k->sizes, sizes, sizeof(int) * (size_t)count);
}
int fake_launches(void) { return launch_count; }
const launch* fake_launch(int n) { return &launches[n]; }
int fake_launch_size(void) { return sizeof(launch); }
int fake_images(void) { return image_count; }
int fake_encodes(void) { return encodes; }
int64_t fake_allocated(void) { return allocated; }
const char* fake_log(void) { return log_text; }
void fake_clear_log(void) { log_text[0] = 0, log_size = 0; }
int fake_attribute(const char* name, int device, int attribute) {
  return find(name)->attributes[device][attribute];
}
int fake_depth(void) { return depth; }
void fake_set_current(int device) {
  depth = 0;
  if (device >= 0) stack[depth++] = &contexts[device];
}

/* --- the driver ------------------------------------------------------------------------------- */

int cuInit(unsigned flags) { (void)flags; ENTER("cuInit"); return 0; }
int cuDriverGetVersion(int* out) { *out = 13000; return 0; }
static const struct { int status; const char *name, *text; } errors[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
};
static int text_of(int status, const char** out, int name) {
  for (unsigned n = 0; n < sizeof errors / sizeof *errors; ++n)
    if (errors[n].status == status) { *out = name ? errors[n].name : errors[n].text; return 0; }
  *out = NULL;
  return 1;
}
int cuGetErrorName(int status, const char** out) { return text_of(status, out, 1); }
int cuGetErrorString(int status, const char** out) { return text_of(status, out, 0); }
int cuDeviceGetCount(int* out) { ENTER("cuDeviceGetCount"); *out = devices; return 0; }
int cuDeviceGet(int* out, int ordinal) { *out = ordinal; return ordinal < devices ? 0 : 101; }
int cuDeviceGetName(char* out, int size, int device) {
  snprintf(out, (size_t)size, "Fake Device %d", device);
  return 0;
}
int cuDeviceGetAttribute(int* out, int attribute, int device) {
  ENTER("cuDeviceGetAttribute");
  if (device < 0 || device >= devices) return 1;
  *out = attribute == 75 ? major : attribute == 76 ? minor : attribute == 97 ? shared_limit
         : attribute == 16 ? 132 : attribute == 38 ? 1 << 20 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** out, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  if (device < 0 || device >= devices) return 1;
  *out = &contexts[device];
  return 0;
}
int cuCtxGetCurrent(void** out) { ENTER("cuCtxGetCurrent"); *out = depth ? stack[depth - 1] : NULL; return 0; }
int cuCtxGetDevice(int* out) {
  if (!depth) return 201;
  *out = (int)((int*)stack[depth - 1] - contexts);
  return 0;
}
int cuCtxPushCurrent_v2(void* context) { ENTER("cuCtxPushCurrent"); stack[depth++] = context; return 0; }
int cuCtxPopCurrent_v2(void** out) { note("cuCtxPopCurrent"); *out = depth ? stack[--depth] : NULL; return 0; }
int cuCtxSynchronize(void) { ENTER("cuCtxSynchronize"); return depth ? 0 : 201; }
int cuPointerGetAttribute(void* out, int attribute, uint64_t address) {
  (void)attribute, (void)address;
  *(int*)out = 0;
  return 0;
}
int cuLibraryLoadData(void** out, const void* image, void* a, void* b, unsigned c, void* d, void* e,
                      unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  ENTER("cuLibraryLoadData");
  if (!image || (memcmp(image, "\177ELF", 4) && memcmp(image, "//", 2) && memcmp(image, "FAKE", 4)))
    return 209;
  ++image_count;
  *out = &image_count;
  return 0;
}
int cuLibraryUnload(void* library) { (void)library; return 0; }
int cuLibraryGetKernel(void** out, void* library, const char* name) {
  (void)library;
  ENTER("cuLibraryGetKernel");
  *out = find(name);
  return 0;
}
int cuKernelGetFunction(void** out, void* k) {
  ENTER("cuKernelGetFunction");
  *out = k;
  return depth ? 0 : 201;
}
int cuFuncLoad(void* k) { ((kernel*)k)->loaded = 1; return 0; }
int cuKernelGetAttribute(int* out, int attribute, void* k, int device) {
  *out = ((kernel*)k)->attributes[device][attribute];
  return 0;
}
int cuKernelSetAttribute(int attribute, int value, void* k, int device) {
  ENTER("cuKernelSetAttribute");
  ((kernel*)k)->attributes[device][attribute] = value;
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, void* k, int block, size_t shared) {
  (void)k, (void)block, (void)shared;
  *out = 1;
  return 0;
}
int cuLaunchKernelEx(const config* c, void* function, void** params, void** extra) {
  (void)extra;
  ENTER("cuLaunchKernelEx");
  if (!depth) return 201;
  kernel* k = function;
  if (launch_count == LAUNCHES) launch_count = 0;
  launch* l = &launches[launch_count++];
  memset(l, 0, sizeof *l);
  snprintf(l->name, sizeof l->name, "%s", k->name);
  memcpy(l->grid, c->grid, sizeof l->grid);
  memcpy(l->block, c->block, sizeof l->block);
  l->shared = c->shared, l->stream = c->stream;
  l->device = (int)((int*)stack[depth - 1] - contexts);
  for (uint32_t n = 0; n < c->count; ++n) {
    const attribute* a = &c->attributes[n];
    if (a->id == 2) l->cooperative = (int)a->value.words[0];
    else if (a->id == 4) memcpy(l->cluster, a->value.words, sizeof l->cluster);
    else if (a->id == 6) l->programmatic = (int)a->value.words[0];
    else return 1;
  }
  if ((int)c->shared > 49152 && (int)c->shared > k->attributes[l->device][8]) return 1;
  l->count = k->count;
  for (int n = 0; n < k->count; ++n) {
    l->sizes[n] = k->sizes[n];
    memcpy(l->params[n], params[n], (size_t)k->sizes[n]);
  }
  return 0;
}
int cuTensorMapEncodeTiled(void* map, int dtype, uint32_t rank, void* address, const uint64_t* dims,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                           int interleave, int swizzle, int promotion, int oob) {
  ENTER("cuTensorMapEncodeTiled");
  ++encodes;
  if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || rank < 1 || rank > 5) return 1;
  uint32_t* out = map;
  memset(map, 0, 128);
  out[0] = (uint32_t)dtype, out[1] = rank, out[2] = (uint32_t)swizzle, out[3] = (uint32_t)promotion;
  memcpy(out + 4, &address, 8);
  for (uint32_t n = 0; n < rank; ++n) {
    if (!dims[n] || !box[n] || box[n] > 256 || steps[n] != 1 || interleave || oob) return 1;
    out[6 + n] = (uint32_t)dims[n];
    out[11 + n] = box[n];
    if (n + 1 < rank) {
      if (strides[n] % 16) return 1;
      out[16 + n] = (uint32_t)strides[n];
    }
  }
  return 0;
}
int cuMemAlloc_v2(uint64_t* out, size_t size) {
  ENTER("cuMemAlloc");
  *out = (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
  ++allocated;
  return 0;
}
int cuMemFree_v2(uint64_t address) { free((void*)(uintptr_t)address); --allocated; return 0; }
int cuMemAllocAsync(uint64_t* out, size_t size, void* stream) {
  (void)stream;
  ENTER("cuMemAllocAsync");
  return cuMemAlloc_v2(out, size);
}
int cuMemFreeAsync(uint64_t address, void* stream) {
  (void)stream;
  note("cuMemFreeAsync");
  return cuMemFree_v2(address);
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void* stream) {
  (void)stream;
  ENTER("cuMemsetD8Async");
  memset((void*)(uintptr_t)address, value, size);
  clock_ms += 100;
  return 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) { memcpy((void*)(uintptr_t)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) { memcpy(to, (void*)(uintptr_t)from, size); return 0; }
int cuStreamCreate(void** out, unsigned flags) { (void)flags; *out = malloc(8); return 0; }
int cuStreamDestroy_v2(void* stream) { free(stream); return 0; }
int cuStreamSynchronize(void* stream) { (void)stream; ENTER("cuStreamSynchronize"); return 0; }
int cuStreamIsCapturing(void* stream, int* out) {
  ENTER("cuStreamIsCapturing");
  *out = capturing && capturing == stream;
  return 0;
}
int cuStreamBeginCapture_v2(void* stream, int mode) { (void)mode; ENTER("cuStreamBeginCapture"); capturing = stream; return 0; }
int cuStreamEndCapture(void* stream, void** graph) { (void)stream; ENTER("cuStreamEndCapture"); capturing = NULL; *graph = malloc(8); return 0; }
int cuGraphInstantiateWithFlags(void** out, void* graph, unsigned long long flags) { (void)graph, (void)flags; *out = malloc(8); return 0; }
int cuGraphLaunch(void* graph, void* stream) { (void)graph, (void)stream; ENTER("cuGraphLaunch"); clock_ms += 3; return 0; }
int cuGraphExecDestroy(void* graph) { free(graph); return 0; }
int cuGraphDestroy(void* graph) { free(graph); return 0; }
int cuEventCreate(void** out, unsigned flags) { (void)flags; *out = calloc(1, sizeof(float)); return 0; }
int cuEventRecord(void* event, void* stream) { (void)stream; ENTER("cuEventRecord"); *(float*)event = clock_ms; return 0; }
int cuEventSynchronize(void* event) { (void)event; return 0; }
int cuEventElapsedTime(float* out, void* start, void* stop) { *out = *(float*)stop - *(float*)start; return 0; }
int cuEventDestroy_v2(void* event) { free(event); return 0; }
void fake_tick(float ms) { clock_ms += ms; }
