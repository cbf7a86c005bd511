"""Public bugs of the field as tests: arguments, messages, and what a kernel may refer to."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import (
    ArgumentTypeError,
    ArgumentValueError,
    CapabilityError,
    DTypeError,
    IndexCountError,
    RaceError,
    ShapeError,
    TilecError,
)

SCALE = 2


def run(func, *arrays, **options):
    return tilec.compile(func, **options)(*arrays)


@pytest.mark.parametrize("access", ["load", "store"])
def test_b063_too_few_indices_are_named(access):
    def trace():
        @T.prim_func
        def f(Table: T.Tensor((4, 8), "int32"), B: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                for i in T.serial(4):
                    if access == "load":
                        B[i] = Table[i]
                    else:
                        Table[i] = 1

    with pytest.raises(IndexCountError) as found:
        trace()
    text = str(found.value)
    assert "Table" in text
    assert "2" in text
    assert "1" in text
    assert "test_host.py:" in text


def test_b120_votes_take_conditions_only():
    def trace():
        @T.prim_func
        def f(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "int32")):
            with T.Kernel(1, threads=32, warp=32):
                t = T.get_thread_binding()
                B[t] = T.any_sync(A[t])

    with pytest.raises(DTypeError, match="float32") as found:
        trace()
    assert "test_host.py:" in str(found.value)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_b101_special_values_of_float8(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")

    @T.prim_func
    def f(A: T.Tensor((9,), "float32"), B: T.Tensor((9,), "float32"), C: T.Tensor((9,), "float32")):
        with T.Kernel(1):
            for i in T.serial(9):
                narrow = T.cast(A[i], dtype)
                B[i] = T.cast(narrow, "float32")
                C[i] = T.cast(T.max(narrow, T.cast(-2.0, dtype)), "float32")

    special = [np.inf, -np.inf, np.nan, 1e9, 448.0, 57344.0, 65536.0, -0.0, 0.3]
    a = np.array(special, np.float32)
    b, c = np.zeros_like(a), np.zeros_like(a)
    try:
        run(f, a, b, c)
    except CapabilityError as refusal:
        assert "float8" in str(refusal)  # noqa: PT017 - a target may not have the type
        return
    with np.errstate(all="ignore"):
        want = a.astype(getattr(ml_dtypes, dtype)).astype(np.float32)
    np.testing.assert_array_equal(b, want)
    np.testing.assert_array_equal(c, np.where(np.isnan(want), c, np.maximum(want, -2)))


def test_b134_assert_in_a_kernel():
    try:

        @T.prim_func
        def f(A: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                assert A[0] > 0, "the first one is positive"
                A[1] = 5
    except TilecError as refusal:
        assert "assert" in str(refusal)  # noqa: PT017
        assert "test_host.py:" in str(refusal)  # noqa: PT017
        return
    a = np.array([1, 0, 0, 0], np.int32)
    run(f, a)
    assert a[1] == 5
    with pytest.raises(TilecError, match="the first one is positive"):
        run(f, np.zeros(4, np.int32))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(None, id="None"),
        pytest.param([1.0, 2.0], id="list"),
        pytest.param("text", id="text"),
        pytest.param(3, id="number"),
        pytest.param(np.zeros(4, np.float64), id="dtype"),
        pytest.param(np.zeros((2, 2), np.float32), id="rank"),
    ],
)
@pytest.mark.parametrize("position", [0, 1])
def test_b140_what_is_no_tensor(wrong, position):
    n = T.dynamic("n")

    @T.prim_func
    def f(First: T.Tensor((n,), "float32"), Second: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            for i in T.serial(n):
                Second[i] = First[i]

    args = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    args[position] = wrong
    with pytest.raises(
        (ArgumentTypeError, ArgumentValueError), match=("First", "Second")[position]
    ) as found:
        run(f, *args)
    assert isinstance(found.value, (TypeError, ValueError))


def test_b146_outputs_only():
    @tilec.jit
    def four():
        B = T.empty((4,), "int32")
        with T.Kernel(1):
            for i in T.serial(4):
                B[i] = i * i
        return B

    np.testing.assert_array_equal(np.asarray(four()), [0, 1, 4, 9])


def test_b149_constants_around_a_kernel(tmp_path, monkeypatch):
    (tmp_path / "b149_helper.py").write_text("STEP = 3\n\ndef step():\n    return STEP\n")
    monkeypatch.syspath_prepend(tmp_path)
    helper = importlib.import_module("b149_helper")
    try:

        def factory(count, extra=1):
            @tilec.jit
            def kernel(A: T.Tensor((256,), "int32")):
                B = T.empty((256,), "int32")
                with T.Kernel(1):
                    for i in T.serial(256):
                        B[i] = A[i] * SCALE + helper.step() + extra if i < count else 0
                return B

            return kernel

        a = np.arange(256, dtype=np.int32)

        def check(scale, step, count, extra):
            got = np.asarray(factory(count, extra)(a))
            want = np.where(np.arange(256) < count, a * scale + step + extra, 0)
            np.testing.assert_array_equal(got, want)

        check(2, 3, 128, 1)
        check(2, 3, 256, 1)
        check(2, 3, 256, 10)
        monkeypatch.setitem(globals(), "SCALE", 5)
        check(5, 3, 256, 10)
        monkeypatch.setattr(helper, "STEP", 7)
        check(5, 7, 256, 10)
    finally:
        sys.modules.pop("b149_helper", None)


def test_b168_operands_of_different_lengths():
    def trace():
        @T.prim_func
        def f(A: T.Tensor((256,), "float32"), B: T.Tensor((128,), "float32")):
            with T.Kernel(1):
                a = T.alloc_shared((256,), "float32")
                T.copy(B, a)

    with pytest.raises(ShapeError) as found:
        trace()
    assert "test_host.py:" in str(found.value)


def test_b160_a_race_that_an_interpreter_would_hide():
    """One block per row is right in both; blocks that share a row's sum are found to race."""

    @T.prim_func
    def rows(A: T.Tensor((4, 4), "float32"), x: T.Tensor((4,), "float32"),
             y: T.Tensor((4,), "float32")):  # fmt: skip
        with T.Kernel(4) as bx:
            total = T.alloc_var("float32", init=0.0)
            for j in T.serial(4):
                total += A[bx, j] * x[j]
            y[bx] = total

    @T.prim_func
    def shared_rows(A: T.Tensor((4, 4), "float32"), x: T.Tensor((4,), "float32"),
                    y: T.Tensor((4,), "float32")):  # fmt: skip
        with T.Kernel(4, 2) as (bx, by):
            for j in T.serial(2):
                y[bx] = y[bx] + A[bx, by * 2 + j] * x[by * 2 + j]

    ones, x, y = np.ones((4, 4), np.float32), np.ones(4, np.float32), np.zeros(4, np.float32)
    run(rows, ones, x, y)
    np.testing.assert_array_equal(y, [4, 4, 4, 4])
    with pytest.raises(RaceError, match="y"):
        tilec.compile(shared_rows).interpret(ones, x, np.zeros(4, np.float32), check=True)
