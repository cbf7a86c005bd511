"""What the doctor tells about the CUDA side of a machine."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.diagnostics import TilecError
from tilec_cuda.capabilities import of_device
from tilec_cuda.driver import driver
from tilec_cuda.nvrtc import find_nvrtc


def machine_facts() -> Mapping[str, str]:
    """The driver, the devices and NVRTC, or why they are not there."""
    facts: dict[str, str] = {}
    try:
        found = driver()
        found.start()
        major, minor = found.version()
        facts["driver"] = f"for CUDA {major}.{minor} ({found.path})"
        for index in range(found.count()):
            device = found.device(index)
            facts[f"device {index}"] = (
                f"{device.name}, {of_device(device.major, device.minor)}, "
                f"{device.processors} multiprocessors, {device.shared_bytes // 1024} KiB of shared "
                f"memory for a block, {device.l2_bytes // 2**20} MiB of L2 cache"
            )
    except TilecError as error:
        facts["driver"] = error.message
    try:
        compiler = find_nvrtc()
        facts["NVRTC"] = f"{compiler.version[0]}.{compiler.version[1]} ({compiler.path})"
    except TilecError as error:
        facts["NVRTC"] = error.message
    return facts
