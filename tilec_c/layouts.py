"""Storage of on-chip buffers on the CPU: rows, some of them padded.

A matrix operand whose rows are whole pages would put a column of it into one set of the cache, so
its rows get one cache line more (`tilec_c.gemm.preferred_layout`).
"""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.transform.base import PassContext, StatementPass
from tilec.transform.flatten import PITCHES
from tilec_c.gemm import GemmSpec, preferred_layout


class ChoosePitches(StatementPass):
    """Asks the micro-kernel how it likes its operands stored, and tells it how they are."""

    name = "choose_pitches"
    purpose = "choose the row pitch of matrix operands"

    def statement(self, node: Any, ctx: PassContext) -> Any:
        """A launch with pitches for its matrix operands."""
        return _launch(node, ctx) if isinstance(node, ir.Launch) else node


def _launch(node: ir.Launch, ctx: PassContext) -> ir.Launch:
    calls = [n for n in ir.walk(node.body) if isinstance(n, ir.Call) and n.name == "c_gemm"]
    if not calls:
        return node
    pitches: dict[ir.Buffer, int] = {}
    for call in calls:
        spec: GemmSpec = call.attrs["spec"]
        for region, wanted in zip(call.args[:2], preferred_layout(spec), strict=True):
            buffer: ir.Buffer = region.buffer
            columns = buffer.shape[-1]
            if wanted.columns == columns and wanted.pitch != columns and buffer.ndim >= 2:
                pitches[buffer] = wanted.pitch
                ctx.remark("choose_pitches", f"{buffer.name}: rows of {wanted.pitch}", buffer.span)

    def pitch(region: ir.BufferRegion) -> int:
        columns = region.buffer.shape[-1]
        assert isinstance(columns, int)
        return pitches.get(region.buffer, columns)

    def rewrite(item: Any) -> Any:
        if isinstance(item, ir.Call) and item.name == "c_gemm":
            from dataclasses import replace

            a, b, c = item.args[:3]
            spec = replace(item.attrs["spec"], lda=pitch(a), ldb=pitch(b), ldc=pitch(c))
            return item.replace(attrs={"spec": spec})
        return ir.map_children(item, rewrite) if isinstance(item, ir.Node) else item

    notes = {**node.annotations, PITCHES: list(pitches.items())}
    return node.replace(body=rewrite(node.body), annotations=notes)
