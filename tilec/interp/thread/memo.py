"""What was computed before from the same variables: values of expressions, places of elements.

Indices of lane code are arithmetic on lane numbers and loop counters. Both come back again and
again, so that most of it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec import ir
from tilec.interp.groups import is_array

_MOST = 1 << 26  # bytes of results; beyond all are forgotten
_NOTHING: dict[Any, Any] = {}
_PURE = (ir.Const, ir.Var, ir.Binary, ir.Unary, ir.Cast, ir.Select)


class Memo:
    """Results by expression and by the values of its variables.

    Arrays are told apart by identity: those of variables are never changed in place.

    Args:
        variable: the value of a variable now.
    """

    def __init__(self, variable: Callable[[ir.Var], Any]) -> None:
        self._variable = variable
        self._names: dict[int, tuple[tuple[Any, ...], tuple[ir.Var, ...] | None]] = {}
        self._bytes = 0
        self._results: dict[int, dict[tuple[Any, ...], tuple[list[Any], Any]]] = {}

    def names(self, key: int, nodes: tuple[Any, ...]) -> tuple[ir.Var, ...] | None:
        """The variables that integers depend on; None for floats, or if on something else too.

        Floats are data, which rarely comes back.
        """
        known = self._names.get(key)
        if known is not None:
            return known[1]
        found: dict[ir.Var, None] | None = {}
        for node in nodes:
            for part in ir.walk(node):
                if not isinstance(part, _PURE) or part.dtype.is_float:
                    found = None
                    break
                if isinstance(part, ir.Var) and found is not None:
                    found[part] = None
            if found is None:
                break
        names = None if found is None else tuple(found)
        self._names[key] = (nodes, names)  # which keeps the identity from being used again
        return names

    def get(
        self, key: int, names: tuple[ir.Var, ...], extra: Any, compute: Callable[[], Any]
    ) -> Any:
        """A result, computed if it is new.

        Args:
            key: identity of the expression.
            names: its variables.
            extra: an array that the result depends on as well, or None.
            compute: gives it.
        """
        held: list[Any] = [] if extra is None else [extra]
        parts: list[Any] = [-id(extra)]
        for name in names:
            value = self._variable(name)
            if is_array(value):
                held.append(value)  # keeps its identity from being used again
                parts.append(-id(value))
            else:
                parts.append(value)
        place = tuple(parts)
        found = self._results.get(key, _NOTHING).get(place)
        if found is None:
            result = compute()  # which may come here again
            self._bytes += 500 + (3 * result.nbytes if is_array(result) else 0)
            if self._bytes > _MOST:
                self._results.clear()
                self._bytes = 0
            table = self._results.setdefault(key, {})
            found = table[place] = (held, result)
        return found[1]
