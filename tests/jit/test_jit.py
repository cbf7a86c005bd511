"""Decorated kernels: modes, keys, outputs, errors at the call."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    JITArgumentError,
    JITModeError,
    KernelRuntimeError,
    OperandError,
    TilecError,
)

N = 8
config = types.ModuleType("config")
config.SHIFT = 1


def helper_shift():
    return config.SHIFT


@tilec.jit(out_idx=[-1], target="c")
def lazy_add(n, dtype="float32"):
    @T.prim_func
    def add(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 16), threads=16) as bx:
            for i in T.Parallel(16):
                C[bx * 16 + i] = A[bx * 16 + i] + B[bx * 16 + i]

    return add


@tilec.jit(target="c")
def eager_scale(A, factor: float = 2.0, block: int = 16):
    M, N = T.const("M, N")
    A: T.Tensor[[M, N], T.float32]
    B = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block), M, threads=32) as (bx, by):
        for i in T.Parallel(block):
            B[by, bx * block + i] = A[by, bx * block + i] * factor
    return B


def test_lazy_factories_give_kernels():
    assert lazy_add.mode == "lazy"
    kernel = lazy_add(20)
    a, b = np.arange(20, dtype="float32"), np.ones(20, "float32")
    np.testing.assert_array_equal(kernel(a, b), a + b)
    assert lazy_add(20) is kernel
    assert lazy_add(n=20) is not None
    assert lazy_add(21) is not kernel
    assert "add_kernel" in kernel.get_kernel_source()
    assert "__tvm_ffi_add" in kernel.get_host_source()
    assert kernel.out_idx == [2]


def test_eager_kernels_run_at_once():
    assert eager_scale.mode == "eager"
    a = np.random.default_rng(0).standard_normal((5, 33)).astype("float32")
    np.testing.assert_array_equal(eager_scale(a), a * 2)
    np.testing.assert_array_equal(eager_scale(a, factor=3.0), a * 3)
    np.testing.assert_array_equal(eager_scale(a[:2, :7].copy(), block=4), a[:2, :7] * 2)


def test_eager_compile_without_tensors():
    kernel = eager_scale.compile(M=4, N=16)
    a = np.ones((4, 16), "float32")
    np.testing.assert_array_equal(kernel(a), a * 2)
    assert eager_scale.compile(a) is kernel
    assert eager_scale.get_tir(a).name == "eager_scale"


def test_missing_and_unknown_arguments():
    with pytest.raises(JITArgumentError, match=r"T\.const variable `M`"):
        eager_scale.compile(N=3)
    with pytest.raises(JITArgumentError, match="`blocks`"):
        eager_scale(np.ones((2, 2), "float32"), blocks=3)
    with pytest.raises(JITArgumentError, match="missing"):
        eager_scale()
    with pytest.raises(JITArgumentError, match="2"):
        eager_scale(np.ones(4, "float32"))
    with pytest.raises(JITArgumentError, match="list"):
        eager_scale([[1.0, 2.0]])


def test_out_idx_belongs_to_factories():
    with pytest.raises(JITModeError, match=r"T\.empty"):

        @tilec.jit(out_idx=[0])
        def kernel(A):
            M = T.const("M")
            A: T.Tensor[[M], T.float32]
            with T.Kernel(1):
                A[0] = 1.0


def test_several_and_no_outputs():
    @tilec.jit(target="c")
    def split(A):
        M = T.const("M")
        A: T.Tensor[[M], T.float32]
        B = T.empty((M,), T.float32)
        C = T.empty((M,), T.int32)
        with T.Kernel(1):
            for i in T.Parallel(M):
                B[i] = A[i] + 1
                C[i] = T.cast(A[i], "int32")
        return B, C

    @tilec.jit(target="c")
    def clear(A):
        M = T.const("M")
        A: T.Tensor[[M], T.float32]
        with T.Kernel(1):
            T.clear(A)

    a = np.array([1.5, -2.5], "float32")
    b, c = split(a)
    assert list(b) == [2.5, -1.5]
    assert list(c) == [1, -2]
    assert clear(a) is None
    assert not a.any()


def test_no_tensor_argument():
    @tilec.jit(target="c")
    def ones(n: int):
        A = T.empty((n,), T.float32)
        with T.Kernel(1):
            T.fill(A, 1)
        return A

    assert list(ones(3)) == [1, 1, 1]


def test_captured_values_are_part_of_the_key():
    global N

    @tilec.jit(target="c")
    def add_constants(A):
        M = T.const("M")
        A: T.Tensor[[M], T.int32]
        with T.Kernel(1):
            for i in T.Parallel(M):
                A[i] += N * 100 + helper_shift()

    a = np.zeros(2, "int32")
    add_constants(a)
    assert a[0] == 801
    N, before = 9, N
    config.SHIFT = 5
    try:
        a[:] = 0
        add_constants(a)
        assert a[0] == 905
    finally:
        N, config.SHIFT = before, 1


def test_closures_of_factories_are_part_of_the_key():
    def make(bias):
        @tilec.jit(out_idx=[-1], target="c")
        def factory(n):
            @T.prim_func
            def f(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
                with T.Kernel(1):
                    for i in T.Parallel(n):
                        B[i] = A[i] + bias

            return f

        return factory

    a = np.zeros(3, "int32")
    assert list(make(1)(3)(a)) == [1, 1, 1]
    assert list(make(2)(3)(a)) == [2, 2, 2]


def test_argument_errors_name_kernel_and_parameter():
    kernel = lazy_add(20)
    a = np.zeros(20, "float32")
    with pytest.raises(ArgumentCountError, match="2"):
        kernel(a)
    with pytest.raises(TypeError, match="positional"):
        kernel(A=a, B=a)
    for bad in ([0.0] * 20, None, "text", 3):
        with pytest.raises(ArgumentTypeError, match="A"):
            kernel(bad, a)
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match="float32"):
        kernel(a.astype("float64"), a)
    with pytest.raises(ArgumentValueError, match="20"):
        kernel(np.zeros(21, "float32"), a)
    with pytest.raises(ArgumentValueError, match="stride"):
        kernel(np.zeros(40, "float32")[::2], a)
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match="dim"):
        kernel(np.zeros((20, 1), "float32"), a)


def test_read_only_arrays():
    @T.prim_func
    def copy(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            T.copy(A, B)

    kernel = tilec.compile(copy, target="c")
    a, b = np.arange(4, dtype="int32"), np.zeros(4, "int32")
    a.flags.writeable = False
    kernel(a, b)
    assert list(b) == [0, 1, 2, 3]
    b.flags.writeable = False
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match="B"):
        kernel(a, b)


def test_device_assertions():
    @T.prim_func
    def check(A: T.Tensor((4,), "int32")):
        with T.Kernel(4) as bx:
            assert A[bx] > 0, "values are positive"

    kernel = tilec.compile(check, target="c")
    kernel(np.ones(4, "int32"))
    with pytest.raises(KernelRuntimeError, match="values are positive"):
        kernel(np.zeros(4, "int32"))


def test_empty_grids_run_no_block():
    n = T.dynamic("n")

    @T.prim_func
    def f(A: T.Tensor((n,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(n) as bx:
            B[bx % 4] = A[bx] + 1

    kernel = tilec.compile(f, target="c")
    b = np.zeros(4, "int32")
    kernel(np.zeros(0, "int32"), b)
    assert not b.any()
    kernel(np.zeros(2, "int32"), b)
    assert list(b) == [1, 1, 0, 0]


def test_scalar_parameters():
    @T.prim_func
    def f(
        A: T.Tensor((6,), "float64"), i: T.int32, x: T.float32, j: T.int64, flag: T.bool,
        h: T.float16, u: T.uint8,
    ):  # fmt: skip
        with T.Kernel(1):
            A[0] = T.cast(i, "float64")
            A[1] = T.cast(x, "float64")
            A[2] = T.cast(j, "float64")
            A[3] = T.if_then_else(flag, T.float64(1.0), T.float64(-1.0))
            A[4] = T.cast(h, "float64")
            A[5] = T.cast(u, "float64")

    kernel = tilec.compile(f, target="c")
    a = np.zeros(6)
    kernel(a, -5, 2.5, 2**40, True, 1.5, 200)
    assert list(a) == [-5, 2.5, 2**40, 1, 1.5, 200]
    with pytest.raises(TilecError, match="i"):
        kernel(a, 2**40, 2.5, 0, True, 1.0, 0)
    with pytest.raises(TilecError, match="x"):
        kernel(a, 1, "2", 0, True, 1.0, 0)


def test_threads_share_a_kernel():
    kernel = lazy_add(1000)
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(50):
            a, b = rng.random(1000, dtype="float32"), rng.random(1000, dtype="float32")
            if not np.array_equal(kernel(a, b), a + b):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_several_launches_run_in_order():
    @T.prim_func
    def f(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(4) as bx:
            for i in T.Parallel(16):
                B[bx * 16 + i] = A[bx * 16 + i] + 1
        with T.Kernel(4) as bx:
            for i in T.Parallel(16):
                A[bx * 16 + i] = B[63 - bx * 16 - i]

    a, b = np.arange(64, dtype="int32"), np.zeros(64, "int32")
    tilec.compile(f, target="c")(a, b)
    np.testing.assert_array_equal(a, np.arange(64, 0, -1))


def test_compile_takes_prim_funcs_only():
    with pytest.raises(OperandError, match="prim_func"):
        tilec.compile(lambda: None)


@pytest.mark.parametrize("index", [3, -4, "0", [0, 0]])
def test_bad_out_idx(index):
    @T.prim_func
    def f(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32"), n: T.int32):
        with T.Kernel(1):
            B[0] = A[n]

    with pytest.raises(JITArgumentError):
        tilec.compile(f, out_idx=index, target="c")


def test_output_whose_size_no_input_tells():
    n = T.dynamic("n")

    @T.prim_func
    def f(A: T.Tensor((4,), "int32"), B: T.Tensor((n,), "int32")):
        with T.Kernel(1):
            B[0] = A[0]

    with pytest.raises(TilecError, match="n"):
        tilec.compile(f, out_idx=[1], target="c")


def test_kernel_surface(tmp_path, capsys):
    kernel = lazy_add(20)
    kernel.show_source("both")
    assert "add_kernel" in capsys.readouterr().out
    kernel.export_sources(tmp_path / "k.c", tmp_path / "h.c")
    assert (tmp_path / "k.c").read_text() == kernel.kernel_source
    with pytest.raises(JITArgumentError):
        kernel.export_sources()
    assert "-march=native" in kernel.explain() or "baseline" in kernel.explain()
    assert "add" in repr(kernel)
    assert T.from_script(kernel.script()).name == "add"


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    a, b = torch.arange(20, dtype=torch.float32), torch.ones(20)
    result = lazy_add(20)(a, b)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, a + b)
    half = lazy_add(20, "bfloat16")
    result = half(a.bfloat16(), b.bfloat16())
    assert torch.equal(result, a.bfloat16() + b.bfloat16())
