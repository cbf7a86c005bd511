"""The printed text on a device: `pytest -m gpu tests/cuda/printer`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import scalar_cases
from cuda_programs import Gpu, find_gpu, storage
from intrinsic_cases import (
    EXCHANGED,
    GROUP,
    MMA,
    UPDATED,
    async_copies,
    barriers,
    bulk,
    group_mma,
    lanes,
    launches,
    mma,
    moves,
    own_updates,
    registers,
    transaction_barriers,
    updates,
    vector_updates,
    votes,
)
from test_vectors import CASES as VECTORS, check as check_vector, inputs as vector_inputs
from vector_cases import module as vector_module

from tilec import ir
from tilec.arith import evaluate_binary, value_dtype
from tilec.ir import BinOp, DType

pytestmark = pytest.mark.gpu
LANE = np.arange(128)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return find_gpu()


def need(gpu: Gpu, number: int, *, only: bool = False) -> None:
    """Skip on a device without the feature."""
    if gpu.number < number or (only and gpu.number != number):
        pytest.skip(f"needs sm_{number}")


def numbers(shape: Any, dtype: str, seed: int = 0, low: int = -4, high: int = 5) -> Any:
    """Small integers that every type has, in the storage dtype."""
    rng = np.random.default_rng(seed)
    if DType(dtype).is_uint or DType(dtype).is_bool:
        low, high = 0, 2 if DType(dtype).is_bool else high
    return rng.integers(low, high, shape).astype(storage(dtype))


def floats(array: Any) -> Any:
    """As float64."""
    return array.astype(np.float64)


@pytest.mark.parametrize(("dtype", "what"), [(d, w) for d, w, _n in scalar_cases.programs()])
def test_scalars(gpu: Gpu, dtype: str, what: str) -> None:
    program, cases, arrays = scalar_cases.build(dtype, what)
    scalar_cases.check(dtype, cases, arrays, program.on_gpu(gpu, arrays))


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(gpu: Gpu, name: str) -> None:
    case = VECTORS[name]
    arrays = vector_inputs(case)
    check_vector(case, arrays, gpu.run(vector_module(case)[0], arrays)[-1])


@pytest.mark.parametrize("dtype", EXCHANGED)
@pytest.mark.parametrize(
    ("name", "argument", "width"),
    [
        ("shfl_sync", None, 32), ("shfl_sync", 9, 8), ("shfl_sync", 3, 4), ("shfl_xor", 1, 32),
        ("shfl_xor", 4, 8), ("shfl_up", 1, 8), ("shfl_down", 2, 16),
    ],
)  # fmt: skip
def test_shuffles(gpu: Gpu, dtype: str, name: str, argument: Any, width: int) -> None:
    a = numbers(128, dtype, 1, -100, 100)
    inside, group = LANE % width, LANE // width * width
    other = {
        "shfl_sync": LANE % 7 if argument is None else np.full(128, argument % width),
        "shfl_xor": inside ^ (argument or 0),
        "shfl_up": inside - (argument or 0),
        "shfl_down": inside + (argument or 0),
    }[name]
    source = np.where((other >= 0) & (other < width), group + other, LANE)
    got = gpu.run(lanes(name, dtype, argument, width), [a, np.zeros_like(a)])[-1]
    assert np.array_equal(got, a[source])


def test_votes(gpu: Gpu) -> None:
    a = np.array([1] * 32 + [0] * 32 + [0, 1] * 16 + [1] * 31 + [0], np.int32)
    outs = [np.zeros(128, d) for d in (np.int32, np.int32, np.uint32, np.bool_)]
    got = gpu.run(votes(), [a, *outs])[1:]
    rows = a.reshape(4, 32)
    assert np.array_equal(got[0], np.repeat(rows.any(axis=1), 32))
    assert np.array_equal(got[1], np.repeat(rows.all(axis=1), 32))
    ballots = [sum(int(bit) << n for n, bit in enumerate(row)) for row in rows]
    assert np.array_equal(got[2], np.repeat(np.array(ballots, np.uint32), 32))
    assert np.array_equal(np.flatnonzero(got[3]), [0, 32, 64, 96])


def test_barriers(gpu: Gpu) -> None:
    (got,) = gpu.run(barriers(), [np.zeros(128, np.float32)])
    assert np.array_equal(got, (LANE + 1) % 128)


@pytest.mark.parametrize("scope", [ir.GLOBAL, ir.SHARED])
@pytest.mark.parametrize("order", [None, "acq_rel", "seq_cst"])
@pytest.mark.parametrize("dtype", UPDATED)
def test_updates(gpu: Gpu, dtype: str, order: str | None, scope: str) -> None:
    given = numbers((3, 64), dtype, 2, 0, 4)
    own = value_dtype(DType(dtype))
    given[0] = 0  # sums of these are exact in every type
    start = given.astype(own)
    got = gpu.run(
        updates(dtype, order, scope), [given, np.zeros_like(given), np.zeros((3, 128), given.dtype)]
    )
    value = np.arange(64) % 2 + 1
    final = np.stack(
        [start[0] + 4 * value, np.maximum(start[1], value), np.minimum(start[2], value)]
    )
    assert np.array_equal(got[1].astype(own), final.astype(own))
    # What the second update of a lane saw: something between start and end.
    prev = got[2].astype(np.float64)
    low = np.minimum(start, final).astype(np.float64)
    high = np.maximum(start, final).astype(np.float64)
    assert np.all((prev >= np.tile(low, 2)) & (prev <= np.tile(high, 2)))


@pytest.mark.parametrize("dtype", UPDATED)
def test_updates_of_what_a_lane_has(gpu: Gpu, dtype: str) -> None:
    given = numbers((3, 128), dtype, 2, 0, 4)
    given[0] = 0
    got = gpu.run(own_updates(dtype), [given, np.zeros_like(given)])
    start, value = floats(given), LANE % 2 + 1
    once = [start[0] + value, np.maximum(start[1], value), np.minimum(start[2], value)]
    assert np.array_equal(floats(got[0]), np.stack(once))
    assert np.array_equal(floats(got[1]), np.stack([start[0] + 2 * value, *once[1:]]))


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_vector_updates(gpu: Gpu, dtype: str, count: int) -> None:
    a, target = numbers((128, count), dtype, 3), numbers((128, count), dtype, 4)
    got = gpu.run(vector_updates(dtype, count), [a, target])[1]
    own = value_dtype(DType(dtype))
    wanted = evaluate_binary(BinOp.ADD, target.astype(own), a.astype(own), DType(dtype))
    assert np.array_equal(got.astype(own), wanted)


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize(
    ("dtype", "count"),
    [("float32", 1), ("float16", 8), ("float16", 2), ("int8", 16), ("float64", 1)],
)
def test_async_copies(gpu: Gpu, dtype: str, count: int, conditional: bool) -> None:
    need(gpu, 80)
    a = numbers((256, count), dtype, 5)
    out = np.zeros((128, count), a.dtype)
    scalars = [ctypes.c_int32(100)] if conditional else []
    got = gpu.run(async_copies(dtype, count, conditional), [a, out], scalars)[1]
    wanted = a[128:].copy()
    if conditional:
        wanted[100:] = 0
    assert np.array_equal(got, wanted[::-1])


@pytest.mark.parametrize("expect", [False, True])
def test_transaction_barriers(gpu: Gpu, expect: bool) -> None:
    need(gpu, 90 if expect else 80)
    a = numbers((128, 4), "float32", 6)
    got = gpu.run(transaction_barriers(expect), [np.zeros(128, np.float32), a][::-1])
    assert np.array_equal(got[1], a[:, 1])


@pytest.mark.parametrize(
    ("rank", "dtype", "chunks", "wide", "reduce"),
    [
        *((rank, "bfloat16", 0, 1, None) for rank in range(1, 6)),
        *((2, dtype, chunks, 1, None) for chunks in (2, 4, 8)
          for dtype in ("bfloat16", "float32", "float8_e4m3")),
        *((2, "bfloat16", chunks, 2, None) for chunks in (2, 4, 8)),
        *((2, "float16", 0, 1, op) for op in ("add", "min", "max")),
    ],
)  # fmt: skip
def test_bulk(gpu: Gpu, rank: int, dtype: str, chunks: int, wide: int, reduce: str | None) -> None:
    need(gpu, 90)
    module = bulk(rank, dtype, chunks, wide, reduce)
    (func,) = module.functions.values()
    shape = func.attrs["tensor_maps"][0].buffer.shape
    a, out = numbers(shape, dtype, 7), numbers(shape, dtype, 8)
    maps = [(n, record) for n, record in enumerate(func.attrs["tensor_maps"])]
    got = gpu.run(module, [a, out], maps=maps, grid=4)[1]
    wanted = floats(out).copy()
    ops = {None: lambda x, y: y, "add": np.add, "min": np.minimum, "max": np.maximum}
    for block in range(4):
        box = tuple(slice(block * e // 4, (block + 1) * e // 4) for e in shape)
        wanted[box] = ops[reduce](wanted[box], floats(a)[box])
    assert np.array_equal(floats(got), wanted)


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("num", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_moves(gpu: Gpu, dtype: str, num: int, transpose: bool, store: bool) -> None:
    need(gpu, 90 if store else 75)
    per = 2 // DType(dtype).bytes
    tile = numbers((num * 8, 8 * per), dtype, 9, -100, 100)
    held = numbers((32, 2 * num * per), dtype, 10, -100, 100)
    got_tile, got_held = gpu.run(moves(dtype, num, transpose, store), [tile, held])
    rows = tile if not store else got_tile
    wide = rows.view(np.uint16).reshape(num, 8, 8)
    lane = np.arange(32)
    pairs = np.empty((32, num, 2), np.uint16)
    for q in range(num):
        for i in range(2):
            r, c = lane // 4, 2 * (lane % 4) + i
            pairs[:, q, i] = wide[q, c, r] if transpose else wide[q, r, c]
    wanted = held if store else got_held
    assert np.array_equal(pairs.reshape(32, -1), wanted.view(np.uint16).reshape(32, -1))


def operand_places(rows: int, k: int, bits: int, lane: Any) -> list[tuple[Any, Any]]:
    """Row and k of every register element of a lane: A has 16 rows, or 8 as B has."""
    each = max(1, 32 // bits)
    tall = rows // 8
    places = []
    for register in range(rows * k // 32 // each):
        down, right = register % tall, register // tall
        for i in range(each):
            places.append((lane // 4 + 8 * down, lane % 4 * each + i + 4 * each * right))
    return places


def result_places(rows: int, columns: int, lane: Any) -> list[tuple[Any, Any]]:
    """Row and column of every accumulator element of a lane."""
    places = []
    for i in range(rows * columns // 32):
        down = i // 2 % 2 if rows == 16 else 0
        right = i // (4 if rows == 16 else 2)
        places.append((lane // 4 + 8 * down, lane % 4 * 2 + i % 2 + 8 * right))
    return places


def gather(matrix: Any, places: list[tuple[Any, Any]]) -> Any:
    """Elements by lane and register."""
    return np.stack([matrix[row, column] for row, column in places], axis=-1)


@pytest.mark.parametrize("more", [None, False, "lane"])
@pytest.mark.parametrize("shape", MMA, ids=lambda s: f"{s[0]}-{s[1]}-{s[2]}x{s[3]}x{s[4]}")
def test_mma(gpu: Gpu, shape: Any, more: Any) -> None:
    dtype, acc, m, n, k, first = shape
    need(gpu, first)
    a, b = numbers((m, k), dtype, 11), numbers((n, k), dtype, 12)
    lane, bits = np.arange(32), DType(dtype).bits
    arrays = [
        gather(a, operand_places(m, k, bits, lane)),
        gather(b, operand_places(8, k, bits, lane)),
    ]
    out = np.zeros((32, m * n // 32), storage(acc))
    got = gpu.run(mma(dtype, acc, m, n, k, more), [*arrays, out])[-1]
    wanted = gather(floats(a) @ floats(b).T, result_places(m, n, lane))
    assert np.array_equal(floats(got), wanted)


def check_group(gpu: Gpu, dtype: str, acc: str, k: int, n: int, **options: Any) -> None:
    """A product of four warps, from shared memory or registers."""
    need(gpu, 90, only=True)
    module = group_mma(dtype, acc, k, n, **options)
    (func,) = module.functions.values()
    sizes = [p.shape[0] for p in func.params if isinstance(p, ir.Buffer)]
    chunks = options.get("chunks", 8)
    depth = max(16 * chunks // DType(dtype).bytes, k)
    a, b = numbers((64, depth), dtype, 13), numbers((n, depth), dtype, 14)
    wanted = floats(a) @ floats(b).T
    if options.get("registers"):
        lane, parts = np.arange(32), []
        for step in range(depth // k):
            warps = [a[16 * w : 16 * w + 16, step * k : step * k + k] for w in range(4)]
            places = operand_places(16, k, DType(dtype).bits, lane)
            parts.append(np.concatenate([gather(w, places) for w in warps]))
        given = np.stack(parts)
    else:
        given = a.T if options.get("ta") else a
    second = b.T if options.get("tb") else b
    assert [given.size, second.size] == sizes[:2]
    out = np.zeros((128, 64 * n // 128), storage(acc))
    got = gpu.run(module, [given, second, out])[-1]
    lane = np.arange(32)
    rows = [gather(wanted[16 * w : 16 * w + 16], result_places(16, n, lane)) for w in range(4)]
    assert np.array_equal(floats(got), np.concatenate(rows))


@pytest.mark.parametrize("n", [8, 64, 256])
@pytest.mark.parametrize(("dtype", "acc", "k"), GROUP)
def test_group_mma(gpu: Gpu, dtype: str, acc: str, k: int, n: int) -> None:
    check_group(gpu, dtype, acc, k, n)


@pytest.mark.parametrize(("dtype", "acc", "k"), GROUP)
def test_group_mma_from_registers(gpu: Gpu, dtype: str, acc: str, k: int) -> None:
    check_group(gpu, dtype, acc, k, 64, registers=True)


@pytest.mark.parametrize("n", [8, 64, 128, 192])
@pytest.mark.parametrize("chunks", [2, 4, 8])
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (True, False), (False, True), (True, True)])
def test_group_mma_layouts(gpu: Gpu, chunks: int, ta: bool, tb: bool, n: int) -> None:
    if tb and n % (8 * chunks):
        pytest.skip("no whole rows of this swizzle")
    check_group(gpu, "bfloat16", "float32", 16, n, ta=ta, tb=tb, chunks=chunks)


def test_registers_and_launches(gpu: Gpu) -> None:
    need(gpu, 90)
    (got,) = gpu.run(registers(), [np.ones(256, np.float32)])
    assert not got.any()
    (got,) = gpu.run(launches(), [np.ones(128, np.float32)])
    assert not got.any()
