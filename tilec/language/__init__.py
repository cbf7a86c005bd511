"""The kernel language: ``import tilec.language as T``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec import ir as _ir
from tilec.ir import PrimExpr as PrimExpr, PrimFunc as PrimFunc, Var as Var
from tilec.language.alloc import (
    alloc_barrier as alloc_barrier,
    alloc_buffer as alloc_buffer,
    alloc_fragment as alloc_fragment,
    alloc_local as alloc_local,
    alloc_shared as alloc_shared,
    alloc_var as alloc_var,
)
from tilec.language.function import (
    from_script as from_script,
    macro as macro,
    prim_func as prim_func,
)
from tilec.language.lane_aliases import (
    barrier_arrive as barrier_arrive,
    barrier_wait as barrier_wait,
    dec_max_nreg as dec_max_nreg,
    inc_max_nreg as inc_max_nreg,
    ptx_commit_group as ptx_commit_group,
    ptx_cp_async as ptx_cp_async,
    ptx_wait_group as ptx_wait_group,
    tma_store_arrive as tma_store_arrive,
    tma_store_wait as tma_store_wait,
    wait_wgmma as wait_wgmma,
    warpgroup_arrive as warpgroup_arrive,
    warpgroup_commit_batch as warpgroup_commit_batch,
    warpgroup_wait as warpgroup_wait,
)
from tilec.language.lanes import (
    all_sync as all_sync,
    any_sync as any_sync,
    ballot_sync as ballot_sync,
    bulk_commit as bulk_commit,
    bulk_load as bulk_load,
    bulk_store as bulk_store,
    bulk_wait as bulk_wait,
    cp_async as cp_async,
    cp_async_barrier_noinc as cp_async_barrier_noinc,
    cp_async_commit as cp_async_commit,
    cp_async_wait as cp_async_wait,
    fence_barrier_init as fence_barrier_init,
    fence_proxy_async as fence_proxy_async,
    ldmatrix as ldmatrix,
    matrix_atom as matrix_atom,
    mbarrier_arrive as mbarrier_arrive,
    mbarrier_arrive_expect_tx as mbarrier_arrive_expect_tx,
    mbarrier_expect_tx as mbarrier_expect_tx,
    mbarrier_init as mbarrier_init,
    mbarrier_wait_parity as mbarrier_wait_parity,
    mma as mma,
    mma_commit as mma_commit,
    mma_fence as mma_fence,
    mma_wait as mma_wait,
    named_barrier_arrive as named_barrier_arrive,
    set_max_nreg as set_max_nreg,
    shfl_down as shfl_down,
    shfl_sync as shfl_sync,
    shfl_up as shfl_up,
    shfl_xor as shfl_xor,
    shuffle_elect as shuffle_elect,
    stmatrix as stmatrix,
    sync_threads as sync_threads,
    sync_warp as sync_warp,
)
from tilec.language.launch import (
    Kernel as Kernel,
    annotate_launch as annotate_launch,
    annotate_layout as annotate_layout,
    func_attr as func_attr,
    get_block_binding as get_block_binding,
    get_block_bindings as get_block_bindings,
    get_thread_binding as get_thread_binding,
    get_thread_bindings as get_thread_bindings,
    get_thread_extent as get_thread_extent,
    get_thread_extents as get_thread_extents,
    use_swizzle as use_swizzle,
)
from tilec.language.loops import (
    Parallel as Parallel,
    Pipelined as Pipelined,
    grid as grid,
    serial as serial,
    unroll as unroll,
    vectorized as vectorized,
)
from tilec.language.params import (
    Buffer as Buffer,
    StridedTensor as StridedTensor,
    Tensor as Tensor,
    const as const,
    dynamic as dynamic,
    empty as empty,
    symbolic as symbolic,
)
from tilec.language.scalar import (
    Cast as Cast,
    Const as Const,
    Select as Select,
    abs as abs,  # noqa: A004
    acos as acos,
    align_up as align_up,
    asin as asin,
    atan as atan,
    atan2 as atan2,
    cast as cast,
    cdiv as cdiv,
    ceil as ceil,
    ceildiv as ceildiv,
    clamp as clamp,
    copysign as copysign,
    cos as cos,
    cosh as cosh,
    erf as erf,
    evaluate as evaluate,
    exp as exp,
    exp2 as exp2,
    exp10 as exp10,
    floor as floor,
    floordiv as floordiv,
    floormod as floormod,
    fma as fma,
    fmod as fmod,
    hypot as hypot,
    if_then_else as if_then_else,
    infinity as infinity,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    let as let,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    max as max,  # noqa: A004
    min as min,  # noqa: A004
    nearbyint as nearbyint,
    pow as pow,  # noqa: A004
    reinterpret as reinterpret,
    round as round,  # noqa: A004
    rsqrt as rsqrt,
    sigmoid as sigmoid,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
    trunc as trunc,
    truncdiv as truncdiv,
    truncmod as truncmod,
)
from tilec.language.tile import (
    atomic_add as atomic_add,
    atomic_max as atomic_max,
    atomic_min as atomic_min,
    clear as clear,
    copy as copy,
    emit_tile_op as emit_tile_op,
    fill as fill,
    gemm as gemm,
    reduce as reduce,
    reduce_absmax as reduce_absmax,
    reduce_abssum as reduce_abssum,
    reduce_bitand as reduce_bitand,
    reduce_bitor as reduce_bitor,
    reduce_bitxor as reduce_bitxor,
    reduce_max as reduce_max,
    reduce_min as reduce_min,
    reduce_sum as reduce_sum,
)
from tilec.ops import GemmWarpPolicy as GemmWarpPolicy

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
        from tilec import layout

        return getattr(layout, name)
    if name.startswith("__"):
        raise AttributeError(name)
    from tilec.diagnostics import UnknownNameError, did_you_mean

    raise UnknownNameError(
        f"the language has no name `{name}`",
        span=_ir.caller_span(),
        hint=did_you_mean(name, [n for n in globals() if not n.startswith("_")]),
    )
