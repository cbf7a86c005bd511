"""Every message of the generated checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from host_kernels import INT32, host_func, no_messages

from tilec import ir
from tilec.diagnostics import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    KernelRuntimeError,
    ShapeError,
)
from tilec.host import generate_host_source
from tilec.ir import Assert, Bind, Buffer, DType, Var

F32 = DType("float32")
I64 = DType("int64")

ADD = """
int32_t add_kernel(float* a, float* b, float* c, int32_t n, int32_t scale) {
  for (int32_t i = 0; i < n * 512; ++i) c[i] = a[i] + scale * b[i];
  return 0;
}
"""


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def bad(kernel: Any, *args: Any) -> str:
    """The message of the error a call raises."""
    with pytest.raises((ArgumentTypeError, ArgumentValueError)) as caught:
        kernel(*args)
    builtin = TypeError if isinstance(caught.value, ArgumentTypeError) else ValueError
    assert isinstance(caught.value, builtin)
    return caught.value.message


@pytest.fixture(scope="module")
def add(build):
    n = Var("n", INT32)
    a, b, c = (Buffer(x, (n, 512), F32) for x in "ABC")
    scale = Var("scale", INT32)
    func = host_func("add", [a, b, c, scale], [a, b, c, n, scale])
    return build(func, no_messages("add") + ADD, written=["C"])


def test_right_call(add):
    c = np.zeros((3, 512), np.float32)
    assert add(f32(3, 512), f32(3, 512), c, 4) is None
    assert (c == 5).all()


def test_one_array_may_be_input_and_output(add):
    a = f32(2, 512)
    add(a, a, a, 1)
    assert (a == 2).all()


@pytest.mark.parametrize("count", [0, 3, 5])
def test_count(add, count):
    with pytest.raises(ArgumentCountError) as caught:
        add(*[f32(1, 512)] * count)
    assert caught.value.message == f"Kernel expected 4 inputs, but {count} are provided"
    assert caught.value.notes == ("add(A, B, C, scale)",)


TENSOR = "expected a tensor (n, 512) float32"
WRONG = [
    (None, f"{TENSOR}, got None"),
    ([1.0], f"{TENSOR}, got list"),
    ("text", f"{TENSOR}, got str"),
    (7, f"{TENSOR}, got int"),
    (2.5, f"{TENSOR}, got float"),
    (object(), f"{TENSOR}, got object"),
    (np.float32(1), f"{TENSOR}, got numpy.float32"),
    (np.ndarray, f"{TENSOR}, got type"),
    (f32(512), "ndim expected 2, got 1"),
    (f32(2, 512, 1), "ndim expected 2, got 3"),
    (np.ones((), np.float32), "ndim expected 2, got 0"),
    (np.float32(1), "expected a tensor (n, 512) float32, got numpy.float32"),
    (f32(2, 1024), "shape[1] expected 512, got 1024"),
    (f32(3, 512), "shape[0] expected 2 (n from A.shape[0]), got 3"),
    (np.ones((2, 512)), "dtype expected float32, got float64"),
    (np.ones((2, 512), np.float16), "dtype expected float32, got float16"),
    (np.ones((2, 512), np.int32), "dtype expected float32, got int32"),
    (np.ones((2, 512), np.uint8), "dtype expected float32, got uint8"),
    (np.ones((2, 512), bool), "dtype expected float32, got bool"),
    (np.ones((2, 512), np.complex64), "dtype expected float32, got complex64"),
    (np.ones((2, 512), np.longdouble), "dtype expected float32, got float128"),
    (np.ones((2, 512), object), "dtype expected float32, got object"),
    (np.ones((2, 512), "U3"), "dtype expected float32, got str96"),
    (np.ones((2, 512), "M8[s]"), "dtype expected float32, got datetime64[s]"),
    (np.ones((2, 512), [("x", "f4")]), "dtype expected float32, got void32"),
    (
        np.ones((2, 512), ">f4"),
        "dtype expected float32, got float32 in non-native byte order (>f4)",
    ),
    (f32(2, 1024)[:, ::2], "strides[1] expected 1 (contiguous), got 2"),
    (f32(512, 2).T, "strides[1] expected 1 (contiguous), got 2"),
    (f32(4, 512)[::2], "strides[0] expected 512 (contiguous), got 1024"),
    (f32(2, 512)[:, ::-1], "strides[1] expected 1 (contiguous), got -1"),
    (f32(2, 512)[::-1], "strides[0] expected 512 (contiguous), got -512"),
    (np.broadcast_to(f32(1, 512), (2, 512)), "strides[0] expected 512 (contiguous), got 0"),
    (np.ma.masked_array(f32(2, 512)), "expected a plain array, got a masked array"),
    (
        np.zeros(2 * 512, [("x", "i2"), ("y", "f4")])["y"].reshape(2, 512)[:, :],
        "strides[0] expected a multiple of 4 bytes, got 3072",
    ),
]


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_wrong_tensor(add, value, message):
    if message.startswith("strides[0] expected a multiple"):
        message = "strides[1] expected a multiple of 4 bytes, got 6"
    c = np.zeros((2, 512), np.float32)
    assert bad(add, f32(2, 512), value, c, 1) == f"kernel add: argument B: {message}"
    assert not c.any()


def test_misaligned(add):
    raw = np.zeros(2 * 512 * 4 + 1, np.uint8)
    odd = raw[1:].view(np.float32).reshape(2, 512)
    text = bad(add, f32(2, 512), odd, f32(2, 512), 1)
    assert text.startswith(
        "kernel add: argument B: data expected an address aligned to 4 bytes, got 0x"
    )


def test_read_only(add):
    a = f32(2, 512)
    a.flags.writeable = False
    c = np.zeros((2, 512), np.float32)
    add(a, a, c, 1)
    assert (c == 2).all()
    c.flags.writeable = False
    text = bad(add, a, a, c, 1)
    assert text == ("kernel add: argument C: the array is read-only, but the kernel writes it")


def test_hint_of_strides(add):
    with pytest.raises(ArgumentValueError) as caught:
        add(f32(512, 2).T, f32(2, 512), f32(2, 512), 1)
    assert caught.value.hint == "nothing is copied silently: pass numpy.ascontiguousarray(A)"


INT = "expected an int (int32)"
RANGE = "expected int32 (-2147483648 to 2147483647)"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2.0, f"{INT}, got float"),
        (np.float32(2), f"{INT}, got numpy.float32"),
        ("2", f"{INT}, got str"),
        (None, f"{INT}, got None"),
        (2 + 0j, f"{INT}, got complex"),
        (np.array([1, 2]), f"{INT}, got numpy.ndarray"),
        (np.array(1.0), f"{INT}, got numpy.ndarray"),
        (2**31, f"{RANGE}, got 2147483648"),
        (-(2**31) - 1, f"{RANGE}, got -2147483649"),
        (np.int64(2**40), f"{RANGE}, got 1099511627776"),
        pytest.param(10**6000, f"{RANGE}, got an int of 19932 bits", id="huge"),
    ],
)
def test_wrong_int(add, value, message):
    text = bad(add, f32(1, 512), f32(1, 512), f32(1, 512), value)
    assert text == f"kernel add: argument scale: {message}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, 2), (np.bool_(True), 2), (np.int8(-3), -2), (np.uint64(5), 6), (np.array(4), 5)],
)
def test_right_int(add, value, expected):
    c = np.zeros((1, 512), np.float32)
    add(f32(1, 512), f32(1, 512), c, value)
    assert (c == expected).all()


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64", "float32", "float64"])
def test_scalars_arrive_intact(build, kind):
    dtype = DType(kind)
    ctype = {"float32": "float", "float64": "double"}.get(kind, f"{kind}_t")
    x, out = Var("x", dtype), Buffer("out", (1,), dtype)
    func = host_func("echo", [x, out], [out, x])
    code = f"int32_t echo_kernel({ctype}* out, {ctype} x) {{ *out = x; return 0; }}"
    echo = build(func, no_messages("echo") + code, written=["out"])
    result = np.zeros(1, kind)
    if dtype.is_float:
        values = [0.1, -1e30, float("inf"), 3, True, np.float16(0.5), np.int64(7)]
        wrong, message = "x", f"expected a float ({kind}), got str"
        with pytest.raises(ArgumentValueError, match="got an int of"):
            echo(10**400, result)
        assert bad(echo, 1j, result).endswith("got complex")
        assert bad(echo, np.array(1j), result).endswith("got numpy.ndarray")
    else:
        low, high = dtype.int_range
        values = [low, high, 0, 1]
        wrong, message = high + 1, f"expected {kind} ({low} to {high}), got {high + 1}"
    for value in values:
        echo(value, result)
        assert result[0] == np.dtype(kind).type(value)
    assert bad(echo, wrong, result) == f"kernel echo: argument x: {message}"


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_small_float_scalars_are_rounded(build, kind):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, out = Var("x", DType(kind)), Buffer("out", (1,), F32)
    func = host_func("small", [x, out], [out, x])
    code = "int32_t small_kernel(float* out, float x) { *out = x; return 0; }"
    small = build(func, no_messages("small") + code, written=["out"])
    numpy_type = np.float16 if kind == "float16" else ml_dtypes.bfloat16
    result = np.zeros(1, np.float32)
    values = [0.1, -1 / 3, 65504.0, 65519.9, 65520.0, 1e-7, -5.9e-8, 1e30, 3e38, 1e-40, 0.0]
    for value in [*values, float("inf"), -float("inf"), 2049, 257]:
        small(value, result)
        with np.errstate(over="ignore"):
            assert result[0] == np.float32(numpy_type(value)), value
    small(float("nan"), result)
    assert np.isnan(result[0])


def test_bool(build):
    flag, out = Var("flag", DType("bool")), Buffer("out", (1,), DType("bool"))
    func = host_func("truth", [flag, out], [out, flag])
    code = "int32_t truth_kernel(uint8_t* out, _Bool flag) { *out = flag; return 0; }"
    truth = build(func, no_messages("truth") + code, written=["out"])
    for value, expected in [(True, 1), (False, 0), (2, 1), (256, 1), (0, 0), (np.bool_(True), 1)]:
        for storage in (bool, np.int8, np.uint8):
            out_array = np.zeros(1, storage)
            truth(value, out_array)
            assert out_array[0] == expected
    assert bad(truth, 1.0, np.zeros(1, bool)) == (
        "kernel truth: argument flag: expected a bool, got float"
    )
    assert bad(truth, 1, np.zeros(1, np.int16)) == (
        "kernel truth: argument out: dtype expected bool, got int16"
    )


# Shapes


def test_size_one_axes_have_no_stride(build):
    a = Buffer("A", (1, 77), F32)
    out = Buffer("out", (1,), F32)
    m = Var("m", INT32)
    b = Buffer("B", (m, 1), F32)
    code = "int32_t odd_kernel(float* a, float* b, float* o) { *o = a[76] + b[1]; return 0; }"
    odd = build(host_func("odd", [a, b, out]), no_messages("odd") + code, written=["out"])
    base = np.arange(77, dtype=np.float32)
    column = np.lib.stride_tricks.as_strided(base, (2, 1), (4, 28))
    for stride in (77, 1, 1000, -5, 0):
        row = np.lib.stride_tricks.as_strided(base, (1, 77), (stride * 4, 4))
        result = np.zeros(1, np.float32)
        odd(row, column, result)
        assert result[0] == 77


def test_empty_and_rank_0(build):
    n = Var("n", INT32)
    a, s, out = Buffer("A", (n, 4), F32), Buffer("s", (), F32), Buffer("out", (), I64)
    code = (
        "int32_t void_kernel(float* a, float* s, int64_t* out, int32_t n) "
        "{ *out = n + (int64_t)*s; return a == 0 && n; }"
    )
    func = host_func("void", [a, s, out], [a, s, out, n])
    kernel = build(func, no_messages("void") + code, written=["out"])
    out_array, two = np.zeros((), np.int64), np.array(2, np.float32)
    for empty in (f32(0, 4), f32(4, 4)[:0], f32(4, 0).T[:, ::-1], np.empty((3, 4), "f4")[3:, ::-1]):
        kernel(empty, two, out_array)
        assert out_array == 2
    assert bad(kernel, f32(0, 5), two, out_array) == (
        "kernel void: argument A: shape[1] expected 4, got 5"
    )
    assert bad(kernel, f32(0, 4), f32(1), out_array) == (
        "kernel void: argument s: ndim expected 0, got 1"
    )


def dims_kernel(build, shapes, variables, dtype=F32):
    """A kernel that returns the values of variables."""
    buffers = [Buffer(name, shape, dtype) for name, shape in shapes.items()]
    out = Buffer("out", (len(variables),), I64)
    args = ", ".join(f"int64_t v{i}" for i in range(len(variables)))
    stores = " ".join(f"out[{i}] = v{i};" for i in range(len(variables)))
    element = {F32: "float"}.get(dtype, f"{dtype}_t")
    unused = "".join(f"{element}* b{i}, " for i in range(len(buffers)))
    voids = " ".join(f"(void)b{i};" for i in range(len(buffers)))
    code = f"int32_t dims_kernel({unused}int64_t* out, {args}) {{ {voids} {stores} return 0; }}"
    func = host_func(
        "dims", [*buffers, out], [*buffers, out, *[ir.Cast(I64, v) for v in variables]]
    )
    return build(func, no_messages("dims") + code, written=["out"])


def test_linear_extents(build):
    n, m = Var("n", INT32), Var("m", I64)
    kernel = dims_kernel(
        build,
        {"A": (n * 2, m + 1), "B": (n, m), "C": (n + m, (n + 7) // 8), "D": (3 * n - 1,)},
        [n, m],
    )
    out = np.zeros(2, np.int64)
    kernel(f32(8, 6), f32(4, 5), f32(9, 1), f32(11), out)
    assert out.tolist() == [4, 5]
    rest = (f32(9, 1), f32(11), out)
    prefix = "kernel dims: argument "
    for args, message in [
        ((f32(7, 6), f32(4, 5)), "A: shape[0] expected n * 2 with a non-negative int32 n, got 7"),
        ((f32(8, 0), f32(4, 5)), "A: shape[1] expected m + 1 with a non-negative int64 m"
                                 ", got 0"),
        ((f32(8, 6), f32(3, 5)), "B: shape[0] expected 4 (n from A.shape[0]), got 3"),
        ((f32(8, 6), f32(4, 6)), "B: shape[1] expected 5 (m from A.shape[1]), got 6"),
    ]:  # fmt: skip
        assert bad(kernel, *args, *rest) == prefix + message
    text = bad(kernel, f32(8, 6), f32(4, 5), f32(9, 2), f32(11), out)
    assert text == prefix + "C: shape[1] expected 1 ((n + 7) // 8, n from A.shape[0]), got 2"
    text = bad(kernel, f32(8, 6), f32(4, 5), f32(8, 1), f32(11), out)
    assert text.startswith(prefix + "C: shape[0] expected 9 (")
    assert text.endswith("n from A.shape[0], m from A.shape[1]), got 8")
    text = bad(kernel, f32(8, 6), f32(4, 5), f32(9, 1), f32(12), out)
    assert text.startswith(prefix + "D: shape[0] expected 11 (")


def test_variables_bound_by_later_tensors(build):
    n, m = Var("n", INT32), Var("m", INT32)
    kernel = dims_kernel(build, {"A": (n + m,), "B": (n * m,), "C": (n,)}, [n, m])
    out = np.zeros(2, np.int64)
    kernel(f32(7), f32(12), f32(3), out)
    assert out.tolist() == [3, 4]
    assert bad(kernel, f32(7), f32(13), f32(3), out) == (
        "kernel dims: argument B: shape[0] expected 12 (n * m, n from C.shape[0], "
        "m from A.shape[0]), got 13"
    )
    assert bad(kernel, f32(2), f32(13), f32(3), out) == (
        "kernel dims: argument A: shape[0] expected n + m with a non-negative int32 m, got 2"
    )


def big(*shape: int) -> Any:
    """A huge array without memory; all elements are one."""
    return np.lib.stride_tricks.as_strided(f32(1), shape, (0,) * len(shape))


def test_int32_range(build):
    n = Var("n", INT32)
    kernel = dims_kernel(build, {"A": (n,), "B": (n * 4,)}, [n])
    out = np.zeros(1, np.int64)
    assert bad(kernel, big(3 * 10**9), f32(4), out) == (
        "kernel dims: argument A: shape[0] expected a non-negative int32 (n), got 3000000000"
    )
    # n * 4 wraps around to 0 in int32; an empty B must not pass for it.
    small = dims_kernel(build, {"A": (n,), "B": (n * 4,)}, [n], DType("int8"))
    assert bad(small, np.empty(2**30, np.int8), np.empty(0, np.int8), out) == (
        "kernel dims: argument B: shape[0] expected 4294967296 (n * 4, n from A.shape[0]), got 0"
    )
    wide = Buffer("A", (n * 4,), F32)
    func = host_func("wide", [wide], [n])
    source = generate_host_source(func)
    assert "at most 2147483647 (n * 4 is int32)" in source


def test_scalar_parameter_in_a_shape(build):
    n = Var("n", INT32)
    a = Buffer("A", (n, n + 1), F32)
    code = "int32_t sized_kernel(float* a, int32_t n) { a[0] = n; return 0; }"
    kernel = build(host_func("sized", [a, n]), no_messages("sized") + code, written=["A"])
    kernel(f32(2, 3), 2)
    assert bad(kernel, f32(2, 3), 3) == "kernel sized: argument A: shape[0] expected 3 (n), got 2"
    assert bad(kernel, f32(3, 3), 3) == (
        "kernel sized: argument A: shape[1] expected 4 (n + 1, n), got 3"
    )


def test_unbound_variables():
    n, m, k = (Var(x, INT32) for x in "nmk")
    with pytest.raises(ShapeError, match="uses the dynamic variable k, which is no extent"):
        generate_host_source(host_func("f", [Buffer("A", (n,), F32)], [k]))
    with pytest.raises(ShapeError, match=r"dynamic variable n of buffer A \(n \* m,\) float32"):
        generate_host_source(host_func("f", [Buffer("A", (n * m,), F32)], [n]))


def strided(build):
    n, s, t = Var("n", INT32), Var("s", I64), Var("t", INT32)
    a = Buffer("A", (n, 4), F32, "global", (s, 1))
    b = Buffer("B", (n, 2), F32, "global", (s, t))
    out = Buffer("out", (2,), I64)
    code = (
        "int32_t st_kernel(float* a, float* b, int64_t* out, int64_t s, int32_t t) "
        "{ (void)a; (void)b; out[0] = s; out[1] = t; return 0; }"
    )
    func = host_func("st", [a, b, out], [a, b, out, s, t])
    return build(func, no_messages("st") + code, written=["out"])


def test_symbolic_strides(build):
    kernel = strided(build)
    out = np.zeros(2, np.int64)
    kernel(f32(3, 10)[:, :4], f32(3, 10)[:, ::5], out)
    assert out.tolist() == [10, 5]
    kernel(f32(3, 4), f32(3, 4)[:, ::3], out)
    assert out.tolist() == [4, 3]
    one = np.lib.stride_tricks.as_strided(f32(8), (1, 4), (4000, 4))
    kernel(one, f32(1, 4)[:, ::2], out)  # rows do not matter where there is one
    assert out.tolist() == [0, 2]
    kernel(f32(0, 4), f32(0, 2), out)
    prefix = "kernel st: argument "
    for a, b, message in [
        (f32(3, 10)[:, :4], f32(3, 8)[:, ::4], "B: strides[0] expected 10 (s from A.strides[0]), "
                                               "got 8"),
        (f32(3, 8)[:, ::2], f32(3, 8)[:, ::4], "A: strides[1] expected 1, got 2"),
        (f32(3, 8)[::-1, :4], f32(3, 8)[:, ::4], "A: strides[0] expected a non-negative int64 (s)"
                                                 ", got -8"),
        (f32(3, 8)[:, :4], f32(3, 8)[:, ::-4], "B: strides[1] expected a non-negative int32 (t)"
                                               ", got -4"),
    ]:  # fmt: skip
        assert bad(kernel, a, b, out) == prefix + message


# Tensors that may be None


def test_unused_tensor_may_be_none(build):
    n = Var("n", INT32)
    a, b, out = Buffer("A", (n,), F32), Buffer("B", (n, 2), F32), Buffer("out", (1,), I64)
    code = "int32_t opt_kernel(int64_t* out, int32_t n) { *out = n; return 0; }"
    used_a = host_func("opt", [b, a, out], [out, n], used=["A", "out"])
    kernel = build(used_a, no_messages("opt") + code, written=["out"])
    result = np.zeros(1, np.int64)
    for value in (None, f32(3, 2), None):
        kernel(value, f32(3), result)
        assert result[0] == 3
    assert bad(kernel, f32(4, 2), f32(3), result) == (
        "kernel opt: argument B: shape[0] expected 3 (n from A.shape[0]), got 4"
    )
    assert bad(kernel, f32(3, 2).astype("f8"), f32(3), result) == (
        "kernel opt: argument B: dtype expected float32, got float64"
    )
    assert bad(kernel, None, None, result) == (
        "kernel opt: argument A: expected a tensor (n,) float32, got None"
    )
    # Nobody uses A or B, but n comes from one of them.
    carrier = host_func("opt", [b, a, out], [out, n], used=["out"])
    kernel = build(carrier, no_messages("opt") + code, written=["out"])
    kernel(f32(5, 2), None, result)
    assert result[0] == 5
    assert "argument B: expected a tensor (n, 2) float32, got None" in bad(
        kernel, None, f32(3), result
    )


def test_unused_tensor_is_passed_as_null(build):
    a, out = Buffer("A", (2,), F32), Buffer("out", (1,), I64)
    code = "int32_t null_kernel(float* a, int64_t* out) { *out = a == 0; return 0; }"
    func = host_func("null", [a, out], used=["out"])
    kernel = build(func, no_messages("null") + code, written=["out"])
    result = np.zeros(1, np.int64)
    kernel(None, result)
    assert result[0] == 1
    kernel(f32(2), result)
    assert result[0] == 0


# Run-time errors


def test_kernel_errors(build):
    n, k = Var("n", INT32), Var("k", INT32)
    blocks = Var("blocks", INT32)
    a = Buffer("A", (n,), F32)
    code = (
        'const char* const fails_kernel_messages[] = {"assertion failed: x > 0", "out of memory"};'
        "int32_t fails_kernel(float* a, int32_t k) { (void)a; return k; }"
    )
    before = [Bind(blocks, (n + 63) // 64), Assert(blocks < 2, 'too many "blocks": 100%')]
    kernel = build(host_func("fails", [a, k], before=before), code)
    kernel(f32(64), 0)
    for status, message in [
        (1, "assertion failed: x > 0"),
        (2, "out of memory"),
        (-7, "failed with status -7"),
    ]:
        with pytest.raises(KernelRuntimeError) as caught:
            kernel(f32(64), status)
        assert caught.value.message == f"kernel fails: {message}"
    with pytest.raises(KernelRuntimeError) as caught:
        kernel(f32(65), 0)
    assert caught.value.message == 'kernel fails: too many "blocks": 100%'


@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod", "min", "max",
                                "shl", "shr", "pow", "add", "mul", "sub"])  # fmt: skip
@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "int8"])
def test_host_arithmetic(build, op, kind):
    from tilec.arith.semantics import evaluate_binary

    dtype = DType(kind)
    x, y, out = Var("x", dtype), Var("y", dtype), Buffer("out", (1,), dtype)
    code = f"int32_t calc_kernel({kind}_t* out, {kind}_t v) {{ *out = v; return 0; }}"
    value = ir.binary(ir.BinOp(op), x, y)
    func = host_func("calc", [x, y, out], [out, value])
    calc = build(func, no_messages("calc") + code, written=["out"])
    low, high = dtype.int_range
    result = np.zeros(1, kind)
    for a in (low, high, 0, 7, 1 if low == 0 else -7):
        for b in (0, 1, 3, high, 200 % (high + 1), low, 5 if low == 0 else -1):
            calc(a, b, result)
            assert result[0] == evaluate_binary(op, a, b, dtype), (op, a, b)


def test_names_that_clash(build):
    """Parameters called like C words, macros or the stub's own variables."""
    names = ["int", "args", "kernel", "INT32_MAX", "NULL", "self_handle", "tilec_fail", "größe"]
    buffers = [Buffer(name, (Var("status", INT32),), F32) for name in names]
    unused = ", ".join(f"float* b{i}" for i in range(len(names)))
    voids = " ".join(f"(void)b{i};" for i in range(len(names)))
    code = f"int32_t odd_kernel({unused}) {{ {voids} return 0; }}"
    build(host_func("odd", buffers), no_messages("odd") + code)(*[f32(2)] * len(names))
