"""Statements of device functions as CUDA C++."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilec import ir
from tilec.backend.c_family import CodePrinter
from tilec.diagnostics import NO_SPAN, InternalError, Span
from tilec_cuda.effects import effect_rules
from tilec_cuda.expr import CudaExprPrinter
from tilec_cuda.vectors import print_vectorized

SHARED_ARRAY = "tilec_shared"
_SHARED = (ir.SHARED, ir.SHARED_DYN, "shared.barrier")
_INT32_MAX = 2**31 - 1
_MAX_COPIES = 512


class CudaPrinter(CodePrinter):
    """Prints one device function.

    Attributes:
        func: the function.
        maps: names of the tensor map parameters, in order.
    """

    def __init__(
        self,
        exprs: CudaExprPrinter,
        func: ir.PrimFunc,
        *,
        line_directives: bool = False,
        noalias: bool = True,
    ) -> None:
        super().__init__(exprs, line_directives=line_directives)
        self.expr: CudaExprPrinter = exprs
        self.func = func
        self.maps: list[str] = []
        self._noalias = noalias
        self._plan: Mapping[ir.Buffer, int] = func.attrs.get("shared_plan") or {}
        self._effects: dict[str, Callable[[ir.Call], None]] = dict(effect_rules(self))
        self._written = _written(func)
        self._fits = True
        self._copies = 1  # of what is printed, by the unrolled loops around it
        self.bulk_reads_what_is_written = _bulk_reads(func)

    # the function

    def kernel(self) -> None:
        """Print the function."""
        func, launch = self.func, self.func.attrs["launch"]
        threads = tuple(int(n) for n in launch["threads"])
        params = [*map(self._tensor_map, func.attrs.get("tensor_maps") or ())]
        params += [self._parameter(p) for p in func.params]
        count = 1
        for extent in threads:
            count *= extent
        least = func.attrs.get("annotations", {}).get("min_blocks_per_sm")
        if least is None and _hands_over_registers(func.body):
            least = 1  # the compiler has to know with how many registers a block starts
        bounds = f"{count}, {int(least)}" if least else f"{count}"
        with self.expr.facts.scope():
            self.expr.linear_lane = _linear_lane(threads)
            head = f'extern "C" __global__ void __launch_bounds__({bounds}) {func.name}('
            with self.block(_wrapped(head, params) + ")"):
                self._indices(threads)
                if any(b in self._plan for b in _shared_buffers(func.body)):
                    self.line(f"extern __shared__ __align__(1024) uint8_t {SHARED_ARRAY}[];")
                self.stmt(func.body)

    def _tensor_map(self, record: Any) -> str:
        name = self.expr.names.fresh(record.name)
        self.maps.append(name)
        self.expr.piece("tensor_map")
        return f"const __grid_constant__ tilec_tensor_map {name}"

    def _parameter(self, param: Any) -> str:
        name = self.expr.names(param)
        if not isinstance(param, ir.Buffer):
            return f"const {self.expr.value_type(param.dtype, self.func.span)} {name}"
        kind = self.expr.storage_type(param.dtype, self.func.span)
        const = "" if param in self._written else "const "
        return f"{const}{kind} *{'__restrict__ ' if self._noalias else ''}{name}"

    def _indices(self, threads: tuple[int, ...]) -> None:
        attrs, facts = self.func.attrs, self.expr.facts
        used = set(ir.free_vars(self.func.body))
        for var, extent, axis in zip(attrs["grid_vars"], attrs["grid"], "xyz", strict=False):
            facts.bind_range(var, 0, ir.fold_int(extent - 1))
            if var in used:
                self._index(var, f"blockIdx.{axis}")
        for var, count, axis in zip(attrs.get("thread_vars", ()), threads, "xyz", strict=False):
            facts.bind_range(var, 0, count - 1)
            if var in used:
                self._index(var, f"threadIdx.{axis}")

    def _index(self, var: ir.Var, source: str) -> None:
        self.line(f"const {self.expr.value_type(var.dtype)} {self.expr.names(var)} = {source};")

    # storage

    def alloc(self, node: ir.Alloc) -> None:
        """A variable, an array of registers, or a place in shared memory."""
        buffer = node.buffer
        if buffer.scope() == ir.LOCAL_VAR:
            super().alloc(node)
            return
        kind, name = self.expr.storage_type(buffer.dtype, node.span), self.expr.names(buffer)
        (size,) = buffer.shape
        if not isinstance(size, int):
            raise InternalError(f"{buffer.describe()} has a dynamic size", span=node.span)
        if buffer.scope() not in _SHARED:
            self.line(f"{_aligned(buffer, size)}{kind} {name}[{max(size, 1)}];")
            return
        offset = self._plan.get(buffer)
        if offset is None:
            align = 1024 if size * buffer.dtype.bytes >= 1024 else 128
            align = 8 if buffer.scope() == "shared.barrier" else align
            self.line(f"__shared__ __align__({align}) {kind} {name}[{max(size, 1)}];")
            return
        place = f"{SHARED_ARRAY} + {int(offset)}" if offset else SHARED_ARRAY
        self.line(f"{kind} *const {name} = ({kind} *)({place});")

    # statements

    def _bind(self, node: ir.Bind) -> None:
        super()._bind(node)
        self.expr.facts.bind_value(node.var, node.value)

    def _if(self, node: ir.If, word: str = "if") -> None:
        facts = self.expr.facts
        header = f"{word} ({self.expr(node.cond)})"
        with self.block(header, close=""), facts.assume(node.cond):
            self.stmt(node.then)
        self.lines.pop()
        if node.other is None:
            self.line("}")
            return
        with facts.scope():
            facts.add_condition(node.cond, False)
            if isinstance(node.other, ir.If):
                self._if(node.other, "} else if")
            else:
                self.body("} else", node.other)

    def _for(self, node: ir.For) -> None:
        if node.kind == "vectorized" and print_vectorized(self, node):
            return
        facts = self.expr.facts
        with facts.scope():
            step = ir.const_value(node.step)
            low, high = node.start, ir.fold_int(node.stop - 1)
            if isinstance(step, int) and step < 0:
                low, high = ir.fold_int(node.stop + 1), node.start
            facts.bind_range(node.var, *map(_bound, (low, high)))
            last = facts.bounds(ir.as_expr(node.stop)).hi
            size = abs(step) if isinstance(step, int) else _INT32_MAX
            self._fits = size == 1 or last + size <= _INT32_MAX
            outer = self._copies
            if node.kind in ("unroll", "vectorized"):
                self._copies *= max(1, trips(node) or 1)
            super()._for(node)
            self._copies = outer

    def loop_type(self, var: ir.Var) -> str:
        """32 bits unless the variable has more, or stepping past the end would need more."""
        if var.dtype in (ir.DType("int64"), ir.DType("uint64")):
            return self.expr.value_type(var.dtype)
        if var.dtype == ir.DType("int32") and self._fits:
            return "int32_t"
        return super().loop_type(var)

    def pragmas(self, node: ir.For) -> list[str]:
        """Unrolling."""
        if node.kind not in ("unroll", "vectorized"):
            return self._serial(node)
        factor = node.annotations.get("unroll_factor")
        return [f"#pragma unroll {int(factor)}" if factor else "#pragma unroll"]

    def _serial(self, node: ir.For) -> list[str]:
        """Compilers unroll short loops themselves; that must not multiply what is unrolled."""
        count = trips(node)
        if count is None or self._copies * count <= _MAX_COPIES or _picks_registers(node):
            return []
        factor = 1
        while self._copies * factor * 2 <= _MAX_COPIES:
            factor *= 2
        return [f"#pragma unroll {factor}"]

    def _store(self, node: ir.Store) -> None:
        saved = self.expr.plain_order
        self.expr.plain_order = saved or _accumulates(node)
        super()._store(node)
        self.expr.plain_order = saved

    def assertion(self, node: ir.Assert) -> None:
        """A failing assertion prints its message and stops the kernel."""
        text = _c_string(f"{node.message}{_where(node.span)}\n").replace("%", "%%")
        with self.block(f"if (!({self.expr(node.cond)}))"):
            self.line(f"printf({text});")
            self.line("__trap();")

    def effect(self, call: ir.Call) -> None:
        """A call for its effect."""
        rule = self._effects.get(call.name)
        if rule is None:
            super().effect(call)
        else:
            rule(call)


def _accumulates(node: ir.Store) -> bool:
    """Whether a running minimum or maximum goes on, where the sign of a zero means nothing."""
    value = node.value
    return (
        isinstance(value, ir.Binary)
        and value.op in (ir.BinOp.MAX, ir.BinOp.MIN)
        and value.dtype.is_float
        and any(
            isinstance(side, ir.Load)
            and side.buffer is node.buffer
            and ir.structural_equal(side.indices, node.indices)
            for side in (value.lhs, value.rhs)
        )
    )


def trips(node: ir.For) -> int | None:
    """How often a loop runs, where that is known."""
    values = [ir.const_value(x) for x in (node.start, node.stop, node.step)]
    if not all(isinstance(v, int) for v in values):
        return None
    return len(range(*[int(v) for v in values if v is not None]))


def _picks_registers(node: ir.For) -> bool:
    """Whether the loop variable chooses registers, which then have to be known."""
    return any(
        any(n is node.var for index in item.indices for n in ir.walk(index))
        for item in ir.walk(node.body)
        if isinstance(item, (ir.Load, ir.Store)) and item.buffer.scope() == ir.LOCAL
    )


def _bound(value: Any) -> Any:
    constant = ir.const_value(value)
    return value if constant is None else constant


def _written(func: ir.PrimFunc) -> set[ir.Buffer]:
    """Buffer parameters that the function writes."""
    found: set[ir.Buffer] = set()
    for node in ir.walk(func.body):
        if isinstance(node, ir.Store):
            found.add(node.buffer)
        elif isinstance(node, ir.Call) and not ir.is_pure(node.name):
            # Loads in calls name elements, and elements that are written to among them.
            found |= {a.buffer for a in node.args if isinstance(a, (ir.Load, ir.BufferRegion))}
    return found


def _hands_over_registers(body: ir.Stmt) -> bool:
    return any(isinstance(n, ir.Call) and n.name == "set_max_nreg" for n in ir.walk(body))


def _bulk_reads(func: ir.PrimFunc) -> bool:
    """Whether a bulk copy reads a global buffer that lanes of the function write themselves."""
    stored, copied = set(), set()
    for node in ir.walk(func.body):
        if isinstance(node, ir.Store):
            stored.add(node.buffer)
        elif isinstance(node, ir.Call) and node.name == "bulk_load":
            copied.add(node.args[1].buffer)
        elif isinstance(node, ir.Call) and node.name.startswith("atomic_"):
            stored.add(node.args[0].buffer)
    return bool(stored & copied)


def _shared_buffers(body: ir.Stmt) -> list[ir.Buffer]:
    return [
        n.buffer for n in ir.walk(body) if isinstance(n, ir.Alloc) and n.buffer.scope() in _SHARED
    ]


def _aligned(buffer: ir.Buffer, size: int) -> str:
    """Arrays of narrow elements may be seen as whole registers."""
    total = size * buffer.dtype.bytes
    if buffer.dtype.bytes >= 4 or total % 4:
        return ""
    return f"__align__({min(16, total & -total)}) "


def _linear_lane(threads: tuple[int, ...]) -> str:
    text = "threadIdx.x"
    if len(threads) > 1 and threads[1] > 1:
        text = f"(threadIdx.x + {threads[0]} * threadIdx.y)"
    if len(threads) > 2 and threads[2] > 1:
        x, y = threads[:2]
        text = f"(threadIdx.x + {x} * (threadIdx.y + {y} * threadIdx.z))"
    return text


def _wrapped(head: str, params: list[str]) -> str:
    text = head + ", ".join(params)
    return text if len(text) <= 96 else head + "\n    " + ",\n    ".join(params)


def _where(span: Span) -> str:
    return "" if span is NO_SPAN else f" ({span.file}:{span.line})"


def _c_string(text: str) -> str:
    """A string literal; bytes that are not plain are written in octal."""
    plain = {"\n": "\\n", '"': '\\"', "\\": "\\\\", "?": "\\?"}
    inner = "".join(
        plain.get(chr(b)) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}")
        for b in text.encode("utf-8", "backslashreplace")
    )
    return f'"{inner}"'
