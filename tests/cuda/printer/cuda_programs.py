"""Programs in thread form for the tests of the CUDA printer; how to compile and run them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec import ir
from tilec.arith import FOLDABLE, storage_dtype
from tilec.diagnostics import ToolchainError
from tilec.ir import BinOp, DType
from tilec.transform.base import PassContext
from tilec.transform.capabilities import Capabilities
from tilec.transform.flatten import FlattenBuffers
from tilec.transform.split import SplitHostDevice
from tilec_cuda.arch import Arch
from tilec_cuda.codegen import print_module
from tilec_cuda.nvrtc import find_nvrtc
from tilec_cuda.tensor_maps import MakeTensorMaps

ARCHES = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
INT32, BOOL = DType("int32"), DType("bool")
INTEGERS = tuple(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2")
SCALARS = ("bool", *INTEGERS, *FLOATS)
MORE_FLOATS = ("float8_e3m4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz",
               "float8_e5m2fnuz", "float8_e8m0fnu")  # fmt: skip


def const(value: int) -> ir.Const:
    """An int32 constant."""
    return ir.Const(value, INT32)


def loop(
    count: Any, body: Callable[[ir.Var], ir.Stmt], kind: str = "serial", name: str = "i"
) -> ir.For:
    """``for i in range(count): body(i)``."""
    var = ir.Var(name, INT32)
    return ir.For(var, const(0), ir.as_expr(count), const(1), kind, {}, body(var))


def effect(name: str, *args: Any, dtype: str = "int32", **attrs: Any) -> ir.Stmt:
    """An evaluated call."""
    operands = tuple(a if isinstance(a, (ir.Node, str)) else ir.as_expr(a) for a in args)
    return ir.Evaluate(ir.Call(name, operands, DType(dtype), attrs))


def split(
    body: Callable[..., ir.Stmt],
    params: Sequence[Any],
    *,
    grid: Any = 1,
    threads: tuple[int, ...] = (128,),
    layouts: Any = (),
    annotations: Any = None,
    name: str = "k",
) -> ir.Module:
    """Device functions of a launch with the body ``body(bx, *thread_vars)``, in split form."""
    bx = ir.Var("bx", INT32)
    lanes = tuple(ir.Var(f"t{axis}", INT32) for axis, _n in zip("xyz", threads, strict=False))
    notes = {**(annotations or {}), "layouts": list(layouts)}
    launch = ir.Launch((bx,), (ir.as_expr(grid),), lanes, threads, notes, body(bx, *lanes))
    func = ir.PrimFunc(name, tuple(params), launch, {})
    ctx = PassContext(capabilities=Capabilities(lanes=32))
    module = SplitHostDevice().run(ir.Module({name: func}), ctx)
    module = MakeTensorMaps().run(FlattenBuffers().run(module, ctx), ctx)
    device = {
        key: f for key, f in module.functions.items()
        if f.attrs["calling_conv"] == "device_kernel"
    }  # fmt: skip
    return ir.Module(device)


def source(module: ir.Module, arch: str = "sm_90a", **options: Any) -> str:
    """The CUDA text of device functions."""
    return print_module(module, Arch.parse(arch), **options)


def kernel_text(module: ir.Module, arch: str = "sm_90a", **options: Any) -> str:
    """The text from the first kernel on, without types and prelude."""
    text = source(module, arch, **options)
    return text[text.index('extern "C"') :]


# Compilation


OPTIONS = ("--minimal", "--std=c++17", "--fmad=false", "--ptxas-options=-v")


def compile_cuda(text: str, arch: str = "sm_90a") -> tuple[bytes, str]:
    """The cubin of a source, and the compiler's log."""
    try:
        compiler = find_nvrtc()
    except ToolchainError as error:
        pytest.skip(str(error))
    result = compiler.compile(text, arch, OPTIONS)
    return result.image, result.log


def check_compiles(module: ir.Module, arch: str, **options: Any) -> str:
    """Compile for an architecture; no warning, no spill. The log."""
    text = source(module, arch, **options)
    _cubin, log = compile_cuda(text, arch)
    assert "warning" not in log, f"{log}\n{text}"
    for code in ("C7504", "C7508", "C7515", "C7519"):
        assert code not in log, log
    return log


# Host: the same text, compiled for one lane at a time

