"""The C text that every host library starts with: ABI declarations and error reporting."""

from __future__ import annotations

from tilec.host.abi import DECLARATIONS, FFI_OBJECT_BYTES, TypeIndex, code_names, kind_name

ERROR_KIND = "tilec_host_error_kind"
ERROR_MESSAGE = "tilec_host_error_message"
CALLER = "tilec_host_caller"
"""Exported object; its address as ``self_handle`` says that the caller reads the two getters."""

_HEAD = """\
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

"""

_ERRORS = f"""
#define TILEC_EXPORT __attribute__((visibility("default")))
#define TILEC_COLD static __attribute__((cold, noinline, unused))
#define TILEC_UNLIKELY(x) __builtin_expect(!!(x), 0)

extern void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message)
    __attribute__((weak));

static _Thread_local const char* tilec_kind = "";
static _Thread_local char tilec_message[1024];

TILEC_EXPORT const char {CALLER} = 0;
TILEC_EXPORT const char* {ERROR_KIND}(void) {{ return tilec_kind; }}
TILEC_EXPORT const char* {ERROR_MESSAGE}(void) {{ return tilec_message; }}

TILEC_COLD __attribute__((format(printf, 3, 4)))
int tilec_fail(void* self, const char* kind, const char* format, ...) {{
  va_list rest;
  va_start(rest, format);
  __builtin_vsnprintf(tilec_message, sizeof tilec_message, format, rest);
  va_end(rest);
  tilec_kind = kind;
  if (self != (const void*)&{CALLER} && TVMFFIErrorSetRaisedFromCStr)
    TVMFFIErrorSetRaisedFromCStr(kind, tilec_message);
  return -1;
}}
"""

_CHECKS = f"""
static inline int tilec_as_tensor(const TVMFFIAny* arg, const DLTensor** tensor) {{
  *tensor = (const DLTensor*)arg->v_ptr;
  switch (arg->type_index) {{
    case {TypeIndex.NONE:d}: *tensor = NULL; return 1;
    case {TypeIndex.DLTENSOR_POINTER:d}: return 1;
    case {TypeIndex.TENSOR:d}:
      if (arg->v_ptr) *tensor = (const DLTensor*)((const char*)arg->v_ptr + {FFI_OBJECT_BYTES});
      return 1;
  }}
  return 0;
}}

static inline int tilec_as_int(const TVMFFIAny* arg, int64_t* value) {{
  *value = arg->type_index == {TypeIndex.BOOL:d} ? arg->v_int64 != 0 : arg->v_int64;
  return arg->type_index == {TypeIndex.INT:d} || arg->type_index == {TypeIndex.BOOL:d};
}}

static inline int tilec_as_float(const TVMFFIAny* arg, double* value) {{
  int64_t integer = 0;
  const int is_integer = tilec_as_int(arg, &integer);
  *value = is_integer ? (double)integer : arg->v_float64;
  return is_integer || arg->type_index == {TypeIndex.FLOAT:d};
}}

static inline uint32_t tilec_dtype(DLDataType dtype) {{
  return dtype.code | (uint32_t)dtype.bits << 8 | (uint32_t)dtype.lanes << 16;
}}

TILEC_COLD int tilec_bad_kind(void* self, const char* kernel, const char* name,
                              const char* expected, const TVMFFIAny* arg) {{
  const int is_null = arg->type_index == {TypeIndex.DLTENSOR_POINTER:d} ||
                      arg->type_index == {TypeIndex.TENSOR:d};
  return tilec_fail(self, "TypeError", "kernel %s: argument %s: expected %s, got %s", kernel, name,
                    expected, is_null && !arg->v_ptr ? "a NULL tensor handle"
                                                     : tilec_kind_name(arg->type_index));
}}

TILEC_COLD int tilec_bad_range(void* self, const char* kernel, const char* name,
                               const char* expected, int64_t got) {{
  return tilec_fail(self, "ValueError", "kernel %s: argument %s: expected %s, got %lld", kernel,
                    name, expected, (long long)got);
}}

TILEC_COLD int tilec_bad_field(void* self, const char* kernel, const char* name, const char* field,
                               const char* expected, int64_t got) {{
  return tilec_fail(self, "ValueError", "kernel %s: argument %s: %s expected %s, got %lld", kernel,
                    name, field, expected, (long long)got);
}}

TILEC_COLD int tilec_mismatch(void* self, const char* kernel, const char* name, const char* field,
                              int64_t expected, const char* why, int64_t got) {{
  return tilec_fail(self, "ValueError", "kernel %s: argument %s: %s expected %lld%s, got %lld",
                    kernel, name, field, (long long)expected, why, (long long)got);
}}

TILEC_COLD int tilec_bad_dtype(void* self, const char* kernel, const char* name,
                               const char* expected, DLDataType got) {{
  int bits = 0;
  const char* code = tilec_code_name(got.code, &bits);
  char width[8] = "", lanes[8] = "";
  if (bits) __builtin_snprintf(width, sizeof width, "%d", got.bits);
  if (got.lanes != 1) __builtin_snprintf(lanes, sizeof lanes, "x%d", got.lanes);
  return tilec_fail(self, "TypeError", "kernel %s: argument %s: dtype expected %s, got %s%s%s",
                    kernel, name, expected, code, width, lanes);
}}

TILEC_COLD int tilec_bad_device(void* self, const char* kernel, const char* name,
                                const char* expected, DLDevice got) {{
  if (got.device_type == 1)
    return tilec_fail(self, "ValueError", "kernel %s: argument %s: device expected %s, got cpu",
                      kernel, name, expected);
  return tilec_fail(self, "ValueError",
                    "kernel %s: argument %s: device expected %s, got device type %d, index %d",
                    kernel, name, expected, got.device_type, got.device_id);
}}

TILEC_COLD int tilec_kernel_failed(void* self, const char* kernel, int32_t status,
                                   const char* const* messages) {{
  if (status < 0)
    return tilec_fail(self, "RuntimeError", "kernel %s: failed with status %d", kernel, status);
  return tilec_fail(self, "RuntimeError", "kernel %s: %s", kernel, messages[status - 1]);
}}
"""


def support_source() -> str:
    """Everything in front of the host functions of one library."""
    kinds = "".join(f'    case {i:d}: return "{kind_name(i)}";\n' for i in TypeIndex)
    codes = "".join(
        f'    case {number}: *bits = {int(sized)}; return "{name}";\n'
        for number, (name, sized) in code_names().items()
    )
    return (
        f"{_HEAD}{DECLARATIONS}{_ERRORS}\n"
        "TILEC_COLD const char* tilec_kind_name(int32_t type_index) {\n"
        f"  switch (type_index) {{\n{kinds}  }}\n"
        f'  return "an object";\n}}\n\n'
        "TILEC_COLD const char* tilec_code_name(uint8_t code, int* bits) {\n"
        f"  switch (code) {{\n{codes}  }}\n"
        '  return *bits = 0, "an unknown dtype";\n}\n'
        f"{_CHECKS}"
    )


def c_string(text: str) -> str:
    """A C string literal."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\?':
            out.append(f"\\{char}")
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return f'"{"".join(out)}"'


def int64_text(value: int) -> str:
    """A 64-bit integer constant."""
    if value == -(2**63):
        return "INT64_MIN"
    return str(value) if -(2**31) < value < 2**31 else f"INT64_C({value})"
