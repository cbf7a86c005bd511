"""`tilec.jit`: from a decorated function to compiled kernels."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

from tilec import ir
from tilec.diagnostics import JITArgumentError, JITModeError, NoTraceError, OperandError
from tilec.jit.kernel import JITKernel, compile_function
from tilec.jit.keys import captures, freeze
from tilec.language import function as tracing, launch, params
from tilec.language.function import EagerContext, EagerFunction, TensorArgument
from tilec.language.params import ConstVar, TensorSpec
from tilec.language.source import function_span, syntax_of

_EAGER_MARKS = (launch.Kernel, params.const, params.empty)


class JITImpl:
    """A decorated function.

    *Lazy*: a factory that returns a prim_func; calling it gives the compiled `JITKernel`.
    *Eager*: the kernel itself; calling it with tensors compiles on demand and runs.
    Which of the two it is follows from the source where possible, else from the first call.
    """

    def __init__(self, func: FunctionType, settings: dict[str, Any], namespace: Any) -> None:
        self.func = func
        self.settings = settings
        self.signature = inspect.signature(func)
        functools.update_wrapper(self, func)
        self._namespace = namespace
        self._mode: str | None = infer_mode(func)
        self._eager: EagerFunction | None = None
        self._kernels: dict[Any, JITKernel] = {}
        self._scans: dict[Any, EagerContext] = {}
        self._pins: list[Any] = []
        self._lock = threading.RLock()
        if self._mode == "eager" and settings.get("out_idx") is not None:
            self._no_out_idx()

    # public

    @property
    def mode(self) -> str:
        """``"lazy"``, ``"eager"``, or ``"auto"`` before the first call decides."""
        return self._mode or "auto"

    def is_lazy_mode(self) -> bool:
        """Whether calls give kernels rather than results."""
        return self._mode == "lazy"

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Lazy: the compiled kernel. Eager: compile on demand, run, and return the outputs."""
        if self._decide(args, keywords) == "lazy":
            return self._lazy_kernel(args, keywords)
        launch = {}
        if "stream" in keywords and "stream" not in self.signature.parameters:
            launch["stream"] = keywords.pop("stream")
        bound, named = self._bind(args, keywords)
        tensors = {n: v for n, v in bound.items() if self._is_tensor(n, v)}
        kernel = self._eager_kernel(bound, tensors, named)
        order = [p.name for p in kernel.artifact.inputs]
        return kernel(*[tensors[n] for n in order], **launch)

    def compile(self, *args: Any, **keywords: Any) -> JITKernel:
        """The compiled kernel, without running it.

        Eager kernels take T.const sizes by keyword where tensors are left out:
        ``matmul.compile(M=1024, N=1024, K=512, block_M=128)``.
        """
        if self._decide(args, keywords) == "lazy":
            return self._lazy_kernel(args, keywords)
        bound, named = self._bind(args, keywords, partial=True)
        tensors = {n: v for n, v in bound.items() if self._is_tensor(n, v)}
        return self._eager_kernel(bound, tensors, named)

    def get_tir(self, *args: Any, **keywords: Any) -> ir.PrimFunc:
        """The traced function, without compiling it."""
        if self._decide(args, keywords) == "lazy":
            return self._lazy_function(args, keywords)
        bound, named = self._bind(args, keywords, partial=True)
        tensors = {n: v for n, v in bound.items() if self._is_tensor(n, v)}
        arguments, values, _key = self._resolve(bound, tensors, named)
        return self._eager_function().trace(arguments, values)

    def get_kernel_source(self, *args: Any, **keywords: Any) -> str:
        """The device source of the kernel for these arguments."""
        return self.compile(*args, **keywords).get_kernel_source()

    # modes

    def _decide(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
        if self._mode is None:
            try:
                result = self.func(*args, **keywords)
                self._mode = "lazy" if isinstance(result, ir.PrimFunc) else "eager"
            except NoTraceError:
                self._mode = "eager"
            if self._mode == "eager" and self.settings.get("out_idx") is not None:
                self._no_out_idx()
        return self._mode

    def _no_out_idx(self) -> None:
        raise JITModeError(
            f"out_idx is for factories; the eager kernel {self.func.__name__} declares its outputs "
            "with T.empty",
            span=function_span(self.func),
        )

    # lazy

    def _lazy_function(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> ir.PrimFunc:
        try:
            self.signature.bind(*args, **keywords)
        except TypeError as error:
            raise JITArgumentError(
                f"{self.func.__name__}: {error}",
                span=ir.caller_span(),
                hint=f"its signature is {self.func.__name__}{_names(self.signature)}",
            ) from None
        result = self.func(*args, **keywords)
        if not isinstance(result, ir.PrimFunc):
            raise JITModeError(
                f"{self.func.__name__} returned {ir.describe(result)}, not a prim_func",
                span=function_span(self.func),
                hint="a lazy factory returns the inner @T.prim_func",
            )
        return result

    def _lazy_kernel(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> JITKernel:
        pins: list[Any] = []
        key = (freeze(args, pins), freeze(keywords, pins), captures(self.func, pins))
        kernel = self._kernels.get(key)
        if kernel is None:
            with self._lock:
                kernel = self._kernels.get(key)
                if kernel is None:
                    kernel = compile_function(self._lazy_function(args, keywords), **self.settings)
                    self._pins.append(pins)
                    self._kernels[key] = kernel
        return kernel

    # eager

    def _eager_function(self) -> EagerFunction:
        if self._eager is None:
            self._eager = EagerFunction(self.func, self._namespace)
        return self._eager

    def _bind(
        self, args: tuple[Any, ...], keywords: dict[str, Any], *, partial: bool = False
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Arguments by parameter (missing tensors as placeholders), and T.const values."""
        known = self.signature.parameters
        own = {k: v for k, v in keywords.items() if k in known}
        named = {k: v for k, v in keywords.items() if k not in known}
        try:
            bound = (
                self.signature.bind_partial(*args, **own)
                if partial
                else self.signature.bind(*args, **own)
            )
        except TypeError as error:
            raise JITArgumentError(
                f"{self.func.__name__}: {error}",
                span=ir.caller_span(),
                hint=f"its signature is {self.func.__name__}{_names(self.signature)}",
            ) from None
        bound.apply_defaults()
        values = {}
        for name in known:
            values[name] = bound.arguments.get(name, _MISSING)
        return values, named

    def _is_tensor(self, name: str, value: Any) -> bool:
        if isinstance(value, (bool, int, float, str, ir.DType)):
            return False
        if hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"):
            return (
                getattr(value, "shape", ()) != ()
                or not hasattr(value, "item")
                or (hasattr(value, "strides") and not _is_scalar(value))
            )
        return False

    def _resolve(
        self, bound: dict[str, Any], tensors: dict[str, Any], named: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, int], Any]:
        """Arguments for the trace, T.const values, and the key of both."""
        arguments = {
            n: TensorArgument(n) if n in tensors or v is _MISSING else v for n, v in bound.items()
        }
        pins: list[Any] = []
        plain = {n: v for n, v in arguments.items() if not isinstance(v, TensorArgument)}
        scan_key = (freeze(plain, pins), captures(self.func, pins))
        context = self._scans.get(scan_key)
        if context is None:
            context = self._eager_function().scan(arguments)
            self._pins.append(pins)
            self._scans[scan_key] = context
        values = self._const_values(context, tensors, named)
        return arguments, values, (scan_key, tuple(sorted(values.items())))

    def _const_values(
        self, context: EagerContext, tensors: dict[str, Any], named: dict[str, Any]
    ) -> dict[str, int]:
        name = self.func.__name__
        call = ir.caller_span()
        unknown = sorted(set(named) - set(context.consts))
        if unknown:
            raise JITArgumentError(
                f"{name} has no parameter or T.const variable `{unknown[0]}`",
                span=call,
                hint=f"parameters: {', '.join(self.signature.parameters)}; T.const: "
                f"{', '.join(context.consts) or 'none'}",
            )
        values: dict[str, int] = {}
        for key, value in named.items():
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise JITArgumentError(f"{name}: {key}={value!r} is not an int", span=call)
            values[key] = int(value)
        carriers: dict[str, str] = {}
        for param, spec in context.specs.items():
            self._match(param, spec, tensors.get(param), values, carriers)
        for key in context.consts:
            if key in values:
                continue
            if key not in carriers:
                raise JITArgumentError(
                    f"{name}: T.const variable `{key}` is no dimension or stride of a tensor "
                    "parameter",
                    span=function_span(self.func),
                    hint=f"use it as a bare dimension, e.g. T.Tensor[[{key}], T.float32]",
                )
            raise JITArgumentError(
                f"{name}: cannot find a value for the T.const variable `{key}`",
                span=call,
                hint=f"pass {key}=<value>, or the tensor argument `{carriers[key]}`",
            )
        return values

    def _match(
        self,
        param: str,
        spec: TensorSpec,
        tensor: Any,
        values: dict[str, int],
        carriers: dict[str, str],
    ) -> None:
        sizes: list[Any] = [None] * len(spec.shape)
        steps: list[Any] = [None] * len(spec.shape)
        if tensor is not None:
            sizes = list(tensor.shape)
            if len(sizes) != len(spec.shape):
                raise JITArgumentError(
                    f"{self.func.__name__}: argument `{param}` has {len(sizes)} dimension(s), "
                    f"expected {len(spec.shape)}",
                    span=ir.caller_span(),
                    hint="reshape the array, or change the annotation in the kernel",
                )
            steps = _element_strides(tensor)
        pairs = [*zip(spec.shape, sizes, strict=True)]
        if spec.strides is not None:
            pairs += zip(spec.strides, steps, strict=True)
        for want, got in pairs:
            if isinstance(want, ConstVar):
                carriers.setdefault(want.name, param)
                if got is not None:
                    values.setdefault(want.name, int(got))

    def _eager_kernel(
        self, bound: dict[str, Any], tensors: dict[str, Any], named: dict[str, Any]
    ) -> JITKernel:
        arguments, values, key = self._resolve(bound, tensors, named)
        kernel = self._kernels.get(key)
        if kernel is None:
            with self._lock:
                kernel = self._kernels.get(key)
                if kernel is None:
                    func = self._eager_function().trace(arguments, values)
                    kernel = compile_function(func, **self.settings)
                    self._kernels[key] = kernel
        return kernel


def _names(signature: inspect.Signature) -> str:
    """The parameters without their annotations."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(plain))


class _Missing:
    def describe(self) -> str:
        return "no argument"


_MISSING = _Missing()


def _is_scalar(value: Any) -> bool:
    import numpy as np

    return isinstance(value, np.generic)


def _element_strides(tensor: Any) -> list[Any]:
    """Strides in elements of a NumPy array or torch tensor (None where unknown)."""
    strides = getattr(tensor, "strides", None)
    if isinstance(strides, tuple):
        return [s // tensor.itemsize for s in strides]
    stride = getattr(tensor, "stride", None)
    if callable(stride):
        return list(stride())
    return [None] * len(tensor.shape)


def infer_mode(func: FunctionType) -> str | None:
    """What the source says: "lazy", "eager", or None where only a call can tell."""
    from tilec.language.source import captured_values

    scope = {**func.__globals__, **captured_values(func)}
    mode: str | None = None
    for node in ast.walk(syntax_of(func)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if _object(target, scope) is tracing.prim_func:
                    return "lazy"
        elif isinstance(node, ast.Call) and any(
            _object(node.func, scope) is mark for mark in _EAGER_MARKS
        ):
            mode = "eager"
    return mode


def _object(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """The object a dotted name stands for; None if it is not known."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _object(node.value, scope)
        return (
            None if base is None else vars(base).get(node.attr) if inspect.ismodule(base) else None
        )
    return None


def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: Any = None,
    target: object = None,
    target_host: object = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, object] | None = None,
    debug_root_path: str | None = None,
    compile_flags: str | Iterable[str] | None = None,
) -> Any:
    """Compile kernels just in time.

    On a factory that returns a ``@T.prim_func``, calls give compiled kernels. On a kernel itself,
    calls with tensors compile on demand and run.

    Args:
        out_idx: parameters of the prim_func that the kernel allocates and returns (factories).
        target: target kind or dict; the environment's default otherwise.
        target_host: host code generator.
        execution_backend: what compiles, loads and launches.
        verbose: report compilations.
        pass_configs: options of passes, by `PassConfigKey` or string.
        debug_root_path: folder for the sources of each compiled kernel.
        compile_flags: further flags of the external compiler.
    """
    settings: dict[str, Any] = {
        "out_idx": out_idx,
        "target": target,
        "target_host": target_host,
        "execution_backend": execution_backend,
        "verbose": verbose,
        "pass_configs": dict(pass_configs or {}),
        "compile_flags": compile_flags,
        "debug_root_path": debug_root_path,
    }
    namespace = sys._getframe(1).f_locals

    def decorate(function: Any) -> JITImpl:
        if not isinstance(function, FunctionType):
            raise OperandError(f"tilec.jit decorates functions, got {ir.describe(function)}",
                               span=ir.caller_span())  # fmt: skip
        return JITImpl(function, settings, namespace)

    return decorate if func is None else decorate(func)


def compile(  # noqa: A001
    func: Any,
    out_idx: Any = None,
    execution_backend: str | None = None,
    target: object = None,
    target_host: object = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, object] | None = None,
    compile_flags: str | Iterable[str] | None = None,
) -> JITKernel:
    """Compile a ``@T.prim_func``.

    Args and errors as for `jit`.

    Raises:
        OperandError: `func` is not a prim_func.
    """
    if not isinstance(func, ir.PrimFunc):
        raise OperandError(
            f"tilec.compile takes a prim_func, got {ir.describe(func)}",
            span=ir.caller_span(),
            hint="decorate the function with @T.prim_func, or use @tilec.jit",
        )
    return compile_function(
        func,
        out_idx=out_idx,
        target=target,
        target_host=target_host,
        execution_backend=execution_backend,
        verbose=verbose,
        pass_configs=pass_configs,
        compile_flags=compile_flags,
    )
