"""The CUDA driver API, as far as Python itself calls it, through ctypes.

The library is looked up when the first question is asked; nothing here runs at import. Generated
host functions call the driver from C and find it by themselves (`tilec_cuda.host`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple

from tilec.diagnostics import KernelRuntimeError, ToolchainError

LIBRARY = "libcuda.so.1"

# Device attributes.
MAX_GRID = (5, 6, 7)
CLOCK_KHZ, PROCESSORS, L2_BYTES = 13, 16, 38
COMPUTE_MAJOR, COMPUTE_MINOR, SHARED_PER_BLOCK_OPTIN = 75, 76, 97
# Function attributes.
MAX_THREADS, SHARED_STATIC, LOCAL_BYTES, REGISTERS = 0, 1, 3, 4
MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14
# Launch attributes.
LAUNCH_COOPERATIVE, LAUNCH_CLUSTER, LAUNCH_PROGRAMMATIC = 2, 4, 6
CAPTURE_RELAXED = 2

_P, _I, _U, _S = c_void_p, c_int, c_uint, c_size_t
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (_I, POINTER(c_char_p)),
    "cuGetErrorString": (_I, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), _I),
    "cuDeviceGetName": (c_char_p, _I, _I),
    "cuDeviceGetAttribute": (POINTER(c_int), _I, _I),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), _I),
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxGetDevice": (POINTER(c_int),),
    "cuCtxPushCurrent_v2": (_P,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuCtxSynchronize": (),
    "cuPointerGetAttribute": (_P, _I, c_uint64),
    "cuLibraryLoadData": (POINTER(c_void_p), _P, _P, _P, _U, _P, _P, _U),
    "cuLibraryUnload": (_P,),
    "cuLibraryGetKernel": (POINTER(c_void_p), _P, c_char_p),
    "cuKernelGetFunction": (POINTER(c_void_p), _P),
    "cuKernelGetAttribute": (POINTER(c_int), _I, _P, _I),
    "cuKernelSetAttribute": (_I, _I, _P, _I),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), _P, _I, _S),
    "cuLaunchKernelEx": (_P, _P, _P, _P),
    "cuTensorMapEncodeTiled": (_P, _I, _U, _P, _P, _P, _P, _P, _I, _I, _I, _I),
    "cuMemAlloc_v2": (POINTER(c_uint64), _S),
    "cuMemFree_v2": (c_uint64,),
    "cuMemAllocAsync": (POINTER(c_uint64), _S, _P),
    "cuMemFreeAsync": (c_uint64, _P),
    "cuMemsetD8Async": (c_uint64, ctypes.c_ubyte, _S, _P),
    "cuMemcpyHtoD_v2": (c_uint64, _P, _S),
    "cuMemcpyDtoH_v2": (_P, c_uint64, _S),
    "cuStreamCreate": (POINTER(c_void_p), _U),
    "cuStreamDestroy_v2": (_P,),
    "cuStreamSynchronize": (_P,),
    "cuStreamIsCapturing": (_P, POINTER(c_int)),
    "cuStreamBeginCapture_v2": (_P, _I),
    "cuStreamEndCapture": (_P, POINTER(c_void_p)),
    "cuGraphInstantiateWithFlags": (POINTER(c_void_p), _P, ctypes.c_ulonglong),
    "cuGraphLaunch": (_P, _P),
    "cuGraphExecDestroy": (_P,),
    "cuGraphDestroy": (_P,),
    "cuEventCreate": (POINTER(c_void_p), _U),
    "cuEventRecord": (_P, _P),
    "cuEventSynchronize": (_P,),
    "cuEventElapsedTime": (POINTER(c_float), _P, _P),
    "cuEventDestroy_v2": (_P,),
}


class DriverError(KernelRuntimeError):
    """A driver call that failed.

    Attributes:
        status: the driver's number.
    """

    status: int = 0


class Device(NamedTuple):
    """One device, as the driver describes it.

    Attributes:
        ordinal: its number.
        name: product name.
        major, minor: compute capability.
        processors: number of multiprocessors.
        shared_bytes: shared memory that one block can have.
        l2_bytes: size of the L2 cache.
    """

    ordinal: int
    name: str
    major: int
    minor: int
    processors: int
    shared_bytes: int
    l2_bytes: int


class Driver:
    """The driver library; initialised by the first call that needs it.

    Attributes:
        path: what was loaded.
    """

    def __init__(self, path: str = LIBRARY) -> None:
        """Load the library.

        Raises:
            ToolchainError: it is not there.
        """
        self.path = path
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise ToolchainError(
                f"the CUDA driver was not found ({error})",
                hint="it comes with the NVIDIA driver; code can be generated without it, not run",
            ) from error
        self._known: dict[str, Any] = {}
        self._contexts: dict[int, int] = {}
        self._ready = False

    def function(self, name: str) -> Any:
        """A raw function that returns a status.

        Raises:
            ToolchainError: the driver is too old to have it.
        """
        known = self._known.get(name)
        if known is None:
            try:
                known = getattr(self._library, name)
            except AttributeError:
                raise ToolchainError(
                    f"the CUDA driver has no {name}: it is too old",
                    hint="tilec needs a driver for CUDA 12.0 or later",
                ) from None
            known.argtypes, known.restype = _FUNCTIONS[name], c_int
            self._known[name] = known
        return known

    def call(self, name: str, *args: Any) -> None:
        """Call a function and check its status.

        Raises:
            DriverError: it failed; the message has the driver's name and text for it.
        """
        status = self.function(name)(*args)
        if status:
            raise self.error(name, status)

    def error(self, name: str, status: int) -> DriverError:
        """A failed call as an exception."""
        error = DriverError(f"{self.describe(status)} ({name})")
        error.status = status
        return error

    def describe(self, status: int) -> str:
        """The driver's name and text for a status."""
        texts = []
        for ask in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            found = self.function(ask)(status, ctypes.byref(text)) == 0
            texts.append((text.value or b"").decode(errors="replace") if found else "")
        return f"{texts[0] or 'unknown CUDA error'}: {texts[1] or 'the driver has no text for it'}"

    def start(self) -> None:
        """Initialise the driver, once.

        Raises:
            DriverError: it refuses, such as where there is no device.
        """
        if not self._ready:
            self.call("cuInit", 0)
            self._ready = True

    def integer(self, name: str, *args: Any) -> int:
        """The int that a function writes through its first argument."""
        value = c_int()
        self.call(name, ctypes.byref(value), *args)
        return value.value

    def handle(self, name: str, *args: Any) -> int:
        """The handle that a function writes through its first argument; 0 for NULL."""
        value = c_void_p()
        self.call(name, ctypes.byref(value), *args)
        return value.value or 0

    def handle_last(self, name: str, *args: Any) -> int:
        """The handle that a function writes through its last argument."""
        value = c_void_p()
        self.call(name, *args, ctypes.byref(value))
        return value.value or 0

    def version(self) -> tuple[int, int]:
        """The CUDA version that the driver supports."""
        number = self.integer("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10

    def count(self) -> int:
        """Number of devices; 0 where the driver finds none."""
        try:
            self.start()
            return self.integer("cuDeviceGetCount")
        except DriverError:
            return 0

    def attribute(self, attribute: int, index: int) -> int:
        """A device attribute."""
        self.start()
        return self.integer("cuDeviceGetAttribute", attribute, index)

    def device(self, index: int) -> Device:
        """What the driver says about a device."""
        self.start()
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), index)
        asked = (COMPUTE_MAJOR, COMPUTE_MINOR, PROCESSORS, SHARED_PER_BLOCK_OPTIN, L2_BYTES)
        numbers = [self.attribute(a, index) for a in asked]
        return Device(index, name.value.decode(errors="replace"), *numbers)

    def current_device(self) -> int | None:
        """The device of this thread's current context; None without one."""
        self.start()
        if not self.handle("cuCtxGetCurrent"):
            return None
        return self.integer("cuCtxGetDevice")

    @contextmanager
    def on(self, index: int) -> Iterator[None]:
        """A block in which a context of a device is current.

        The caller's own context stays where it is one of that device; else the device's primary
        context, which frameworks share, is used.
        """
        if self.current_device() == index:
            yield
            return
        if index not in self._contexts:
            self._contexts[index] = self.handle("cuDevicePrimaryCtxRetain", index)
        self.call("cuCtxPushCurrent_v2", self._contexts[index])
        try:
            yield
        finally:
            self.handle("cuCtxPopCurrent_v2")


_chosen: ContextVar[Driver | None] = ContextVar("tilec_cuda_driver", default=None)


@functools.cache
def _installed() -> Driver:
    return Driver()


def driver() -> Driver:
    """The driver of this context: the machine's, or one chosen by `use_driver`.

    Raises:
        ToolchainError: there is none.
    """
    return _chosen.get() or _installed()


@contextmanager
def use_driver(chosen: Driver) -> Iterator[Driver]:
    """A block in which another library plays the driver."""
    token = _chosen.set(chosen)
    try:
        yield chosen
    finally:
        _chosen.reset(token)


def why_unusable() -> str:
    """Why no kernel can run here; empty where one can."""
    try:
        found = driver()
        found.start()
    except (ToolchainError, DriverError) as error:
        return error.message
    return "" if found.count() else "the CUDA driver found no device"
