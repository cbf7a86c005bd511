"""Public bugs of the field as tests: the front end, launches and arguments (B103 to B148)."""

from __future__ import annotations

import importlib.util
import linecache
import math
import random

import numpy as np
import pytest

import tilec
import tilec.language as L
import tilec.language as T
from tilec.diagnostics import LaunchError, ScopeError, TilecError, UnsupportedSyntaxError
from tilec.language import Parallel as parallel_loop


def run(func, *arrays, **options):
    return tilec.compile(func, **options)(*arrays)


def one(func, dtype="int32", *inputs):
    """Run a kernel whose last parameter is a one-element output; its value."""
    out = np.zeros(1, dtype)
    run(func, *inputs, out)
    return out[0]


def test_b104_bases_of_exponentials():
    @T.prim_func
    def f(A: T.Tensor((1,), "float32"), B: T.Tensor((3,), "float32")):
        with T.Kernel(1):
            B[0] = T.exp(A[0])
            B[1] = T.exp2(A[0])
            B[2] = T.exp10(A[0])

    b = np.zeros(3, "float32")
    run(f, np.ones(1, "float32"), b)
    np.testing.assert_allclose(b, [math.e, 2, 10], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_b105_rounding_of_ties(dtype):
    pytest.importorskip("ml_dtypes")
    from tilec.arith import storage_dtype

    kind = storage_dtype(T.dtype(dtype))
    a = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.25, 7.75]).astype(kind)

    @T.prim_func
    def f(A: T.Tensor((8,), dtype), B: T.Tensor((3, 8), dtype)):
        with T.Kernel(1):
            for i in T.Parallel(8):
                B[0, i] = T.round(A[i], "ties-away-from-zero")
                B[1, i] = T.round(A[i])
                B[2, i] = T.nearbyint(A[i])

    b = np.zeros((3, 8), kind)
    run(f, a, b)
    x = a.astype("float64")
    np.testing.assert_array_equal(b[0].astype("float64"), np.sign(x) * np.floor(abs(x) + 0.5))
    np.testing.assert_array_equal(b[1].astype("float64"), np.round(x))
    np.testing.assert_array_equal(b[2].astype("float64"), np.round(x))


