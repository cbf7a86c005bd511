"""Operators of scalar expressions."""

from __future__ import annotations

from enum import StrEnum


class BinOp(StrEnum):
    """Binary operators. ``div`` is float division; ``floordiv``/``floormod`` follow Python."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    FLOORDIV = "floordiv"
    FLOORMOD = "floormod"
    TRUNCDIV = "truncdiv"
    TRUNCMOD = "truncmod"
    MIN = "min"
    MAX = "max"
    POW = "pow"
    SHL = "shl"
    SHR = "shr"
    BITAND = "bitand"
    BITOR = "bitor"
    BITXOR = "bitxor"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    AND = "and"
    OR = "or"


class UnOp(StrEnum):
    """Unary operators."""

    NEG = "neg"
    BITNOT = "bitnot"
    NOT = "not"


COMPARISONS = frozenset({BinOp.EQ, BinOp.NE, BinOp.LT, BinOp.LE, BinOp.GT, BinOp.GE})
LOGICAL = frozenset({BinOp.AND, BinOp.OR})
BITWISE = frozenset({BinOp.BITAND, BinOp.BITOR, BinOp.BITXOR})
SHIFTS = frozenset({BinOp.SHL, BinOp.SHR})
SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "shl": "<<",
    "shr": ">>", "bitand": "&", "bitor": "|", "bitxor": "^", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip
