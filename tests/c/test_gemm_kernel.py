"""The tile multiplication kernel against NumPy, in many shapes, orientations and types."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilec_c.cpu import AVX2, AVX512, GENERIC, NEON, SSE2, Isa
from tilec_c.gemm import GemmSpec, emit_gemm, preferred_layout, supports
from tilec_c.prelude import C_TYPE, SUFFIX, render
from tilec_c.toolchain import compile_shared, find_toolchain

NUMPY = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
GUARD = 64


def build(specs: list[GemmSpec], isa: Isa | None = None) -> Any:
    """One library with a function ``run<i>`` per spec."""
    kernels = [emit_gemm(f"g{i}", s, isa or find_toolchain().isa) for i, s in enumerate(specs)]
    source = render(f for kernel in kernels for f in kernel.features)
    for i, (kernel, spec) in enumerate(zip(kernels, specs, strict=True)):
        a, b, c = (C_TYPE[SUFFIX[d]] for d in (spec.dtype_a, spec.dtype_b, spec.dtype_acc))
        source += kernel.source + (
            f"\nTILEC_EXPORT void run{i}(const {a} *A, const {b} *B, {c} *C) {{ g{i}(A, B, C); }}\n"
        )
    result = compile_shared(source, extra_flags=("-Wall", "-Wextra", "-Werror"))
    return ctypes.CDLL(str(result.path))


def dtype_of(name: str) -> Any:
    return NUMPY.get(name) or np.dtype(name)


def matrix(rng: Any, rows: int, columns: int, pitch: int, name: str) -> tuple[Any, Any]:
    """Storage with guard elements around it, and the view of the matrix inside."""
    dtype = dtype_of(name)
    size = (rows - 1) * pitch + columns
    if dtype.kind in "iu":
        data = rng.integers(-100 if dtype.kind == "i" else 0, 100, size + 2 * GUARD)
    else:
        data = rng.standard_normal(size + 2 * GUARD)
    store = data.astype(dtype)
    inside = np.lib.stride_tricks.as_strided(
        store[GUARD:], (rows, columns), (pitch * dtype.itemsize, dtype.itemsize)
    )
    return store, inside


def check(library: Any, index: int, spec: GemmSpec) -> None:
    rng = np.random.default_rng(index)
    shape_a = (spec.k, spec.m) if spec.trans_a else (spec.m, spec.k)
    shape_b = (spec.n, spec.k) if spec.trans_b else (spec.k, spec.n)
    store_a, a = matrix(rng, *shape_a, spec.lda or shape_a[1], spec.dtype_a)
    store_b, b = matrix(rng, *shape_b, spec.ldb or shape_b[1], spec.dtype_b)
    store_c, c = matrix(rng, spec.m, spec.n, spec.ldc or spec.n, spec.dtype_acc)
    integer = dtype_of(spec.dtype_acc).kind in "iu"
    wide: Any = dtype_of(spec.dtype_acc) if integer else np.float64
    left = (a.T if spec.trans_a else a).astype(wide)
    right = (b.T if spec.trans_b else b).astype(wide)
    with np.errstate(over="ignore"):
        expected = left @ right + (0 if spec.clear else c.astype(wide))
    before = store_c.copy()
    touched = np.zeros(store_c.shape, bool)
    np.lib.stride_tricks.as_strided(touched[GUARD:], (spec.m, spec.n), (spec.ldc or spec.n, 1))[
        :
    ] = True
    pointers = [
        ctypes.c_void_p(s.ctypes.data + GUARD * s.itemsize) for s in (store_a, store_b, store_c)
    ]
    getattr(library, f"run{index}")(*pointers)
    np.testing.assert_array_equal(
        store_c[~touched].view(np.uint8), before[~touched].view(np.uint8), err_msg=str(spec)
    )
    if integer:
        np.testing.assert_array_equal(c, expected.astype(c.dtype), err_msg=str(spec))
        return
    epsilon = float(ml_dtypes.finfo(c.dtype).eps)
    scale = np.abs(left) @ np.abs(right) + np.abs(expected) + 1e-30
    # Halves are rounded once; the wider types collect an error at each of k steps.
    steps = 0.51 if spec.dtype_acc in ("float16", "bfloat16") else 1 + spec.k / 8
    slack = 0.0 if steps > 1 else 1e-6 * spec.k
    error = np.abs(c.astype(np.float64) - expected)
    base = np.abs(expected) if steps < 1 else scale
    assert (error <= steps * epsilon * base + slack * scale + 1e-7).all(), (spec, error.max())


def run_all(specs: list[GemmSpec], isa: Isa | None = None) -> None:
    library = build(specs, isa)
    for index, spec in enumerate(specs):
        check(library, index, spec)


SHAPES = [(1, 1, 1), (1, 33, 7), (2, 130, 5), (3, 16, 8), (7, 9, 300), (13, 31, 17), (16, 8, 16),
          (37, 67, 29), (64, 64, 64), (65, 48, 257), (5, 1, 9), (128, 40, 513),
          (29, 100, 31)]  # fmt: skip


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
def test_shapes_and_orientations(trans_a: bool, trans_b: bool) -> None:
    run_all(
        [
            GemmSpec(m, n, k, trans_a=trans_a, trans_b=trans_b, clear=i % 2 == 1)
            for i, (m, n, k) in enumerate(SHAPES)
        ]
    )


def test_pitches() -> None:
    run_all(
        [
            GemmSpec(
                m, n, k, trans_a=ta, trans_b=tb, clear=clear,
                lda=(m if ta else k) + 3, ldb=(k if tb else n) + 5, ldc=n + 7,
            )
            for m, n, k in [(9, 40, 21), (32, 64, 48)]
            for ta in (False, True) for tb in (False, True) for clear in (False, True)
        ]
    )  # fmt: skip


def test_panels_whose_rows_share_sets_of_the_cache_are_packed() -> None:
    packed = [GemmSpec(128, 128, 64), GemmSpec(96, 1024, 300, clear=True),
              GemmSpec(70, 130, 65, ldb=256, trans_a=True)]  # fmt: skip
    plain = [GemmSpec(64, 64, 64), GemmSpec(8, 128, 64), GemmSpec(128, 96, 64)]
    for specs, packs in ((packed, True), (plain, False)):
        for spec in specs:
            assert ("g_pack_b" in emit_gemm("g", spec, AVX2).source) is packs, spec
        run_all(specs)
        run_all(specs, AVX2)


TYPES = [
    ("float16", "float16", "float32"), ("bfloat16", "bfloat16", "float32"),
    ("float16", "float16", "float16"), ("bfloat16", "bfloat16", "bfloat16"),
    ("float32", "float32", "float16"), ("float64", "float64", "float64"),
    ("float32", "float32", "float64"), ("float16", "float32", "float32"),
    ("int8", "int8", "int32"), ("uint8", "int8", "int32"), ("uint8", "uint8", "uint32"),
    ("int32", "int32", "int32"), ("int8", "int8", "int8"), ("int64", "int64", "int64"),
    ("int8", "float16", "float32"), ("int16", "int8", "int64"),
]  # fmt: skip


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_element_types(types: tuple[str, str, str]) -> None:
    shapes = [(17, 35, 19), (8, 64, 300), (3, 5, 2), (32, 16, 64)]
    run_all(
        [
            GemmSpec(m, n, k, *types, trans_a=ta, trans_b=tb, clear=(i + tb) % 2 == 1)
            for i, (m, n, k) in enumerate(shapes)
            for ta in (False, True) for tb in (False, True)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("isa", [AVX512, AVX2, SSE2, NEON, GENERIC], ids=lambda isa: isa.name)
def test_text_for_any_vector_unit_is_right_here(isa: Isa) -> None:
    run_all(
        [
            GemmSpec(m, n, k, trans_b=tb, dtype_a=dtype, dtype_b=dtype)
            for m, n, k in [(13, 37, 21), (24, 96, 64)]
            for tb in (False, True) for dtype in ("float32", "bfloat16")
        ],
        isa,
    )  # fmt: skip


def test_infinities_and_nan_pass_through() -> None:
    spec = GemmSpec(4, 6, 3)
    library = build([spec])
    a = np.ones((4, 3), np.float32)
    b = np.ones((3, 6), np.float32)
    c = np.zeros((4, 6), np.float32)
    a[0, 0], a[1, 1], b[0, 2] = np.inf, np.nan, -np.inf
    library.run0(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a @ b)


def test_unsupported_types_are_refused() -> None:
    bad = GemmSpec(4, 4, 4, "float32", "float32", "int32")
    assert not supports(bad)
    assert not supports(GemmSpec(4, 4, 4, "float8_e4m3fn"))
    with pytest.raises(ValueError, match="does not multiply float32 x float32 -> int32"):
        emit_gemm("g", bad, AVX2)


def test_layouts_are_plain_rows_except_whole_pages() -> None:
    a, b = preferred_layout(GemmSpec(64, 1024, 128))
    assert (a.rows, a.columns, a.pitch) == (64, 128, 128)
    assert (b.rows, b.columns, b.pitch) == (128, 1024, 1040)


def test_same_spec_gives_same_text() -> None:
    spec = GemmSpec(37, 67, 29, "float16", "float16", "float32", trans_b=True)
    first, second = (emit_gemm("g", dataclasses.replace(spec), AVX2) for _ in range(2))
    assert first == second


def test_multiply_adds_are_fused_and_nothing_spills(tmp_path: Path) -> None:
    tool = find_toolchain()
    if tool.family != "gcc" or not tool.isa.fma or tool.cpu.machine != "x86_64":
        pytest.skip("reads the x86 assembly that gcc writes")
    kernel = emit_gemm("g", GemmSpec(128, 128, 64), tool.isa)
    text = render(kernel.features) + kernel.source
    text += "\nTILEC_EXPORT void run(const float *A, const float *B, float *C) { g(A, B, C); }\n"
    (tmp_path / "g.c").write_text(text)
    command = [*tool.argv, *tool.flags(), "-S", "-o", "-", "g.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    loops = re.split(r"^\.L\d+:$", done.stdout, flags=re.MULTILINE)
    inner = max(loops, key=lambda block: block.count("vfmadd"))
    assert inner.count("vfmadd") >= 10
    assert "vmulps" not in inner
    assert "(%rsp)" not in inner
    assert "(%rbp)" not in inner
