"""Random functions in thread form print as Python that gives the same functions again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import tilec.language as T
from tilec import ir
from tilec.diagnostics import DTypeError, OperandError
from tilec.layout import Fragment, Layout
from tilec.transform.capabilities import MatrixAtom

I32, BOOL, F32 = ir.DType("int32"), ir.DType("bool"), ir.DType("float32")
RESULT = Fragment((16, 8), lambda i, j: (i % 8 * 4 + j // 2, i // 8 * 2 + j % 2))
ATOMS = [
    MatrixAtom(
        name, 16, 8, 16, "float16", "float16", "float32", lanes=lanes, asynchronous=lanes > 32,
        layouts=(None, None, RESULT),
    )
    for name, lanes in (("small", 32), ("wide", 128))
]  # fmt: skip


class Writer:
    """Builds one random function."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lane = ir.Var("tx", I32)
        self.vars: list[ir.Var] = [self.lane]
        self.src = ir.Buffer("A", (64, 64), ir.DType("float16"))
        self.dst = ir.Buffer("C", (64, 64), ir.DType("float32"))
        self.tile = ir.Buffer("tile", (2, 32, 32), ir.DType("float16"), "shared.dyn")
        self.plain = ir.Buffer("plain", (32, 32), F32, "shared")
        self.regs = ir.Buffer("regs", (32,), ir.DType("float16"), "local")
        self.acc = ir.Buffer("acc", (32,), F32, "local")
        self.bars = ir.Buffer("bars", (4,), ir.DType("uint64"), "shared.barrier")
        self.number = 0

    def const(self, low: int, high: int) -> ir.Const:
        return ir.Const(self.rng.randint(low, high), I32)

    def index(self, extent: int) -> ir.Expr:
        kind = self.rng.randrange(4)
        if kind == 0:
            return self.const(0, extent - 1)
        var = self.rng.choice(self.vars)
        if kind == 1:
            return ir.Binary(ir.BinOp.FLOORMOD, var, self.const(1, extent), I32)
        if kind == 2:
            return var
        return ir.Binary(ir.BinOp.ADD, var, self.const(0, 3), I32)

    def at(self, buffer: ir.Buffer) -> ir.Load:
        return ir.Load(buffer, tuple(self.index(int(e)) for e in buffer.shape), buffer.dtype)

    def box(self, buffer: ir.Buffer, *extents: int) -> ir.BufferRegion:
        sizes = (1,) * (len(buffer.shape) - len(extents)) + extents
        mins = []
        for size, extent in zip(sizes, buffer.shape, strict=True):
            assert isinstance(extent, int)
            inside = self.const(0, extent - size)
            mins.append(inside if size > 1 and self.rng.random() < 0.5 else self.index(extent)
                        if size == 1 else inside)  # fmt: skip
        return ir.BufferRegion(buffer, tuple(mins), sizes)

    def call(self) -> ir.Call:
        c, r = self.const, self.rng
        atom = r.choice(ATOMS)
        plain: list[Callable[[], tuple[str, tuple[Any, ...], dict[str, Any]]]] = [
            lambda: ("sync", (), {}),
            lambda: ("sync", (c(1, 7), c(32, 256)), {}),
            lambda: ("named_barrier_arrive", (c(1, 7), c(32, 256)), {}),
            lambda: ("sync_warp", (), {}),
            lambda: ("cp_async", (self.at(self.tile), self.at(self.src), c(8, 8)), {}),
            lambda: (
                "cp_async",
                (self.at(self.tile), self.at(self.src), ir.Const(4, I32), self.lane < c(1, 9)), {},
            ),
            lambda: ("cp_async_commit", (), {}),
            lambda: ("cp_async_wait", (c(0, 4),), {}),
            lambda: ("cp_async_barrier_noinc", (self.at(self.bars),), {}),
            lambda: ("mbarrier_init", (self.at(self.bars), c(1, 128)), {}),
            lambda: ("mbarrier_arrive", (self.at(self.bars),), {}),
            lambda: ("mbarrier_expect_tx", (self.at(self.bars), c(16, 4096)), {}),
            lambda: ("mbarrier_arrive_expect_tx", (self.at(self.bars), c(16, 4096)), {}),
            lambda: ("mbarrier_wait_parity", (self.at(self.bars), self.index(2)), {}),
            lambda: ("fence_barrier_init", (), {}),
            lambda: ("fence_proxy_async", (), {}),
            lambda: (
                "bulk_load", (self.box(self.tile, 16, 16), self.box(self.src, 16, 16),
                              self.at(self.bars)), {},
            ),
            lambda: (
                "bulk_store", (self.box(self.dst, 8, 32), self.box(self.plain, 8, 32)),
                {"reduce": r.choice(["add", "min", "max"])} if r.random() < 0.5 else {},
            ),
            lambda: ("bulk_commit", (), {}),
            lambda: ("bulk_wait", (c(0, 3),), r.choice([{}, {"read": True}, {"read": False}])),
            lambda: (
                "mma", (self.box(self.acc, 4), self.box(self.tile, 16, 16),
                        self.box(self.tile, 8, 16),
                        *((self.lane >= c(0, 3),) if r.random() < 0.5 else ())),
                {"atom": atom, "transpose_b": r.random() < 0.5},
            ),
            lambda: ("mma_fence", (), {}),
            lambda: ("mma_commit", (), {}),
            lambda: ("mma_wait", (c(0, 2),), {}),
            lambda: (
                "ldmatrix", (self.box(self.regs, 8), self.at(self.tile)),
                {"num": 4, "transpose": r.random() < 0.5},
            ),
            lambda: (
                "stmatrix", (self.at(self.tile), self.box(self.regs, 4)),
                {"num": 2, "transpose": False},
            ),
            lambda: ("set_max_nreg", (c(24, 240), c(0, 1)), {}),
        ]  # fmt: skip
        name, args, attrs = r.choice(plain)()
        return ir.Call(name, args, I32, attrs)

    def value(self) -> ir.Expr:
        c, r = self.const, self.rng
        name = r.choice(["shfl_sync", "shfl_xor", "shfl_up", "any_sync", "ballot_sync", "elect"])
        if name == "elect":
            elected = ir.Call("shuffle_elect", (c(0, 64),), BOOL)
            return ir.Select(elected, c(0, 5), self.index(9), I32)
        if name.startswith("shfl"):
            other = c(0, 15) if name == "shfl_xor" else self.index(32)
            return ir.Call(name, (self.index(64), other, ir.Const(r.choice([16, 32]), I32)), I32)
        dtype = ir.DType("uint32") if name == "ballot_sync" else I32
        return ir.Call(name, (self.index(9) > c(0, 9),), dtype)

    def stmts(self, depth: int) -> ir.Stmt:
        made: list[ir.Stmt] = []
        known = len(self.vars)
        for _ in range(self.rng.randint(2, 5)):
            kind = self.rng.randrange(8)
            if kind == 0 and depth:
                made.append(
                    ir.If(
                        self.lane < self.const(1, 64),
                        self.stmts(depth - 1),
                        self.stmts(depth - 1) if self.rng.random() < 0.5 else None,
                    )
                )
            elif kind == 1 and depth:
                var = ir.Var(f"i{self.number}", I32)
                self.number += 1
                self.vars.append(var)
                body = self.stmts(depth - 1)
                self.vars.pop()
                kinds = self.rng.choice(["serial", "unroll", "vectorized"])
                made.append(
                    ir.For(
                        var, ir.Const(0, I32), self.const(1, 8), ir.Const(1, I32), kinds, {}, body
                    )
                )
            elif kind == 2:
                value = self.value()
                var = ir.Var(f"v{self.number}", value.dtype)
                self.number += 1
                made.append(ir.Bind(var, value))
                if value.dtype == I32:
                    self.vars.append(var)
            elif kind == 3:
                made.append(ir.Store(self.acc, (self.index(32),), ir.cast(self.value(), F32)))
            else:
                made.append(ir.Evaluate(self.call()))
        del self.vars[known:]
        return (
            made[0] if len(made) == 1 and not isinstance(made[0], ir.Bind) else ir.Seq(tuple(made))
        )

    def function(self) -> ir.PrimFunc:
        buffers = (self.tile, self.plain, self.regs, self.acc, self.bars)
        body = self.stmts(3)
        inner = body.stmts if isinstance(body, ir.Seq) else (body,)
        notes: dict[str, Any] = {"warp": 32}
        if self.rng.random() < 0.5:
            notes["managed"] = [self.tile, self.bars]
        if self.rng.random() < 0.5:
            notes["layouts"] = [(self.plain, Layout((32, 32), lambda i, j: (j, i)))]
        rest = tuple(ir.Var(n, I32) for n in ("ty", "tz"))
        launch = ir.Launch(
            (ir.Var("bx", I32),),
            (ir.Const(4, I32),),
            (self.lane, *rest),
            (128, 1, 1),
            notes,
            ir.Seq((*(ir.Alloc(b) for b in buffers), *inner)),
        )
        return ir.PrimFunc("program", (self.src, self.dst), ir.Seq((launch,)))


