"""What is installed, what works, and why the rest does not: ``tilec doctor``."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from typing import Any

import tilec
from tilec.backend import (
    BackendModule,
    BackendRegistry,
    PluginFailure,
    RuntimeShim,
    Target,
    registry,
)
from tilec.backend.discovery import install_hint
from tilec.diagnostics import TilecError
from tilec.host.abi import HOST_MEMORY
from tilec.options import options

OK, BAD = "ok", "--"


@dataclass
class KindReport:
    """One target kind of one backend."""

    backend: str
    kind: str
    doc: str
    present: Target | None
    problem: str
    execution: list[tuple[str, bool, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    toolchain: list[tuple[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    smoke: str = ""
    smoke_failed: bool = False

    @property
    def usable(self) -> bool:
        """Whether kernels can be compiled and run for it here."""
        if self.present is None or self.smoke_failed:
            return False
        return any(ok for _, ok, _ in self.execution)


@dataclass
class PluginReport:
    """One installed plugin."""

    name: str
    distribution: str
    version: str
    failure: PluginFailure | None
    kinds: list[KindReport]


@dataclass
class Report:
    """Everything the doctor found."""

    plugins: list[PluginReport]
    unknown_variables: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether any kernel can run."""
        return any(kind.usable for plugin in self.plugins for kind in plugin.kinds)

    @property
    def broken(self) -> list[PluginReport]:
        """Plugins that failed to load."""
        return [plugin for plugin in self.plugins if plugin.failure is not None]


def examine(backends: BackendRegistry | None = None, *, smoke: bool = True) -> Report:
    """Look at every plugin; nothing that one of them raises escapes.

    Args:
        backends: the process's registry by default.
        smoke: whether to compile and run one small kernel per usable target kind.
    """
    known = registry() if backends is None else backends
    modules = known.backends()
    failures = {failure.plugin: failure for failure in known.failures()}
    plugins = []
    for info in known.plugins():
        own = [module for module in modules if known.origin(module) == info]
        kinds = [_kind(known, module, name, smoke) for module in own for name in module.kinds]
        plugins.append(
            PluginReport(info.name, info.distribution, info.version, failures.get(info), kinds)
        )
    return Report(plugins, options.unknown_variables())


def _kind(known: BackendRegistry, module: BackendModule, name: str, smoke: bool) -> KindReport:
    kind = known.kind(name)
    report = KindReport(module.name, name, kind.doc, None, "not present on this machine")
    try:
        if module.facts is not None:
            report.facts = list(module.facts().items())
        attrs = kind.detect()
        if attrs is None:
            return report
        target = kind.resolve(Target(name, dict(attrs)))
        if not module.matches(target):
            report.problem = f"the target found here, {target}, belongs to another backend"
            return report
        report.present, report.problem = target, ""
        for spec in module.execution_backends:
            state = spec.available(target)
            report.execution.append((spec.name, state.ok, state.reason or spec.doc))
        if module.toolchain is not None:
            found = module.toolchain(target)
            rows = {"tool chain": found.name, "flags": " ".join(found.flags)}
            for name, text in found.details.items():
                if text not in rows.values():
                    rows[name] = text
            report.toolchain = [(name, text) for name, text in rows.items() if text]
        if module.notices is not None:
            report.notices = list(module.notices(target))
        if smoke and report.usable:
            report.smoke_failed, report.smoke = _smoke(target, module.runtime)
    except Exception as error:  # noqa: BLE001 - the doctor reports whatever a plugin raises
        report.problem = f"{type(error).__name__}: {_message(error)}"
    return report


def _smoke(target: Target, runtime: RuntimeShim) -> tuple[bool, str]:
    """Compile and run one kernel; whether that failed, and a sentence about it."""
    import numpy as np

    from tilec.tools.smoke import add_one

    start = time.perf_counter()
    try:
        with options(cache=False):
            kernel = tilec.compile(add_one(), target=target)
            compiled = time.perf_counter() - start
            given: Any = np.arange(256, dtype=np.float32)
            result: Any = np.zeros(256, dtype=np.float32)
            if runtime.dlpack_device in HOST_MEMORY:
                kernel(given, result)
            else:
                try:
                    import torch
                except ImportError:
                    return False, f"a kernel compiled in {compiled:.2f} s; not run without torch"
                there = torch.from_numpy(result).to(runtime.torch_device)
                kernel(torch.from_numpy(given).to(runtime.torch_device), there)
                result = there.cpu().numpy()
    except Exception as error:  # noqa: BLE001 - the doctor reports whatever goes wrong
        return True, f"FAILED: {type(error).__name__}: {_message(error)}"
    if not np.array_equal(result, given + 1):
        return True, "FAILED: the kernel ran and gave a wrong result"
    return False, f"a kernel compiled in {compiled:.2f} s, ran, and gave the right result"


def render(report: Report, *, verbose: bool = False) -> str:
    """The report as text."""
    lines = [f"tilec {tilec.__version__}, Python {platform.python_version()}, {_machine()}"]
    if not report.plugins:
        lines.append(f"no plugin is installed; {install_hint()}")
    for plugin in report.plugins:
        lines += ["", f"plugin {plugin.name}: {plugin.distribution} {plugin.version}"]
        if plugin.failure is not None:
            lines.append(f"  {BAD} broken: {_failure(plugin.failure)}")
            if verbose:
                lines += [f"     {line}" for line in plugin.failure.details.splitlines()]
        for kind in plugin.kinds:
            lines += _kind_lines(kind)
    for name in report.unknown_variables:
        lines += ["", f"{BAD} environment variable {name} is not an option of tilec"]
    lines += ["", _verdict(report, verbose)]
    return "\n".join(lines)


def _kind_lines(kind: KindReport) -> list[str]:
    title = f"target {kind.kind}" + (f" ({kind.doc.rstrip('.')})" if kind.doc else "")
    lines = [f"  {OK if kind.usable and not kind.problem else BAD} {title}"]
    if kind.present is not None and kind.present.attrs:
        lines.append(f"     found: {kind.present}")
    if kind.problem:
        lines.append(f"     {kind.problem}")
    for name, ok, reason in kind.execution:
        state = "available" if ok else "unavailable"
        lines.append(f"     execution backend {name}: {state}" + (f" ({reason})" if reason else ""))
    lines += [f"     {name}: {text}" for name, text in (*kind.facts, *kind.toolchain)]
    lines += [f"     note: {text}" for text in kind.notices]
    if kind.smoke:
        lines.append(f"     smoke test: {kind.smoke}")
    return lines


def _verdict(report: Report, verbose: bool) -> str:
    usable = [k.kind for p in report.plugins for k in p.kinds if k.usable]
    text = f"usable targets: {', '.join(usable) or 'none'}"
    if report.broken:
        names = ", ".join(plugin.name for plugin in report.broken)
        text += f"; broken plugins: {names}"
        if not verbose:
            text += " (tilec doctor --verbose shows why)"
    return text


def _failure(failure: PluginFailure) -> str:
    return f"{type(failure.error).__name__}: {_message(failure.error)}"


def _message(error: BaseException) -> str:
    if isinstance(error, TilecError):
        return "; ".join([error.message, *error.notes])
    return str(error)


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"
