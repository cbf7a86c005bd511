"""Tensors, outputs, streams and timers, with the fake driver and made-up frameworks."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from fake_cuda import DeviceArray, FakeCuda, InterfaceArray, make_artifact
from host_kernels import host_func, kernel_params

import tilec
import tilec.language as T
from tilec.backend import BackendContext, LaunchInfo, Measurement, registry
from tilec.diagnostics import (
    ArgumentTypeError,
    ArgumentValueError,
    BackendSelectionError,
    KernelRuntimeError,
    OutputAllocationError,
)
from tilec.ir import Buffer, DType, Var
from tilec.profiler import do_bench
from tilec.tools import doctor
from tilec_cuda.driver import DriverError
from tilec_cuda.execution import CudaExecutable, load, load_for_pycuda
from tilec_cuda.machine import machine_facts
from tilec_cuda.runtime import RUNTIME, allocate, describe
from tilec_cuda.streams import current_stream, default_stream
from tilec_cuda.timers import by_events, by_graph, evict

SOURCE = 'extern "C" __global__ void twice_kernel(const float* A, float* B, int n) {}'


def twice(context: BackendContext, fake: FakeCuda, out_idx: tuple[int, ...] = ()) -> CudaExecutable:
    n = Var("n", DType("int32"))
    a, b = (Buffer(name, (n,), DType("float32")) for name in "AB")
    host = host_func("twice", (a, b), (a, b, n), device_type=2, out_idx=out_idx)
    host = host.with_attr("written", ["B"])
    launch = LaunchInfo("twice_kernel", grid=(1,), threads=(32,))
    fake.signature("twice_kernel", [8, 8, 4])
    params = kernel_params(host, ["B"])
    return load(make_artifact(host, params, [launch], SOURCE, context), context)


def test_tensors_with_only_the_array_interface(context: BackendContext, fake: FakeCuda) -> None:
    kernel = twice(context, fake)
    a, b = np.zeros(10, "float32"), np.zeros(10, "float32")
    kernel(InterfaceArray(a), InterfaceArray(b))
    [launch] = fake.launches
    assert (launch.param(0), launch.param(1)) == (a.ctypes.data, b.ctypes.data)
    kernel(InterfaceArray(a, strides=None), InterfaceArray(b))
    with pytest.raises(ArgumentValueError, match=r"A: strides\[0\] expected 1"):
        kernel(InterfaceArray(np.zeros(20, "float32")[::2]), InterfaceArray(b))
    with pytest.raises(ArgumentValueError, match="B: the tensor is read-only"):
        kernel(InterfaceArray(a), InterfaceArray(b, data=(b.ctypes.data, True)))
    with pytest.raises(ArgumentTypeError, match="dtype expected float32, got int32"):
        kernel(InterfaceArray(np.zeros(10, "int32")), InterfaceArray(b))


def test_interfaces_that_are_not_understood() -> None:
    a = np.zeros(4, "float32")
    assert describe(a) is None
    for changes, message in (
        ({"mask": object()}, "masked"),
        ({"typestr": "<c8"}, "'<c8' cannot be passed"),
        ({"typestr": ">f4"}, "'>f4' cannot be passed"),
        ({"strides": (3,)}, "not multiples of 4 bytes"),
    ):
        with pytest.raises(ArgumentTypeError, match=message):
            describe(InterfaceArray(a, **changes))


class FakeTorch(ModuleType):
    """As much of torch as the runtime asks for."""

    class Tensor:
        pass

    def __init__(self) -> None:
        super().__init__("torch")
        self.float32, self.made = "torch.float32", []
        self.raw = {0: 101, 1: 102}
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=self.raw.__getitem__)
        self.cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 1)

    def empty(self, shape: Any, dtype: Any, device: Any) -> Any:
        self.made.append((shape, dtype, device))
        return DeviceArray(np.empty(shape, "float32"))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    made = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_the_stream_is_that_of_the_tensors_device(
    context: BackendContext, fake: FakeCuda, torch: FakeTorch
) -> None:
    fake.devices(2)
    kernel = twice(context, fake)
    for device in (0, 1, 0):
        kernel(*(DeviceArray(np.zeros(8, "float32"), device) for _ in range(2)))
    assert [launch.stream for launch in fake.launches] == [101, 102, 101]
    torch.raw[0] = 7
    given = [DeviceArray(np.zeros(8, "float32")) for _ in range(2)]
    kernel(*given)
    assert fake.launches[-1].stream == 7
    assert given[0].asked == [7]
    assert current_stream(-1) == 102


@pytest.mark.usefixtures("no_torch")
def test_streams_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert current_stream(0) == 0
    with default_stream(55):
        assert current_stream(0) == 55
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        Device=lambda: SimpleNamespace(id=0),
        get_current_stream=lambda: SimpleNamespace(ptr=66),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert current_stream(0) == current_stream(-1) == 66


def test_outputs_come_from_the_framework_of_the_inputs(
    context: BackendContext, fake: FakeCuda, torch: FakeTorch
) -> None:
    class Owned(DeviceArray):
        pass

    Owned.__module__ = "torch._tensor"
    kernel = twice(context, fake, out_idx=(1,))
    result = kernel(Owned(np.zeros(12, "float32")))
    assert torch.made == [((12,), "torch.float32", "cuda:0")]
    assert fake.launches[0].param(1) == result.address


@pytest.mark.usefixtures("no_torch")
def test_outputs_of_unknown_frameworks_are_refused(context: BackendContext, fake: FakeCuda) -> None:
    kernel = twice(context, fake, out_idx=(1,))
    with pytest.raises(OutputAllocationError, match=r"allocated like fake_cuda\.Dev"):
        kernel(DeviceArray(np.zeros(12, "float32")))
    with pytest.raises(OutputAllocationError, match="like no tensor"):
        allocate(None, (3,), DType("float32"), -1)


def test_outputs_of_pycuda_and_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    class GPUArray:
        def __init__(self, shape: Any, dtype: Any) -> None:
            self.shape, self.dtype = shape, dtype

    GPUArray.__module__ = "pycuda.gpuarray"
    made = allocate(GPUArray((1,), None), (3, 4), DType("float16"), 0)
    assert (type(made), made.shape, made.dtype) == (GPUArray, (3, 4), np.dtype("float16"))

    class Device:
        entered: ClassVar[list[int]] = []

        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            self.entered.append(self.index)

        def __exit__(self, *args: Any) -> None:
            pass

    class ndarray:
        pass

    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(Device=Device)  # type: ignore[attr-defined]
    cupy.empty = np.empty  # type: ignore[attr-defined]
    ndarray.__module__ = "cupy"
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert allocate(ndarray(), (3,), DType("int32"), 2).dtype == np.int32
    assert Device.entered == [2]


@pytest.mark.usefixtures("nvrtc")
def test_pycuda_needs_its_context(
    context: BackendContext, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    pycuda = context.module.execution_backend("pycuda")
    assert pycuda is not None
    assert "pycuda cannot be imported" in pycuda.available(context.target).reason
    monkeypatch.setitem(sys.modules, "pycuda", ModuleType("pycuda"))
    monkeypatch.setitem(sys.modules, "pycuda.driver", ModuleType("pycuda.driver"))
    assert pycuda.available(context.target).ok
    artifact = twice(context, fake).artifact
    with pytest.raises(KernelRuntimeError, match="PyCUDA has no current context"):
        load_for_pycuda(artifact, context)
    fake.current(0)
    kernel = load_for_pycuda(artifact, context)
    arrays = [InterfaceArray(np.zeros(4, "float32")) for _ in range(2)]
    fake.clear_log()
    kernel(*arrays, stream=SimpleNamespace(handle=9))
    assert fake.launches[-1].stream == 9
    assert "cuCtxPushCurrent" not in fake.log


# --- timers --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_torch")
def test_events_surround_the_call_alone(fake: FakeCuda) -> None:
    clear = evict(1 << 10)

    def work() -> None:
        fake.library.fake_tick(2.0)

    assert by_events(Measurement(work, 3, clear)) == pytest.approx([0.002] * 3)
    assert fake.log.count("cuMemsetD8Async") == 3
    assert fake.library.fake_depth() == 0


@pytest.mark.usefixtures("no_torch")
def test_graphs_are_captured_once_and_replayed(fake: FakeCuda) -> None:
    streams = []

    def work() -> None:
        streams.append(current_stream(-1))

    assert by_graph(Measurement(work, 4, None)) == pytest.approx([0.003] * 4)
    assert len(streams) == 2
    assert len(set(streams)) == 1
    assert streams[0] != 0
    assert fake.log.count("cuGraphLaunch") == 4


@pytest.mark.usefixtures("no_torch")
def test_a_failing_capture_is_ended(fake: FakeCuda) -> None:
    calls = []

    def work() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        by_graph(Measurement(work, 1, None))
    assert "cuStreamEndCapture" in fake.log
    assert "cuGraphLaunch" not in fake.log


@pytest.mark.usefixtures("no_torch")
def test_do_bench_uses_the_devices_timers(fake: FakeCuda) -> None:
    before = fake.library.fake_allocated()
    found = do_bench(lambda: fake.library.fake_tick(4.0), rep=40, cache_size=1, runtime=RUNTIME)
    assert found == pytest.approx(4.0)
    graph = do_bench(lambda: None, rep=10, backend="cudagraph", cache_size=0, runtime=RUNTIME)
    assert graph == pytest.approx(3.0)
    assert fake.library.fake_allocated() == before


def test_waiting_for_the_device(fake: FakeCuda) -> None:
    RUNTIME.synchronize(0)
    assert "cuCtxSynchronize" in fake.log
    fake.fail("cuCtxSynchronize", 700)
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"):
        RUNTIME.synchronize(0)


# --- the whole way -------------------------------------------------------------------------------


@T.prim_func
def added(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):  # type: ignore[valid-type, no-untyped-def]
    with T.Kernel(2, threads=128) as block:
        for i in T.Parallel(128):
            B[block * 128 + i] = A[block * 128 + i] + 1


@pytest.mark.usefixtures("nvrtc")
def test_a_tile_kernel_is_compiled_and_launched(fake: FakeCuda) -> None:
    kernel = tilec.compile(added, target="cuda")
    fake.signature("added_kernel", [8, 8])
    a, b = (DeviceArray(np.zeros(256, "float32")) for _ in range(2))
    kernel(a, b, stream=3)
    [launch] = fake.launches
    assert (list(launch.grid), launch.stream) == ([2, 1, 1], 3)
    assert (launch.param(0), launch.param(1)) == (a.address, b.address)
    assert kernel.artifact.rt_mod is not None
    assert kernel.n_spills == 0
    assert "registers" in kernel.explain()
    with pytest.raises(ArgumentTypeError, match="positional arguments only, got size"):
        kernel(a, b, size=3)


def test_without_a_device_everything_up_to_the_binary_works() -> None:
    target = {"kind": "cuda", "arch": "sm_80"}
    artifact = tilec.lower(added, target=target, enable_device_compile=True)
    assert artifact.rt_mod is not None
    assert artifact.rt_mod[:4] == b"\x7fELF"
    assert "cuLaunchKernelEx" in (artifact.host_source or "")


def test_running_without_a_driver_is_refused_with_the_reason(fake: FakeCuda) -> None:
    fake.devices(0)
    with pytest.raises(BackendSelectionError) as info:
        tilec.compile(added, target={"kind": "cuda", "arch": "sm_80"})
    assert "nvrtc: the CUDA driver found no device" in info.value.notes


@pytest.mark.usefixtures("nvrtc")
def test_the_doctor_knows_the_machine(fake: FakeCuda) -> None:
    fake.devices(2)
    facts = machine_facts()
    assert facts["driver"].startswith("for CUDA 13.0")
    assert facts["device 1"].startswith("Fake Device 1, sm_90a, 132 multiprocessors, 227 KiB")
    assert "NVRTC" in facts
    text = doctor.render(doctor.examine(registry(), smoke=False))
    assert "device 0: Fake Device 0" in text
    assert "execution backend nvrtc: available" in text