@pytest.mark.parametrize("seed", range(80))
def test_a_script_gives_the_same_function(seed: int) -> None:
    func = Writer(seed).function()
    ir.verify(func, "thread")
    text = func.script()
    again = T.from_script(text, atoms=ATOMS)
    assert ir.structural_equal(again, func), text
    assert again.script() == text


def test_every_intrinsic_of_lanes_is_in_the_language() -> None:
    assert not [name for name in ir.LANE_INTRINSICS if not hasattr(T, name)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, b: T.sync_threads(1), "given together"),
        (lambda s, b: T.sync_threads(0, 32), "at least 1"),
        (lambda s, b: T.shfl_xor(s[0, 0], 1, 24), "power of two"),
        (lambda s, b: T.shfl_xor(s[0, 0], 8, 8), "below the width"),
        (lambda s, b: T.any_sync(s[0, 0] > 0, 0xFF), "mask"),
        (lambda s, b: T.mbarrier_arrive(s[0, 0]), "not a barrier"),
        (lambda s, b: T.mbarrier_arrive(b[0], 1), "cta_id"),
        (lambda s, b: T.mbarrier_arrive(b), "not an element"),
        (lambda s, b: T.bulk_store(s, s, reduce="mul"), "reduce"),
        (lambda s, b: T.ldmatrix(s, s[0, 0], num=3), "num 3"),
        (lambda s, b: T.mma(s, s, s, atom="nothing"), "no matrix atom"),
        (lambda s, b: T.cp_async(s[0, 0], s[0, 0], 3), "4, 8 or 16 bytes"),
    ],
)
def test_operands_that_do_not_fit(build: Any, message: str) -> None:
    with pytest.raises((OperandError, DTypeError), match=message) as caught:

        @T.prim_func
        def program(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=32, warp=32):
                s = T.alloc_shared((8, 8), "float32")
                b = T.alloc_barrier([1, 1])
                build(s, b)

    assert caught.value.span is not None
    assert caught.value.span.known


