"""Loop fusion: what is merged, what is not, and that no value ever changes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import tilec.language as T
from tilec import ir
from tilec.ir import BinOp
from tilec.ops import Reduce
from tilec.transform.base import PassContext
from tilec.transform.fuse import FuseLoops
from tilec.transform.parallel import REDUCTION, LowerParallel, accumulators
from tilec.transform.tiles import LowerTiles

I32, I64 = ir.DType("int32"), ir.DType("int64")


# --- running the IR ------------------------------------------------------------------------------


class Memory(dict[tuple[int, tuple[int, ...]], Any]):
    """Elements by buffer and index; None is an undefined value and spreads."""


def value(node: Any, env: dict[int, int], memory: Memory) -> Any:
    if isinstance(node, ir.Const):
        return node.value
    if isinstance(node, ir.Var):
        return env[id(node)]
    if isinstance(node, ir.Cast):
        return value(node.value, env, memory)
    if isinstance(node, ir.Load):
        return memory.get((id(node.buffer), place(node, env, memory)))
    assert isinstance(node, ir.Binary)
    a, b = value(node.lhs, env, memory), value(node.rhs, env, memory)
    if a is None or b is None:
        return None
    table = {
        BinOp.ADD: lambda: a + b, BinOp.SUB: lambda: a - b, BinOp.MUL: lambda: a * b % 10_007,
        BinOp.MAX: lambda: max(a, b), BinOp.MIN: lambda: min(a, b), BinOp.LT: lambda: a < b,
        BinOp.FLOORMOD: lambda: a % b,
    }  # fmt: skip
    return table[node.op]()


def place(node: Any, env: dict[int, int], memory: Memory) -> tuple[int, ...]:
    if node.buffer.scope() == ir.LOCAL_VAR:
        return (0,)
    return tuple(value(i, env, memory) for i in node.indices)


def execute(node: Any, env: dict[int, int], memory: Memory) -> None:
    if isinstance(node, ir.Seq):
        for stmt in node.stmts:
            execute(stmt, env, memory)
    elif isinstance(node, ir.Alloc):
        for key in [k for k in memory if k[0] == id(node.buffer)]:
            del memory[key]
        if node.init is not None:
            memory[id(node.buffer), (0,)] = value(node.init, env, memory)
    elif isinstance(node, ir.Bind):
        env[id(node.var)] = value(node.value, env, memory)
    elif isinstance(node, ir.Store):
        memory[id(node.buffer), place(node, env, memory)] = value(node.value, env, memory)
    elif isinstance(node, ir.If):
        if value(node.cond, env, memory):
            execute(node.then, env, memory)
    elif isinstance(node, ir.For):
        stop = value(node.stop, env, memory)
        for index in range(value(node.start, env, memory), stop):
            env[id(node.var)] = index
            execute(node.body, env, memory)
    elif isinstance(node, ir.Parallel):
        ranges = [range(value(e, env, memory)) for e in node.extents]
        for indices in itertools.product(*ranges):
            env.update({id(v): i for v, i in zip(node.vars, indices, strict=True)})
            execute(node.body, env, memory)
    else:
        assert isinstance(node, ir.Launch)
        env.update({id(v): 0 for v in node.grid_vars})
        execute(node.body, env, memory)


def outputs(func: ir.PrimFunc) -> list[Any]:
    memory = Memory()
    result = []
    for number, param in enumerate(func.params):
        assert isinstance(param, ir.Buffer)
        for at, index in enumerate(itertools.product(*(range(int(e)) for e in param.shape))):
            memory[id(param), index] = (at * 7 + number * 13) % 101
    execute(func.body, {}, memory)
    for param in func.params:
        assert isinstance(param, ir.Buffer)
        for index in itertools.product(*(range(int(e)) for e in param.shape)):
            result.append(memory[id(param), index])
    return result


def fused(func: ir.PrimFunc) -> ir.PrimFunc:
    module = FuseLoops()(ir.Module({func.name: func}), PassContext())
    result = module.functions[func.name]
    ir.verify(result)
    return result


# --- random programs -----------------------------------------------------------------------------

SIZE = 4


class Programs:
    """Random programs over a few small buffers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        shape = (SIZE, SIZE)
        self.inputs = [ir.Buffer("A", shape, I64), ir.Buffer("v", (SIZE,), I64)]
        self.results = [ir.Buffer("B", shape, I64), ir.Buffer("w", (SIZE,), I64)]
        self.tiles = [ir.Buffer(name, shape, I64, ir.FRAGMENT) for name in "xyz"]
        self.rows = [ir.Buffer(name, (SIZE,), I64, ir.FRAGMENT) for name in "rs"]
        self.scalar = ir.Buffer("t", (1,), I64, ir.LOCAL_VAR)

    def function(self) -> ir.PrimFunc:
        allocs: list[ir.Stmt] = [ir.Alloc(b) for b in (*self.tiles, *self.rows)]
        body = [self.statement(2) for _ in range(self.random.randint(3, 9))]
        if self.random.random() < 0.7:  # mostly programs without undefined values
            body = [self.fill(b) for b in (*self.tiles, *self.rows)] + body
        for place in range(len(allocs)):
            self.random.random() < 0.3 and allocs.insert(0, allocs.pop(place))
        scalar = ir.Alloc(self.scalar, ir.Const(3, I64))
        last = [self.fill(b, self.random.choice(self.tiles)) for b in self.results[:1]]
        launch = ir.Launch(
            (ir.Var("bx", I32),), (ir.Const(1, I32),), (), None, {},
            ir.Seq((*allocs, scalar, *body, *last)),
        )  # fmt: skip
        return ir.PrimFunc("f", (*self.inputs, *self.results), launch)

    def fill(self, buffer: ir.Buffer, source: ir.Buffer | None = None) -> ir.Stmt:
        variables = tuple(ir.Var(n, I32) for n in "ij"[: buffer.ndim])
        load: ir.Expr = ir.Const(self.random.randint(0, 9), I64)
        if source is not None:
            load = ir.Load(source, variables, I64)
        extents = tuple(ir.Const(SIZE, I32) for _ in variables)
        return ir.Parallel(variables, extents, {}, ir.Store(buffer, variables, load))

    def statement(self, depth: int) -> ir.Stmt:
        choice = self.random.random()
        if choice < 0.2:
            return self.reduction()
        if choice < 0.3 and depth:
            stmts = tuple(self.statement(depth - 1) for _ in range(self.random.randint(1, 4)))
            zero, one, two = (ir.Const(n, I32) for n in range(3))
            return ir.For(ir.Var("k", I32), zero, two, one, "serial", {}, ir.Seq(stmts))
        if choice < 0.35:
            index = (ir.Const(self.random.randrange(SIZE), I32),)
            return ir.Store(self.random.choice(self.rows), index, self.expression([], 1))
        return self.nest()

    def reduction(self) -> ir.Stmt:
        op = Reduce(
            self.random.choice(self.tiles).region(),
            self.random.choice(self.rows).region(),
            self.random.choice(["sum", "max", "min"]),
            self.random.randint(0, 1),
            clear=self.random.random() < 0.7,
        )
        return op.lower()

    def nest(self) -> ir.Stmt:
        variables = [ir.Var(n, I32) for n in "ij"[: self.random.choice([1, 2, 2])]]
        stmts: list[ir.Stmt] = []
        lets: list[ir.Var] = []
        if self.random.random() < 0.2:
            let = ir.Var("at", I32)
            stmts.append(ir.Bind(let, ir.binary(BinOp.ADD, variables[0], ir.Const(0, I32))))
            lets.append(let)
        for _ in range(self.random.choice([1, 1, 2])):
            names = [*variables, *lets]
            target = self.random.choice([*self.tiles, *self.tiles, *self.rows, *self.results])
            expression = self.expression(names, 2)
            store: ir.Stmt = ir.Store(target, self.indices(target, names), expression)
            if self.random.random() < 0.1:
                store = ir.Store(self.scalar, (ir.Const(0, I32),), expression)
            if self.random.random() < 0.1:
                cond = ir.binary(BinOp.LT, variables[0], ir.Const(2, I32))
                store = ir.If(cond, store)
            stmts.append(store)
        extents = tuple(ir.Const(self.random.choice([SIZE, SIZE, 3]), I32) for _ in variables)
        return ir.Parallel(tuple(variables), extents, {}, ir.seq(*stmts))

    def indices(self, buffer: ir.Buffer, names: list[ir.Var]) -> tuple[ir.Expr, ...]:
        """Mostly the plain order, sometimes anything."""
        if len(names) >= buffer.ndim and self.random.random() < 0.8:
            return tuple(names[: buffer.ndim])
        return tuple(self.index(names) for _ in buffer.shape)

    def index(self, names: list[ir.Var]) -> ir.Expr:
        choice = self.random.random()
        if not names or choice < 0.15:
            return ir.Const(self.random.randrange(SIZE), I32)
        name = self.random.choice(names)
        size = ir.Const(SIZE, I32)
        if choice < 0.3:
            return ir.binary(BinOp.SUB, ir.Const(SIZE - 1, I32), name)
        if choice < 0.4:
            return ir.binary(BinOp.FLOORMOD, ir.binary(BinOp.ADD, name, ir.Const(1, I32)), size)
        if choice < 0.45:
            row = ir.Load(self.inputs[1], (name,), I64)
            return ir.cast(ir.binary(BinOp.FLOORMOD, row, ir.Const(SIZE, I64)), I32)
        return name

    def expression(self, names: list[ir.Var], depth: int) -> ir.Expr:
        choice = self.random.random()
        if depth and choice < 0.5:
            op = self.random.choice([BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.MAX])
            sides = [self.expression(names, depth - 1) for _ in range(2)]
            return ir.binary(op, *sides)
        if choice < 0.6:
            return ir.Const(self.random.randint(-5, 5), I64)
        if choice < 0.65:
            return ir.Load(self.scalar, (ir.Const(0, I32),), I64)
        source = self.random.choice([*self.inputs, *self.tiles, *self.tiles, *self.rows])
        return ir.Load(source, self.indices(source, names), I64)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_their_results(seed: int) -> None:
    changed = 0
    for number in range(30):
        func = Programs(seed * 1000 + number).function()
        after = fused(func)
        changed += after is not func
        want, got = outputs(func), outputs(after)
        for a, b in zip(want, got, strict=True):
            assert a is None or a == b, f"seed {seed * 1000 + number}\n{func!r}\n{after!r}"
    assert changed > 10  # else the test says nothing


