"""Checks of loops, lanes and parameters: what is around the operations."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.testing.conformance.checks import Check, Group, Param

_TYPES = ("int32", "float32", "float16", "int8", "int64", "float64", "bfloat16", "uint16")


def parallel() -> Iterator[Group]:
    """Nests of one to three dimensions with guards, strides, offsets and run-time extents."""
    for number, dtype in enumerate(_TYPES):
        checks = []
        for m, n in ((1, 1), (7, 5), (33, 47), (0, 4), (64, 16)):
            body = f"""
with T.Kernel(T.ceildiv({n}, 16), T.ceildiv({m}, 16), threads=64) as (bx, by):
    for i, j in T.Parallel(16, 16):
        r = by * 16 + i
        if r < {m} and bx * 16 + j < {n}:
            O[r, bx * 16 + j] = A[r, bx * 16 + j] + A[(r + 1) % {max(m, 1)}, 0]
"""
            params = (Param("A", (m, n), dtype), Param("O", (m, n + 1), dtype, "mark"))
            checks.append(Check("parallel", dtype, params, body, note=f"{m} by {n}"))
        body = """
with T.Kernel(2, threads=64) as bx:
    for i, j, k in T.Parallel(3, 5, 7):
        if (i + j + k) % 2 == bx:
            O[i, j, k] = A[k, i] * 2 - A[k, 2 - i]
"""
        params = (Param("A", (7, 3), dtype), Param("O", (3, 5, 7), dtype, "mark"))
        checks.append(Check("parallel", dtype, params, body, note="three dimensions"))
        body = """
with T.Kernel(1, threads=64):
    for i in T.Parallel(n):
        O[i * 2] = A[n - 1 - i]
        O[i * 2 + 1] = A[i - 2] if i >= 2 else A[0]
"""
        params = (Param("A", ("n",), dtype), Param("O", ("m",), dtype, "mark"))
        sizes = tuple({"n": n, "m": 2 * n + 1} for n in (0, 1, 3, 64, 101))
        checks.append(Check("parallel", dtype, params, body, sizes=sizes, note="run-time extent"))
        body = f"""
with T.Kernel(1, threads=64):
    s = T.alloc_shared((20, 9), "{dtype}")
    f = T.alloc_fragment((9, 20), "{dtype}")
    T.copy(A, s)
    for i, j in T.Parallel(9, 20):
        f[i, j] = s[j, i]
    for i in T.Parallel(9):
        for k in T.serial(i):
            f[i, k] = f[i, k] + 1
    T.copy(f, O)
"""
        params = (Param("A", (20, 9), dtype), Param("O", (9, 20), dtype, "mark"))
        checks.append(Check("parallel", dtype, params, body, note="transposed tile"))
        yield Group(f"parallel-{dtype}", "parallel", tuple(checks))
        del number


def pipelined() -> Iterator[Group]:
    """Stage counts 0 to more than the trip count; trip counts 0, 1, few, unknown."""
    for dtype in _TYPES:
        checks = []
        for stages in (0, 1, 2, 3, 9):
            for trips in (0, 1, 2, 5):
                body = f"""
with T.Kernel(2, threads=64) as bx:
    s = T.alloc_shared((16,), "{dtype}")
    c = T.alloc_fragment((16,), "{dtype}")
    T.clear(c)
    for k in T.Pipelined({trips}, num_stages={stages}):
        T.copy(A[k, bx * 16], s)
        for i in T.Parallel(16):
            c[i] += s[i] * (k + 1)
    T.copy(c, O[bx * 16])
"""
                params = (Param("A", (trips, 29), dtype), Param("O", (29,), dtype, "mark"))
                note = f"{stages} stages, {trips} trips"
                checks.append(Check("pipelined", dtype, params, body, note=note))
        for stages in (0, 2, 4):
            body = f"""
with T.Kernel(1, threads=64):
    s = T.alloc_shared((8,), "{dtype}")
    t = T.alloc_shared((8,), "{dtype}")
    last = T.alloc_fragment((8,), "{dtype}")
    T.clear(last)
    for k in T.Pipelined(n, num_stages={stages}):
        T.copy(A[k, 0:8], s)
        for i in T.Parallel(8):
            t[i] = s[i] + last[7 - i]
        T.copy(t, last)
        T.copy(last, O[k, 0:8])
