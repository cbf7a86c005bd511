"""Where arguments come from: torch, DLPack exporters, garbage, and several threads."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_kernels import INT32, host_func, no_messages

from tilec.diagnostics import ArgumentTypeError, ArgumentValueError
from tilec.host.abi import TypeIndex
from tilec.host.packing import ffi
from tilec.host.support import ERROR_KIND, ERROR_MESSAGE
from tilec.ir import Buffer, DType, Var

F32 = DType("float32")
SCALE = """
int32_t scale_kernel(float* x, float* y, int32_t n, float factor) {
  for (int32_t i = 0; i < n; ++i) y[i] = factor * x[i];
  return 0;
}
"""


def scale_func() -> Any:
    n, factor = Var("n", INT32), Var("factor", F32)
    x, y = Buffer("x", (n,), F32), Buffer("y", (n,), F32)
    return host_func("scale", [x, y, factor], [x, y, n, factor])


@pytest.fixture(scope="module")
def scale(build):
    return build(scale_func(), no_messages("scale") + SCALE, written=["y"])


def message(kernel: Any, *args: Any) -> str:
    with pytest.raises((ArgumentTypeError, ArgumentValueError)) as caught:
        kernel(*args)
    return caught.value.message


# torch


def test_torch_without_copy(scale):
    torch = pytest.importorskip("torch")
    x, y = torch.arange(5.0), torch.zeros(5)
    scale(x, y, 2.0)
    assert y.tolist() == [0, 2, 4, 6, 8]
    scale(x[1:3], y[3:], 10)  # views, and a buffer that does not start its storage
    assert y.tolist() == [0, 2, 4, 10, 20]
    out = np.zeros(5, np.float32)
    scale(x, out, 1)
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda t: t.ones(3, requires_grad=True),
         "the tensor requires grad, and kernels are not differentiated"),
        (lambda t: t.nn.Parameter(t.ones(3)),
         "the tensor requires grad, and kernels are not differentiated"),
        (lambda t: t.view_as_complex(t.ones(3, 2)).conj().imag,
         "the tensor is a lazily negated view"),
        (lambda t: t.ones(3, dtype=t.bfloat16), "dtype expected float32, got bfloat16"),
        (lambda t: t.ones(3, dtype=t.complex64), "dtype expected float32, got complex64"),
        (lambda t: t.ones(3, dtype=t.float8_e4m3fn), "dtype expected float32, got float8_e4m3fn"),
        (lambda t: t.ones(4), "shape[0] expected 3 (n from x.shape[0]), got 4"),
        (lambda t: t.ones(6)[::2], "strides[0] expected 1 (contiguous), got 2"),
        (lambda t: t.ones(3, 1), "ndim expected 1, got 2"),
        (lambda t: t.empty(3, device="meta"),
         "torch.Tensor cannot be exported through DLPack: Cannot pack tensors on meta"),
        (lambda t: t.ones(3).to_sparse(), "torch.Tensor cannot be exported through DLPack: "
         "Cannot access data pointer of Tensor that doesn't have storage"),
    ],
)  # fmt: skip
def test_wrong_torch_tensor(scale, make, text):
    torch = pytest.importorskip("torch")
    got = message(scale, torch.ones(3), make(torch), 1.0)
    assert got == f"kernel scale: argument y: {text}"


def test_hint_of_torch_strides(scale):
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentValueError) as caught:
        scale(torch.ones(6)[::2], torch.ones(3), 1)
    assert caught.value.hint == "nothing is copied silently: pass x.contiguous()"


def test_bfloat16_from_both_sides(build):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = Buffer("a", (2,), DType("bfloat16"))
    code = "int32_t bits_kernel(uint16_t* a) { a[1] = a[0]; return 0; }"
    kernel = build(host_func("bits", [a]), no_messages("bits") + code, written=["a"])
    array = np.array([1.5, 0], ml_dtypes.bfloat16)
    kernel(array)
    assert array[1] == 1.5
    assert message(kernel, np.zeros(2, np.float16)).endswith("dtype expected bfloat16, got float16")
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([2.5, 0], dtype=torch.bfloat16)
    kernel(tensor)
    assert tensor[1] == 2.5


# DLPack exporters

_KEEP: list[Any] = []
_DELETED: list[int] = []
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Exporter:
    """An object with nothing but the protocol."""

    def __init__(self, array: Any, **options: Any) -> None:
        self.array, self.options = array, options

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.options.get("device", (1, 0))

    def __dlpack__(self, **options: Any) -> Any:
        if self.options.get("old") and options:
            raise TypeError("unexpected keyword")
        if "raises" in self.options:
            raise self.options["raises"]
        return self.options.get("result", None) or self.array.__dlpack__(**options)


def versioned(array: Any, *, major: int = 1, flags: int = 0, name: bytes = b"dltensor_versioned"):
    """A versioned capsule over the memory of an array, which is kept forever."""
    c = ffi()
    memory = c.new("int64_t[10]")
    shape = c.new("int64_t[]", list(array.shape))
    words = c.cast("uint32_t*", memory)
    words[0], words[1] = major, 0
    memory[3] = flags
    tensor = c.cast("DLTensor*", memory + 4)
    tensor.data = c.cast("void*", array.ctypes.data)
    tensor.device.device_type, tensor.ndim = 1, array.ndim
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = 2, 32, 1
    tensor.shape = shape
    _KEEP.extend((memory, shape, array, name))
    return _new(int(c.cast("intptr_t", memory)), name, None)


def test_exporters(scale):
    x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    for source in (Exporter(x), Exporter(x, old=True), Exporter(x, result=versioned(x))):
        y[:] = 0
        scale(source, Exporter(y), 3)
        assert y.tolist() == [0, 3, 6]
    y[:] = 0
    scale(Exporter(x, result=versioned(x, flags=1)), Exporter(y, result=versioned(y)), 3)
    assert y.tolist() == [0, 3, 6]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": (2, 1)}, "device expected cpu, got device type 2, index 1"),
        ({"raises": RuntimeError("no storage\nat all")},
         "cannot be exported through DLPack: no storage"),
        ({"raises": BufferError()}, "cannot be exported through DLPack: BufferError"),
        ({"result": 5}, "cannot be exported through DLPack: "
                        "PyCapsule_GetName called with invalid PyCapsule object"),
        ({"flags": 1}, "the tensor is read-only, but the kernel writes it"),
        ({"flags": 2}, "the kernel writes it, but its exporter gave a copy"),
        ({"major": 2}, "DLPack version 2 is not supported, only version 1 is"),
        ({"name": b"used_dltensor"}, "__dlpack__ returned no fresh DLPack capsule"),
    ],
)  # fmt: skip
def test_wrong_exporters(scale, options, text):
    y = np.zeros(3, np.float32)
    capsule = {k: options.pop(k) for k in ("flags", "major", "name") if k in options}
    if capsule:
        options["result"] = versioned(y, **capsule)
    got = message(scale, np.ones(3, np.float32), Exporter(y, **options), 1)
    assert got.startswith("kernel scale: argument y: ")
    assert text in got
    assert not y.any()


def test_nothing_leaks_and_nothing_dies_early(scale):
    """Arrays live through the call and no longer."""

    class Array(np.ndarray):
        pass

    y = np.zeros(1000, np.float32)
    arrays = [np.ones(1000, np.float32).view(Array) for _ in range(3)]
    arrays[1].flags.writeable = False
    dead = [weakref.ref(a) for a in arrays]
    counts = [sys.getrefcount(a) for a in arrays]
    for array in (*arrays, *arrays):
        scale(array, y, 2)
        with pytest.raises(ArgumentValueError):
            scale(array, y[1:], 2)
    del array
    assert [sys.getrefcount(a) for a in arrays] == counts
    del arrays
    gc.collect()
    assert [r() for r in dead] == [None] * 3


def test_threads_share_a_kernel(scale):
    """Calls at the same time, right and wrong ones, see their own arguments and errors."""
    failures: list[str] = []

    def work(seed: int) -> None:
        x = np.full(20_000 + seed, seed, np.float32)
        for turn in range(100):
            y = np.zeros_like(x)
            scale(x, y, turn)
            if not (y == seed * turn).all():
                failures.append(f"thread {seed} turn {turn}")
            try:
                scale(x, y[: seed + 1], turn)
            except ArgumentValueError as error:
                if not error.message.endswith(f"got {seed + 1}"):
                    failures.append(error.message)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_calls_nest(scale):
    """An exporter that calls the kernel while its arguments are being packed."""
    x, y, z = (np.full(3, v, np.float32) for v in (1, 0, 0))

    class Nested(Exporter):
        def __dlpack__(self, **options: Any) -> Any:
            scale(np.full(3, 7, np.float32), z, 1)
            return super().__dlpack__(**options)

    scale(x, Nested(y), 5)
    assert y.tolist() == [5] * 3
    assert z.tolist() == [7] * 3


# The raw ABI


def test_raw_abi(build):
    """The function itself, called with packed values that no Python caller would make."""
    library = ctypes.CDLL(str(build.library(scale_func(), no_messages("scale") + SCALE)))
    for getter in (ERROR_KIND, ERROR_MESSAGE):
        getattr(library, getter).restype = ctypes.c_char_p
    function = library.__tvm_ffi_scale

    def call(args: Any, count: int = 3) -> tuple[int, str, str]:
        pointer = None if args is None else ctypes.c_void_p(int(c.cast("intptr_t", args)))
        status = function(None, pointer, count, None)
        texts = [getattr(library, g)().decode() for g in (ERROR_KIND, ERROR_MESSAGE)]
        return status, texts[0], texts[1]

    c = ffi()
    prefix = "kernel scale: "
    assert call(None) == (-1, "ValueError", prefix + "the argument array is NULL")
    assert call(None, 2) == (-1, "ValueError", prefix + "expected 3 arguments, got 2")
    assert call(None, -1) == (-1, "ValueError", prefix + "expected 3 arguments, got -1")
    args = c.new("TVMFFIAny[3]")
    data, shape = c.new("float[4]", [1, 2, 3, 4]), c.new("int64_t[]", [4])
    # An object-held tensor has a header of 24 bytes in front.
    memory = c.new("int64_t[9]")
    held, plain = c.cast("DLTensor*", memory + 3), c.new("DLTensor*")
    for tensor in (held, plain):
        tensor.data, tensor.shape, tensor.ndim = data, shape, 1
        tensor.device.device_type = 1
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = 2, 32, 1
    args[0].type_index, args[0].v_ptr = TypeIndex.TENSOR, memory
    args[1].type_index, args[1].v_ptr = TypeIndex.DLTENSOR_POINTER, plain
    args[2].type_index, args[2].v_float64 = TypeIndex.FLOAT, 2.0
    assert call(args)[0] == 0
    assert list(data) == [2, 4, 6, 8]
    wanted = "argument x: expected a tensor (n,) float32, got "
    for index in [*range(-2, 80), 1000, 2**31 - 1]:
        args[0].type_index = index
        if index in (TypeIndex.TENSOR, TypeIndex.DLTENSOR_POINTER):
            args[0].v_ptr = c.NULL
            assert call(args) == (-1, "TypeError", prefix + wanted + "a NULL tensor handle")
            args[0].v_ptr = memory
        else:
            status, kind, text = call(args)
            assert (status, kind) == (-1, "TypeError")
            assert text.startswith(prefix + wanted)
    args[0].type_index = TypeIndex.STRING
    assert call(args)[2] == prefix + wanted + "str"
    args[0].type_index = TypeIndex.TENSOR

    def field(**values: Any) -> str:
        old = {key: getattr(plain, key) for key in values}
        for key, value in values.items():
            setattr(plain, key, value)
        status, _, text = call(args)
        for key, value in old.items():
            setattr(plain, key, value)
        assert status == -1
        return text.removeprefix(prefix + "argument y: ")

    assert field(ndim=-1) == "ndim expected 1, got -1"
    assert field(shape=c.NULL) == "the tensor has no shape"
    assert field(data=c.NULL) == "data expected an address, got NULL"
    assert field(byte_offset=2) == "byte_offset expected a multiple of 4, got 2"
    plain.dtype.lanes = 4
    assert field() == "dtype expected float32, got float32x4"
    plain.dtype.lanes, plain.dtype.code = 1, 99
    assert field() == "dtype expected float32, got an unknown dtype"
    plain.dtype.code, plain.device.device_type, plain.device.device_id = 2, 2, 3
    assert field() == "device expected cpu, got device type 2, index 3"
    plain.device.device_type = 1
    shape[0] = -4
    assert call(args)[2] == prefix + (
        "argument x: shape[0] expected a non-negative int32 (n), got -4"
    )
    shape[0] = 3
    plain.byte_offset = 4
    assert call(args)[0] == 0
    assert list(data) == [2, 4, 8, 16]  # y = 2 * x, one element further


GARBAGE = """
import array, collections, ctypes, datetime, decimal, fractions, io, itertools, sys, types
sys.path[:0] = {paths!r}
import numpy as np
from host_kernels import kernel_params
from test_arguments import scale_func
from tilec.diagnostics import TilecError
from tilec.host import HostCallable

