"""Lanes of a warp handing values to each other."""

from __future__ import annotations

from tilec_cuda.prelude.base import C_TYPE, Piece, function

_INSIDE = {
    "shfl_sync": ("__shfl_sync", "lane"),
    "shfl_xor": ("__shfl_xor_sync", "mask"),
}


def make(name: str) -> Piece | None:
    """``shfl_sync_<type>``, ``shfl_xor_<type>``: a lane outside the group gives the own value."""
    op, _, suffix = name.rpartition("_")
    if op not in _INSIDE or suffix not in C_TYPE:
        return None
    builtin, arg = _INSIDE[op]
    kind = C_TYPE[suffix]
    body = f"""
const {kind} other = {builtin}(0xffffffffu, value, {arg}, width);
return (uint32_t){arg} < (uint32_t)width ? other : value;
"""
    return Piece(function(kind, name, f"{kind} value, int32_t {arg}, int32_t width", body))
