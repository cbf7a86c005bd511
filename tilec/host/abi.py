"""The packed host ABI as data: one owner for the stub generator and the Python packer.

Layouts are those of DLPack and of apache-tvm-ffi, so that a library built here also loads there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tilec.ir import DType

__all__ = [
    "CPU",
    "DECLARATIONS",
    "DTYPE_CODES",
    "FFI_OBJECT_BYTES",
    "HOST_MEMORY",
    "TypeIndex",
    "accepted_dtypes",
    "code_names",
    "device_name",
    "dlpack_dtype",
    "dtype_name",
    "host_symbol",
    "kind_name",
]


class TypeIndex(IntEnum):
    """What a packed argument holds."""

    NONE = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    OPAQUE_POINTER = 4
    DTYPE = 5
    DEVICE = 6
    DLTENSOR_POINTER = 7
    RAW_STRING = 8
    BYTE_ARRAY_POINTER = 9
    RVALUE_REFERENCE = 10
    SMALL_STRING = 11
    SMALL_BYTES = 12
    OBJECT = 64
    STRING = 65
    BYTES = 66
    ERROR = 67
    FUNCTION = 68
    SHAPE = 69
    TENSOR = 70
    ARRAY = 71
    MAP = 72
    MODULE = 73
    PYTHON_OBJECT = 74
    LIST = 75
    DICT = 76


_KIND_NAMES: Final[dict[TypeIndex, str]] = {
    TypeIndex.NONE: "None",
    TypeIndex.INT: "int",
    TypeIndex.BOOL: "bool",
    TypeIndex.FLOAT: "float",
    TypeIndex.OPAQUE_POINTER: "a raw pointer",
    TypeIndex.DTYPE: "a dtype",
    TypeIndex.DEVICE: "a device",
    TypeIndex.DLTENSOR_POINTER: "a tensor",
    TypeIndex.RAW_STRING: "str",
    TypeIndex.BYTE_ARRAY_POINTER: "bytes",
    TypeIndex.SMALL_STRING: "str",
    TypeIndex.SMALL_BYTES: "bytes",
    TypeIndex.STRING: "str",
    TypeIndex.BYTES: "bytes",
    TypeIndex.ERROR: "an exception",
    TypeIndex.FUNCTION: "a function",
    TypeIndex.SHAPE: "a shape",
    TypeIndex.TENSOR: "a tensor",
    TypeIndex.ARRAY: "an array of objects",
    TypeIndex.MAP: "a map",
    TypeIndex.MODULE: "a module",
    TypeIndex.PYTHON_OBJECT: "a Python object",
    TypeIndex.LIST: "list",
    TypeIndex.DICT: "dict",
}


def kind_name(index: TypeIndex) -> str:
    """What messages call a packed value of this kind."""
    return _KIND_NAMES.get(index, "an object")


FFI_OBJECT_BYTES: Final = 24
"""Size of the object header in front of the tensor that a `TypeIndex.TENSOR` value points to."""

DECLARATIONS: Final = """\
typedef struct { int32_t device_type, device_id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct {
  int32_t type_index;
  uint32_t zero_padding;
  union { int64_t v_int64; double v_float64; void* v_ptr; };
} TVMFFIAny;
"""
"""C declarations, readable by a C compiler (after ``stdint.h``) and by cffi."""

DTYPE_CODES: Final[dict[str, int]] = {
    "int": 0,
    "uint": 1,
    "float": 2,
    "bfloat": 4,
    "bool": 6,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
    "float6_e2m3fn": 15,
    "float6_e3m2fn": 16,
    "float4_e2m1fn": 17,
}
"""DLPack type codes by `DType.code`."""

_FOREIGN_CODES: Final[dict[int, str]] = {3: "handle", 5: "complex"}
_WITHOUT_BITS: Final = frozenset(c for c in DTYPE_CODES if c == "bool" or "_" in c)
_NAME_OF_CODE: Final[dict[int, str]] = {
    **{number: name for name, number in DTYPE_CODES.items()},
    **_FOREIGN_CODES,
}

# Frameworks have no plain e4m3; what they call fn or fnuz is passed for it. fn and fnuz differ in
# value, so one is never taken for the other.
_ALSO: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "bool": (("int", 8), ("uint", 8)),
    "float8_e4m3": (("float8_e4m3fn", 8), ("float8_e4m3fnuz", 8)),
    "float8_e4m3fn": (("float8_e4m3", 8),),
    "float8_e4m3fnuz": (("float8_e4m3", 8),),
}


def dlpack_dtype(dtype: DType) -> tuple[int, int, int]:
    """A dtype as DLPack's ``(code, bits, lanes)``."""
    code = "float" if dtype.code == "tfloat" else dtype.code
    return DTYPE_CODES[code], dtype.bits, dtype.lanes


def accepted_dtypes(dtype: DType) -> tuple[tuple[int, int, int], ...]:
    """The DLPack dtypes that a parameter of type `dtype` takes, the exact one first.

    bool also takes bytes, and the plain name of an 8-bit float format its variants.
    """
    also = tuple((DTYPE_CODES[c], bits, dtype.lanes) for c, bits in _ALSO.get(dtype.code, ()))
    return (dlpack_dtype(dtype), *also)


def dtype_name(code: int, bits: int, lanes: int) -> str:
    """A DLPack dtype in words, such as ``float32`` or ``int8x4``."""
    base = _NAME_OF_CODE.get(code, f"code{code}_")
    width = "" if base in _WITHOUT_BITS else str(bits)
    return f"{base}{width}{f'x{lanes}' if lanes != 1 else ''}"


def code_names() -> dict[int, tuple[str, bool]]:
    """By DLPack type code: the name, and whether the width in bits follows it."""
    return {n: (name, name not in _WITHOUT_BITS) for n, name in sorted(_NAME_OF_CODE.items())}


CPU: Final = 1
"""DLPack's device type of host memory."""
HOST_MEMORY: Final = (CPU, 3, 11)
"""Device types of memory that the host can address: its own, and pinned for some device."""


def device_name(device_type: int) -> str:
    """A DLPack device type in words; the core knows no device but the host by name."""
    return "cpu" if device_type == CPU else f"device type {device_type}"


def host_symbol(name: str) -> str:
    """The exported name of the packed function of a kernel."""
    legal = (c if c.isascii() and (c.isalnum() or c == "_") else f"u{ord(c):04x}" for c in name)
    safe = "".join(legal)
    return f"__tvm_ffi_{safe}"


def emit_module() -> str:
    """The text of `tilec.host._cffi_abi`: the declarations, parsed ahead of time.

    Importing it costs a millisecond; parsing the declarations at run time would load a C parser.
    """
    import contextlib
    import io
    import tempfile
    from pathlib import Path

    from cffi import FFI

    builder = FFI()
    builder.cdef(DECLARATIONS)
    builder.set_source("tilec.host._cffi_abi", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "abi.py"
        with contextlib.redirect_stdout(io.StringIO()):  # cffi reports what it writes
            builder.emit_python_code(str(path))
        return f"# ruff: noqa\n# mypy: ignore-errors\n{path.read_text(encoding='utf-8')}"


if __name__ == "__main__":
    print(emit_module(), end="")  # noqa: T201 - what it is for
