"""Checks of tile operations: copy, fill, reductions, matrix products, atomics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilec.ops import KINDS
from tilec.testing.conformance.checks import (
    COMMON,
    DTYPES,
    FLOATS,
    INTEGERS,
    NARROW_FLOATS,
    RARE,
    Check,
    Group,
    Param,
)

SCOPES = ("shared", "fragment", "local")
SHAPES = (
    (1,),
    (7,),
    (64,),
    (129,),
    (0,),
    (1, 1),
    (3, 5),
    (16, 16),
    (17, 33),
    (1, 67),
    (61, 1),
    (0, 4),
    (2, 3, 4),
    (5, 1, 7),
    (8, 8, 8),
)
TAILS = (
    ((5, 7), (4, 4)),
    ((16, 33), (16, 16)),
    ((1, 1), (8, 8)),
    ((31, 64), (32, 32)),
    ((0, 3), (4, 4)),
    ((64, 64), (64, 64)),
    ((67, 2), (16, 128)),
)


def _alloc(scope: str, shape: tuple[int, ...], dtype: str) -> str:
    return f'T.alloc_{scope}({shape}, "{dtype}")'


# copies


def _through(dtype: str, other: str, first: str, second: str, shape: tuple[int, ...]) -> Check:
    """Global memory to a tile, to another tile of perhaps another dtype, and back."""
    body = f"""
with T.Kernel(1, threads=32):
    s = {_alloc(first, shape, dtype)}
    t = {_alloc(second, shape, other)}
    T.copy(A, s)
    T.copy(s, t)
    T.copy(t, O)
"""
    params = (Param("A", shape, dtype), Param("O", shape, other, "mark"))
    note = f"global to {first} to {second} ({other}), {shape}"
    return Check("copy", dtype, params, body, note=note)


def _tail(dtype: str, shape: tuple[int, int], tile: tuple[int, int], scope: str) -> Check:
    """Tiles that stick out of a matrix in both dimensions; a column and a row must stay."""
    (m, n), (a, b) = shape, tile
    body = f"""
with T.Kernel(T.ceildiv({n}, {b}), T.ceildiv({m}, {a}), threads=64) as (bx, by):
    s = {_alloc(scope, tile, dtype)}
    T.copy(A[by * {a}, bx * {b}], s)
    T.copy(s, O[by * {a}, bx * {b}])
    T.copy(s, W[by * {a} : by * {a} + {a}, 1 + bx * {b} : 1 + bx * {b} + {b}])
"""
    params = (
        Param("A", shape, dtype),
        Param("O", shape, dtype, "mark"),
        Param("W", (m + a, n + b + 3), dtype, "mark"),
    )
    return Check("copy", dtype, params, body, note=f"tiles {tile} of {shape} through {scope}")


def _tail3(dtype: str) -> Check:
    body = f"""
with T.Kernel(3, 2, 2, threads=32) as (bx, by, bz):
    s = {_alloc("shared", (2, 4, 3), dtype)}
    T.copy(A[bz * 2, by * 4, bx * 3], s)
    T.copy(s, O[bz * 2, by * 4, bx * 3])
"""
    params = (Param("A", (3, 5, 7), dtype), Param("O", (3, 5, 7), dtype, "mark"))
    return Check("copy", dtype, params, body, note="tails in three dimensions")


def _slices(dtype: str, scope: str) -> Check:
    """Parts of tiles, an element, a row, a column, ranks that differ by ones."""
    body = f"""
with T.Kernel(2, threads=32) as bx:
    s = {_alloc(scope, (8, 12), dtype)}
    r = {_alloc(scope, (12,), dtype)}
    T.fill(s, T.Const(1, "{dtype}"))
    T.copy(A[bx, 0:4, 0:5], s[2:6, 3:8])
    T.copy(s[3, 0:12], r)
    T.copy(r, O[bx, 0, 0:12])
    T.copy(s[2:6, 4], O[bx, 1:5, 11])
    T.copy(A[bx, 3, 4], O[bx, 6, 6])
    T.copy(s[5, 7], O[bx, 7, 1])
