"""The runtime on a real device: loading, launching, streams, graphs, timing.

Run with ``pytest -m gpu tests/cuda``; needs a driver, a device and torch.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import make_artifact
from host_kernels import host_func, kernel_params

import tilec
import tilec.language as T
from tilec.backend import BackendContext, HiddenArgument, LaunchInfo, Target
from tilec.diagnostics import ArgumentValueError, KernelRuntimeError
from tilec.ir import Buffer, DType, Var
from tilec.options import options
from tilec.profiler import do_bench
from tilec_cuda.driver import REGISTERS, driver, why_unusable
from tilec_cuda.execution import load
from tilec_cuda.plugin import CUDA
from tilec_cuda.runtime import RUNTIME
from tilec_cuda.tensor_maps import TensorMap

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*is launched from Python")]
FLOAT32, INT32 = DType("float32"), DType("int32")
SCALE = """
extern "C" __global__ void scale_kernel(const float* A, float* B, const float f, const int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) B[i] = A[i] * f;
}
"""


@pytest.fixture(scope="module")
def torch() -> Any:
    reason = why_unusable()
    if reason:
        pytest.skip(reason)
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch finds no device")
    return found


@pytest.fixture
def context(torch: Any) -> BackendContext:
    kind = CUDA.target_kinds[0]
    target = kind.resolve(Target("cuda"))  # type: ignore[union-attr]
    return BackendContext(CUDA, target, CUDA.execution_backends[0], CUDA.host_codegens[0])


@pytest.fixture(params=["c", "python"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "c":
        yield request.param
        return
    with options(cc="/nonexistent/cc"):
        yield request.param


def scale(context: BackendContext, **info: Any) -> Callable[..., Any]:
    """``B = A * f``, with B as an argument."""
    n, f = Var("n", INT32), Var("f", FLOAT32)
    a, b = Buffer("A", (n,), FLOAT32), Buffer("B", (n,), FLOAT32)
    host = host_func("scale", (a, b, f), (a, b, f, n), device_type=2).with_attr("written", ["B"])
    launch = LaunchInfo("scale_kernel", **{"grid": ((n + 127) // 128,), "threads": (128,), **info})
    params = kernel_params(host, ["B"])
    return load(make_artifact(host, params, [launch], SCALE, context), context)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 1000])
def test_values(torch: Any, context: BackendContext, way: str, size: int) -> None:
    a = torch.randn(size, device="cuda")
    b = torch.full_like(a, 7)
    scale(context)(a, b, 3.0)
    assert torch.equal(b, a * 3)


def test_attributes_of_launches(torch: Any, context: BackendContext, way: str) -> None:
    a, b = torch.randn(1024, device="cuda"), torch.zeros(1024, device="cuda")
    for attrs in ({"cooperative": True}, {"programmatic": True}, {"cluster": (4, 1, 1)}):
        if "cooperative" not in attrs and torch.cuda.get_device_capability() < (9, 0):
            continue
        b.zero_()
        scale(context, attrs=attrs, shared_bytes=60_000)(a, b, 2.0)
        assert torch.equal(b, a * 2), attrs


def test_work_is_ordered_by_the_current_stream(torch: Any, context: BackendContext) -> None:
    kernel = scale(context)
    a, b = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        a.fill_(5)
        kernel(a, b, 2.0)
        done = b.sum()
    torch.cuda.current_stream().wait_stream(side)
    assert done.item() == 10 * (1 << 20)


def test_a_stream_that_is_given(torch: Any, context: BackendContext, way: str) -> None:
    kernel = scale(context)
    a, b = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        a.fill_(5)
    kernel(a, b, 2.0, stream=side)
    side.synchronize()
    assert torch.equal(b, torch.full_like(b, 10))


def test_three_kernels_in_a_graph(torch: Any, context: BackendContext) -> None:
    kernel = scale(context)
    x, y, z, w = (torch.zeros(1000, device="cuda") for _ in range(4))
    kernel(x, y, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, y, 2.0)
        kernel(y, z, 3.0)
        kernel(z, w, 4.0)
    for value in (1.0, 2.5):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(w, torch.full_like(w, 24 * value))


def test_a_new_kernel_in_a_graph(torch: Any, context: BackendContext, way: str) -> None:
    """Compiled before the capture, it was loaded as well; compiled inside, it refuses."""
    torch.zeros(1, device="cuda")
    x, y = torch.ones(10, device="cuda"), torch.zeros(10, device="cuda")
    kernel = scale(context)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, y, 2.0)
    graph.replay()
    torch.cuda.synchronize()
    assert y.sum().item() == 20
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other):
        late = scale(context)
        with pytest.raises(KernelRuntimeError, match="is in a graph capture"):
            late(x, y, 2.0)


def test_tensors_elsewhere(torch: Any, context: BackendContext, way: str) -> None:
    kernel = scale(context)
    a = torch.ones(10, device="cuda")
    with pytest.raises(ArgumentValueError, match="argument B: device expected cuda, got cpu"):
        kernel(a, torch.ones(10), 1.0)
    if torch.cuda.device_count() > 1:
        with pytest.raises(ArgumentValueError, match="argument B: device index expected 0, got 1"):
            kernel(a, torch.ones(10, device="cuda:1"), 1.0)


def test_several_devices(torch: Any, context: BackendContext, way: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    kernel = scale(context)
    for index in (1, 0, 1):
        a = torch.randn(1000, device=f"cuda:{index}")
        b = torch.zeros_like(a)
        kernel(a, b, 2.0)
        torch.cuda.synchronize(index)
        assert torch.equal(b, a * 2)
    assert torch.cuda.current_device() == 0


def test_failures_have_the_drivers_words(torch: Any, context: BackendContext, way: str) -> None:
    kernel = scale(context, threads=(2048,))
    a, b = torch.ones(10, device="cuda"), torch.zeros(10, device="cuda")
    with pytest.raises(KernelRuntimeError, match="CUDA_ERROR_INVALID_VALUE: invalid argument"):
        kernel(a, b, 1.0)
    most = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    kernel = scale(context, shared_bytes=most)
    kernel(a, b, 3.0)
    assert b.sum().item() == 30
    with pytest.raises(KernelRuntimeError, match=f"needs {most + 16} bytes of shared memory"):
        scale(context, shared_bytes=most + 16)(a, b, 1.0)


TMA = """
struct alignas(64) Map { char bits[128]; };
extern "C" __global__ void box_kernel(const __grid_constant__ Map m, const unsigned short* A,
                                      unsigned short* B) {
  __shared__ alignas(1024) unsigned short tile[32 * 64];
  __shared__ alignas(8) unsigned long long bar;
  const unsigned t = (unsigned)__cvta_generic_to_shared(tile);
  const unsigned b = (unsigned)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(b));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" ::"r"(b));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(t), "l"(&m), "r"(64), "r"(32), "r"(b)
                 : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p; w: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra w; }"
               ::"r"(b) : "memory");
  for (int i = threadIdx.x; i < 32 * 64; i += 128) B[i] = tile[i];
}
"""


def test_tensor_maps(torch: Any, context: BackendContext, way: str) -> None:
    """The second box of 32 x 64 elements, zeros outside."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("no bulk copy engine")
    m, n = Var("m", INT32), Var("n", INT32)
    a, b = Buffer("A", (m, n), DType("float16")), Buffer("B", (32, 64), DType("float16"))
    host = host_func("box", (a, b), (a, b), device_type=2).with_attr("written", ["B"])
    attrs = {"tensor_maps": (TensorMap("A_map", a, (32, 64), 0),)}
    launch = LaunchInfo("box_kernel", grid=(1,), threads=(128,), attrs=attrs)
    params = kernel_params(host, ["B"])
    kernel = load(make_artifact(host, params, [launch], TMA, context), context)
    for rows, columns in ((64, 128), (50, 120), (33, 72)):
        given = torch.randn(rows, columns, device="cuda").half()
        out = torch.full((32, 64), 7.0, device="cuda", dtype=torch.float16)
        kernel(given, out)
        wanted = torch.zeros_like(out)
        part = given[32:64, 64:128]
        wanted[: part.shape[0], : part.shape[1]] = part
        assert torch.equal(out, wanted), (rows, columns)


