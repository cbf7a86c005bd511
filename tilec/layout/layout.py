"""Layouts: where each element of a tile is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilec.diagnostics import ShapeError
from tilec.ir import Const, Expr, Var, caller_span, shape_text, substitute, to_text
from tilec.layout.closed_form import closed_form
from tilec.layout.maps import (
    Array,
    apply_exprs,
    call_map,
    flat_index,
    frozen,
    index_vars,
    normal_shape,
    simplified,
    tabulate,
    unflatten,
)


class BankModel(NamedTuple):
    """A memory of interleaved banks; one word per bank is served at a time.

    Attributes:
        banks: number of banks.
        width: bytes of one word.
    """

    banks: int
    width: int


class Layout:
    """``T.Layout(shape, forward_fn)``: a map from logical indices to physical ones.

    The symbolic form is `variables` and `exprs`; the table, made on demand and cached, answers
    every question exactly, for any shape. Immutable; equal if the symbolic forms are.

    Args:
        shape: logical extents, positive constants.
        forward_fn: from one index per dimension to an index or a tuple of them.

    Raises:
        ShapeError: the function does not fit the shape.
    """

    __slots__ = ("_canonical", "_table", "exprs", "input_shape", "variables")

    input_shape: tuple[int, ...]
    variables: tuple[Var, ...]
    exprs: tuple[Expr, ...]

    def __init__(self, shape: Any, forward_fn: Callable[..., Any]) -> None:
        extents = normal_shape(shape, "a layout")
        variables = index_vars(len(extents))
        self._set(extents, variables, call_map(forward_fn, variables, "T.Layout"))

    def _set(
        self, shape: tuple[int, ...], variables: tuple[Var, ...], exprs: Sequence[Expr]
    ) -> None:
        self.input_shape = shape
        self.variables = variables
        self.exprs = simplified(exprs, variables, shape)
        self._table: Array | None = None
        self._canonical: str | None = None

    @classmethod
    def from_exprs(
        cls, shape: tuple[int, ...], variables: tuple[Var, ...], exprs: Sequence[Expr]
    ) -> Layout:
        """A layout with this symbolic form."""
        self = cls.__new__(cls)
        self._set(shape, variables, exprs)
        return self

    # Table

    @property
    def table(self) -> Array:
        """Physical indices, int64, of shape ``(*input_shape, len(output_shape))``; read-only."""
        if self._table is None:
            columns = [tabulate(e, self.variables, self.input_shape) for e in self.exprs]
            table = np.stack(columns, axis=-1)
            if table.min() < 0:
                raise ShapeError(
                    f"the layout {self!r} has the negative physical index {int(table.min())}",
                    span=caller_span(),
                )
            self._table = frozen(table)
        return self._table

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The smallest box around all physical indices."""
        rank = len(self.input_shape)
        return tuple(int(e) + 1 for e in self.table.max(axis=tuple(range(rank))))

    @property
    def size(self) -> int:
        """Number of storage elements: the size of the output box."""
        return int(np.prod(self.output_shape, dtype=np.int64))

    @property
    def offsets(self) -> Array:
        """Row-major offsets in the output box, of shape `input_shape`."""
        total = np.zeros(self.input_shape, np.int64)
        for axis, extent in enumerate(self.output_shape):
            total = total * extent + self.table[..., axis]
        return total

    @property
    def is_injective(self) -> bool:
        """Whether different elements have different places."""
        offsets = self.offsets.ravel()
        return len(np.unique(offsets)) == len(offsets)

    @property
    def is_bijective(self) -> bool:
        """Whether, beyond that, every place of the output box is used."""
        return self.is_injective and self.offsets.size == self.size

    def is_equal(self, other: object) -> bool:
        """Whether both map every index to the same place, however that is written."""
        return (
            isinstance(other, Layout)
            and self.input_shape == other.input_shape
            and np.array_equal(self.table, other.table)
        )

    def contains(self, other: Layout) -> bool:
        """Whether `other` is this layout on a smaller shape."""
        if len(self.input_shape) != len(other.input_shape):
            return False
        if any(a < b for a, b in zip(self.input_shape, other.input_shape, strict=True)):
            return False
        part = self.table[tuple(slice(e) for e in other.input_shape)]
        return np.array_equal(part, other.table)

    @property
    def inverse_table(self) -> Array:
        """For every place of the output box the row-major number of its element, or -1.

        Raises:
            ShapeError: two elements share a place.
        """
        if not self.is_injective:
            raise ShapeError(f"the layout {self!r} is not injective", span=caller_span())
        result = np.full(self.size, -1, np.int64)
        result[self.offsets.ravel()] = np.arange(self.offsets.size)
        return frozen(result.reshape(self.output_shape))

    def vector_width(self, axis: int = -1) -> int:
        """How many elements, consecutive along `axis`, are one aligned run of storage.

        The largest divisor w of the extent such that every group of w indices that starts at a
        multiple of w has consecutive offsets that start at a multiple of w.
        """
        extent = self.input_shape[axis]
        rows = np.moveaxis(self.offsets, axis, -1).reshape(-1, extent)
        for width in range(extent, 1, -1):
            if extent % width == 0:
                groups = rows.reshape(-1, width)
                aligned = np.all(groups[:, 0] % width == 0)
                if aligned and np.array_equal(groups, groups[:, :1] + np.arange(width)):
                    return width
        return 1

    def bank_conflicts(
        self, model: BankModel, lanes: Sequence[Any], element_bytes: int, vector: int = 1
    ) -> int:
        """Extra steps that one access by many lanes at once costs: 0 is free of conflicts.

        Args:
            model: the memory.
            lanes: the logical index of each lane, as one integer array per dimension.
            element_bytes: size of an element.
            vector: elements that each lane accesses, consecutive in storage.
        """
        index = np.broadcast_arrays(*(np.asarray(a) for a in lanes))
        first = self.offsets[tuple(a.ravel() for a in index)] * element_bytes
        words = np.arange(0, vector * element_bytes, model.width)
        addresses = np.unique((first[:, None] + words[None, :]) // model.width)
        busiest = int(np.bincount(addresses % model.banks, minlength=model.banks).max())
        # Even a perfect spread needs so many steps for that much data.
        return busiest - -(-len(addresses) // model.banks)

    # Symbolic form

    def map(self, *indices: Any) -> tuple[Any, ...]:
        """Physical indices; ints for ints, expressions otherwise. Takes a sequence as well."""
        if len(indices) == 1 and isinstance(indices[0], (tuple, list)):
            indices = tuple(indices[0])
        if indices and all(isinstance(i, (int, np.integer)) for i in indices):
            return tuple(int(v) for v in self.table[tuple(int(i) for i in indices)])
        return apply_exprs(self.exprs, self.variables, indices, "a layout")

    __call__ = map
    map_forward_index = map

    @property
    def index(self) -> tuple[Expr, ...]:
        """The physical index as expressions in `variables`."""
        return self.exprs

    def get_input_shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.input_shape

    def get_output_shape(self) -> tuple[int, ...]:
        """The physical shape."""
        return self.output_shape

    def inverse(self) -> Layout:
        """The layout from places to elements, of a bijective layout.

        Raises:
            ShapeError: the layout is not bijective, or its inverse has no closed form (the
                `inverse_table` exists all the same).
        """
        if not self.is_bijective:
            raise ShapeError(f"the layout {self!r} is not bijective", span=caller_span())
        shape = self.output_shape
        variables = index_vars(len(shape))
        expr = closed_form(self.inverse_table, flat_index(variables, shape))
        if expr is None:
            raise ShapeError(f"the inverse of {self!r} has no closed form", span=caller_span())
        return Layout.from_exprs(shape, variables, unflatten(expr, self.input_shape))

    def compose(self, then: Layout) -> Layout:
        """First this layout, then `then` on its physical indices."""
        if len(then.input_shape) != len(self.exprs) or any(
            a < b for a, b in zip(then.input_shape, self.output_shape, strict=True)
        ):
            raise ShapeError(
                f"cannot compose a layout onto {shape_text(self.output_shape)} with one of "
                f"{shape_text(then.input_shape)}",
                span=caller_span(),
            )
        values = dict(zip(then.variables, self.exprs, strict=True))
        exprs = [substitute(e, values) for e in then.exprs]
        return Layout.from_exprs(self.input_shape, self.variables, exprs)

    def repeat(self, axis: int, times: int) -> Layout:
        """`times` copies one after the other along `axis`, stored one after the other."""
        axis %= len(self.input_shape)
        extent = self.input_shape[axis]
        shape = tuple(e * times if n == axis else e for n, e in enumerate(self.input_shape))
        variables = index_vars(len(shape))
        inner = [v % extent if n == axis else v for n, v in enumerate(variables)]
        exprs = list(_at(self, inner))
        exprs[0] = exprs[0] + variables[axis] // extent * self.output_shape[0]
        return Layout.from_exprs(shape, variables, exprs)

    def expand(self, leading: Any) -> Layout:
        """The layout with further dimensions in front, stored as they are."""
        front = normal_shape(leading, "a layout")
        shape = (*front, *self.input_shape)
        variables = index_vars(len(shape))
        exprs = (*variables[: len(front)], *_at(self, variables[len(front) :]))
        return Layout.from_exprs(shape, variables, exprs)

    def reshape(self, shape: Any) -> Layout:
        """The same storage seen through other logical extents (row-major order is kept)."""
        extents = normal_shape(shape, "a layout")
        if np.prod(extents) != np.prod(self.input_shape):
            raise ShapeError(
                f"a layout of {shape_text(self.input_shape)} cannot be reshaped to "
                f"{shape_text(extents)}: the sizes differ",
                span=caller_span(),
            )
        variables = index_vars(len(extents))
        inner = unflatten(flat_index(variables, extents), self.input_shape)
        return Layout.from_exprs(extents, variables, _at(self, inner))

    # Identity

    def canonical(self) -> str:
        """Text that is equal for equal symbolic forms, in every process."""
        if self._canonical is None:
            names = ", ".join(v.name for v in self.variables)
            body = ", ".join(map(to_text, self.exprs))
            self._canonical = f"{self.input_shape}: ({names}) -> ({body})"
        return self._canonical

    def script(self, printer: Any = None) -> str:
        """Python text that builds the layout again."""
        del printer
        return f"T.Layout({list(self.input_shape)}, {lambda_text(self.variables, self.exprs)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __repr__(self) -> str:
        return f"Layout{self.canonical()}"


def _at(layout: Layout, indices: Sequence[Any]) -> tuple[Expr, ...]:
    values = dict(zip(layout.variables, indices, strict=True))
    return tuple(substitute(e, values) for e in layout.exprs)


def lambda_text(variables: Sequence[Var], exprs: Sequence[Expr]) -> str:
    """``lambda i, j: (...)`` as text."""
    body = ", ".join(str(e.value) if isinstance(e, Const) else to_text(e) for e in exprs)
    return f"lambda {', '.join(v.name for v in variables)}: ({body}{',' * (len(exprs) == 1)})"