"""
    params = (Param("A", (2, 4, 5), dtype), Param("O", (2, 8, 13), dtype, "mark"))
    return Check("copy", dtype, params, body, note=f"slices of {scope}")


def _direct(dtype: str, shape: tuple[int, ...]) -> Check:
    body = "\nwith T.Kernel(1, threads=32):\n    T.copy(A, O)\n"
    params = (Param("A", shape, dtype, "edge"), Param("O", shape, dtype, "mark"))
    return Check("copy", dtype, params, body, note=f"global to global, {shape}")


def _run_time(dtype: str) -> Check:
    body = f"""
with T.Kernel(T.ceildiv(n, 16), T.ceildiv(m, 8), threads=64) as (bx, by):
    s = {_alloc("shared", (8, 16), dtype)}
    T.copy(A[by * 8, bx * 16], s)
    T.copy(s, O[by * 8, bx * 16])
"""
    params = (Param("A", ("m", "n"), dtype), Param("O", ("m", "n"), dtype, "mark"))
    sizes = tuple({"m": m, "n": n} for m, n in ((0, 5), (1, 1), (7, 31), (8, 16), (9, 17), (24, 3)))
    return Check("copy", dtype, params, body, sizes=sizes, note="run-time extents")


def copies() -> Iterator[Group]:
    """Between all scopes, with conversions, tails in every dimension, slices."""
    for number, dtype in enumerate(DTYPES):
        pairs = list(itertools.product(SCOPES, SCOPES))
        if dtype in RARE:
            pairs = pairs[:1]
        checks = [
            _through(dtype, dtype, a, b, SHAPES[(n * 4 + number) % len(SHAPES)])
            for n, (a, b) in enumerate(pairs)
        ]
        others = [COMMON[(number * 3 + n * 5 + 1) % len(COMMON)] for n in range(4)]
        checks += [
            _through(
                dtype, other, SCOPES[n % 3], SCOPES[(n + 1) % 3], SHAPES[(n * 3 + number) % 15]
            )
            for n, other in enumerate(others)
        ]
        yield Group(f"copy-scopes-{dtype}", "copy", tuple(checks))
        if dtype in RARE:
            continue
        checks = [
            _tail(dtype, shape, tile, SCOPES[(n + number) % 2])
            for n, (shape, tile) in enumerate(TAILS)
        ]
        checks += [_tail3(dtype), _run_time(dtype), *(_slices(dtype, s) for s in SCOPES)]
        checks += [_direct(dtype, SHAPES[(n * 4 + number) % len(SHAPES)]) for n in range(3)]
        yield Group(f"copy-tails-{dtype}", "copy", tuple(checks))


# fills


def fills() -> Iterator[Group]:
    """Whole tiles, slices and elements of every scope; values of every sort."""
    for number, dtype in enumerate(DTYPES):
        checks = []
        values = ["1", "0", f'T.Const(2, "{dtype}")', "bx", "A[0]"]
        if dtype in FLOATS:
            values += [f'T.infinity("{dtype}")', f'-T.infinity("{dtype}")', "-1.5"]
        elif dtype == "bool":
            values = ["True", "False", "A[0]", "bx == 0"]
        elif not dtype.startswith("u") and "int" in dtype:
            values += ["-3"]
        for n, value in enumerate(values):
            scope, shape = SCOPES[n % 3], SHAPES[(n * 4 + number) % 12]
            part = ", ".join(f"0:{max(e - 1, 0)}" for e in shape)
            lead = ", ".join("0" for _ in shape)
            element = f"\n    T.fill(s[{lead}], 1)" if min(shape) else ""
            whole = ", ".join(f"0:{e}" for e in shape)
            body = f"""
with T.Kernel(2, threads=32) as bx:
    s = {_alloc(scope, shape, dtype)}
    T.clear(s)
    T.fill(s[{part}], {value}){element}
    T.copy(s, O[bx, {whole}])
    T.fill(O[2, {part}], {value.replace("bx", "1") if value != "bx" else "1"})
"""
            params = (Param("A", (1,), dtype), Param("O", (3, *shape), dtype, "mark"))
            # Two blocks fill the same slice of O with one value: only one of them may.
            body = body.replace("    T.fill(O[2", "    if bx == 1:\n        T.fill(O[2")
            checks.append(Check("fill", dtype, params, body, note=f"{value}, {scope} {shape}"))
        yield Group(f"fill-{dtype}", "fill", tuple(checks))


# reductions


def _reduce(
    kind: str, dtype: str, to: str, shape: tuple[int, ...], dim: int, flags: int, scope: str
) -> Check:
    keep, clear, nan = bool(flags & 1), not flags & 2, bool(flags & 4)
    out = tuple(1 if a == dim else e for a, e in enumerate(shape) if keep or a != dim) or (1,)
    words = f"dim={dim if flags & 8 else dim - len(shape)}"
    if not clear and kind != "abssum":
        words += ", clear=False"
    if nan and kind in ("max", "min", "absmax"):
        words += ", nan_propagate=True"
    body = f"""
with T.Kernel(1, threads=64):
    s = {_alloc(scope, shape, dtype)}
    r = {_alloc("fragment", out, to)}
    T.copy(A, s)
    T.copy(O, r)
    T.reduce_{kind}(s, r, {words})
    T.copy(r, O)
"""
    real = to in FLOATS and kind in ("sum", "abssum")
    extreme = kind in ("max", "min", "absmax") or kind.startswith("bit")
    data = "edge" if extreme and dtype not in RARE else "unit" if real and flags & 1 else "small"
    params = (Param("A", shape, dtype, data), Param("O", out, to, "small"))
    note = f"{dtype} to {to}, {shape}, {words}, {scope}"
    # Which of 0.0 and -0.0 is the larger one depends on the order.
    how = "sum" if real else "equal" if kind in ("max", "min") else "exact"
    return Check(f"reduce_{kind}", dtype, params, body, how, note=note)


_REDUCED = ((1,), (7,), (256,), (3, 5), (16, 16), (1, 33), (33, 1), (61, 67), (2, 3, 4), (5, 8, 7))


def reductions() -> Iterator[Group]:
    """Every kind along every dimension; kept or dropped, with the old value, with NaN."""
    for number, dtype in enumerate(DTYPES):
        checks = []
        for row, kind in enumerate(KINDS):
            if kind.startswith("bit") and "float" in dtype:
                continue
            shapes = _REDUCED if dtype not in RARE else _REDUCED[:1]
            places = [(shape, dim) for shape in shapes for dim in range(len(shape))]
            for n, (shape, dim) in enumerate(places):
                if (
                    dtype not in RARE
                    and (n + row + number) % 3
                    and dtype not in ("float32", "int32")
                ):
                    continue  # two dtypes see every place, the others a third each
                wide = "float32" if "float" in dtype else "int64"
                other = n % 5 == 4 and dtype not in ("bool", "uint64", "float64", *RARE)
                to = wide if other else dtype
                flags, scope = (n * 5 + row * 3 + number) % 16, SCOPES[(n + row) % 2]
                checks.append(_reduce(kind, dtype, to, shape, dim, flags, scope))
        for part in range(0, len(checks), 24):
            name = f"reduce-{dtype}-{part // 24}"
            yield Group(name, "reduce", tuple(checks[part : part + 24]))


# matrix products

_MATRICES = (
    ("float16", "float32"),
    ("float16", "float16"),
    ("bfloat16", "float32"),
    ("float32", "float32"),
    ("float64", "float64"),
    ("int8", "int32"),
    ("uint8", "int32"),
    ("int16", "int32"),
    ("int32", "int32"),
    ("int64", "int64"),
    ("uint32", "uint64"),
)
_MNK = (
    (1, 1, 1),
    (16, 16, 16),
    (32, 8, 16),
    (7, 5, 3),
    (17, 33, 31),
    (64, 64, 32),
    (1, 64, 7),
    (61, 1, 13),
    (3, 127, 2),
    (128, 16, 64),
)


def _gemm(dtype: str, acc: str, mnk: tuple[int, int, int], flags: int, data: str) -> Check:
    m, n, k = mnk
    a, b = (k, m) if flags & 1 else (m, k), (n, k) if flags & 2 else (k, n)
    words = "".join(
        f", {text}"
        for bit, text in ((1, "transpose_A=True"), (2, "transpose_B=True"), (4, "clear_accum=True"))
        if flags & bit
    )
    left = "fragment" if flags & 8 else "shared"
    body = f"""
with T.Kernel(1, threads=128):
    a = {_alloc(left, a, dtype)}
    b = {_alloc("shared", b, dtype)}
    c = {_alloc("fragment", (m, n), acc)}
    T.copy(A, a)
    T.copy(B, b)
    T.copy(O, c)
    T.gemm(a, b, c{words})
    T.copy(c, O)
