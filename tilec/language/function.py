"""Tracing functions: prim_func, macro, and eager kernels."""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

from tilec import ir
from tilec.diagnostics import (
    NO_SPAN,
    JITArgumentError,
    OperandError,
    ReturnError,
    TilecError,
    UnsupportedSyntaxError,
    did_you_mean,
)
from tilec.language.builder import Builder, name_buffer
from tilec.language.lanes import known_atoms
from tilec.language.params import ConstVar, TensorSpec, scalar_param
from tilec.language.source import annotations_of, function_span, return_span, staged_function
from tilec.options import options

_SCRIPT_NUMBER = itertools.count(1)


def _trace(active: Builder, run: Callable[[], Any]) -> Any:
    """Run a twin with `active` as the emitter; its errors point at the user's line."""
    token = ir.EMITTER.set(active)
    try:
        return run()
    except TilecError as error:
        located = error.with_span(ir.traceback_span(error))
        if options.traceback == "short":
            located.__traceback__ = None
        raise located from None
    except TypeError as error:
        wrong = _wrong_call(error)
        if wrong is None:
            raise
        raise wrong from None
    finally:
        ir.EMITTER.reset(token)


_CALL_MISMATCH = re.compile(
    r"(?:\w+\.)*(\w+)\(\) (got an unexpected keyword|got multiple values|missing \d|takes )"
)


def _wrong_call(error: TypeError) -> OperandError | None:
    """A located error for a call of one of the language's functions with wrong arguments."""
    import inspect

    import tilec.language as language

    match = _CALL_MISMATCH.match(str(error))
    span = ir.traceback_span(error, innermost_only=True)
    if match is None or span is NO_SPAN:
        return None
    function = vars(language).get(match.group(1))
    if not callable(function):
        return None
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError):
        signature = "(...)"
    name = match.group(1)
    hint = f"the signature is T.{name}{_short(signature)}"
    keyword = re.search(r"keyword argument '(\w+)'", str(error))
    if keyword is not None:
        known = inspect.signature(function).parameters
        close = did_you_mean(keyword.group(1), known)
        hint = f"{close}\n{hint}" if close.startswith("did") else hint
    return OperandError(f"T.{error}", span=span, hint=hint)


def _short(signature: str) -> str:
    """A signature without its annotations."""
    plain = re.sub(r":\s*'[^']*'", "", signature).split(" -> ")[0]
    return plain.replace(" = ", "=")


def prim_func(func: Any = None, *, eager_jit: bool = False) -> Any:
    """Trace a function with annotated parameters into a `PrimFunc`.

    Parameters are annotated with ``T.Tensor(shape, dtype)`` or a scalar dtype. Names from the
    enclosing scopes are constants of the kernel.

    Raises:
        TilecError: what the traced subset does not support, at the user's line.
    """
    if func is None:
        return functools.partial(prim_func, eager_jit=eager_jit)
    if not isinstance(func, FunctionType):
        raise OperandError(f"T.prim_func decorates functions, got {ir.describe(func)}",
                           span=ir.caller_span())  # fmt: skip
    if eager_jit:
        return func
    return trace_prim_func(func, sys._getframe(1).f_locals)


def trace_prim_func(func: FunctionType, namespace: dict[str, Any] | None = None) -> ir.PrimFunc:
    """The `PrimFunc` of an annotated function; `namespace` are the locals at its definition."""
    twin = staged_function(func, "kernel")
    notes = annotations_of(func, namespace)
    code = func.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    params: list[ir.Buffer | ir.Var] = []
    for name in names:
        if name not in notes:
            raise UnsupportedSyntaxError(
                f"parameter `{name}` of {func.__name__} has no annotation",
                span=function_span(func),
                hint="annotate tensors with T.Tensor(shape, dtype) and scalars with a dtype",
            )
        try:
            params.append(scalar_param(name, notes[name]))
        except TilecError as error:
            raise error.with_span(function_span(func)) from None
    active = Builder(func.__name__)
    given = dict(zip(names, params, strict=True))
    result = _trace(active, lambda: twin(**given))
    if result is not None:
        raise ReturnError(
            f"{func.__name__} returns {ir.describe(result)}, but a prim_func returns nothing",
            span=function_span(func),
            hint="write results to parameters, or use an eager @tilec.jit kernel with T.empty",
        )
    span = function_span(func)
    made = ir.PrimFunc(func.__name__, tuple(params), active.finish(), active.attrs, span=span)
    ir.verify(made, "tile")
    return made


