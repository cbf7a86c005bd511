"""The generated host function: checks of arguments, then the launches.

    int __tvm_ffi_<name>(void* self_handle, const TVMFFIAny* args, int32_t num_args,
                         TVMFFIAny* result)

It returns 0, or -1 after recording an error kind (a Python exception's name) and a message. The
order of checks: argument count, argument array, kind and range of each argument, tensors that must
not be None, number of dimensions of all tensors; then per tensor dtype, shape, strides,
byte_offset, device, data; then checks whose variables come from later tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilec import ir
from tilec.backend.c_family import STORAGE, NameTable
from tilec.diagnostics import InternalError
from tilec.host import abi
from tilec.host.binding import BindingPlan, plan_bindings, plan_outputs
from tilec.host.checks import TensorChecks
from tilec.host.launches import DeviceCalls, LaunchSite, Passed
from tilec.host.overlap import overlap_source, print_refusals, print_separation
from tilec.host.printer import HostExprPrinter, HostPrinter
from tilec.host.support import CALLER, c_string, int64_text, support_source
from tilec.ir import Buffer, DType, PrimFunc, Var


def generate_host_source(
    funcs: PrimFunc | Sequence[PrimFunc],
    *,
    expr_printer: Callable[[NameTable], HostExprPrinter] = HostExprPrinter,
    calls: DeviceCalls | None = None,
) -> str:
    """C11 source of one library's host functions.

    Args:
        funcs: in split form, with the attributes ``calling_conv="host_packed"``, ``out_idx``,
            ``used`` (names of buffers the body uses) and ``device_type``; launches are
            ``call_device`` calls.
        expr_printer: makes the printer of expressions; a backend may extend it.
        calls: how device functions are called; as C functions of the same library by default.

    Raises:
        ShapeError: a dynamic variable that no argument determines.
        CapabilityError: a host expression that plain C cannot compute.
    """
    items = [funcs] if isinstance(funcs, PrimFunc) else list(funcs)
    calls = DeviceCalls() if calls is None else calls
    stubs = [_Stub(func, expr_printer, calls) for func in items]
    bodies = [stub.function() for stub in stubs]
    helpers: dict[str, str] = {}
    for stub in stubs:
        helpers.update(stub.expr.helpers)
    overlap = [stub.device_type == abi.CPU for stub in stubs if stub.shared]
    parts = [
        support_source(),
        overlap_source(copies=any(overlap)) if overlap else "",
        "".join(helpers.values()),
        calls.support(),
        *bodies,
    ]
    return "\n".join(part for part in parts if part)


def binding_plan(func: PrimFunc) -> BindingPlan:
    """Where the variables of a host function come from.

    Raises:
        ShapeError: a dynamic variable that no argument determines.
    """
    used = func.attrs.get("used")
    positions = [
        i
        for i, p in enumerate(func.params)
        if isinstance(p, Buffer) and (used is None or p.name in used)
    ]
    return plan_bindings(
        func.name,
        func.params,
        outputs=tuple(func.attrs.get("out_idx") or ()),
        used=positions,
        needed=_free_in(func.body),
    )


def _free_in(body: ir.Stmt) -> list[Var]:
    """Variables that a body uses but does not define."""
    seen: dict[Var, None] = {}
    defined: set[Var] = set()
    for node in ir.walk(body):
        if isinstance(node, (ir.Bind, ir.For)):
            defined.add(node.var)
        if isinstance(node, Var):
            seen.setdefault(node)
    return [v for v in seen if v not in defined]


class _Stub:
    """Prints one host function."""

    def __init__(
        self,
        func: PrimFunc,
        expr_printer: Callable[[NameTable], HostExprPrinter],
        calls: DeviceCalls,
    ) -> None:
        self.func = func
        self.calls = calls
        self.plan = binding_plan(func)
        plan_outputs(func.name, func.params, tuple(func.attrs.get("out_idx") or ()))
        self.device_type = int(func.attrs.get("device_type", abi.CPU))
        names = NameTable([*_reserved(), *calls.reserved])
        self.launches = [
            node
            for node in ir.walk(func.body)
            if isinstance(node, ir.Call) and node.name == "call_device"
        ]
        for call in self.launches:
            for name in calls.symbols(str(call.args[0])):
                names.reserve(name)
        self.names = names
        self.expr = expr_printer(names)
        self.out = HostPrinter(self.expr, self._launch, self._assertion)
        self.checks = TensorChecks(
            func,
            self.plan,
            self.device_type,
            self.out,
            device_name=calls.device_name or abi.device_name(self.device_type),
            alignment=calls.alignment,
        )
        self.fail, self.at = self.checks.fail, self.checks.at
        self.data: dict[Buffer, str] = {}
        self.shared: dict[str, tuple[str, str]] = {}

    def function(self) -> str:
        """The whole function."""
        out = self.out
        out.line("TILEC_EXPORT")
        header = (
            f"int {abi.host_symbol(self.func.name)}(void* self_handle, const TVMFFIAny* args, "
            "int32_t num_args, TVMFFIAny* result)"
        )
        with out.block(header):
            self._body()
        return out.text()

    def _body(self) -> None:
        out, params = self.out, self.func.params
        out.line(f"static const char kernel[] = {c_string(self.func.name)};")
        out.line("(void)result;")
        self.fail(
            f"num_args != {len(params)}",
            'tilec_fail(self_handle, "ValueError", "kernel %s: expected %d '
            f'argument{"s" * (len(params) != 1)}, got %d", kernel, {len(params)}, num_args)',
        )
        if params:
            self.fail(
                "args == NULL",
                'tilec_fail(self_handle, "ValueError", "kernel %s: the argument array is NULL", '
                "kernel)",
            )
        for position, param in enumerate(params):
            self._kind(position, param)
        for position in sorted(self.plan.required):
            self._present(position)
        for position in self.plan.order:
            self._guarded(position, self.checks.rank)
        for var in self.plan.origin:
            self.expr.wide_vars.add(id(var))
            out.line(f"int64_t {self.names(var)} = 0;")
        for position in self.plan.order:
            self._guarded(position, self.checks.layout)
        for position in self.plan.order:
            self._guarded(position, self.checks.tensor)
        for step in self.plan.late:
            self._guarded(step.param, lambda _, step=step: self.checks.step(step))  # type: ignore[misc]
        for position in self.plan.order:
            self._pointer(position)
        if self.shared:
            written = self.func.attrs.get("written", ())
            separate = print_separation if self.device_type == abi.CPU else print_refusals
            separate(out, self.names, self.shared, written, self.fail)
        self.calls.begin(self._site())
        out.stmt(self.func.body)
        out.line("return 0;")

    def _guarded(self, position: int, emit: Callable[[int], None]) -> None:
        """What `emit` prints, under a test where the tensor may be None."""
        start = len(self.out.lines)
        if position in self.plan.required:
            emit(position)
            return
        with self.out.block(f"if ({self.names(self.func.params[position])} != NULL)"):
            emit(position)
        if len(self.out.lines) == start + 2:
            del self.out.lines[start:]

    # arguments

    def _kind(self, position: int, param: Buffer | Var) -> None:
        out, name = self.out, self.names(param)
        if isinstance(param, Buffer):
            optional = "" if position in self.plan.required else " or None"
            what = f"a tensor {ir.shape_text(param.shape)} {param.dtype!s}{optional}"
            out.comment(f"{param.name}: {what}")
            out.line(f"const DLTensor* {name};")
            self.fail(
                f"!tilec_as_tensor(&args[{position}], &{name})",
                f"tilec_bad_kind({self.at(position)}, {c_string(what)}, &args[{position}])",
            )
            return
        dtype = param.dtype
        what = scalar_kind(dtype)
        wide = self.names.fresh(f"{name}_given")
        kind, cast = ("double", "float") if dtype.is_float else ("int64_t", "int")
        out.comment(f"{param.name}: {what}")
        out.line(f"{kind} {wide};")
        self.fail(
            f"!tilec_as_{cast}(&args[{position}], &{wide})",
            f"tilec_bad_kind({self.at(position)}, {c_string(what)}, &args[{position}])",
        )
        self._range(position, wide, dtype)
        value = f"({self.expr.value_type(dtype)}){wide}"
        if dtype.is_bool:
            value = f"{wide} != 0"
        elif dtype.is_float and dtype.bits == 16:
            value = self.expr.rounded(wide, dtype)[0]
        out.line(f"const {self.expr.value_type(dtype)} {name} = {value};")
        out.line(f"(void){name};")

    def _range(self, position: int, value: str, dtype: DType) -> None:
        if not dtype.is_integer:
            return
        low, high = dtype.int_range
        tests = []
        if dtype == DType("uint64"):
            # The packed form has no unsigned integers; our own caller has checked the range.
            tests = [f"{value} < 0 && self_handle != (void*)&{CALLER}"]
        elif dtype.bits < 64:
            tests = [f"{value} < {int64_text(low)} || {value} > {int64_text(high)}"]
        for test in tests:
            what = f"{dtype!s} ({low} to {high})"
            self.fail(test, f"tilec_bad_range({self.at(position)}, {c_string(what)}, {value})")

    def _present(self, position: int) -> None:
        buffer = self.func.params[position]
        assert isinstance(buffer, Buffer)
        what = f"a tensor {ir.shape_text(buffer.shape)} {buffer.dtype!s}"
        self.fail(
            f"{self.names(buffer)} == NULL",
            f"tilec_bad_kind({self.at(position)}, {c_string(what)}, &args[{position}])",
        )

    # body

    def _pointer(self, position: int) -> None:
        buffer = self.func.params[position]
        assert isinstance(buffer, Buffer)
        name = self.names(buffer)
        if not any(arg is buffer for call in self.launches for arg in call.args):
            return
        data = self.names.fresh(f"{name}_data")
        self.data[buffer] = f"({element_type(buffer.dtype)}*){data}"
        value = f"(char*){name}->data + {name}->byte_offset"
        if position not in self.plan.required:
            value = f"{name} == NULL ? NULL : {value}"
        elif self._may_share(buffer):
            self.shared[buffer.name] = (name, data)
        const = "" if buffer.name in self.shared else " const"
        self.out.line(f"char*{const} {data} = {value};")

    def _may_share(self, buffer: Buffer) -> bool:
        """Whether memory that `buffer` shares with another argument makes a difference."""
        written = self.func.attrs.get("written", ())
        others = [n for n in self.func.attrs.get("used", ()) if n != buffer.name]
        return bool(others) if buffer.name in written else any(n in written for n in others)

    def _launch(self, out: HostPrinter, call: ir.Call) -> None:
        del out
        kernel = str(call.args[0])
        passed = []
        for arg in call.args[1:]:
            if isinstance(arg, Buffer):
                known = self.data.get(arg)
                if known is None:
                    raise InternalError(
                        f"{arg.describe()} is passed to {kernel} but is no parameter of "
                        f"{self.func.name}",
                        span=call.span,
                    )
                passed.append(Passed(arg, known, f"{element_type(arg.dtype)}*"))
            else:
                value = ir.as_expr(arg)
                kind = self.expr.value_type(value.dtype, call.span)
                passed.append(Passed(value, self.expr(value), kind))
        self.calls.launch(self._site(), kernel, passed)

    def _site(self) -> LaunchSite:
        tensors = {p: self.names(p) for p in self.func.params if isinstance(p, Buffer)}
        anchor = next((i for i in self.plan.order if i in self.plan.required), None)
        device = "-1"
        if anchor is not None:
            device = f"{self.names(self.func.params[anchor])}->device.device_id"
        return LaunchSite(self.out, self.names, self.fail, self.checks.wide, tensors, device)

    def _assertion(self, out: HostPrinter, node: ir.Assert) -> None:
        del out
        self.fail(
            f"!({self.expr(node.cond)})",
            'tilec_fail(self_handle, "RuntimeError", "kernel %s: %s", kernel, '
            f"{c_string(node.message)})",
        )


def scalar_kind(dtype: DType) -> str:
    """What a scalar parameter takes, in words."""
    if dtype.is_bool:
        return "a bool"
    return f"{'a float' if dtype.is_float else 'an int'} ({dtype!s})"


def element_type(dtype: DType) -> str:
    """The C type of an element as the host hands it on."""
    known = STORAGE.get(str(dtype.scalar))
    return known if known is not None else "uint8_t"


def _reserved() -> list[str]:
    kinds = [
        f"{u}INT{k}{b}" for u in ("", "U") for k in ("", "_LEAST", "_FAST") for b in (8, 16, 32, 64)
    ]
    kinds += [
        "INTPTR",
        "UINTPTR",
        "INTMAX",
        "UINTMAX",
        "PTRDIFF",
        "SIG_ATOMIC",
        "SIZE",
        "WCHAR",
        "WINT",
    ]
    macros = [f"{k}_{end}" for k in kinds for end in ("MIN", "MAX", "C", "WIDTH")]
    own = (
        "self_handle args num_args result kernel axis status DLTensor DLDevice DLDataType TVMFFIAny"
    )
    return [*macros, *own.split(), "va_list", "va_start", "va_end", "TVMFFIErrorSetRaisedFromCStr"]
