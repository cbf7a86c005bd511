"""The C printer: device functions that run their blocks in parallel."""

from __future__ import annotations

from typing import Any

from tilec import ir
from tilec.backend import BackendContext, DeviceProgram
from tilec.backend.c_family import CodePrinter
from tilec.diagnostics import NO_SPAN, Span
from tilec.transform.base import PassConfigKey
from tilec.transform.parallel import REDUCTION, SIMD, accumulators
from tilec_c.expr import CExprPrinter, small_helpers
from tilec_c.gemm import GemmKernel, GemmSpec, emit_gemm
from tilec_c.halves import NARROW, WIDEN
from tilec_c.prefetch import PREFETCH, PREFETCH_BYTES, PREFETCH_PART
from tilec_c.prelude import render
from tilec_c.streams import STREAM
from tilec_c.toolchain import Toolchain, find_toolchain

STACK_LIMIT = 256 * 1024
"""On-chip buffers of one block live on the stack up to this many bytes, else in an arena."""
_ALIGN = 64
_EXTERNAL = ("omp_get_max_threads", "aligned_alloc", "free")
_REDUCTIONS = {
    ir.BinOp.ADD: "+", ir.BinOp.MAX: "max", ir.BinOp.MIN: "min", ir.BinOp.BITAND: "&",
    ir.BinOp.BITOR: "|", ir.BinOp.BITXOR: "^",
}  # fmt: skip


def _reduction(op: ir.BinOp, acc: ir.Buffer) -> str:
    """How OpenMP combines partial results; a sum of bools is whether one is true."""
    return "|" if acc.dtype.is_bool and op is ir.BinOp.ADD else _REDUCTIONS[op]


def emit_device(module: ir.Module, context: BackendContext) -> DeviceProgram:
    """The device program: one C file with all kernels of a function."""
    toolchain = find_toolchain()
    directives = bool(context.pass_context().flag(PassConfigKey.TL_EMIT_LINE_DIRECTIVES))
    printers = []
    expr = CExprPrinter()
    for name in (*_EXTERNAL, *module.functions):
        expr.names.reserve(name)
    for func in module.functions.values():
        printer = KernelPrinter(expr, toolchain, line_directives=directives)
        printer.kernel(func)
        printers.append(printer)
    helpers, features = small_helpers(expr.features)
    heap = any(p.arena for p in printers)
    parts = [
        render(features),
        helpers,
        "extern int omp_get_max_threads(void);\n" if toolchain.openmp else "",
        "extern void *aligned_alloc(__SIZE_TYPE__, __SIZE_TYPE__);\nextern void free(void *);\n"
        if heap
        else "",
        *(gemm.source for p in printers for gemm in p.gemms),
        *(p.text() for p in printers),
    ]
    attrs = {"compiler flags": " ".join(toolchain.flags()), "compiler": toolchain.version}
    return DeviceProgram(
        "c",
        "\n".join(part for part in parts if part),
        tuple(module.functions),
        attrs=attrs,
    )


