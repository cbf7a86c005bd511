"""On-chip buffers that live in one iteration of a loop move into it and lose a dimension.

A buffer qualifies if a single loop touches it and every access has the same index in some
dimension, one that moves with the loop variable: no value passes from one iteration to another.
A buffer without dimensions left is a variable.
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.effects import effects, separating

_INT32 = ir.DType("int32")


def contract(node: Any) -> Any:
    """Shrink the buffers allocated below a statement."""
    if isinstance(node, ir.Seq):
        node = _sequence(node)
    return ir.map_children(node, contract) if isinstance(node, ir.Stmt) else node


def _sequence(node: ir.Seq) -> ir.Seq:
    stmts = list(node.stmts)
    allocs = [s for s in stmts if isinstance(s, ir.Alloc) and _movable(s)]
    if not allocs or not any(isinstance(s, ir.For) or _simple(s) for s in stmts):
        return node
    users: dict[ir.Buffer, list[int]] = {s.buffer: [] for s in allocs}
    for place, stmt in enumerate(stmts):
        used: ir.Node | None = stmt.init if isinstance(stmt, ir.Alloc) else stmt
        nodes = () if used is None else ir.walk(used)
        for buffer in {n for n in nodes if isinstance(n, ir.Buffer)}:
            if buffer in users:
                users[buffer].append(place)
    for alloc in allocs:
        places = users[alloc.buffer]
        if len(places) != 1:
            continue
        new = _into(alloc, stmts[places[0]])
        if new is not None:
            stmts[places[0]] = new
            stmts = [s if s is not alloc else ir.Seq(()) for s in stmts]
    kept = tuple(s for s in stmts if not (isinstance(s, ir.Seq) and not s.stmts))
    return node if len(kept) == len(node.stmts) else node.replace(stmts=kept)


def _into(alloc: ir.Alloc, loop: ir.Stmt) -> ir.Stmt | None:
    """`loop` with the buffer inside, one dimension smaller; None where that is not possible."""
    if isinstance(loop, ir.For):
        var = loop.var
    elif isinstance(loop, ir.Parallel) and _simple(loop):
        (var,) = loop.vars
    else:
        return None
    found = effects(loop)
    buffer = alloc.buffer
    accesses = found.accesses.get(buffer)
    if found.opaque or not accesses:
        return None
    dims = {separating(accesses[0], a, var, found.bound - {var}) for a in accesses}
    if len(dims) != 1 or None in dims:
        return None
    (dim,) = dims
    assert dim is not None
    shape = (*buffer.shape[:dim], 1, *buffer.shape[dim + 1 :])
    scope = ir.LOCAL_VAR if all(e == 1 for e in shape if isinstance(e, int)) else buffer.scope()
    if isinstance(loop, ir.Parallel) and scope != ir.LOCAL_VAR:
        return None  # an array per iteration would keep the loop from running as vectors
    small = buffer.replace(shape=shape, _scope=scope)
    zero = ir.Const(0, _INT32)

    def visit(item: Any) -> Any:
        new = ir.map_children(item, visit) if not isinstance(item, ir.Buffer) else item
        if isinstance(new, (ir.Load, ir.Store)) and new.buffer is buffer:
            indices = (*new.indices[:dim], zero, *new.indices[dim + 1 :])
            return new.replace(buffer=small, indices=indices)
        return new

    body = visit(loop.body)
    inner = body.stmts if isinstance(body, ir.Seq) else (body,)
    first = alloc.replace(buffer=small)
    return loop.replace(body=ir.Seq((first, *inner), span=body.span))


def _movable(node: ir.Alloc) -> bool:
    buffer = node.buffer
    return (
        node.init is None
        and buffer.scope() in (ir.SHARED, ir.SHARED_DYN, ir.FRAGMENT, ir.LOCAL)
        and all(isinstance(e, int) for e in buffer.shape)
    )


def _simple(node: ir.Stmt) -> bool:
    return isinstance(node, ir.Parallel) and len(node.vars) == 1
