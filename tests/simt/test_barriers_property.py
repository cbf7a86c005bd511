"""Random lane programs: behind the pass no two lanes meet in memory between two barriers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

import tilec.language as T
from tilec import ir
from tilec.arith import evaluate
from tilec.ir import BinOp
from tilec.simt.barriers import InsertBarriers
from tilec.simt.memory import PlanSharedMemory

LANES, SIZE = 8, 16
INT = ir.DType("int32")
BOOL = ir.DType("bool")


def const(value: int) -> ir.Const:
    return ir.Const(value, INT)


class Program:
    """Draws the body of a launch."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self.tid = ir.Var("tx", INT)
        self.shared = [ir.Buffer(n, (SIZE,), INT, ir.SHARED) for n in ("s", "t")]
        self.tensor = ir.Buffer("A", (SIZE,), INT)
        self._loops: list[ir.Var] = []

    def pick(self, *items: Any) -> Any:
        return self._draw(st.sampled_from(items))

    def index(self) -> ir.Expr:
        scale = const(self.pick(0, 1, 1, 1, 2, -1))
        base = ir.Binary(BinOp.MUL, self.tid, scale, INT)
        total = ir.Binary(BinOp.ADD, base, const(self.pick(0, 0, 0, 1, 3, 8)), INT)
        if self._loops and self.pick(False, True):
            var = self.pick(*self._loops)
            move = ir.Binary(BinOp.MUL, var, const(self.pick(1, 2, 8)), INT)
            total = ir.Binary(BinOp.ADD, total, move, INT)
        return ir.Binary(BinOp.FLOORMOD, total, const(SIZE), INT)

    def buffer(self) -> ir.Buffer:
        return self.pick(*self.shared, self.tensor)

    def load(self) -> ir.Expr:
        return ir.Load(self.buffer(), (self.index(),), INT)

    def store(self) -> ir.Stmt:
        value: ir.Expr = const(1)
        if self.pick(False, True, True):
            value = ir.Binary(BinOp.ADD, self.load(), const(1), INT)
        return ir.Store(self.buffer(), (self.index(),), value)

    def atomic(self) -> ir.Stmt:
        target = ir.Load(self.buffer(), (self.index(),), INT)
        return ir.Evaluate(ir.Call("atomic_add", (target, const(1)), INT))

    def stmt(self, depth: int) -> ir.Stmt:
        kind = self.pick(*["store"] * 5, "atomic", *(["loop", "if", "lanes"] if depth else []))
        if kind == "store":
            return self.store()
        if kind == "atomic":
            return self.atomic()
        if kind == "loop":
            var = ir.Var("k", INT)
            self._loops.append(var)
            body = self.seq(depth - 1)
            self._loops.pop()
            trips = const(self.pick(0, 1, 2, 3))
            return ir.For(var, const(0), trips, const(1), "serial", {}, body)
        if kind == "if":
            if not self._loops:
                return self.store()
            cond = ir.Binary(BinOp.LT, self.pick(*self._loops), const(self.pick(1, 2)), BOOL)
            return ir.If(cond, self.seq(depth - 1), self.pick(None, self.store()))
        cond = ir.Binary(BinOp.LT, self.tid, const(self.pick(1, 4)), BOOL)
        return ir.If(cond, self.store())

    def seq(self, depth: int) -> ir.Stmt:
        return ir.Seq(tuple(self.stmt(depth) for _ in range(self.pick(1, 2, 3))))

    def launch(self) -> ir.Launch:
        allocs = tuple(ir.Alloc(b) for b in self.shared)
        body = ir.Seq((*allocs, self.seq(3)))
        thread_vars = (self.tid, ir.Var("ty", INT), ir.Var("tz", INT))
        return ir.Launch((ir.Var("bx", INT),), (const(1),), thread_vars, (LANES, 1, 1), {}, body)


class Race(Exception):
    pass