class Macro:
    """A function whose body is inlined where a kernel calls it."""

    def __init__(self, func: FunctionType) -> None:
        self._func = func
        self._twin: FunctionType | None = None
        functools.update_wrapper(self, func)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self._twin is None:
            self._twin = staged_function(self._func, "macro")
        return self._twin(*args, **keywords)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def macro(func: Any = None) -> Any:
    """Make a function inlinable: its body is traced at each call, with the caller's values.

    It may return values; names are its own. Buffers and T.alloc_var scalars are passed by
    reference, everything else by value.
    """
    if func is None:
        return macro
    if not isinstance(func, FunctionType):
        raise OperandError(f"T.macro decorates functions, got {ir.describe(func)}",
                           span=ir.caller_span())  # fmt: skip
    return Macro(func)


class _ReachedKernel(Exception):
    """Ends the first phase of an eager trace."""


class EagerContext:
    """What T.const, T.empty and body annotations talk to while an eager kernel is traced.

    Without `values` (first phase) T.const gives placeholders and the trace stops at the first
    T.Kernel; with `values` it gives ints.
    """

    def __init__(self, name: str, values: Mapping[str, int] | None) -> None:
        self.name = name
        self.values = values
        self.consts: dict[str, ConstVar] = {}
        self.specs: dict[str, TensorSpec] = {}
        self.buffers: dict[str, ir.Buffer] = {}
        self.outputs: list[ir.Buffer] = []

    def const(self, name: str, dtype: ir.DType) -> Any:
        """The value of a T.const variable."""
        if self.values is not None:
            return self.values[name]
        return self.consts.setdefault(name, ConstVar(name, dtype, span=ir.caller_span()))

    def annotate(self, name: str, annotation: Any, value: Any) -> Any:
        """Declare a tensor parameter; gives its buffer."""
        if not isinstance(annotation, TensorSpec):
            raise UnsupportedSyntaxError(
                f"`{name}` is annotated with {annotation!r} in the body",
                span=ir.caller_span(),
                hint="use T.Tensor[[M, N], dtype]",
            )
        if not isinstance(value, (TensorArgument, ir.Buffer)):
            raise JITArgumentError(
                f"{self.name}: parameter `{name}` is a tensor, got {ir.describe(value)}",
                span=ir.caller_span(),
            )
        self.specs[name] = annotation
        self.buffers[name] = annotation.buffer(name)
        return self.buffers[name]

    def output(self, spec: TensorSpec) -> ir.Buffer:
        """A T.empty tensor."""
        from tilec.language.builder import UNNAMED

        buffer = spec.buffer(UNNAMED)
        self.outputs.append(buffer)
        return buffer

    def reached_kernel(self) -> None:
        """Called by T.Kernel."""
        if self.values is None:
            raise _ReachedKernel


