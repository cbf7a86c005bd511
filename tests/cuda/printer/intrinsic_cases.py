"""Programs with every intrinsic of lane machines, on all the types and shapes that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cuda_programs import INT32, INTEGERS, const, effect, loop, split

from tilec import ir
from tilec.ir import DType
from tilec.layout import Layout, swizzled
from tilec.transform.capabilities import MatrixAtom
from tilec_cuda.arch import Arch

EXCHANGED = ("bool", *INTEGERS, "float16", "bfloat16", "float32", "float64", "float8_e4m3")
UPDATED = (*INTEGERS, "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2",
            "float8_e4m3fnuz")  # fmt: skip


class Case(NamedTuple):
    """A program and the architectures that have what it uses."""

    name: str
    make: Callable[[], ir.Module]
    has: Callable[[Arch], bool] = lambda arch: arch.number >= 80


def since(number: int) -> Callable[[Arch], bool]:
    """That architecture and later ones."""
    return lambda arch: arch.number >= number


def buffer(name: str, shape: Any, dtype: str, scope: str = ir.GLOBAL) -> ir.Buffer:
    """A buffer."""
    return ir.Buffer(name, shape if isinstance(shape, tuple) else (shape,), DType(dtype), scope)


def lanes(name: str, dtype: str, argument: Any, width: Any) -> ir.Module:
    """One value per lane, handed to another one."""
    a, out = buffer("a", 128, dtype), buffer("out", 128, dtype)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        other = tx % 7 if argument is None else ir.as_expr(argument)
        call = ir.Call(name, (a[tx], other, ir.as_expr(width)), DType(dtype))
        var = ir.Var("got", DType(dtype))
        return ir.seq(ir.Bind(var, call), ir.Store(out, (tx,), var))

    return split(body, [a, out])


def votes() -> ir.Module:
    """All votes and elections."""
    a = buffer("a", 128, "int32")
    outs = [buffer(f"out{n}", 128, d) for n, d in enumerate(["int32", "int32", "uint32", "bool"])]

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        names = ("any_sync", "all_sync", "ballot_sync")
        stores: list[ir.Stmt] = [
            ir.Store(o, (tx,), ir.Call(n, (a[tx] > 0,), o.dtype))
            for n, o in zip(names, outs, strict=False)
        ]
        for count in (0, 32, 96, 128):
            elect = ir.Call("shuffle_elect", (const(count),), DType("bool"))
            stores.append(ir.If(elect, ir.Store(outs[3], (tx,), ir.Const(True, DType("bool")))))
        return ir.seq(*stores)

    return split(body, [a, *outs])


def barriers() -> ir.Module:
    """Barriers of the block, of some lanes, of a warp."""
    shared, out = buffer("s", 128, "float32", ir.SHARED), buffer("out", 128, "float32")

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        return ir.seq(
            ir.Alloc(shared),
            ir.Store(shared, (tx,), ir.cast(tx, "float32")),
            effect("sync"), effect("sync", 1, 128), effect("sync_warp"),
            ir.If(tx < 64, effect("named_barrier_arrive", 2, 128), effect("sync", 2, 128)),
            ir.Store(out, (tx,), shared[(tx + 1) % 128]),
        )  # fmt: skip

    return split(body, [out])


UPDATES = ("atomic_add", "atomic_max", "atomic_min")


def updates(dtype: str, order: str | None, scope: str = ir.GLOBAL) -> ir.Module:
    """Atomic updates with and without a result: a row of the target for each."""
    given, out = buffer("given", (3, 64), dtype), buffer("out", (3, 64), dtype)
    target, prev = buffer("target", (3, 64), dtype, scope), buffer("prev", (3, 128), dtype)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        attrs = {"memory_order": order} if order else {}
        on = out if scope == ir.GLOBAL else target

        def move(to: ir.Buffer, source: ir.Buffer) -> ir.Stmt:
            move = loop(3, lambda i: ir.Store(to, (i, tx), source[i, tx]))
            return ir.seq(ir.If(tx < 64, move), effect("sync"))

        stmts: list[ir.Stmt] = [ir.seq() if scope == ir.GLOBAL else ir.Alloc(target)]
        stmts.append(move(on, given))
        for row, name in enumerate(UPDATES):
            value = ir.cast(tx % 2 + 1, dtype)
            call = ir.Call(name, (on[row, tx % 64], value), DType(dtype), attrs)
            var = ir.Var("old", DType(dtype))
            stmts += [ir.Evaluate(call), ir.Bind(var, call), ir.Store(prev, (const(row), tx), var)]
        stmts.append(effect("sync"))
        return ir.seq(*stmts, ir.seq() if scope == ir.GLOBAL else move(out, target))

    return split(body, [given, out, prev])


def own_updates(dtype: str) -> ir.Module:
    """Updates of what one lane has."""
    given, out = buffer("given", (3, 128), dtype), buffer("out", (3, 128), dtype)
    own = buffer("own", 3, dtype, ir.LOCAL)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        stmts: list[ir.Stmt] = [ir.Alloc(own)]
        for row, name in enumerate(UPDATES):
            call = ir.Call(name, (own[row], ir.cast(tx % 2 + 1, dtype)), DType(dtype))
            var = ir.Var("old", DType(dtype))
            stmts += [
                ir.Store(own, (const(row),), given[row, tx]), ir.Evaluate(call),
                ir.Bind(var, call), ir.Store(out, (const(row), tx), own[row]),
                ir.Store(given, (const(row), tx), var),
            ]  # fmt: skip
        return ir.seq(*stmts)

    return split(body, [given, out])


def vector_updates(dtype: str, count: int) -> ir.Module:
    """Updates of neighbours."""
    a, target = buffer("a", (128, count), dtype), buffer("target", (128, count), dtype)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        return loop(
            count, lambda v: effect("atomic_add", target[tx, v], a[tx, v], dtype=dtype),
            "vectorized", "v",
        )  # fmt: skip

    return split(body, [a, target])


def async_copies(dtype: str, count: int, conditional: bool) -> ir.Module:
    """Copies into shared memory, in two groups."""
    shared = buffer("s", (2, 128, count), dtype, ir.SHARED_DYN)
    a, out = buffer("a", (256, count), dtype), buffer("out", (128, count), dtype)
    n = ir.Var("n", INT32)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        more = (tx < n,) if conditional else ()
        stmts: list[ir.Stmt] = [ir.Alloc(shared)]
        for stage in range(2):
            target, place = shared[stage, tx, 0], a[stage * 128 + tx, 0]
            stmts += [effect("cp_async", target, place, count, *more), effect("cp_async_commit")]
        stmts += [effect("cp_async_wait", 1), effect("cp_async_wait", 0), effect("sync")]
        stmts.append(loop(count, lambda v: ir.Store(out, (tx, v), shared[1, 127 - tx, v])))
        return ir.seq(*stmts)

    return split(body, [a, out, n] if conditional else [a, out])


def transaction_barriers(expect: bool) -> ir.Module:
    """Everything that barriers in shared memory have."""
    bars, out = buffer("bars", 2, "uint64", "shared.barrier"), buffer("out", 128, "float32")
    shared, a = buffer("s", (128, 4), "float32", ir.SHARED), buffer("a", (128, 4), "float32")

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        first = ir.If(tx == 0, ir.seq(
            effect("mbarrier_init", bars[0], 256), effect("mbarrier_init", bars[1], 2)
        ))  # fmt: skip
        bytes_ = [ir.If(tx == 0, ir.seq(
            effect("mbarrier_expect_tx", bars[1], 0),
            effect("mbarrier_arrive_expect_tx", bars[1], 0),
        ))] if expect else []  # fmt: skip
        return ir.seq(
            ir.Alloc(bars), ir.Alloc(shared), first, effect("fence_barrier_init"), effect("sync"),
            effect("cp_async", shared[tx, 0], a[tx, 0], 4),
            effect("cp_async_barrier_noinc", bars[0]), effect("mbarrier_arrive", bars[0]),
            *bytes_,
            effect("mbarrier_wait_parity", bars[0], 0),
            ir.Store(out, (tx,), shared[tx, 1]),
        )  # fmt: skip

    return split(body, [a, out])


def bulk(
    rank: int, dtype: str = "bfloat16", chunks: int = 0, wide: int = 1, reduce: str | None = None
) -> ir.Module:
    """A box into shared memory and back; `wide` panels of a row."""
    item = DType(dtype).bytes
    row = (16 * chunks if chunks else 128) // item * wide
    shape = (2,) * (rank - 2) + (16, row) if rank > 1 else (row,)
    shared = buffer("s", (2, *shape), dtype, ir.SHARED_DYN)
    bars = buffer("bars", 1, "uint64", "shared.barrier")
    a, out = (buffer(n, tuple(4 * e for e in shape), dtype) for n in ("a", "out"))
    if not chunks:
        layouts: list[Any] = []
    elif wide == 1:
        layouts = [(shared, swizzled((2, *shape), item * 8, chunks))]
    else:
        layouts = [(shared, paneled(shape, 16 * chunks // item, item, chunks, 2))]

    def body(bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        starts = [bx * e for e in shape]
        box = ir.BufferRegion(a, tuple(map(ir.as_expr, starts)), shape)
        target = ir.BufferRegion(out, tuple(map(ir.as_expr, starts)), shape)
        tile = ir.BufferRegion(shared, (const(1), *(const(0) for _ in shape)), (1, *shape))
        size = item
        for extent in shape:
            size *= extent
        attrs = {"reduce": reduce} if reduce else {}
        one = ir.If(tx == 0, ir.seq(
            effect("mbarrier_arrive_expect_tx", bars[0], size),
            effect("bulk_load", tile, box, bars[0]),
        ))  # fmt: skip
        back = ir.If(tx == 0, ir.seq(
            effect("bulk_store", target, tile, **attrs), effect("bulk_commit"),
            effect("bulk_wait", 0, read=True), effect("bulk_wait", 0),
        ))  # fmt: skip
        return ir.seq(
            ir.Alloc(shared), ir.Alloc(bars),
            ir.If(tx == 0, effect("mbarrier_init", bars[0], 1)), effect("fence_barrier_init"),
            effect("sync"), one, effect("mbarrier_wait_parity", bars[0], 0),
            effect("fence_proxy_async"), effect("sync"), back,
        )  # fmt: skip

    return split(body, [a, out], grid=4, layouts=layouts)


def paneled(shape: tuple[int, ...], width: int, item: int, chunks: int, stages: int) -> Layout:
    """Panels of swizzled rows, stage by stage."""
    rows = shape[-2]
    inner = swizzled((rows, width), item * 8, chunks)

    def forward(stage: Any, r: Any, c: Any) -> Any:
        r2, c2 = inner.map(r, c % width)
        return (stage, c // width, r2, c2)

    return Layout((stages, *shape), forward)


def moves(dtype: str, num: int, transpose: bool, store: bool) -> ir.Module:
    """``ldmatrix`` and ``stmatrix``, by one warp."""
    per = 2 // DType(dtype).bytes
    shared = buffer("s", (num * 8, 8 * per), dtype, ir.SHARED)
    count = 2 * num * per
    regs = buffer("r", (count,), dtype, ir.LOCAL)
    tile, held = buffer("tile", shared.shape, dtype), buffer("held", (32, count), dtype)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        region = ir.BufferRegion(regs, (const(0),), (count,))
        place = shared[tx % (8 * num), 0]
        args = (place, region) if store else (region, place)
        name = "stmatrix" if store else "ldmatrix"
        there = loop(8 * num, lambda r: ir.Store(shared, (r, tx), tile[r, tx]), name="row")
        back = loop(8 * num, lambda r: ir.Store(tile, (r, tx), shared[r, tx]), name="row")
        take = loop(count, lambda i: ir.Store(regs, (i,), held[tx, i]), "unroll")
        give = loop(count, lambda i: ir.Store(held, (tx, i), regs[i]), "unroll")
        columns = tx < 8 * per
        return ir.seq(
            ir.Alloc(shared), ir.Alloc(regs),
            take if store else ir.If(columns, there), effect("sync"),
            effect(name, *args, num=num, transpose=transpose), effect("sync"),
            ir.If(columns, back) if store else give,
        )  # fmt: skip

    return split(body, [tile, held], threads=(32,))


MMA = (
    ("float16", "float32", 16, 8, 16, 80), ("float16", "float16", 16, 8, 16, 80),
    ("float16", "float32", 16, 8, 8, 75), ("bfloat16", "float32", 16, 8, 16, 80),
    ("bfloat16", "float32", 16, 8, 8, 80), ("tfloat32", "float32", 16, 8, 8, 80),
    ("tfloat32", "float32", 16, 8, 4, 80), ("float64", "float64", 8, 8, 4, 80),
    ("int8", "int32", 16, 8, 32, 80), ("uint8", "int32", 16, 8, 32, 80),
    ("int8", "int32", 16, 8, 16, 80), ("int8", "int32", 8, 8, 16, 75),
    ("float8_e4m3", "float32", 16, 8, 32, 89), ("float8_e5m2", "float32", 16, 8, 32, 89),
    ("float8_e4m3fn", "float32", 16, 8, 32, 89),
)  # fmt: skip
"""Operand and accumulator, m, n, k, first architecture."""


def mma(dtype: str, acc: str, m: int, n: int, k: int, more: Any) -> ir.Module:
    """A matrix instruction of a warp; `more` is its predicate."""
    atom = MatrixAtom(f"mma_{dtype}", m, n, k, dtype, dtype, acc)
    a, b, c = (
        buffer(name, (size // 32,), d, ir.LOCAL)
        for name, size, d in (("a", m * k, dtype), ("b", n * k, dtype), ("c", m * n, acc))
    )
    ins = [buffer(f"in_{x.name}", (32, x.shape[0]), x.dtype) for x in (a, b)]
    out = buffer("out", (32, c.shape[0]), acc)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        regions = [ir.BufferRegion(x, (const(0),), x.shape) for x in (c, a, b)]
        predicate = () if more is None else (tx >= 0 if more == "lane" else more,)
        fills = [
            loop(x.shape[0], lambda i, x=x, s=s: ir.Store(x, (i,), s[tx, i]), "unroll")
            for x, s in zip((a, b), ins, strict=True)
        ]
        zero = loop(c.shape[0], lambda i: ir.Store(c, (i,), ir.literal(0, c.dtype)), "unroll")
        return ir.seq(
            *(ir.Alloc(x) for x in (a, b, c)), *fills, zero,
            effect("mma", *regions, *predicate, atom=atom),
            loop(c.shape[0], lambda i: ir.Store(out, (tx, i), c[i]), "unroll"),
        )  # fmt: skip

    return split(body, [*ins, out], threads=(32,))


GROUP = (
    ("float16", "float32", 16), ("float16", "float16", 16), ("bfloat16", "float32", 16),
    ("tfloat32", "float32", 8), ("float8_e4m3", "float32", 32), ("float8_e5m2", "float16", 32),
    ("int8", "int32", 32), ("uint8", "int32", 32),
)  # fmt: skip


def group_mma(
    dtype: str, acc: str, k: int, n: int, *, registers: bool = False, ta: bool = False,
    tb: bool = False, chunks: int = 8,
) -> ir.Module:  # fmt: skip
    """Matrix instructions of four warps over a tile of one row of pieces."""
    item = DType(dtype).bytes
    width = 16 * chunks // item
    atom = MatrixAtom(
        f"wgmma_{dtype}", 64, n, k, dtype, dtype, acc,
        ("local" if registers else "shared", "shared", "local"), 128, asynchronous=True,
    )  # fmt: skip
    depth = max(width, k)

    def tile(name: str, extent: int, transposed: bool) -> tuple[ir.Buffer, Any]:
        shape = (depth, extent) if transposed else (extent, depth)
        made = buffer(name, shape, dtype, ir.SHARED_DYN)
        columns = shape[1]
        if columns == width:
            return made, swizzled(shape, item * 8, chunks)
        inner = swizzled((shape[0], width), item * 8, chunks)

        def forward(r: Any, c: Any) -> Any:
            row, column = inner.map(r, c % width)
            return (c // width, row, column)

        return made, Layout(shape, forward)

    a, la = tile("a", 64, ta)
    b, lb = tile("b", n, tb)
    c = buffer("c", (64 * n // 128,), acc, ir.LOCAL)
    own = buffer("own", (64 * k // 128,), dtype, ir.LOCAL)
    steps = depth // k
    in_a = buffer("in_a", (steps, 128, own.shape[0]) if registers else a.shape, dtype)
    in_b = buffer("in_b", b.shape, dtype)
    out = buffer("out", (128, 64 * n // 128), acc)

    def fill(tx: ir.Var, target: ir.Buffer, given: ir.Buffer) -> ir.Stmt:
        rows, columns = target.shape

        def put(i: Any) -> ir.Stmt:
            place = i * 128 + tx
            index = (place // columns, place % columns)
            return ir.Store(target, index, given[index])

        return loop(rows * columns // 128, put)

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        def region(x: ir.Buffer, step: Any, extent: int, transposed: bool) -> ir.BufferRegion:
            mins, extents = (const(0), ir.as_expr(step * k)), (extent, k)
            if transposed:
                mins, extents = mins[::-1], extents[::-1]
            return ir.BufferRegion(x, mins, extents)

        whole = ir.BufferRegion(c, (const(0),), c.shape)

        def step(i: Any) -> ir.Stmt:
            if registers:
                left = ir.BufferRegion(own, (const(0),), own.shape)
                take = loop(
                    own.shape[0], lambda r: ir.Store(own, (r,), in_a[i, tx, r]), "unroll", "r"
                )
            else:
                left, take = region(a, i, 64, ta), ir.seq()
            attrs = {"atom": atom, "transpose_a": ta, "transpose_b": tb}
            call = effect("mma", whole, left, region(b, i, n, tb), i > 0, **attrs)
            if not registers:
                return call
            # The registers are read until the instruction is done.
            order = [effect("mma_commit"), effect("mma_wait", 0)]
            return ir.seq(take, effect("mma_fence"), call, *order)

        return ir.seq(
            ir.Alloc(own) if registers else ir.seq(ir.Alloc(a), fill(tx, a, in_a)),
            ir.Alloc(b), fill(tx, b, in_b), ir.Alloc(c),
            effect("fence_proxy_async"), effect("sync"),
            effect("mma_fence"), loop(steps, step, "unroll"), effect("mma_commit"),
            effect("mma_wait", 0),
            loop(c.shape[0], lambda i: ir.Store(out, (tx, i), c[i]), "unroll"),
        )  # fmt: skip

    layouts = [(b, lb)] if registers else [(a, la), (b, lb)]
    return split(body, [in_a, in_b, out], layouts=layouts)


def registers() -> ir.Module:
    """Two groups of warps with different budgets."""
    out = buffer("out", 256, "float32")

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        return ir.seq(
            ir.If(tx < 128, effect("set_max_nreg", 24, 0), effect("set_max_nreg", 240, 1)),
            ir.Store(out, (tx,), ir.literal(0, DType("float32"))),
        )

    return split(body, [out], threads=(256,))


def launches() -> ir.Module:
    """Dependent launches and clusters."""
    out = buffer("out", 128, "float32")

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        names = ("pdl_sync", "cluster_sync", "cluster_arrive", "cluster_wait", "pdl_trigger")
        store = ir.Store(out, (tx,), ir.literal(0, DType("float32")))
        return ir.seq(*(effect(name) for name in names), store)

    return split(body, [out])


def cases() -> Iterator[Case]:
    """All of them."""
    for dtype in EXCHANGED:
        yield Case(f"shfl-{dtype}", lambda d=dtype: lanes("shfl_sync", d, None, 32))
        yield Case(f"shfl_xor-{dtype}", lambda d=dtype: lanes("shfl_xor", d, 1, 32))
    for name, argument, width in (
        ("shfl_up", 1, 8), ("shfl_down", 2, 16), ("shfl_xor", 4, 8), ("shfl_sync", 9, 8),
        ("shfl_sync", 3, 4),
    ):  # fmt: skip
        yield Case(
            f"{name}-{argument}-{width}",
            lambda n=name, a=argument, w=width: lanes(n, "float32", a, w),
        )
    yield Case("votes", votes)
    yield Case("barriers", barriers)
    for dtype in UPDATED:
        yield Case(f"atomics-{dtype}", lambda d=dtype: updates(d, None), since(75))
        yield Case(
            f"atomics-shared-{dtype}", lambda d=dtype: updates(d, None, ir.SHARED), since(75)
        )
        yield Case(f"atomics-own-{dtype}", lambda d=dtype: own_updates(d), since(75))
    for order in ("relaxed", "acquire", "release", "acq_rel", "seq_cst"):
        yield Case(f"atomics-{order}", lambda o=order: updates("float32", o), since(75))
    for dtype in ("float16", "bfloat16", "float32", "float64", "int32"):
        for count in (2, 4, 8):
            yield Case(
                f"vector-atomics-{dtype}-{count}",
                lambda d=dtype, c=count: vector_updates(d, c), since(75),
            )  # fmt: skip
    for dtype, count in (("float32", 1), ("float32", 4), ("float16", 8), ("float16", 2),
                         ("int8", 16), ("float64", 1), ("float8_e4m3", 4)):  # fmt: skip
        for conditional in (False, True):
            yield Case(
                f"cp_async-{dtype}-{count}-{conditional}",
                lambda d=dtype, c=count, p=conditional: async_copies(d, c, p),
            )
    yield Case("mbarrier", lambda: transaction_barriers(False))
    yield Case("mbarrier-tx", lambda: transaction_barriers(True), since(90))
    for rank in range(1, 6):
        yield Case(f"bulk-{rank}d", lambda r=rank: bulk(r), since(90))
    for chunks in (2, 4, 8):
        for dtype in ("bfloat16", "float32", "float8_e4m3"):
            yield Case(f"bulk-{dtype}-swizzle-{16 * chunks}",
                       lambda d=dtype, c=chunks: bulk(2, d, c), since(90))  # fmt: skip
        yield Case(f"bulk-panels-{16 * chunks}",
                   lambda c=chunks: bulk(2, "bfloat16", c, 2), since(90))  # fmt: skip
    for op in ("add", "min", "max"):
        yield Case(f"bulk-{op}", lambda o=op: bulk(2, "float16", reduce=o), since(90))
    for num in (1, 2, 4):
        for transpose in (False, True):
            for dtype in ("float16", "int8"):
                yield Case(f"ldmatrix-{dtype}-{num}-{transpose}",
                           lambda d=dtype, n=num, t=transpose: moves(d, n, t, False),
                           since(75))  # fmt: skip
            yield Case(f"stmatrix-{num}-{transpose}",
                       lambda n=num, t=transpose: moves("bfloat16", n, t, True),
                       since(90))  # fmt: skip
    for dtype, acc, m, n, k, first in MMA:
        for more in (None, False, "lane"):
            yield Case(
                f"mma-{dtype}-{acc}-{m}x{n}x{k}-{more}",
                lambda x=(dtype, acc, m, n, k), p=more: mma(*x, p), since(first),
            )  # fmt: skip
    wgmma = lambda arch: arch.has_wgmma  # noqa: E731
    for dtype, acc, k in GROUP:
        for n in (8, 64, 256):
            yield Case(f"wgmma-{dtype}-{acc}-{n}",
                       lambda x=(dtype, acc, k), n=n: group_mma(*x, n), wgmma)  # fmt: skip
        yield Case(f"wgmma-{dtype}-{acc}-registers",
                   lambda x=(dtype, acc, k): group_mma(*x, 64, registers=True), wgmma)  # fmt: skip
    for chunks in (2, 4, 8):
        for ta, tb in ((False, False), (True, True), (False, True)):
            yield Case(
                f"wgmma-swizzle-{16 * chunks}-{ta}-{tb}",
                lambda c=chunks, p=ta, q=tb: group_mma(
                    "bfloat16", "float32", 16, 64, ta=p, tb=q, chunks=c
                ),
                wgmma,
            )
    yield Case("registers", registers, lambda arch: arch.has_setmaxnreg)
    yield Case("launches", launches, since(90))
