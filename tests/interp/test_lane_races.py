"""Races are found exactly: random lane programs against a definition of happens-before by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings, strategies as st

from tilec import interp, ir
from tilec.diagnostics import RaceError
from tilec.ir import BinOp

LANES, WARP, SIZE = 8, 4, 12
INT, BOOL = ir.DType("int32"), ir.DType("bool")


def const(value: int) -> ir.Const:
    return ir.Const(value, INT)


class Step(NamedTuple):
    """One statement: what it does, to which element ``(scale * lane + base) % SIZE``, by whom."""

    kind: str
    scale: int = 0
    base: int = 0
    who: str = "all"
    trips: int = 1
    inner: tuple[Any, ...] = ()


WHO = {
    "all": lambda lane: True,
    "first": lambda lane: lane == 0,
    "even": lambda lane: lane % 2 == 0,
    "warp": lambda lane: lane < WARP,
}


def steps(depth: int) -> Any:
    access = st.tuples(
        st.sampled_from(["read", "read", "write", "write", "atomic", "copy"]),
        st.sampled_from([0, 1, 1, 2]),
        st.integers(0, SIZE - 1),
        st.sampled_from(["all", "all", "first", "even", "warp"]),
    ).map(lambda parts: Step(*parts))
    barriers = ["sync", "sync", "sync_warp", "hand", "back", "commit", "wait", "wait", "wait all"]
    order = st.sampled_from([*map(Step, barriers), Step("sync_warp", who="warp")])
    options = [access, access, order]
    if depth:
        inner = st.lists(steps(depth - 1), min_size=1, max_size=4).map(tuple)
        options.append(
            st.builds(lambda body, n: Step("loop", trips=n, inner=body), inner, st.integers(1, 3))
        )
    return st.one_of(options)


WAITS: dict[str, list[tuple[Any, ...]]] = {
    "commit": [("cp_async_commit",)],
    "wait": [("cp_async_wait", 1)],
    "wait all": [("cp_async_commit",), ("cp_async_wait", 0)],
}


class Builder:
    """The program as IR."""

    def __init__(self) -> None:
        self.tid = ir.Var("tx", INT)
        self.shared = ir.Buffer("s", (SIZE,), INT, "shared.dyn")
        self.out = ir.Buffer("A", (LANES,), INT)
        self.source = ir.Buffer("B", (LANES,), INT)

    def stmt(self, step: Step) -> ir.Stmt:
        if step.kind == "loop":
            body = ir.Seq(tuple(self.stmt(s) for s in step.inner))
            return ir.For(
                ir.Var("k", INT), const(0), const(step.trips), const(1), "serial", {}, body
            )
        if step.kind in ("hand", "back"):
            return self.hand_over(step.kind == "hand")
        if step.kind in WAITS:
            calls = (
                ir.Call(name, tuple(map(const, args)), INT) for name, *args in WAITS[step.kind]
            )
            return ir.Seq(tuple(map(ir.Evaluate, calls)))
        scaled = ir.Binary(BinOp.MUL, self.tid, const(step.scale), INT)
        index = ir.Binary(BinOp.ADD, scaled, const(step.base), INT)
        at = ir.Binary(BinOp.FLOORMOD, index, const(SIZE), INT)
        found = ir.Load(self.shared, (at,), INT)
        made: ir.Stmt
        if step.kind == "read":
            made = ir.Store(self.out, (self.tid,), found)
        elif step.kind == "write":
            made = ir.Store(self.shared, (at,), self.tid)
        elif step.kind == "atomic":
            made = ir.Evaluate(ir.Call("atomic_add", (found, const(1)), INT))
        elif step.kind == "copy":
            value = ir.Load(self.source, (self.tid,), INT)
            made = ir.Evaluate(ir.Call("cp_async", (found, value, const(1)), INT))
        else:
            made = ir.Evaluate(ir.Call(step.kind, (), INT))
        tests = {
            "first": ir.Binary(BinOp.EQ, self.tid, const(0), BOOL),
            "even": ir.Binary(
                BinOp.EQ, ir.Binary(BinOp.FLOORMOD, self.tid, const(2), INT), const(0), BOOL
            ),
            "warp": ir.Binary(BinOp.LT, self.tid, const(WARP), BOOL),
        }
        return ir.If(tests[step.who], made) if step.who in tests else made

    def hand_over(self, down: bool) -> ir.Stmt:
        """One warp arrives at a named barrier, the other one waits there."""
        args = (const(1 if down else 2), const(LANES))
        first, second = (
            ("named_barrier_arrive", "sync") if down else ("sync", "named_barrier_arrive")
        )
        low = ir.Binary(BinOp.LT, self.tid, const(WARP), BOOL)
        parts = (ir.Evaluate(ir.Call(name, args, INT)) for name in (first, second))
        return ir.If(low, *parts)

    def function(self, program: list[Step]) -> ir.PrimFunc:
        start = ir.For(
            ir.Var("i", INT), const(0), const(2), const(1), "serial", {},
            self.fill(),
        )  # fmt: skip
        sync = ir.Evaluate(ir.Call("sync", (), INT))
        body = ir.Seq((ir.Alloc(self.shared), start, sync, *map(self.stmt, program)))
        thread_vars = (self.tid, ir.Var("ty", INT), ir.Var("tz", INT))
        launch = ir.Launch(
            (ir.Var("bx", INT),), (const(1),), thread_vars, (LANES, 1, 1), {"warp": WARP}, body
        )
        return ir.PrimFunc("f", (self.out, self.source), ir.Seq((launch,)))

    def fill(self) -> ir.Stmt:
        """Lane 0 writes every element."""
        body = tuple(ir.Store(self.shared, (const(n),), const(0)) for n in range(SIZE))
        return ir.If(ir.Binary(BinOp.EQ, self.tid, const(0), BOOL), ir.Seq(body))


def events(program: tuple[Step, ...] | list[Step]) -> Iterator[Step]:
    """The statements in the order in which a lane runs them."""
    for step in program:
        if step.kind == "loop":
            for _ in range(step.trips):
                yield from events(step.inner)
        else:
            yield step


def races(program: list[Step]) -> bool:
    """Whether two accesses of two lanes meet that no chain of barriers orders.

    An access is known by its number; a lane knows the accesses that are ordered before its next
    one. All pairs are looked at.
    """
    done: list[tuple[int, str]] = []
    knows: list[set[int]] = [set() for _ in range(LANES)]
    started: list[set[int]] = [set() for _ in range(LANES)]
    groups: list[list[set[int]]] = [[] for _ in range(LANES)]
    for step in events(program):
        who = [lane for lane in range(LANES) if WHO[step.who](lane)]
        if step.kind in ("sync", "sync_warp"):
            warps = [[x for x in who if x // WARP == w] for w in range(LANES // WARP)]
            for group in [who] if step.kind == "sync" else warps:
                union = set().union(*(knows[x] for x in group))
                for lane in group:
                    knows[lane] = set(union)
        elif step.kind in ("hand", "back"):
            union = set().union(*knows)
            for lane in who:
                if (lane >= WARP) is (step.kind == "hand"):
                    knows[lane] = set(union)
        elif step.kind in WAITS:
            for lane in who:
                if step.kind != "wait":
                    groups[lane].append(started[lane])
                    started[lane] = set()
                if step.kind != "commit":
                    left = 1 if step.kind == "wait" else 0
                    for group in groups[lane][: len(groups[lane]) - left]:
                        knows[lane] |= group
        else:
            kind = "write" if step.kind == "copy" else step.kind
            first = len(done)
            for lane in who:
                at = (lane * step.scale + step.base) % SIZE
                for number, (where, other) in enumerate(done):
                    if where != at or number in knows[lane]:
                        continue
                    if (other, kind) not in (("read", "read"), ("atomic", "atomic")):
                        return True
                done.append((at, kind))
            for number, lane in enumerate(who, first):
                # A copy is known to its lane once it has waited for it.
                (started if step.kind == "copy" else knows)[lane].add(number)
    return False


@settings(max_examples=200, deadline=None)
@given(st.lists(steps(2), min_size=1, max_size=7))
def test_a_race_is_reported_where_there_is_one_and_nowhere_else(program: list[Step]) -> None:
    func = Builder().function(program)
    try:
        interp.run(func, np.zeros(LANES, np.int32), np.arange(LANES, dtype=np.int32), check=True)
    except RaceError:
        found = True
    else:
        found = False
    assert found == races(program)
