"""Targets, capability tables, detection."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from fake_cuda import FakeCuda

from tilec.backend import PassContext, Target
from tilec.diagnostics import TargetError, TilecWarning, ToolchainError
from tilec.ir import Module
from tilec_cuda.arch import Arch
from tilec_cuda.capabilities import ARCHITECTURES, CHIPS, capabilities, occupancy, of_device
from tilec_cuda.driver import Driver, use_driver, why_unusable
from tilec_cuda.execution import available
from tilec_cuda.target import DEFAULT_ARCH, TARGET, note_target, target_capabilities


def arch_of(spec: object) -> str:
    return str(TARGET.resolve(Target.parse(spec)).get("arch"))


def test_spellings(fake: FakeCuda) -> None:
    assert arch_of("cuda") == "sm_90a"
    assert arch_of({"kind": "cuda", "arch": "sm_80"}) == "sm_80"
    assert arch_of({"kind": "cuda", "arch": " SM_90A "}) == "sm_90a"


@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("90a", "not the name of an architecture"),
        ("sm_80a", "there is no architecture sm_80a"),
        ("sm_70", "older than sm_75"),
        ("compute_90", "not the name"),
        ("sm_9000", "not the name"),
    ],
)
def test_wrong_spellings(arch: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        arch_of({"kind": "cuda", "arch": arch})
    with pytest.raises(TargetError, match="has no attribute"):
        TARGET.resolve(Target("cuda", {"chip": "x"}))


@pytest.mark.parametrize(
    ("major", "minor", "name"),
    [(7, 5, "sm_75"), (8, 0, "sm_80"), (8, 9, "sm_89"), (9, 0, "sm_90a"), (10, 0, "sm_100a"),
     (10, 3, "sm_103a"), (11, 0, "sm_110a"), (12, 0, "sm_120a"), (12, 1, "sm_121a")],
)  # fmt: skip
def test_devices(fake: FakeCuda, major: int, minor: int, name: str) -> None:
    fake.devices(1, major, minor)
    assert TARGET.detect() == {"arch": name}
    assert of_device(major, minor) == name
    assert name in ARCHITECTURES


@pytest.mark.usefixtures("nvrtc")
def test_without_a_device(fake: FakeCuda) -> None:
    fake.devices(0)
    assert TARGET.detect() is None
    assert arch_of("cuda") == DEFAULT_ARCH
    assert "no device" in available(Target("cuda")).reason
    fake.devices(1)
    assert available(Target("cuda")).ok
    fake.library.fake_fail(b"cuDeviceGetCount", 100, 0)
    assert TARGET.detect() is None


def test_without_a_driver(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="the CUDA driver was not found"):
        Driver(str(tmp_path / "libcuda.so.1"))


def test_a_driver_that_is_too_old(fake: FakeCuda, tmp_path: Path) -> None:
    del tmp_path
    old = Driver(str(fake.path))
    old._library = ctypes.CDLL(None)
    with use_driver(old):
        assert "the CUDA driver has no cuInit: it is too old" in why_unusable()


def test_a_newer_chip_is_used_like_the_best_known_one() -> None:
    target = TARGET.resolve(Target("cuda", {"arch": "sm_125"}))
    with pytest.warns(TilecWarning, match="sm_125 is newer .* it is used like sm_121"):
        table = target_capabilities(target)
    assert table.features["arch"] == "sm_121"
    ctx = PassContext(target=target)
    note_target(Module({}), ctx)
    [remark] = ctx.remarks
    assert "newer" in remark.message
    quiet = PassContext(target=TARGET.resolve(Target("cuda", {"arch": "sm_80"})))
    note_target(Module({}), quiet)
    assert quiet.remarks == ()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tables_are_consistent(name: str) -> None:
    arch = Arch.parse(name)
    table = capabilities(arch)
    engines = {engine.name for engine in table.copy_engines}
    assert table.lanes == 32
    assert ("cp_async" in engines) == (arch.number >= 80)
    assert ("bulk" in engines) == (arch.number >= 90)
    assert ("transaction" in table.barriers) == ("bulk" in engines)
    assert table.memories["shared"].bytes == CHIPS[arch.number].block_shared
    assert CHIPS[arch.number].block_shared <= CHIPS[arch.number].shared
    assert table.memories["global"].access_bytes[-1] == (32 if arch.number >= 100 else 16)
    assert table.supports("copy", "bfloat16")
    assert not table.supports("copy", "float4_e2m1fn")


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (128, 32, 0, 16),  # resident threads
        (32, 16, 0, 32),  # resident blocks
        (128, 168, 0, 3),  # registers
        (384, 168, 0, 1),
        (128, 255, 0, 2),
        (128, 32, 100 * 1024, 2),  # shared memory
        (128, 32, 227 * 1024, 1),
        (1024, 64, 0, 1),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, blocks: int) -> None:
    assert occupancy(Arch(90, "a"), threads, registers, shared) == blocks
