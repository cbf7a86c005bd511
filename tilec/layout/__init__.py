"""Layouts and fragments: index maps with a symbolic form to emit and a table to reason with."""

from tilec.layout.closed_form import closed_form
from tilec.layout.fragment import Fragment
from tilec.layout.layout import BankModel, Layout
from tilec.layout.standard import (
    column_major,
    make_linear_layout,
    make_swizzled_layout,
    panels,
    panels_size,
    row_major,
    swizzled,
)

__all__ = [
    "BankModel",
    "Fragment",
    "Layout",
    "closed_form",
    "column_major",
    "make_linear_layout",
    "make_swizzled_layout",
    "panels",
    "panels_size",
    "row_major",
    "swizzled",
]
