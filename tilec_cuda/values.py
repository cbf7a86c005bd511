"""Calls that give a value: shuffles, votes, election, atomic updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tilec import ir
from tilec.backend.c_family import SHORT, is_small_float
from tilec.backend.c_family.expr import ATOM, EQUAL, UNARY, Text
from tilec.diagnostics import InternalError
from tilec.ir import DType

if TYPE_CHECKING:
    from tilec_cuda.expr import CudaExprPrinter

ALL = "0xffffffffu"
_SEEN_BY_OTHERS = (ir.GLOBAL, ir.SHARED, ir.SHARED_DYN)
_SHUFFLES = ("shfl_sync", "shfl_xor", "shfl_up", "shfl_down")
ATOMICS = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min"}
ORDERS = {
    None: "", "relaxed": "", "consume": "_acquire", "acquire": "_acquire", "release": "_release",
    "acq_rel": "_acq_rel", "seq_cst": "_seq_cst",
}  # fmt: skip


def value_rules(printer: CudaExprPrinter) -> Mapping[str, Callable[[ir.Call], Text]]:
    """Printing rules by the name of the call."""
    rules: dict[str, Callable[[ir.Call], Text]] = {}
    for name in _SHUFFLES:
        rules[name] = lambda call: _shuffle(printer, call)
    for name in ("any_sync", "all_sync", "ballot_sync"):
        rules[name] = lambda call: _vote(printer, call)
    rules["shuffle_elect"] = lambda call: _elect(printer, call)
    for name in ATOMICS:
        rules[name] = lambda call: _atomic(printer, call)
    return rules


def _shuffle(printer: CudaExprPrinter, call: ir.Call) -> Text:
    """The instruction has the language's meaning: lanes modulo the width, else the own value."""
    value = call.args[0]
    name = "__shfl_sync" if call.name == "shfl_sync" else f"__{call.name}_sync"
    text = f"{name}({ALL}, {', '.join(map(printer, call.args))})"
    if value.dtype.is_bool or (value.dtype.is_integer and value.dtype.bits < 32):
        return f"({printer.value_type(value.dtype)}){text}", UNARY  # handed over as an int
    return text, ATOM


def _vote(printer: CudaExprPrinter, call: ir.Call) -> Text:
    predicate = call.args[0]
    text = printer(ir.truth(predicate))
    vote = f"__{call.name}({ALL}, {text})"
    return (vote, ATOM) if call.name == "ballot_sync" else (f"{vote} != 0", EQUAL)


def _elect(printer: CudaExprPrinter, call: ir.Call) -> Text:
    lanes = ir.const_value(call.args[0])
    if not isinstance(lanes, int):
        raise InternalError("the lanes of an election are not constant", span=call.span)
    lane = printer.linear_lane
    if lane is None:
        raise InternalError("an election outside a kernel", span=call.span)
    if lanes == 0:
        return f"{lane} == 0", EQUAL
    if lanes & (lanes - 1) == 0:
        return f"({lane} & {lanes - 1}) == 0", EQUAL
    return f"{lane} % {lanes} == 0", EQUAL


def _atomic(printer: CudaExprPrinter, call: ir.Call) -> Text:
    text, dtype = atomic_text(printer, call), call.dtype
    return printer.widen(text, dtype)


def atomic_text(printer: CudaExprPrinter, call: ir.Call, *, result: bool = True) -> str:
    """An atomic update; its result, where one is wanted, is in the storage type."""
    target, value = call.args
    dtype, op = target.dtype, ATOMICS[call.name]
    order = ORDERS[call.attrs.get("memory_order")]
    pointer = f"&{printer.load(target.buffer, target.indices)}"
    kind = "atomic" if result else "red"
    variant = _variant(printer, op, dtype)
    if target.buffer.scope() not in _SEEN_BY_OTHERS:
        variant, order = f"_own{'_soft' if variant == '_cas_soft' else ''}", ""
    name = f"{kind}_{op}_{SHORT[str(dtype)]}{variant}{order}"
    return f"{printer.piece(name)}({pointer}, {printer.stored(value)})"


def _variant(printer: CudaExprPrinter, op: str, dtype: DType) -> str:
    """``_cas`` where no instruction does the update."""
    number = printer.arch.number
    if dtype.is_integer and dtype.bits >= 32:
        return ""
    if op == "add" and (str(dtype) in ("float32", "float64", "float16")):
        return ""
    if op == "add" and str(dtype) == "bfloat16" and number >= 90:
        return ""
    if is_small_float(dtype):
        to, back = (
            printer.convert(dtype, ir.DType("float32")),
            printer.convert(ir.DType("float32"), dtype),
        )
        soft = to.endswith("_soft"), back.endswith("_soft")
        return "_cas" + ("_soft" if any(soft) else "")
    return "_cas"
