"""Finding an expression for a table of integers.

Layouts made of strides over digits (rows, panels, transposes, tiles) and those made of exclusive
ors (swizzles) have one; that is how inverses and inferred register numbers become symbolic again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.ir.dtype import DType
from tilec.ir.expr import Binary, Const, Expr
from tilec.ir.operators import BinOp

INT32 = DType("int32")
Array = np.ndarray[Any, Any]


def closed_form(table: Array, index: Expr) -> Expr | None:
    """An expression in `index` that equals ``table[index]`` for every index, or None."""
    values = table.astype(np.int64).ravel()
    digits = _digits(values)
    if digits is not None:
        return _from_digits(int(values[0]), digits, index)
    return _from_bits(values, index)


def _digits(values: Array) -> list[tuple[int, int, int]] | None:
    """Digits as (period below, radix, weight): ``values[0] + sum(weight * digit)``."""
    size, unit = len(values), 1
    found: list[tuple[int, int, int]] = []
    while unit < size:
        steps = values[::unit] - values[0]
        weight = int(steps[1])
        expected = weight * np.arange(len(steps))
        wrong = np.flatnonzero(steps != expected)
        radix = int(wrong[0]) if len(wrong) else len(steps)
        if unit * radix < size and size % (unit * radix):
            return None
        found.append((unit, radix, weight))
        unit *= radix
    flat = np.arange(size)
    total = np.full(size, values[0])
    for unit, radix, weight in found:
        total = total + flat // unit % radix * weight
    return found if np.array_equal(total, values) else None


def _binary(op: BinOp, a: Expr, b: int | Expr) -> Expr:
    rhs = b if isinstance(b, Expr) else Const(b, a.dtype, span=a.span)
    return Binary(op, a, rhs, a.dtype, span=a.span)


def _from_digits(start: int, digits: list[tuple[int, int, int]], index: Expr) -> Expr:
    result: Expr | None = None
    for n, (unit, radix, weight) in enumerate(digits):
        if weight == 0:
            continue
        digit = index if unit == 1 else _binary(BinOp.FLOORDIV, index, unit)
        if n + 1 < len(digits):
            digit = _binary(BinOp.FLOORMOD, digit, radix)
        part = digit if weight == 1 else _binary(BinOp.MUL, digit, weight)
        result = part if result is None else _binary(BinOp.ADD, result, part)
    if result is None:
        return Const(start, index.dtype, span=index.span)
    return _binary(BinOp.ADD, result, start) if start else result


def _from_bits(values: Array, index: Expr) -> Expr | None:
    """A form linear over single bits: ``values[i ^ j] == values[i] ^ values[j] ^ values[0]``."""
    size = len(values)
    if size & (size - 1) or values.min() < 0:
        return None
    flat = np.arange(size)
    columns = [int(values[1 << bit] ^ values[0]) for bit in range(size.bit_length() - 1)]
    total = np.full(size, values[0])
    for bit, column in enumerate(columns):
        total = total ^ np.where((flat >> bit) & 1, column, 0)
    if not np.array_equal(total, values):
        return None
    # Input bits that move by the same distance are moved together, under one mask.
    masks: dict[int, int] = {}
    for bit, column in enumerate(columns):
        for out in range(column.bit_length()):
            if column >> out & 1:
                masks[out - bit] = masks.get(out - bit, 0) | 1 << bit
    result: Expr | None = None
    for distance, mask in sorted(masks.items(), key=lambda item: (abs(item[0]), item[0])):
        part = index if mask == size - 1 else _binary(BinOp.BITAND, index, mask)
        if distance:
            op = BinOp.SHL if distance > 0 else BinOp.SHR
            part = _binary(op, part, abs(distance))
        result = part if result is None else _binary(BinOp.BITXOR, result, part)
    start = int(values[0])
    if result is None:
        return Const(start, index.dtype, span=index.span)
    return _binary(BinOp.BITXOR, result, start) if start else result
