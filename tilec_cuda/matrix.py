"""Matrix instructions: operands in registers or, through descriptors, in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilec import ir
from tilec.diagnostics import InternalError
from tilec.transform.flatten import OPERANDS
from tilec_cuda.shared_tiles import matrix_form

if TYPE_CHECKING:
    from tilec_cuda.stmt import CudaPrinter

_PTX = {
    "float16": "f16", "bfloat16": "bf16", "tfloat32": "tf32", "float32": "f32", "float64": "f64",
    "int8": "s8", "uint8": "u8", "int4": "s4", "uint4": "u4", "int32": "s32",
    "float8_e4m3": "e4m3", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip


def matrix_rules(printer: CudaPrinter) -> Mapping[str, Callable[[ir.Call], None]]:
    """Printing rules by the name of the call."""
    rules = _Matrix(printer)
    return {
        "mma": rules.mma,
        "mma_fence": rules.order,
        "mma_commit": rules.order,
        "mma_wait": rules.order,
        "ldmatrix": rules.move,
        "stmatrix": rules.move,
    }


def ptx_type(dtype: str, *, operand: bool) -> str:
    """A dtype in the name of an instruction; float32 operands are read as tf32."""
    name = _PTX.get(dtype)
    if name is None:
        raise InternalError(f"no matrix instruction has elements of type {dtype}")
    return "tf32" if operand and name == "f32" else name


class _Matrix:
    def __init__(self, printer: CudaPrinter) -> None:
        self._p = printer
        self._e = printer.expr

    def words(self, region: Any, kind: str = "uint32_t") -> str:
        """A range of a register array, as whole registers."""
        own = self._e.storage_type(region.buffer.dtype)
        pointer = self._e.pointer(region)
        return pointer if own == kind else f"({kind} *){self._paren(pointer)}"

    @staticmethod
    def _paren(text: str) -> str:
        return f"({text})" if text.startswith("&") else text

    def mma(self, call: ir.Call) -> None:
        atom = call.attrs["atom"]
        c, a, b = call.args[:3]
        more = call.args[3] if len(call.args) > 3 else ir.Const(True, ir.DType("bool"))
        types = (
            ptx_type(atom.accumulator, operand=False),
            ptx_type(atom.a_dtype, operand=True),
            ptx_type(atom.b_dtype, operand=True),
        )
        if atom.lanes == 128:
            self._group(call, atom, types, more)
            return
        self._zeroed(c, atom, more)
        name = f"mma_m{atom.m}n{atom.n}k{atom.k}_{'_'.join(types)}"
        args = [self._place(r, t) for r, t in zip((c, a, b), types, strict=True)]
        self._p.line(f"{self._e.piece(name)}({', '.join(args)});")

    def _place(self, region: Any, suffix: str) -> str:
        return self.words(region, {"f64": "double", "f32": "float"}.get(suffix, "uint32_t"))

    def _zeroed(self, c: Any, atom: Any, more: Any) -> None:
        """Where nothing is added to, the accumulator starts from zero."""
        known = ir.const_value(more)
        if known:
            return
        name = self._e.names.fresh("r")
        count = atom.m * atom.n // atom.lanes
        pointer = self._e.pointer(c)
        if known is None:
            self._p.directive("#pragma unroll")
            keep = self._e(ir.unary(ir.UnOp.NOT, ir.truth(more)))
            with self._p.block(f"for (int32_t {name} = 0; {name} < {count}; ++{name})"):
                self._p.line(f"if ({keep}) ({pointer})[{name}] = 0;")
            return
        self._p.directive("#pragma unroll")
        with self._p.block(f"for (int32_t {name} = 0; {name} < {count}; ++{name})"):
            self._p.line(f"({pointer})[{name}] = 0;")

    def _group(self, call: ir.Call, atom: Any, types: tuple[str, ...], more: Any) -> None:
        if not self._e.arch.has_wgmma:
            raise InternalError(f"{atom.name} on {self._e.arch}", span=call.span)
        c, a, b = call.args[:3]
        transposed = bool(call.attrs.get("transpose_a")), bool(call.attrs.get("transpose_b"))
        in_registers = a.buffer.scope() == ir.LOCAL
        name = f"wgmma_m{atom.m}n{atom.n}k{atom.k}_{'_'.join(types)}"
        name += "_ra" if in_registers else ""
        name += "_ta" if transposed[0] and not in_registers else ""
        name += "_tb" if transposed[1] else ""
        operands = call.attrs[OPERANDS]
        left = self.words(a) if in_registers else self._descriptor(a, operands[1], transposed[0])
        right = self._descriptor(b, operands[2], transposed[1])
        flag = ir.const_value(more)
        text = str(int(flag)) if flag is not None else self._e(ir.truth(more))
        args = [self._place(c, types[0]), left, right, text]
        self._p.line(f"{self._e.piece(name)}({', '.join(args)});")

    def _descriptor(self, region: Any, operand: Any, transposed: bool) -> str:
        form = matrix_form(operand, transposed)
        return f"{self._e.piece('matrix_descriptor')}({self._e.pointer(region)}, {form:#x}ull)"

    def order(self, call: ir.Call) -> None:
        if not self._e.arch.has_wgmma:
            raise InternalError(f"{call.name} on {self._e.arch}", span=call.span)
        text = {
            "mma_fence": "wgmma.fence.sync.aligned;",
            "mma_commit": "wgmma.commit_group.sync.aligned;",
            "mma_wait": "wgmma.wait_group.sync.aligned",
        }[call.name]
        if call.name == "mma_wait":
            groups = ir.const_value(call.args[0])
            if not isinstance(groups, int):
                raise InternalError("mma_wait takes a constant", span=call.span)
            text = f"{text} {groups};"
        self._p.line(f'asm volatile("{text}" ::: "memory");')

    def move(self, call: ir.Call) -> None:
        number = 75 if call.name == "ldmatrix" else 90
        if self._e.arch.number < number:
            raise InternalError(f"{call.name} on {self._e.arch}", span=call.span)
        count, transposed = int(call.attrs["num"]), bool(call.attrs.get("transpose"))
        name = f"{call.name}_x{count}{'_trans' if transposed else ''}"
        load = call.name == "ldmatrix"
        held, place = call.args if load else reversed(call.args)
        args = [self.words(held), self._e.pointer(place)]
        if not load:
            args.reverse()
        self._p.line(f"{self._e.piece(name)}({', '.join(args)});")
