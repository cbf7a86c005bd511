"""Generic traversal: walk, map, substitute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from tilec.ir.buffer import Buffer
from tilec.ir.expr import Var
from tilec.ir.node import Node

N = TypeVar("N", bound=Node)


def walk(node: Node) -> Iterator[Node]:
    """All nodes below and including `node`, parents first, in source order.

    Buffers are reported but their shapes are not entered.
    """
    stack: list[Node] = [node]
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, Buffer):
            stack.extend(reversed(list(current.children)))


def map_value(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to every node in a field value, keeping identity where nothing changes."""
    if isinstance(value, Node):
        return fn(value)
    if type(value) is tuple:
        new = tuple(map_value(item, fn) for item in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    if type(value) is dict:
        new_dict = {k: map_value(v, fn) for k, v in value.items()}
        return value if all(new_dict[k] is value[k] for k in value) else new_dict
    return value


def map_children(node: N, fn: Callable[[Any], Any]) -> N:
    """`node` with `fn` applied to each direct child; the same object if nothing changed."""
    if isinstance(node, Buffer):
        return node
    changes = {}
    for key in node._fields:
        old = getattr(node, key)
        if isinstance(old, (Node, tuple, dict)):
            new = map_value(old, fn)
            if new is not old:
                changes[key] = new
    return node.replace(**changes) if changes else node


def map_statements(node: N, fn: Callable[[Any], Any]) -> N:
    """`node` with `fn` applied to every statement in it, inner ones first.

    Expressions are not entered; the same object comes back where nothing changed.
    """
    from tilec.ir.stmt import Stmt

    def visit(item: Any) -> Any:
        if not isinstance(item, Stmt):
            return item
        return fn(map_children(item, visit))

    return cast("N", visit(node))


class Mutator:
    """Rebuilds a tree bottom-up. `rules` maps node classes to functions of one node.

    A rule is responsible for its own children (call `self.generic(node)`); classes without a rule
    are rebuilt generically. The same object comes back where nothing changed.
    """

    def __init__(self) -> None:
        self._rules: dict[type, Callable[[Any], Any]] = dict(self.rules())

    def rules(self) -> Mapping[type, Callable[[Any], Any]]:
        """The table of rules; override in subclasses."""
        return {}

    def __call__(self, node: Any) -> Any:
        rule = self._rules.get(type(node))
        return rule(node) if rule is not None else map_children(node, self)

    def generic(self, node: N) -> N:
        """Rebuild the children of `node`."""
        return map_children(node, self)


def substitute(
    node: N, variables: Mapping[Var, Any], buffers: Mapping[Buffer, Buffer] | None = None
) -> N:
    """Replace variables by expressions and buffers by buffers."""

    def visit(item: Any) -> Any:
        if isinstance(item, Var):
            return variables.get(item, item)
        if isinstance(item, Buffer):
            return buffers.get(item, item) if buffers else item
        return map_children(item, visit)

    return cast("N", visit(node))


def free_vars(expr: Node) -> dict[Var, None]:
    """Variables used below `expr` (shapes of loaded buffers excluded), first use first.

    A dict, since ``in`` on a list would compare variables with the staged ``==``.
    """
    found: dict[Var, None] = {}
    for node in walk(expr):
        if isinstance(node, Var):
            found.setdefault(node)
    return found


def copy_bindings(node: N) -> N:
    """A copy in which every variable and buffer bound inside is a fresh one.

    Needed where a statement is duplicated: a name is bound once.
    """
    from tilec.ir.stmt import Alloc, Bind, For, Launch, Parallel

    variables: dict[Var, Any] = {}
    buffers: dict[Buffer, Buffer] = {}

    def fresh(var: Var) -> None:
        variables[var] = var.replace()

    for item in walk(node):
        if isinstance(item, (Bind, For)):
            fresh(item.var)
        elif isinstance(item, Parallel):
            for var in item.vars:
                fresh(var)
        elif isinstance(item, Launch):
            for var in (*item.grid_vars, *item.thread_vars):
                fresh(var)
        elif isinstance(item, Alloc):
            buffers[item.buffer] = item.buffer.replace()
    return substitute(node, variables, buffers) if variables or buffers else node
