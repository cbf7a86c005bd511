"""From a function in tile form to generated code: `lower` and its parts."""

from tilec.backend.artifact import CompiledArtifact, KernelParam, LaunchInfo
from tilec.engine.driver import (
    DEVICE_KERNEL,
    HOST_PACKED,
    create_context,
    lower,
    lower_to_host_device_ir,
    lower_with_context,
    split_host_device,
)
from tilec.engine.params import kernel_params, normalize_out_idx

__all__ = [
    "DEVICE_KERNEL",
    "HOST_PACKED",
    "CompiledArtifact",
    "KernelParam",
    "LaunchInfo",
    "create_context",
    "kernel_params",
    "lower",
    "lower_to_host_device_ir",
    "lower_with_context",
    "normalize_out_idx",
    "split_host_device",
]
