"""Every intrinsic compiles on every architecture that has it, and is refused on the others."""

from __future__ import annotations

import random

import pytest
from cuda_programs import ARCHES, check_compiles, source
from intrinsic_cases import cases

from tilec.diagnostics import InternalError
from tilec_cuda.arch import Arch

CASES = {case.name: case for case in cases()}
ALL = [
    (name, arch)
    for name, case in CASES.items()
    for arch in ("sm_75", *ARCHES)
    if case.has(Arch.parse(arch))
]
REFUSED = [
    (name, arch)
    for name, case in CASES.items()
    for arch in ("sm_75", *ARCHES)
    if not case.has(Arch.parse(arch))
]
SAMPLE = random.Random(5).sample(ALL, 60)


@pytest.mark.parametrize(("name", "arch"), SAMPLE)
def test_compiles(name: str, arch: str) -> None:
    check_compiles(CASES[name].make(), arch)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arch"), ALL)
def test_compiles_everywhere(name: str, arch: str) -> None:
    check_compiles(CASES[name].make(), arch)


@pytest.mark.parametrize(
    ("name", "arch"), [(n, a) for n, a in REFUSED if not n.startswith(("mma-", "shfl", "votes"))]
)
def test_what_a_chip_does_not_have_is_not_printed(name: str, arch: str) -> None:
    if name == "barriers":
        return
    with pytest.raises(InternalError):
        source(CASES[name].make(), arch)


@pytest.mark.parametrize("name", sorted(CASES))
def test_equal_programs_give_equal_bytes(name: str) -> None:
    case = CASES[name]
    arch = next(a for a in reversed(ARCHES) if case.has(Arch.parse(a)))
    assert source(case.make(), arch) == source(case.make(), arch)
