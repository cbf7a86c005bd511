"""Calls for their effect: barriers, asynchronous copies, matrix instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilec import ir
from tilec.diagnostics import InternalError
from tilec_cuda.matrix import matrix_rules
from tilec_cuda.values import ATOMICS, atomic_text

if TYPE_CHECKING:
    from tilec_cuda.stmt import CudaPrinter

Rule = Callable[[ir.Call], None]
_PLAIN = {
    "cp_async_commit": (80, "cp.async.commit_group;"),
    "bulk_commit": (90, "cp.async.bulk.commit_group;"),
    "pdl_sync": (90, "griddepcontrol.wait;"),
    "pdl_trigger": (90, "griddepcontrol.launch_dependents;"),
    "cluster_arrive": (90, "barrier.cluster.arrive.aligned;"),
    "cluster_wait": (90, "barrier.cluster.wait.aligned;"),
}
"""Instructions without operands, with the first architecture that has them."""


def effect_rules(printer: CudaPrinter) -> Mapping[str, Rule]:
    """Printing rules by the name of the call."""
    effects = _Effects(printer)
    return {
        "sync": effects.sync,
        "named_barrier_arrive": effects.named_arrive,
        "sync_warp": lambda _call: printer.line("__syncwarp();"),
        "cp_async": effects.cp_async,
        "cp_async_wait": effects.cp_async_wait,
        "mbarrier_init": effects.barrier,
        "mbarrier_arrive": effects.barrier,
        "mbarrier_expect_tx": effects.barrier,
        "mbarrier_arrive_expect_tx": effects.barrier,
        "mbarrier_wait_parity": effects.barrier,
        "cp_async_barrier_noinc": effects.barrier,
        "fence_barrier_init": effects.fence_init,
        "fence_proxy_async": effects.fence_proxy,
        "bulk_load": effects.bulk,
        "bulk_store": effects.bulk,
        "bulk_wait": effects.bulk_wait,
        "set_max_nreg": effects.set_max_nreg,
        "cluster_sync": effects.cluster_sync,
        **dict.fromkeys(_PLAIN, effects.plain),
        **dict.fromkeys(ATOMICS, effects.atomic),
        **matrix_rules(printer),
    }


class _Effects:
    def __init__(self, printer: CudaPrinter) -> None:
        self._p = printer
        self._e = printer.expr

    def asm(self, text: str) -> None:
        """One instruction that nothing may be moved across."""
        self._p.line(f'asm volatile("{text}" ::: "memory");')

    def need(self, call: ir.Call, number: int) -> None:
        """The instruction exists; whoever made the call had to ask the capability table.

        Raises:
            InternalError: it does not.
        """
        if self._e.arch.number < number:
            raise InternalError(
                f"{call.name} needs sm_{number}, and this is {self._e.arch}", span=call.span
            )

    def constant(self, call: ir.Call, value: Any) -> int:
        """An operand that is part of the instruction."""
        found = ir.const_value(value)
        if not isinstance(found, int):
            raise InternalError(f"an operand of {call.name} is not constant", span=call.span)
        return int(found)

    def plain(self, call: ir.Call) -> None:
        number, text = _PLAIN[call.name]
        self.need(call, number)
        self.asm(text)

    def sync(self, call: ir.Call) -> None:
        if not call.args:
            self._p.line("__syncthreads();")
            return
        name, lanes = (self.constant(call, a) for a in call.args)
        self.asm(f"bar.sync {name}, {lanes};")

    def named_arrive(self, call: ir.Call) -> None:
        name, lanes = (self.constant(call, a) for a in call.args)
        self.asm(f"bar.arrive {name}, {lanes};")

    def cluster_sync(self, call: ir.Call) -> None:
        self.need(call, 90)
        self.asm("barrier.cluster.arrive.aligned;")
        self.asm("barrier.cluster.wait.aligned;")

    def cp_async(self, call: ir.Call) -> None:
        self.need(call, 80)
        to, source, count = call.args[:3]
        size = self.constant(call, count) * to.dtype.bytes
        if size not in (4, 8, 16):
            raise InternalError(f"cp_async of {size} bytes", span=call.span)
        args = [self._e.pointer(to), self._e.pointer(source)]
        name = f"cp_async_{size}"
        if len(call.args) > 3:
            name += "_if"
            args.append(self._e(ir.truth(call.args[3])))
        self._p.line(f"{self._e.piece(name)}({', '.join(args)});")

    def cp_async_wait(self, call: ir.Call) -> None:
        self.need(call, 80)
        groups = self.constant(call, call.args[0])
        self.asm(f"cp.async.wait_group {groups};" if groups else "cp.async.wait_all;")

    def barrier(self, call: ir.Call) -> None:
        name = call.name
        self.need(call, 90 if name.endswith("expect_tx") else 80)
        if self._e.arch.number < 90 and name in ("mbarrier_arrive", "mbarrier_wait_parity"):
            name += "_old"
        args = [self._e.pointer(call.args[0]), *map(self._e, call.args[1:])]
        self._p.line(f"{self._e.piece(name)}({', '.join(args)});")

    def fence_init(self, call: ir.Call) -> None:
        del call
        if self._e.arch.has_bulk:  # earlier chips have nothing that could see them another way
            self.asm("fence.mbarrier_init.release.cluster;")

    def fence_proxy(self, call: ir.Call) -> None:
        self.need(call, 90)
        both = self._p.bulk_reads_what_is_written
        self.asm(f"fence.proxy.async{'' if both else '.shared::cta'};")

    def bulk(self, call: ir.Call) -> None:
        self.need(call, 90)
        load = call.name == "bulk_load"
        number = call.attrs.get("map")
        if number is None:
            raise InternalError(f"{call.name} has no tensor map", span=call.span)
        coords = call.args[3 if load else 2 :]
        region = call.args[0 if load else 1]
        what = "load" if load else (call.attrs.get("reduce") or "store")
        piece = self._e.piece(f"bulk_{what}_{len(coords)}d")
        tensor_map = f"&{self._p.maps[int(number)]}"
        for shift, offset in call.attrs["panels"]:
            places = [self._e(c) for c in reversed(coords)]
            if shift:
                places[0] = self._e(ir.as_expr(ir.fold_int(coords[-1] + shift)))
            start = region.replace(mins=(ir.as_expr(ir.fold_int(region.mins[0] + offset)),))
            args = [tensor_map, self._e.pointer(start), *places]
            if load:
                bar = self._e.pointer(call.args[2])
                args = [args[1], tensor_map, bar, *places]
            self._p.line(f"{piece}({', '.join(args)});")

    def bulk_wait(self, call: ir.Call) -> None:
        self.need(call, 90)
        read = ".read" if call.attrs.get("read") else ""
        self.asm(f"cp.async.bulk.wait_group{read} {self.constant(call, call.args[0])};")

    def set_max_nreg(self, call: ir.Call) -> None:
        if not self._e.arch.has_setmaxnreg:
            raise InternalError(f"set_max_nreg on {self._e.arch}", span=call.span)
        count, up = (self.constant(call, a) for a in call.args)
        self.asm(f"setmaxnreg.{'inc' if up else 'dec'}.sync.aligned.u32 {count};")

    def atomic(self, call: ir.Call) -> None:
        self._p.line(f"{atomic_text(self._e, call, result=False)};")
