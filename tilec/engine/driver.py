"""The engine: one function in, one artifact out.

Backends differ in exactly one place, ``mod = context.lower(mod)``; before it nothing knows the
target, after it functions carry their calling convention and the backend's code generators are
handed the two halves.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilec import ir
from tilec.backend.artifact import CompiledArtifact, LaunchInfo
from tilec.backend.components import HostInput
from tilec.backend.context import BackendContext
from tilec.backend.instruments import DumpIR, Instrument, Timing, Verify
from tilec.backend.registry import registry
from tilec.diagnostics import InternalError, JITArgumentError, OperandError
from tilec.engine.params import kernel_params, normalize_out_idx
from tilec.options import options
from tilec.transform.base import PassConfigKey, PassContext
from tilec.transform.config import SOURCE_FOLDER

HOST_PACKED = "host_packed"
DEVICE_KERNEL = "device_kernel"
CALLING_CONV = "calling_conv"
LAUNCH = "launch"


def lower(
    func_or_mod: ir.PrimFunc | ir.Module,
    target: object = "auto",
    target_host: object = None,
    execution_backend: str | None = "auto",
    pass_configs: Mapping[Any, object] | None = None,
    *,
    out_idx: object = None,
    compile_flags: str | Iterable[str] | None = None,
    enable_host_codegen: bool | None = None,
    enable_device_compile: bool | None = None,
) -> CompiledArtifact:
    """Generate code for a function.

    Args:
        func_or_mod: a function in tile form, or a module with exactly one.
        target: kind, dict or `Target`; ``"auto"`` takes the option, and detects where that says so.
        target_host: name of a host code generator; the backend's preferred one by default.
        execution_backend: name; ``"auto"`` takes the option, else the first usable one.
        pass_configs: override the function's own ``pass_configs``.
        out_idx: parameters that the caller may leave out; the function's own by default.
        compile_flags: flags of the external compiler, behind the function's own.
        enable_host_codegen: whether to generate host code; as the execution backend needs it by
            default.
        enable_device_compile: whether to compile device code; as the execution backend needs it
            by default.

    Raises:
        TilecError: the program, the target or the tool chain does not allow it.
    """
    func = single_function(func_or_mod)
    context = create_context(
        func, target, target_host, execution_backend, pass_configs, compile_flags, to_run=False
    )
    return lower_with_context(
        func,
        context,
        out_idx=out_idx,
        enable_host_codegen=enable_host_codegen,
        enable_device_compile=enable_device_compile,
    )


def create_context(
    func: ir.PrimFunc,
    target: object = "auto",
    target_host: object = None,
    execution_backend: str | None = "auto",
    pass_configs: Mapping[Any, object] | None = None,
    compile_flags: str | Iterable[str] | None = None,
    *,
    to_run: bool = True,
) -> BackendContext:
    """Resolve everything that `lower_with_context` needs, once; arguments as for `lower`.

    With `to_run` the execution backend has to be usable on this machine.

    The function's attributes ``pass_configs`` and ``compile_flags`` take part: given configuration
    overrides the function's, given flags come behind the function's.
    """
    config = {**_plain(func.attrs.get("pass_configs")), **_plain(pass_configs)}
    return registry().context(
        None if target == "auto" else target,
        target_host,
        None if execution_backend == "auto" else execution_backend,
        config,
        (*_flags(func.attrs.get("compile_flags")), *_flags(compile_flags)),
        to_run=to_run,
    )


def lower_with_context(
    func_or_mod: ir.PrimFunc | ir.Module,
    context: BackendContext,
    *,
    out_idx: object = None,
    enable_host_codegen: bool | None = None,
    enable_device_compile: bool | None = None,
    instruments: Iterable[Instrument] = (),
) -> CompiledArtifact:
    """Generate code where target and backends are resolved already; see `lower`.

    Args:
        func_or_mod: a function in tile form, or a module with exactly one.
        context: resolved choice of target and backends.
        out_idx: see `lower`.
        enable_host_codegen: see `lower`.
        enable_device_compile: see `lower`.
        instruments: observers besides those that options and plugins bring.
    """
    func = single_function(func_or_mod)
    outputs = normalize_out_idx(func, out_idx)
    params = kernel_params(func, outputs)
    execution = context.execution_backend
    want_host = (
        execution.enable_host_codegen if enable_host_codegen is None else enable_host_codegen
    )
    want_binary = (
        execution.enable_device_compile if enable_device_compile is None else enable_device_compile
    )
    clock = _Clock()
    ctx = context.pass_context()
    host_mod, device_mod = lower_to_host_device_ir(func, context, ctx, instruments)
    clock.lap("passes")
    launches = launch_table(device_mod)
    device = context.codegen_device(device_mod, compile_device=want_binary)
    clock.lap("device_codegen")
    host = None
    if want_host:
        host_mod = context.prepare_host(host_mod)
        given = HostInput(func.name, host_mod, params, outputs, launches, device, context)
        host = context.codegen_host(given)
        clock.lap("host_codegen")
    artifact = CompiledArtifact(
        name=func.name,
        prim_func=func,
        host_mod=host_mod,
        device_mod=device_mod,
        params=params,
        out_idx=outputs,
        launches=launches,
        device=device,
        host=host,
        target=context.target,
        target_host=context.host_codegen.name if context.host_codegen else "",
        execution_backend=execution.name,
        remarks=ctx.remarks,
        times=clock.times,
    )
    _write_sources(artifact, context)
    return artifact


def lower_to_host_device_ir(
    func_or_mod: ir.PrimFunc | ir.Module,
    context: BackendContext,
    ctx: PassContext | None = None,
    instruments: Iterable[Instrument] = (),
) -> tuple[ir.Module, ir.Module]:
    """Run the backend's passes; the host module and the device module, in split form.

    Args:
        func_or_mod: in tile form.
        context: resolved choice of target and backends.
        ctx: collects remarks; a fresh one by default.
        instruments: observers besides those that options and plugins bring.

    Raises:
        TilecError: a pass refuses the program; a note names the pass.
    """
    mod = func_or_mod
    if isinstance(mod, ir.PrimFunc):
        mod = ir.Module({mod.name: mod})
    ctx = context.pass_context() if ctx is None else ctx
    timing = Timing()
    standard = _standard_instruments(context, ctx)
    watching = [*standard, timing, *registry().instruments(), *instruments]
    if ctx.flag(PassConfigKey.TL_AST_PRINT_ENABLE):
        print(mod.script())  # noqa: T201 - asked for by name
    mod = context.lower(mod, ctx, watching)
    if options.profile_passes or ctx.flag(PassConfigKey.TL_PASS_PROFILE):
        threshold = float(ctx.get(PassConfigKey.TL_PASS_PROFILE_THRESHOLD_MS))
        print(timing.report(threshold), file=sys.stderr)  # noqa: T201 - asked for by name
    return split_host_device(mod)


def split_host_device(mod: ir.Module) -> tuple[ir.Module, ir.Module]:
    """Sort functions by the calling convention that they carry.

    Raises:
        InternalError: a function carries none, so the pipeline did not finish its work.
    """
    host: dict[str, ir.PrimFunc] = {}
    device: dict[str, ir.PrimFunc] = {}
    for name, func in mod.functions.items():
        convention = func.attrs.get(CALLING_CONV)
        if convention == HOST_PACKED:
            host[name] = func
        elif convention == DEVICE_KERNEL:
            device[name] = func
        else:
            raise InternalError(
                f"function {name!r} left the pipeline with calling convention {convention!r}",
                span=func.span,
                hint=f"its last stage must set the attribute {CALLING_CONV!r} to {HOST_PACKED!r} "
                f"or {DEVICE_KERNEL!r}",
            )
    return ir.Module(host), ir.Module(device)


def launch_table(device_mod: ir.Module) -> dict[str, LaunchInfo]:
    """How each device function is launched, from its attribute ``launch``."""
    table: dict[str, LaunchInfo] = {}
    for name, func in device_mod.functions.items():
        info = func.attrs.get(LAUNCH)
        table[name] = info if isinstance(info, LaunchInfo) else LaunchInfo(name, **(info or {}))
    return table


def single_function(func_or_mod: object) -> ir.PrimFunc:
    """The one function to compile.

    Raises:
        OperandError: not a function, or a module with none or several.
    """
    if isinstance(func_or_mod, ir.PrimFunc):
        return func_or_mod
    if isinstance(func_or_mod, ir.Module):
        functions = tuple(func_or_mod.functions.values())
        if len(functions) == 1:
            return functions[0]
        raise OperandError(
            f"a module with {len(functions)} functions cannot be lowered to one artifact",
            hint="lower its functions one by one",
        )
    raise OperandError(
        f"expected a PrimFunc, got {type(func_or_mod).__name__}",
        hint="decorate the function with @T.prim_func",
    )


def _standard_instruments(context: BackendContext, ctx: PassContext) -> list[Instrument]:
    """Observers that options and configuration ask for."""
    asked: list[Instrument] = []
    if options.verify or ctx.flag(PassConfigKey.TL_VERIFY_PASSES):
        asked.append(Verify())
        if options.verify_steps:
            from tilec.interp.passes import VerifyPasses  # noqa: PLC0415 - NumPy, only for this

            asked.append(VerifyPasses(context.module.meanings, options.verify_steps))
    if ctx.flag(PassConfigKey.TL_ENABLE_DUMP_IR):
        asked.append(DumpIR(str(ctx.get(PassConfigKey.TL_DUMP_IR_DIR))))
    elif options.dump_dir is not None:
        asked.append(DumpIR(options.dump_dir))
    return asked


def _write_sources(artifact: CompiledArtifact, context: BackendContext) -> None:
    if options.dump_dir is not None:
        artifact.write(options.dump_dir / artifact.name)
    folder = context.config.get(SOURCE_FOLDER.value)
    if folder:
        artifact.write(Path(str(folder)))


def _plain(config: object) -> dict[Any, object]:
    """A configuration with plain strings as keys, so that enum members and strings collide."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise JITArgumentError(f"pass_configs is a dict, not {type(config).__name__} {config!r}")
    return {getattr(key, "value", key): value for key, value in config.items()}


def _flags(flags: object) -> tuple[str, ...]:
    if flags is None:
        return ()
    if isinstance(flags, str):
        return tuple(shlex.split(flags))
    if isinstance(flags, (list, tuple)) and all(isinstance(flag, str) for flag in flags):
        return tuple(flags)
    raise JITArgumentError(f"compile_flags is a string or a list of strings, not {flags!r}")


class _Clock:
    """Wall time by step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self.times[step] = now - self._last
        self._last = now
