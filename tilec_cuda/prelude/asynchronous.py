"""Asynchronous copies, transaction barriers and what orders them."""

from __future__ import annotations

import re

from tilec_cuda.prelude.base import DEVICE, Piece, function

_COPY = re.compile(r"cp_async_(4|8|16)(_if)?\Z")
_BULK = re.compile(r"bulk_(load|store|add|min|max)_([1-5])d\Z")
_ADDRESS = ("shared_address",)


def make(name: str) -> Piece | None:
    """The piece of that name, or None."""
    if name in _FIXED:
        return _FIXED[name]
    copy = _COPY.match(name)
    if copy is not None:
        return _cp_async(name, int(copy[1]), copy[2] is not None)
    bulk = _BULK.match(name)
    return None if bulk is None else _bulk(name, bulk[1], int(bulk[2]))


def _cp_async(name: str, size: int, conditional: bool) -> Piece:
    cache = "cg" if size == 16 else "ca"
    params, more, inputs = "void *to, const void *from", "", ""
    if conditional:
        params += ", bool given"
        more, inputs = ", %2", f', "r"(given ? {size} : 0)'
    body = f"""
asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}{more};"
             : : "r"(tilec_shared_address(to)), "l"(__cvta_generic_to_global(from)){inputs}
             : "memory");
"""
    return Piece(function("void", name, params, body), _ADDRESS)


def _bar(name: str, text: str, params: str = "", inputs: str = "") -> Piece:
    body = f"""
asm volatile("{text}"
             : : "r"(tilec_shared_address(bar)){inputs} : "memory");
"""
    return Piece(function("void", name, f"uint64_t *bar{params}", body), _ADDRESS)


def _wait(name: str, instruction: str) -> Piece:
    body = f"""
uint32_t done;
do {{
  asm volatile("{{ .reg .pred p; {instruction} p, [%1], %2; selp.u32 %0, 1, 0, p; }}"
               : "=r"(done) : "r"(tilec_shared_address(bar)), "r"(parity) : "memory");
}} while (!done);
"""
    return Piece(function("void", name, "uint64_t *bar, uint32_t parity", body), _ADDRESS)


_FIXED: dict[str, Piece] = {
    "shared_address": Piece(
        function("uint32_t", "shared_address", "const void *p",
                 "return (uint32_t)__cvta_generic_to_shared(p);")
    ),
    "tensor_map": Piece("struct __align__(64) tilec_tensor_map { uint64_t opaque[16]; };\n"),
    "mbarrier_init": _bar("mbarrier_init", "mbarrier.init.shared::cta.b64 [%0], %1;",
                          ", uint32_t count", ', "r"(count)'),
    "mbarrier_arrive": _bar("mbarrier_arrive", "mbarrier.arrive.shared::cta.b64 _, [%0];"),
    "mbarrier_arrive_old": _bar(
        "mbarrier_arrive_old", "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }"),
    "mbarrier_expect_tx": _bar(
        "mbarrier_expect_tx", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;",
        ", uint32_t bytes", ', "r"(bytes)'),
    "mbarrier_arrive_expect_tx": _bar(
        "mbarrier_arrive_expect_tx", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
        ", uint32_t bytes", ', "r"(bytes)'),
    "mbarrier_wait_parity": _wait("mbarrier_wait_parity",
                                  "mbarrier.try_wait.parity.shared::cta.b64"),
    "mbarrier_wait_parity_old": _wait("mbarrier_wait_parity_old",
                                      "mbarrier.test_wait.parity.shared.b64"),
    "cp_async_barrier_noinc": _bar("cp_async_barrier_noinc",
                                   "cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"),
}  # fmt: skip


def _bulk(name: str, what: str, rank: int) -> Piece:
    """A box between global and shared memory; coordinates innermost first."""
    coordinates = ", ".join(f"int32_t c{i}" for i in range(rank))
    inputs = ", ".join(f'"r"(c{i})' for i in range(rank))
    if what == "load":
        places = ", ".join(f"%{i + 3}" for i in range(rank))
        text = (
            f"{DEVICE} void tilec_{name}(void *to, const tilec_tensor_map *map, uint64_t *bar,\n"
            f"    {coordinates}) {{\n"
            f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile'
            '.mbarrier::complete_tx::bytes"\n'
            f'               " [%0], [%1, {{{places}}}], [%2];"\n'
            '               : : "r"(tilec_shared_address(to)), "l"(map),\n'
            f'                 "r"(tilec_shared_address(bar)), {inputs} : "memory");\n}}\n'
        )
    else:
        places = ", ".join(f"%{i + 2}" for i in range(rank))
        copy = "cp.async.bulk" if what == "store" else "cp.reduce.async.bulk"
        op = "" if what == "store" else f".{what}"
        text = (
            f"{DEVICE} void tilec_{name}(const tilec_tensor_map *map, const void *from,\n"
            f"    {coordinates}) {{\n"
            f'  asm volatile("{copy}.tensor.{rank}d.global.shared::cta{op}.tile.bulk_group"\n'
            f'               " [%0, {{{places}}}], [%1];"\n'
            '               : : "l"(map), "r"(tilec_shared_address(from)),\n'
            f'                 {inputs} : "memory");\n}}\n'
        )
    return Piece(text, ("shared_address", "tensor_map"))