params = kernel_params(scale_func(), ["y"])
kernel = HostCallable({library!r}, "__tvm_ffi_scale", params, (), "scale")

class Liar:
    shape, dtype, strides, ndim = (3,), np.dtype("f4"), (4,), 1
    def __dlpack__(self, **kw): return object()
    def __dlpack_device__(self): return "cpu"

class Raises:
    def __dlpack__(self, **kw): raise SystemError("broken")
    def __index__(self): raise ZeroDivisionError
    def __float__(self): raise ZeroDivisionError

class Interface:
    __array_interface__ = dict(shape=(3,), typestr="<f4", data=(8, False), version=3)

garbage = [
    None, 0, 1, -1, 2**31, 2**63, 2**64, -2**70, 10**5000, 0.5, float("nan"), 1j, True, "", "x",
    b"bytes", bytearray(8), memoryview(b"12345678"), [], [[1.0]], (), {{}}, set(), object(), object,
    type, len, lambda: 0, print, sys, Ellipsis, NotImplemented, range(3), slice(1), iter([1]),
    array.array("f", [1, 2, 3]), (ctypes.c_float * 3)(), ctypes.c_void_p(8), ctypes.py_object(1),
    datetime.date(2020, 1, 1), decimal.Decimal(1), decimal.Decimal("NaN"), fractions.Fraction(1, 3),
    io.BytesIO(b"abc"), itertools.count(), collections.deque([1]), types.SimpleNamespace(data=8),
    Exception("e"), Liar(), Liar, Raises(), Interface(),
    np.float32(1), np.int64(1), np.bool_(True), np.str_("x"), np.void(b"12"), np.datetime64(1, "s"),
    np.dtype("f4"), np.float32, np.array(1.0), np.array([], object), np.array(["a"]),
    np.empty((0,), "f4"), np.empty((0, 3), "f4"), np.empty((1,) * 32, "f4"), np.ones(3, ">f4"),
    np.ones(3), np.ones(3, "f2"), np.ones(3, "f4")[::-1], np.ones(3, "f4").view(np.recarray),
    np.ma.masked_array(np.ones(3, "f4")), np.matrix([[1, 2]]), np.broadcast_to(np.float32(1), (3,)),
    np.lib.stride_tricks.as_strided(np.ones(1, "f4"), (2**40,), (0,)),
]
good = [np.ones(3, "f4"), np.ones(3, "f4"), 2.0]
passed = refused = 0
for position in range(3):
    for value in garbage:
        args = list(good)
        args[position] = value
        try:
            kernel(*args)
            passed += 1
        except TilecError as error:
            assert str(error).startswith("error[TC060"), error
            refused += 1
for count in range(6):
    for value in garbage:
        if count != 3:
            try:
                kernel(*[value] * count)
            except TilecError:
                continue
            raise AssertionError(count)
kernel(*good)
print(passed, refused, len(garbage))
"""


def test_garbage_never_crashes(build):
    """Each kind of nonsense in each place, in a process of its own."""
    library = build.library(scale_func(), no_messages("scale") + SCALE)
    here = Path(__file__).resolve().parent
    code = GARBAGE.format(paths=[str(here), str(here.parents[1])], library=str(library))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    passed, refused, kinds = map(int, done.stdout.split())
    assert kinds >= 70
    assert passed + refused == 3 * kinds
    assert refused > 2 * kinds
