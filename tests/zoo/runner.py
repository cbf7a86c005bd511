"""Runs a kernel of the zoo on some target and compares it with its reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilec
from tilec import ir
from tilec.engine import create_context
from tilec.jit.kernel import JITKernel

from .arrays import Draw, Numpy, Torch, errors
from .registry import Config, Entry

WORST = 16
"""How many times the limit of the whole a single element may be off."""


def unsupported(func: ir.PrimFunc, target: object) -> str | None:
    """Why a target refuses the dtypes of a kernel's parameters; None where it does not."""
    table = create_context(func, target).capabilities
    for param in func.params:
        reason = table.refusal("parameter", str(param.dtype))
        if reason is not None:
            return reason
    return None


def compiled(entry: Entry, config: Config, target: object) -> JITKernel:
    """The kernel for a target."""
    func = entry.make(config)
    outputs = None if "out_idx" in func.attrs else list(entry.out)
    return tilec.compile(func, out_idx=outputs or None, target=target)


def as_list(result: Any) -> list[Any]:
    """The outputs of a kernel, however many."""
    if result is None:
        return []
    return list(result) if isinstance(result, (list, tuple)) else [result]


def compare(
    entry: Entry,
    config: Config,
    xp: Numpy | Torch,
    results: Sequence[Any],
    expected: Sequence[Any],
) -> None:
    """Fail where results are further from the expected values than the entry allows."""
    assert len(results) == len(expected), f"{len(results)} results, {len(expected)} expected"
    for number, (actual, wanted) in enumerate(zip(results, expected, strict=True)):
        dtype = str(actual.dtype).removeprefix("torch.")
        limit = entry.limit(config, dtype)
        whole, worst = errors(xp, actual, wanted)
        close = whole <= limit and worst <= WORST * limit  # False for NaN
        assert close, (
            f"{entry.name} {vars(config)}: result {number} ({dtype}) is off by {whole:.2e}, "
            f"its worst element by {worst:.2e}; limit {limit:.0e}"
        )


def check(entry: Entry, config: Config, target: object, seed: int = 0) -> JITKernel:
    """Compile, run and compare; the kernel for whoever wants to look further."""
    kernel = compiled(entry, config, target)
    device = kernel.context.module.runtime.torch_device
    arrays = entry.inputs(config, Draw(seed))
    if device == "cpu":
        xp: Numpy | Torch = Numpy()
        arguments: list[Any] = [np.array(a) for a in arrays]
    else:
        xp = Torch(device)
        arguments = [xp.tensor(a) for a in arrays]
    expected = entry.reference(config, xp, *arguments)
    outputs = as_list(kernel(*arguments))
    compare(entry, config, xp, [*outputs, *(arguments[i] for i in entry.updates)], expected)
    return kernel


def interpret(entry: Entry, config: Config, seed: int = 0) -> None:
    """The same in the reference interpreter, which also looks for mistakes of the program."""
    func = entry.make(config)
    if "out_idx" not in func.attrs:
        count = len(func.params)
        func = func.with_attr("out_idx", tuple(sorted(i % count for i in entry.out)))
    arguments = [np.array(a) for a in entry.inputs(config, Draw(seed))]
    expected = entry.reference(config, Numpy(), *arguments)
    from tilec.interp import run  # noqa: PLC0415 - a debugger, loaded where it is used

    outputs = as_list(run(func, *arguments, check=True))
    compare(entry, config, Numpy(), [*outputs, *(arguments[i] for i in entry.updates)], expected)