def test_scratch_memory(torch: Any, context: BackendContext, way: str) -> None:
    n = Var("n", INT32)
    b = Buffer("B", (n,), FLOAT32)
    host = host_func("sum", (b,), (b, n), device_type=2).with_attr("written", ["B"])
    hidden = HiddenArgument("space", FLOAT32, 4, 0)
    launch = LaunchInfo("sum_kernel", grid=(n,), threads=(32,), hidden=(hidden,))
    source = """
extern "C" __global__ void sum_kernel(float* B, int n, float* space) {
  if (threadIdx.x == 0) B[blockIdx.x] = atomicAdd(space, 1.0f);
}"""
    params = kernel_params(host, ["B"])
    kernel = load(make_artifact(host, params, [launch], source, context), context)
    for _ in range(3):
        out = torch.zeros(64, device="cuda")
        kernel(out)
        assert sorted(out.tolist()) == list(range(64))


def compiled_scale() -> Any:
    @T.prim_func
    def doubled(A: T.Tensor((1000,), "float32"), B: T.Tensor((1000,), "float32")):  # type: ignore[valid-type]
        with T.Kernel(T.ceildiv(1000, 128), threads=128) as block:
            for i in T.Parallel(128):
                if block * 128 + i < 1000:
                    B[block * 128 + i] = A[block * 128 + i] * 2

    return tilec.compile(doubled, out_idx=[1], target="cuda")


