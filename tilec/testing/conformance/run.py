"""Runs checks on a target and compares them with the reference interpreter."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import tilec
import tilec.language as T
from tilec import ir
from tilec.backend import BackendContext
from tilec.backend.registry import registry
from tilec.diagnostics import CapabilityError
from tilec.interp import run as interpret
from tilec.testing.conformance.checks import Check, Param, program, resolve, values
from tilec.testing.guarded import Guarded, strided
from tilec.transform.capabilities import Capabilities

Array = np.ndarray[Any, Any]
PASS, REFUSED, FAIL = "pass", "refused", "fail"

# Mantissa bits and smallest normal exponent, for units in the last place.
_FORMATS = {
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "float32": (23, -126),
    "float64": (52, -1022),
}
_ULPS = 4.0
_RTOL = {"float64": 1e-13, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


class Outcome(NamedTuple):
    """How a check ended: `PASS`, `REFUSED` or `FAIL`, and why."""

    status: str
    detail: str = ""


class Subject(NamedTuple):
    """What is tested, and how strictly.

    Attributes:
        context: the resolved target.
        spec: the target as it is given to `tilec.compile`.
        execution_backend: by name; None for the preferred one.
        device: where arguments live: ``cpu`` for NumPy arrays, else a device name of torch.
        ulps: error of elementary functions, in units in the last place.
        rtol: error of sums of reals relative to the largest result; None for one by dtype.
        seed: of the arguments.
    """

    context: BackendContext
    spec: Any
    execution_backend: str | None = None
    device: str = "cpu"
    ulps: float = _ULPS
    rtol: float | None = None
    seed: int = 0

    @property
    def capabilities(self) -> Capabilities:
        """The target's table."""
        return self.context.capabilities


