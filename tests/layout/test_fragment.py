"""Fragments: who holds what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilec.language as T
from tilec.diagnostics import OperandError, ShapeError
from tilec.ir import DType, Var
from tilec.layout import Fragment

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)


def matrix_atom() -> Fragment:
    """8 x 8 over 32 lanes, two neighbours per lane."""
    return Fragment((8, 8), forward_fn=lambda i, j: (i * 4 + j // 2, j % 2))


def test_tables() -> None:
    atom = matrix_atom()
    assert (atom.thread_extent, atom.register_extent) == (32, 2)
    assert atom.is_complete
    assert atom.is_balanced
    assert atom.owners(3, 5) == (14,)
    assert atom.map_forward_thread((3, 5)) == 14
    assert atom.map_forward_index((3, 5)) == 1
    i = Var("x", DType("int32"))
    assert repr(atom.map_forward_thread((i, 0))) == "x * 4"


@SETTINGS
@given(rows=st.integers(1, 12), columns=st.integers(1, 12), lanes=st.integers(1, 16))
def test_round_robin_is_complete_for_any_shape(rows: int, columns: int, lanes: int) -> None:
    f = Fragment(
        (rows, columns),
        forward_fn=lambda i, j: ((i * columns + j) % lanes, (i * columns + j) // lanes),
    )
    assert f.is_complete
    held = np.bincount(f.thread_table.ravel(), minlength=lanes)
    assert held.sum() == rows * columns
    assert f.register_extent == -(-rows * columns // lanes)


@SETTINGS
@given(rows=st.sampled_from([1, 2, 4, 6]), columns=st.sampled_from([2, 4, 8, 12]))
def test_registers_are_counted_where_not_given(rows: int, columns: int) -> None:
    f = Fragment((rows, columns), forward_thread_fn=lambda i, j: j % 2)
    assert f.is_complete
    assert f.register_extent == rows * columns // 2
    order = [f.map_forward_index((i, j)) for i in range(rows) for j in range(0, columns, 2)]
    assert order == list(range(len(order)))


def test_clash() -> None:
    assert not Fragment((8,), forward_fn=lambda i: (i // 2, 0)).is_complete


@SETTINGS
@given(axis=st.integers(0, 1), times=st.integers(1, 3), on_thread=st.booleans())
def test_repeat(axis: int, times: int, on_thread: bool) -> None:
    atom = matrix_atom()
    big = atom.repeat(axis, times, on_thread)
    assert big.is_complete
    assert big.is_balanced
    assert big.thread_extent == (32 * times if on_thread else 32)
    assert big.register_extent == (2 if on_thread else 2 * times)
    part = big.thread_table[:8, :8]
    assert np.array_equal(part, atom.thread_table)


def test_replicas() -> None:
    atom = matrix_atom()
    twice = atom.replicate(2)
    assert twice.is_complete
    assert twice.owners(0, 0) == (0, 32)
    assert twice.contains(twice)
    both = twice.replicate(3)
    assert both.replicate_extent == 6
    assert len(both.owners(1, 1)) == 6
    useless = Fragment((8,), forward_thread_fn=lambda i, rep: i, replicate=4)
    assert useless.condense_rep_var().replicate_extent == 1
    assert twice.condense_rep_var() is twice


def test_containment() -> None:
    atom = matrix_atom()
    everywhere = Fragment((8,), forward_thread_fn=lambda i, rep: rep, replicate=32)
    some = Fragment((8,), forward_fn=lambda i, rep: (rep * 2, i), replicate=16)
    assert everywhere.contains(some)
    assert not some.contains(everywhere)
    assert not everywhere.contains(atom)


def test_reduction_result_is_with_whoever_held_a_part() -> None:
    row_sums = matrix_atom().fold(1)
    assert row_sums.input_shape == (8,)
    assert row_sums.is_complete
    assert row_sums.register_extent == 1
    for i in range(8):
        assert row_sums.owners(i) == tuple(range(4 * i, 4 * i + 4))
    total = row_sums.fold(0)
    assert total.input_shape == (1,)
    assert total.owners(0) == tuple(range(32))


def test_text_runs_again() -> None:
    for f in (matrix_atom(), matrix_atom().replicate(2), matrix_atom().fold(1)):
        again = eval(f.script(), {"T": T})  # own output
        assert again == f
        assert again.is_equal(f)


def test_mistakes() -> None:
    with pytest.raises(OperandError, match="either"):
        Fragment((8,))
    with pytest.raises(OperandError, match="either"):
        Fragment((8,), forward_fn=lambda i: (i, 0), forward_thread_fn=lambda i: i)
    with pytest.raises(ShapeError, match="1 value"):
        Fragment((8,), forward_fn=lambda i: i)
    with pytest.raises(ShapeError, match="positive constant"):
        Fragment((8,), forward_thread_fn=lambda i: i, replicate=0)
    with pytest.raises(ShapeError, match="negative lane"):
        _ = Fragment((8,), forward_thread_fn=lambda i: i - 4).thread_table
