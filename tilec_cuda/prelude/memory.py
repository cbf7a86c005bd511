"""Wide accesses to memory."""

from __future__ import annotations

from tilec_cuda.prelude.base import C_TYPE, Piece


def make(name: str) -> Piece | None:
    """``vec_<type>_<count>``: so many elements, read and written at once."""
    word, _, rest = name.partition("_")
    if word != "vec":
        return None
    suffix, _, count = rest.partition("_")
    kind = C_TYPE[suffix]
    size = int(count) * int(suffix[1:]) // 8
    align = min(16, size & -size)
    return Piece(f"struct __align__({align}) tilec_{name} {{ {kind} v[{count}]; }};\n")
