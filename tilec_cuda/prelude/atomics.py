"""Atomic updates: by an instruction where there is one, else by compare and swap.

``atomic_<op>_<type>`` gives the old value, ``red_<op>_<type>`` nothing. A name goes on with
``_cas`` or ``_cas_soft`` (conversions in software) and with the memory order. ``_own`` updates what
belongs to the lane alone, for which there are no atomic instructions.
"""

from __future__ import annotations

import re

from tilec_cuda.prelude.base import C_TYPE, DEVICE, Piece, bits, function
from tilec_cuda.prelude.convert import NARROW

_NAME = re.compile(
    r"(atomic|red)_(add|min|max)_([a-z0-9]+?)(_cas|_cas_soft|_own|_own_soft)?"
    r"(_acquire|_release|_acq_rel|_seq_cst)?\Z"
)
_VECTOR = re.compile(r"red_add_v([248])_(f32|f16|bf16)\Z")
_FENCE = 'asm volatile("fence.acq_rel.gpu;" ::: "memory");\n'
_STRONG = 'asm volatile("fence.sc.gpu;" ::: "memory");\n'
_BEFORE = {"_release": _FENCE, "_acq_rel": _FENCE, "_seq_cst": _STRONG}
_AFTER = {"_acquire": _FENCE, "_acq_rel": _FENCE, "_seq_cst": _STRONG}
_BUILTIN = {"add": "atomicAdd", "min": "atomicMin", "max": "atomicMax"}


def make(name: str) -> Piece | None:
    """The update of that name, or None."""
    vector = _VECTOR.match(name)
    if vector is not None:
        return _vector(name, int(vector[1]), vector[2])
    match = _NAME.match(name)
    if match is None:
        return None
    result, op, suffix, swap, order = match.groups()
    kind = _stored(suffix)
    if kind is None:
        return None
    before, after = _BEFORE.get(order, ""), _AFTER.get(order, "")
    needs: tuple[str, ...] = ()
    if swap is None:
        text = _instruction(op, suffix, result == "red")
    elif swap.startswith("_own"):
        value, needs = _next(op, suffix, swap == "_own_soft")
        text = f"const {kind} old = *p;\n*p = ({kind})({value});\n"
    else:
        text, needs = _swap(op, suffix, swap == "_cas_soft")
    if text is None:
        return None
    returns = kind if result == "atomic" else "void"
    tail = "return old;" if result == "atomic" else ""
    body = f"{before}{text}{after}{tail}".strip("\n")
    return Piece(function(returns, name, f"{kind} *p, {kind} x", body), needs)


def _stored(suffix: str) -> str | None:
    if suffix in ("f16", "bf16"):
        return "uint16_t"
    if suffix in NARROW or suffix == "e8m0":
        return "uint8_t"
    return C_TYPE.get(suffix)


def _instruction(op: str, suffix: str, plain: bool) -> str | None:
    if suffix in ("f16", "bf16"):
        if op != "add":
            return None
        if plain:
            return (
                f'asm volatile("red.relaxed.gpu.add.noftz.{suffix} [%0], %1;" '
                ': : "l"(p), "h"(x) : "memory");\n'
            )
        return (
            f'uint16_t old;\nasm volatile("atom.relaxed.gpu.add.noftz.{suffix} %0, [%1], %2;"\n'
            '             : "=h"(old) : "l"(p), "h"(x) : "memory");\n'
        )
    args = "p, x"
    if suffix == "i64" and op == "add":
        args = "(uint64_t *)p, (uint64_t)x"
    call = f"{_BUILTIN[op]}({args})"
    kind = C_TYPE[suffix]
    return f"{call};\n" if plain else f"const {kind} old = ({kind}){call};\n"