_SHIM = """
#include <cmath>
#include <cstdint>
#include <cstring>
using std::isnan; using std::isinf; using std::isfinite;
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
struct Place { int x, y, z; };
static Place threadIdx, blockIdx;
template <class T, class U> static T pun(U x) { T y; std::memcpy(&y, &x, sizeof y); return y; }
static uint32_t __float_as_uint(float x) { return pun<uint32_t>(x); }
static float __uint_as_float(uint32_t x) { return pun<float>(x); }
static float __int_as_float(int32_t x) { return pun<float>(x); }
static int64_t __double_as_longlong(double x) { return pun<int64_t>(x); }
static double __longlong_as_double(int64_t x) { return pun<double>(x); }
#define exp10f(x) powf(10.0f, x)
#define exp10(x) pow(10.0, x)
#define rsqrtf(x) (float)(1.0 / sqrt((double)(x)))
#define rsqrt(x) (1.0 / sqrt(x))
// Toward zero: the nearest, and one step back where that is beyond.
template <class T> static float toward_zero(T x) {
  volatile float y = (float)x;
  long double exact = (long double)x, near = y;
  return (exact < 0 ? near < exact : near > exact) ? std::nextafterf(y, 0.0f) : (float)y;
}
#define __double2float_rz toward_zero
#define __int2float_rz toward_zero
#define __uint2float_rz toward_zero
#define __ll2float_rz toward_zero
#define __ull2float_rz toward_zero
static float tilec_f16_to_f32(uint16_t x) {
  int e = x >> 10 & 31, m = x & 1023;
  float y = e == 31 ? (m ? NAN : INFINITY)
                    : e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24);
  return x >> 15 ? -y : y;
}
static uint16_t tilec_f32_to_f16(float x) {
  uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return 0x7fff;
  if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (a < 0x38800000) return (uint16_t)(sign | (uint32_t)rintf(__uint_as_float(a) * 0x1p24f));
  a += 0xfff + (a >> 13 & 1);
  return (uint16_t)(sign | ((a >> 13) - (112 << 10)));
}
"""


def host_source(text: str) -> str:
    """A device source, made for sm_75, as C++ of the host (no asm is left in it)."""
    text = re.sub(r"^typedef .*\n", "", text, flags=re.M)
    for name in ("f16_to_f32", "f32_to_f16"):
        text = re.sub(
            rf"^static __device__ __forceinline__ \w+ tilec_{name}\(.*?^}}\n", "", text,
            flags=re.M | re.S,
        )  # fmt: skip
    assert "asm" not in text, text
    return _SHIM + text


def host_compile(text: str, folder: Path) -> ctypes.CDLL:
    """A device source for sm_75 as a library of the host, ``k_kernel(lane, ...)`` of it."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    path = folder / "kernel.cpp"
    code = host_source(text)
    setter = 'extern "C" void set_lane(int lane) { threadIdx.x = lane; }\n'
    path.write_text(code + setter)
    library = folder / "kernel.so"
    flags = ["-O1", "-ffp-contract=off", "-fwrapv", "-shared", "-fPIC", "-w", "-x", "c++"]
    done = subprocess.run(
        [compiler, *flags, str(path), "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return ctypes.CDLL(str(library))


# Device


class Gpu:
    """The first device, through the driver's own functions."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        version = [ctypes.c_int(), ctypes.c_int()]
        for which, value in zip((75, 76), version, strict=True):
            self._call("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        self.number = version[0].value * 10 + version[1].value
        self.arch = f"sm_{self.number}" + ("a" if self.number >= 90 else "")
        self._device = device
        self._start()

    def _start(self) -> None:
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        assert status == 0, f"{name} failed with {status}"

    def run(
        self,
        module: ir.Module,
        arrays: Sequence[Any],
        scalars: Sequence[Any] = (),
        maps: Sequence[Any] = (),
        grid: int = 1,
    ) -> list[Any]:
        """Launch the one kernel of a module; all arrays as they are afterwards.

        Args:
            module: in split form.
            arrays: for its buffers.
            scalars: ctypes values behind them.
            maps: (index of an array, record) in front of them.
            grid: blocks.
        """
        (func,) = module.functions.values()
        cubin, _log = compile_cuda(source(module, self.arch), self.arch)
        image, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(image), cubin)
        self._call("cuModuleGetFunction", ctypes.byref(function), image, func.name.encode())
        places = [ctypes.c_uint64() for _ in arrays]
        held = [np.ascontiguousarray(a) for a in arrays]
        for place, array in zip(places, held, strict=True):
            self._call("cuMemAlloc_v2", ctypes.byref(place), max(array.nbytes, 4) + 16)
            self._call("cuMemcpyHtoD_v2", place, ctypes.c_void_p(array.ctypes.data), array.nbytes)
        encoded = [self._tensor_map(places[n], record) for n, record in maps]
        params = [*encoded, *places, *scalars]
        pointers = (ctypes.c_void_p * len(params))(*(ctypes.addressof(p) for p in params))
        threads = (*func.attrs["launch"]["threads"], 1, 1)[:3]
        self._call("cuLaunchKernel", function, grid, 1, 1, *threads, 0, None, pointers, None)
        if self._library.cuCtxSynchronize():
            # What failed here must not fail the tests that follow.
            self._library.cuDevicePrimaryCtxReset_v2(self._device)
            self._start()
            raise AssertionError("the kernel failed")
        results = []
        for place, array in zip(places, held, strict=True):
            result = np.empty_like(array)
            self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), place, result.nbytes)
            self._call("cuMemFree_v2", place)
            results.append(result)
        self._call("cuModuleUnload", image)
        return results

    def _tensor_map(self, place: Any, record: Any) -> Any:
        kinds = {"bfloat16": 9, "float16": 6, "float32": 7, "float8_e4m3": 0}
        item = record.buffer.dtype.bytes
        rank = record.buffer.ndim
        shape = (ctypes.c_uint64 * rank)(*reversed(record.buffer.shape))
        steps = [s * item for s in reversed(record.buffer.element_strides())]
        strides = (ctypes.c_uint64 * rank)(*steps[1:])
        box = (ctypes.c_uint32 * rank)(*reversed(record.box))
        ones = (ctypes.c_uint32 * rank)(*[1] * rank)
        swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[record.swizzle]
        raw = (ctypes.c_uint64 * 32)()
        base = ctypes.addressof(raw)
        aligned = (ctypes.c_uint64 * 16).from_buffer(raw, -base % 128)
        self._call(
            "cuTensorMapEncodeTiled", aligned, kinds[str(record.buffer.dtype)], rank, place, shape,
            strides, box, ones, 0, swizzle, 0, 0,
        )  # fmt: skip
        return aligned


