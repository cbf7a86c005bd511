"""Outputs that the runtime allocates."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from host_kernels import INT32, host_func, no_messages

from tilec import ir
from tilec.diagnostics import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    OutputAllocationError,
    ShapeError,
    ToolchainError,
)
from tilec.host import HostCallable, generate_host_source
from tilec.host.evaluate import compile_int
from tilec.ir import Buffer, DType, Var

F32 = DType("float32")


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def fill_kernel(build, inputs, outputs, *, first: bool = False):
    """A kernel that leaves its outputs alone; outputs are last, or first."""
    params = [*outputs, *inputs] if first else [*inputs, *outputs]
    count = len(outputs)
    positions = range(count) if first else range(len(inputs), len(params))
    names = [p.name for p in params if isinstance(p, Buffer)]
    func = host_func("fill", params, [], out_idx=list(positions), used=names)
    code = "int32_t fill_kernel(void) { return 0; }"
    return build(func, no_messages("fill") + code, written=[b.name for b in outputs])


@pytest.mark.parametrize("first", [False, True])
def test_shapes_from_inputs(build, first):
    n, m = Var("n", INT32), Var("m", INT32)
    inputs = [Buffer("A", (n * 2, 3), F32), Buffer("B", (m, n), F32)]
    outputs = [
        Buffer("C", (n, m), F32),
        Buffer("D", ((n + 63) // 64, 4), DType("int8")),
        Buffer("E", (), DType("bool")),
    ]
    kernel = fill_kernel(build, inputs, outputs, first=first)
    c, d, e = kernel(f32(130, 3), f32(7, 65))
    assert (c.shape, c.dtype) == ((65, 7), np.float32)
    assert (d.shape, d.dtype) == ((2, 4), np.int8)
    assert (e.shape, e.dtype) == ((), np.bool_)
    for args, message in [
        ((f32(130, 3), f32(7, 64)), "B: shape[1] expected 65 (n from A.shape[0]), got 64"),
        ((f32(131, 3), f32(7, 65)), "A: shape[0] expected n * 2 with a non-negative int32 n, "
                                    "got 131"),
        ((f32(130, 3), f32(7)), "B: ndim expected 2, got 1"),
        ((f32(390), f32(7, 65)), "A: ndim expected 2, got 1"),
    ]:  # fmt: skip
        with pytest.raises(ArgumentValueError) as caught:
            kernel(*args)
        assert caught.value.message == f"kernel fill: argument {message}"
    with pytest.raises(ArgumentTypeError, match=r"argument A: expected a tensor .* got None"):
        kernel(None, f32(7, 65))
    with pytest.raises(ArgumentTypeError, match="argument B: dtype expected float32, got int64"):
        kernel(f32(130, 3), np.ones((7, 65), np.int64))


def test_one_several_none(build):
    n = Var("n", INT32)
    a = Buffer("A", (n,), F32)
    one, two = Buffer("C", (n,), F32), Buffer("D", (n,), F32)
    assert fill_kernel(build, [a], [])(f32(2)) is None
    assert isinstance(fill_kernel(build, [a], [one])(f32(2)), np.ndarray)
    assert isinstance(fill_kernel(build, [a], [one, two])(f32(2)), list)
    kernel = fill_kernel(build, [a], [one])
    with pytest.raises(ArgumentCountError) as caught:
        kernel(f32(2), f32(2))
    assert caught.value.message == "Kernel expected 1 inputs, but 2 are provided"
    mine = f32(2)
    assert kernel.launch(f32(2), mine) is None
    with pytest.raises(ArgumentCountError):
        kernel.launch(f32(2))


def test_no_tensor_input(build):
    n = Var("n", INT32)
    kernel = fill_kernel(build, [n], [Buffer("C", (n, n + 1), DType("float16"))])
    result = kernel(3)
    assert (result.shape, result.dtype) == ((3, 4), np.float16)
    assert fill_kernel(build, [], [Buffer("C", (4,), F32)])().shape == (4,)
    with pytest.raises(ArgumentValueError, match="shape"):
        kernel(-3)


def test_torch_outputs(build):
    torch = pytest.importorskip("torch")
    n = Var("n", INT32)
    inputs = [Buffer("A", (n,), F32), Buffer("B", (n,), F32)]
    kinds = ["float32", "bfloat16", "float16", "bool", "int64", "uint8", "float8_e4m3fn"]
    outputs = [Buffer(f"C{i}", (n,), DType(kind)) for i, kind in enumerate(kinds)]
    kernel = fill_kernel(build, inputs, outputs)
    for args in ((torch.ones(3), torch.ones(3)), (f32(3), torch.ones(3))):
        results = kernel(*args)
        assert [r.dtype for r in results] == [getattr(torch, kind) for kind in kinds]
        assert all(tuple(r.shape) == (3,) and r.device.type == "cpu" for r in results)
    assert all(isinstance(r, np.ndarray) for r in kernel(f32(3), f32(3)))
    torch.set_default_device("meta")
    try:
        assert kernel(torch.ones(3, device="cpu"), f32(3))[0].device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_bfloat16_needs_ml_dtypes(build, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    n = Var("n", INT32)
    inputs, output = [Buffer("A", (n,), F32)], Buffer("C", (n,), DType("bfloat16"))
    assert fill_kernel(build, inputs, [output])(f32(3)).dtype == ml_dtypes.bfloat16
    kernel = fill_kernel(build, inputs, [output])
    monkeypatch.setattr(np, "dtype", _no_dtype)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(OutputAllocationError) as caught:
        kernel(f32(3))
    assert caught.value.message == (
        "kernel fill: output C has dtype bfloat16, which NumPy has only with ml_dtypes"
    )
    assert caught.value.hint == "pip install ml_dtypes, or pass the output as an argument"


def _no_dtype(name: object) -> object:
    raise TypeError(f"data type {name!r} not understood")


def test_out_of_memory(build):
    n = Var("n", INT32)
    kernel = fill_kernel(build, [n], [Buffer("C", (n, n, n), F32)])
    with pytest.raises(OutputAllocationError, match=r"output C \(2000000000, 2000000000"):
        kernel(2_000_000_000)


def test_shapes_that_no_input_gives():
    n, m = Var("n", INT32), Var("m", INT32)
    a, c = Buffer("A", (n,), F32), Buffer("C", (n, m), F32)
    with pytest.raises(ShapeError) as caught:
        generate_host_source(host_func("f", [a, c], [a, c], out_idx=[1]))
    assert caught.value.message == (
        "extent m of output buffer C (n, m) float32 in global appears in no input of kernel f"
    )
    strided = Buffer("S", (n, 4), F32, "global", (8, 1))
    with pytest.raises(ShapeError, match="output S of kernel f has strides"):
        generate_host_source(host_func("f", [a, strided], [a, strided], out_idx=[1]))
    dense = Buffer("S", (2, 4), F32, "global", (4, 1))
    generate_host_source(host_func("f", [a, dense], [a, dense], out_idx=[1]))


def test_dynamic_shapes_over_python_ints():
    n, m = Var("n", INT32), Var("m", DType("int64"))
    both = {n: 10, m: 3}
    for expr, value in [
        (n // 3 + n % 3, 4),
        (ir.cast(n, DType("int64")) * m - 1, 29),
        (ir.binary(ir.BinOp.MAX, n, 12), 12),
        (ir.binary(ir.BinOp.TRUNCDIV, n - 17, 2), -3),
        (ir.select(n > 5, n, n + 100), 10),
        ((n << 2) | 1, 41),
        (abs(n - 12), 2),
        (-n + 30, 20),
    ]:
        assert compile_int(expr)(both) == value


def test_library_that_cannot_be_loaded(tmp_path):
    with pytest.raises(ToolchainError, match="cannot be loaded"):
        HostCallable(tmp_path / "none.so", "__tvm_ffi_f", [])


def test_torch_is_never_imported(build):
    """In a process without torch, NumPy calls leave it so."""
    n = Var("n", INT32)
    fill_kernel(build, [n], [Buffer("C", (n,), F32)])
    code = "import sys, tilec.host; sys.exit('torch' in sys.modules or 'cffi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
