"""Runs one program by the interpreter and by a target, and says where they differ."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilec
import tilec.language as T
from tilec import ir
from tilec.arith import storage_dtype
from tilec.interp import run as interpret

SENTINEL_BYTES = 64
_GUARD = 0xA5


class Difference(NamedTuple):
    """How a program behaves differently from what it means.

    Attributes:
        kind: ``script`` (printing loses something), ``value``, ``memory`` (written outside of an
            argument), ``refused`` (one side raises) or ``crash``.
        detail: one or more lines for people.
    """

    kind: str
    detail: str


def random_arguments(func: ir.PrimFunc, seed: int) -> list[Any]:
    """Arguments for every parameter: small integers in the parameter's dtype."""
    rng = np.random.default_rng(seed)
    result: list[Any] = []
    for param in func.params:
        if isinstance(param, ir.Var):
            result.append(int(rng.integers(0, 5)))
            continue
        low = 0 if param.dtype.is_uint or param.dtype.is_bool else -9
        high = 2 if param.dtype.is_bool else 10
        shape = tuple(e if isinstance(e, int) else int(rng.integers(1, 20)) for e in param.shape)
        result.append(rng.integers(low, high, shape).astype(storage_dtype(param.dtype)))
    return result


class Guarded:
    """A copy of an array between two runs of bytes that nobody may write."""

    def __init__(self, array: Any) -> None:
        raw = np.full(array.nbytes + 2 * SENTINEL_BYTES, _GUARD, np.uint8)
        inner = raw[SENTINEL_BYTES : SENTINEL_BYTES + array.nbytes]
        self._raw = raw
        self._size = array.nbytes
        self.array = inner.view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def intact(self) -> bool:
        """Whether the bytes around the array are as they were."""
        after = self._raw[SENTINEL_BYTES + self._size :]
        return bool((self._raw[:SENTINEL_BYTES] == _GUARD).all() and (after == _GUARD).all())


def compare(text: str, target: str, seed: int = 0) -> Difference | None:
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
    arguments = random_arguments(func, seed)
    wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    interpret(func, *wanted, check=True)
    guarded = [Guarded(a) if isinstance(a, np.ndarray) else a for a in arguments]
    try:
        kernel = tilec.compile(func, target=target)
        kernel(*[g.array if isinstance(g, Guarded) else g for g in guarded])
    except tilec.TilecError as error:
        return Difference("refused", str(error))
    for param, want, got in zip(func.params, wanted, guarded, strict=True):
        if not isinstance(got, Guarded):
            continue
        if not got.intact():
            return Difference("memory", f"something was written beside {param.name}")
        place = first_difference(want, got.array)
        if place is not None:
            return Difference(
                "value",
                f"{param.name}{list(place)}: the program means {want[place]}, "
                f"target {target} gives {got.array[place]}",
            )
    return None


def first_difference(a: Any, b: Any) -> tuple[int, ...] | None:
    """The first index at which two arrays differ (NaN equals NaN, 0.0 equals -0.0)."""
    same = a == b
    if a.dtype.kind not in "iub":
        same = same | ((a != a) & (b != b))
    wrong = np.argwhere(~np.asarray(same))
    return tuple(int(i) for i in wrong[0]) if len(wrong) else None