def test_a_tile_kernel(torch: Any) -> None:
    kernel = compiled_scale()
    a = torch.randn(1000, device="cuda")
    assert torch.equal(kernel(a), a * 2)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    result = kernel(a, stream=side)
    side.synchronize()
    assert torch.equal(result, a * 2)


def test_the_report_agrees_with_the_driver(torch: Any) -> None:
    kernel = compiled_scale()
    [(name, report)] = kernel.resource_usage.items()
    found = driver()
    with found.on(0):
        nothing = (None, None, 0, None, None, 0)
        library = found.handle("cuLibraryLoadData", kernel.artifact.device.binary, *nothing)
        function = found.handle("cuLibraryGetKernel", library, name.encode())
        assert report.registers == found.integer("cuKernelGetAttribute", REGISTERS, function, 0)
        handle = found.handle("cuKernelGetFunction", function)
        shared = max(report.dynamic_shared, 0)
        given = (handle, report.threads, shared)
        blocks = found.integer("cuOccupancyMaxActiveBlocksPerMultiprocessor", *given)
        found.call("cuLibraryUnload", library)
    assert report.blocks_per_sm == blocks
    assert kernel.n_regs == report.registers
    assert kernel.n_spills == 0


def test_timing(torch: Any) -> None:
    a, b = (torch.randn(1 << 26, device="cuda") for _ in range(2))
    moved = 3 * a.nbytes

    def work() -> None:
        torch.add(a, b, out=a)

    times = {
        name: do_bench(work, backend=name, runtime=RUNTIME, return_mode="median")
        for name in ("event", "cudagraph")
    }
    for name, milliseconds in times.items():
        assert 50e9 < moved / (milliseconds * 1e-3) < 20e12, name  # type: ignore[operator]
    assert times["event"] == pytest.approx(times["cudagraph"], rel=0.2)
    kernel = compiled_scale()
    profiler = kernel.get_profiler()
    assert 0 < profiler.do_bench(rep=5, backend="cudagraph") < 1  # type: ignore[operator]
    profiler.assert_allclose(lambda x: x * 2, atol=0, rtol=0)


def test_other_frameworks(torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    kernel = compiled_scale()
    a = cupy.random.rand(1000).astype("float32")
    result = kernel(a)
    assert isinstance(result, cupy.ndarray)
    assert (result == a * 2).all()


def test_a_crashed_device_is_reported_and_the_process_lives(torch: Any) -> None:
    """In a process of its own: the context is lost."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "host")]
    program = """
    from test_gpu_runtime import *
    import torch

    kind = CUDA.target_kinds[0]
    context = BackendContext(CUDA, kind.resolve(Target("cuda")), CUDA.execution_backends[0],
                             CUDA.host_codegens[0])
    source = 'extern "C" __global__ void bad_kernel(float* A) { *(volatile int*)8 = 1; }'
    a = Buffer("A", (1,), FLOAT32)
    host = host_func("bad", (a,), (a,), device_type=2)
    launch = LaunchInfo("bad_kernel", grid=(1,), threads=(1,))
    made = make_artifact(host, kernel_params(host, ["A"]), [launch], source, context)
    kernel = load(made, context)
    x = torch.zeros(1, device="cuda")
    kernel(x)
    for _ in range(3):
        try:
            RUNTIME.synchronize(0)
            kernel(x)
        except KernelRuntimeError as error:
            print("reported:", error.message)
            break
    """
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = {folders!r}\n{textwrap.dedent(program)}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "reported:" in done.stdout, done.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout


def test_the_cost_of_a_call(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Three tensors; printed, and bounded loosely."""
    import timeit

    @T.prim_func
    def added(
        A: T.Tensor((1024,), "float32"),  # type: ignore[valid-type]
        B: T.Tensor((1024,), "float32"),  # type: ignore[valid-type]
        C: T.Tensor((1024,), "float32"),  # type: ignore[valid-type]
    ):
        with T.Kernel(8, threads=128) as block:
            for i in T.Parallel(128):
                C[block * 128 + i] = A[block * 128 + i] + B[block * 128 + i]

    kernel = tilec.compile(added, target="cuda")
    a, b, c = (torch.randn(1024, device="cuda") for _ in range(3))

    def cost(fn: Callable[[], object]) -> float:
        fn()
        torch.cuda.synchronize()
        best = min(timeit.repeat(fn, number=500, repeat=9))
        torch.cuda.synchronize()
        return best / 500 * 1e6

    ours, theirs = cost(lambda: kernel(a, b, c)), cost(lambda: torch.add(a, b, out=c))
    with capsys.disabled():
        sys.stdout.write(f"\ncall, three tensors: {ours:.2f} us; torch.add: {theirs:.2f} us\n")
    assert ours < 60
