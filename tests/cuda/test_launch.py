"""From hand-written CUDA to a launch: NVRTC, the generated host function, the (fake) driver."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import CC, DeviceArray, FakeCuda, make_artifact
from host_kernels import host_func, kernel_params

from tilec.backend import BackendContext, LaunchInfo
from tilec.diagnostics import ArgumentTypeError, ArgumentValueError, KernelRuntimeError
from tilec.host.callable import HostCallable, NativeEntry
from tilec.host.compiler import STUB_FLAGS
from tilec.ir import Buffer, DType, Var
from tilec.options import options
from tilec_cuda.execution import CudaExecutable, load
from tilec_cuda.host import PREPARE, SET_DRIVER
from tilec_cuda.runtime import RUNTIME

ADD = """
extern "C" __global__ void __launch_bounds__(128)
add_kernel(const float* A, const float* B, float* C, const int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) C[i] = A[i] + B[i];
}
"""
pytestmark = pytest.mark.filterwarnings("ignore:.*is launched from Python")


@pytest.fixture(params=["c", "python"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """With a C compiler and without one; the launches and the messages are the same."""
    if request.param == "c":
        yield request.param
        return
    with options(cc="/nonexistent/cc"):
        yield request.param


INT32, FLOAT32 = DType("int32"), DType("float32")


def add_kernel(
    context: BackendContext, fake: FakeCuda, *, out_idx: tuple[int, ...] = (), **info: Any
) -> CudaExecutable:
    n = Var("n", INT32)
    a, b, c = (Buffer(name, (n,), FLOAT32) for name in "ABC")
    host = host_func("add", (a, b, c), (a, b, c, n), device_type=2, out_idx=out_idx)
    host = host.with_attr("written", ["C"])
    info = {"grid": lambda n: ((n + 127) // 128,), "threads": (128,), **info}
    info["grid"] = info["grid"](n)
    launch = LaunchInfo("add_kernel", **info)
    fake.signature("add_kernel", [8, 8, 8, 4])
    params = kernel_params(host, ["C"])
    kernel = load(make_artifact(host, params, [launch], ADD, context), context)
    assert (kernel.stub is None) == bool(options.cc)
    return kernel


def arrays(count: int = 3, size: int = 300, device: int = 0) -> list[DeviceArray]:
    return [DeviceArray(np.zeros(size, "float32"), device) for _ in range(count)]


def test_a_launch_has_the_right_geometry_and_parameters(
    context: BackendContext, fake: FakeCuda
) -> None:
    kernel = add_kernel(context, fake)
    given = arrays()
    assert kernel(*given) is None
    [launch] = fake.launches
    assert launch.name == b"add_kernel"
    assert (list(launch.grid), list(launch.block)) == ([3, 1, 1], [128, 1, 1])
    assert (launch.shared, launch.stream, launch.device) == (0, None, 0)
    assert [launch.param(i) for i in range(3)] == [t.address for t in given]
    assert launch.param(3, "int32") == 300
    assert list(launch.cluster) == [0, 0, 0]


def test_the_binary_and_its_resources_are_kept(context: BackendContext, fake: FakeCuda) -> None:
    kernel = add_kernel(context, fake)
    assert kernel.artifact.device.binary is not None
    assert kernel.artifact.device.binary.startswith(b"\x7fELF")
    report = kernel.resource_usage["add_kernel"]
    assert 0 < report.registers < 64
    assert report.threads == 128
    assert report.spill_stores == 0
    assert report.blocks_per_sm == 16
    assert report.occupancy == 1.0


def test_the_image_is_loaded_once_and_contexts_are_left_alone(
    context: BackendContext, fake: FakeCuda, way: str
) -> None:
    kernel = add_kernel(context, fake)
    assert fake.library.fake_images() == 0
    for _ in range(3):
        kernel(*arrays())
    assert fake.library.fake_images() == 1
    assert fake.library.fake_depth() == 0
    fake.current(0)
    fake.clear_log()
    kernel(*arrays())
    assert set(fake.log) == {"cuCtxGetCurrent", "cuLaunchKernelEx"}
    if way == "c":
        assert len(fake.log) == 2


def test_an_empty_grid_launches_nothing(context: BackendContext, fake: FakeCuda) -> None:
    kernel = add_kernel(context, fake)
    fake.clear_log()
    kernel(*arrays(size=0))
    assert fake.launches == []
    assert fake.log == []


def test_every_device_gets_its_own_context(context: BackendContext, fake: FakeCuda) -> None:
    fake.devices(2)
    kernel = add_kernel(context, fake)
    kernel(*arrays(device=1))
    kernel(*arrays(device=0))
    kernel(*arrays(device=1))
    assert [launch.device for launch in fake.launches] == [1, 0, 1]
    assert fake.library.fake_images() == 1
    assert fake.library.fake_depth() == 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t[1].array, ArgumentValueError, "argument B: device expected cuda, got cpu"),
        (lambda t: arrays(1, 300, 1)[0], ArgumentValueError,
         "argument B: device index expected 0, got 1"),
        (lambda t: t[0:1], ArgumentTypeError, r"expected a tensor \(n,\) float32, got list"),
        (lambda t: DeviceArray(np.zeros(300, "float64")), ArgumentTypeError,
         "argument B: dtype expected float32, got float64"),
        (lambda t: DeviceArray(np.zeros((3, 100), "float32")), ArgumentValueError,
         "argument B: ndim expected 1, got 2"),
        (lambda t: DeviceArray(np.zeros(299, "float32")), ArgumentValueError,
         r"argument B: shape\[0\] expected 300 .*, got 299"),
        (lambda t: DeviceArray(np.zeros(600, "float32")[::2]), ArgumentValueError,
         r"argument B: strides\[0\] expected 1"),
        (lambda t: t[2], ArgumentValueError, "B and C share memory and C is written"),
        (lambda t: DeviceArray(np.zeros(300, "float32"), 0, 10), ArgumentValueError,
         "device expected cuda, got device type 10, index 0"),
        (lambda t: None, ArgumentTypeError, r"expected a tensor \(n,\) float32, got None"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(
    context: BackendContext, fake: FakeCuda, change: Any, error: Any, message: str
) -> None:
    fake.devices(2)
    kernel = add_kernel(context, fake)
    given: list[Any] = arrays()
    given[1] = change(given)
    with pytest.raises(error, match=message):
        kernel(*given)
    assert fake.launches == []


def test_alignment_asked_for_by_the_kernel_is_checked(
    context: BackendContext, fake: FakeCuda
) -> None:
    kernel = add_kernel(context, fake, attrs={"alignment": {"B": 16}})
    given = arrays()
    base = np.zeros(400, "float32")
    first = (-base.ctypes.data // 4) % 4
    given[1] = DeviceArray(base[first : first + 300])
    kernel(*given)
    given[1] = DeviceArray(base[first + 1 : first + 301])
    with pytest.raises(ArgumentValueError, match="data expected an address aligned to 16 bytes"):
        kernel(*given)
    given[0] = DeviceArray(base[first + 1 : first + 301])
    given[1] = arrays(1)[0]
    kernel(*given)


def test_launch_attributes_are_passed_on(context: BackendContext, fake: FakeCuda) -> None:
    attrs = {"cluster": (2, 1, 1), "cooperative": True, "programmatic": True}
    kernel = add_kernel(context, fake, attrs=attrs, shared_bytes=100_000)
    kernel(*arrays(size=512))
    [launch] = fake.launches
    assert list(launch.cluster) == [2, 1, 1]
    assert (launch.cooperative, launch.programmatic, launch.shared) == (1, 1, 100_000)
    assert fake.library.fake_attribute(b"add_kernel", 0, 8) == 100_000
    with pytest.raises(ArgumentValueError, match=r"multiple of the cluster's 2 blocks, got 3"):
        kernel(*arrays(size=300))


def test_large_clusters_are_asked_for(context: BackendContext, fake: FakeCuda) -> None:
    kernel = add_kernel(context, fake, attrs={"cluster": (16, 1, 1)})
    kernel(*arrays(size=2048))
    assert fake.library.fake_attribute(b"add_kernel", 0, 14) == 1


def test_too_much_shared_memory_is_refused(context: BackendContext, fake: FakeCuda) -> None:
    kernel = add_kernel(context, fake, shared_bytes=240_000)
    message = "a block needs 240000 bytes of shared memory, device 0 has 232448"
    with pytest.raises(KernelRuntimeError, match=message):
        kernel(*arrays())


def test_shared_memory_of_the_call(context: BackendContext, fake: FakeCuda) -> None:
    n = Var("n", INT32)
    a = Buffer("A", (n,), FLOAT32)
    host = host_func("rows", (a,), (a, n), device_type=2)
    launch = LaunchInfo("rows_kernel", grid=(1,), threads=(32,), shared_bytes=n * 4)
    source = 'extern "C" __global__ void rows_kernel(float* A, int n) {}'
    fake.signature("rows_kernel", [8, 4])
    kernel = load(make_artifact(host, kernel_params(host, []), [launch], source, context), context)
    kernel(*arrays(1, 20_000))
    assert fake.launches[0].shared == 80_000
    with pytest.raises(KernelRuntimeError, match="needs 240000 bytes of shared memory"):
        kernel(*arrays(1, 60_000))


def test_grids_that_are_too_large_are_refused(context: BackendContext, fake: FakeCuda) -> None:
    kernel = add_kernel(context, fake, grid=lambda n: (1, n - 1))
    with pytest.raises(
        ArgumentValueError, match=r"grid\[1\] expected 0 to 65535 blocks, got 69999"
    ):
        kernel(*arrays(size=70_000))
    with pytest.raises(ArgumentValueError, match=r"grid\[1\] .* got -1"):
        kernel(*arrays(size=0))


@pytest.mark.parametrize(
    ("call", "status", "message"),
    [
        ("cuInit", 100, r"the driver cannot be started: CUDA_ERROR_NO_DEVICE: no CUDA-capable "
         r"device is detected \(cuInit, status 100\)"),
        ("cuCtxGetCurrent", 201, "there is no context: CUDA_ERROR_INVALID_CONTEXT"),
        ("cuDevicePrimaryCtxRetain", 2, "the device has no context: CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuCtxPushCurrent", 201, "the device has no context: CUDA_ERROR_INVALID_CONTEXT"),
        ("cuStreamIsCapturing", 700, "the stream is not usable: CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuLibraryLoadData", 209, "the device code cannot be loaded: CUDA_ERROR_NO_BINARY"),
        ("cuLibraryGetKernel", 500, "the device code lacks the kernel: CUDA_ERROR_NOT_FOUND"),
        ("cuDeviceGetAttribute", 1, "the device cannot be asked: CUDA_ERROR_INVALID_VALUE"),
        ("cuKernelSetAttribute", 1, "shared memory is refused: CUDA_ERROR_INVALID_VALUE"),
        ("cuKernelGetFunction", 209, "the device code cannot be loaded: CUDA_ERROR_NO_BINARY"),
        ("cuLaunchKernelEx", 1, "the launch of 3 x 1 x 1 blocks of 128 threads with 100000 bytes "
         "of shared memory failed: CUDA_ERROR_INVALID_VALUE: invalid argument"),
        ("cuLaunchKernelEx", 999, ".*unknown CUDA error: the driver has no text for it"),
    ],
)  # fmt: skip
def test_errors_of_the_driver(
    context: BackendContext, fake: FakeCuda, way: str, call: str, status: int, message: str
) -> None:
    if (call, way) == ("cuInit", "python"):
        pytest.skip("Python has started the driver before the first call")
    kernel = add_kernel(context, fake, shared_bytes=100_000)
    fake.fail(call, status)
    with pytest.raises(KernelRuntimeError, match=f"kernel add: {message}"):
        kernel(*arrays())
    assert fake.library.fake_depth() == 0
    fake.heal()  # the failure was not for good
    kernel(*arrays())
    assert len(fake.launches) == 1


def test_nothing_is_loaded_inside_a_capture(context: BackendContext, fake: FakeCuda) -> None:
    kernel = add_kernel(context, fake)
    fake.capture(77)
    with pytest.raises(KernelRuntimeError, match="first call on device 0 is in a graph capture"):
        kernel(*arrays(), stream=77)
    assert fake.library.fake_images() == 0
    kernel(*arrays(), stream=78)
    fake.clear_log()
    kernel(*arrays(), stream=77)
    assert fake.launches[-1].stream == 77
    launching = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernelEx", "cuCtxPopCurrent"}
    assert set(fake.log) == launching


def test_kernels_are_loaded_at_once_where_a_device_is_in_use(
    context: BackendContext, fake: FakeCuda
) -> None:
    fake.current(0)
    kernel = add_kernel(context, fake)
    assert fake.library.fake_images() == 1
    fake.capture(77)
    kernel(*arrays(), stream=77)
    assert len(fake.launches) == 1
    assert PREPARE in kernel.artifact.host.source  # type: ignore[union-attr]


def test_an_image_can_be_linked_in(
    context: BackendContext, fake: FakeCuda, way: str, tmp_path: Path
) -> None:
    """As a library that is built ahead of time has it."""
    if way != "c":
        pytest.skip("about C")
    kernel = add_kernel(context, fake)
    assert kernel.artifact.host is not None
    sources = [tmp_path / "host.c", tmp_path / "image.c"]
    sources[0].write_text(kernel.artifact.host.source)
    numbers = ",".join(map(str, kernel.artifact.device.binary or b""))
    sources[1].write_text(f"const unsigned char tilec_image[] = {{{numbers}}};\n")
    path = tmp_path / "whole.so"
    flags = [*STUB_FLAGS, "-shared", "-o", str(path)]
    subprocess.run([str(CC), *flags, *map(str, sources)], check=True, timeout=60)
    library = ctypes.CDLL(str(path))
    driver_path = ctypes.c_char_p(str(fake.path).encode())
    getattr(library, SET_DRIVER).restype = None
    getattr(library, SET_DRIVER)(driver_path)
    entry = NativeEntry(library, kernel.artifact.host.symbol)
    call = HostCallable(entry, "", kernel.artifact.params, runtime=RUNTIME)
    call(*arrays())
    assert fake.library.fake_images() == 1
    assert len(fake.launches) == 1


def test_what_cannot_run_on_the_device_in_use_is_refused_when_it_is_loaded(
    context: BackendContext, fake: FakeCuda
) -> None:
    fake.current(0)
    with pytest.raises(KernelRuntimeError, match="a block needs 240000 bytes of shared memory"):
        add_kernel(context, fake, shared_bytes=240_000)
    fake.fail("cuLibraryLoadData", 209)
    with pytest.raises(KernelRuntimeError, match="CUDA_ERROR_NO_BINARY_FOR_GPU"):
        add_kernel(context, fake)


@pytest.mark.parametrize("status", [906, 700])
def test_loading_waits_while_something_is_captured(
    context: BackendContext, fake: FakeCuda, status: int
) -> None:
    fake.current(0)
    fake.fail("cuStreamIsCapturing", status)
    kernel = add_kernel(context, fake)
    assert fake.library.fake_images() == 0
    fake.heal()
    kernel(*arrays())
    assert fake.library.fake_images() == 1


def test_streams(context: BackendContext, fake: FakeCuda) -> None:
    class Handle:
        def __init__(self, **attrs: Any) -> None:
            self.__dict__.update(attrs)

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 15

    kernel = add_kernel(context, fake)
    for stream in (11, Handle(cuda_stream=12), Handle(ptr=13), Handle(handle=14), Protocol()):
        kernel(*arrays(), stream=stream)
    assert [launch.stream for launch in fake.launches] == [11, 12, 13, 14, 15]
    for wrong in ("default", True, object()):
        with pytest.raises(ArgumentTypeError, match="stream= takes a CUDA stream"):
            kernel(*arrays(), stream=wrong)


def test_producers_are_ordered_before_the_current_stream(
    context: BackendContext, fake: FakeCuda
) -> None:
    kernel = add_kernel(context, fake)
    given = arrays()
    kernel(*given)
    assert [t.asked for t in given] == [[1], [1], [1]]


def test_threads_load_once_and_launch_all(context: BackendContext, fake: FakeCuda) -> None:
    from tilec_cuda.driver import use_driver

    kernel = add_kernel(context, fake)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with use_driver(fake.driver):
                for _ in range(5):
                    kernel(*arrays())
        except BaseException as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert fake.library.fake_images() == 1
    assert fake.log.count("cuLaunchKernelEx") == 20
