"""Every compilation in the tests is verified after each pass, small kernels by executing them.

Recipes and examples run by the C backend and by the reference interpreter, which also looks for
undefined values, accesses outside of buffers and races.
"""

import os
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ.setdefault("TILEC_VERIFY", "1")
os.environ.setdefault("TILEC_VERIFY_STEPS", "12000")

TWICE = ("recipes", "examples")
TARGETS = [
    pytest.param("c", id="c"),
    pytest.param({"kind": "interpret", "check": True}, id="interpret"),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of single folders; pytest wants them here, whatever it is asked to collect."""
    parser.addoption("--zoo-target", default="c", help="target of tests/zoo: c, simt, cuda, ...")
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/errors/**/*.err from what the compiler says now",
    )


@pytest.fixture(autouse=True)
def default_target(request: pytest.FixtureRequest) -> Iterator[object]:
    """What kernels are compiled for where nothing else is said."""
    target = getattr(request, "param", None)
    if target is None:
        yield None
        return
    from tilec.options import options

    with options(target=target):
        yield target


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Twice what runs kernels on the default target."""
    if metafunc.definition.path.parent.name in TWICE and _runs_kernels(metafunc.function, set()):
        metafunc.parametrize("default_target", TARGETS, indirect=True)


def _runs_kernels(function: Callable[..., Any], seen: set[str]) -> bool:
    """Whether a test calls its module's `run` or `example`, itself or through a helper."""
    for name in _names(function.__code__) - seen:
        seen.add(name)
        helper = function.__globals__.get(name)
        if isinstance(helper, types.FunctionType) and (
            name in ("run", "example") or _runs_kernels(helper, seen)
        ):
            return True
    return False


def _names(code: types.CodeType) -> set[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))
