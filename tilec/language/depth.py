"""Keeps expressions shallow: parts of a long computation become lets of their own.

``sum([A[k] for k in ...])`` builds one expression as deep as the list is long. The compiler's
walkers recurse over expressions, so the front end cuts such chains where they are emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec import ir
from tilec.diagnostics import UnsupportedSyntaxError
from tilec.ir import BinOp

LIMIT = 24
HARD_LIMIT = 60


def limit_depth(root: ir.Expr, bind: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """`root` with parts deeper than `LIMIT` replaced by what `bind` gives for them.

    Operands that are evaluated only under a condition stay where they are.

    Raises:
        UnsupportedSyntaxError: conditional parts are nested deeper than `HARD_LIMIT`.
    """
    if _depth_within(root, LIMIT):
        return root
    # Post-order with an explicit stack; `made` holds each node's replacement and depth.
    made: dict[int, tuple[ir.Expr, int]] = {}
    stack: list[tuple[ir.Expr, bool, bool]] = [(root, False, False)]
    while stack:
        node, lazy, ready = stack.pop()
        if id(node) in made:
            continue
        children = _operands(node)
        if not ready:
            stack.append((node, lazy, True))
            stack.extend((child, lazy or late, False) for child, late in children)
            continue
        depth = 0
        new: dict[int, ir.Expr] = {}
        for child, late in children:
            value, below = made[id(child)]
            if below >= LIMIT and not (lazy or late):
                value, below = bind(value), 0
            new[id(child)] = value
            depth = max(depth, below + 1)
        if depth > HARD_LIMIT:
            raise UnsupportedSyntaxError(
                "this expression nests conditional values too deeply",
                span=node.span,
                hint="bind parts of it to names, or use if statements with a T.alloc_var",
            )
        rebuilt = ir.map_children(node, _replacing(new)) if children else node
        made[id(node)] = (rebuilt, depth)
    return made[id(root)][0]


def _replacing(new: dict[int, ir.Expr]) -> Callable[[Any], Any]:
    """What maps a child to its replacement, if it has one."""
    return lambda child: new.get(id(child), child)


def _operands(node: ir.Expr) -> list[tuple[ir.Expr, bool]]:
    """Sub-expressions, and whether each is evaluated only under a condition."""
    if isinstance(node, ir.Select):
        return [(node.cond, False), (node.then, True), (node.other, True)]
    if isinstance(node, ir.Binary) and node.op in (BinOp.AND, BinOp.OR):
        return [(node.lhs, False), (node.rhs, True)]
    return [(c, False) for c in node.children if isinstance(c, ir.Expr)]


def _depth_within(root: ir.Expr, limit: int) -> bool:
    """Whether no path below `root` is longer than `limit`."""
    level: list[ir.Expr] = [root]
    for _ in range(limit + 1):
        level = [c for node in level for c in node.children if isinstance(c, ir.Expr)]
        if not level:
            return True
        if len(level) > 4096:  # wide and shared: the exact answer costs more than the rewrite
            return False
    return False
