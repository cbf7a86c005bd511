"""Scalar semantics against Python, NumPy and ml_dtypes, and the arithmetic bug recipes."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilec.arith import (
    canonical_const,
    evaluate_binary,
    evaluate_call,
    evaluate_cast,
    evaluate_unary,
    round_to,
    value_dtype,
)
from tilec.arith.formats import FORMATS
from tilec.ir import BinOp, Const, DType, UnOp, scalar_names

ml_dtypes = pytest.importorskip("ml_dtypes")
INTS = ["int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "tfloat32", *FORMATS]
INT_OPS = [op for op in BinOp if op not in (BinOp.AND, BinOp.OR)]
SPECIALS = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 7.0, 0.1, 65504.0, 1e9, 1e-30, 448.0, 57344.0,
            math.inf, -math.inf, math.nan]  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Equal numbers of equal sign and kind; NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b and isinstance(a, bool) == isinstance(b, bool))


def edges(name: str) -> list[int]:
    low, high = DType(name).int_range
    near = {low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 8, -1, -2, -3, -7, 31, 32, 33, 63, 64, 100}
    return sorted(v for v in near if low <= v <= high)


@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("op", INT_OPS)
def test_integers_wrap_to_the_python_result(op: BinOp, name: str) -> None:
    dtype = DType(name)
    low, high = dtype.int_range
    pairs = list(itertools.product(edges(name), edges(name)))
    a = np.array([p[0] for p in pairs], dtype=value_dtype(dtype))
    b = np.array([p[1] for p in pairs], dtype=value_dtype(dtype))
    array = evaluate_binary(op, a, b, dtype)
    for (x, y), got in zip(pairs, array.tolist(), strict=True):
        scalar = evaluate_binary(op, x, y, dtype)
        assert same(scalar, got), (op, x, y, scalar, got)
        if not isinstance(scalar, bool):
            assert low <= scalar <= high
        want = reference(op, x, y, dtype)
        if not isinstance(want, bool):
            want = (want - low) % (high - low + 1) + low
        assert scalar == want, (op, x, y)


def reference(op: BinOp, x: int, y: int, dtype: DType) -> Any:
    """The operation on mathematical integers, spelled out independently."""
    trunc = int(Fraction(x, y)) if y else 0
    if op in (BinOp.SHL, BinOp.SHR):
        if not 0 <= y < dtype.bits:
            return -1 if op is BinOp.SHR and x < 0 else 0
        return x * 2**y if op is BinOp.SHL else math.floor(Fraction(x, 2**y))
    if op is BinOp.POW:
        if y >= 0:
            return pow(x, y, 1 << dtype.bits)
        return {1: 1, -1: 1 - 2 * (y % 2)}.get(x, 0)
    return {
        BinOp.ADD: x + y, BinOp.SUB: x - y, BinOp.MUL: x * y, BinOp.DIV: trunc,
        BinOp.FLOORDIV: math.floor(Fraction(x, y)) if y else 0,
        BinOp.FLOORMOD: x - y * math.floor(Fraction(x, y)) if y else 0,
        BinOp.TRUNCDIV: trunc, BinOp.TRUNCMOD: x - y * trunc if y else 0,
        BinOp.MIN: min(x, y), BinOp.MAX: max(x, y), BinOp.BITAND: x & y, BinOp.BITOR: x | y,
        BinOp.BITXOR: x ^ y, BinOp.EQ: x == y, BinOp.NE: x != y, BinOp.LT: x < y,
        BinOp.LE: x <= y, BinOp.GT: x > y, BinOp.GE: x >= y,
    }[op]  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
def test_float_scalars_agree_with_arrays(name: str) -> None:
    dtype = DType(name)
    pairs = list(itertools.product(SPECIALS, SPECIALS))
    a, b = (round_to([p[n] for p in pairs], dtype) for n in (0, 1))
    for op in BinOp:
        if op in (BinOp.SHL, BinOp.SHR, BinOp.BITAND, BinOp.BITOR, BinOp.BITXOR):
            continue
        array = evaluate_binary(op, a, b, dtype)
        for x, y, got in zip(a.tolist(), b.tolist(), array.tolist(), strict=True):
            assert same(evaluate_binary(op, x, y, dtype), got), (op, x, y)
            if isinstance(got, float):
                assert same(float(round_to(got, dtype)), got)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_floats_agree_with_numpy(name: str) -> None:
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        a = np.concatenate([np.array(SPECIALS * 17), rng.normal(size=2000) * 50]).astype(name)
        b = np.concatenate([np.repeat(SPECIALS, 17), rng.normal(size=2000)]).astype(name)
    fns = {
        BinOp.ADD: np.add, BinOp.SUB: np.subtract, BinOp.MUL: np.multiply, BinOp.DIV: np.divide,
        BinOp.FLOORDIV: np.floor_divide, BinOp.FLOORMOD: np.remainder, BinOp.TRUNCMOD: np.fmod,
        BinOp.LT: np.less, BinOp.EQ: np.equal, BinOp.NE: np.not_equal,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        for op, fn in fns.items():
            np.testing.assert_array_equal(evaluate_binary(op, a, b, DType(name)), fn(a, b), str(op))
        for op, fn in ((BinOp.MIN, np.fmin), (BinOp.MAX, np.fmax)):
            np.testing.assert_array_equal(evaluate_binary(op, a, b, DType(name)), fn(a, b))


@pytest.mark.parametrize("name", ["bfloat16", *FORMATS])
def test_narrow_formats_round_as_ml_dtypes_does(name: str) -> None:
    kind = getattr(ml_dtypes, "float8_e4m3fn" if name == "float8_e4m3" else name)
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [
            rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32),
            rng.normal(size=5000).astype(np.float32),
            np.arange(-2048, 2048, dtype=np.float32) / 16,
            np.array([464, 465, 1e9, 61440, 61441, *SPECIALS], np.float32),
        ]
    )
    if DType(name).bits < 8:
        x = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        want = x.astype(kind).astype(np.float32)
        got = round_to(x, DType(name))
    equal = (want == got) & (np.signbit(want) == np.signbit(got))
    assert (equal | (np.isnan(want) & np.isnan(got))).all()


def test_formats_without_nan_give_zero() -> None:
    assert evaluate_cast(math.nan, DType("float32"), DType("float4_e2m1fn")) == 0


def nearest_bfloat16(exact: Fraction) -> float:
    """Round to nearest even by search over neighbours (normal range)."""
    sign = -1 if exact < 0 else 1
    size = abs(exact)
    exponent = math.floor(math.log2(size)) if size else 0
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** (exponent - 7)
    return float(sign * round(size / unit) * unit)


def test_conversions_to_bfloat16_round_once() -> None:
    rng = np.random.default_rng(3)
    bfloat = DType("bfloat16")
    numbers = [int(v) for v in rng.integers(-(2**63), 2**63, 400, dtype=np.int64)]
    # Halfway between two bfloat16 numbers but for the last bit: fails when rounded twice.
    numbers += [s * ((0x101 << k) + d) for s in (1, -1) for k in (30, 45, 54) for d in (-1, 0, 1)]
    got = evaluate_cast(np.array(numbers, np.int64), DType("int64"), bfloat).tolist()
    for n, value in zip(numbers, got, strict=True):
        assert value == nearest_bfloat16(Fraction(n)), n
        assert evaluate_cast(n, DType("int64"), bfloat) == value
    doubles = [s * (257 + d) for s in (1.0, -1.0) for d in (0.0, 2.0**-40, -(2.0**-40))]
    for x in doubles:
        want = nearest_bfloat16(Fraction(x))
        assert evaluate_cast(x, DType("float64"), bfloat) == want
        assert evaluate_cast(np.array([x]), DType("float64"), bfloat)[0] == want
    assert evaluate_cast(2**64 - 1, DType("uint64"), bfloat) == 2.0**64


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", INTS)
def test_float_to_integer(source: str, target: str) -> None:
    dtype = DType(target)
    x = np.array(
        [0.0, -0.0, 1.9, -1.9, 127, 128, 255, 256, 300, -129, 2**31 - 1, 2**31, -(2**31), 3e9, -3e9,
         2.0**32, 1e10, -1e10, 2.0**62, 2.0**63, -(2.0**63), 1e19, 2.0**64, 1e30, math.inf,
         -math.inf, math.nan], source
    )  # fmt: skip
    array = evaluate_cast(x, DType(source), dtype)
    for value, got in zip(x.tolist(), array.tolist(), strict=True):
        assert evaluate_cast(value, DType(source), dtype) == got, value
        low, high = dtype.int_range
        if math.isfinite(value) and low <= int(value) <= high:
            assert got == int(value)
    if target in ("int8", "int16", "int32", "int64", "uint8", "uint16"):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(array, x.astype(target))


@pytest.mark.parametrize("source", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("target", [n for n in scalar_names() if "e8m0" not in n])
def test_integer_casts(source: str, target: str) -> None:
    numbers = edges(source)
    array = np.array(numbers, source)
    got = evaluate_cast(array, DType(source), DType(target))
    for n, value in zip(numbers, got.tolist(), strict=True):
        assert same(evaluate_cast(n, DType(source), DType(target)), value)
    if target in ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float32"):
        np.testing.assert_array_equal(got, array.astype(target))


@pytest.mark.parametrize("name", [*INTS, *FLOATS, "bool"])
def test_unary(name: str) -> None:
    dtype = DType(name)
    values: Any = edges(name) if dtype.is_integer else [False, True] if dtype.is_bool else SPECIALS
    array = round_to(values, dtype) if dtype.is_float else np.array(values, value_dtype(dtype))
    for op in UnOp:
        if op is UnOp.BITNOT and dtype.is_float:
            continue
        for x, got in zip(array.tolist(), evaluate_unary(op, array, dtype).tolist(), strict=True):
            assert same(evaluate_unary(op, x, dtype), got)


def f32(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


class TestRecipes:
    """Section numbers are those of the project's list of known arithmetic bugs."""

    @pytest.mark.parametrize(
        ("name", "value", "want"), [("uint8", 48, 0), ("int8", 8, -8), ("int16", 2048, -2048)]
    )
    def test_narrow_shifts_wrap(self, name: str, value: int, want: int) -> None:
        count = 4
        dtype = DType(name)
        left = evaluate_binary("shl", value, count, dtype)
        assert evaluate_binary("shr", left, count, dtype) == want

    @pytest.mark.parametrize("name", ["int32", "int64", "float32"])
    def test_division_signs(self, name: str) -> None:
        dtype = DType(name)
        for a, b in [(7, 3), (-7, 3), (7, -3), (-7, -3), (-1, 512), (299999, 100000)]:
            assert evaluate_binary("floordiv", a, b, dtype) == a // b
            assert evaluate_binary("floormod", a, b, dtype) == a % b
            assert evaluate_binary("truncdiv", a, b, dtype) == int(a / b)
            assert evaluate_binary("truncmod", a, b, dtype) == math.fmod(a, b)
        if dtype.is_int:
            up = evaluate_binary("add", 7, -3 - 1, dtype)
            assert evaluate_binary("floordiv", up, -3, dtype) == -1
            assert -(-7 // 3) == 3

    def test_minimum_by_minus_one(self) -> None:
        for name in ("int8", "int32", "int64"):
            low = DType(name).int_range[0]
            assert evaluate_binary("floordiv", low, -1, DType(name)) == low
            assert evaluate_binary("floormod", low, -1, DType(name)) == 0

    def test_min_max_ignore_nan_and_take_the_second_of_equals(self) -> None:
        dtype = DType("float32")
        for op in ("min", "max"):
            for a, b, want in [
                (1.0, math.nan, 1.0), (math.nan, 1.0, 1.0), (0.0, -0.0, -0.0), (-0.0, 0.0, 0.0),
            ]:  # fmt: skip
                assert same(evaluate_binary(op, a, b, dtype), want)
                array = evaluate_binary(op, np.array([a], "f4"), np.array([b], "f4"), dtype)
                assert same(array.tolist()[0], want)
            assert math.isnan(evaluate_binary(op, math.nan, math.nan, dtype))

    def test_float32_constants_round_first(self) -> None:
        for name in ("ceil", "floor", "round", "nearbyint", "trunc"):
            assert evaluate_call(name, [8388608.5], DType("float32")) == 8388608.0
        assert canonical_const(Const(8388608.5, DType("float32"))).value == 8388608.0
        assert canonical_const(Const(0.1, DType("float32"))).value == f32(0.1)
        assert evaluate_binary("add", 1.0, 2.0**-24, DType("float32")) == 1.0
        assert evaluate_binary("add", 2048.0, 1.0, DType("float16")) == 2048.0
        assert evaluate_binary("add", 256.0, 1.0, DType("bfloat16")) == 256.0

    def test_constant_casts(self) -> None:
        assert evaluate_cast(300, DType("int32"), DType("int8")) == 44
        assert evaluate_cast(1 << 31, DType("uint32"), DType("int32")) == -(2**31)
        assert evaluate_cast(65510.0, DType("float32"), DType("float16")) == 65504.0
        big, u64 = 2**63 + 5, DType("uint64")
        assert evaluate_binary("add", big, 2, u64) == big + 2
        assert evaluate_binary("mul", big, 3, u64) == big * 3 % 2**64
        assert evaluate_cast(math.nan, DType("float32"), DType("bool")) is True

    def test_float8_specials(self) -> None:
        f = DType("float32")
        for x, e4, e5 in [
            (math.inf, math.nan, math.inf), (-math.inf, math.nan, -math.inf),
            (math.nan, math.nan, math.nan), (1e9, math.nan, math.inf), (448.0, 448.0, 448.0),
            (57344.0, math.nan, 57344.0), (65536.0, math.nan, math.inf),
        ]:  # fmt: skip
            assert same(evaluate_cast(x, f, DType("float8_e4m3fn")), e4)
            assert same(evaluate_cast(x, f, DType("float8_e5m2")), e5)

    @pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
    def test_rounding(self, name: str) -> None:
        away = {0.5: 1.0, 1.5: 2.0, 2.5: 3.0}
        even = {0.5: 0.0, 1.5: 2.0, 2.5: 2.0}
        for sign in (1.0, -1.0):
            for x in away:
                assert same(evaluate_call("round", [sign * x], DType(name)), sign * away[x])
                assert same(evaluate_call("nearbyint", [sign * x], DType(name)), sign * even[x])
        assert evaluate_call("round", [0.49999999999999994], DType("float64")) == 0.0

    def test_exponentials(self) -> None:
        f = DType("float32")
        assert evaluate_call("exp", [1.0], f) == f32(math.e)
        assert evaluate_call("exp2", [1.0], f) == 2.0
        assert evaluate_call("exp10", [1.0], f) == 10.0
        for name in ("exp", "log", "sin"):
            with pytest.raises(TypeError, match=name):
                evaluate_call(name, [1], DType("int8"))

    def test_shift_counts_out_of_range(self) -> None:
        assert evaluate_binary("shl", 1, 32, DType("int32")) == 0
        assert evaluate_binary("shr", -5, 99, DType("int32")) == -1
        assert evaluate_binary("shr", -5, -1, DType("int32")) == -1
        assert evaluate_binary("shl", 3, -1, DType("int32")) == 0


def test_fma_rounds_once() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 3000)).astype("f4")
    c = (-(a.astype("f8") * b) * (1 + rng.integers(-2, 3, 3000) * 2.0**-24)).astype("f4")
    got = evaluate_call("fma", [a, b, c], DType("float32")).tolist()
    for x, y, z, value in zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        near = np.float32(float(exact))
        around = [np.nextafter(near, np.float32(s)) for s in (-np.inf, np.inf)] + [near]
        best = min(abs(Fraction(float(v)) - exact) for v in around)
        assert abs(Fraction(value) - exact) == best
    assert evaluate_call("fma", [0.1, 10.0, -1.0], DType("float64")) == 2.0**-54


def test_reinterpret_and_predicates() -> None:
    assert evaluate_call("reinterpret", [1.0], DType("int32"), DType("float32")) == 0x3F800000
    assert evaluate_call("reinterpret", [0x3F80], DType("bfloat16"), DType("uint16")) == 1.0
    assert evaluate_call("reinterpret", [0x38], DType("float8_e4m3fn"), DType("uint8")) == 1.0
    assert evaluate_call("isnan", [math.nan], DType("bool"), DType("float16")) is True
    assert evaluate_call("isinf", [1e9], DType("bool"), DType("float16")) is True
    assert evaluate_call("clamp", [12, 0, 9], DType("int32")) == 9
    assert evaluate_call("abs", [-128], DType("int8")) == -128
    assert evaluate_call("erf", np.array([[0.0, 3.0]]), DType("float32")).shape == (2,)