def _swap(op: str, suffix: str, soft: bool) -> tuple[str, tuple[str, ...]]:
    kind = _stored(suffix)
    value, needs = _next(op, suffix, soft)
    width = {"uint8_t": 8, "int8_t": 8, "uint16_t": 16, "int16_t": 16}.get(str(kind), 0)
    if width == 8:
        text = f"""
uint32_t *const word = (uint32_t *)((uint64_t)p & ~3ull);
const uint32_t shift = ((uint32_t)(uint64_t)p & 3) * 8;
uint32_t now = *(volatile uint32_t *)word, seen;
{kind} old;
do {{
  seen = now;
  old = ({kind})(seen >> shift);
  const uint8_t next = (uint8_t)({value});
  now = atomicCAS(word, seen, (seen & ~(0xffu << shift)) | (uint32_t)next << shift);
}} while (now != seen);
"""
        return text, needs
    if width == 16:
        text = f"""
uint16_t now = *(volatile uint16_t *)p, seen;
{kind} old;
do {{
  seen = now;
  old = ({kind})seen;
  const uint16_t next = (uint16_t)({value});
  asm volatile("atom.relaxed.gpu.cas.b16 %0, [%1], %2, %3;"
               : "=h"(now) : "l"(p), "h"(seen), "h"(next) : "memory");
}} while (now != seen);
"""
        return text, needs
    wide = f"uint{bits(suffix)}_t"
    text = f"""
{wide} now = *(volatile {wide} *)p, seen;
{kind} old;
do {{
  seen = now;
  old = tilec_from_bits_{suffix}(seen);
  now = atomicCAS(({wide} *)p, seen, tilec_bits_{suffix}({value}));
}} while (now != seen);
"""
    return text, (*needs, f"bits_{suffix}", f"from_bits_{suffix}")


def _next(op: str, suffix: str, soft: bool) -> tuple[str, tuple[str, ...]]:
    """The new value as an expression of `old` and `x`, in the storage type."""
    if suffix[0] in "iu":
        symbol = ">" if op == "max" else "<"
        wide = "uint64_t" if suffix.endswith("64") else "uint32_t"
        total = f"({wide})old + ({wide})x"
        return (total if op == "add" else f"old {symbol} x ? old : x"), ()
    if suffix in ("f32", "f64") and op == "add":
        return "old + x", ()
    if suffix in ("f32", "f64"):
        return f"tilec_{op}_{suffix}(old, x)", (f"{op}_{suffix}",)
    hard = () if soft else ("bf16", "f16", "e4m3", "e5m2")
    to = f"{suffix}_to_f32"
    back = f"f32_to_{suffix}"
    if suffix not in (*hard, "bf16", "f16", "e5m2", "e8m0"):
        to += "_soft"
    if suffix not in (*hard, "f16", "e8m0"):
        back += "_soft"
    a, b = f"tilec_{to}(old)", f"tilec_{to}(x)"
    if op == "add":
        return f"tilec_{back}({a} + {b})", (to, back)
    return f"tilec_{back}(tilec_{op}_f32({a}, {b}))", (to, back, f"{op}_f32")


def _vector(name: str, count: int, suffix: str) -> Piece:
    """Several elements at once, in global memory; the address is a multiple of the whole size."""
    if suffix == "f32":
        kind, words, form, item = "float", count, "f32", '"f"(x[{0}])'
    else:
        kind, words = "uint16_t", count // 2
        form, item = f"noftz.{suffix}x2", '"r"(((const uint32_t *)x)[{0}])'
    vector = f".v{words}" if words > 1 else ""
    if suffix != "f32" and words > 1:
        form = f"noftz.v{words}.{suffix}x2"
        vector = ""
    operands = ", ".join(f"%{i + 1}" for i in range(words))
    braces = f"{{{operands}}}" if words > 1 else operands
    order = f"add{vector}.{form}" if suffix == "f32" else f"add.{form}"
    inputs = ", ".join(item.format(i) for i in range(words))
    text = (
        f"{DEVICE} void tilec_{name}({kind} *p, const {kind} *x) {{\n"
        f'  asm volatile("red.relaxed.gpu.global.{order} [%0], {braces};"\n'
        f'               : : "l"(__cvta_generic_to_global(p)), {inputs} : "memory");\n}}\n'
    )
    return Piece(text)
