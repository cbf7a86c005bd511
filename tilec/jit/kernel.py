"""A compiled kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.diagnostics import (
    ArgumentTypeError,
    JITArgumentError,
    OperandError,
    TilecError,
    UnsupportedSyntaxError,
)
from tilec.ir import caller_span
from tilec.options import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilec import ir
    from tilec.backend import BackendContext, CompiledArtifact
    from tilec.backend.artifact import KernelParam
    from tilec.backend.components import Executable
    from tilec.profiler import Profiler


class JITKernel:
    """A kernel that is compiled and loaded; call it with its inputs.

    One output is returned as an array, several as a list, none as None. Arguments are NumPy
    arrays or anything with ``__dlpack__`` on the right device; nothing is copied.

    Attributes:
        artifact: everything that was generated.
        prim_func: the function in tile form.
        times: seconds by step of the compilation, ``load`` included.
    """

    def __init__(self, artifact: CompiledArtifact, context: BackendContext) -> None:
        self.artifact = artifact
        self.context = context
        start = time.perf_counter()
        self._executable: Executable = context.load(artifact)
        self.artifact = self._executable.artifact  # what loading compiled is in it
        self.times = {**artifact.times, "load": time.perf_counter() - start}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Run the kernel on its inputs.

        Args:
            args: the inputs.
            keywords: ``stream=``, where the target has streams: the one to run on; by default the
                current one of the inputs' device.
        """
        if keywords:
            if keywords.keys() == {"stream"} and self._has_streams:
                return self._executable(*args, **keywords)
            raise ArgumentTypeError(
                f"kernel {self.artifact.name} takes positional arguments only, "
                f"got {', '.join(sorted(keywords))}"
            )
        return self._executable(*args)

    @property
    def _has_streams(self) -> bool:
        return self.context.module.runtime.stream_handle is not None

    def get_profiler(self, tensor_supply_type: Any = None) -> Profiler:
        """Measures the kernel and checks its results, on generated inputs.

        Args:
            tensor_supply_type: what inputs hold, a `TensorSupplyType`; by dtype by default.
        """
        from tilec.profiler import Profiler

        return Profiler(
            self.params, self.out_idx, tensor_supply_type, self, self.context.module.runtime
        )

    def run_once(self, func: Any = None) -> Any:
        """Run the kernel, or `func`, once on generated inputs; what it returns."""
        return self.get_profiler().run_once(func)

    @property
    def resource_usage(self) -> Mapping[str, Any]:
        """What each device function needs (registers, spills, shared memory, occupancy).

        Empty where the execution backend does not know.
        """
        return getattr(self._executable, "resource_usage", {})

    @property
    def n_regs(self) -> int | None:
        """Registers of a thread, the most of all device functions; None where unknown."""
        return self._most("registers")

    @property
    def n_spills(self) -> int | None:
        """Bytes that a thread stores because they fit into no register; None where unknown."""
        return self._most("spill_stores")

    def _most(self, name: str) -> int | None:
        found = [getattr(report, name) for report in self.resource_usage.values()]
        return max(found, default=None)

    def interpret(self, *args: Any, check: bool = False) -> Any:
        """Run the kernel's tile form in the reference interpreter instead.

        Takes NumPy arrays and gives what calling the kernel gives, slowly and without a
        compiler. See `tilec.interp.run` for `check` and the errors.
        """
        from tilec.interp import run  # a debugger: not loaded by those who only run kernels

        func = self.prim_func.with_attr("out_idx", tuple(self.out_idx))
        return run(func, *args, check=check)

    @property
    def prim_func(self) -> ir.PrimFunc:
        """The function in tile form."""
        return self.artifact.prim_func

    @property
    def params(self) -> tuple[KernelParam, ...]:
        """The parameters, outputs included."""
        return self.artifact.params

    @property
    def out_idx(self) -> list[int]:
        """Positions of the parameters that the kernel allocates and returns."""
        return list(self.artifact.out_idx)

    @property
    def target(self) -> Any:
        """What the kernel was compiled for."""
        return self.artifact.target

    @property
    def execution_backend(self) -> str:
        """What loads and launches it."""
        return self.artifact.execution_backend

    @property
    def kernel_source(self) -> str:
        """The device source."""
        return self.artifact.kernel_source

    @property
    def host_source(self) -> str | None:
        """The host source, if one was generated."""
        return self.artifact.host_source

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The device source; with ``kernel_only=False`` the host source follows."""
        host = self.artifact.host_source
        if kernel_only or host is None:
            return self.artifact.kernel_source
        return f"{self.artifact.kernel_source}\n{host}"

    def get_host_source(self) -> str:
        """The host source (empty if the execution backend needs none)."""
        return self.artifact.host_source or ""

    def show_source(self, which: str = "kernel") -> None:
        """Print the ``"kernel"`` source, the ``"host"`` source or ``"both"``."""
        texts = {"kernel": [self.kernel_source], "host": [self.get_host_source()]}
        texts["both"] = texts["kernel"] + texts["host"]
        if which not in texts:
            raise OperandError(
                f"show_source: which={which!r}", hint="one of 'kernel', 'host', 'both'"
            )
        print("\n".join(texts[which]))  # noqa: T201 - what it is for

    def export_sources(
        self, kernel_path: str | Path | None = None, host_path: str | Path | None = None
    ) -> None:
        """Write the sources to files.

        Raises:
            JITArgumentError: neither path is given.
        """
        if kernel_path is None and host_path is None:
            raise JITArgumentError("export_sources needs kernel_path or host_path")
        for path, text in ((kernel_path, self.kernel_source), (host_path, self.get_host_source())):
            if path is not None:
                Path(path).write_text(text, encoding="utf-8")

    def script(self) -> str:
        """The function in tile form as Python text."""
        return self.prim_func.script()

    def explain(self) -> str:
        """What passes and tools decided, one line each."""
        lines = [str(remark) for remark in self.artifact.remarks]
        lines += [f"{name}: {usage}" for name, usage in self.resource_usage.items()]
        for key, value in self.artifact.device.attrs.items():
            if not isinstance(value, Mapping) and "\n" not in str(value):
                lines.append(f"{key}: {value}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        inputs = ", ".join(p.name for p in self.artifact.inputs)
        return f"<kernel {self.artifact.name}({inputs}) for {self.target}>"


def compile_function(
    func: ir.PrimFunc,
    *,
    out_idx: Any = None,
    target: object = None,
    target_host: object = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, object] | None = None,
    compile_flags: str | Iterable[str] | None = None,
    debug_root_path: str | Path | None = None,
) -> JITKernel:
    """Compile a traced function; see `tilec.compile`."""
    from tilec.engine import create_context, lower_with_context

    start = time.perf_counter()
    try:
        func = with_out_idx(func, out_idx)
        context = create_context(
            func, target, target_host, execution_backend, pass_configs, compile_flags
        )
        artifact = lower_with_context(func, context)
    except TilecError as error:
        error.with_span(caller_span())
        raise
    except RecursionError:
        raise UnsupportedSyntaxError(
            f"{func.name} nests statements or expressions too deeply to be compiled",
            span=func.span,
            hint="bind parts of long expressions to names",
        ) from None
    python = time.perf_counter() - start
    if debug_root_path is not None:
        artifact.write(debug_root_path)
        (Path(debug_root_path) / f"{func.name}.py").write_text(func.script(), encoding="utf-8")
    kernel = JITKernel(artifact, context)
    kernel.times["python"] = python
    if options.verbose if verbose is None else verbose:
        total = time.perf_counter() - start
        print(  # noqa: T201 - asked for
            f"tilec: compiled {func.name} for {context.target} in {total * 1e3:.0f} ms "
            f"(Python {python * 1e3:.0f} ms)"
        )
    return kernel


def with_out_idx(func: ir.PrimFunc, out_idx: Any) -> ir.PrimFunc:
    """`func` with its outputs recorded.

    Raises:
        JITArgumentError: out of range, given twice, not a tensor, or in conflict with the
            function's own outputs.
    """
    from tilec.engine import normalize_out_idx

    own = func.attrs.get("out_idx")
    if out_idx is None:
        return func
    result = list(normalize_out_idx(func, out_idx))
    if own is not None and sorted(own) != result:
        raise JITArgumentError(
            f"{func.name} already has the outputs {list(own)}, out_idx says {result}",
            span=func.span,
        )
    return func.with_attr("out_idx", result)