def find_gpu() -> Gpu:
    """The device; skips the test where there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("needs an NVIDIA GPU")
    if library.cuInit(0):
        pytest.skip("needs an NVIDIA GPU")
    return Gpu(library)


# Scalar programs


class Program:
    """Several expressions of the same inputs: ``out_n[i] = make_n(a0[i], ...)`` by 128 lanes.

    Args:
        inputs: dtypes.
        makes: what to compute, with the dtype of the result.
        count: elements.
    """

    def __init__(
        self, inputs: Sequence[str], makes: Sequence[tuple[Callable[..., Any], str]], count: int
    ) -> None:
        self.count = count
        self.outputs = [output for _make, output in makes]
        buffers = [ir.Buffer(f"a{n}", (count,), DType(d)) for n, d in enumerate(inputs)]
        outs = [ir.Buffer(f"out{n}", (count,), DType(d)) for n, d in enumerate(self.outputs)]

        def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
            var = ir.Var("i", INT32)
            stores = [
                ir.Store(out, (var,), ir.as_expr(make(*(b[var] for b in buffers))))
                for out, (make, _d) in zip(outs, makes, strict=True)
            ]
            return ir.For(var, tx, const(count), const(128), "serial", {}, ir.seq(*stores))

        self.module = split(body, [*buffers, *outs])

    def on_gpu(self, gpu: Gpu, arrays: Sequence[Any]) -> list[Any]:
        """The results of the device."""
        outs = [np.zeros(self.count, storage(d)) for d in self.outputs]
        return gpu.run(self.module, [*arrays, *outs])[len(arrays) :]

    def on_host(self, arrays: Sequence[Any], folder: Path) -> list[Any]:
        """The results, computed by the text for sm_75 as C++ of the host."""
        library = host_compile(source(self.module, "sm_75"), folder)
        outs = [np.zeros(self.count, storage(d)) for d in self.outputs]
        held = [np.ascontiguousarray(a) for a in arrays]
        places = [ctypes.c_void_p(a.ctypes.data) for a in (*held, *outs)]
        for lane in range(128):
            library.set_lane(lane)
            library.k_kernel(*places)
        return outs


def storage(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of stored elements."""
    return np.dtype(storage_dtype(DType(dtype)))


