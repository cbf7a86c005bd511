"""The matrix instructions of each architecture, with who holds what of their operands.

Fragments as in the PTX ISA: a group of four lanes holds a row of A and of C, or a column of B.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tilec.backend import MatrixAtom
from tilec.layout import Fragment
from tilec_cuda.arch import Arch

WARP = 32


@lru_cache(maxsize=64)
def _rows(rows: int, columns: int, run: int) -> Fragment:
    """A (rows, columns) operand: lane 4 * (i % 8) + ... holds runs of `run` columns of row i.

    The registers of a lane count runs, those of rows 8 to 15 between those of the first and the
    second half of the columns.
    """
    high = rows // 8

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        lane = i % 8 * 4 + j // run % 4
        register = j % run + i // 8 * run + j // (4 * run) * (run * high)
        return lane, register

    return Fragment((rows, columns), place)


@lru_cache(maxsize=64)
def _group(n: int) -> Fragment:
    """The (64, n) result of the instructions of four warps."""

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        lane = i // 16 * 32 + i % 8 * 4 + j // 2 % 4
        return lane, j % 2 + i // 8 % 2 * 2 + j // 8 * 4

    return Fragment((64, n), place)


@lru_cache(maxsize=64)
def _group_rows(columns: int, run: int) -> Fragment:
    """A (64, columns) left operand of these instructions in registers."""

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        lane = i // 16 * 32 + i % 8 * 4 + j // run % 4
        return lane, j % run + i // 8 % 2 * run + j // (4 * run) * (2 * run)

    return Fragment((64, columns), place)


_SHORT = {
    "float16": "f16", "bfloat16": "bf16", "tfloat32": "tf32", "float32": "f32", "float64": "f64",
    "int8": "s8", "uint8": "u8", "int32": "s32",
    "float8_e4m3": "e4m3", "float8_e4m3fn": "e4m3fn", "float8_e5m2": "e5m2",
}  # fmt: skip


def _atom(m: int, n: int, k: int, a: str, b: str, c: str) -> MatrixAtom:
    """An instruction of one warp."""
    # Runs are what one register of 32 bits holds; a float64 has a register pair of its own.
    run = max(32 // _bits(a), 1)
    layouts = (_rows(m, k, run), _rows(n, k, run), _rows(m, n, 2))
    name = f"mma_m{m}n{n}k{k}_{_SHORT[c]}_{_SHORT[a]}_{_SHORT[b]}"
    return MatrixAtom(name, m, n, k, a, b, c, lanes=WARP, layouts=layouts)


def _bits(dtype: str) -> int:
    return {"tfloat32": 32}.get(dtype) or int(
        "".join(c for c in dtype.split("_")[0] if c.isdigit())
    )


@lru_cache(maxsize=32)
def matrix_atoms(arch: str) -> tuple[MatrixAtom, ...]:
    """The atoms of an architecture such as ``sm_80``, best first.

    Not here: forms that the printer's types have no name for (four-bit integers).
    """
    number = Arch.parse(arch).number
    return (*_groups(Arch.parse(arch)), *_warps(number))


def _warps(number: int) -> Iterable[MatrixAtom]:
    if number >= 80:
        for dtype, accumulators in (
            ("float16", ("float32", "float16")),
            ("bfloat16", ("float32",)),
        ):
            for accumulator in accumulators:
                yield _atom(16, 8, 16, dtype, dtype, accumulator)
                if dtype == "bfloat16":
                    yield _atom(16, 8, 8, dtype, dtype, accumulator)
    if number >= 75:
        for accumulator in ("float32", "float16"):
            yield _atom(16, 8, 8, "float16", "float16", accumulator)
    if number >= 80:
        yield _atom(16, 8, 8, "tfloat32", "tfloat32", "float32")
        yield _atom(16, 8, 4, "tfloat32", "tfloat32", "float32")
        yield _atom(8, 8, 4, "float64", "float64", "float64")
    integers = ("int8", "uint8")
    for a in integers:
        for b in integers:
            if number >= 80:
                yield _atom(16, 8, 32, a, b, "int32")
                yield _atom(16, 8, 16, a, b, "int32")
            yield _atom(8, 8, 16, a, b, "int32")
    if number >= 89:
        floats = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")
        for a in floats:
            for b in floats:
                yield _atom(16, 8, 32, a, b, "float32")


GROUP_WIDTHS = (256, 192, 128, 96, 64, 48, 32, 24, 16, 8)
"""Columns of the instructions of four warps that lowerings choose from."""


def _groups(arch: Arch) -> Iterable[MatrixAtom]:
    if not arch.has_wgmma:
        return
    types = (("float16", "float32", 16), ("bfloat16", "float32", 16), ("int8", "int32", 32))
    for dtype, accumulator, k in types:
        for n in GROUP_WIDTHS:
            yield from _group_atoms(n, k, dtype, dtype, accumulator)


def _group_atoms(n: int, k: int, a: str, b: str, c: str) -> Iterable[MatrixAtom]:
    name = f"wgmma_m64n{n}k{k}_{_SHORT[c]}_{_SHORT[a]}_{_SHORT[b]}"
    run = max(32 // _bits(a), 1)
    yield MatrixAtom(
        name, 64, n, k, a, b, c, ("shared", "shared", "local"), 4 * WARP,
        (None, None, _group(n)), asynchronous=True,
    )  # fmt: skip
    yield MatrixAtom(
        f"{name}_ra", 64, n, k, a, b, c, ("local", "shared", "local"), 4 * WARP,
        (_group_rows(k, run), None, _group(n)), asynchronous=True,
    )  # fmt: skip
