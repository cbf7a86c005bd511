"""Tile operations that read what they write: operands are separated only where they must be."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec import ir
from tilec.diagnostics import OperandError
from tilec.transform.operands import SeparateOperands
from tilec.transform.simplify import Simplify


def separated(func: ir.PrimFunc) -> str:
    """The body of the launch after the pass."""
    module = Simplify()(ir.Module({func.name: func}))
    result = SeparateOperands()(module).functions[func.name]
    ir.verify(result)
    lines = result.script().splitlines()
    start = next(n for n, line in enumerate(lines) if "T.Kernel" in line)
    return "\n".join(line[8:] for line in lines[start + 1 :] if "alloc_shared" not in line)


def test_overlapping_copy_goes_through_a_tile() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            s = T.alloc_shared((64,), "float32")
            T.copy(s[0:32], s[1:33])

    assert separated(f) == (
        's_before = T.alloc_fragment((32,), "float32")\n'
        "T.copy(s[0:32], s_before)\n"
        "T.copy(s_before, s[1:33])"
    )


def test_scalar_from_the_result_is_read_once() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            s = T.alloc_shared((64,), "float32")
            T.fill(s, s[5] + 1.0)

    assert separated(f) == "value = s[5] + 1.0\nT.fill(s, value)"


def test_result_of_gemm_as_operand() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((16, 16), "float32")
            b = T.alloc_shared((16, 16), "float32")
            T.gemm(a, b, a)

    assert separated(f) == (
        'a_before = T.alloc_fragment((16, 16), "float32")\n'
        "T.copy(a, a_before)\n"
        "T.gemm(a_before, b, a)"
    )


def test_reduction_into_its_own_source() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            s = T.alloc_shared((8, 8), "float32")
            T.reduce_sum(s, s[0, :], dim=0)

    assert separated(f).splitlines()[1] == "T.copy(s, s_before)"


@pytest.mark.parametrize("step", [8, 9])
def test_what_is_apart_stays(step: int) -> None:
    @T.prim_func
    def f(A: T.Tensor((2, 64), "int32")):
        with T.Kernel(4) as bx:
            s = T.alloc_shared((128,), "int32")
            T.copy(s[0:32], s[32:64])
            T.copy(s[bx * 8 : bx * 8 + 8], s[32:40])
            T.copy(A[0, 0:64], A[1, 0:64])
            for i in T.serial(7):
                T.copy(s[i * step : i * step + 8], s[(i + 1) * step : (i + 1) * step + 8])

    module = Simplify()(ir.Module({"f": f}))
    assert SeparateOperands()(module) is module


def test_what_may_meet_does_not() -> None:
    @T.prim_func
    def f(A: T.Tensor((2, 64), "int32")):
        with T.Kernel(4) as bx:
            s = T.alloc_shared((128,), "int32")
            T.copy(s[bx * 8 : bx * 8 + 8], s[24:32])

    assert "s_before" in separated(f)


def test_lane_state_keeps_its_scope() -> None:
    @T.prim_func
    def f(A: T.Tensor((32, 4), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            x = T.alloc_local((4,), "int32")
            x[0] = tx
            T.copy(x[0:3], x[1:4])

    assert 'x_before = T.alloc_local((3,), "int32")' in separated(f)


def test_dynamic_overlap_is_refused_at_its_line() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1):
            T.copy(A[0:n], A[1 : n + 1])

    with pytest.raises(OperandError, match="may overlap the result") as caught:
        SeparateOperands()(ir.Module({"f": f}))
    assert "T.copy(A[0:n], A[1 : n + 1])" in str(caught.value)