class KernelPrinter(CodePrinter):
    """Prints one device function: the block body, and the function that runs all blocks."""

    def __init__(
        self, exprs: CExprPrinter, toolchain: Toolchain, *, line_directives: bool = False
    ) -> None:
        super().__init__(exprs, line_directives=line_directives)
        self.expr: CExprPrinter = exprs
        self.gemms: list[GemmKernel] = []
        self.arena = 0
        self._toolchain = toolchain
        self._offsets: dict[ir.Buffer, int] = {}
        self._messages: list[str] = []
        self._name = ""
        self._by_spec: dict[GemmSpec, GemmKernel] = {}
        self._accumulators: dict[ir.Buffer, ir.BinOp] = {}
        self._streams = False

    def kernel(self, func: ir.PrimFunc) -> None:
        """Print everything that belongs to one kernel."""
        self._name = func.name
        self._plan(func.body)
        prelude = func.attrs.get("annotations", {}).get("prelude")
        if prelude:
            self.lines += str(prelude).splitlines()
        grid_vars: tuple[ir.Var, ...] = func.attrs["grid_vars"]
        params = [self._parameter(p, func) for p in func.params]
        blocks = [f"int64_t {self._index(v)}" for v in grid_vars]
        arena = ["char *restrict tilec_arena"] if self.arena else []
        block = self.expr.names.fresh(f"{func.name}_block")
        self.line(f"// One block of {func.name}.")
        with self.block(f"static int32_t {block}({', '.join([*params, *blocks, *arena])})"):
            self.stmt(func.body)
            self.line("return 0;")
        self.line()
        self._driver(func, block, params, grid_vars)
        self._message_table()

    def _parameter(self, param: Any, func: ir.PrimFunc) -> str:
        name = self.expr.names(param)
        if isinstance(param, ir.Buffer):
            return f"{self.expr.storage_type(param.dtype, func.span)} *restrict {name}"
        return f"{self.expr.value_type(param.dtype, func.span)} {name}"

    def _index(self, var: ir.Var) -> str:
        self.expr.wide_vars.add(id(var))
        return self.expr.names(var)

    def _driver(
        self, func: ir.PrimFunc, block: str, params: list[str], grid_vars: tuple[ir.Var, ...]
    ) -> None:
        """The exported function: a loop over blocks, x fastest, shared by all threads."""
        fresh = self.expr.names.fresh
        threads = f"{func.name}_threads"
        if self._toolchain.openmp:
            self.line(f"TILEC_EXPORT int32_t {threads} = 0;")
        self.line("TILEC_EXPORT")
        with self.block(f"int32_t {func.name}({', '.join(params) or 'void'})"):
            extents = []
            for var, extent in zip(grid_vars, func.attrs["grid"], strict=True):
                name = fresh(f"grid_{var.name}")
                self.line(f"const int64_t {name} = {self.expr(extent)};")
                extents.append(name)
            self.line(f"if ({' || '.join(f'{e} <= 0' for e in extents)}) return 0;")
            total, status = fresh("blocks"), fresh("status")
            self.line(f"const int64_t {total} = {' * '.join(extents)};")
            self.line(f"int32_t {status} = 0;")
            if self._toolchain.openmp:
                count, chunk = fresh("team"), fresh("chunk")
                self.line(
                    f"const int32_t {count} = {threads} > 0 ? {threads} : omp_get_max_threads();"
                )
                # Neighbours share rows in the cache; small portions keep all threads busy.
                least = f"32 * {count}"
                self.line(f"const int64_t {chunk} = {total} > {least} ? {total} / ({least}) : 1;")
                self.directive(f"#pragma omp parallel if ({total} > 1) num_threads({count})")
            with self.block(""):
                if self.arena:
                    self.line(f"char *const tilec_arena = aligned_alloc({_ALIGN}, {self.arena});")
                    code = self._message("out of memory for the on-chip buffers of a block")
                    self.line(f"if (!tilec_arena) {self._record(status, str(code))}")
                if self._toolchain.openmp:
                    self.directive(f"#pragma omp for schedule(dynamic, {chunk})")
                index = fresh("block")
                with self.block(f"for (int64_t {index} = 0; {index} < {total}; ++{index})"):
                    self.line(f"if (__atomic_load_n(&{status}, __ATOMIC_RELAXED)) continue;")
                    args = [self.expr.names(p) for p in func.params]
                    rest = index
                    for extent in extents[:-1]:
                        args.append(f"{rest} % {extent}")
                        rest = f"{rest} / {extent}"
                    args.append(rest)
                    if self.arena:
                        args.append("tilec_arena")
                    result = fresh("result")
                    self.line(f"const int32_t {result} = {block}({', '.join(args)});")
                    self.line(f"if ({result}) {self._record(status, result)}")
                if self._streams:
                    self.line("tilec_stream_fence();")
                if self.arena:
                    self.line("free(tilec_arena);")
            self.line(f"return {status};")
        self.line()

    @staticmethod
    def _record(status: str, value: str) -> str:
        return f"__atomic_store_n(&{status}, {value}, __ATOMIC_RELAXED);"

    def _message(self, text: str) -> int:
        """The code that stands for a message; a kernel returns it on failure."""
        if text not in self._messages:
            self._messages.append(text)
        return self._messages.index(text) + 1

    def _message_table(self) -> None:
        items = [*map(_c_string, self._messages), "0"]
        self.line("TILEC_EXPORT")
        self.line(f"const char *const {self._name}_messages[] = {{{', '.join(items)}}};")

    # storage

    def _plan(self, body: ir.Stmt) -> None:
        """Decide where on-chip buffers live."""
        buffers = [n.buffer for n in ir.walk(body) if isinstance(n, ir.Alloc)]
        sizes = [(b, _bytes(b)) for b in buffers if b.scope() != ir.LOCAL_VAR]
        total = sum(size for _b, size in sizes)
        if total <= STACK_LIMIT:
            return
        offset = 0
        for buffer, size in sizes:
            self._offsets[buffer] = offset
            offset += -(-size // _ALIGN) * _ALIGN
        self.arena = offset

    def alloc(self, node: ir.Alloc) -> None:
        """An array on the stack, or a piece of the arena."""
        buffer = node.buffer
        offset = self._offsets.get(buffer)
        if offset is None:
            super().alloc(node)
            return
        kind = self.expr.storage_type(buffer.dtype, node.span)
        name = self.expr.names(buffer)
        self.line(f"{kind} *const restrict {name} = ({kind} *)(tilec_arena + {offset});")

    # statements

    def pragmas(self, node: ir.For) -> list[str]:
        """Vector loops, reductions and unrolling."""
        if REDUCTION in node.annotations:
            found = accumulators(node.body)
            clauses = [
                f"reduction({_reduction(op, acc)}:{self.expr.names(acc)})"
                for acc, op in found.items()
            ]
            return [" ".join(["#pragma omp simd", *clauses])]
        if node.annotations.get(SIMD):
            return ["#pragma omp simd"]
        if node.kind == "unroll":
            count = node.annotations.get("unroll_factor") or _trips(node)
            if count is not None and 1 < int(count) <= 64:
                return [f"#pragma GCC unroll {int(count)}"]
        return []

    def _for(self, node: ir.For) -> None:
        outer = self._accumulators
        if REDUCTION in node.annotations:
            self._accumulators = accumulators(node.body)
        if PREFETCH in node.annotations:
            self._in_parts(node)
        else:
            super()._for(node)
        self._accumulators = outer

    def _in_parts(self, node: ir.For) -> None:
        """A vector loop that asks for a piece of what comes next before each part of its own."""
        ahead: ir.Load = node.annotations[PREFETCH]
        size = int(node.annotations[PREFETCH_BYTES])
        start, stop = (int(node.start.value), int(node.stop.value))  # type: ignore[attr-defined]
        parts = max(1, (stop - start) // PREFETCH_PART)
        step, piece = -(-(stop - start) // parts), -(-size // parts)
        self.expr.features.add("prefetch")
        name, part = self.expr.names(node.var), self.expr.names.fresh("part")
        self.loop_type(node.var)
        address = f"(const char *)&{self.expr.load(ahead.buffer, ahead.indices)}"
        with self.block(f"for (int64_t {part} = 0; {part} < {parts}; ++{part})"):
            self.line(f"tilec_prefetch({address} + {part} * {piece}, {piece});")
            first = f"{start} + {part} * {step}" if start else f"{part} * {step}"
            for text in self.pragmas(node):
                self.directive(text)
            self.body(
                f"for (int64_t {name} = {first}; {name} < {first} + {step}; ++{name})", node.body
            )

    def _store(self, node: ir.Store) -> None:
        value = node.value
        if (
            self._accumulators.get(node.buffer) in (ir.BinOp.MAX, ir.BinOp.MIN)
            and isinstance(value, ir.Binary)
            and value.dtype.is_float
        ):
            # The form that compilers turn into one vector instruction; it ignores NaN.
            name, item = self.expr.names(node.buffer), self.expr.names.fresh("item")
            kind = self.expr.value_type(value.dtype, node.span)
            symbol = ">" if value.op is ir.BinOp.MAX else "<"
            self.line(
                f"{{ const {kind} {item} = {self.expr(value.rhs)}; "
                f"{name} = {item} {symbol} {name} ? {item} : {name}; }}"
            )
            return
        super()._store(node)

    def assertion(self, node: ir.Assert) -> None:
        """A failing assertion ends the block with a code."""
        code = self._message(f"{node.message}{_where(node.span)}")
        self.line(f"if (!({self.expr(node.cond)})) return {code};")

    def leave(self) -> None:
        """The end of a block."""
        self.line("return 0;")

    def effect(self, call: ir.Call) -> None:
        """A call for its effect; gemm calls get a function of their own."""
        if call.name == "c_gemm":
            self._gemm(call)
        elif call.name in (WIDEN, NARROW):
            self.expr.features.add("rows_f16")
            target = self.expr.load(call.args[0].buffer, call.args[0].indices)
            source = self.expr.pointer(call.args[1])
            function = f"tilec_{call.name[2:]}_f16"
            self.line(f"{function}(&{target}, {source}, {call.attrs['count']});")
        elif call.name == STREAM:
            self.expr.features.add("copy_out")
            self._streams = True
            target, source = (self.expr.load(a.buffer, a.indices) for a in call.args)
            self.line(f"tilec_stream_any(&{target}, &{source}, {call.attrs['bytes']});")
        elif call.name != "sync":
            super().effect(call)

    def _gemm(self, call: ir.Call) -> None:
        spec: GemmSpec = call.attrs["spec"]
        known = self._by_spec.get(spec)
        if known is None:
            name = self.expr.names.fresh(f"gemm_{spec.m}x{spec.n}x{spec.k}")
            known = self._by_spec[spec] = emit_gemm(name, spec, self._toolchain.isa)
            self.expr.features.update(known.features)
            self.gemms.append(known)
        a, b, c = (self.expr.pointer(r) for r in call.args[:3])
        self.line(f"{known.name}({a}, {b}, {c});")


def _trips(node: ir.For) -> int | None:
    values = [ir.const_value(x) for x in (node.start, node.stop, node.step)]
    if any(v is None for v in values):
        return None
    return len(range(*[int(v) for v in values]))  # type: ignore[arg-type]


def _bytes(buffer: ir.Buffer) -> int:
    (size,) = buffer.shape
    assert isinstance(size, int)
    return size * buffer.dtype.bytes


def _where(span: Span) -> str:
    return "" if span is NO_SPAN else f" ({span.file}:{span.line})"


def _c_string(text: str) -> str:
    escaped = text.encode("utf-8", "backslashreplace")
    return (
        '"'
        + "".join(
            chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in escaped
        )
        + '"'
    )
