"""C text that generated kernels are built from: only what a kernel uses, in a fixed order.

A *feature* is a named piece of C with the features it needs. :func:`render` returns the text of the
features asked for and of everything they need, always in the same order, so equal requests give
equal bytes. Everything is ``static inline`` C11 with GNU extensions, for gcc and clang, without
headers other than ``<stdint.h>``, without processor intrinsics outside ``#ifdef`` with a portable
alternative, and without relying on ``-ffast-math``.

Names of C functions follow one rule: ``tilec_<what>_<type>`` with the type suffixes of
:data:`~tilec_c.prelude.base.SUFFIX` (``f16 bf16 f32 f64 i8 ... u64 bool``). The feature of a
function has the same name without ``tilec_``. Half types are held in ``uint16_t``.

Look-ups that a printer needs, so that it never builds such names itself:

* :func:`math_call` - unary and binary mathematics by IR intrinsic name;
* :func:`integer_call` - division, remainder, shifts with the language's semantics;
* :func:`float_call` - floor division and remainder, minimum, maximum;
* :func:`convert_call` - any dtype to any dtype;
* :func:`atomic_call` - atomic updates that return the previous value.

Each gives a :class:`Callee`: the C name to call and the feature to render.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec_c.prelude import atomics, base, convert, floats, integers, math32, memory
from tilec_c.prelude.atomics import atomic_call
from tilec_c.prelude.base import C_TYPE, SUFFIX, Callee, Snippet
from tilec_c.prelude.convert import convert_call
from tilec_c.prelude.floats import float_call
from tilec_c.prelude.integers import integer_call
from tilec_c.prelude.math32 import math_call

__all__ = [
    "C_TYPE",
    "FEATURES",
    "SUFFIX",
    "Callee",
    "Snippet",
    "atomic_call",
    "convert_call",
    "float_call",
    "integer_call",
    "math_call",
    "render",
]

# The order of the text: a snippet needs only snippets before it.
FEATURES: dict[str, Snippet] = {
    snippet.name: snippet
    for module in (base, memory, convert, integers, floats, math32, atomics)
    for snippet in module.SNIPPETS
}


def render(features: Iterable[str]) -> str:
    """The C text of the given features and of all they need.

    Args:
        features: Feature names, in any order, repeated or not.

    Returns:
        C text that starts with the one include it needs; always the same for the same set.

    Raises:
        KeyError: A name is not a feature.
    """
    wanted: set[str] = {"base"}
    pending = list(features)
    while pending:
        name = pending.pop()
        if name not in FEATURES:
            raise KeyError(f"no C prelude feature named {name!r}")
        if name not in wanted:
            wanted.add(name)
            pending.extend(FEATURES[name].needs)
    return "\n".join(s.text.strip("\n") for s in FEATURES.values() if s.name in wanted) + "\n"