def test_other_names_mean_the_same() -> None:
    def program(names: dict[str, Any]) -> ir.PrimFunc:
        @T.prim_func
        def body(A: T.Tensor((32, 4), "float32")):
            with T.Kernel(1, threads=32, warp=32):
                s = T.alloc_shared((32, 4), "float32")
                ready = T.alloc_barrier(32)
                names["copy"](s[0, 0], A[0, 0], 4)
                names["copied"]()
                names["wait"](0)
                names["arrive"](ready[0])
                names["await"](ready[0], 0)
                names["fence"]()
                names["commit"]()
                names["done"](1)
                names["store"]()
                names["stored"](0, True)
                names["more"](64)

        return body

    usual = {
        "copy": T.cp_async, "copied": T.cp_async_commit, "wait": T.cp_async_wait,
        "arrive": T.mbarrier_arrive, "await": T.mbarrier_wait_parity, "fence": T.mma_fence,
        "commit": T.mma_commit, "done": T.mma_wait, "store": T.bulk_commit,
        "stored": T.bulk_wait, "more": lambda count: T.set_max_nreg(count, 1),
    }  # fmt: skip
    others = {
        "copy": T.ptx_cp_async, "copied": T.ptx_commit_group, "wait": T.ptx_wait_group,
        "arrive": T.barrier_arrive, "await": T.barrier_wait, "fence": T.warpgroup_arrive,
        "commit": T.warpgroup_commit_batch, "done": T.wait_wgmma, "store": T.tma_store_arrive,
        "stored": T.tma_store_wait, "more": T.inc_max_nreg,
    }  # fmt: skip
    assert ir.structural_equal(program(usual), program(others))