def subject(
    target: Any = "auto",
    *,
    execution_backend: str | None = None,
    device: str | None = None,
    ulps: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> Subject:
    """A target to test. What is not given comes from its capability table and manifest.

    The table's ``features`` may have ``conformance_ulps`` and ``conformance_rtol``; the device is
    the ``torch_device`` of the manifest's runtime.

    Args:
        target: a target kind, a dict, or a dict as JSON.
        execution_backend: by name.
        device: where arguments live.
        ulps: error of elementary functions.
        rtol: error of sums.
        seed: of the arguments.

    Raises:
        TilecError: there is no such target.
    """
    if isinstance(target, str) and target.startswith("{"):
        target = json.loads(target)
    context = registry().context(
        None if target == "auto" else target, None, execution_backend, {}, ()
    )
    features = context.capabilities.features
    return Subject(
        context,
        context.target,
        execution_backend,
        device or context.module.runtime.torch_device,
        float(features.get("conformance_ulps", _ULPS)) if ulps is None else ulps,
        features.get("conformance_rtol") if rtol is None else rtol,
        seed,
    )


# what a table disclaims


def disclaimed(func: ir.PrimFunc, table: Capabilities) -> str | None:
    """Why the table says that a function cannot be compiled, or None if it does not say so."""
    for param in func.params:
        reason = table.refusal("parameter", param.dtype)
        if reason:
            return reason
    for node in ir.walk(func.body):
        for op, dtype in _uses(node):
            reason = table.refusal(op, dtype)
            if reason:
                return reason
        if isinstance(node, ir.Alloc):
            reason = _memory(node.buffer, table)
            if reason:
                return reason
        elif isinstance(node, ir.Launch):
            threads = int(np.prod(node.threads or (1,)))
            if threads > table.max_threads:
                return f"a block has {threads} threads, at most {table.max_threads}"
    return None


def _uses(node: Any) -> list[tuple[str, str | None]]:
    """Operations of one node, by the names that a table knows them by, with their dtype."""
    if isinstance(node, ir.Alloc):
        return [("buffer", node.buffer.dtype)]
    if isinstance(node, ir.TileOp):
        region = (node.writes() or node.reads())[0]
        name = node.script_name or type(node).__name__
        kind = getattr(node, "kind", None)
        names = [name] if kind is None else [name, f"{name}_{kind}"]
        return [(n, region.buffer.dtype) for n in names]
    if not isinstance(node, ir.Expr):
        return []
    found: list[tuple[str, str | None]] = [("a value", node.dtype.scalar)]
    if isinstance(node, ir.Call):
        operand = node.args[0].dtype if node.args else node.dtype
        found.append((node.name, operand.scalar))
    elif isinstance(node, ir.Binary):
        found.append((node.op.value, node.lhs.dtype.scalar))
    return found


def _memory(buffer: ir.Buffer, table: Capabilities) -> str | None:
    memory = table.memories.get(buffer.scope())
    if memory is None:
        return f"there is no scope {buffer.scope()!r}" if table.memories else None
    size = buffer.dtype.bytes * int(np.prod([int(e) for e in buffer.shape]))
    if memory.bytes is not None and size > memory.bytes:
        return f"{size} bytes in {buffer.scope()!r}, which has {memory.bytes}"
    return None


# running


def run_checks(checks: Sequence[Check], given: Subject) -> list[Outcome]:
    """One outcome for each check. Those that the table does not disclaim are compiled together."""
    outcomes: dict[int, Outcome] = {}
    together: list[int] = []
    for number, check in enumerate(checks):
        func = T.from_script(program([check]))
        reason = disclaimed(func, given.capabilities)
        if reason is None:
            together.append(number)
        else:
            outcomes[number] = _refused(func, reason, given)
    for number, outcome in zip(together, _run([checks[n] for n in together], given), strict=True):
        outcomes[number] = outcome
    return [outcomes[n] for n in range(len(checks))]


def compile_for(func: ir.PrimFunc, given: Subject) -> Any:
    """The kernel of a function for a subject."""
    return tilec.compile(func, target=given.spec, execution_backend=given.execution_backend)


def _refused(func: ir.PrimFunc, reason: str, given: Subject) -> Outcome:
    try:
        compile_for(func, given)
    except CapabilityError as error:
        if error.span is None or not error.span.known:
            return Outcome(FAIL, f"the refusal has no place: {error}")
        return Outcome(REFUSED, reason)
    except Exception as error:  # noqa: BLE001 - any other error is what is being looked for
        return Outcome(FAIL, f"disclaimed ({reason}), but it raises {_short(error)}")
    return Outcome(FAIL, f"disclaimed ({reason}), but it compiles")


def _run(checks: Sequence[Check], given: Subject) -> list[Outcome]:
    if not checks:
        return []
    func = T.from_script(program(checks))
    try:
        kernel = compile_for(func, given)
    except Exception as error:  # noqa: BLE001 - a failure to compile is a result
        if len(checks) == 1:
            what = "not disclaimed, but refused" if isinstance(error, CapabilityError) else "raises"
            return [Outcome(FAIL, f"{what}: {_short(error)}\n{program(checks)}")]
        return [_run([check], given)[0] for check in checks]
    calls = max(len(c.sizes) for c in checks)
    outcomes = [Outcome(PASS) for _ in checks]
    for call in range(calls):
        for number, found in enumerate(_call(kernel, checks, call, given)):
            if found is not None and outcomes[number].status == PASS:
                text = f"{checks[number]}: {found}\n{program([checks[number]])}"
                outcomes[number] = Outcome(FAIL, text)
    return outcomes


def _call(kernel: Any, checks: Sequence[Check], call: int, given: Subject) -> list[str | None]:
    """What is wrong with each check in one call of the kernel."""
    want: list[list[Any]] = []
    got: list[list[Any]] = []
    for check in checks:
        sizes = check.sizes[call % len(check.sizes)]
        seed = zlib.crc32(f"{check} {check.body} {call} {given.seed}".encode())
        rng = np.random.default_rng(seed)
        flats = [values(p, sizes, rng) for p in check.params]
        want.append([f.copy() if isinstance(f, np.ndarray) else f for f in flats])
        _interpret(check, want[-1], sizes)
        got.append(
            [
                _guarded(f, p, sizes, given.device) if isinstance(f, np.ndarray) else f
                for f, p in zip(flats, check.params, strict=True)
            ]
        )
    try:
        kernel(*[a.array if isinstance(a, Guarded) else a for args in got for a in args])
        given.context.module.runtime.synchronize(0)
    except Exception as error:  # noqa: BLE001 - a failing call is a result
        return [f"the call raises {_short(error)}" for _ in checks]
    return [_wrong(c, w, g, given) for c, w, g in zip(checks, want, got, strict=True)]


def _guarded(flat: Array, param: Param, sizes: Mapping[str, int], device: str) -> Guarded:
    assert param.shape is not None
    steps = None if param.strides is None else resolve(param.strides, sizes)
    return Guarded(flat, resolve(param.shape, sizes), steps, param.dtype, device)


def _interpret(check: Check, flats: list[Any], sizes: Mapping[str, int]) -> None:
    args = []
    for flat, param in zip(flats, check.params, strict=True):
        if isinstance(flat, np.ndarray):
            assert param.shape is not None
            steps = None if param.strides is None else resolve(param.strides, sizes)
            args.append(strided(flat, resolve(param.shape, sizes), steps))
        else:
            args.append(flat)
    interpret(T.from_script(program([check])), *args, check=True)


def _wrong(check: Check, want: list[Any], got: list[Any], given: Subject) -> str | None:
    for param, expected, found in zip(check.params, want, got, strict=True):
        if not isinstance(found, Guarded):
            continue
        if not found.intact():
            return f"something was written beside {param.name}"
        bad = np.flatnonzero(~close(expected, found.storage(), param.dtype, check.kind, given))
        if len(bad):
            at = int(bad[0])
            return (
                f"{param.name}, element {at} of its storage ({len(bad)} of {expected.size} differ):"
                f" the program means {expected[at]!s}, the target gives {found.storage()[at]!s}"
            )
    return None


def close(want: Array, got: Array, dtype: str, kind: str, given: Subject) -> Array:
    """Elementwise: whether the target's answer is good enough; see `Check.kind`."""
    same: Array = np.asarray(got == want) | (np.asarray(got != got) & np.asarray(want != want))
    if dtype not in _FORMATS or kind == "equal":
        return same
    if kind == "exact":
        # Zeros of different sign compare equal, but 1 / x tells them apart.
        zero = np.asarray(want == 0) & np.asarray(got == 0)
        return np.asarray(same & (~zero | (np.signbit(want) == np.signbit(got))))
    with np.errstate(all="ignore"):
        a, b = want.astype(np.float64), got.astype(np.float64)
        error = np.abs(a - b)
        if kind == "math":
            mantissa, lowest = _FORMATS[dtype]
            exponent = np.maximum(np.frexp(a)[1] - 1, lowest)
            unit = np.ldexp(1.0, np.where(np.isfinite(a), exponent, 0) - mantissa)
            return np.asarray(same | (error <= given.ulps * unit))
        rtol = _RTOL[dtype] if given.rtol is None else given.rtol
        scale = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
        return np.asarray(same | (error <= rtol * scale))


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:600]}"
