"""Descriptors of parameters and dimensions: Tensor, dynamic, const, empty."""

from __future__ import annotations

import re
from typing import Any

from tilec import ir
from tilec.diagnostics import JITArgumentError, OperandError, ShapeError, UnknownNameError
from tilec.language.builder import builder


class TensorSpec:
    """What a tensor parameter looks like: shape, dtype, strides (None: contiguous row-major)."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, shape: Any, dtype: Any, strides: Any = None) -> None:
        self.shape = ir.check_shape(shape, "T.Tensor")
        self.dtype = ir.DType.of(dtype)
        self.strides = None if strides is None else ir.check_shape(strides, "strides")
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ShapeError(
                f"T.StridedTensor: {len(self.strides)} strides for {len(self.shape)} dimensions",
                span=ir.caller_span(),
            )

    def buffer(self, name: str) -> ir.Buffer:
        """A global buffer of this description."""
        return ir.Buffer(
            name, self.shape, self.dtype, ir.GLOBAL, self.strides, span=ir.caller_span()
        )

    def __repr__(self) -> str:
        return f"T.Tensor({ir.shape_text(self.shape)}, {str(self.dtype)!r})"


class _TensorFactory:
    """``T.Tensor(shape, dtype)`` and ``T.Tensor[shape, dtype]``."""

    def __call__(
        self, shape: Any, dtype: Any = "float32", data: Any = None, scope: str | None = None
    ) -> TensorSpec:
        """A contiguous row-major tensor parameter of `shape` and `dtype`.

        `shape` is an int, an expression of T.dynamic / T.const variables, or a sequence of them.
        """
        if data is not None or scope not in (None, "global"):
            raise OperandError(
                "T.Tensor describes a global tensor; data= and scope= are not for parameters",
                span=ir.caller_span(),
                hint="allocate on-chip buffers with T.alloc_shared or T.alloc_fragment",
            )
        return TensorSpec(shape, dtype)

    def __getitem__(self, item: Any) -> TensorSpec:
        if not isinstance(item, tuple) or len(item) != 2:
            raise OperandError(
                "write T.Tensor[shape, dtype], e.g. T.Tensor[(M, N), T.float16]",
                span=ir.caller_span(),
            )
        return TensorSpec(item[0], item[1])


Tensor = _TensorFactory()
Buffer = Tensor


def StridedTensor(  # noqa: N802
    shape: Any, strides: Any, dtype: Any = "float32", scope: str | None = None
) -> TensorSpec:
    """A tensor parameter with explicit element strides (ints or symbolic).

    Raises:
        ShapeError: shape and strides differ in rank.
    """
    if scope not in (None, "global"):
        raise OperandError("T.StridedTensor describes a global tensor", span=ir.caller_span())
    return TensorSpec(shape, dtype, strides)


def _names(text: str) -> list[str]:
    names = [n for n in re.split(r"[,\s]+", text.strip()) if n]
    for name in names or [text]:
        if not name.isidentifier():
            raise OperandError(f"{text!r} does not name variables", span=ir.caller_span())
    return names


def dynamic(name: str, dtype: Any = "int32") -> Any:
    """A dimension known at run time; several names (comma or space separated) give a tuple.

    One compiled kernel serves all sizes. The value is taken from the tensors that carry it.
    """
    kind = ir.DType.of(dtype)
    if not kind.is_integer:
        raise OperandError(f"T.dynamic: {kind!s} is not an integer type", span=ir.caller_span())
    variables = tuple(ir.Var(n, kind, span=ir.caller_span()) for n in _names(name))
    return variables[0] if len(variables) == 1 else variables


symbolic = dynamic


class ConstVar(ir.Var):
    """A T.const dimension before its value is known (first phase of an eager trace)."""


def const(name: str, dtype: Any = "int32") -> Any:
    """Eager kernels: dimensions taken from the arguments and compiled in as constants.

    ``M, N = T.const("M, N")``. A keyword argument of the same name at the call also gives the
    value. Each name must be a bare dimension or stride of some tensor argument.
    """
    active = builder("T.const")
    if active.eager is None:
        raise JITArgumentError(
            "T.const belongs to eager kernels",
            span=ir.caller_span(),
            hint="in a prim_func use Python ints or T.dynamic",
        )
    values = tuple(active.eager.const(n, ir.DType.of(dtype)) for n in _names(name))
    return values[0] if len(values) == 1 else values


def empty(*shape: Any, dtype: Any = None) -> ir.Buffer:
    """Eager kernels: an output tensor, allocated by the runtime and returned by the kernel.

    ``T.empty((M, N), dtype)``, ``T.empty(M, N, dtype=...)`` or ``T.empty([M, N], "float16")``.
    """
    active = builder("T.empty")
    if active.eager is None:
        raise JITArgumentError(
            "T.empty belongs to eager kernels",
            span=ir.caller_span(),
            hint="in a prim_func make the output a parameter and pass out_idx",
        )
    items = list(shape)
    if dtype is None and len(items) == 2 and isinstance(items[1], (str, ir.DType)):
        dtype = items.pop()
    if len(items) == 1 and isinstance(items[0], (tuple, list)):
        items = list(items[0])
    spec = TensorSpec(items, "float32" if dtype is None else dtype)
    return active.eager.output(spec)  # type: ignore[no-any-return]


def scalar_param(name: str, annotation: Any) -> ir.Buffer | ir.Var:
    """The parameter an annotation stands for.

    Raises:
        UnknownNameError: the annotation is none of the language's.
    """
    if isinstance(annotation, TensorSpec):
        return annotation.buffer(name)
    if isinstance(annotation, ir.DType):
        return ir.Var(name, annotation, span=ir.caller_span())
    if annotation in (int, float, bool):
        return ir.Var(name, ir.DType.of(annotation), span=ir.caller_span())
    raise UnknownNameError(
        f"parameter `{name}` is annotated with {annotation!r}",
        span=ir.caller_span(),
        hint="annotate tensors with T.Tensor(shape, dtype), scalars with a dtype such as T.int32",
    )
