"""Lane code computes what its program means: run lane by lane, races looked for, and compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tilec
import tilec.language as T
from tilec import ir
from tilec.arith import storage_dtype
from tilec.interp import run as interpret

TARGET = {"kind": "simt", "check": True}
THREADS = [
    96,
    128,
    *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 32, 256)),
]


def agree(func: ir.PrimFunc, seed: int = 0, **scalars: int) -> None:
    """Run tile form and lane code on small integers; every tensor is the same afterwards."""
    rng = np.random.default_rng(seed)
    arrays: list[Any] = []
    for param in func.params:
        assert isinstance(param, ir.Buffer)
        shape = tuple(e if isinstance(e, int) else scalars[ir.to_text(e)] for e in param.shape)
        low = 0 if param.dtype.is_uint or param.dtype.is_bool else -9
        high = 2 if param.dtype.is_bool else 10
        arrays.append(rng.integers(low, high, shape).astype(storage_dtype(param.dtype)))
    wanted = [a.copy() for a in arrays]
    interpret(func, *wanted)
    tilec.compile(func, target=TARGET)(*arrays)
    for want, got in zip(wanted, arrays, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (16, 64), (3, 257)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_elementwise(threads: int, shape: tuple[int, int], dtype: str) -> None:
    rows, columns = shape

    @T.prim_func
    def f(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment(shape, dtype)
            kept = T.alloc_shared(shape, dtype)
            T.copy(A, tile)
            for i, j in T.Parallel(rows, columns):
                kept[i, j] = tile[i, j] + T.cast(i, dtype)
            for i, j in T.Parallel(rows, columns):
                tile[i, j] = kept[rows - 1 - i, columns - 1 - j] * T.cast(2, dtype)
            T.copy(tile, B)

    agree(f)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kind", ["sum", "max", "absmax", "bitxor"])
@pytest.mark.parametrize("shape", [(1, 300), (13, 7), (64, 1), (5, 129)])
def test_reductions(threads: int, kind: str, shape: tuple[int, int]) -> None:
    rows, columns = shape
    dtype = "int32" if kind.startswith("bit") else "float32"

    @T.prim_func
    def f(
        A: T.Tensor(shape, dtype),
        B: T.Tensor((rows,), dtype),
        C: T.Tensor((columns,), dtype),
        D: T.Tensor((rows, 1), dtype),
    ):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment(shape, dtype)
            by_row = T.alloc_fragment((rows,), dtype)
            by_column = T.alloc_fragment((columns,), dtype)
            kept = T.alloc_fragment((rows, 1), dtype)
            T.copy(A, tile)
            T.copy(D, kept)
            T.reduce(tile, by_row, kind, 1, True)
            T.reduce(tile, by_column, kind, 0, True)
            T.reduce(tile, kept, kind, 1, False)
            T.copy(by_row, B)
            T.copy(by_column, C)
            T.copy(kept, D)

    agree(f)


@pytest.mark.parametrize("threads", [32, 96])
def test_a_reduction_of_three_dimensions_in_shared_memory(threads: int) -> None:
    @T.prim_func
    def f(A: T.Tensor((3, 5, 7), "int32"), B: T.Tensor((3, 7), "int32")):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_shared((3, 5, 7), "int32")
            total = T.alloc_shared((3, 7), "int32")
            T.copy(A, tile)
            T.reduce_sum(tile, total, dim=1)
            T.copy(total, B)

    agree(f)


@pytest.mark.parametrize("n", [1, 7, 64, 100])
def test_dynamic_extents(n: int) -> None:
    size = T.dynamic("n")

    @T.prim_func
    def f(A: T.Tensor((size, 24), "float32"), B: T.Tensor((24, size), "float32")):
        with T.Kernel(T.ceildiv(size, 16), threads=64) as bx:
            tile = T.alloc_fragment((16, 24), "float32")
            T.copy(A[bx * 16, 0], tile)
            for i, j in T.Parallel(T.min(size - bx * 16, 16), 24):
                tile[i, j] = tile[i, j] + 1
            for j, i in T.Parallel(24, 16):
                B[j, bx * 16 + i] = tile[i, j]

    agree(f, n=n)


def test_updates_in_place_at_places_that_no_table_shows() -> None:
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def f(C: T.Tensor((m, n), "int32"), D: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32):
            order = T.alloc_shared((64,), "int32")
            for i in T.Parallel(64):
                order[i] = i * 5 % 64
            for i, j in T.Parallel(m, n):
                C[i, j] = C[i, j] * 2 + j
            for i in T.Parallel(64):
                D[order[i]] = D[order[i]] + i

    agree(f, m=7, n=13)
    result = tilec.compile(f, target="simt").get_kernel_source()
    assert result.count("independent") == 2
    assert result.count("sync_threads") == 1


def test_a_nest_whose_extent_depends_on_a_loop() -> None:
    @T.prim_func
    def f(A: T.Tensor((32,), "int32"), B: T.Tensor((8, 32), "int32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((32,), "int32")
            T.copy(A, tile)
            for k in T.serial(8):
                for i in T.Parallel(4 * k):
                    tile[i] = tile[i] * 2 + k
                for i in T.Parallel(32):
                    B[k, i] = tile[i]

    agree(f)


def test_loops_inside_of_nests() -> None:
    @T.prim_func
    def f(A: T.Tensor((9, 5), "int32"), B: T.Tensor((9, 5), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(9):
                total = T.alloc_var("int32", init=0)
                for j in T.serial(5):
                    total = total + A[i, j]
                for j in T.serial(i // 2 + 1):
                    B[i, j] = total + j

    agree(f)


def test_an_atomic_update_whose_result_is_used() -> None:
    @T.prim_func
    def f(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((64, 4), "int32")
            total = T.alloc_fragment((64,), "int32")
            for i, j in T.Parallel(64, 4):
                tile[i, j] = A[i] + j
            T.reduce_sum(tile, total, dim=1)
            for i in T.Parallel(64):
                total[i] = T.atomic_add(B[i], total[i], return_prev=True)
            for i in T.Parallel(64):
                C[i] = total[i]

    agree(f)


def test_a_fragment_read_at_other_places_than_its_own() -> None:
    @T.prim_func
    def f(A: T.Tensor((64, 8), "int32"), B: T.Tensor((64, 8), "int32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((64, 8), "int32")
            T.copy(A, tile)
            for i, j in T.Parallel(64, 8):
                B[i, j] = tile[63 - i, (i + j) % 8]

    agree(f)


def test_single_elements_of_small_fragments() -> None:
    @T.prim_func
    def f(A: T.Tensor((4,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            few = T.alloc_fragment((4,), "int32")
            T.copy(A, few)
            few[1] = few[0] + few[2]
            for k in T.serial(3):
                few[3] = few[3] + few[k]
            for i in T.Parallel(64):
                B[i] = few[i % 4] + few[3]

    agree(f)


def test_an_atomic_update_of_one_element_by_a_tile_is_done_once() -> None:
    @T.prim_func
    def f(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=64):
            tile = T.alloc_shared((4,), "int32")
            kept = T.alloc_fragment((1,), "int32")
            T.copy(A, tile)
            T.copy(A[2:3], kept)
            T.atomic_add(B[1:2], tile[3:4])
            T.atomic_add(B[0:1], kept)
            T.atomic_add(B[2], 1)

    agree(f)


def test_a_result_of_one_element_from_an_accumulator() -> None:
    @T.prim_func
    def f(A: T.Tensor((8, 8), "int8"), B: T.Tensor((1, 1), "int32")):
        with T.Kernel(1, threads=32):
            left = T.alloc_shared((8, 8), "int8")
            right = T.alloc_shared((8, 1), "int8")
            acc = T.alloc_fragment((8, 1), "int32")
            total = T.alloc_fragment((1, 1), "int32")
            T.copy(A, left)
            T.copy(A[:, 0:1], right)
            T.fill(total, 1)
            T.gemm(left, right, acc, clear_accum=True)
            T.reduce_sum(acc, total, dim=0, clear=False)
            B[0, 0] = total[0, 0]

    agree(f)


@pytest.mark.parametrize("axis", [0, 1])
def test_broadcasts_of_a_result_over_another_tile(axis: int) -> None:
    @T.prim_func
    def f(A: T.Tensor((12, 20), "int32"), B: T.Tensor((12, 20), "int32")):
        with T.Kernel(1, threads=96):
            tile = T.alloc_fragment((12, 20), "int32")
            other = T.alloc_fragment((12, 20), "int32")
            total = T.alloc_fragment((20 if axis == 0 else 12,), "int32")
            T.copy(A, tile)
            T.reduce_sum(tile, total, dim=axis)
            for i, j in T.Parallel(12, 20):
                other[i, j] = total[j if axis == 0 else i] * 3
            for i, j in T.Parallel(12, 20):
                B[i, j] = other[i, j] - total[j if axis == 0 else i]

    agree(f)


# random nests over fragments

NAMES = ("i", "j", "k")


@st.composite
def nests(draw: Any) -> str:
    """A program with a few nests over fragments, whose indices are shifted, swapped or left out."""
    rank = draw(st.integers(1, 3))
    extents = tuple(draw(st.sampled_from((1, 2, 3, 5, 8, 12))) for _ in range(rank))
    threads = draw(st.sampled_from((1, 8, 32, 48, 64)))
    names = NAMES[:rank]
    shapes: dict[str, tuple[int, ...]] = {}
    lines = []
    for n in range(draw(st.integers(1, 3))):
        kept = draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))]
        shapes[f"f{n}"] = tuple(extents[axis] for axis in kept)
        at = ", ".join(names[axis] for axis in kept)
        lines.append((f"f{n}", kept, at))
    text = [
        "@T.prim_func",
        f'def main(A: T.Tensor({extents}, "int32"), B: T.Tensor({extents}, "int32")):',
        f"    with T.Kernel(1, threads={threads}):",
    ]
    for name, shape in shapes.items():
        text.append(f'        {name} = T.alloc_fragment({shape}, "int32")')
        text.append(f"        T.fill({name}, {len(name) + shape[0]})")
    loop = f"for {', '.join(names)} in T.Parallel({', '.join(map(str, extents))}):"
    for name, kept, at in lines:
        own = [names[axis] for axis in kept]
        inner = f"for {', '.join(own)} in T.Parallel({', '.join(map(str, shapes[name]))}):"
        source = ", ".join(names[a] if a in kept else "0" for a in range(rank))
        text += [f"        {inner}", f"            {name}[{at}] = {name}[{at}] * 3 + A[{source}]"]
    terms = []
    for name, kept, at in lines:
        how = draw(st.sampled_from(("own", "shifted", "turned")))
        if how == "own":
            terms.append(f"{name}[{at}]")
        else:
            parts = []
            for axis in kept:
                size = extents[axis]
                parts.append(
                    f"({names[axis]} + 1) % {size}" if how == "shifted"
                    else f"{size - 1} - {names[axis]}"
                )  # fmt: skip
            terms.append(f"{name}[{', '.join(parts)}]")
    text += [f"        {loop}", f"            B[{', '.join(names)}] = {' + '.join(terms)}"]
    return "\n".join(text) + "\n"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(nests())
def test_random_nests_over_fragments(text: str) -> None:
    agree(T.from_script(text))
