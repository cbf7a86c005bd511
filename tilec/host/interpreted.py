"""The packed host function without a C compiler: the same checks and messages, from Python.

What `tilec.host.stub` prints, this executes: the order of checks, the conditions and the words are
those of the generated C. It takes tens of microseconds per call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tilec import ir
from tilec.diagnostics import InternalError
from tilec.host import abi
from tilec.host.abi import TypeIndex
from tilec.host.binding import SHAPE, Step
from tilec.host.evaluate import Evaluator, compile_int
from tilec.host.launches import DeviceCalls
from tilec.host.packing import ffi, tensor_type
from tilec.host.stub import binding_plan, scalar_kind
from tilec.ir import Buffer, Expr, PrimFunc, Var

_TENSORS = (TypeIndex.DLTENSOR_POINTER, TypeIndex.TENSOR)


class Refused(Exception):
    """A failed check: the kind of the error and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Tensor(NamedTuple):
    """A tensor argument, read from its description.

    Attributes:
        address: of the first element.
        device_type, device: DLPack's.
        shape: extents.
        strides: in elements; None for row-major.
        code, bits, lanes: of the element type.
        byte_offset: already in the address.
    """

    address: int
    data: int
    device_type: int
    device: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    code: int
    bits: int
    lanes: int
    byte_offset: int

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides, row-major ones where none are given."""
        if self.strides is not None:
            return self.strides
        steps, step = [], 1
        for extent in reversed(self.shape):
            steps.append(step)
            step *= extent
        return tuple(reversed(steps))

    @property
    def empty(self) -> bool:
        """Whether it has no elements."""
        return 0 in self.shape

    @property
    def contiguous(self) -> bool:
        """Whether it is row-major without gaps."""
        step = 1
        for extent, own in zip(reversed(self.shape), reversed(self.steps), strict=True):
            if extent != 1 and own != step:
                return False
            step *= extent
        return True

    def span(self) -> tuple[int, int]:
        """The bytes between the first and the last element; the end is exclusive."""
        if self.empty:
            return self.address, self.address
        item = (self.bits * self.lanes + 7) // 8
        reach = [(e - 1) * s for e, s in zip(self.shape, self.steps, strict=True) if e > 1]
        low = sum(r for r in reach if r < 0)
        high = sum(r for r in reach if r > 0)
        return self.address + low * item, self.address + (high + 1) * item


class CallState(NamedTuple):
    """What a launch sees.

    Attributes:
        env: values of variables.
        tensors: by parameter buffer; None where it was left out.
        device: index of the device; -1 without tensors.
        stream: raw handle.
    """

    env: dict[Var, Any]
    tensors: dict[Buffer, Tensor | None]
    device: int
    stream: int


Launch = Callable[[str, Sequence[Any], CallState], None]
"""``(kernel, arguments, state)``: an argument is a `Buffer` or the value of an expression."""


class InterpretedEntry:
    """A packed host function that Python runs.

    Attributes:
        name: of the kernel.
        value: evaluates expressions of the function.
    """

    def __init__(self, func: PrimFunc, calls: DeviceCalls, launch: Launch) -> None:
        """Plan the checks.

        Args:
            func: in split form, as for `generate_host_source`.
            calls: says what the device is called, and which alignment kernels need.
            launch: launches a device function; may raise `Refused`.

        Raises:
            ShapeError: a dynamic variable that no argument determines.
        """
        self.name = func.name
        self._func = func
        self._plan = binding_plan(func)
        self._calls = calls
        self._launch = launch
        self._device_type = int(func.attrs.get("device_type", abi.CPU))
        self._device_name = calls.device_name or abi.device_name(self._device_type)
        self._local = threading.local()
        self.value = Values()

    def call(self, args: Any, count: int, result: Any) -> int:
        """Check the packed arguments and launch; 0, or -1 with an error recorded."""
        try:
            self._run(args, count, int(ffi().cast("int64_t*", result)[1]))
        except Refused as error:
            self._local.error = (error.kind, error.message)
            return -1
        return 0

    def error(self) -> tuple[str, str]:
        """This thread's last failure."""
        return getattr(self._local, "error", ("", ""))

    # the function

    def _run(self, args: Any, count: int, stream: int) -> None:
        func, plan = self._func, self._plan
        if count != len(func.params):
            plural = "s" * (len(func.params) != 1)
            raise self._refuse(
                "ValueError", f"expected {len(func.params)} argument{plural}, got {count}"
            )
        state = CallState({}, {}, -1, stream)
        for position, param in enumerate(func.params):
            if isinstance(param, Buffer):
                state.tensors[param] = self._tensor(args[position], position, param)
            else:
                state.env[param] = self._scalar(args[position], param)
        for position in sorted(plan.required):
            tensor, buffer = self._at(state, position)
            if tensor is None:
                raise self._present(args[position], buffer)
        for position in plan.order:
            tensor, buffer = self._at(state, position)
            if tensor is not None and len(tensor.shape) != buffer.ndim:
                raise self._mismatch(buffer, "ndim", buffer.ndim, "", len(tensor.shape))
        for position in plan.order:
            if self._at(state, position)[0] is not None:
                self._check(state, position)
        for step in plan.late:
            if self._at(state, step.param)[0] is not None:
                self._step(state, step)
        self._separate(state)
        anchor = next((i for i in plan.order if i in plan.required), None)
        if anchor is not None:
            tensor = self._at(state, anchor)[0]
            assert tensor is not None
            state = state._replace(device=tensor.device)
        self._statement(func.body, state)

    def _refuse(self, kind: str, message: str) -> Refused:
        return Refused(kind, f"kernel {self.name}: {message}")

    def _bad(self, param: Any, kind: str, message: str) -> Refused:
        return self._refuse(kind, f"argument {param.name}: {message}")

    def _mismatch(self, param: Any, field: str, want: int, why: str, got: int) -> Refused:
        return self._bad(param, "ValueError", f"{field} expected {want}{why}, got {got}")

    def _at(self, state: CallState, position: int) -> tuple[Tensor | None, Buffer]:
        buffer = self._func.params[position]
        assert isinstance(buffer, Buffer)
        return state.tensors[buffer], buffer

    # arguments

    def _tensor(self, arg: Any, position: int, buffer: Buffer) -> Tensor | None:
        optional = "" if position in self._plan.required else " or None"
        what = f"a tensor {ir.shape_text(buffer.shape)} {buffer.dtype!s}{optional}"
        kind = arg.type_index
        if kind not in (*_TENSORS, TypeIndex.NONE):
            raise self._bad(buffer, "TypeError", f"expected {what}, got {_kind_text(kind)}")
        address = int(ffi().cast("intptr_t", arg.v_ptr))
        if kind == TypeIndex.NONE or not address:
            return None
        return _read(address + (abi.FFI_OBJECT_BYTES if kind == TypeIndex.TENSOR else 0))

    def _present(self, arg: Any, buffer: Buffer) -> Refused:
        """The error for a tensor that must be there and is not."""
        what = f"a tensor {ir.shape_text(buffer.shape)} {buffer.dtype!s}"
        kind = arg.type_index
        got = "a NULL tensor handle" if kind in _TENSORS else _kind_text(kind)
        return self._bad(buffer, "TypeError", f"expected {what}, got {got}")

    def _scalar(self, arg: Any, param: Var) -> Any:
        kind, dtype = arg.type_index, param.dtype
        integral = kind in (TypeIndex.INT, TypeIndex.BOOL)
        if not integral and not (dtype.is_float and kind == TypeIndex.FLOAT):
            raise self._bad(
                param, "TypeError", f"expected {scalar_kind(dtype)}, got {_kind_text(kind)}"
            )
        value = arg.v_int64 if integral else arg.v_float64
        if kind == TypeIndex.BOOL:
            value = int(value != 0)
        if dtype.is_float:
            return float(value)
        if dtype.is_bool:
            return int(value != 0)
        low, high = dtype.int_range
        if value < 0 and str(dtype) == "uint64":
            value += 2**64  # the packed form has no unsigned integers
        if not low <= value <= high:
            raise self._bad(
                param, "ValueError", f"expected {dtype!s} ({low} to {high}), got {value}"
            )
        return value

    # one tensor

    def _check(self, state: CallState, position: int) -> None:
        tensor, buffer = self._at(state, position)
        assert tensor is not None
        self._dtype(tensor, buffer)
        steps = self._plan.steps[position]
        for step in steps:
            if step.field == SHAPE:
                self._step(state, step)
        if buffer.strides is None:
            self._contiguous(tensor, buffer)
        else:
            for step in steps:
                if step.field != SHAPE:
                    self._step(state, step)
        self._memory(state, position, tensor, buffer)

    def _dtype(self, tensor: Tensor, buffer: Buffer) -> None:
        code, bits, lanes = abi.dlpack_dtype(buffer.dtype)
        got = (tensor.code, tensor.bits, tensor.lanes)
        if bits < 8:
            fits = tensor.code == code and tensor.bits * tensor.lanes == bits * lanes
        else:
            fits = got in abi.accepted_dtypes(buffer.dtype)
        if not fits:
            known = tensor.code in abi.code_names()
            name = abi.dtype_name(*got) if known else "an unknown dtype"
            raise self._bad(buffer, "TypeError", f"dtype expected {buffer.dtype!s}, got {name}")

    def _contiguous(self, tensor: Tensor, buffer: Buffer) -> None:
        if tensor.strides is None or tensor.empty:
            return
        want = 1
        for axis in reversed(range(len(tensor.shape))):
            if tensor.shape[axis] != 1 and tensor.strides[axis] != want:
                raise self._mismatch(
                    buffer, f"strides[{axis}]", want, " (contiguous)", tensor.strides[axis]
                )
            want *= tensor.shape[axis]

    def _memory(self, state: CallState, position: int, tensor: Tensor, buffer: Buffer) -> None:
        size = buffer.dtype.bytes
        if size & (size - 1):
            size = 1
        if tensor.byte_offset % size:
            raise self._bad(
                buffer,
                "ValueError",
                f"byte_offset expected a multiple of {size}, got {tensor.byte_offset}",
            )
        host = self._device_type == abi.CPU
        allowed = abi.HOST_MEMORY if host else (self._device_type,)
        if tensor.device_type not in allowed:
            got = f"device type {tensor.device_type}, index {tensor.device}"
            if tensor.device_type == abi.CPU:
                got = "cpu"
            raise self._bad(buffer, "ValueError", f"device expected {self._device_name}, got {got}")
        first = next((i for i in self._plan.order if i in self._plan.required), position)
        anchor = self._at(state, first)[0]
        if not host and anchor is not None and anchor.device != tensor.device:
            raise self._mismatch(buffer, "device index", anchor.device, "", tensor.device)
        if tensor.data == 0 and not tensor.empty:
            raise self._bad(buffer, "ValueError", "data expected an address, got NULL")
        size = max(size, self._calls.alignment.get(buffer.name, 1))
        if tensor.address % size and not tensor.empty:
            raise self._bad(
                buffer,
                "ValueError",
                f"data expected an address aligned to {size} bytes, got {tensor.address:#x}",
            )

    # extents and strides

    def _step(self, state: CallState, step: Step) -> None:
        tensor, buffer = self._at(state, step.param)
        assert tensor is not None
        field = f"{step.field}[{step.axis}]"
        ignored = False
        if step.field == SHAPE:
            got = tensor.shape[step.axis]
        else:
            got = tensor.steps[step.axis]
            ignored = tensor.shape[step.axis] == 1 or tensor.empty
        if step.solve is not None:
            self._bind(state, step, buffer, field, got, ignored)
            return
        want = self.value(step.expected, state.env)
        if got != want and not ignored:
            why = "" if isinstance(step.expected, int) else f" ({self._why(step)})"
            raise self._mismatch(buffer, field, want, why, got)
        if not isinstance(step.expected, (int, Var)):
            self._fits(buffer, step, field, want)

    def _fits(self, buffer: Buffer, step: Step, field: str, value: int) -> None:
        assert isinstance(step.source, Expr)
        dtype = step.source.dtype
        if dtype.bits < 64 and value > dtype.int_range[1]:
            text = f"at most {dtype.int_range[1]} ({step.source!r} is {dtype!s})"
            raise self._bad(buffer, "ValueError", f"{field} expected {text}, got {value}")

    def _bind(
        self, state: CallState, step: Step, buffer: Buffer, field: str, got: int, ignored: bool
    ) -> None:
        var = step.solve
        assert var is not None
        high = var.dtype.int_range[1]
        bare = isinstance(step.rest, int) and step.rest == 0 and step.scale == 1
        if bare:
            value = got if step.field == SHAPE else self._stride(state, var)
            state.env[var] = value
            if not 0 <= value <= high:
                text = f"a non-negative {var.dtype!s} ({var.name})"
                raise self._bad(buffer, "ValueError", f"{field} expected {text}, got {value}")
            return
        given = got - self.value(step.rest, state.env)
        value = _truncated(given, step.scale)
        state.env[var] = value
        if not ignored and (value * step.scale != given or not 0 <= value <= high):
            text = f"{step.source!r} with a non-negative {var.dtype!s} {var.name}"
            raise self._bad(buffer, "ValueError", f"{field} expected {text}, got {got}")
        self._fits(buffer, step, field, got)

    def _stride(self, state: CallState, var: Var) -> int:
        """A stride variable takes its value from the first tensor where the stride matters."""
        for position in self._plan.order:
            tensor, buffer = self._at(state, position)
            if position not in self._plan.required or buffer.strides is None or tensor is None:
                continue
            for axis, stride in enumerate(buffer.strides):
                if stride is var and tensor.shape[axis] != 1 and not tensor.empty:
                    return tensor.steps[axis]
        return 0

    def _why(self, step: Step) -> str:
        assert isinstance(step.source, Expr)
        shown = [] if isinstance(step.expected, Var) else [repr(step.source)]
        for var in ir.free_vars(step.source):
            source = self._plan.origin.get(var)
            if source is None:
                shown.append(var.name)
            else:
                owner = self._func.params[source.param].name
                shown.append(f"{var.name} from {owner}.{source.field}[{source.axis}]")
        return ", ".join(dict.fromkeys(shown))

    # memory that is shared

    def _separate(self, state: CallState) -> None:
        written = self._func.attrs.get("written", ())
        found = [(b, t) for b, t in state.tensors.items() if t is not None]
        for place, (first, a) in enumerate(found):
            for second, b in found[place + 1 :]:
                names = [n.name for n in (first, second) if n.name in written]
                if not names or not (a.contiguous and b.contiguous):
                    continue
                (low, high), (start, stop) = a.span(), b.span()
                if low < stop and start < high:
                    target = "both are" if len(names) == 2 else f"{names[0]} is"
                    raise self._refuse(
                        "ValueError",
                        f"arguments {first.name} and {second.name} share memory and {target} "
                        "written",
                    )

    # the body

    def _statement(self, node: ir.Stmt, state: CallState) -> None:
        if isinstance(node, ir.Seq):
            for item in node.stmts:
                self._statement(item, state)
        elif isinstance(node, ir.Bind):
            state.env[node.var] = self.value(node.value, state.env)
        elif isinstance(node, ir.If):
            branch = node.then if self.value(node.cond, state.env) else node.other
            if branch is not None:
                self._statement(branch, state)
        elif isinstance(node, ir.For):
            bounds = (self.value(e, state.env) for e in (node.start, node.stop, node.step))
            for value in range(*bounds):
                state.env[node.var] = value
                self._statement(node.body, state)
        elif isinstance(node, ir.Assert):
            if not self.value(node.cond, state.env):
                raise self._refuse("RuntimeError", node.message)
        elif isinstance(node, ir.Evaluate) and _is_launch(node.value):
            assert isinstance(node.value, ir.Call)
            passed = [
                arg if isinstance(arg, Buffer) else self.value(arg, state.env)
                for arg in node.value.args[1:]
            ]
            self._launch(str(node.value.args[0]), passed, state)
        else:
            raise InternalError(
                f"the host cannot run a {type(node).__name__.lower()}", span=node.span
            )


