"""Laws of layouts, by enumeration."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilec.language as T
from tilec.diagnostics import ShapeError
from tilec.ir import Buffer, DType, Var, const_value
from tilec.layout import (
    BankModel,
    Layout,
    closed_form,
    column_major,
    make_linear_layout,
    make_swizzled_layout,
    panels,
    panels_size,
    row_major,
    swizzled,
)

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def flat(layout: Layout) -> list[int]:
    return [int(v) for v in layout.offsets.ravel()]


@st.composite
def bijections(draw: st.DrawFn) -> Layout:
    shape = draw(SHAPES)
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return row_major(shape)
    if kind == 1:
        return column_major(shape)
    order = draw(st.permutations(range(len(shape))))
    return Layout(shape, lambda *i: tuple(i[n] for n in order))


@SETTINGS
@given(bijections())
def test_inverse(layout: Layout) -> None:
    assert layout.is_injective
    assert layout.is_bijective
    inverse = layout.inverse()
    shape = layout.input_shape
    for index in itertools.product(*map(range, shape)):
        place = layout.map(*index)
        assert inverse.map(*place) == index
        assert layout.inverse_table[place] == np.ravel_multi_index(index, shape)
    assert layout.compose(inverse).is_equal(Layout(shape, lambda *i: i))


@SETTINGS
@given(bijections(), st.data())
def test_symbolic_form_agrees_with_table(layout: Layout, data: st.DataObject) -> None:
    index = tuple(data.draw(st.integers(0, e - 1)) for e in layout.input_shape)
    variables = [Var(f"v{n}", DType("int32")) for n in range(len(index))]
    exprs = layout.map(*variables)
    assert len(exprs) == len(layout.exprs)
    fixed = Layout(layout.input_shape, lambda *i: layout.map(*i))
    assert fixed.is_equal(layout)
    assert fixed.map(index) == tuple(int(v) for v in layout.table[index])


@SETTINGS
@given(bijections(), st.integers(1, 3), st.integers(0, 2))
def test_repeat(layout: Layout, times: int, axis: int) -> None:
    axis %= len(layout.input_shape)
    big = layout.repeat(axis, times)
    assert big.is_bijective
    assert big.contains(layout)
    assert big.input_shape[axis] == times * layout.input_shape[axis]


@SETTINGS
@given(bijections(), st.integers(1, 4))
def test_expand_and_reshape(layout: Layout, lead: int) -> None:
    wide = layout.expand(lead)
    for n in range(lead):
        assert np.array_equal(wide.table[n][..., 1:], layout.table)
    line = layout.reshape((int(np.prod(layout.input_shape)),))
    assert flat(line) == flat(layout)
    assert line.reshape(layout.input_shape).is_equal(layout)


@pytest.mark.parametrize("shape", [(4, 6), (7, 16), (33, 40)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("width", [1, 4, 16])
def test_panels(shape: tuple[int, int], axis: int, width: int) -> None:
    layout = panels(shape, axis, width)
    matrix = np.arange(shape[0] * shape[1]).reshape(shape)
    packed = np.full(panels_size(shape, axis, width), -1)
    packed[layout.offsets.ravel()] = matrix.ravel()
    by_hand = np.pad(
        matrix if axis else matrix.T, ((0, 0), (0, -matrix.shape[axis] % width)), constant_values=-1
    )
    by_hand = by_hand.reshape(by_hand.shape[0], -1, width).transpose(1, 0, 2)
    assert np.array_equal(packed, by_hand.ravel())


def test_row_pitch() -> None:
    layout = row_major((3, 5), 8)
    assert layout.map(2, 4) == (20,)
    assert layout.is_injective
    assert not layout.is_bijective
    with pytest.raises(ShapeError, match="pitch of 4"):
        row_major((3, 5), 4)


@pytest.mark.parametrize(("columns", "chunks"), [(64, 8), (32, 4), (16, 2), (128, 8)])
def test_swizzles_have_no_conflicts(columns: int, chunks: int) -> None:
    """Eight rows of one column of 16-byte pieces, as a matrix load reads them."""
    model = BankModel(32, 4)
    layout = swizzled((64, columns), 16, chunks)
    assert layout.is_bijective
    assert layout.vector_width() == 8
    plain = row_major((64, columns))
    for column in range(0, columns, 8):
        lanes = (np.arange(8), np.full(8, column))
        assert layout.bank_conflicts(model, lanes, 2, vector=8) == 0
        assert plain.bank_conflicts(model, lanes, 2, vector=8) > 0
    row = (np.zeros(8, int), np.arange(8) * 8 % columns)
    assert layout.bank_conflicts(model, row, 2, vector=8) == 0
    assert layout.inverse().compose(layout).is_equal(Layout((64, columns), lambda i, j: (i, j)))


def test_bank_conflicts_count_distinct_words() -> None:
    model = BankModel(32, 4)
    layout = row_major((32, 32))
    column, same = (np.arange(32), np.zeros(32, int)), (np.zeros(32, int), np.zeros(32, int))
    assert layout.bank_conflicts(model, column, 4) == 31
    assert layout.bank_conflicts(model, same, 4) == 0
    assert row_major((32, 32), 33).bank_conflicts(model, column, 4) == 0
    # A whole row of 16-byte accesses takes four steps at best; that is not a conflict.
    assert row_major((1, 128)).bank_conflicts(model, (0, np.arange(32) * 4), 4, vector=4) == 0


def test_chosen_layouts() -> None:
    tile = Buffer("S", (64, 64), DType("float16"), "shared")
    assert make_swizzled_layout(tile).is_equal(swizzled((64, 64), 16, 8))
    odd = Buffer("S", (64, 24), DType("float16"), "shared")
    assert make_swizzled_layout(odd).is_equal(make_linear_layout(odd))
    assert make_linear_layout(odd).is_equal(row_major((64, 24)))


def test_vector_width_along_axes() -> None:
    assert row_major((8, 12)).vector_width() == 12
    assert row_major((8, 12)).vector_width(0) == 1
    assert row_major((8, 12), 14).vector_width() == 2
    assert column_major((8, 12)).vector_width(0) == 8


@SETTINGS
@given(st.integers(1, 6), st.permutations(range(6)))
def test_closed_forms(bits: int, order: list[int]) -> None:
    size = 1 << bits
    columns = [1 << o for o in order if o < bits]
    table = np.zeros(size, np.int64)
    for bit, column in enumerate(columns):
        table ^= np.where(np.arange(size) >> bit & 1, column | (column >> 1), 0)
    index = Var("i", DType("int32"))
    expr = closed_form(table, index)
    assert expr is not None
    layout = Layout((size,), lambda i: closed_form(table, i))
    assert np.array_equal(layout.table[:, 0], table)


def test_no_closed_form() -> None:
    table = np.random.default_rng(0).permutation(24)
    assert closed_form(table, Var("i", DType("int32"))) is None


def test_identity_and_text() -> None:
    a = Layout((8, 8), lambda i, j: (j, i))
    b = Layout((8, 8), lambda x, y: (y, x))
    assert a == b
    assert hash(a) == hash(b)
    assert a.canonical() == "(8, 8): (i, j) -> (j, i)"
    assert a != Layout((8, 8), lambda i, j: (i, j))
    again = eval(swizzled((64, 64), 16, 8).script(), {"T": T})  # own output
    assert again == swizzled((64, 64), 16, 8)
    assert [const_value(e) for e in Layout((4,), lambda i: 0).index] == [0]


def test_canonical_text_is_the_same_in_every_process() -> None:
    code = "from tilec.layout import swizzled; print(swizzled((64, 64), 16, 8).canonical())"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1")
    }  # fmt: skip
    assert texts == {swizzled((64, 64), 16, 8).canonical() + "\n"}


def test_mistakes() -> None:
    with pytest.raises(ShapeError, match="does not take 2"):
        Layout((4, 4), lambda i: i)
    with pytest.raises(ShapeError, match="not a positive constant"):
        Layout((4, Var("n", DType("int32"))), lambda i, j: (i, j))
    with pytest.raises(ShapeError, match="integers"):
        Layout((4,), lambda i: i * 1.5)
    with pytest.raises(ShapeError, match="negative"):
        _ = Layout((4,), lambda i: i - 1).table
    with pytest.raises(ShapeError, match="not bijective"):
        Layout((4,), lambda i: i // 2).inverse()
    n = Var("n", DType("int32"))
    with pytest.raises(ShapeError, match="more than its own indices"):
        _ = Layout((4,), lambda i: i + n).table
