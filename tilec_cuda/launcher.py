"""Launches from Python, for machines without a C compiler; slower, otherwise the same."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilec import ir
from tilec.backend import CompiledArtifact, LaunchInfo
from tilec.backend.c_family import VALUE
from tilec.diagnostics import ToolchainError
from tilec.host.interpreted import CallState, InterpretedEntry, Refused
from tilec_cuda.driver import (
    LAUNCH_CLUSTER,
    LAUNCH_COOPERATIVE,
    LAUNCH_PROGRAMMATIC,
    MAX_DYNAMIC_SHARED,
    NON_PORTABLE_CLUSTER,
    SHARED_PER_BLOCK_OPTIN,
    SHARED_STATIC,
    Driver,
    DriverError,
)
from tilec_cuda.host import CudaCalls, MapPlan, cluster_of, map_plans

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_IMPLICIT_CAPTURE = 906
_PORTABLE_CLUSTER = 8
_L2_PROMOTION = 2
_C_TYPES: dict[str, Any] = {
    "_Bool": ctypes.c_bool, "float": ctypes.c_float, "double": ctypes.c_double,
    **{f"{u}int{b}_t": getattr(ctypes, f"c_{u}int{b}") for u in ("", "u") for b in (8, 16, 32, 64)},
}  # fmt: skip


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("unused", ctypes.c_int), ("words", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


class PythonEntry(InterpretedEntry):
    """The host function of a kernel."""

    def __init__(self, artifact: CompiledArtifact, driver: Driver) -> None:
        (func,) = artifact.host_mod.functions.values()
        super().__init__(func, CudaCalls(artifact.launches), self._start)
        assert artifact.device.binary is not None
        self._driver = driver
        self._launches = artifact.launches
        self._maps = {name: map_plans(info) for name, info in artifact.launches.items()}
        self._image = ctypes.create_string_buffer(artifact.device.binary)
        self._library = 0
        self._kernels: dict[str, int] = {}
        self._limits: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def prepare(self, device: int) -> None:
        """Load all kernels on a device ahead of the first call.

        Raises:
            Refused: the driver does.
        """
        with self._on(device):
            for name in self._launches:
                self._load(name, device, 0)

    def _start(self, kernel: str, passed: Sequence[Any], state: CallState) -> None:
        info = self._launches[kernel]
        grid = self._grid(info, state)
        if 0 in grid:
            return
        device = state.device
        with self._doing("there is no context"):
            self._driver.start()
            current = self._driver.current_device()
        if device < 0:
            device = current or 0
        with self._on(device):
            if (kernel, device) not in self._limits:
                self._load(kernel, device, state.stream)
            self._fire(kernel, info, grid, passed, state, device)

    def _failed(self, what: str, error: DriverError) -> Refused:
        text = error.message.removesuffix(")")
        return self._refuse("RuntimeError", f"{what}: {text}, status {error.status})")

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        try:
            yield
        except DriverError as error:
            raise self._failed(what, error) from error
        except ToolchainError as error:
            raise self._refuse("RuntimeError", error.message) from error

    @contextmanager
    def _on(self, device: int) -> Iterator[None]:
        """A block with a context of the device."""
        with self._doing("the device has no context"):
            scope = self._driver.on(device)
            scope.__enter__()
        try:
            yield
        finally:
            scope.__exit__(None, None, None)

    # geometry

    def _grid(self, info: LaunchInfo, state: CallState) -> list[int]:
        grid = [self.value(e, state.env) for e in (*info.grid, 1, 1, 1)[:3]]
        cluster = cluster_of(info) or (1, 1, 1)
        for axis, (extent, most) in enumerate(zip(grid, _GRID_LIMITS, strict=True)):
            if not 0 <= extent <= most:
                raise self._refuse(
                    "ValueError", f"grid[{axis}] expected 0 to {most} blocks, got {extent}"
                )
            if extent % cluster[axis]:
                raise self._refuse(
                    "ValueError",
                    f"grid[{axis}] expected a multiple of the cluster's {cluster[axis]} blocks, "
                    f"got {extent}",
                )
        return grid

    # loading

    def _load(self, kernel: str, device: int, stream: int) -> None:
        with self._lock:
            if (kernel, device) in self._limits:
                return
            self._refuse_capture(device, stream)
            found = self._driver
            with self._doing("the device code cannot be loaded"):
                if not self._library:
                    nothing = (None, None, 0, None, None, 0)
                    self._library = found.handle("cuLibraryLoadData", self._image, *nothing)
            with self._doing("the device code lacks the kernel"):
                if kernel not in self._kernels:
                    name = kernel.encode()
                    handle = found.handle("cuLibraryGetKernel", self._library, name)
                    self._kernels[kernel] = handle
            handle = self._kernels[kernel]
            with self._doing("the device cannot be asked"):
                most = found.attribute(SHARED_PER_BLOCK_OPTIN, device)
                fixed = found.integer("cuKernelGetAttribute", SHARED_STATIC, handle, device)
            self._allow(kernel, handle, device, most - fixed, fixed)
            with self._doing("the device code cannot be loaded"):
                found.handle("cuKernelGetFunction", handle)
            self._limits[kernel, device] = most - fixed

    def _refuse_capture(self, device: int, stream: int) -> None:
        capturing = ctypes.c_int()
        status = self._driver.function("cuStreamIsCapturing")(stream, ctypes.byref(capturing))
        if status and status != _IMPLICIT_CAPTURE:
            raise self._failed(
                "the stream is not usable", self._driver.error("cuStreamIsCapturing", status)
            )
        if status or capturing.value:
            raise self._refuse(
                "RuntimeError",
                f"its first call on device {device} is in a graph capture, where nothing may be "
                "loaded; call it once before",
            )

    def _allow(self, kernel: str, handle: int, device: int, limit: int, fixed: int) -> None:
        """Ask for more shared memory, or larger clusters, than every device has."""
        info = self._launches[kernel]
        shared = _fixed(info.shared_bytes)
        if shared is None:
            shared = limit
        self._room(shared, limit, device, fixed)
        if shared > 48 * 1024 - fixed:
            with self._doing("shared memory is refused"):
                given = (MAX_DYNAMIC_SHARED, shared, handle, device)
                self._driver.call("cuKernelSetAttribute", *given)
        x, y, z = cluster_of(info) or (1, 1, 1)
        if x * y * z > _PORTABLE_CLUSTER:
            with self._doing("a cluster of this size is refused"):
                given = (NON_PORTABLE_CLUSTER, 1, handle, device)
                self._driver.call("cuKernelSetAttribute", *given)

    def _room(self, shared: int, limit: int, device: int, fixed: int = 0) -> None:
        if not 0 <= shared <= limit:
            raise self._refuse(
                "RuntimeError",
                f"a block needs {shared + fixed} bytes of shared memory, device {device} has "
                f"{limit + fixed}",
            )

    # launching

    def _fire(
        self,
        kernel: str,
        info: LaunchInfo,
        grid: list[int],
        passed: Sequence[Any],
        state: CallState,
        device: int,
    ) -> None:
        shared = self.value(info.shared_bytes, state.env)
        self._room(shared, self._limits[kernel, device], device)
        keep: list[Any] = [self._encoded(plan, state) for plan in self._maps[kernel]]
        host = self._func_arguments(kernel)
        keep += [_argument(node, value, state) for node, value in zip(host, passed, strict=True)]
        scratch: list[int] = []
        try:
            for hidden in info.hidden:
                keep.append(self._scratch(hidden, state, scratch))
            params = (ctypes.c_void_p * max(len(keep), 1))(*map(ctypes.addressof, keep))
            attributes = (_Attribute * 3)()
            config = _Config(stream=state.stream, shared=shared)
            config.attributes = ctypes.addressof(attributes)
            threads = (*map(int, info.threads), 1, 1, 1)[:3]
            config.grid[:], config.block[:] = grid, threads
            for number, words in _attributes(info):
                attributes[config.count].id = number
                attributes[config.count].words[: len(words)] = words
                config.count += 1
            lanes = threads[0] * threads[1] * threads[2]
            what = (
                f"the launch of {grid[0]} x {grid[1]} x {grid[2]} blocks of {lanes} threads with "
                f"{shared} bytes of shared memory failed"
            )
            with self._doing(what):
                launch = (ctypes.byref(config), self._kernels[kernel], params, None)
                self._driver.call("cuLaunchKernelEx", *launch)
        finally:
            for address in scratch:
                self._driver.function("cuMemFreeAsync")(address, state.stream)

    def _func_arguments(self, kernel: str) -> Sequence[Any]:
        for node in ir.walk(self._func.body):
            if isinstance(node, ir.Call) and node.name == "call_device" and node.args[0] == kernel:
                return node.args[1:]
        return ()

    def _scratch(self, hidden: Any, state: CallState, taken: list[int]) -> Any:
        size = self.value(hidden.size, state.env) * hidden.dtype.bytes
        address = ctypes.c_uint64()
        if size <= 0:
            return address
        with self._doing(f"{size} bytes of scratch memory ({hidden.name}) cannot be had"):
            taking = (ctypes.byref(address), size, state.stream)
            self._driver.call("cuMemAllocAsync", *taking)
        taken.append(address.value)
        if hidden.fill is not None:
            with self._doing("scratch memory cannot be filled"):
                given = (address.value, int(hidden.fill), size, state.stream)
                self._driver.call("cuMemsetD8Async", *given)
        return address

    def _encoded(self, plan: MapPlan, state: CallState) -> Any:
        """A tensor map."""
        tensor = state.tensors[plan.buffer]
        assert tensor is not None
        rank = plan.buffer.ndim
        extents = [self.value(e, state.env) for e in reversed(plan.buffer.shape)]
        steps = [self.value(s, state.env) * plan.item for s in reversed(plan.strides[:-1])]
        where = f"argument {plan.buffer.name}"
        for axis, extent in enumerate(extents):
            if not 1 <= extent <= 2**32:
                raise self._refuse(
                    "ValueError",
                    f"{where}: shape[{rank - 1 - axis}] expected 1 to 2**32 elements, which the "
                    f"copy engine can describe, got {extent}",
                )
        for axis, step in enumerate(steps):
            # The step along an extent of 1 means nothing, but has to be a legal one.
            if extents[axis + 1] == 1:
                steps[axis] = 16
            elif step % 16 or step >= 2**40:
                raise self._refuse(
                    "ValueError",
                    f"{where}: strides[{rank - 2 - axis}] expected a multiple of 16 bytes for the "
                    f"copy engine, got {step // plan.item} elements of {plan.item} bytes",
                )
        memory = (ctypes.c_ubyte * 256)()
        shift = -ctypes.addressof(memory) % 128
        bits = (ctypes.c_ubyte * 128).from_buffer(memory, shift)
        with self._doing("a tensor cannot be described to the copy engine"):
            self._driver.call(
                "cuTensorMapEncodeTiled", bits, plan.dtype, rank, tensor.address,
                (ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * max(rank - 1, 1))(*steps),
                (ctypes.c_uint32 * rank)(*plan.box), (ctypes.c_uint32 * rank)(*([1] * rank)),
                0, plan.swizzle, _L2_PROMOTION, 0,
            )  # fmt: skip
        return bits


def _attributes(info: LaunchInfo) -> Iterator[tuple[int, Sequence[int]]]:
    cluster = cluster_of(info)
    if cluster is not None:
        yield LAUNCH_CLUSTER, cluster
    if info.attrs.get("cooperative"):
        yield LAUNCH_COOPERATIVE, (1,)
    if info.attrs.get("programmatic"):
        yield LAUNCH_PROGRAMMATIC, (1,)


def _fixed(expr: int | ir.Expr) -> int | None:
    folded = ir.fold_int(expr) if isinstance(expr, ir.Expr) else expr
    return folded if isinstance(folded, int) else None


def _argument(node: Any, value: Any, state: CallState) -> Any:
    """One kernel parameter in memory, in its C type."""
    if isinstance(node, ir.Buffer):
        tensor = state.tensors[node]
        return ctypes.c_uint64(0 if tensor is None else tensor.address)
    dtype = ir.as_expr(node).dtype
    kind = _C_TYPES[VALUE[str(dtype)]]
    return kind(value)
