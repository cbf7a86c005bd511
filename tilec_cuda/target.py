"""The target kind ``cuda``: its attributes, and how the one of this machine is found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilec.backend import Attr, Capabilities, PassContext, Target, TargetKind, module_pass
from tilec.diagnostics import TilecError, warn
from tilec.ir import Module
from tilec_cuda.capabilities import Resolved, capabilities, of_device, resolve
from tilec_cuda.driver import DriverError, driver

KIND = "cuda"
DEFAULT_ARCH = "sm_80"
"""What is generated code for where no architecture is given and no device is here."""


def _normalize(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The architecture in its usual spelling; that of the device where none is given."""
    given = attrs.get("arch")
    if given is None:
        return {**attrs, "arch": _device_arch() or DEFAULT_ARCH}
    return {**attrs, "arch": str(resolve(str(given)).arch)}


def _device_arch() -> str | None:
    try:
        found = driver()
        if not found.count():
            return None
        index = found.current_device()
        device = found.device(0 if index is None else index)
    except (TilecError, DriverError):
        return None
    return of_device(device.major, device.minor)


def _detect() -> Mapping[str, Any] | None:
    arch = _device_arch()
    return None if arch is None else {"arch": arch}


TARGET = TargetKind(
    KIND,
    "NVIDIA GPUs, through NVRTC and the driver",
    schema={"arch": Attr((str,), "The architecture, such as sm_90a; the device's by default.")},
    normalize=_normalize,
    detect=_detect,
    priority=100,
)


def architecture(target: Target) -> Resolved:
    """The architecture of a normalised target."""
    return resolve(str(target.get("arch", DEFAULT_ARCH)))


def target_capabilities(target: Target) -> Capabilities:
    """The capability table of a target; warns where it has to be guessed."""
    found = architecture(target)
    if found.notice:
        warn(found.notice)
    return capabilities(found.known)


def notices(target: Target) -> Iterable[str]:
    """What the doctor tells about a target."""
    found = architecture(target)
    if found.notice:
        yield found.notice


def _note(module: Module, ctx: PassContext) -> Module:
    if ctx.target is not None:
        found = architecture(ctx.target)
        if found.notice:
            ctx.remark("target", found.notice)
    return module


note_target = module_pass("note_target", "say where a newer chip is used like an older one")(_note)
