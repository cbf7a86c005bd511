"""Atomic updates for blocks that run on several threads. Each returns the previous value.

``add`` wraps for integers; ``min`` and ``max`` ignore NaN; types without a native operation use
compare-and-swap on the same number of bytes, so no library is needed. Addresses must be naturally
aligned. Ordering is sequentially consistent: a kernel that uses atomics to hand data over works.
"""

from __future__ import annotations

from tilec_c.prelude.base import C_TYPE, HALVES, INTEGERS, SUFFIX, Callee, Snippet

_ORDER = "__ATOMIC_SEQ_CST"


def _native(op: str, suffix: str) -> Snippet:
    t = C_TYPE[suffix]
    return Snippet(
        f"atomic_{op}_{suffix}",
        f"TILEC_INLINE {t} tilec_atomic_{op}_{suffix}({t} *p, {t} v) "
        f"{{ return __atomic_fetch_{op}(p, v, {_ORDER}); }}",
    )


def _loop(op: str, suffix: str, bits: int, update: str) -> str:
    """A compare-and-swap loop: ``update`` computes bits ``next`` from bits ``old``."""
    t, u = C_TYPE[suffix], f"uint{bits}_t"
    return f"""
TILEC_INLINE {t} tilec_atomic_{op}_{suffix}({t} *p, {t} v) {{
  {u} *q = ({u} *)(void *)p, old = __atomic_load_n(q, __ATOMIC_RELAXED), next;
  {t} was;
  do {{
    __builtin_memcpy(&was, &old, sizeof was);
    {update}
  }} while (!__atomic_compare_exchange_n(q, &old, next, 1, {_ORDER}, __ATOMIC_RELAXED));
  return was;
}}
"""


def _integer(suffix: str) -> list[Snippet]:
    t, bits = C_TYPE[suffix], int(suffix[1:])
    found = [_native(op, suffix) for op in ("add", "sub", "and", "or", "xor")]
    for op, compare in (("min", "<"), ("max", ">")):
        update = f"{t} r = v {compare} was ? v : was; __builtin_memcpy(&next, &r, sizeof r);"
        found.append(Snippet(f"atomic_{op}_{suffix}", _loop(op, suffix, bits, update)))
    return found


def _float(suffix: str) -> list[Snippet]:
    t, bits = C_TYPE[suffix], int(suffix[1:])
    found = []
    for op in ("add", "sub", "min", "max"):
        needs: tuple[str, ...] = ()
        result = f"was {'+' if op == 'add' else '-'} v"
        if op in ("min", "max"):
            result, needs = f"tilec_{op}_{suffix}(was, v)", (f"{op}_{suffix}",)
        update = f"{t} r = {result}; __builtin_memcpy(&next, &r, sizeof r);"
        text = _loop(op, suffix, bits, update)
        found.append(Snippet(f"atomic_{op}_{suffix}", text, needs))
    return found


def _half(suffix: str) -> list[Snippet]:
    """The operand and the previous value are in storage form; the arithmetic is in float32."""
    found = []
    both: tuple[str, ...] = (f"{suffix}_to_f32", f"f32_to_{suffix}")
    for op in ("add", "sub", "min", "max"):
        a, b = f"tilec_{suffix}_to_f32(was)", f"tilec_{suffix}_to_f32(v)"
        needs = both
        if op in ("add", "sub"):
            result = f"{a} {'+' if op == 'add' else '-'} {b}"
        else:
            result, needs = f"tilec_{op}_f32({a}, {b})", (*both, f"{op}_f32")
        update = f"next = tilec_f32_to_{suffix}({result});"
        text = _loop(op, suffix, 16, update)
        found.append(Snippet(f"atomic_{op}_{suffix}", text, needs))
    return found


def _access(suffix: str) -> list[Snippet]:
    """Load, store, exchange and compare-and-swap for any type, by its bits."""
    t = C_TYPE[suffix]
    return [
        Snippet(
            f"atomic_load_{suffix}",
            f"TILEC_INLINE {t} tilec_atomic_load_{suffix}(const {t} *p) "
            f"{{ {t} v; __atomic_load(p, &v, {_ORDER}); return v; }}",
        ),
        Snippet(
            f"atomic_store_{suffix}",
            f"TILEC_INLINE void tilec_atomic_store_{suffix}({t} *p, {t} v) "
            f"{{ __atomic_store(p, &v, {_ORDER}); }}",
        ),
        Snippet(
            f"atomic_exch_{suffix}",
            f"TILEC_INLINE {t} tilec_atomic_exch_{suffix}({t} *p, {t} v) "
            f"{{ {t} was; __atomic_exchange(p, &v, &was, {_ORDER}); return was; }}",
        ),
        Snippet(
            f"atomic_cas_{suffix}",
            f"TILEC_INLINE {t} tilec_atomic_cas_{suffix}({t} *p, {t} expected, {t} desired) "
            f"{{ __atomic_compare_exchange(p, &expected, &desired, 0, {_ORDER}, {_ORDER}); "
            "return expected; }",
        ),
    ]


SNIPPETS = (
    *(snippet for suffix in INTEGERS for snippet in _integer(suffix)),
    *(snippet for suffix in ("f32", "f64") for snippet in _float(suffix)),
    *(snippet for suffix in HALVES for snippet in _half(suffix)),
    *(s for suffix in (*INTEGERS, "f32", "f64", *HALVES) for s in _access(suffix)),
)
_NAMES = frozenset(snippet.name for snippet in SNIPPETS)


def atomic_call(op: str, dtype: str) -> Callee:
    """The function ``previous = f(pointer, value)`` for an atomic update.

    Args:
        op: ``add sub min max`` for every dtype; ``and or xor`` for integers; ``load`` (pointer
            only), ``store`` (returns nothing), ``exch``, ``cas`` (pointer, expected, desired).
        dtype: Element type; half values are passed and returned in storage form.
    """
    name = f"atomic_{op}_{'u8' if dtype == 'bool' else SUFFIX[dtype]}"
    if name not in _NAMES:
        raise KeyError((op, dtype))
    return Callee(f"tilec_{name}", (name,))
