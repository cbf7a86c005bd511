"""What a check is: a launch as text, its parameters, and how close the answer has to be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilec import ir
from tilec.arith import evaluate_cast, storage_dtype

Array = np.ndarray[Any, Any]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
_NARROW = ("float8_", "float6_", "float4_")
NARROW_FLOATS = tuple(
    n for n in ir.scalar_names() if n.startswith(("float8_", "float6_", "float4_"))
)
RARE = ("int4", "uint4", "tfloat32", *NARROW_FLOATS)
COMMON = ("bool", *INTEGERS, *FLOATS)
DTYPES = (*COMMON, *RARE)

LENGTHS = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 61, 64, 67, 100, 127, 128, 129, 251, 256)
"""Extents of one dimension: none, one, primes, powers of two and their neighbours."""


class Param(NamedTuple):
    """A parameter of a launch.

    Attributes:
        name: capital letters (not ``T``), used in the launch's text.
        shape: ints or names of run-time sizes; None for a scalar.
        dtype: of the elements.
        data: how values are made, a key of `DATA`.
        strides: element strides (ints or names), or None for a contiguous tensor.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str
    data: str = "small"
    strides: tuple[int | str, ...] | None = None


class Check(NamedTuple):
    """One thing that a target has to do right.

    Attributes:
        op: row of the report.
        dtype: column of the report.
        params: every one is compared afterwards, inputs too.
        body: the launch as text, not indented, with `params` and run-time sizes as names.
        kind: ``exact`` (same bits; any NaN is as good as another), ``equal`` (also -0.0 for 0.0),
            ``math`` (a few units in the last place) or ``sum`` (rounding of a sum in any order).
        sizes: of the names in shapes and strides; one call for each entry.
        note: what is special about it, for messages.
    """

    op: str
    dtype: str
    params: tuple[Param, ...]
    body: str
    kind: str = "exact"
    sizes: tuple[Mapping[str, int], ...] = ({},)
    note: str = ""

    def __str__(self) -> str:
        return f"{self.op} {self.dtype}{': ' + self.note if self.note else ''}"


class Group(NamedTuple):
    """Checks that are compiled together, one launch each.

    Attributes:
        name: unique.
        family: groups of one family are alike; samples take from every family.
        checks: what it consists of.
    """

    name: str
    family: str
    checks: tuple[Check, ...]


# text


def sizes_of(check: Check) -> tuple[str, ...]:
    """The names of run-time sizes, in order of appearance."""
    names: dict[str, None] = {}
    for param in check.params:
        for item in (*(param.shape or ()), *(param.strides or ())):
            if isinstance(item, str):
                names[item] = None
    return tuple(names)


def _renamed(text: str, names: Iterable[str], number: int) -> str:
    pattern = rf"\b({'|'.join(sorted(names, key=len, reverse=True))})\b"
    return re.sub(pattern, rf"\1_{number}", text)


def _annotation(param: Param) -> str:
    if param.shape is None:
        return f'T.dtype("{param.dtype}")'
    shape = _tuple(param.shape)
    if param.strides is not None:
        return f'T.StridedTensor({shape}, {_tuple(param.strides)}, "{param.dtype}")'
    return f'T.Tensor({shape}, "{param.dtype}")'