# --- structure -----------------------------------------------------------------------------------


def lowered(func: Any) -> ir.PrimFunc:
    module = LowerTiles()(ir.Module({func.name: func}), PassContext())
    return fused(module.functions[func.name])


def loops(func: ir.PrimFunc, depth: int) -> int:
    """The number of loops with `depth` loops around them."""

    def count(node: Any, level: int) -> int:
        here = isinstance(node, (ir.For, ir.Parallel))
        width = len(node.vars) if isinstance(node, ir.Parallel) else int(here)
        own = int(here and level <= depth < level + width)
        children = (c for c in node.children if isinstance(c, ir.Stmt))
        return own + sum(count(c, level + width) for c in children)

    return count(func.body, 0)


def allocated(func: ir.PrimFunc) -> dict[str, ir.Buffer]:
    return {n.buffer.name: n.buffer for n in ir.walk(func.body) if isinstance(n, ir.Alloc)}


def test_softmax_is_three_loops() -> None:
    @T.prim_func
    def softmax(X: T.Tensor((64, 256), "float32"), Y: T.Tensor((64, 256), "float32")):
        with T.Kernel(16) as bx:
            x = T.alloc_fragment((4, 256), "float32")
            top = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(4, 256):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, 256):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 4, 0])

    func = lowered(softmax)
    assert (loops(func, 0), loops(func, 1)) == (1, 3)
    buffers = allocated(func)
    assert buffers["x"].shape == (1, 256)
    assert buffers["top"].scope() == buffers["total"].scope() == ir.LOCAL_VAR
    nests = [n for n in ir.walk(func.body) if isinstance(n, ir.Parallel)]
    assert [n.annotations.get(REDUCTION) for n in nests] == ["max", "sum", None]
    assert [len(accumulators(n.body)) for n in nests] == [1, 1, 0]