class TensorArgument:
    """Stands for a tensor argument of an eager kernel until its annotation is met."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _refuse(self) -> Any:
        raise UnsupportedSyntaxError(
            f"tensor parameter `{self.name}` is used before it is annotated",
            span=ir.caller_span(),
            hint=f"write `{self.name}: T.Tensor[[M, N], dtype]` in the body or the signature",
        )

    def __getitem__(self, _index: Any) -> Any:
        return self._refuse()

    def __setitem__(self, _index: Any, _value: Any) -> None:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()

    def describe(self) -> str:
        """A phrase for error messages."""
        return f"the tensor parameter {self.name}, which has no annotation"


class EagerFunction:
    """An eager kernel: traced per set of compile-time arguments.

    `scan` finds the tensor parameters and T.const names; `trace` makes the `PrimFunc`.
    """

    def __init__(self, func: FunctionType, namespace: dict[str, Any] | None = None) -> None:
        self.func = func
        self.name = func.__name__
        self._namespace = namespace
        self._twin = staged_function(func, "kernel")

    def _run(self, arguments: dict[str, Any], context: EagerContext) -> tuple[Builder, Any]:
        active = Builder(self.name)
        active.eager = context
        notes = annotations_of(self.func, self._namespace)
        given = dict(arguments)
        for name, annotation in notes.items():
            if isinstance(annotation, TensorSpec) and name in given:
                given[name] = context.annotate(name, annotation, TensorArgument(name))
            elif isinstance(annotation, ir.DType) and name in given:
                given[name] = ir.Var(name, annotation)
        return active, _trace(active, lambda: self._twin(**given))

    def scan(self, arguments: dict[str, Any]) -> EagerContext:
        """First phase: what the kernel declares before its first T.Kernel."""
        context = EagerContext(self.name, None)
        with contextlib.suppress(_ReachedKernel):
            self._run(arguments, context)
        return context

    def trace(self, arguments: dict[str, Any], values: Mapping[str, int]) -> ir.PrimFunc:
        """Second phase: the kernel with its T.const variables replaced by `values`."""
        context = EagerContext(self.name, values)
        active, result = self._run(arguments, context)
        return self._finish(active, context, arguments, result)

    def _finish(
        self, active: Builder, context: EagerContext, arguments: dict[str, Any], result: Any
    ) -> ir.PrimFunc:
        span = return_span(self.func)
        returned = (
            []
            if result is None
            else list(result)
            if isinstance(result, (tuple, list))
            else [result]
        )
        for item in returned:
            if not any(item is out for out in context.outputs):
                raise ReturnError(
                    f"only tensors from T.empty can be returned by {self.name}, "
                    f"got {ir.describe(item)}",
                    span=span,
                    hint="write results of parameters in place, or declare the output with T.empty",
                )
        missing = [b.name for b in context.outputs if not any(b is r for r in returned)]
        if missing:
            raise ReturnError(
                f"not all tensors from T.empty are returned by {self.name}: "
                f"{', '.join(missing)} missing",
                span=span,
                hint="return every T.empty tensor; a scratch tile is T.alloc_shared",
            )
        params: list[ir.Buffer | ir.Var] = []
        notes = annotations_of(self.func, self._namespace)
        for name, value in arguments.items():
            if isinstance(value, TensorArgument):
                if name not in context.buffers:
                    value._refuse()
                params.append(context.buffers[name])
            elif isinstance(notes.get(name), ir.DType):
                raise JITArgumentError(
                    f"{self.name}: run-time scalar `{name}` is not supported in eager kernels",
                    span=span,
                    hint="leave the annotation out to compile the value in, or use a lazy kernel",
                )
        taken = {p.name for p in params}
        for n, buffer in enumerate(returned):
            name_buffer(buffer, "out" if len(returned) == 1 and "out" not in taken else f"out_{n}")
        for buffer in returned:
            if any(buffer is p for p in params):
                raise ReturnError(f"{self.name} returns {buffer.name} twice", span=span)
            params.append(buffer)
        attrs = dict(active.attrs)
        count = len(returned)
        attrs["out_idx"] = [len(params) - count + n for n in range(count)]
        made = ir.PrimFunc(self.name, tuple(params), active.finish(), attrs, span=span)
        ir.verify(made, "tile")
        return made


def from_script(text: str, atoms: Iterable[Any] = ()) -> ir.PrimFunc:
    """The function printed by ``func.script()``; `atoms` are matrix atoms that it may name.

    Raises:
        OperandError: the text does not define exactly one prim_func.
    """
    import tilec.language as language

    filename = f"<tilec script {next(_SCRIPT_NUMBER)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"T": language, "__name__": "__tilec_script__"}
    with known_atoms(atoms):
        exec(compile(text, filename, "exec"), scope)  # noqa: S102
    found = [v for v in scope.values() if isinstance(v, ir.PrimFunc)]
    if len(found) != 1:
        raise OperandError(f"the script defines {len(found)} functions, expected one")
    return found[0]
