"""Runs one program by the interpreter and by a target, and says where they differ."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import tilec
import tilec.language as T
from tilec import ir
from tilec.diagnostics import VerifyError
from tilec.engine.driver import create_context
from tilec.interp import run as interpret
from tilec.interp.inputs import Inputs, make_inputs
from tilec.options import options
from tilec.testing.guarded import Guarded

_SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 16, 19)


class Difference(NamedTuple):
    """How a program behaves differently from what it means.

    Attributes:
        kind: ``script`` (printing loses something), ``value``, ``memory`` (written outside of an
            argument), ``refused`` (one side raises) or ``crash``.
        detail: one or more lines for people.
    """

    kind: str
    detail: str


def random_arguments(func: ir.PrimFunc, seed: int) -> Inputs:
    """Arguments for every parameter: small integers, and run-time extents below 20."""
    sizes = random.Random(seed).sample(_SIZES, len(_SIZES))
    return make_inputs(func, seed, sizes=sizes, low=-9, high=10)


def compare(text: str, target: Any, seed: int = 0) -> Difference | None:
    """Run the program that `text` defines on random arguments; None if all agree.

    Args:
        text: defines one prim_func (see `tilec.language.from_script`).
        target: what to compile for.
        seed: of the arguments.

    Raises:
        TilecError: the text does not define a legal program.
    """
    func = T.from_script(text)
    printed = func.script()
    again = T.from_script(printed)
    if not ir.structural_equal(func, again):
        return Difference("script", f"printed:\n{printed}\nprinted again:\n{again.script()}")
    given = random_arguments(func, seed)
    wanted = given.copy()
    interpret(func, *wanted.values, check=True)
    device = create_context(func, target).module.runtime.torch_device
    arguments = [
        value if flat is None else _guarded(param, value, flat, device)
        for param, value, flat in zip(func.params, given.values, given.storage, strict=True)
    ]
    try:
        kernel = tilec.compile(func, target=target)
        kernel(*[a.array if isinstance(a, Guarded) else a for a in arguments])
    except tilec.TilecError as error:
        return Difference("refused", str(error))
    found = _difference(func, wanted, arguments, target)
    if found is not None and found.kind == "value":
        return Difference(found.kind, found.detail + _culprit(func, target))
    return found


def _guarded(param: Any, value: Any, flat: Any, device: str) -> Guarded:
    steps = tuple(s // flat.itemsize for s in value.strides)
    return Guarded(flat, value.shape, steps, str(param.dtype), device)


def _difference(
    func: ir.PrimFunc, wanted: Inputs, arguments: list[Any], target: Any
) -> Difference | None:
    for n, param in enumerate(func.params):
        want, got = wanted.storage[n], arguments[n]
        if want is None:
            continue
        if not got.intact():
            return Difference("memory", f"something was written beside {param.name}")
        place = first_difference(want, got.storage())
        if place is None:
            continue
        at = place[0]
        means, gives = want[place], got.storage()[place]
        where = _index(wanted.values[n], at)
        if where is None:
            return Difference("memory", f"a gap between rows of {param.name} was written")
        return Difference(
            "value",
            f"{param.name}{where}: the program means {means}, target {target} gives {gives}",
        )
    return None


def _index(array: Any, flat: int) -> list[int] | None:
    """The index of an element of flat storage; None in the gaps between rows."""
    place, rest = [], flat
    for extent, stride in zip(array.shape, array.strides, strict=True):
        step = max(stride // array.itemsize, 1)
        at = min(rest // step, extent - 1)
        place.append(at)
        rest -= at * step
    return None if rest else place


def _culprit(func: ir.PrimFunc, target: Any) -> str:
    """Which pass is wrong, if one is."""
    try:
        with options(verify=True, verify_steps=2_000_000):
            tilec.lower(func, target=target)
    except VerifyError as error:
        return f"\n{error.message}"
    except tilec.TilecError:
        return ""
    return "\nall passes keep the meaning on generated arguments"


def first_difference(a: Any, b: Any) -> tuple[int, ...] | None:
    """The first index at which two arrays differ (NaN equals NaN, 0.0 equals -0.0)."""
    same = a == b
    if a.dtype.kind not in "iub":
        same = same | ((a != a) & (b != b))
    wrong = (~same).nonzero()
    return tuple(int(axis[0]) for axis in wrong) if len(wrong[0]) else None
