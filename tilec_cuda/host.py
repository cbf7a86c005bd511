"""Host functions that launch through the driver: what the shared stub generator is told.

The generated C finds the driver with dlopen, so it links against nothing. Per library there is one
image (a cubin), handed over by `SET_IMAGE` or linked in as `tilec_image`; it is loaded when a
kernel is first called, and never while a graph is captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from tilec import ir
from tilec.backend import HostInput, HostProgram, LaunchInfo
from tilec.diagnostics import CapabilityError, InternalError
from tilec.host import generate_host_source, host_symbol
from tilec.host.launches import DeviceCalls, LaunchSite, Passed
from tilec.host.support import c_string
from tilec_cuda.support import SUPPORT

DEVICE = "cuda"
SET_IMAGE = "tilec_cuda_set_image"
SET_DRIVER = "tilec_cuda_set_driver"
PREPARE = "tilec_cuda_prepare"
_RESERVED = (
    "stream device launch_result CUresult CUlaunchConfig CUlaunchAttribute dlopen dlsym dlerror "
    "sched_yield"
)
_MAP_TYPES = {
    "uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6,
    "float32": 7, "float64": 8, "bfloat16": 9, "tfloat32": 7, "int16": 1, "int8": 0, "bool": 0,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_MAX_BOX = 256


class MapPlan(NamedTuple):
    """One tensor map: the constants of its encoding.

    Attributes:
        name: of the parameter.
        buffer: the global tensor.
        strides: of it, in elements.
        dtype: the driver's number of the element type.
        item: bytes of an element.
        box: extents of a copy, last dimension first.
        swizzle: the driver's number.
    """

    name: str
    buffer: ir.Buffer
    strides: tuple[int | ir.Expr, ...]
    dtype: int
    item: int
    box: tuple[int, ...]
    swizzle: int


def map_plans(launch: LaunchInfo) -> tuple[MapPlan, ...]:
    """The tensor maps of a launch, in the order of the parameters.

    Raises:
        CapabilityError: an element type that the copy engine does not have.
    """
    plans = []
    for record in launch.attrs.get("tensor_maps", ()):
        buffer = record.buffer
        dtype = str(buffer.dtype.scalar)
        number = 0 if dtype.startswith("float8_") else _MAP_TYPES.get(dtype)
        if number is None or buffer.dtype.lanes != 1:
            raise CapabilityError(
                f"the bulk copy engine does not have elements of type {buffer.dtype!s}",
                span=buffer.span,
            )
        if not 1 <= buffer.ndim <= 5 or len(record.box) != buffer.ndim:
            raise InternalError(f"no tensor map of {buffer.describe()} with box {record.box}")
        if any(not 1 <= extent <= _MAX_BOX for extent in record.box):
            raise InternalError(f"the box {record.box} of {record.name} is too large")
        plans.append(
            MapPlan(
                record.name,
                buffer,
                tuple(buffer.element_strides()),
                number,
                buffer.dtype.bytes,
                tuple(reversed([int(e) for e in record.box])),
                _SWIZZLES[int(record.swizzle)],
            )
        )
    return tuple(plans)


def cluster_of(launch: LaunchInfo) -> tuple[int, int, int] | None:
    """Blocks of a cluster by axis; None without clusters."""
    given = launch.attrs.get("cluster")
    if given is None:
        return None
    extents = [int(n) for n in (given if isinstance(given, (tuple, list)) else (given,))]
    x, y, z = (*extents, 1, 1, 1)[:3]
    return None if (x, y, z) == (1, 1, 1) else (x, y, z)


def required_alignment(launches: Mapping[str, LaunchInfo]) -> dict[str, int]:
    """Bytes to which the kernels of a function need the addresses of parameters aligned."""
    needed: dict[str, int] = {}
    for launch in launches.values():
        for name, size in launch.attrs.get("alignment", {}).items():
            needed[name] = max(int(size), needed.get(name, 1))
        for plan in map_plans(launch):
            needed[plan.buffer.name] = max(16, needed.get(plan.buffer.name, 1))
    return needed


class CudaCalls(DeviceCalls):
    """Launches through the driver."""

    device_name = DEVICE
    reserved: ClassVar[Sequence[str]] = tuple(_RESERVED.split())

    def __init__(self, launches: Mapping[str, LaunchInfo]) -> None:
        super().__init__()
        self._launches = launches
        self._kernels: dict[str, int] = {}
        self.alignment = required_alignment(launches)

    def symbols(self, kernel: str) -> tuple[str, ...]:
        """None: kernels are found by name in the image."""
        del kernel
        return ()

    def support(self) -> str:
        """The driver, and a table of kernels."""
        rows = []
        for name in self._kernels:
            launch = self._launches[name]
            shared = launch.shared_bytes
            fixed = ir.fold_int(shared) if isinstance(shared, ir.Expr) else shared
            cluster = cluster_of(launch)
            large = cluster is not None and cluster[0] * cluster[1] * cluster[2] > 8
            most = fixed if isinstance(fixed, int) else -1
            rows.append(f"  {{{c_string(name)}, {most}, {int(large)}, NULL, {{0}}}},\n")
        table = (
            f"enum {{ TILEC_KERNELS = {len(rows)} }};\n"
            f"static tilec_kernel tilec_kernels[] = {{\n{''.join(rows) or '  {0},'}}};\n"
        )
        head, tail = SUPPORT
        return f"{head}\n{table}{tail}"

    def begin(self, site: LaunchSite) -> None:
        """The device and the stream of the call."""
        site.out.line(f"const int device = {site.device};")
        site.out.line("void* const stream = tilec_stream_of(self_handle, result, device);")
        site.out.line("(void)stream;")

    def launch(self, site: LaunchSite, kernel: str, passed: Sequence[Passed]) -> None:
        """One launch; nothing for a grid without blocks."""
        launch = self._launches.get(kernel)
        if launch is None:
            raise InternalError(f"there is no launch of {kernel}")
        number = self._kernels.setdefault(kernel, len(self._kernels))
        grid = [*launch.grid, 1, 1, 1][:3]
        out = site.out
        with out.block(""):
            self._configuration(site, launch, grid, number)
            with out.block("if (config.blocks != 0)"):
                self._run(site, launch, passed)

    def _configuration(
        self, site: LaunchSite, launch: LaunchInfo, grid: Sequence[Any], number: int
    ) -> None:
        out = site.out
        threads = [*map(int, launch.threads), 1, 1, 1][:3]
        cluster = cluster_of(launch)
        out.line("tilec_config config = {0};")
        out.line(f"config.kernel = &tilec_kernels[{number}];")
        for axis, extent in enumerate(grid):
            out.line(f"config.grid[{axis}] = {site.wide(extent)};")
        for axis, count in enumerate(threads):
            out.line(f"config.block[{axis}] = {count};")
        out.line(f"config.shared = {site.wide(launch.shared_bytes)};")
        for axis, count in enumerate(cluster or ()):
            out.line(f"config.cluster[{axis}] = {count};")
        for name in ("cooperative", "programmatic"):
            if launch.attrs.get(name):
                out.line(f"config.{name} = 1;")
        site.fail("tilec_check_grid(self_handle, kernel, &config)", "-1")

    def _run(self, site: LaunchSite, launch: LaunchInfo, passed: Sequence[Passed]) -> None:
        out, names = site.out, site.names
        out.line("tilec_scope scope __attribute__((cleanup(tilec_leave))) = {0};")
        site.fail("tilec_enter(self_handle, kernel, device, stream, &config, &scope)", "-1")
        params = []
        for plan in map_plans(launch):
            params.append(self._tensor_map(site, plan))
        for argument in passed:
            name = names.fresh("argument")
            text = argument.text
            if isinstance(argument.node, ir.Buffer):
                out.line(f"const uint64_t {name} = (uint64_t)(uintptr_t){text};")
            else:
                out.line(f"const {argument.kind} {name} = {text};")
            params.append(f"(void*)&{name}")
        for hidden in launch.hidden:
            params.append(self._hidden(site, hidden))
        listed = ", ".join(params) or "NULL"
        out.line(f"void* params[] = {{{listed}}};")
        site.fail("tilec_launch(self_handle, kernel, stream, &config, params)", "-1")

    def _tensor_map(self, site: LaunchSite, plan: MapPlan) -> str:
        """A descriptor, encoded again only when the tensor is another one than last time."""
        out, rank = site.out, plan.buffer.ndim
        tensor = site.tensors.get(plan.buffer)
        if tensor is None:
            raise InternalError(f"{plan.buffer.describe()} has a map but is no parameter")
        name = site.names.fresh(plan.name)
        key = site.names.fresh(f"{plan.name}_key")
        box = ", ".join(map(str, plan.box))
        out.line(f"static _Thread_local tilec_map {name};")
        shape = [site.wide(e) for e in plan.buffer.shape]
        strides = [site.wide(e) for e in plan.strides]
        values = ["(uint64_t)config.device"]
        values.append(f"(uint64_t)(uintptr_t)({tensor}->data) + {tensor}->byte_offset")
        values += reversed(shape)
        values += [f"({s}) * {plan.item}" for s in reversed(strides[:-1])]
        out.line(f"const uint64_t {key}[] = {{{', '.join(values)}}};")
        out.line(f"static const uint32_t {key}_box[] = {{{box}}};")
        site.fail(
            f"tilec_encode(self_handle, kernel, {c_string(plan.buffer.name)}, &{name}, {key}, "
            f"{rank}, {plan.dtype}, {plan.item}, {key}_box, {plan.swizzle})",
            "-1",
        )
        return f"{name}.bits"

    def _hidden(self, site: LaunchSite, hidden: Any) -> str:
        """Scratch memory, taken from and given back to the stream's pool in its order."""
        name = site.names.fresh(hidden.name)
        size = f"({site.wide(hidden.size)}) * {hidden.dtype.bytes}"
        fill = -1 if hidden.fill is None else int(hidden.fill)
        site.out.line(f"tilec_scratch {name} __attribute__((cleanup(tilec_free))) = {{0}};")
        site.fail(
            f"tilec_allocate(self_handle, kernel, {c_string(hidden.name)}, stream, {size}, {fill}, "
            f"&{name})",
            "-1",
        )
        return f"(void*)&{name}.address"


def host_program(given: HostInput) -> HostProgram:
    """The host program of a kernel; no compiler is called."""
    (func,) = given.module.functions.values()
    source = generate_host_source(func, calls=CudaCalls(given.launches))
    return HostProgram("c", source, host_symbol(func.name))
