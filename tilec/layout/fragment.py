"""Fragments: which lane, and which of its registers, holds each element of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilec.diagnostics import OperandError, ShapeError
from tilec.ir import Expr, Var, caller_span, substitute, to_text
from tilec.layout.closed_form import closed_form
from tilec.layout.layout import lambda_text
from tilec.layout.maps import (
    INT32,
    Array,
    apply_exprs,
    call_map,
    flat_index,
    frozen,
    index_vars,
    normal_shape,
    simplified,
    tabulate,
)


class Fragment:
    """``T.Fragment(shape, ...)``: element to (lane, register), perhaps in several copies.

    Args:
        shape: logical extents, positive constants.
        forward_fn: from the indices to ``(lane, register)``.
        forward_thread_fn: from the indices to the lane, where `forward_fn` is not given.
        replicate: number of copies; the functions then may take the copy's number as one more,
            last argument.
        forward_index_fn: from the indices to the register; left out, the elements of a lane are
            numbered in row-major order.

    Raises:
        OperandError: neither or both kinds of function are given.
        ShapeError: a function does not fit the shape.
    """

    __slots__ = (
        "_canonical",
        "_tables",
        "input_shape",
        "register",
        "replica",
        "replicate_extent",
        "thread",
        "variables",
    )  # fmt: skip

    input_shape: tuple[int, ...]
    variables: tuple[Var, ...]
    replica: Var
    replicate_extent: int
    thread: Expr
    register: Expr

    def __init__(
        self,
        shape: Any,
        forward_fn: Callable[..., Any] | None = None,
        forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1,
        forward_index_fn: Callable[..., Any] | None = None,
    ) -> None:
        if (forward_fn is None) is (forward_thread_fn is None):
            raise OperandError(
                "T.Fragment takes either forward_fn or forward_thread_fn", span=caller_span()
            )
        extents = normal_shape(shape, "a fragment")
        (copies,) = normal_shape(replicate, "the replication of a fragment")
        variables, replica = index_vars(len(extents)), Var("rep", INT32)
        register: Expr | None = None
        if forward_fn is not None:
            args = _arguments(forward_fn, variables, replica, copies)
            thread, register = call_map(forward_fn, args, "T.Fragment", 2)
        else:
            assert forward_thread_fn is not None
            args = _arguments(forward_thread_fn, variables, replica, copies)
            (thread,) = call_map(forward_thread_fn, args, "T.Fragment", 1)
        if forward_index_fn is not None:
            args = _arguments(forward_index_fn, variables, replica, copies)
            (register,) = call_map(forward_index_fn, args, "T.Fragment", 1)
        if register is None:
            register = _numbered(extents, copies, variables, replica, thread)
        self._set(extents, variables, replica, copies, thread, register)

    def _set(
        self,
        shape: tuple[int, ...],
        variables: tuple[Var, ...],
        replica: Var,
        copies: int,
        thread: Expr,
        register: Expr,
    ) -> None:
        self.input_shape = shape
        self.variables = variables
        self.replica = replica
        self.replicate_extent = copies
        self.thread, self.register = simplified(
            (thread, register), (*variables, replica), (*shape, copies)
        )
        self._tables: tuple[Array, Array] | None = None
        self._canonical: str | None = None

    @classmethod
    def from_exprs(
        cls,
        shape: tuple[int, ...],
        variables: tuple[Var, ...],
        replica: Var,
        copies: int,
        thread: Expr,
        register: Expr,
    ) -> Fragment:
        """A fragment with this symbolic form."""
        self = cls.__new__(cls)
        self._set(shape, variables, replica, copies, thread, register)
        return self

    # Tables

    def _tabulate(self) -> tuple[Array, Array]:
        if self._tables is None:
            variables = (*self.variables, self.replica)
            extents = (*self.input_shape, self.replicate_extent)
            tables = [tabulate(e, variables, extents) for e in (self.thread, self.register)]
            for table, what in zip(tables, ("lane", "register"), strict=True):
                if table.min() < 0:
                    raise ShapeError(
                        f"the fragment {self!r} has the negative {what} {int(table.min())}",
                        span=caller_span(),
                    )
            self._tables = (frozen(tables[0]), frozen(tables[1]))
        return self._tables

    @property
    def thread_table(self) -> Array:
        """Lanes, int64, of shape ``(*input_shape, replicate_extent)``; read-only."""
        return self._tabulate()[0]

    @property
    def register_table(self) -> Array:
        """Registers, int64, of shape ``(*input_shape, replicate_extent)``; read-only."""
        return self._tabulate()[1]

    @property
    def thread_extent(self) -> int:
        """One more than the highest lane in use."""
        return int(self.thread_table.max()) + 1

    @property
    def register_extent(self) -> int:
        """Registers that a lane needs."""
        return int(self.register_table.max()) + 1

    def get_thread_size(self) -> int:
        """One more than the highest lane in use."""
        return self.thread_extent

    def get_input_shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.input_shape

    def get_output_shape(self) -> tuple[int, ...]:
        """The registers of one lane, as a shape."""
        return (self.register_extent,)

    @property
    def slots(self) -> Array:
        """``lane * register_extent + register`` per element and copy."""
        return self.thread_table * self.register_extent + self.register_table

    @property
    def is_complete(self) -> bool:
        """Whether every element has a place of its own: no two elements share a register."""
        slots = self.slots.reshape(-1, self.replicate_extent)
        owner = np.repeat(np.arange(len(slots)), self.replicate_extent)
        order = np.argsort(slots.ravel(), kind="stable")
        sorted_slots, sorted_owner = slots.ravel()[order], owner[order]
        shared = sorted_slots[1:] == sorted_slots[:-1]
        return not bool(np.any(shared & (sorted_owner[1:] != sorted_owner[:-1])))

    @property
    def is_balanced(self) -> bool:
        """Whether all lanes up to the highest hold equally many elements."""
        used = np.unique(self.slots) // self.register_extent
        counts = np.bincount(used, minlength=self.thread_extent)
        return bool((counts == counts[0]).all())

    def owners(self, *indices: int) -> tuple[int, ...]:
        """The lanes that hold an element, ascending."""
        return tuple(int(t) for t in np.unique(self.thread_table[indices]))

    def is_equal(self, other: object) -> bool:
        """Whether every copy of every element is at the same place."""
        return (
            isinstance(other, Fragment)
            and self.input_shape == other.input_shape
            and np.array_equal(self.thread_table, other.thread_table)
            and np.array_equal(self.register_table, other.register_table)
        )

    def contains(self, other: Fragment) -> bool:
        """Whether whoever holds an element in `other` holds it here, in the same register."""
        if self.input_shape != other.input_shape:
            return False
        width = max(self.register_extent, other.register_extent)
        mine = self.thread_table * width + self.register_table
        needed = other.thread_table * width + other.register_table
        found = (needed[..., :, None] == mine[..., None, :]).any(axis=-1)
        return bool(found.all())

    # Symbolic form

    def map_forward_thread(self, indices: Sequence[Any], rep: Any = 0) -> Any:
        """The lane of copy `rep` of an element; an int for ints."""
        return self._map(self.thread, self.thread_table, indices, rep)

    def map_forward_index(self, indices: Sequence[Any], rep: Any = 0) -> Any:
        """The register of copy `rep` of an element; an int for ints."""
        return self._map(self.register, self.register_table, indices, rep)

    def _map(self, expr: Expr, table: Array, indices: Sequence[Any], rep: Any) -> Any:
        place = (*indices, rep)
        if all(isinstance(i, (int, np.integer)) for i in place):
            return int(table[tuple(int(i) for i in place)])
        return apply_exprs((expr,), (*self.variables, self.replica), place, "a fragment")[0]

    def repeat(self, axis: int, times: int, on_thread: bool = False) -> Fragment:
        """`times` copies along `axis`: in further registers, or in further lanes."""
        axis %= len(self.input_shape)
        extent = self.input_shape[axis]
        shape = tuple(e * times if n == axis else e for n, e in enumerate(self.input_shape))
        variables = index_vars(len(shape))
        inner = {
            v: new % extent if n == axis else new
            for n, (v, new) in enumerate(zip(self.variables, variables, strict=True))
        }
        thread, register = (substitute(e, inner) for e in (self.thread, self.register))
        number = variables[axis] // extent
        if on_thread:
            thread = thread + number * self.thread_extent
        else:
            register = register + number * self.register_extent
        return Fragment.from_exprs(
            shape, variables, self.replica, self.replicate_extent, thread, register
        )

    def replicate(self, times: int) -> Fragment:
        """`times` as many copies, each set in further lanes."""
        copies = self.replicate_extent
        replica = Var("rep", INT32)
        thread, register = (
            substitute(e, {self.replica: replica % copies}) for e in (self.thread, self.register)
        )
        thread = thread + replica // copies * self.thread_extent
        return Fragment.from_exprs(
            self.input_shape, self.variables, replica, copies * times, thread, register
        )

    def condense_rep_var(self) -> Fragment:
        """Without copies that are at the same place as the first."""
        tables = (self.thread_table, self.register_table)
        if all(bool((t == t[..., :1]).all()) for t in tables):
            zero = {self.replica: 0 * self.replica}
            thread, register = (substitute(e, zero) for e in (self.thread, self.register))
            return Fragment.from_exprs(
                self.input_shape, self.variables, self.replica, 1, thread, register
            )
        return self

    def fold(self, axis: int) -> Fragment:
        """The fragment of a reduction along `axis`: whoever held a part holds the result.

        Registers are numbered anew, by the remaining elements in row-major order.
        """
        axis %= len(self.input_shape)
        extent, copies = self.input_shape[axis], self.replicate_extent
        shape = self.input_shape[:axis] + self.input_shape[axis + 1 :] or (1,)
        variables, replica = index_vars(len(shape)), Var("rep", INT32)
        rest: list[Expr] = list(variables if len(self.input_shape) > 1 else ())
        rest.insert(axis, replica // copies)
        values: dict[Var, Any] = dict(zip(self.variables, rest, strict=True))
        values[self.replica] = replica % copies
        thread = substitute(self.thread, values)
        register = _numbered(shape, extent * copies, variables, replica, thread)
        return Fragment.from_exprs(shape, variables, replica, extent * copies, thread, register)

    # Identity

    def canonical(self) -> str:
        """Text that is equal for equal symbolic forms, in every process."""
        if self._canonical is None:
            names = ", ".join(v.name for v in (*self.variables, self.replica))
            body = f"{to_text(self.thread)}, {to_text(self.register)}"
            self._canonical = f"{self.input_shape} x {self.replicate_extent}: ({names}) -> ({body})"
        return self._canonical

    def script(self, printer: Any = None) -> str:
        """Python text that builds the fragment again."""
        del printer
        copies = self.replicate_extent
        variables = (*self.variables, self.replica) if copies > 1 else self.variables
        text = lambda_text(variables, (self.thread, self.register))
        extra = f", replicate={copies}" if copies > 1 else ""
        return f"T.Fragment({list(self.input_shape)}, forward_fn={text}{extra})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fragment) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __repr__(self) -> str:
        return f"Fragment{self.canonical()}"


def _arguments(
    fn: Callable[..., Any], variables: tuple[Var, ...], replica: Var, copies: int
) -> tuple[Var, ...]:
    """The indices, and the copy's number if there are copies and the function takes it."""
    code = getattr(fn, "__code__", None)
    if copies == 1 or code is None:
        return variables
    wanted = code.co_argcount - (1 if hasattr(fn, "__self__") else 0)
    variadic = bool(code.co_flags & 0x04)
    return (*variables, replica) if variadic or wanted > len(variables) else variables


