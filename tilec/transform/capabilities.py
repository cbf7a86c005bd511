"""What a target can do, as data that passes, operations and the conformance kit ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from tilec.diagnostics import CapabilityError, Span

_EMPTY: Mapping[str, Any] = MappingProxyType({})
ANY = "*"


class Memory(NamedTuple):
    """One kind of memory.

    Attributes:
        scope: the buffer scope that lives here, such as ``shared``.
        bytes: capacity seen by one block; None where it is not limited.
        alignment: bytes to which a buffer's start is aligned.
        access_bytes: sizes of one access by one lane, ascending.
        banks: number of banks; 0 where it is not banked.
        bank_bytes: width of one bank.
        per_lane: whether every lane has its own.
    """

    scope: str
    bytes: int | None = None
    alignment: int = 16
    access_bytes: tuple[int, ...] = (1, 2, 4, 8)
    banks: int = 0
    bank_bytes: int = 4
    per_lane: bool = False


class CopyEngine(NamedTuple):
    """A way to move a tile between two memories.

    Attributes:
        name: what lowerings call it.
        source: scope that is read.
        target: scope that is written.
        asynchronous: whether completion has to be waited for.
        granularity: bytes that one transfer moves at least.
        alignment: bytes to which both sides must be aligned.
    """

    name: str
    source: str
    target: str
    asynchronous: bool = False
    granularity: int = 1
    alignment: int = 1


class MatrixAtom(NamedTuple):
    """One matrix instruction.

    Attributes:
        name: what lowerings call it.
        m: rows of the result.
        n: columns of the result.
        k: contracted extent.
        a_dtype: dtype of the left operand.
        b_dtype: dtype of the right operand.
        accumulator: dtype of the result.
        homes: scopes in which a, b and the result live.
        lanes: consecutive lanes that execute it together.
        layouts: for operands whose home is registers, the `Fragment` over (lane, register) of a
            (m, k), b (n, k) and the result (m, n); None for those that live in shared memory.
        asynchronous: whether completion has to be waited for (`mma_commit`, `mma_wait`).
    """

    name: str
    m: int
    n: int
    k: int
    a_dtype: str
    b_dtype: str
    accumulator: str
    homes: tuple[str, str, str] = ("local", "local", "local")
    lanes: int = 32
    layouts: tuple[Any, Any, Any] = (None, None, None)
    asynchronous: bool = False

    def script(self, printer: Any = None) -> str:
        """The name, as text; `T.matrix_atom` finds it again."""
        del printer
        return f'T.matrix_atom("{self.name}")'


@dataclass(frozen=True, eq=False, repr=False)
class Capabilities:
    """The capability table of one target.

    Attributes:
        lanes: lanes that run in lock step; 1 where there are none.
        max_threads: threads of one block at most.
        max_grid: blocks per grid axis at most; None where it is not limited.
        memories: by scope.
        vector_bytes: widths of vector registers or accesses in bytes, widest first.
        dtypes: dtypes that buffers may have; ``*`` for all.
        native_dtypes: dtypes that arithmetic runs on without widening.
        copy_engines: besides plain loads and stores.
        matrix_atoms: matrix instructions, best first.
        barriers: kinds of barrier, such as ``block`` or ``transaction``.
        unsupported: why an operation is refused, by ``op`` or ``op:dtype``; everything else is
            supported. An ``op`` is a tile operation (``gemm``, ``reduce``, ``reduce_max``), an
            intrinsic (``erf``) or an operator of the IR (``truncdiv``); the dtype is that of what
            is written, or of a scalar's operands. The conformance kit expects exactly these
            refusals.
        features: open for facts that only one family of targets has.
    """

    lanes: int = 1
    max_threads: int = 1024
    max_grid: tuple[int | None, ...] = (None, None, None)
    memories: Mapping[str, Memory] = field(default_factory=lambda: _EMPTY)
    vector_bytes: tuple[int, ...] = (16,)
    dtypes: frozenset[str] = frozenset({ANY})
    native_dtypes: frozenset[str] = frozenset({"float32", "float64", "int32", "int64"})
    copy_engines: tuple[CopyEngine, ...] = ()
    matrix_atoms: tuple[MatrixAtom, ...] = ()
    barriers: frozenset[str] = frozenset()
    unsupported: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    features: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)

    def __post_init__(self) -> None:
        for name in ("memories", "unsupported", "features"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.lanes < 1 or self.max_threads < 1:
            raise ValueError("lanes and max_threads are positive")

    def refusal(self, op: str, dtype: str | None = None) -> str | None:
        """Why an operation (on a dtype) is not supported, or None where it is."""
        for key in (op, f"{op}:{dtype}"):
            if key in self.unsupported:
                return self.unsupported[key]
        if dtype is not None and ANY not in self.dtypes and str(dtype) not in self.dtypes:
            return f"dtype {dtype} is not supported"
        return None

    def supports(self, op: str, dtype: str | None = None) -> bool:
        """Whether an operation (on a dtype) is supported."""
        return self.refusal(op, dtype) is None

    def require(self, op: str, dtype: str | None = None, *, span: Span | None = None) -> None:
        """Refuse what is not supported.

        Raises:
            CapabilityError: the table disclaims it.
        """
        reason = self.refusal(op, dtype)
        if reason is not None:
            what = op if dtype is None else f"{op} on {dtype}"
            raise CapabilityError(f"the target does not support {what}: {reason}", span=span)

    def with_features(self, **features: object) -> Self:
        """A copy with more features."""
        return replace(self, features={**self.features, **features})
