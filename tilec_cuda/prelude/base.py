"""What pieces of the prelude are made of."""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """A piece of text with the names of the pieces that have to come before it."""

    text: str
    needs: tuple[str, ...] = ()


TYPES = """\
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
"""
"""Every translation unit starts with these; no header is there to declare them."""

DEVICE = "static __device__ __forceinline__"

C_TYPE = {
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "f32": "float", "f64": "double",
}  # fmt: skip
"""Types by the suffix of a function."""
INTEGERS = tuple(suffix for suffix in C_TYPE if suffix[0] in "iu")


def bits(suffix: str) -> int:
    """Width of a type by its suffix."""
    return int(suffix[1:])


def function(kind: str, name: str, params: str, body: str) -> str:
    """``kind tilec_name(params) { body }``, on one line where it fits."""
    head = f"{DEVICE} {kind} tilec_{name}({params})"
    body = body.strip("\n")
    if "\n" not in body and len(head) + len(body) <= 96:
        return f"{head} {{ {body.strip()} }}\n"
    lines = "\n".join(f"  {line}" if line else "" for line in body.splitlines())
    return f"{head} {{\n{lines}\n}}\n"
