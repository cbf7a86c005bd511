"""Public bugs of the field as tests: what does not fit into the other files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.diagnostics import OperandError


def run(func, *arrays, **options):
    return tilec.compile(func, **options)(*arrays)


def test_b015_broad_guarded_loop_over_a_strided_tensor():
    @T.prim_func
    def f(
        Token: T.Tensor((64,), "int32"),
        Out: T.StridedTensor((64, 8000), (8192, 1), "uint8"),
    ):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(64, 8192):
                if Token[i] < 1:
                    Out[i, j] = T.cast(j % 251, "uint8")

    token = (np.arange(64) % 3).astype("int32")
    store = np.full((64, 8192), 7, "uint8")
    run(f, token, store[:, :8000])
    want = np.full((64, 8192), 7, "uint8")
    want[token < 1, :8000] = (np.arange(8000) % 251).astype("uint8")
    np.testing.assert_array_equal(store, want)


def test_b023_first_trip_by_hand():
    @T.prim_func
    def f(A: T.Tensor((32, 128), "float32"), B: T.Tensor((128, 32), "float32"),
          C: T.Tensor((32, 32), "float32")):  # fmt: skip
        with T.Kernel(1):
            a = T.alloc_shared((32, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(0, 1, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            for k in T.Pipelined(1, T.ceildiv(128, 32), num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((32, 128), "float32"), rng.standard_normal((128, 32), "float32")
    c = np.zeros((32, 32), "float32")
    run(f, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_b044_indices_of_unknown_sign_are_not_wrapped():
    """A negative constant counts from the end; a negative run-time index is outside."""

    @T.prim_func
    def f(A: T.Tensor((1024,), "float32"), B: T.Tensor((4, 4), "float32")):
        with T.Kernel(1):
            for t in T.serial(4):
                for j in T.vectorized(4):
                    B[t, j] = A[t + j - 2]

    a, b = np.arange(1024, dtype="float32") + 1, np.zeros((4, 4), "float32")
    run(f, a, b)
    want = [[a[t + j - 2] if t + j >= 2 else 0 for j in range(4)] for t in range(4)]
    np.testing.assert_array_equal(b, want)


def test_b057_slices_have_no_step():
    def build():
        @T.prim_func
        def f(A: T.Tensor((8, 16), "float32")):
            with T.Kernel(1):
                s = T.alloc_shared((8, 8), "float32")
                T.copy(A[:, 0::2], s)

    with pytest.raises(OperandError, match="step"):
        build()


@pytest.mark.parametrize("threads", [24, 33, 48, 96])
def test_b066_sums_with_any_number_of_threads(threads):
    @T.prim_func
    def f(A: T.Tensor((1, threads), "int32"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=threads):
            x = T.alloc_fragment((1, threads), "int32")
            s = T.alloc_fragment((1,), "int32")
            T.copy(A, x)
            T.reduce_sum(x, s, dim=1)
            T.copy(s, B)

    b = np.zeros(1, "int32")
    run(f, np.arange(1, threads + 1, dtype="int32")[None], b)
    assert b[0] == threads * (threads + 1) // 2


@pytest.mark.parametrize(("dtype", "k"), [("int8", 8), ("int8", 16), ("bfloat16", 8), ("int8", 40)])
def test_b087_shallow_products(dtype, k):
    pytest.importorskip("ml_dtypes")
    from tilec.arith import storage_dtype

    acc = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def f(A: T.Tensor((16, k), dtype), B: T.Tensor((k, 16), dtype), C: T.Tensor((16, 16), acc)):
        with T.Kernel(1):
            a = T.alloc_shared((16, k), dtype)
            b = T.alloc_shared((k, 16), dtype)
            c = T.alloc_fragment((16, 16), acc)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    rng = np.random.default_rng(0)
    kind = storage_dtype(T.dtype(dtype))
    a, b = (rng.integers(-8, 8, s).astype(kind) for s in ((16, k), (k, 16)))
    c = np.zeros((16, 16), acc)
    run(f, a, b, c)
    np.testing.assert_array_equal(c, a.astype("float64") @ b.astype("float64"))


def test_b052_sources_do_not_depend_on_the_hash_seed(tmp_path):
    script = tmp_path / "build.py"
    script.write_text(
        "import hashlib, tilec\nimport tilec.language as T\n"
        "@T.prim_func\n"
        "def f(A: T.Tensor((96, 64), 'float16'), B: T.Tensor((64, 96), 'float16'),"
        " C: T.Tensor((96, 96), 'float32')):\n"
        "    with T.Kernel(2, 2) as (bx, by):\n"
        "        a = T.alloc_shared((64, 32), 'float16')\n"
        "        b = T.alloc_shared((32, 64), 'float16')\n"
        "        c = T.alloc_fragment((64, 64), 'float32')\n"
        "        T.clear(c)\n"
        "        for k in T.Pipelined(2, num_stages=3):\n"
        "            T.copy(A[by * 64, k * 32], a)\n"
        "            T.copy(B[k * 32, bx * 64], b)\n"
        "            T.gemm(a, b, c)\n"
        "        T.copy(c, C[by * 64, bx * 64])\n"
        "artifact = tilec.lower(f, target='c')\n"
        "text = artifact.kernel_source + artifact.host_source\n"
        "from tilec import ir\n"
        "print(hashlib.sha256(text.encode()).hexdigest(), ir.structural_hash(f))\n"
    )
    seen = set()
    for seed in ("0", "1", "12345"):
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1


def test_b156_compiling_in_several_threads():
    def build(n):
        @T.prim_func
        def f(A: T.Tensor((n,), "int32")):
            with T.Kernel(1):
                for i in T.Parallel(n):
                    A[i] = i * n

        return f

    expected = {n: tilec.lower(build(n), target="c").kernel_source for n in range(3, 11)}
    failures = []

    def work(n):
        try:
            for _ in range(3):
                if tilec.lower(build(n), target="c").kernel_source != expected[n]:
                    failures.append(n)
            a = np.zeros(n, "int32")
            run(build(n), a)
            if list(a) != [i * n for i in range(n)]:
                failures.append(n)
        except Exception as error:  # noqa: BLE001 - reported by the test
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(n,)) for n in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
