"""Where the run-time variables of a kernel come from, and what is left to check.

A tensor's extents and strides are constants, variables or expressions. The first tensor that
carries a variable binds it (linear expressions are solved for it); everything else becomes a check.
Inputs come before outputs. The plan is made at compile time and read by the stub generator, which
prints it, and by the output allocator, which evaluates it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from tilec import ir
from tilec.diagnostics import ShapeError
from tilec.ir import Binary, Buffer, Cast, Const, DType, Expr, Select, Unary, Var

INT64 = DType("int64")
SHAPE, STRIDES = "shape", "strides"


class Step(NamedTuple):
    """One extent or stride of one tensor.

    Attributes:
        param: position of the tensor among the parameters.
        field: ``shape`` or ``strides``.
        axis: of the tensor.
        expected: what it has to be, over mathematical integers: casts between integer types are
            dropped, and variables stand for their values whatever their dtype.
        source: the extent or stride as it was written.
        solve: the variable that this step binds; None for a check.
        scale, rest: the value is ``scale * solve + rest``; `rest` has bound variables only.
    """

    param: int
    field: str
    axis: int
    expected: int | Expr
    source: int | Expr
    solve: Var | None = None
    scale: int = 1
    rest: int | Expr = 0


class BindingPlan(NamedTuple):
    """How variables are bound and tensors checked.

    Attributes:
        order: positions of tensor parameters in the order of checking, inputs first.
        steps: by position, the steps that run with that tensor.
        late: checks whose variables are bound by later tensors; they run after all `steps`.
        required: positions of tensors that must not be None.
        bound: all variables that have a value, scalar parameters included.
        origin: by variable bound from a tensor, the step that binds it.
    """

    order: tuple[int, ...]
    steps: dict[int, tuple[Step, ...]]
    late: tuple[Step, ...]
    required: frozenset[int]
    bound: frozenset[Var]
    origin: dict[Var, Step]


def plan_bindings(
    name: str,
    params: Sequence[Buffer | Var],
    *,
    outputs: Collection[int] = (),
    used: Collection[int],
    needed: Iterable[Var] = (),
) -> BindingPlan:
    """Plan the bindings of a kernel.

    Args:
        name: of the kernel, for messages.
        params: of the kernel.
        outputs: positions of tensors that the runtime may allocate.
        used: positions of tensors that the body uses; the others may be None.
        needed: variables that the body uses.

    Raises:
        ShapeError: a variable that is needed has no tensor to take its value from.
    """
    required = {i for i in used if isinstance(params[i], Buffer)}
    while True:
        plan, missing = _attempt(params, outputs, required)
        wanted = dict.fromkeys(v for v in needed if v not in plan.bound)
        wanted.update(dict.fromkeys(missing))
        if not wanted:
            return plan
        extra = _carrier(params, wanted, required, outputs)
        if extra is None:
            raise _unbound(name, params, next(iter(wanted)))
        required = required | {extra}


def plan_outputs(
    name: str, params: Sequence[Buffer | Var], outputs: Collection[int]
) -> BindingPlan:
    """Where the shapes of outputs that the runtime allocates come from: inputs only.

    Raises:
        ShapeError: an extent that no input determines, or strides that are not row-major.
    """
    needed: dict[Var, Buffer] = {}
    for position in sorted(outputs):
        buffer = params[position]
        assert isinstance(buffer, Buffer)
        for extent in buffer.shape:
            for var in _variables(_plain(extent)):
                needed.setdefault(var, buffer)
        if buffer.strides is not None and not _row_major(buffer):
            raise ShapeError(
                f"output {buffer.name} of kernel {name} has strides "
                f"{ir.shape_text(buffer.strides)}; only row-major outputs can be allocated",
                span=buffer.span,
                hint=f"take {buffer.name} out of out_idx and pass it as an argument",
            )
    plan = plan_bindings(name, params, outputs=outputs, used=(), needed=needed)
    for var, buffer in needed.items():
        source = plan.origin.get(var)
        if source is not None and source.param in outputs:
            raise ShapeError(
                f"extent {var.name} of output {buffer.describe()} appears in no input of "
                f"kernel {name}",
                span=buffer.span,
                hint=f"make {var.name} a scalar parameter, or an extent of an input",
            )
    return plan


def _row_major(buffer: Buffer) -> bool:
    dense = buffer.replace(strides=None).element_strides()
    return all(
        isinstance(a, int) and isinstance(b, int) and a == b
        for a, b in zip(map(_plain, buffer.strides or ()), map(_plain, dense), strict=True)
    )


def _carrier(
    params: Sequence[Buffer | Var],
    wanted: Iterable[Var],
    required: Collection[int],
    outputs: Collection[int],
) -> int | None:
    """A tensor that nobody uses but that carries a wanted variable."""
    variables = set(wanted)
    for position in _order(params, outputs):
        if position in required:
            continue
        for step in _raw_steps(position, params[position]):
            if variables.intersection(_variables(step.expected)):
                return position
    return None


def _order(params: Sequence[Buffer | Var], outputs: Collection[int]) -> tuple[int, ...]:
    tensors = [i for i, p in enumerate(params) if isinstance(p, Buffer)]
    return tuple(sorted(tensors, key=lambda i: (i in outputs, i)))


def _raw_steps(position: int, buffer: Buffer | Var) -> list[Step]:
    assert isinstance(buffer, Buffer)
    steps = [Step(position, SHAPE, a, _plain(e), e) for a, e in enumerate(buffer.shape)]
    if buffer.strides is not None:
        steps += [Step(position, STRIDES, a, _plain(e), e) for a, e in enumerate(buffer.strides)]
    return steps


def _plain(value: int | Expr) -> int | Expr:
    """An integer expression without casts between integer types, or its value if constant."""

    def visit(node: Any) -> Any:
        if isinstance(node, Cast) and node.dtype.is_integer and node.value.dtype.is_integer:
            return visit(node.value)
        if isinstance(node, Const) and node.dtype.is_integer:
            return Const(node.value, INT64, span=node.span)
        node = ir.map_children(node, visit)
        if isinstance(node, (Binary, Unary, Select)) and node.dtype.is_integer:
            return node.replace(dtype=INT64)
        return node

    folded = ir.fold_int(value)
    return folded if isinstance(folded, int) else ir.fold_int(visit(folded))


def _variables(expected: int | Expr) -> dict[Var, None]:
    """Variables of an extent. Not a list: membership there would build comparisons."""
    return {} if isinstance(expected, int) else dict.fromkeys(ir.free_vars(expected))


def _attempt(
    params: Sequence[Buffer | Var], outputs: Collection[int], required: Collection[int]
) -> tuple[BindingPlan, list[Var]]:
    """A plan for a given set of tensors that are there, and the variables it leaves unbound."""
    bound = {p for p in params if isinstance(p, Var)}
    origin: dict[Var, Step] = {}
    order = _order(params, outputs)
    steps: dict[int, tuple[Step, ...]] = {}
    pending: list[Step] = []

    def place(step: Step) -> Step | None:
        unbound = [v for v in _variables(step.expected) if v not in bound]
        if not unbound:
            return step
        if step.param not in required or len(unbound) > 1:
            return None
        solved = _solve(step, unbound[0])
        if solved is not None:
            bound.add(unbound[0])
            origin[unbound[0]] = solved
        return solved

    for position in order:
        placed: list[Step] = []
        for step in _raw_steps(position, params[position]):
            done = place(step)
            if done is None:
                pending.append(step)
            else:
                placed.append(done)
        steps[position] = tuple(placed)
    late: list[Step] = []
    progress = True
    while progress:
        progress = False
        waiting, pending = pending, []
        for step in waiting:
            done = place(step)
            if done is None:
                pending.append(step)
            else:
                late.append(done)
                progress = True
    missing = [v for s in pending if s.param in required for v in _variables(s.expected)]
    missing = [v for v in missing if v not in bound]
    plan = BindingPlan(order, steps, tuple(late), frozenset(required), frozenset(bound), origin)
    return plan, missing


def _solve(step: Step, var: Var) -> Step | None:
    """The step as an equation for `var`, where it is linear in it."""
    assert isinstance(step.expected, Expr)
    form = ir.linear(step.expected)
    keys = [key for key, atom in form.atoms.items() if atom is var and key in form.terms]
    if len(keys) != 1:
        return None
    scale = form.terms.pop(keys[0])
    rest = ir.to_expr(form)
    if var in _variables(rest):
        return None
    return step._replace(solve=var, scale=scale, rest=rest)


def _unbound(name: str, params: Sequence[Buffer | Var], var: Var) -> ShapeError:
    carriers = [
        p
        for p in params
        if isinstance(p, Buffer)
        and any(var in _variables(e) for e in (*p.shape, *(p.strides or ())))
    ]
    if not carriers:
        return ShapeError(
            f"kernel {name} uses the dynamic variable {var.name}, which is no extent or stride of "
            "a parameter",
            span=var.span,
            hint=f"make {var.name} a scalar parameter, or an extent of a tensor parameter",
        )
    buffer = carriers[0]
    return ShapeError(
        f"the dynamic variable {var.name} of {buffer.describe()} cannot be found from the "
        f"arguments of kernel {name}",
        span=buffer.span,
        hint=f"a variable needs one tensor with an extent linear in it, such as {var.name} or "
        f"{var.name} * 2; or make it a scalar parameter",
    )