def _tuple(items: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"


def program(checks: Sequence[Check]) -> str:
    """One function with the launches of all checks, as text."""
    head, params, bodies = [], [], []
    for number, check in enumerate(checks):
        dynamic = sizes_of(check)
        names = [p.name for p in check.params] + list(dynamic)
        head += [_renamed(f'{d} = T.dynamic("{d}")', [d], number) for d in dynamic]
        params += [_renamed(f"{p.name}: {_annotation(p)}", names, number) for p in check.params]
        bodies += _renamed(check.body.strip("\n"), names, number).split("\n")
    lines = [*head, "@T.prim_func", "def main(", *(f"    {p}," for p in params), "):"]
    return "\n".join([*lines, *("    " + line for line in bodies)]) + "\n"


# data


def _as_dtype(values: Array, dtype: str) -> Array:
    source = ir.DType.of(values.dtype)
    return np.asarray(evaluate_cast(values, source, ir.DType(dtype)))


def _small(rng: np.random.Generator, count: int, dtype: ir.DType) -> Array:
    """Small integers: sums of products of them are exact in any order."""
    low = 0 if dtype.is_uint or dtype.is_bool else -4
    return rng.integers(low, 2 if dtype.is_bool else 5, count)


def _edge(rng: np.random.Generator, count: int, dtype: ir.DType) -> Array:
    """Everything: extreme and special values, small ones, and random bits."""
    if dtype.is_float:
        special = np.array(
            [
                0.0,
                -0.0,
                1.0,
                -1.0,
                0.5,
                -2.5,
                3.0,
                np.inf,
                -np.inf,
                np.nan,
                65504.0,
                1e-7,
                -1e-40,
                3e38,
                1e300,
                5e-324,
                2.0**31,
                -(2.0**63),
                255.5,
            ]
        )
        wide = rng.standard_normal(count) * 2.0 ** rng.integers(-20, 20, count)
        return np.where(rng.random(count) < 0.4, rng.choice(special, count), wide)
    low, high = dtype.int_range
    special = np.array([low, high, 0, 1, low + 1, high - 1, high // 2, 2, 3, min(7, high)], object)
    bits = dtype.bits if not dtype.is_bool else 1
    wide = (
        rng.integers(0, 2**bits, count, dtype=np.uint64, endpoint=False)
        if bits < 64
        else (rng.integers(0, 2**64, count, dtype=np.uint64))
    )
    chosen = rng.choice(special, count)
    take = rng.random(count) < 0.4
    mixed = [int(c) if t else int(w) + low for c, t, w in zip(chosen, take, wide, strict=True)]
    return np.array(mixed, np.int64 if low < 0 else np.uint64)


def _unit(rng: np.random.Generator, count: int, dtype: ir.DType) -> Array:
    """Real numbers between -1 and 1 (0 and 1 for unsigned types)."""
    del dtype
    return rng.uniform(-1.0, 1.0, count)


def _real(rng: np.random.Generator, count: int, dtype: ir.DType) -> Array:
    """Arguments for elementary functions: moderate numbers of both signs, and special values."""
    del dtype
    special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 10.0, np.inf, -np.inf, np.nan, -0.999])
    wide = rng.standard_normal(count) * 2.0 ** rng.integers(-8, 4, count)
    return np.where(rng.random(count) < 0.25, rng.choice(special, count), wide)


def _shift(rng: np.random.Generator, count: int, dtype: ir.DType) -> Array:
    """Shift counts, some of them out of range."""
    return rng.integers(0 if dtype.is_uint else -2, dtype.bits + 3, count)


def _mark(rng: np.random.Generator, count: int, dtype: ir.DType) -> Array:
    """Old contents of an output: what is not written must stay."""
    return rng.integers(0, 2 if dtype.is_bool else 7, count)


DATA = {
    "small": _small,
    "edge": _edge,
    "unit": _unit,
    "real": _real,
    "shift": _shift,
    "mark": _mark,
}


def resolve(items: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Extents or strides with the names replaced."""
    return tuple(sizes[i] if isinstance(i, str) else i for i in items)


def values(param: Param, sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    """An argument: a number, or the flat storage of a tensor."""
    dtype = ir.DType(param.dtype)
    if param.shape is None:
        made = _as_dtype(DATA[param.data](rng, 1, dtype), param.dtype)
        return made.reshape(-1)[0].item()
    shape = resolve(param.shape, sizes)
    count = int(np.prod(shape))
    if param.strides is not None and count:
        strides = resolve(param.strides, sizes)
        count = 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
    made = _as_dtype(DATA[param.data](rng, count, dtype), param.dtype)
    return made.astype(storage_dtype(dtype))
