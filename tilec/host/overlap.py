"""Arguments that share memory.

Generated code assumes that parameters do not overlap. A tensor in host memory that is only read,
and shares memory with one that is written, is replaced by a private copy for the duration of the
call: what the kernel reads is what was there when it was called. Two overlapping tensors that are
both written have no meaning and are refused. On a device, where a launch allocates nothing, both
cases are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilec.backend.c_family import CodePrinter, NameTable
from tilec.host.support import c_string

_RANGES = """
typedef struct { char* low; char* high; int contiguous; } tilec_range;

/* The bytes between a tensor's first and last element; `high` is exclusive. */
static inline tilec_range tilec_range_of(const DLTensor* tensor, char* data, int64_t item) {
  tilec_range range = {data, data, 1};
  int64_t elements = 1, below = 0, above = 0;
  for (int32_t axis = tensor->ndim - 1; axis >= 0; --axis) {
    const int64_t extent = tensor->shape[axis];
    const int64_t stride = tensor->strides ? tensor->strides[axis] : elements;
    if (extent <= 0) return range;
    if (extent > 1) {
      range.contiguous &= stride == elements;
      if (stride < 0) below += (extent - 1) * stride; else above += (extent - 1) * stride;
    }
    elements *= extent;
  }
  range.low = data + below * item;
  range.high = data + (above + 1) * item;
  return range;
}

static inline int tilec_overlap(tilec_range a, tilec_range b) {
  return a.low < b.high && b.low < a.high;
}

"""
_COPIES = """
extern void* malloc(size_t);
extern void free(void*);

static void tilec_release(void* copy) { free(*(void**)copy); }

/* Moves `*data` to a copy of its tensor's bytes; the place inside the range stays. */
TILEC_COLD int tilec_private_copy(char** data, void** copy, tilec_range range) {
  const size_t bytes = (size_t)(range.high - range.low);
  if (*copy) return 1;
  *copy = malloc(bytes);
  if (!*copy) return 0;
  __builtin_memcpy(*copy, range.low, bytes);
  *data = (char*)*copy + (*data - range.low);
  return 1;
}
"""


def overlap_source(*, copies: bool) -> str:
    """The C functions that the printed text needs.

    Args:
        copies: whether `print_separation` is used.
    """
    return _RANGES + (_COPIES if copies else "")


def print_separation(
    out: CodePrinter,
    names: NameTable,
    tensors: Mapping[str, tuple[str, str]],
    written: Sequence[str],
    fail: Callable[[str, str], None],
) -> None:
    """Print what keeps the memory of arguments apart.

    Args:
        tensors: parameter name -> (C name of its `DLTensor*`, C name of its `char*` data), for
            the tensors that kernels get; their data pointers may change.
        written: the names of those that kernels write.
        fail: prints a test and what to return if it holds.
    """
    ranges = _print_ranges(out, names, tensors)
    targets = [name for name in tensors if name in written]
    for position, first in enumerate(targets):
        for second in targets[position + 1 :]:
            a, b = ranges[first], ranges[second]
            fail(
                f"tilec_overlap({a}, {b}) && {a}.contiguous && {b}.contiguous",
                'tilec_fail(self_handle, "ValueError", "kernel %s: %s", kernel, '
                + c_string(f"arguments {first} and {second} share memory and both are written")
                + ")",
            )
    for name, (_tensor, data) in tensors.items():
        if name in written or not targets:
            continue
        copy = names.fresh(f"{name}_copy")
        out.line(f"void* {copy} __attribute__((cleanup(tilec_release))) = NULL;")
        shared = " || ".join(f"tilec_overlap({ranges[name]}, {ranges[t]})" for t in targets)
        fail(
            f"({shared}) && !tilec_private_copy(&{data}, &{copy}, {ranges[name]})",
            'tilec_fail(self_handle, "RuntimeError", "kernel %s: out of memory for a copy of %s, '
            f'which shares memory with a result", kernel, {c_string(name)})',
        )


def print_refusals(
    out: CodePrinter,
    names: NameTable,
    tensors: Mapping[str, tuple[str, str]],
    written: Sequence[str],
    fail: Callable[[str, str], None],
) -> None:
    """Print what refuses a written tensor that shares memory with another one.

    Tensors with gaps may interleave without sharing an element, so they are let through.

    Args:
        out: see `print_separation`, as for the others.
    """
    ranges = _print_ranges(out, names, tensors)
    pairs = list(tensors)
    for position, first in enumerate(pairs):
        for second in pairs[position + 1 :]:
            if first not in written and second not in written:
                continue
            a, b = ranges[first], ranges[second]
            both = first in written and second in written
            target = "both are" if both else f"{first if first in written else second} is"
            message = f"arguments {first} and {second} share memory and {target} written"
            fail(
                f"tilec_overlap({a}, {b}) && {a}.contiguous && {b}.contiguous",
                f'tilec_fail(self_handle, "ValueError", "kernel %s: %s", kernel, '
                f"{c_string(message)})",
            )


def _print_ranges(
    out: CodePrinter, names: NameTable, tensors: Mapping[str, tuple[str, str]]
) -> dict[str, str]:
    ranges: dict[str, str] = {}
    for name, (tensor, data) in tensors.items():
        ranges[name] = names.fresh(f"{name}_range")
        item = f"({tensor}->dtype.bits * {tensor}->dtype.lanes + 7) / 8"
        out.line(f"const tilec_range {ranges[name]} = tilec_range_of({tensor}, {data}, {item});")
    return ranges