def _numbered(
    shape: tuple[int, ...], copies: int, variables: tuple[Var, ...], replica: Var, thread: Expr
) -> Expr:
    """Registers by counting each lane's elements in row-major order.

    Raises:
        ShapeError: the numbers have no closed form.
    """
    (lane,) = simplified((thread,), (*variables, replica), (*shape, copies))
    lanes = tabulate(lane, (*variables, replica), (*shape, copies)).reshape(-1, copies)
    # A lane that holds several copies of one element needs one register for it.
    elements = np.repeat(np.arange(len(lanes)), copies)
    pairs, position = np.unique(lanes.ravel() * len(lanes) + elements, return_inverse=True)
    owner = pairs // len(lanes)
    start = np.searchsorted(owner, owner)
    numbers = (np.arange(len(pairs)) - start)[position].reshape(lanes.shape)
    if np.array_equal(numbers, np.broadcast_to(numbers[:, :1], numbers.shape)):
        found = closed_form(numbers[:, 0], flat_index(variables, shape))
    else:
        place = flat_index((*variables, replica), (*shape, copies))
        found = closed_form(numbers.ravel(), place)
    if found is None:
        raise ShapeError(
            "the registers of this fragment have no closed form",
            span=caller_span(),
            hint="give forward_index_fn",
        )
    return found
