"""Tensor maps and scratch memory: what the host adds to a kernel's parameters."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import CC, DeviceArray, FakeCuda, make_artifact
from host_kernels import host_func, kernel_params

from tilec.backend import BackendContext, HiddenArgument, LaunchInfo
from tilec.diagnostics import ArgumentValueError, CapabilityError, KernelRuntimeError
from tilec.ir import Buffer, DType, Expr, Var
from tilec.options import options
from tilec_cuda.execution import CudaExecutable, load
from tilec_cuda.tensor_maps import TensorMap

pytestmark = pytest.mark.filterwarnings("ignore:.*is launched from Python")
SOURCE = """
struct alignas(64) Map { char bits[128]; };
extern "C" __global__ void maps_kernel(const __grid_constant__ Map m, const unsigned short* A) {}
"""
BFLOAT16, INT32 = DType("bfloat16"), DType("int32")


@pytest.fixture(params=["c", "python"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "c":
        yield request.param
        return
    with options(cc="/nonexistent/cc"):
        yield request.param


def with_map(
    context: BackendContext,
    fake: FakeCuda,
    shape: Sequence[int | Expr],
    box: tuple[int, ...],
    *,
    strides: Any = None,
    dtype: str = "float16",
    swizzle: int = 128,
) -> CudaExecutable:
    a = Buffer("A", tuple(shape), DType(dtype), strides=strides)
    host = host_func("maps", (a,), (a,), device_type=2)
    record = TensorMap("A_map", a, box, swizzle)
    launch = LaunchInfo("maps_kernel", grid=(1,), threads=(32,), attrs={"tensor_maps": (record,)})
    fake.signature("maps_kernel", [128, 8])
    made = make_artifact(host, kernel_params(host, []), [launch], SOURCE, context)
    kernel = load(made, context)
    assert (kernel.stub is None) == bool(options.cc)
    return kernel


def half(*shape: int) -> DeviceArray:
    return DeviceArray(np.zeros(shape, "float16"))


def decoded(launch: Any) -> dict[str, Any]:
    words = launch.param(0, "uint32")
    rank = int(words[1])
    return {
        "dtype": int(words[0]),
        "swizzle": int(words[2]),
        "address": int(words[4]) | int(words[5]) << 32,
        "dims": [int(w) for w in words[6 : 6 + rank]],
        "box": [int(w) for w in words[11 : 11 + rank]],
        "strides": [int(w) for w in words[16 : 15 + rank]],
    }


def test_a_map_is_the_first_parameter_innermost_dimension_first(
    context: BackendContext, fake: FakeCuda
) -> None:
    m, n = Var("m", INT32), Var("n", INT32)
    kernel = with_map(context, fake, (m, n), (32, 64))
    given = half(100, 256)
    kernel(given)
    [launch] = fake.launches
    assert decoded(launch) == {
        "dtype": 6, "swizzle": 3, "address": given.address, "dims": [256, 100], "box": [64, 32],
        "strides": [512],
    }  # fmt: skip
    assert launch.param(1) == given.address


def test_maps_are_encoded_again_for_other_tensors_only(
    context: BackendContext, fake: FakeCuda, way: str
) -> None:
    m, n = Var("m", INT32), Var("n", INT32)
    kernel = with_map(context, fake, (m, n), (32, 64))
    one, other = half(100, 256), half(100, 256)
    for given in (one, one, other, other, half(100, 128)):
        kernel(given)
    assert fake.library.fake_encodes() == (3 if way == "c" else 5)
    assert [decoded(launch)["address"] for launch in fake.launches[:4]] == [
        one.address, one.address, other.address, other.address,
    ]  # fmt: skip


def test_three_dimensions_and_strides(context: BackendContext, fake: FakeCuda) -> None:
    s = Var("s", INT32)
    kernel = with_map(context, fake, (4, 8, 64), (1, 8, 64), strides=(s, 128, 1))
    base = np.zeros((4, 10, 128), "float16")
    kernel(DeviceArray(base[:, :8, :64]))
    found = decoded(fake.launches[0])
    assert found["dims"] == [64, 8, 4]
    assert found["strides"] == [256, 2560]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((100, 33), r"A: strides\[0\] expected a multiple of 16 bytes for the copy engine, got 33 "
         "elements of 2 bytes"),
        ((0, 64), r"A: shape\[0\] expected 1 to 2\*\*32 elements, which the copy engine can "
         "describe, got 0"),
        ((64, 0), r"A: shape\[1\] expected 1 to .* got 0"),
    ],
)  # fmt: skip
def test_tensors_that_cannot_be_described(
    context: BackendContext, fake: FakeCuda, shape: tuple[int, int], message: str
) -> None:
    kernel = with_map(context, fake, (Var("m", INT32), Var("n", INT32)), (32, 64))
    with pytest.raises(ArgumentValueError, match=f"kernel maps: argument {message}"):
        kernel(half(*shape))
    assert fake.launches == []


def test_one_row_may_have_any_pitch(context: BackendContext, fake: FakeCuda) -> None:
    kernel = with_map(context, fake, (Var("m", INT32), Var("n", INT32)), (32, 64))
    kernel(half(1, 33))
    assert decoded(fake.launches[0])["strides"] == [16]


def test_the_address_has_to_be_aligned(context: BackendContext, fake: FakeCuda) -> None:
    kernel = with_map(context, fake, (64,), (64,))
    base = np.zeros(100, "float16")
    first = (-base.ctypes.data // 2) % 8
    with pytest.raises(ArgumentValueError, match="aligned to 16 bytes"):
        kernel(DeviceArray(base[first + 1 : first + 65]))


def test_errors_of_the_encoder(context: BackendContext, fake: FakeCuda) -> None:
    kernel = with_map(context, fake, (64, 64), (32, 64))
    fake.fail("cuTensorMapEncodeTiled", 1)
    message = "a tensor cannot be described to the copy engine: CUDA_ERROR_INVALID_VALUE"
    with pytest.raises(KernelRuntimeError, match=message):
        kernel(half(64, 64))
    assert fake.library.fake_depth() == 0


def test_element_types(context: BackendContext, fake: FakeCuda) -> None:
    for dtype, number in (("float32", 7), ("int32", 3), ("uint8", 0), ("float64", 8)):
        kernel = with_map(context, fake, (64, 64), (32, 32), dtype=dtype, swizzle=0)
        kernel(DeviceArray(np.zeros((64, 64), dtype)))
        assert decoded(fake.launches[-1])["dtype"] == number
    with pytest.raises(CapabilityError, match="does not have elements of type float16x2"):
        with_map(context, fake, (64, 64), (32, 32), dtype="float16x2")


def scratch(context: BackendContext, fake: FakeCuda, fill: int | None) -> CudaExecutable:
    n = Var("n", INT32)
    a = Buffer("A", (n,), DType("float32"))
    host = host_func("scratch", (a,), (a, n), device_type=2)
    hidden = HiddenArgument("space", DType("float32"), n * 2, fill)
    launch = LaunchInfo("scratch_kernel", grid=(1,), threads=(32,), hidden=(hidden,))
    source = 'extern "C" __global__ void scratch_kernel(float* A, int n, float* space) {}'
    fake.signature("scratch_kernel", [8, 4, 8])
    return load(make_artifact(host, kernel_params(host, []), [launch], source, context), context)


@pytest.mark.parametrize("fill", [None, 0])
def test_scratch_memory_comes_and_goes_in_the_order_of_the_stream(
    context: BackendContext, fake: FakeCuda, fill: int | None
) -> None:
    kernel = scratch(context, fake, fill)
    before = fake.library.fake_allocated()
    kernel(DeviceArray(np.zeros(100, "float32")))
    assert fake.launches[0].param(2) != 0
    assert fake.library.fake_allocated() == before
    steps = [call for call in fake.log if "Mem" in call or "Launch" in call]
    filled = ["cuMemsetD8Async"] if fill is not None else []
    assert [c for c in steps if c != "cuMemAlloc"] == [
        "cuMemAllocAsync", *filled, "cuLaunchKernelEx", "cuMemFreeAsync",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("cuMemAllocAsync", r"800 bytes of scratch memory \(space\) cannot be had: CUDA_ERROR_OUT"),
        ("cuMemsetD8Async", "scratch memory cannot be filled: CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuLaunchKernelEx", "the launch of .* failed: CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_failures_leave_no_scratch_memory(
    context: BackendContext, fake: FakeCuda, call: str, message: str
) -> None:
    kernel = scratch(context, fake, 0)
    before = fake.library.fake_allocated()
    fake.fail(call, 2)
    with pytest.raises(KernelRuntimeError, match=message):
        kernel(DeviceArray(np.zeros(100, "float32")))
    assert fake.library.fake_allocated() == before


def test_the_generated_text_has_no_warnings(
    context: BackendContext, fake: FakeCuda, way: str, tmp_path: Path
) -> None:
    if way != "c" or CC is None:
        pytest.skip("about C")
    flags = ["-std=gnu11", "-O2", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    shape = Var("m", INT32), Var("n", INT32)
    for kernel in (with_map(context, fake, shape, (32, 64)), scratch(context, fake, 0)):
        source = tmp_path / "host.c"
        source.write_text(kernel.artifact.host.source)  # type: ignore[union-attr]
        subprocess.run([CC, *flags, str(source)], check=True, timeout=60)
