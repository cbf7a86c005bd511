"""Checks of tensors in the generated host function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec import ir
from tilec.host import abi
from tilec.host.binding import SHAPE, BindingPlan, Step
from tilec.host.printer import HostPrinter
from tilec.host.support import c_string, int64_text
from tilec.ir import Buffer, Cast, DType, Expr, PrimFunc, Var

INT64 = DType("int64")


class TensorChecks:
    """Prints the checks of one function's tensors.

    Attributes:
        func: the host function.
        plan: where its variables come from.
        device_type: DLPack's number of the device that runs it.
        device_name: what messages call that device.
        alignment: by parameter, bytes to which the kernel needs the address aligned; that of an
            element where it is missing.
        out: where the text goes.
        strides: by position, the C array of the strides a tensor has, where they are declared.
    """

    def __init__(
        self,
        func: PrimFunc,
        plan: BindingPlan,
        device_type: int,
        out: HostPrinter,
        *,
        device_name: str,
        alignment: Mapping[str, int],
    ) -> None:
        self.func = func
        self.plan = plan
        self.device_type = device_type
        self.device_name = device_name
        self.alignment = alignment
        self.out = out
        self.expr = out.expr
        self.names = out.expr.names
        self.strides: dict[int, str] = {}
        self.empty: dict[int, str] = {}

    def fail(self, condition: str, call: str) -> None:
        """One check: the call of an error function, returned under a condition."""
        self.out.line(f"if (TILEC_UNLIKELY({condition}))")
        self.out.line(f"  return {call};")

    def at(self, position: int) -> str:
        """The first arguments of an error function about a parameter."""
        return f"self_handle, kernel, {c_string(self.func.params[position].name)}"

    def rank(self, position: int) -> None:
        """The number of dimensions."""
        buffer = self.func.params[position]
        assert isinstance(buffer, Buffer)
        name = self.names(buffer)
        self.fail(
            f"{name}->ndim != {buffer.ndim}",
            f'tilec_mismatch({self.at(position)}, "ndim", {buffer.ndim}, "", {name}->ndim)',
        )
        if buffer.ndim:
            self.fail(
                f"{name}->shape == NULL",
                f'tilec_fail(self_handle, "ValueError", "kernel %s: argument %s: the tensor has no '
                f'shape", kernel, {c_string(buffer.name)})',
            )

    def layout(self, position: int) -> None:
        """The strides that a tensor has, where they are declared."""
        buffer = self.func.params[position]
        assert isinstance(buffer, Buffer)
        if buffer.strides is not None and buffer.ndim and position in self.plan.required:
            self._effective_strides(position, buffer)

    def _effective_strides(self, position: int, buffer: Buffer) -> None:
        name, rank = self.names(buffer), buffer.ndim
        array = self.strides[position] = self.names.fresh(f"{name}_strides")
        self.empty[position] = self._emptiness(buffer)
        step = self.names.fresh(f"{name}_step")
        self.out.line(f"int64_t {array}[{rank}], {step} = 1;")
        with self.out.block(f"for (int axis = {rank - 1}; axis >= 0; --axis)"):
            self.out.line(f"{array}[axis] = {name}->strides ? {name}->strides[axis] : {step};")
            self.out.line(f"{step} = (int64_t)((uint64_t){step} * (uint64_t){name}->shape[axis]);")

    # one tensor

    def tensor(self, position: int) -> None:
        """Everything about one tensor but its rank, in order."""
        buffer = self.func.params[position]
        assert isinstance(buffer, Buffer)
        name = self.names(buffer)
        self._dtype(position, name, buffer.dtype)
        steps = self.plan.steps[position]
        for step in steps:
            if step.field == SHAPE:
                self.step(step)
        if buffer.strides is None:
            self._contiguous(position, buffer)
        else:
            if position not in self.plan.required and buffer.ndim:
                self._effective_strides(position, buffer)
            for step in steps:
                if step.field != SHAPE:
                    self.step(step)
        self._memory(position, name, buffer)

    def _emptiness(self, buffer: Buffer) -> str:
        """A test for a tensor without elements, its shape being checked: C text, 0 or 1."""
        extents = [ir.fold_int(e) for e in buffer.shape]
        if 0 in [e for e in extents if isinstance(e, int)]:
            return "1"
        name = self.names(buffer)
        tests = [
            f"{name}->shape[{a}] == 0" for a, e in enumerate(extents) if not isinstance(e, int)
        ]
        if not tests:
            return "0"
        return tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"

    def _dtype(self, position: int, name: str, dtype: DType) -> None:
        report = f"tilec_bad_dtype({self.at(position)}, {c_string(dtype)}, {name}->dtype)"
        code, bits, lanes = abi.dlpack_dtype(dtype)
        if bits < 8:  # packed elements: only the total width is the same everywhere
            total = f"{name}->dtype.bits * {name}->dtype.lanes != {bits * lanes}"
            self.fail(f"{name}->dtype.code != {code} || {total}", report)
            return
        tests = [
            f"tilec_dtype({name}->dtype) != 0x{c | b << 8 | n << 16:x}u"
            for c, b, n in abi.accepted_dtypes(dtype)
        ]
        self.fail(" && ".join(tests), report)

    def step(self, step: Step) -> None:
        """One extent or stride: bind its variable or check its value."""
        buffer = self.func.params[step.param]
        assert isinstance(buffer, Buffer)
        where = f"{self.at(step.param)}, {c_string(f'{step.field}[{step.axis}]')}"
        name = self.names(buffer)
        got = f"{name}->shape[{step.axis}]"
        skip = ""
        if step.field != SHAPE:
            got = f"{self.strides[step.param]}[{step.axis}]"
            skip = f"{name}->shape[{step.axis}] != 1 && "
            if self.empty[step.param] != "0":
                skip += f"!({self.empty[step.param]}) && "
        if step.solve is not None:
            self._bind(step, got, where, skip)
            return
        if isinstance(step.expected, int):
            want, why = int64_text(step.expected), ""
        else:
            want, why = self.wide(step.expected), f" ({self._why(step)})"
        if isinstance(step.expected, (int, Var)):
            self.fail(
                f"{skip}{got} != {want}",
                f"tilec_mismatch({where}, {want}, {c_string(why)}, {got})",
            )
            return
        value = self.names.fresh(f"{name}_{step.field}_{step.axis}")
        self.out.line(f"const int64_t {value} = {want};")
        self.fail(
            f"{skip}{got} != {value}",
            f"tilec_mismatch({where}, {value}, {c_string(why)}, {got})",
        )
        self._fits(step, value, where)

    def _fits(self, step: Step, value: str, where: str) -> None:
        """The kernel computes the extent in its own type: it must not wrap around there."""
        assert isinstance(step.source, Expr)
        dtype = step.source.dtype
        if dtype.bits < 64:
            high = dtype.int_range[1]
            text = f"at most {high} ({step.source!r} is {dtype!s})"
            self.fail(
                f"{value} > {int64_text(high)}",
                f"tilec_bad_field({where}, {c_string(text)}, {value})",
            )

    def _bind(self, step: Step, got: str, where: str, skip: str) -> None:
        var = step.solve
        assert var is not None
        name = self.names(var)
        high = var.dtype.int_range[1]
        narrow = f" || {name} > {int64_text(high)}" if var.dtype.bits < 64 else ""
        bare = isinstance(step.rest, int) and step.rest == 0 and step.scale == 1
        if bare and step.field != SHAPE:
            self._bind_stride(step, name)
            text = f"a non-negative {var.dtype!s} ({var.name})"
            self.fail(f"{name} < 0{narrow}", f"tilec_bad_field({where}, {c_string(text)}, {name})")
            return
        if bare:
            self.out.line(f"{name} = {got};")
            text = f"a non-negative {var.dtype!s} ({var.name})"
            self.fail(f"{name} < 0{narrow}", f"tilec_bad_field({where}, {c_string(text)}, {got})")
            return
        rest = self.wide(step.rest) if isinstance(step.rest, Expr) else int64_text(step.rest)
        given, inexact = name, ""
        if step.scale != 1:
            given = self.names.fresh(f"{name}_scaled")
            inexact = f"{given} % {int64_text(step.scale)} != 0 || "
        kind = "const int64_t " if step.scale != 1 else ""
        self.out.line(f"{kind}{given} = (int64_t)((uint64_t){got} - (uint64_t)({rest}));")
        if step.scale != 1:
            self.out.line(f"{name} = {given} / {int64_text(step.scale)};")
        text = f"{step.source!r} with a non-negative {var.dtype!s} {var.name}"
        self.fail(
            f"{skip}({inexact}{name} < 0{narrow})",
            f"tilec_bad_field({where}, {c_string(text)}, {got})",
        )
        self._fits(step, got, where)

    def _bind_stride(self, step: Step, name: str) -> None:
        """A stride variable takes its value from the first tensor where the stride matters."""
        text = ""
        for position in self.plan.order:
            if position not in self.plan.required or position not in self.strides:
                continue
            buffer = self.func.params[position]
            assert isinstance(buffer, Buffer)
            assert buffer.strides is not None
            for axis, stride in enumerate(buffer.strides):
                if stride is not step.solve:
                    continue
                value = f"{self.strides[position]}[{axis}]"
                matters = f"{self.names(buffer)}->shape[{axis}] != 1"
                if self.empty[position] != "0":
                    matters += f" && !({self.empty[position]})"
                text += f"{matters} ? {value} : "
        # Where it matters nowhere, any value will do; a foreign one might not fit the variable.
        self.out.line(f"{name} = {text}0;")

    def wide(self, expr: int | Expr) -> str:
        """An extent computed in 64 bits, whatever the types of its variables."""

        def visit(node: Any) -> Any:
            if isinstance(node, Var):
                return node if node.dtype == INT64 else Cast(INT64, node)
            return ir.map_children(node, visit)

        return self.expr(visit(expr) if isinstance(expr, Expr) else expr)

    def _why(self, step: Step) -> str:
        """Where an expected value comes from, in words."""
        assert isinstance(step.source, Expr)
        shown = [] if isinstance(step.expected, Var) else [repr(step.source)]
        for var in ir.free_vars(step.source):
            source = self.plan.origin.get(var)
            if source is None:
                shown.append(var.name)
            else:
                owner = self.func.params[source.param].name
                shown.append(f"{var.name} from {owner}.{source.field}[{source.axis}]")
        return ", ".join(dict.fromkeys(shown))

    def _contiguous(self, position: int, buffer: Buffer) -> None:
        """Row-major strides; those of extents of 1, and of empty tensors, do not matter."""
        extents = [ir.fold_int(e) for e in buffer.shape]
        if not extents or 0 in [e for e in extents if isinstance(e, int)]:
            return
        name = self.names(buffer)
        dynamic = [a for a, e in enumerate(extents) if not isinstance(e, int)]
        guard = "".join(f" && {name}->shape[{axis}] != 0" for axis in dynamic)
        with self.out.block(f"if ({name}->strides != NULL{guard})"):
            static, product = 1, ""
            for axis in reversed(range(len(extents))):
                extent = extents[axis]
                known = isinstance(extent, int)
                factors = [product] * bool(product) + [str(static)] * (static != 1)
                want = " * ".join(factors) or "1"
                if product:
                    want = f"(int64_t)({want})"
                if not (known and extent == 1):
                    own = "" if known else f"{name}->shape[{axis}] != 1 && "
                    self.fail(
                        f"{own}{name}->strides[{axis}] != {want}",
                        f'tilec_mismatch({self.at(position)}, "strides[{axis}]", {want}, '
                        f'" (contiguous)", {name}->strides[{axis}])',
                    )
                if known:
                    static *= extent
                else:
                    factor = f"(uint64_t){name}->shape[{axis}]"
                    product = f"{product} * {factor}" if product else factor

    def _memory(self, position: int, name: str, buffer: Buffer) -> None:
        """byte_offset, device and data pointer."""
        size = buffer.dtype.bytes
        if size & (size - 1):
            size = 1
        if size > 1:
            self.fail(
                f"{name}->byte_offset % {size} != 0",
                f'tilec_bad_field({self.at(position)}, "byte_offset", "a multiple of {size}", '
                f"(int64_t){name}->byte_offset)",
            )
        allowed = _devices(self.device_type)
        self.fail(
            " && ".join(f"{name}->device.device_type != {kind}" for kind in allowed),
            f"tilec_bad_device({self.at(position)}, {c_string(self.device_name)}, {name}->device)",
        )
        if self.device_type != abi.CPU:
            self._same_device(position, name)
        nothing = self._emptiness(buffer)
        test = "" if nothing == "0" else f" && !({nothing})"
        self.fail(
            f"{name}->data == NULL{test}",
            f'tilec_fail(self_handle, "ValueError", "kernel %s: argument %s: data expected an '
            f'address, got NULL", kernel, {c_string(buffer.name)})',
        )
        size = max(size, self.alignment.get(buffer.name, 1))
        if size > 1:
            self.fail(
                f"((uintptr_t){name}->data + {name}->byte_offset) % {size} != 0{test}",
                f'tilec_fail(self_handle, "ValueError", "kernel %s: argument %s: data expected an '
                f'address aligned to {size} bytes, got %p", kernel, {c_string(buffer.name)}, '
                f"(void*)((uintptr_t){name}->data + {name}->byte_offset))",
            )

    def _same_device(self, position: int, name: str) -> None:
        """All tensors of one call live on one device: that of the first required one."""
        first = next((i for i in self.plan.order if i in self.plan.required), position)
        if first == position:
            return
        anchor = self.names(self.func.params[first])
        self.fail(
            f"{name}->device.device_id != {anchor}->device.device_id",
            f'tilec_mismatch({self.at(position)}, "device index", {anchor}->device.device_id, "", '
            f"{name}->device.device_id)",
        )


def _devices(device_type: int) -> tuple[int, ...]:
    """Device types whose memory a kernel can use."""
    return abi.HOST_MEMORY if device_type == abi.CPU else (device_type,)
