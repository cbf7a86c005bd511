"""The shared printer of C-like languages.

`ExprPrinter` prints scalar expressions, `CodePrinter` statements; both are base classes whose
hooks a dialect overrides.
"""

from tilec.backend.c_family.expr import ExprPrinter
from tilec.backend.c_family.literals import float_literal, int_literal, round_float
from tilec.backend.c_family.names import KEYWORDS, NameTable, legalize
from tilec.backend.c_family.stmt import CodePrinter
from tilec.backend.c_family.types import SHORT, STORAGE, VALUE, is_small_float, unsupported

__all__ = [
    "KEYWORDS",
    "SHORT",
    "STORAGE",
    "VALUE",
    "CodePrinter",
    "ExprPrinter",
    "NameTable",
    "float_literal",
    "int_literal",
    "is_small_float",
    "legalize",
    "round_float",
    "unsupported",
]
