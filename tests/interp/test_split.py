"""Split form: a host function, its launches, flat memory; with lanes and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lane_kernels import matrices, pipelined_gemm

import tilec.language as T
from tilec import interp, ir
from tilec.diagnostics import InternalError, KernelRuntimeError, RaceError
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities
from tilec.transform.flatten import FlattenBuffers
from tilec.transform.lanes import SerializeLanes
from tilec.transform.parallel import LowerParallel
from tilec.transform.split import SplitHostDevice
from tilec.transform.tiles import LowerTiles

ONE_LANE = (SerializeLanes(), LowerTiles(), LowerParallel())


def split(func: ir.PrimFunc, *before: Any, flat: bool = True, lanes: int = 1) -> ir.Module:
    ctx = PassContext(capabilities=Capabilities(lanes=lanes))
    module = ir.Module({func.name: func})
    for p in (*before, SplitHostDevice(), *((FlattenBuffers(),) if flat else ())):
        module = p.run(module, ctx)
    return module


@pytest.mark.parametrize("flat", [False, True])
def test_two_launches_with_numbers_and_a_grid_of_two_dimensions(flat: bool) -> None:
    @T.prim_func
    def both(
        A: T.Tensor((T.dynamic("m"), T.dynamic("n")), "int32"),
        B: T.Tensor((T.dynamic("m"), T.dynamic("n")), "int32"),
        scale: T.int32,
    ):
        m, n = A.shape
        with T.Kernel(T.ceildiv(n, 4), m) as (bx, by):
            for j in T.Parallel(4):
                if bx * 4 + j < n:
                    B[by, bx * 4 + j] = A[by, bx * 4 + j] * scale
        if m > 2:
            with T.Kernel(1):
                B[2, 0] = B[0, 1] - 1

    module = split(both, *ONE_LANE, flat=flat)
    a = np.arange(33, dtype=np.int32).reshape(3, 11)
    b = np.zeros_like(a)
    interp.run(module, a, b, 5)
    wanted = a * 5
    wanted[2, 0] = wanted[0, 1] - 1
    np.testing.assert_array_equal(b, wanted)
    small = np.zeros((1, 11), np.int32)
    interp.run(module, a[:1], small, 2)
    np.testing.assert_array_equal(small, a[:1] * 2)


def test_strided_tensors_and_outputs_that_are_returned() -> None:
    @T.prim_func
    def columns(
        A: T.StridedTensor((4, 3), (T.dynamic("s"), 2), "float32"),
        B: T.Tensor((4, 3), "float32"),
    ):
        with T.Kernel(4) as bx:
            for j in T.serial(3):
                B[bx, j] = A[bx, j] + 1.0

    module = split(columns.with_attr("out_idx", (1,)), *ONE_LANE)
    base = np.arange(4 * 8, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(interp.run(module, base[:, 1:7:2]), base[:, 1:7:2] + 1)


def test_a_failed_assertion_of_the_host() -> None:
    @T.prim_func
    def guarded(A: T.Tensor((T.dynamic("n"),), "int32")):
        with T.Kernel(1):
            A[3] = 7

    (n,) = guarded.params[0].shape
    demand = ir.Assert(n > 3, "four elements at least")
    module = split(guarded.replace(body=ir.seq(demand, guarded.body)), *ONE_LANE)
    a = np.zeros(4, np.int32)
    interp.run(module, a)
    assert a.tolist() == [0, 0, 0, 7]
    with pytest.raises(KernelRuntimeError, match="four elements at least"):
        interp.run(module, np.zeros(3, np.int32))


@pytest.mark.parametrize("check", [False, True])
def test_lanes(check: bool) -> None:
    kernel = pipelined_gemm(32, 64, 96, 32, 64, 32, 2)
    module = split(kernel, lanes=32, flat=False)
    a, b, wanted = matrices(32, 64, 96)
    c = np.zeros_like(wanted)
    interp.run(module, a, b, c, check=check)
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("fence", [False, True])
def test_lanes_in_flat_memory(fence: bool) -> None:
    @T.prim_func
    def racing(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((8, 8), "int32")
            s[t // 8, t % 8] = t
            if fence:
                T.sync_threads()
            A[t] = s[7 - t // 8, 7 - t % 8]

    module = split(racing, lanes=32)
    a = np.zeros(64, np.int32)
    if fence:
        interp.run(module, a, check=True)
        np.testing.assert_array_equal(a, np.arange(64)[::-1])
    else:
        with pytest.raises(RaceError, match=r"s\["):
            interp.run(module, a, check=True)


def test_a_module_without_a_host_function() -> None:
    @T.prim_func
    def alone(A: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            A[0] = 1

    parts = split(alone, *ONE_LANE).functions
    device = {name: f for name, f in parts.items() if name != "alone"}
    with pytest.raises(InternalError, match="0 host functions"):
        interp.run(ir.Module(device), np.zeros(4, np.int32))
    host = ir.Module({"alone": parts["alone"]})
    with pytest.raises(InternalError, match="alone_kernel"):
        interp.run(host, np.zeros(4, np.int32))
