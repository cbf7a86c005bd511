"""Fast functions that are one instruction."""

from __future__ import annotations

from tilec_cuda.prelude.base import Piece, function

_INSTRUCTIONS = {
    "fast_exp2_f32": "ex2.approx.ftz.f32",
    "fast_tanh_f32": "tanh.approx.f32",
    "fast_rsqrt_f32": "rsqrt.approx.ftz.f32",
    "fast_sqrt_f32": "sqrt.approx.ftz.f32",
}


def make(name: str) -> Piece | None:
    """The function of that name, or None."""
    instruction = _INSTRUCTIONS.get(name)
    if instruction is None:
        return None
    body = f'float y;\nasm("{instruction} %0, %1;" : "=f"(y) : "f"(a));\nreturn y;'
    return Piece(function("float", name, "float a", body))