"""
    params = (Param("A", a, dtype, data), Param("B", b, dtype, data), Param("O", (m, n), acc))
    kind = "sum" if data == "unit" else "exact"
    note = f"{dtype} to {acc}, M, N, K = {mnk}{words}, A in {left}, {data} values"
    return Check("gemm", dtype, params, body, kind, note=note)


def _tiled_gemm(dtype: str, acc: str, mnk: tuple[int, int, int], stages: int) -> Check:
    m, n, k = mnk
    body = f"""
with T.Kernel(T.ceildiv({n}, 32), T.ceildiv({m}, 32), threads=128) as (bx, by):
    a = {_alloc("shared", (32, 16), dtype)}
    b = {_alloc("shared", (16, 32), dtype)}
    c = {_alloc("fragment", (32, 32), acc)}
    T.clear(c)
    for p in T.Pipelined(T.ceildiv({k}, 16), num_stages={stages}):
        T.copy(A[by * 32, p * 16], a)
        T.copy(B[p * 16, bx * 32], b)
        T.gemm(a, b, c)
    T.copy(c, O[by * 32, bx * 32])
"""
    params = (Param("A", (m, k), dtype), Param("B", (k, n), dtype), Param("O", (m, n), acc, "mark"))
    note = f"{dtype} to {acc}, {mnk} in tiles, {stages} stages"
    return Check("gemm", dtype, params, body, note=note)


def matrices() -> Iterator[Group]:
    """Transposes, odd sizes, accumulation; real values show where precision is lost."""
    pairs = [*_MATRICES, *((d, "float32") for d in NARROW_FLOATS)]
    for number, (dtype, acc) in enumerate(pairs):
        checks = []
        for n, mnk in enumerate(_MNK if dtype not in RARE else _MNK[:2]):
            flags = (n * 3 + number * 5) % 16
            checks.append(_gemm(dtype, acc, mnk, flags, "small"))
            if dtype in FLOATS:
                checks.append(_gemm(dtype, acc, mnk, (flags + 7) % 16, "unit"))
        if dtype not in RARE:
            for stages, mnk in enumerate(((33, 65, 17), (32, 32, 48), (5, 40, 100), (64, 31, 1))):
                checks.append(_tiled_gemm(dtype, acc, mnk, stages))
        yield Group(f"gemm-{dtype}-{acc}", "gemm", tuple(checks))


# atomics


def atomics() -> Iterator[Group]:
    """Additions of tiles and elements by many blocks, extrema, previous values."""
    for dtype in (*INTEGERS, *FLOATS, *RARE):
        checks = []
        for n, length in enumerate((1, 7, 64, 100)):
            scope = SCOPES[n % 2]
            body = f"""
with T.Kernel(5, threads=32) as bx:
    s = {_alloc(scope, (16,), dtype)}
    for i in T.Parallel(16):
        s[i] = A[(i + bx) % {length}]
    T.atomic_add(O[bx * 13], s)
    T.atomic_add(O[0:1], s[3:4])
"""
            params: tuple[Param, ...] = (Param("A", (length,), dtype), Param("O", (length,), dtype))
            checks.append(
                Check("atomic_add", dtype, params, body, note=f"tiles, {length} elements")
            )
        for op in ("atomic_add", "atomic_max", "atomic_min"):
            body = f"""
with T.Kernel(7, threads=32) as bx:
    for i in T.Parallel(67):
        T.{op}(O[(i * 3 + bx) % 11], A[(i + bx) % 61])
"""
            params = (Param("A", (61,), dtype), Param("O", (13,), dtype))
            checks.append(Check(op, dtype, params, body, note="elements"))
            body = f"""
with T.Kernel(1, threads=32) as bx:
    for i in T.serial(9):
        old = T.{op}(O[i % 3], A[i], return_prev=True)
        P[i] = old
"""
            params = (
                Param("A", (9,), dtype),
                Param("O", (4,), dtype),
                Param("P", (10,), dtype, "mark"),
            )
            checks.append(Check(op, dtype, params, body, note="previous values"))
        yield Group(f"atomic-{dtype}", "atomic", tuple(checks))
