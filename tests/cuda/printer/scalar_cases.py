"""Every scalar operator, function and conversion, with what it has to give."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from cuda_programs import (
    BINARY,
    BINARY_CALLS,
    FLOATS,
    MORE_FLOATS,
    SCALARS,
    UNARY_CALLS,
    Program,
    assert_same,
    binary_allowed,
    edge_values,
    make_binary,
    pairs,
    result_type,
    storage,
)

from tilec import ir
from tilec.arith import evaluate_binary, evaluate_call, evaluate_cast, evaluate_unary, value_dtype
from tilec.ir import BinOp, DType, UnOp

ULPS = 4
_EXACT_CALLS = {"floor", "ceil", "trunc", "nearbyint", "round", "abs", "isnan", "isinf", "isfinite",
                "sqrt", "copysign", "fmod"}  # fmt: skip
_ALL = (*SCALARS, *MORE_FLOATS)


class Case(NamedTuple):
    """One expression: how it is made, its dtype, and what it gives for arrays of values."""

    what: str
    make: Callable[..., Any]
    output: str
    expected: Callable[..., Any]
    ulps: int = 0


def rng_for(*key: str) -> np.random.Generator:
    """The same numbers in every process."""
    return np.random.default_rng(zlib.crc32(" ".join(key).encode()))


def values(stored: Any, dtype: str) -> Any:
    """Stored elements as values."""
    with np.errstate(all="ignore"):
        return stored.astype(value_dtype(DType(dtype)))


def binary_cases(dtype: str) -> list[Case]:
    """All binary operators of a type."""
    kind, found = DType(dtype), []
    for op in BINARY:
        if not binary_allowed(op, dtype):
            continue
        if op is BinOp.POW and dtype == "float8_e8m0fnu":
            continue  # its numbers reach down to where float32, in which it computes, is zero
        loose = ULPS if op is BinOp.POW and kind.is_float else 0

        def expected(a: Any, b: Any, op: BinOp = op) -> Any:
            if op in ir.LOGICAL:
                a, b = a != 0, b != 0
                return evaluate_binary(op, a, b, DType("bool"))
            return evaluate_binary(op, a, b, kind)

        output = result_type(op, dtype)
        found.append(Case(str(op), make_binary(op), output, expected, loose))
    if kind.is_float and dtype != "float8_e8m0fnu":
        for name in BINARY_CALLS:
            loose = 0 if name in _EXACT_CALLS else ULPS
            found.append(_call(name, kind, dtype, loose))
    return found


def _call(name: str, kind: DType, output: str, ulps: int) -> Case:
    def make(*args: Any) -> ir.Expr:
        return ir.Call(name, args, DType(output))

    def expected(*args: Any) -> Any:
        return evaluate_call(name, args, DType(output), kind)

    return Case(name, make, output, expected, ulps)


def unary_cases(dtype: str) -> list[Case]:
    """Unary operators, functions and conversions of a type."""
    kind, found = DType(dtype), []
    for op in UnOp:
        if op is UnOp.NOT:
            found.append(Case(
                "not", lambda a: ir.unary(UnOp.NOT, a), "bool", lambda a: ~(a != 0)
            ))  # fmt: skip
        elif not (op is UnOp.BITNOT and kind.is_float):
            found.append(Case(
                str(op), lambda a, op=op: ir.Unary(op, a, kind), dtype,
                lambda a, op=op: evaluate_unary(op, a, kind),
            ))  # fmt: skip
    for name in UNARY_CALLS:
        predicate = name.startswith("is")
        if kind.is_float or (not kind.is_bool and (name in _EXACT_CALLS - {"sqrt"})):
            output = "bool" if predicate else dtype
            found.append(_call(name, kind, output, 0 if name in _EXACT_CALLS else ULPS))
    for target in _ALL:
        if target != dtype:
            found.append(Case(
                f"cast to {target}", lambda a, t=target: ir.Cast(DType(t), a), target,
                lambda a, t=target: evaluate_cast(a, kind, DType(t)),
            ))  # fmt: skip
    for target in _ALL:
        other = DType(target)
        if other.bits == kind.bits and target != dtype and not (other.is_bool or kind.is_bool):
            found.append(Case(
                f"reinterpret as {target}",
                lambda a, t=other: ir.Call("reinterpret", (a,), t), target,
                lambda a, t=other: evaluate_call("reinterpret", [a], t, kind),
            ))  # fmt: skip
    return found


def programs() -> Iterator[tuple[str, str, int]]:
    """Names of the programs: dtype, "unary" or "binary", and number of operands."""
    for dtype in _ALL:
        yield dtype, "unary", 1
        yield dtype, "binary", 2


def build(dtype: str, what: str) -> tuple[Program, list[Case], list[Any]]:
    """A program, its cases, and its inputs in the storage dtype."""
    rng = rng_for(dtype, what)
    if what == "unary":
        arrays: list[Any] = [edge_values(dtype, rng, 256)]
        if DType(dtype).bits <= 16 and not DType(dtype).is_bool:
            bits = DType(dtype).bits
            arrays = [np.arange(1 << bits, dtype=f"u{bits // 8}").view(storage(dtype))]
        cases = unary_cases(dtype)
    else:
        arrays = list(pairs(dtype, rng))
        cases = binary_cases(dtype)
    made = Program([dtype] * len(arrays), [(c.make, c.output) for c in cases], len(arrays[0]))
    return made, cases, arrays


def check(dtype: str, cases: list[Case], arrays: list[Any], results: list[Any]) -> None:
    """Compare results with the language's semantics."""
    operands = [values(a, dtype) for a in arrays]
    for case, got in zip(cases, results, strict=True):
        with np.errstate(all="ignore"):
            wanted = case.expected(*operands)
            if case.what == "copysign" or case.what.startswith("reinterpret"):
                # Neither the sign of a NaN means anything, nor do its other bits.
                keep = operands[-1] == operands[-1]
                got, wanted = got[keep], np.asarray(wanted)[keep]
                inputs = [a[keep] for a in arrays]
            else:
                inputs = arrays
        assert_same(got, wanted, case.output, f"{case.what} of {dtype}", inputs, case.ulps)


__all__ = ["FLOATS", "build", "check", "programs"]
