"""What a compilation gives: parameters, launches, programs, the artifact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from tilec.backend.target import Target
    from tilec.ir import Buffer, DType, Expr, Module, PrimFunc, Var
    from tilec.transform.base import Remark

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class KernelParam(NamedTuple):
    """One parameter of a kernel, as the host side sees it.

    Attributes:
        name: in the source.
        dtype: element type, or the type of a scalar.
        shape: extents, ints or integer expressions over the kernel's dynamic variables; empty
            for a scalar.
        strides: in elements; None for contiguous row-major.
        by_value: whether it is a scalar.
        read: whether the kernel reads its elements.
        written: whether the kernel writes its elements.
        used: whether the body mentions it at all, its shape included.
        is_output: whether the caller may leave it out and get it returned.
        node: the buffer or variable of the function.
    """

    name: str
    dtype: DType
    shape: tuple[int | Expr, ...] = ()
    strides: tuple[int | Expr, ...] | None = None
    by_value: bool = False
    read: bool = True
    written: bool = False
    used: bool = True
    is_output: bool = False
    node: Buffer | Var | None = None

    @property
    def tilec_dtype(self) -> DType:
        """The element type."""
        return self.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape where every extent is known now, else None."""
        if all(isinstance(extent, int) for extent in self.shape):
            return tuple(extent for extent in self.shape if isinstance(extent, int))
        return None

    def torch_dtype(self) -> Any:
        """The torch dtype that stores the elements; imports torch."""
        return self.dtype.as_torch()

    def is_scalar(self) -> bool:
        """Whether it is passed by value."""
        return self.by_value

    def is_unsigned(self) -> bool:
        """Whether the elements are unsigned integers."""
        return self.dtype.is_uint

    def is_boolean(self) -> bool:
        """Whether the elements are bools."""
        return self.dtype.is_bool

    def is_float8(self) -> bool:
        """Whether the elements are eight-bit floats."""
        return self.dtype.code.startswith("float8")

    def is_float4(self) -> bool:
        """Whether the elements are four-bit floats."""
        return self.dtype.code.startswith("float4")


class HiddenArgument(NamedTuple):
    """An argument that the backend adds behind the user's, such as a workspace.

    Attributes:
        name: in the device function.
        dtype: element type.
        size: elements to allocate, an int or an expression over the kernel's dynamic variables.
        fill: byte that the storage is set to before a launch; None leaves it as it is.
    """

    name: str
    dtype: DType
    size: int | Expr
    fill: int | None = None


class LaunchInfo(NamedTuple):
    """How one device function is launched.

    Attributes:
        kernel: name of the device function.
        grid: blocks per axis, ints or expressions over the kernel's dynamic variables.
        threads: threads per axis.
        shared_bytes: dynamic shared memory of one block.
        hidden: arguments behind the user's.
        attrs: what else the backend's launcher wants to know (cluster, cooperative, ...).
    """

    kernel: str
    grid: tuple[int | Expr, ...] = (1,)
    threads: tuple[int, ...] = (1,)
    shared_bytes: int | Expr = 0
    hidden: tuple[HiddenArgument, ...] = ()
    attrs: Mapping[str, Any] = _EMPTY


class DeviceProgram(NamedTuple):
    """Generated device code; several files where a target needs them.

    Attributes:
        language: of the source, such as ``c``.
        source: the main file's text.
        entry_points: names that can be launched.
        binary: compiled form, where it was compiled.
        files: further files by name.
        attrs: whatever the execution backend needs to load it.
    """

    language: str
    source: str
    entry_points: tuple[str, ...] = ()
    binary: bytes | None = None
    files: Mapping[str, str | bytes] = _EMPTY
    attrs: Mapping[str, Any] = _EMPTY


class HostProgram(NamedTuple):
    """Generated host code.

    Attributes:
        language: of the source, such as ``c``.
        source: text of the host side, or of the whole library where both sides are one.
        symbol: name of the packed function,
            ``int f(void*, const TVMFFIAny*, int32_t, TVMFFIAny*)``.
        includes_device: whether `source` holds the device code as well.
        attrs: whatever the execution backend needs to build it.
    """

    language: str
    source: str
    symbol: str
    includes_device: bool = False
    attrs: Mapping[str, Any] = _EMPTY


class CompiledArtifact(NamedTuple):
    """Everything that was generated for one kernel; nothing in it is loaded yet.

    Attributes:
        name: of the kernel.
        prim_func: the function in tile form.
        host_mod: host functions in split form.
        device_mod: device functions in split form.
        params: in the order of the source.
        out_idx: positions of the parameters that the caller may leave out.
        launches: by device function, in order.
        device: the device program.
        host: the host program, where host code generation was enabled.
        target: what the code is for.
        target_host: name of the host code generator.
        execution_backend: name of what compiles, loads and launches it.
        remarks: what passes decided.
        times: seconds by step.
    """

    name: str
    prim_func: PrimFunc
    host_mod: Module
    device_mod: Module
    params: tuple[KernelParam, ...]
    out_idx: tuple[int, ...]
    launches: Mapping[str, LaunchInfo]
    device: DeviceProgram
    host: HostProgram | None
    target: Target
    target_host: str
    execution_backend: str
    remarks: tuple[Remark, ...] = ()
    times: Mapping[str, float] = _EMPTY

    @property
    def kernel_source(self) -> str:
        """Text of the device program."""
        return self.device.source

    @property
    def host_source(self) -> str | None:
        """Text of the host program, if one was generated."""
        return None if self.host is None else self.host.source

    @property
    def rt_mod(self) -> bytes | None:
        """The compiled device program, if it was compiled."""
        return self.device.binary

    @property
    def symbol(self) -> str | None:
        """Name of the packed host function."""
        return None if self.host is None else self.host.symbol

    @property
    def inputs(self) -> tuple[KernelParam, ...]:
        """Parameters that the caller always gives."""
        return tuple(p for i, p in enumerate(self.params) if i not in self.out_idx)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return self._replace(**changes)

    def files(self) -> dict[str, str | bytes]:
        """The artifact as named files: sources, binary and further files."""
        suffix = self.device.language
        named: dict[str, str | bytes] = {f"{self.name}.{suffix}": self.device.source}
        if self.host is not None:
            named[f"{self.name}_host.{self.host.language}"] = self.host.source
        if self.device.binary is not None:
            named[f"{self.name}.bin"] = self.device.binary
        named.update(self.device.files)
        return named

    def write(self, folder: Path | str) -> tuple[Path, ...]:
        """Write the files into a folder, which is created; their paths."""
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, content in self.files().items():
            path = root / name
            if isinstance(content, str):
                path.write_text(content, encoding="utf-8")
            else:
                path.write_bytes(content)
            paths.append(path)
        return tuple(paths)