def test_b106_signed_nibbles():
    @T.prim_func
    def f(A: T.Tensor((2,), "uint32"), B: T.Tensor((16,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(16):
                nibble = T.cast((A[i // 8] >> T.cast(i % 8 * 4, "uint32")) & 15, "int32")
                B[i] = (nibble << 28) >> 28

    values = np.arange(-8, 8)
    packed = np.zeros(2, "uint32")
    for i, v in enumerate(values):
        packed[i // 8] |= np.uint32((int(v) & 15) << (i % 8 * 4))
    b = np.zeros(16, "int32")
    run(f, packed, b)
    np.testing.assert_array_equal(b, values)


def test_b108_wide_indices():
    @T.prim_func
    def f(
        Cache: T.Tensor((10, 2), "int32"), Pos: T.Tensor((3,), "int64"),
        Out: T.Tensor((3, 2), "int32"), Start: T.Tensor((1,), "uint64"),
        Seen: T.Tensor((10,), "int32"),
    ):  # fmt: skip
        with T.Kernel(3) as bx:
            for i in T.Parallel(2):
                Out[bx, i] = Cache[Pos[bx], i]
        with T.Kernel(1):
            a = Start[0]
            for k in T.serial(a, a + 3):
                Seen[k] = 1

    cache, pos = np.arange(20, dtype="int32").reshape(10, 2), np.array([7, 0, 9])
    out, seen = np.zeros((3, 2), "int32"), np.zeros(10, "int32")
    run(f, cache, pos, out, np.array([4], "uint64"), seen)
    np.testing.assert_array_equal(out, cache[pos])
    assert list(np.flatnonzero(seen)) == [4, 5, 6]


def test_b109_unsigned_narrow_indices():
    @T.prim_func
    def f(Table: T.Tensor((256,), "int32"), Index: T.Tensor((256,), "uint8"),
          Out: T.Tensor((256,), "int32")):  # fmt: skip
        with T.Kernel(1):
            for i in T.Parallel(256):
                Out[i] = Table[Index[i]]

    table, out = np.arange(256, dtype="int32") * 3, np.zeros(256, "int32")
    run(f, table, np.arange(256, dtype="uint8"), out)
    np.testing.assert_array_equal(out, table)


def test_b110_variables_keep_their_type():
    @T.prim_func
    def f(A: T.Tensor((1,), "float32"), B: T.Tensor((2,), "float32")):
        with T.Kernel(1):
            x = T.alloc_var("int32", init=A[0] * 1.5)
            y = T.alloc_var("float32", init=3)
            y = y / 2
            B[0] = T.cast(x, "float32")
            B[1] = y

    b = np.zeros(2, "float32")
    run(f, np.ones(1, "float32"), b)
    assert list(b) == [1.0, 1.5]


_INT_OPERATORS = ("+", "-", "*", "//", "%", "&", "|", "^")


def _tree(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(("a", "b", "c", str(rng.randint(0, 9))))
    kind = rng.randrange(8)
    if kind == 0:
        return f"-{_tree(rng, depth - 1)}" if rng.random() < 0.5 else f"~{_tree(rng, depth - 1)}"
    if kind == 1:
        cond = f"{_tree(rng, depth - 1)} {rng.choice(('<', '==', '>='))} {_tree(rng, depth - 1)}"
        return f"({_tree(rng, depth - 1)} if {cond} else {_tree(rng, depth - 1)})"
    text = f"{_tree(rng, depth - 1)} {rng.choice(_INT_OPERATORS)} {_tree(rng, depth - 1)}"
    return f"({text})" if rng.random() < 0.5 else text


def test_b111_operator_precedence():
    """Random expression trees mean what Python says they mean."""
    rng = random.Random(7)
    trees: list[str] = []
    while len(trees) < 60:
        tree = _tree(rng, 4)
        try:
            values = [eval(tree, {"a": a, "b": b, "c": c}) for a, b, c in _POINTS]
        except ZeroDivisionError:
            continue
        if all(abs(v) < 2**31 for v in values) and "a" in tree and tree.count(" ") > 3:
            trees.append(tree)
    lines = ["@T.prim_func", 'def f(P: T.Tensor((5, 3), "int32"), B: T.Tensor((60, 5), "int32")):']
    lines += ["    with T.Kernel(5) as bx:", "        a, b, c = P[bx, 0], P[bx, 1], P[bx, 2]"]
    lines += [f"        B[{n}, bx] = {tree}" for n, tree in enumerate(trees)]
    func = T.from_script("\n".join(lines) + "\n")
    out = np.zeros((60, 5), "int32")
    run(func, np.array(_POINTS, "int32"), out)
    for n, tree in enumerate(trees):
        for m, (a, b, c) in enumerate(_POINTS):
            assert out[n, m] == eval(tree, {"a": a, "b": b, "c": c}), tree


_POINTS = [(5, 3, 2), (-7, 3, 9), (100, -4, 1), (1, 1, 1), (-1, -2, -3)]


def test_b112_unsigned_generator():
    @T.prim_func
    def f(A: T.Tensor((1,), "uint32"), B: T.Tensor((10,), "uint32")):
        with T.Kernel(1):
            x = T.alloc_var("uint32", init=A[0])
            for i in T.serial(10):
                x = x * 1664525 + 1013904223
                x = x ^ (x << 13)
                x = x ^ (x >> 17)
                B[i] = x % 1000

    x, want = np.uint32(12345), []
    with np.errstate(over="ignore"):
        for _ in range(10):
            x = x * np.uint32(1664525) + np.uint32(1013904223)
            x = x ^ (x << np.uint32(13))
            x = x ^ (x >> np.uint32(17))
            want.append(x % np.uint32(1000))
    b = np.zeros(10, "uint32")
    run(f, np.array([12345], "uint32"), b)
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "uint8"])
def test_b115_atomics_convert_first(dtype):
    pytest.importorskip("ml_dtypes")
    from tilec.arith import storage_dtype

    @T.prim_func
    def f(C: T.Tensor((3,), dtype), V: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=1):
            T.atomic_add(C[0], V[0])
            T.atomic_max(C[1], V[0])
            T.atomic_min(C[2], V[0])

    c = np.array([1, 1, 100]).astype(storage_dtype(T.dtype(dtype)))
    run(f, c, np.array([42.0], "float32"))
    assert list(c.astype("int64")) == [43, 42, 42]


def test_b117_b118_previous_values():
    @T.prim_func
    def f(C: T.Tensor((2,), "int64"), Old: T.Tensor((2,), "int64")):
        with T.Kernel(1, threads=1):
            a = T.atomic_max(C[0], T.int64(2**40), return_prev=True)
            b = T.atomic_min(C[1], T.int64(-5), return_prev=True)
            Old[0] = a
            Old[1] = b

    c, old = np.array([3, 4]), np.zeros(2, "int64")
    run(f, c, old)
    assert list(c) == [2**40, -5]
    assert list(old) == [3, 4]


def test_b121_loop_else():
    def build():
        @T.prim_func
        def f(A: T.Tensor((1,), "int32")):
            with T.Kernel(1):
                for _i in range(1):
                    A[0] += 1
                else:
                    A[0] += 100

    with pytest.raises(UnsupportedSyntaxError, match="else"):
        build()


def test_b122_chained_comparisons():
    @T.prim_func
    def f(A: T.Tensor((3,), "float32"), B: T.Tensor((3, 3), "int32")):
        with T.Kernel(3) as bx:
            x = A[bx]
            B[0, bx] = T.cast(0.0 < x < 1.0, "int32")
            B[1, bx] = T.cast(-2.0 <= x < 1.0 < 3.0, "int32")
            if 1 < 5 < 3:
                B[2, bx] = 1

    b = np.zeros((3, 3), "int32")
    run(f, np.array([-1, 0.5, 2], "float32"), b)
    assert b.tolist() == [[0, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_b123_bound_values_are_evaluated_once():
    @T.prim_func
    def f(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(4):
                tmp = T.max(A[i], 1.0)
                A[i] = tmp * 2
                B[i] = tmp / 2

    a, b = np.array([0, 1, 2, 3], "float32"), np.zeros(4, "float32")
    run(f, a, b)
    np.testing.assert_array_equal(b, [0.5, 0.5, 1, 1.5])


def test_b124_names_used_again():
    @T.prim_func
    def f(A: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            acc = T.alloc_var("int32", init=0)
            for x in T.serial(4):
                acc += x
            for x in T.serial(3):
                acc += 10 * x
            A[0] = acc

    assert one(f) == 6 + 30


def test_b125_macros_and_closures():
    m = T.dynamic("m")

    @T.macro
    def fill(B):
        for i in T.serial(m):
            B[i] = m

    @T.macro
    def swapped(a, b):
        a, b = b, a
        return a - b

    @T.prim_func
    def f(B: T.Tensor((m,), "int32")):
        with T.Kernel(1):
            fill(B)
            B[0] = swapped(B[1], B[2] + 5)

    b = np.zeros(6, "int32")
    run(f, b)
    assert list(b) == [5, 6, 6, 6, 6, 6]


@pytest.mark.parametrize("dtype", ["int32", "bool", "float32", "float16"])
def test_b126_truth_of_numbers(dtype):
    @T.prim_func
    def f(A: T.Tensor((3,), dtype), B: T.Tensor((3,), "int32")):
        with T.Kernel(3) as bx:
            if A[bx]:
                B[bx] += 1
            if not A[bx]:
                B[bx] += 2
            while A[bx]:
                A[bx] = 0
                B[bx] += 4

    b = np.zeros(3, "int32")
    run(f, np.array([0, 1, 1]).astype(dtype), b)
    assert list(b) == [2, 5, 5]


def test_b127_conditional_updates_in_loops():
    @T.prim_func
    def f(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            col = T.alloc_var("int32", init=bx)
            for i in range(5):
                if col > i:
                    col -= i + 1
            B[bx] = col

    def python(col):
        for i in range(5):
            if col > i:
                col -= i + 1
        return col

    b = np.zeros(8, "int32")
    run(f, b)
    assert list(b) == [python(n) for n in range(8)]


def test_b128_sibling_loops_share_names():
    @T.prim_func
    def f(B: T.Tensor((8,), "int32")):
        for_list = [i * 2 for i in range(4)]
        with T.Kernel(1):
            for i in T.serial(2):
                B[i] = for_list[1]
            for i in T.serial(2):
                B[i + 2] = i
        with T.Kernel(1):
            for i in T.serial(4):
                B[i + 4] = i * i

    b = np.zeros(8, "int32")
    run(f, b)
    assert list(b) == [2, 2, 0, 1, 0, 1, 4, 9]


@pytest.mark.parametrize("fast", [False, True])
def test_b129_early_returns(fast):
    def helper(x):
        if fast:
            return 1
        return x + 5

    @T.macro
    def pick(x):
        if fast:
            return 2
        return x * 3

    @T.prim_func
    def f(B: T.Tensor((4,), "int32"), n: T.int32):
        with T.Kernel(4) as bx:
            if bx >= n:
                return
            B[bx] = helper(10) + pick(bx)

    b = np.zeros(4, "int32")
    run(f, b, 2)
    assert list(b) == ([3, 3, 0, 0] if fast else [15, 18, 0, 0])


def test_b129_return_in_a_loop_ends_the_block():
    @T.prim_func
    def f(A: T.Tensor((4,), "int32"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                if A[i] < 0:
                    return
                B[0] += A[i]
            B[0] += 1000

    assert one(f, "int32", np.array([1, 2, -3, 4], "int32")) == 3
    assert one(f, "int32", np.array([1, 2, 3, 4], "int32")) == 1010


def test_b130_names_bound_in_a_loop():
    def build():
        @T.prim_func
        def f(A: T.Tensor((1,), "float32")):
            with T.Kernel(1):
                for _ in range(1):
                    v = 1.0
                A[0] = v

    with pytest.raises(ScopeError, match="`v`"):
        build()


def test_b131_static_branches():
    static = False

    @T.prim_func
    def f(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4):
            tid = T.get_thread_binding()
            if tid == 2:
                A[tid] = 1
            elif static:
                A[tid, tid, "nonsense"] = T.no_such_name(1)
            else:
                A[tid] = 2

    a = np.zeros(4, "int32")
    run(f, a)
    assert list(a) == [2, 2, 1, 2]


def test_b132_forms_of_arguments():
    @tilec.jit(out_idx=[-1], target="c")
    def factory(*sizes, **extra):
        n = sizes[0] + extra.get("more", 0)

        @T.prim_func
        def f(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
            with T.Kernel(n) as (pid,):
                for k in T.serial(pid, pid + 1):
                    value = T.alloc_var("int32", init=A[k])
                    value -= 1
                    B[k] = value

        return f

    assert list(factory(2, more=1)(np.array([5, 6, 7], "int32"))) == [4, 5, 6]

    @T.prim_func
    def empty(A: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            pass

    run(empty, np.zeros(1, "int32"))


def test_b133_variables_and_python_indices():
    @T.prim_func
    def f(B: T.Tensor((1,), "float32")):
        with T.Kernel(1):
            n = T.alloc_var("int32", init=1)
            buf = T.alloc_local((4,), "float32")
            T.fill(buf, 2.5)
            v = T.alloc_var("float32", init=0)
            j = 0
            v = T.max(v, buf[j])
            B[0] = v + T.cast(n, "float32")

    assert one(f, "float32") == 3.5


def test_b135_the_language_under_any_name():
    @L.prim_func
    def f(B: L.Tensor((4,), "int32")):
        with L.Kernel(1):
            for i in parallel_loop(4):
                B[i] = i

    b = np.zeros(4, "int32")
    run(f, b)
    assert list(b) == [0, 1, 2, 3]


def test_b136_a_file_edited_after_import(tmp_path):
    path = tmp_path / "edited_kernel.py"
    text = (
        "import tilec\nimport tilec.language as T\n\n\n"
        "@tilec.jit(target='c')\ndef one(n):\n"
        "    A = T.empty((n,), T.int32)\n    with T.Kernel(1):\n"
        "        T.fill(A, 1)\n    return A\n"
    )
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("edited_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("# one\n# two\n" + text.replace("T.fill(A, 1)", "T.fill(A, 2)"))
    linecache.checkcache(str(path))
    try:
        result = module.one(2)
    except TilecError as error:
        assert "does not match" in str(error)  # noqa: PT017 - both answers are right
    else:
        assert list(result) == [1, 1]


@pytest.mark.parametrize("threads", [-1, 0, "128", (64, 0), 1.5])
def test_b138_thread_counts(threads):
    def build():
        @T.prim_func
        def f(A: T.Tensor((1,), "int32")):
            with T.Kernel(1, threads=threads):
                A[0] = 1

    with pytest.raises(LaunchError):
        build()


def test_b139_empty_grid():
    @T.prim_func
    def f(A: T.Tensor((4,), "int32")):
        with T.Kernel(0):
            A[0] = 1

    a = np.zeros(4, "int32")
    run(f, a)
    assert not a.any()


def test_b141_rank_zero():
    @T.prim_func
    def f(A: T.Tensor((), "int32"), B: T.Tensor((), "int32")):
        with T.Kernel(1):
            B[()] = A[()] + 1

    b = np.zeros((), "int32")
    run(f, np.array(41, "int32"), b)
    assert b == 42


@pytest.mark.parametrize("strides", [(77, 1), (1, 1), (1000, 1)])
def test_b142_strides_of_dimensions_of_one(strides):
    @T.prim_func
    def f(A: T.Tensor((1, 77), "float32"), B: T.Tensor((77,), "float32")):
        with T.Kernel(1):
            T.copy(A[0, :], B)

    base = np.arange(2000, dtype="float32")
    a = np.lib.stride_tricks.as_strided(base, (1, 77), tuple(4 * s for s in strides))
    b = np.zeros(77, "float32")
    run(f, a, b)
    np.testing.assert_array_equal(b, a[0])


def test_b145_options_of_one_compile_stay_there():
    config = {"tl.disable_warp_specialized": True}

    @T.prim_func
    def f(A: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            A[0] = 1

    first = tilec.compile(f, target="c", pass_configs=config)
    second = tilec.compile(f, target="c", pass_configs=config)
    third = tilec.compile(f, target="c")
    assert config == {"tl.disable_warp_specialized": True}
    assert first.context.config == second.context.config != third.context.config


def test_b147_while_on_a_fragment():
    @T.prim_func
    def f(B: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            flag = T.alloc_fragment((1,), "int32")
            T.fill(flag, 5)
            while flag[0] > 0:
                flag[0] = flag[0] - 2
                B[0] += 1

    assert one(f) == 3


def test_b148_barriers():
    def build(count):
        @T.prim_func
        def f(A: T.Tensor((1,), "int32")):
            with T.Kernel(1):
                T.alloc_barrier(count)
                A[0] = 1

        return f

    with pytest.raises(ValueError, match="arrive count"):
        build(0)
    with pytest.raises(NotImplementedError, match="barrier"):
        tilec.compile(build(1), target="c")
