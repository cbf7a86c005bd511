"""Every kernel of the zoo against its reference, on any target (``--zoo-target``)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilec.engine import create_context

from . import ENTRIES, small
from .arrays import Draw, Numpy, Torch
from .registry import Config, Entry
from .runner import check, compare, interpret, unsupported

SAMPLE = 12
"""How many of the small configurations every run has; the others are slow."""

CASES = small()
WAITING = {"float8_e4m3fn", "float8_e5m2"}
"""Dtypes that target c does not have yet."""


def _cases(seed: int) -> list[object]:
    chosen = set(random.Random(seed).sample([ident for ident, *_ in CASES], SAMPLE))
    return [
        pytest.param(entry, config, id=ident, marks=() if ident in chosen else pytest.mark.slow)
        for ident, entry, config in CASES
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "config" in metafunc.fixturenames:
        seed = (test_small, test_interpreter, test_thread_form).index(metafunc.function)
        metafunc.parametrize("entry, config", _cases(seed))


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes are verified without running programs; the results are compared anyway."""
    monkeypatch.setenv("TILEC_VERIFY_STEPS", "0")


@pytest.fixture
def zoo_target(request: pytest.FixtureRequest) -> str:
    """What the kernels are compiled for."""
    return str(request.config.getoption("--zoo-target"))


def test_small(entry: Entry, config: Config, zoo_target: str) -> None:
    """The result on the target is NumPy's."""
    reason = unsupported(entry.make(config), zoo_target)
    if reason is not None:
        assert zoo_target != "c" or config.dtype in WAITING, reason
        pytest.skip(reason)
    check(entry, config, zoo_target)


def test_interpreter(entry: Entry, config: Config) -> None:
    """The program means what its reference says, and makes no mistake in between."""
    interpret(entry, config)


def test_thread_form(entry: Entry, config: Config) -> None:
    """What each lane does gives the same, and no lane makes a mistake."""
    check(entry, config, {"kind": "simt", "check": True})


@pytest.mark.gpu
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_large(entry: Entry, zoo_target: str) -> None:
    """Realistic sizes against torch in float64 on the target's device."""
    config = entry.config(entry.large)
    func = entry.make(config)
    context = create_context(func, zoo_target)
    device = context.module.runtime.torch_device
    if device == "cpu":
        pytest.skip(f"target {zoo_target} has no device; try --zoo-target=cuda")
    torch = pytest.importorskip("torch")
    if not getattr(torch, device).is_available():
        pytest.skip(f"torch has no device {device}")
    reason = unsupported(func, zoo_target)
    if reason is not None:
        pytest.skip(reason)
    check(entry, config, zoo_target)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_reference_in_torch(entry: Entry) -> None:
    """Both forms of a reference agree; the one in torch checks the large sizes."""
    pytest.importorskip("torch")
    config = entry.config(entry.small[0])
    arrays = [np.array(a) for a in entry.inputs(config, Draw(3))]
    before = [a.copy() for a in arrays]
    xp = Torch("cpu")
    wanted = entry.reference(config, Numpy(), *arrays)
    got = entry.reference(config, xp, *(xp.tensor(a) for a in arrays))
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    compare(entry, config, Numpy(), [np.asarray(t) for t in got], wanted)


def test_registry() -> None:
    """Enough of everything, and configurations that exist."""
    assert len(ENTRIES) >= 60
    for entry in ENTRIES.values():
        entry.config(entry.large)
        assert entry.small
    assert sum(bool(entry.call_sizes) for entry in ENTRIES.values()) >= len(ENTRIES) // 5


def test_a_wrong_result_is_found() -> None:
    """The comparison sees one wrong element, a NaN, and an error of the whole."""
    entry = ENTRIES["gemm"]
    config = entry.config({"M": 40, "N": 40, "K": 8, "dtype": "float32"})
    arrays = entry.inputs(config, Draw())
    expected = entry.reference(config, Numpy(), *arrays)
    good = expected[0].astype(np.float32)
    compare(entry, config, Numpy(), [good], expected)
    for change in ("one", "nan", "all"):
        bad = good.copy()
        if change == "one":
            bad[3, 5] += 1e-3
        elif change == "nan":
            bad[3, 5] = np.nan
        else:
            bad *= np.float32(1 + 1e-4)
        with pytest.raises(AssertionError, match="off by"):
            compare(entry, config, Numpy(), [bad], expected)


def test_misspelled_configuration() -> None:
    with pytest.raises(TypeError, match="blok_M"):
        ENTRIES["gemm"].config({"M": 1, "N": 1, "K": 1, "dtype": "float32", "blok_M": 3})
