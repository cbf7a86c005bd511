"""Which buffers a statement of tile form reads and writes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tilec import ir
from tilec.ops import TileOp


class Uses:
    """The uses of buffers in a statement.

    Attributes:
        buffers: all that are used.
        written: those that are written.
        rigid: those that are used other than by element, or by operations to which dimensions of
            extent 1 in front matter.
    """

    def __init__(self, root: ir.Stmt) -> None:
        self._reads: Counter[ir.Buffer] = Counter()
        self._writes: Counter[ir.Buffer] = Counter()
        self.rigid: set[ir.Buffer] = set()
        self._visit(root)

    @property
    def buffers(self) -> set[ir.Buffer]:
        """All buffers that are used."""
        return set(self._reads) | set(self._writes)

    @property
    def written(self) -> set[ir.Buffer]:
        """All buffers that are written."""
        return set(self._writes)

    def writes(self, buffer: ir.Buffer) -> int:
        """How often a buffer is written in the text."""
        return self._writes[buffer]

    def count(self, buffer: ir.Buffer) -> int:
        """How often a buffer is used in the text."""
        return self._reads[buffer] + self._writes[buffer]

    def _visit(self, node: Any) -> None:
        if isinstance(node, ir.Alloc):
            if node.init is not None:
                self._writes[node.buffer] += 1
                self._visit(node.init)
            return
        if isinstance(node, TileOp):
            for region in node.reads():
                self._reads[region.buffer] += 1
            for region in node.writes():
                self._writes[region.buffer] += 1
            if not node.squeezes:
                self.rigid |= {r.buffer for r in (*node.reads(), *node.writes())}
            for child in node.children:
                for part in child.mins if isinstance(child, ir.BufferRegion) else (child,):
                    self._visit(part)
            return
        if isinstance(node, ir.Load):
            self._reads[node.buffer] += 1
        elif isinstance(node, ir.Store):
            self._writes[node.buffer] += 1
        elif isinstance(node, ir.BufferRegion):
            self._touch(node.buffer)
            self.rigid.add(node.buffer)
        elif isinstance(node, ir.Call) and not ir.is_pure(node.name):
            for arg in node.args:
                if isinstance(arg, ir.Load):
                    self._touch(arg.buffer)
        if isinstance(node, ir.Buffer) or not isinstance(node, ir.Node):
            return
        for child in node.children:
            self._visit(child)

    def _touch(self, buffer: ir.Buffer) -> None:
        self._reads[buffer] += 1
        self._writes[buffer] += 1
