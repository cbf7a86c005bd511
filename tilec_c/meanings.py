"""What the calls mean that lowerings and passes of this backend make, for the interpreter.

Before buffers are flattened, operands are rows and boxes of their buffers; afterwards a region
names the first element, and the rest follows from the call's attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tilec import ir
from tilec.backend import Execution, Meaning
from tilec_c.gemm import GemmSpec
from tilec_c.halves import NARROW, WIDEN
from tilec_c.streams import STREAM


def _gemm(at: Execution, call: ir.Call, mask: Any) -> None:
    """``C = op(A) @ op(B) (+ C)``, summed in float64 or int64."""
    del mask
    spec: GemmSpec = call.attrs["spec"]
    a, b, c = call.args[:3]
    left = _matrix(at, a, (spec.k, spec.m) if spec.trans_a else (spec.m, spec.k), spec.lda)
    right = _matrix(at, b, (spec.n, spec.k) if spec.trans_b else (spec.k, spec.n), spec.ldb)
    wide = np.float64 if ir.DType(spec.dtype_acc).is_float else np.int64
    x, y = left.astype(wide), right.astype(wide)
    result = (x.T if spec.trans_a else x) @ (y.T if spec.trans_b else y)
    if not spec.clear:
        result = result + _matrix(at, c, (spec.m, spec.n), spec.ldc)
    if c.buffer.ndim > 1:
        at.write(c, result.reshape([int(e) for e in c.extents]))
        return
    pitch = spec.ldc or spec.n
    (start,) = c.mins
    for row in range(spec.m):
        at.write(c.replace(mins=(start + row * pitch,), extents=(spec.n,)), result[row])


def _matrix(
    at: Execution, region: ir.BufferRegion, shape: tuple[int, int], pitch: int | None
) -> np.ndarray[Any, Any]:
    if region.buffer.ndim > 1:
        return at.read(region).reshape(shape)
    rows, columns = shape
    step = pitch or columns
    flat = at.read(region.replace(extents=((rows - 1) * step + columns,)))
    size = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, shape, (step * size, size))


def _row(place: Any, count: int) -> ir.BufferRegion:
    """`count` elements of a row, from an element or a region that names the first of them."""
    first = place.mins if isinstance(place, ir.BufferRegion) else place.indices
    return ir.BufferRegion(place.buffer, first, (*(1,) * (len(first) - 1), count))


def _convert(at: Execution, call: ir.Call, mask: Any) -> None:
    """A row is copied and converted by what it is copied to."""
    del mask
    count = int(call.attrs["count"])
    target, source = call.args
    at.write(_row(target, count), at.read(_row(source, count)))


def _stream(at: Execution, call: ir.Call, mask: Any) -> None:
    """A row is copied."""
    del mask
    target, source = call.args
    count = int(call.attrs["bytes"]) // target.buffer.dtype.bytes
    at.write(_row(target, count), at.read(_row(source, count)))


MEANINGS: Mapping[str, Meaning] = MappingProxyType(
    {"c_gemm": _gemm, WIDEN: _convert, NARROW: _convert, STREAM: _stream}
)
