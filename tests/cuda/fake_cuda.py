"""A CUDA driver and device arrays without a device, for the tests of this folder."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilec.backend import CompiledArtifact, DeviceProgram, HostInput, LaunchInfo, Target
from tilec.host.abi import dlpack_dtype
from tilec.ir import DType, Module, PrimFunc
from tilec_cuda.driver import Driver

SOURCE = Path(__file__).parent / "fake_driver.c"
CC = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")


def build_driver(folder: Path) -> Path:
    """Compile the fake driver."""
    path = folder / "libfakecuda.so"
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([str(CC), *flags, str(SOURCE), "-o", str(path)], check=True, timeout=60)
    return path


class Launch(ctypes.Structure):
    """One recorded launch."""

    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32 * 3),
        ("cooperative", ctypes.c_int),
        ("programmatic", ctypes.c_int),
        ("device", ctypes.c_int),
        ("count", ctypes.c_int),
        ("sizes", ctypes.c_int * 32),
        ("stream", ctypes.c_void_p),
        ("raw", (ctypes.c_ubyte * 128) * 32),
    )

    def param(self, number: int, dtype: str = "uint64") -> Any:
        """A parameter as a number, or several."""
        data = bytes(self.raw[number])[: self.sizes[number]]
        found = np.frombuffer(data, dtype)
        return found[0].item() if len(found) == 1 else found


class FakeCuda:
    """The fake driver, seen from a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.fake_launch.restype = ctypes.POINTER(Launch)
        self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_allocated.restype = ctypes.c_int64
        self.library.fake_capture.argtypes = (ctypes.c_void_p,)
        self.library.fake_tick.argtypes = (ctypes.c_float,)
        self.driver = Driver(str(path))
        assert self.library.fake_launch_size() == ctypes.sizeof(Launch)

    def reset(self) -> None:
        """As a freshly started machine with one H100-like device."""
        self.library.fake_reset()
        self.driver = Driver(str(self.path))

    def devices(self, count: int = 1, major: int = 9, minor: int = 0, shared: int = 232448) -> None:
        """What devices there are."""
        self.library.fake_devices(count, major, minor, shared)

    def fail(self, name: str, status: int, after: int = 0) -> None:
        """Make a call fail, once it has worked `after` times."""
        self.library.fake_fail(name.encode(), status, after)

    def heal(self) -> None:
        """No call fails any more."""
        self.library.fake_heal()

    def signature(self, name: str, sizes: Sequence[int]) -> None:
        """Bytes of the parameters of a kernel."""
        self.library.fake_signature(name.encode(), len(sizes), (ctypes.c_int * len(sizes))(*sizes))

    def capture(self, stream: int | None) -> None:
        """Which stream is being captured."""
        self.library.fake_capture(stream)

    def current(self, device: int) -> None:
        """Make a device's context current; -1 for none."""
        self.library.fake_set_current(device)

    @property
    def launches(self) -> list[Launch]:
        """What was launched."""
        count = self.library.fake_launches()
        return [self.library.fake_launch(n).contents for n in range(count)]

    @property
    def log(self) -> list[str]:
        """The calls so far, in order."""
        return str(self.library.fake_log().decode()).split()

    def clear_log(self) -> None:
        """Forget the calls so far."""
        self.library.fake_clear_log()


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))


class DeviceArray:
    """A NumPy array that says it is on a device."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0, kind: int = 2) -> None:
        self.array, self.index, self.kind = array, device, kind
        self.asked: list[Any] = []
        self._keep: list[Any] = []

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def address(self) -> int:
        return int(self.array.ctypes.data)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.index

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.asked.append(stream)
        rank = self.array.ndim
        shape = (ctypes.c_int64 * rank)(*self.array.shape)
        size = self.array.itemsize
        strides = (ctypes.c_int64 * rank)(*(s // size for s in self.array.strides))
        code, bits, lanes = dlpack_dtype(DType.of(self.array.dtype))
        tensor = _Tensor(
            self.address, self.kind, self.index, rank, code, bits, lanes, shape, strides, 0, 0, 0
        )
        self._keep += [tensor, shape, strides]
        return _new_capsule(ctypes.addressof(tensor), b"dltensor", None)


class InterfaceArray:
    """A NumPy array behind ``__cuda_array_interface__`` only."""

    def __init__(self, array: np.ndarray[Any, Any], **changes: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (int(array.ctypes.data), False),
            "strides": array.strides,
            "version": 3,
            **changes,
        }


def make_artifact(
    host: PrimFunc,
    params: Sequence[Any],
    launches: Sequence[LaunchInfo],
    source: str,
    context: Any,
    *,
    binary: bytes | None = None,
) -> CompiledArtifact:
    """An artifact around hand-written device code."""
    from tilec_cuda.host import host_program

    table = {launch.kernel: launch for launch in launches}
    device = DeviceProgram("cu", source, tuple(table), binary=binary)
    out_idx = tuple(host.attrs["out_idx"])
    given = HostInput(
        host.name, Module({host.name: host}), tuple(params), out_idx, table, device, context
    )
    return CompiledArtifact(
        name=host.name,
        prim_func=host,
        host_mod=given.module,
        device_mod=Module({}),
        params=tuple(params),
        out_idx=out_idx,
        launches=table,
        device=device,
        host=host_program(given),
        target=Target("cuda", {"arch": "sm_90a"}) if context is None else context.target,
        target_host="c",
        execution_backend="nvrtc",
    )
