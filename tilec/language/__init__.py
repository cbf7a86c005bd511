"""The kernel language: ``import tilec.language as T``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec import ir as _ir
from tilec.ir import PrimExpr, PrimFunc, Var
from tilec.language.alloc import (
    alloc_barrier,
    alloc_buffer,
    alloc_fragment,
    alloc_local,
    alloc_shared,
    alloc_var,
)
from tilec.language.function import from_script, macro, prim_func
from tilec.language.launch import (
    Kernel,
    annotate_layout,
    func_attr,
    get_block_binding,
    get_block_bindings,
    get_thread_binding,
    get_thread_bindings,
    get_thread_extent,
    get_thread_extents,
    sync_threads,
    use_swizzle,
)
from tilec.language.loops import Parallel, Pipelined, grid, serial, unroll, vectorized
from tilec.language.params import (
    Buffer,
    StridedTensor,
    Tensor,
    const,
    dynamic,
    empty,
    symbolic,
)
from tilec.language.scalar import (
    Cast,
    Const,
    Select,
    abs,  # noqa: A004
    acos,
    align_up,
    asin,
    atan,
    atan2,
    cast,
    cdiv,
    ceil,
    ceildiv,
    clamp,
    copysign,
    cos,
    cosh,
    erf,
    evaluate,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    hypot,
    if_then_else,
    infinity,
    isfinite,
    isinf,
    isnan,
    let,
    log,
    log1p,
    log2,
    log10,
    max,  # noqa: A004
    min,  # noqa: A004
    nearbyint,
    pow,  # noqa: A004
    reinterpret,
    round,  # noqa: A004
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tilec.language.tile import (
    atomic_add,
    atomic_max,
    atomic_min,
    clear,
    copy,
    emit_tile_op,
    fill,
    gemm,
    reduce,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reduce_max,
    reduce_min,
    reduce_sum,
)
from tilec.ops import GemmWarpPolicy

if TYPE_CHECKING:
    from tilec.layout import Fragment, Layout

for _name in _ir.scalar_names():
    globals()[_name] = _ir.DType(_name)
    for _lanes in (2, 4, 8, 16, 32, 64):
        globals()[f"{_name}x{_lanes}"] = _ir.DType(f"{_name}x{_lanes}")
half, double = _ir.DType("float16"), _ir.DType("float64")
long, short, uint = _ir.DType("int64"), _ir.DType("int16"), _ir.DType("uint32")
globals().update(int=_ir.DType("int32"), float=_ir.DType("float32"))


def dtype(value: Any) -> _ir.DType:
    """Normalise a dtype: a name, a Python type, a NumPy or torch dtype."""
    return _ir.DType.of(value)


def __getattr__(name: str) -> Any:
    if name in ("Layout", "Fragment"):
        import tilec.layout

        return getattr(tilec.layout, name)
    if name.startswith("__"):
        raise AttributeError(name)
    from tilec.diagnostics import UnknownNameError, did_you_mean

    raise UnknownNameError(
        f"the language has no name `{name}`",
        span=_ir.caller_span(),
        hint=did_you_mean(name, [n for n in globals() if not n.startswith("_")]),
    )