def edge_values(dtype: str, rng: np.random.Generator, more: int = 64) -> Any:
    """Special values of a type and random bit patterns, in its storage dtype."""
    kind = DType(dtype)
    own = storage(dtype)
    if kind.is_bool:
        return np.array([False, True] * 4)
    if kind.is_integer:
        low, high = kind.int_range
        special = [0, 1, 2, 3, 7, low, low + 1, high, high - 1, kind.bits, kind.bits - 1]
        special += [-1, -2, -3, -7] if kind.is_int else [high // 2, high // 2 + 1]
        random = rng.integers(0, 256, more * own.itemsize, dtype=np.uint8).view(own)
        return np.concatenate([np.array(special, dtype=own), random])
    special = [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 100.0, -7.0, np.inf, -np.inf, np.nan,
        448.0, 464.0, 480.0, 57344.0, 61440.0, 65504.0, 65520.0, 1e-8, -1e-8, 3e38, 2.0**31,
        -(2.0**31), 2.0**31 - 1, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e30,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        fixed = np.array(special, dtype=np.float64).astype(own)
    random = rng.integers(0, 256, more * own.itemsize, dtype=np.uint8).view(own)
    scaled = (rng.standard_normal(more) * 10).astype(own)
    return np.concatenate([fixed, random, scaled])


def pairs(dtype: str, rng: np.random.Generator) -> tuple[Any, Any]:
    """Every special value against every other, and random ones."""
    values = edge_values(dtype, rng, 16)
    a, b = np.meshgrid(np.arange(len(values)), np.arange(len(values)))
    return values[a.ravel()], values[b.ravel()]


BINARY = tuple(BinOp)
UNARY_CALLS = tuple(sorted(FOLDABLE - {"fma", "clamp", "reinterpret", "atan2", "hypot", "copysign",
                                       "fmod"}))  # fmt: skip
BINARY_CALLS = ("atan2", "hypot", "copysign", "fmod")


def binary_allowed(op: BinOp, dtype: str) -> bool:
    """Whether the language has the operator on the type."""
    kind = DType(dtype)
    if kind.is_float:
        return op not in ir.BITWISE and op not in ir.SHIFTS
    if kind.is_bool:
        return op in ir.LOGICAL or op in ir.BITWISE or op in ir.COMPARISONS or op in (
            BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.MIN, BinOp.MAX,
        )  # fmt: skip
    return op is not BinOp.DIV


def make_binary(op: BinOp) -> Callable[[Any, Any], ir.Expr]:
    """The operator as a node, without the front end's conversions."""

    def make(a: Any, b: Any) -> ir.Expr:
        if op in ir.LOGICAL:
            return ir.Binary(op, ir.truth(a), ir.truth(b), BOOL)
        return ir.Binary(op, a, b, BOOL if op in ir.COMPARISONS else a.dtype)

    return make


def assert_same(got: Any, expected: Any, dtype: str, what: str, inputs: Any, ulps: int = 0) -> None:
    """Equal bits; NaN is NaN. `ulps` allows a distance between floats, in their own type.

    Args:
        got: in the storage dtype.
        expected: in the value dtype.
        dtype: of both.
        what: for the message.
        inputs: arrays that the results were computed from.
        ulps: units in the last place.
    """
    with np.errstate(all="ignore"):
        wanted = np.asarray(expected).astype(storage(dtype))
    kind = DType(dtype)
    if kind.is_float:
        wide = np.float64 if kind.bits == 64 else np.float32
        x, y = got.astype(wide), wanted.astype(wide)
        bits = f"i{storage(dtype).itemsize}"
        same = (np.isnan(x) & np.isnan(y)) | (got.view(bits) == wanted.view(bits))
        if ulps:
            a, b = (_ordered(v.view(bits)) for v in (got, wanted))
            same |= (np.abs(a - b) <= ulps) & ~np.isnan(x) & ~np.isnan(y)
    else:
        same = got == wanted
    if not np.all(same):
        bad = np.flatnonzero(~same)[:5]
        lines = [f"{[a[i] for a in inputs]!r}: got {got[i]!r}, expected {wanted[i]!r}" for i in bad]
        raise AssertionError(f"{what} on {dtype}, {np.sum(~same)} differ:\n" + "\n".join(lines))


def _ordered(bits: Any) -> Any:
    """Bit patterns of floats as integers in the order of the numbers."""
    wide = bits.astype(np.int64)
    low = np.int64(-(1 << (8 * bits.dtype.itemsize - 1)))
    return np.where(wide < 0, low - wide, wide)


def result_type(op: BinOp, dtype: str) -> str:
    """The dtype of ``a op b``."""
    return "bool" if op in ir.COMPARISONS or op in ir.LOGICAL else dtype