"""
            params = (Param("A", ("n", 8), dtype), Param("O", ("n", 8), dtype, "mark"))
            sizes = tuple({"n": n} for n in (0, 1, 2, 3, 7))
            note = f"{stages} stages, run-time trips, carried tile"
            checks.append(Check("pipelined", dtype, params, body, sizes=sizes, note=note))
        yield Group(f"pipelined-{dtype}", "pipelined", tuple(checks))


_LOOPS = {
    "serial": """
    for i in T.serial(A.shape[0]):
        O[i] = A[i] + i
""",
    "serial step": """
    for i in range(10, 1, -3):
        O[i] = A[i] * 2
    for i in T.serial(1, 11, 4):
        O[i] = A[i] + 1
""",
    "unroll": """
    for i in T.unroll(11):
        O[i] = A[i] - 1
""",
    "vectorized": """
    for i in T.vectorized(11):
        O[i] = A[i] * A[i]
""",
    "grid": """
    for i, j in T.grid(3, 3):
        O[i * 3 + j] = A[i] + A[j]
""",
    "break": """
    for i in T.serial(11):
        if A[i] == A[10] and i > 2:
            break
        O[i] = A[i]
""",
    "continue": """
    for i in T.serial(11):
        if i % 3 == 1:
            continue
        O[i] = A[i]
""",
    "while": """
    n = T.alloc_var("int32", init=0)
    while n * n < 50:
        O[n] = A[n]
        n += 1
