"""The dialect: the common language and `reverse`."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.language import *  # noqa: F403
from tilec.language.tile import emit_tile_op, region
from tilec_dummy.ops import Reverse

__tilec_dialect__ = "dummy"  # errors point at the kernel, not in here


def reverse(src: Any, dst: Any) -> None:
    """Copy a tile with the order of its last axis turned around.

    Raises:
        ShapeError: the two sides differ in shape.
    """
    source = region(src, "T.reverse: the source")
    target = region(dst, "T.reverse: the destination")
    emit_tile_op(Reverse(source, target, span=ir.caller_span()))