def _kind_text(kind: int) -> str:
    return abi.kind_name(TypeIndex(kind) if kind in list(TypeIndex) else TypeIndex.OBJECT)


def _is_launch(node: Any) -> bool:
    return isinstance(node, ir.Call) and node.name == "call_device"


def _read(address: int) -> Tensor:
    t = ffi().cast(tensor_type(), address)
    rank = max(int(t.ndim), 0)
    shape = tuple(int(t.shape[n]) for n in range(rank)) if t.shape else (0,) * rank
    strides = tuple(int(t.strides[n]) for n in range(rank)) if t.strides else None
    data, offset = int(ffi().cast("intptr_t", t.data)), int(t.byte_offset)
    where = int(t.device.device_type), int(t.device.device_id)
    kind = int(t.dtype.code), int(t.dtype.bits), int(t.dtype.lanes)
    return Tensor(data + offset, data, *where, shape, strides, *kind, offset)


class Values:
    """Evaluates host expressions; each is prepared once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Expr, Evaluator]] = {}  # by id; the node is kept alive

    def __call__(self, value: Any, env: Mapping[Var, Any]) -> Any:
        """The value of a number or of an expression."""
        if not isinstance(value, Expr):
            return int(value)
        if isinstance(value, Var):
            return env[value]
        if isinstance(value, ir.Const):
            return value.value
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = value, compile_int(value)
        return found[1](env)


def _truncated(value: int, divisor: int) -> int:
    quotient = abs(value) // abs(divisor)
    return quotient if (value < 0) == (divisor < 0) else -quotient