class Lanes:
    """Runs a launch lane by lane between barriers and looks who touches what."""

    def __init__(self, launch: ir.Launch) -> None:
        self._places = dict(launch.annotations.get("shared_plan", ()))
        self._tid = launch.thread_vars[0]
        self._touched: dict[Any, set[tuple[int, str]]] = {}
        self.barriers = 0

    def _place(self, buffer: ir.Buffer, index: int) -> Any:
        if buffer in self._places:
            return self._places[buffer] + 4 * index
        return (buffer.name, index)

    def touch(self, lane: int, buffer: ir.Buffer, index: int, kind: str) -> None:
        if buffer.scope() == ir.LOCAL_VAR:
            return
        seen = self._touched.setdefault(self._place(buffer, index), set())
        for who, how in seen:
            if who != lane and (how, kind) not in (("read", "read"), ("atomic", "atomic")):
                raise Race(f"{buffer.name}[{index}]: lane {who} {how}, lane {lane} {kind}")
        seen.add((lane, kind))

    def expr(self, lane: int, node: Any, values: dict[ir.Var, int]) -> None:
        """Reads only: what they give does not matter, as no index depends on memory."""
        for item in ir.walk(node):
            if isinstance(item, ir.Load):
                at = int(evaluate(item.indices[0], {**values, self._tid: lane}))
                self.touch(lane, item.buffer, at, "read")

    def run(self, node: Any, values: dict[ir.Var, int], lanes: list[int]) -> None:
        if isinstance(node, ir.Seq):
            for child in node.stmts:
                self.run(child, values, lanes)
        elif isinstance(node, ir.For):
            for k in range(int(node.stop.value)):
                self.run(node.body, {**values, node.var: k}, lanes)
        elif isinstance(node, ir.Bind):
            for lane in lanes:
                self.expr(lane, node.value, values)
            if not any(isinstance(n, ir.Load) for n in ir.walk(node.value)):
                values[node.var] = node.value
        elif isinstance(node, ir.If):
            cond = ir.substitute(
                node.cond, {v: e for v, e in values.items() if isinstance(e, ir.Expr)}
            )
            plain = {v: e for v, e in values.items() if not isinstance(e, ir.Expr)}
            here = [x for x in lanes if evaluate(cond, {**plain, self._tid: x})]
            if here:
                self.run(node.then, values, here)
            if node.other is not None and len(here) < len(lanes):
                self.run(node.other, values, [x for x in lanes if x not in here])
        elif isinstance(node, ir.Evaluate) and node.value.name == "sync":
            assert len(lanes) == LANES
            self._touched.clear()
            self.barriers += 1
        elif isinstance(node, (ir.Store, ir.Evaluate)):
            plain = {v: e for v, e in values.items() if not isinstance(e, ir.Expr)}
            for lane in lanes:
                if isinstance(node, ir.Store):
                    self.expr(lane, node.value, plain)
                    target: Any = node
                else:
                    target = node.value.args[0]
                at = int(evaluate(target.indices[0], {**plain, self._tid: lane}))
                kind = "write" if isinstance(node, ir.Store) else "atomic"
                self.touch(lane, target.buffer, at, kind)


@st.composite
def programs(draw: Any) -> ir.PrimFunc:
    program = Program(draw)
    return ir.PrimFunc("f", (program.tensor,), program.launch())


def races_in_a_statement(func: ir.PrimFunc) -> bool:
    """Whether two lanes write one element in one store: nothing can order them."""
    for node in ir.walk(func.body):
        if isinstance(node, ir.Store):
            return any(_collides(n) for n in ir.walk(func.body) if isinstance(n, ir.Store))
    return False


def _collides(store: ir.Store) -> bool:
    tid = next((v for v in ir.free_vars(store.indices[0]) if v.name == "tx"), None)
    others = [v for v in ir.free_vars(store.indices[0]) if v.name != "tx"]
    if tid is None:
        return True
    zero = dict.fromkeys(others, 0)
    places = [int(evaluate(store.indices[0], {**zero, tid: x})) for x in range(LANES)]
    return len(set(places)) < LANES


@settings(max_examples=300, deadline=None)
@given(programs())
def test_no_two_lanes_meet_between_barriers(func: ir.PrimFunc) -> None:
    if races_in_a_statement(func):
        return
    module = InsertBarriers()(PlanSharedMemory()(ir.Module({"f": func})))
    launch = next(n for n in ir.walk(module.functions["f"].body) if isinstance(n, ir.Launch))
    Lanes(launch).run(launch.body, {}, list(range(LANES)))


def test_the_check_itself_finds_races() -> None:
    @T.prim_func
    def f(A: T.Tensor((SIZE,), "int32")):
        with T.Kernel(1, threads=LANES):
            tid = T.get_thread_binding()
            A[tid] = 1
            A[tid + 8] = A[7 - tid]

    launch = next(n for n in ir.walk(f.body) if isinstance(n, ir.Launch))
    try:
        Lanes(launch).run(launch.body, {}, list(range(LANES)))
    except Race:
        return
    raise AssertionError("the race was not found")