def test_shifted_rows_are_not_merged() -> None:
    @T.prim_func
    def shifted(A: T.Tensor((8, 8), "int32"), B: T.Tensor((8, 8), "int32")):
        with T.Kernel(1):
            x = T.alloc_fragment((9, 8), "int32")
            for i, j in T.Parallel(8, 8):
                x[i, j] = A[i, j]
            for i, j in T.Parallel(8, 8):
                B[i, j] = x[i + 1, j]

    func = lowered(shifted)
    assert loops(func, 0) == 2
    assert allocated(func)["x"].shape == (9, 8)


def test_columns_and_rows_are_not_merged() -> None:
    @T.prim_func
    def transposed(A: T.Tensor((8, 8), "int32"), B: T.Tensor((8, 8), "int32")):
        with T.Kernel(1):
            x = T.alloc_fragment((8, 8), "int32")
            for i, j in T.Parallel(8, 8):
                x[i, j] = A[i, j]
            for i, j in T.Parallel(8, 8):
                B[i, j] = x[j, i]

    assert loops(lowered(transposed), 0) == 2


@pytest.mark.parametrize("what", ["atomic", "assertion"])
def test_effects_keep_their_place(what: str) -> None:
    @T.prim_func
    def effect(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = T.alloc_fragment((8,), "int32")
            for i in T.Parallel(8):
                x[i] = A[i]
            if what == "atomic":
                for i in T.Parallel(8):
                    T.atomic_add(B[i], x[i])
            else:
                assert x[0] > 0, "positive"
            for i in T.Parallel(8):
                B[i] = x[i] + A[i]

    assert loops(lowered(effect), 0) == (3 if what == "atomic" else 2)


def test_values_of_an_earlier_trip_stay() -> None:
    @T.prim_func
    def carried(A: T.Tensor((4, 8), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = T.alloc_fragment((8,), "int32")
            T.clear(x)
            for k in T.serial(4):
                for i in T.Parallel(8):
                    x[i] = x[i] + A[k, i]
            T.copy(x, B)

    func = lowered(carried)
    assert allocated(func)["x"].shape == (8,)


def test_a_sum_of_the_user_keeps_its_order() -> None:
    @T.prim_func
    def serial(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(8):
                total = T.alloc_var("float32", init=0.0)
                for j in T.serial(64):
                    total += A[i, j]
                B[i] = total

    func = lowered(serial)
    module = LowerParallel()(ir.Module({func.name: func}), PassContext())
    body = module.functions[func.name].body
    notes = [n.annotations for n in ir.walk(body) if isinstance(n, ir.For)]
    assert notes == [{}, {}]


def test_unequal_extents_are_not_merged() -> None:
    @T.prim_func
    def unequal(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = T.alloc_fragment((8,), "int32")
            for i in T.Parallel(8):
                x[i] = A[i]
            for i in T.Parallel(7):
                B[i] = x[i]

    assert loops(lowered(unequal), 0) == 2


def test_a_racy_sum_is_not_taken_for_a_reduction() -> None:
    @T.prim_func
    def racy(A: T.Tensor((64,), "float32"), B: T.Tensor((2,), "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment((64,), "float32")
            y = T.alloc_fragment((1,), "float32")
            total = T.alloc_var("float32", init=0.0)
            T.copy(A, x)
            T.reduce_sum(x, y, dim=0)
            for i in T.Parallel(64):
                total += x[i]
            B[0] = total
            B[1] = y[0]

    nests = [n for n in ir.walk(lowered(racy).body) if isinstance(n, ir.Parallel)]
    assert [REDUCTION in n.annotations for n in nests] == [True, False]