""",
    "while break": """
    n = T.alloc_var("int32", init=27)
    c = T.alloc_var("int32", init=0)
    while True:
        if n == 1:
            break
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        c += 1
        if c % 40 != 0:
            continue
        O[c // 40] = A[c // 40]
    O[10] = A[c % 11]
""",
    "if else": """
    for i in T.serial(11):
        if A[i] > A[5]:
            O[i] = A[i]
        elif i % 2 == 0:
            O[i] = A[0]
        else:
            O[10 - i] = A[1]
""",
    "run-time bounds": """
    for i in T.serial(bx + 2, bx * 2 + 7):
        for j in T.serial(i % 3):
            O[i] = A[j] + A[i]
""",
    "re-bound let": """
    for i in T.serial(11):
        x = A[i] + 1
        x = x * 2
        O[i] = x - A[0]
""",
}


def loops() -> Iterator[Group]:
    """Sequential loops of every kind, early exits, branches."""
    for dtype in ("int32", "float32", "float16", "int8", "uint64", "float64"):
        checks = []
        for name, text in _LOOPS.items():
            body = f"\nwith T.Kernel(1, threads=32) as bx:\n{text.strip(chr(10))}\n"
            params = (Param("A", (11,), dtype), Param("O", (12,), dtype, "mark"))
            checks.append(Check("loops", dtype, params, body, note=name))
        yield Group(f"loops-{dtype}", "loops", tuple(checks))


def parameters() -> Iterator[Group]:
    """Strided tensors (row pitch, gaps, broadcast, run-time strides) and run-time shapes."""
    for dtype in (
        "int32",
        "float32",
        "float16",
        "int8",
        "uint8",
        "int64",
        "float64",
        "bfloat16",
        "bool",
    ):
        checks = []
        layouts: tuple[tuple[tuple[int | str, ...], tuple[int | str, ...], str], ...] = (
            ((5, 17), (24, 1), "row pitch"),
            ((5, 17), (1, 5), "column major"),
            ((5, 17), (90, 3), "gaps in both dimensions"),
            ((5, 17), (0, 1), "one row for all"),
            ((1, 1), (7, 3), "one element"),
            (("m", "n"), ("p", "q"), "run-time strides"),
        )
        for shape, strides, note in layouts:
            m, n = shape
            params = (
                Param("A", shape, dtype, strides=strides),
                Param("O", shape, dtype, "mark"),
                Param("Q", shape, dtype, "mark", (strides[0] or n, strides[1])),
            )
            body = f"""
with T.Kernel(T.ceildiv({n}, 8), {m}, threads=32) as (bx, by):
    s = T.alloc_shared((8,), "{dtype}")
    T.copy(A[by, bx * 8], s)
    T.copy(s, O[by, bx * 8])
    for i in T.Parallel(8):
        if bx * 8 + i < {n}:
            Q[by, bx * 8 + i] = A[by, bx * 8 + i]
"""
            sizes = tuple(
                {"m": m, "n": n, "p": p, "q": q}
                for m, n, p, q in (
                    (3, 5, 8, 1),
                    (4, 9, 1, 4),
                    (2, 3, 20, 5),
                    (0, 3, 4, 1),
                    (1, 1, 1, 1),
                )
            )
            fixed: tuple[dict[str, int], ...] = ({},)
            checks.append(
                Check("strides", dtype, params, body, sizes=sizes if m == "m" else fixed, note=note)
            )
        body = f"""
with T.Kernel(T.ceildiv(m, 4), threads=32) as bx:
    r = T.alloc_fragment((4, 8), "{dtype}")
    T.copy(A[bx * 4, 0], r)
    for i, j in T.Parallel(4, 8):
        if bx * 4 + i < m and j < n:
            O[bx * 4 + i, j] = r[i, j]
            P[(bx * 4 + i) * n + j] = r[i, j]
"""
        params = (
            Param("A", ("m", "n"), dtype),
            Param("O", ("m", "n"), dtype, "mark"),
            Param("P", ("k",), dtype, "mark"),
        )
        sizes = tuple(
            {"m": m, "n": n, "k": m * n + 2} for m, n in ((0, 8), (1, 1), (5, 3), (8, 8), (13, 7))
        )
        checks.append(Check("dynamic", dtype, params, body, sizes=sizes, note="three sizes"))
        yield Group(f"parameters-{dtype}", "parameters", tuple(checks))


def lanes() -> Iterator[Group]:
    """Programs that name their lanes: private values, exchange through shared memory, votes."""
    for dtype in ("int32", "float32", "float16", "int64", "uint8"):
        checks = []
        for threads in (1, 32, 48, 128):
            body = f"""
with T.Kernel(3, threads={threads}) as bx:
    tx = T.get_thread_binding()
    s = T.alloc_shared(({threads},), "{dtype}")
    x = T.alloc_local((2,), "{dtype}")
    v = T.alloc_var("{dtype}", init=A[bx, tx])
    x[0] = v + 1
    s[tx] = x[0] * 2
    T.sync_threads()
    x[1] = s[{threads - 1} - tx]
    if tx % 2 == 0:
        v = x[1] - v
    for k in T.serial(tx % 3):
        v += 1
    O[bx, tx] = v
    if tx == 0:
        O[bx, {threads}] = x[0]
"""
            params = (Param("A", (3, threads), dtype), Param("O", (3, threads + 2), dtype, "mark"))
            checks.append(Check("lanes", dtype, params, body, note=f"{threads} lanes"))
        body = f"""
with T.Kernel(2, threads=(8, 4)) as bx:
    tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
    s = T.alloc_shared((4, 8), "{dtype}")
    s[ty, tx] = A[bx, ty, tx]
    T.sync_threads()
    O[bx, tx, ty] = s[ty, tx] + s[3 - ty, 7 - tx]
    T.sync_threads()
    for i, j in T.Parallel(4, 8):
        s[i, j] = s[i, j] + 1
    if tx == ty:
        O[bx, tx, 4] = s[ty, tx]
"""
        params = (Param("A", (2, 4, 8), dtype), Param("O", (2, 8, 5), dtype, "mark"))
        checks.append(Check("lanes", dtype, params, body, note="two dimensions"))
        yield Group(f"lanes-{dtype}", "lanes", tuple(checks))


def launches() -> Iterator[Group]:
    """Grids of one to three dimensions, empty ones, several launches that see each other's work."""
    for dtype in ("int32", "float32", "uint8"):
        checks = []
        for grid in ((1,), (7,), (0,), (3, 2), (2, 3, 4), (1, 0, 2)):
            names = ("bx", "by", "bz")[: len(grid)]
            where = "(bz * 3 + by) * 7 + bx".replace("bz", "bz" if len(grid) > 2 else "0")
            where = where.replace("by", "by" if len(grid) > 1 else "0")
            head = f"({', '.join(names)})" if len(grid) > 1 else names[0]
            body = f"""
with T.Kernel({", ".join(map(str, grid))}, threads=32) as {head}:
    O[{where}] = A[{where}] + 1
with T.Kernel(2, threads=32) as again:
    for i in T.Parallel(80):
        Q[again, i] = O[i] * 2
"""
            params = (
                Param("A", (84,), dtype),
                Param("O", (84,), dtype, "mark"),
                Param("Q", (2, 84), dtype, "mark"),
            )
            checks.append(Check("launch", dtype, params, body, note=f"grid {grid}, two launches"))
        yield Group(f"launch-{dtype}", "launch", tuple(checks))
