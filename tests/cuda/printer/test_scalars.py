"""Scalar operators, functions and conversions of the printed text, run on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
import scalar_cases
from cuda_programs import ARCHES, check_compiles

_NAMES = [f"{dtype}-{what}" for dtype, what, _n in scalar_cases.programs()]


@pytest.mark.parametrize("name", _NAMES)
def test_the_text_means_what_the_language_says(name: str, tmp_path: Path) -> None:
    dtype, _, what = name.rpartition("-")
    program, cases, arrays = scalar_cases.build(dtype, what)
    scalar_cases.check(dtype, cases, arrays, program.on_host(arrays, tmp_path))


def _sample() -> list[tuple[str, str]]:
    """One architecture for each program; with "slow" all of them."""
    return [(name, ARCHES[n % len(ARCHES)]) for n, name in enumerate(_NAMES)]


@pytest.mark.parametrize(("name", "arch"), _sample())
def test_compiles(name: str, arch: str) -> None:
    dtype, _, what = name.rpartition("-")
    program, _cases, _arrays = scalar_cases.build(dtype, what)
    check_compiles(program.module, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", *ARCHES])
@pytest.mark.parametrize("name", _NAMES)
def test_compiles_everywhere(name: str, arch: str) -> None:
    dtype, _, what = name.rpartition("-")
    program, _cases, _arrays = scalar_cases.build(dtype, what)
    check_compiles(program.module, arch)
