"""Vectorized loops: wide accesses, registers in between, conversions in pairs.

The loop stays a loop, unrolled; what it reads from memory comes into a vector before it, and what
it writes leaves one behind it:

    const tilec_vec_u16_8 A_v = *(const tilec_vec_u16_8 *)&A[8 * i];
    tilec_vec_u16_8 C_v;
    for (int32_t v = 0; v < 8; ++v) C_v.v[v] = ...A_v.v[v]...;
    *(tilec_vec_u16_8 *)&C[8 * i] = C_v;
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec import ir
from tilec.backend.c_family import SHORT, is_small_float
from tilec.backend.c_family.expr import OR
from tilec_cuda.atomics import vector_update
from tilec_cuda.rows import at, step_between

if TYPE_CHECKING:
    from tilec_cuda.stmt import CudaPrinter

FLOAT32 = ir.DType("float32")
_WIDE_SCOPES = (ir.GLOBAL, ir.SHARED, ir.SHARED_DYN)


@dataclass
class _Access:
    """Loads and the store of one row of elements."""

    buffer: ir.Buffer
    first: ir.Expr
    key: tuple[Any, ...]
    loads: list[ir.Load] = field(default_factory=list)
    guards: list[tuple[ir.Expr, ...]] = field(default_factory=list)
    stored: bool = False


def print_vectorized(printer: CudaPrinter, node: ir.For) -> bool:
    """Print the loop with wide accesses; False where it has none."""
    start, stop, step = (ir.const_value(x) for x in (node.start, node.stop, node.step))
    whole = start == 0 and step == 1 and node.var.dtype == ir.DType("int32")
    if not whole or not isinstance(stop, int) or stop < 2:
        return False
    body = node.body
    while isinstance(body, ir.Seq) and len(body.stmts) == 1:
        body = body.stmts[0]
    if isinstance(body, ir.If) and not _uses(body.cond, node.var):
        then = node.replace(body=body.then)
        other = None if body.other is None else node.replace(body=body.other)
        printer.stmt(body.replace(then=then, other=other))
        return True
    if vector_update(printer, node, body, stop):
        return True
    accesses = _Accesses(printer, node.var, stop).collect(body)
    if not accesses:
        return False
    _Loop(printer, node, body, stop, accesses).print()
    return True


def _uses(node: Any, var: ir.Var) -> bool:
    return any(n is var for n in ir.walk(node))


class _Accesses:
    """Finds the rows that a loop reads and writes at once."""

    def __init__(self, printer: CudaPrinter, var: ir.Var, count: int) -> None:
        self._facts = printer.expr.facts
        self._var = var
        self._count = count
        self._bad: set[ir.Buffer] = set()
        self._found: dict[tuple[Any, ...], _Access] = {}
        self._stored: set[ir.Buffer] = set()
        self._bound: set[ir.Var] = set()

    def collect(self, body: ir.Stmt) -> list[_Access]:
        """The rows, in order of first use."""
        for stmt in body.stmts if isinstance(body, ir.Seq) else (body,):
            if isinstance(stmt, ir.Bind):
                self._loads(stmt.value, ())
                self._bound.add(stmt.var)
            elif isinstance(stmt, ir.Store):
                self._loads(stmt.value, ())
                for index in stmt.indices:
                    self._loads(index, ())
                self._store(stmt)
            else:
                self._bad |= {n for n in ir.walk(stmt) if isinstance(n, ir.Buffer)}
        keys: dict[ir.Buffer, set[Any]] = {}
        for access in self._found.values():
            keys.setdefault(access.buffer, set()).add(access.key)
        self._bad |= {b for b in self._stored if len(keys.get(b, ())) > 1}
        return [a for a in self._found.values() if a.buffer not in self._bad]

    def _row(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> _Access | None:
        """The row that an access belongs to."""
        if buffer.scope() not in _WIDE_SCOPES or len(indices) != 1:
            return None
        index = indices[0]
        if not _uses(index, self._var) or not self._contiguous(index):
            return None
        if any(isinstance(n, ir.Load) or n in self._bound for n in ir.walk(index)):
            return None
        first = at(index, self._var, 0)
        key = (id(buffer), *ir.tokens(first))
        known = self._found.get(key)
        if known is None:
            known = self._found[key] = _Access(buffer, first, key)
        return known

    def _contiguous(self, index: ir.Expr) -> bool:
        """False where the step from one element to the next is known not to be 1."""
        step = step_between(self._facts, index, self._var)
        if not step.terms:
            return bool(step.const == 1)
        return all(_uses(self._facts.keys.atoms[key], self._var) for key in step.terms)

    def _store(self, stmt: ir.Store) -> None:
        access = self._row(stmt.buffer, stmt.indices)
        self._stored.add(stmt.buffer)
        if access is None:
            self._bad.add(stmt.buffer)
        else:
            access.stored = True

    def _loads(self, node: Any, guards: tuple[ir.Expr, ...]) -> None:
        if isinstance(node, ir.Select):
            self._loads(node.cond, guards)
            self._loads(node.then, (*guards, node.cond))
            self._loads(node.other, (*guards, ir.unary(ir.UnOp.NOT, node.cond)))
            return
        if isinstance(node, ir.Binary) and node.op in ir.LOGICAL:
            self._loads(node.lhs, guards)
            taken = node.lhs if node.op is ir.BinOp.AND else ir.unary(ir.UnOp.NOT, node.lhs)
            self._loads(node.rhs, (*guards, taken))
            return
        if isinstance(node, ir.Load):
            for index in node.indices:
                self._loads(index, guards)
            self._load(node, guards)
            return
        if isinstance(node, ir.Call) and not ir.is_pure(node.name):
            self._bad |= {n for n in ir.walk(node) if isinstance(n, ir.Buffer)}
        for child in getattr(node, "children", ()):
            self._loads(child, guards)

    def _load(self, node: ir.Load, guards: tuple[ir.Expr, ...]) -> None:
        access = self._row(node.buffer, node.indices)
        unclear = any(_uses(g, self._var) or self._bound & set(ir.walk(g)) or _reads(g)
                      for g in guards)  # fmt: skip
        if access is None or unclear or node.buffer in self._stored:
            self._bad.add(node.buffer)
            return
        access.loads.append(node)
        access.guards.append(guards)


def _reads(node: Any) -> bool:
    return any(isinstance(n, ir.Load) for n in ir.walk(node))


class _Loop:
    """Prints one loop and what belongs around it."""

    def __init__(
        self, printer: CudaPrinter, node: ir.For, body: ir.Stmt, count: int, rows: list[_Access]
    ) -> None:
        self._p = printer
        self._e = printer.expr
        self._node = node
        self._body = body
        self._count = count
        self._rows = rows
        self._vectors: dict[int, str] = {}  # by row
        self._floats: dict[int, str] = {}

    def print(self) -> None:
        """The loop."""
        p, var = self._p, self._node.var
        if self._copy():
            return
        for row in self._rows:
            self._open(row)
        for row in self._rows:
            if row.stored and self._packs(row):
                self._floats[id(row)] = self._e.names.fresh(f"{row.buffer.name}_f")
                p.line(f"float {self._floats[id(row)]}[{self._count}];")
        name = self._e.names(var)
        with self._e.facts.scope():
            self._e.facts.bind_range(var, 0, self._count - 1)
            p.directive("#pragma unroll")
            with p.block(f"for (int32_t {name} = 0; {name} < {self._count}; ++{name})"):
                for stmt in self._body.stmts if isinstance(self._body, ir.Seq) else (self._body,):
                    if isinstance(stmt, ir.Store):
                        self._store(stmt)
                    else:
                        p.stmt(stmt)
        for row in self._rows:
            if row.stored:
                self._close(row)
            for load in row.loads:
                self._e.replaced.pop(id(load), None)

    def _copy(self) -> bool:
        """A loop that only copies one row to another is one statement."""
        body = self._body
        if not isinstance(body, ir.Store) or len(self._rows) != 2:
            return False
        source, target = self._rows
        if len(source.loads) != 1 or source.loads[0] is not body.value or target.loads:
            return False
        kind = self._type(source)
        value = f"*(const {kind} *){self._address(source)}"
        self._p.line(f"*({kind} *){self._address(target)} = {value};")
        return True

    def _type(self, row: _Access) -> str:
        kind = storage_suffix(row.buffer.dtype)
        return self._e.piece(f"vec_{kind}_{self._count}")

    def _address(self, row: _Access) -> str:
        return f"&{self._e.load(row.buffer, (row.first,))}"

    def _open(self, row: _Access) -> None:
        """Fill a vector from memory, or make room for one."""
        kind, vector = self._type(row), self._e.names.fresh(f"{row.buffer.name}_v")
        self._vectors[id(row)] = vector
        if row.loads:
            value = f"*(const {kind} *){self._address(row)}"
            guard = _any_of(row.guards)
            if guard is not None:
                value = f"{self._e(guard, OR)} ? {value} : {kind}{{}}"
            self._p.line(f"{'' if row.stored else 'const '}{kind} {vector} = {value};")
            self._replace(row, vector)
        else:
            self._p.line(f"{kind} {vector};")

    def _replace(self, row: _Access, vector: str) -> None:
        """Loads of the row become elements of the vector."""
        name, dtype = self._e.names(self._node.var), row.buffer.dtype
        text = self._e.widen(f"{vector}.v[{name}]", dtype)
        pairs = pair_piece(self._e.arch.number, dtype, "unpack")
        if pairs is not None and self._count % 2 == 0 and not self._copied(row):
            floats = self._e.names.fresh(f"{row.buffer.name}_f")
            self._p.line(f"float {floats}[{self._count}];")
            self._p.line(f"{self._e.piece(f'{pairs}_{self._count}')}({floats}, {vector}.v);")
            text = (f"{floats}[{name}]", text[1])
        for load in row.loads:
            self._e.replaced[id(load)] = text

    def _copied(self, row: _Access) -> bool:
        """Whether elements are handed on as they are."""
        stores = [n for n in ir.walk(self._body) if isinstance(n, ir.Store)]
        return any(s.value is load for s in stores for load in row.loads)

    def _packs(self, row: _Access) -> bool:
        """Whether the row is converted in pairs when it leaves."""
        if self._count % 2 or pair_piece(self._e.arch.number, row.buffer.dtype, "pack") is None:
            return False
        return all(
            self._unpacked(s.value) is not None
            for s in ir.walk(self._body)
            if isinstance(s, ir.Store) and s.buffer is row.buffer
        )

    def _unpacked(self, value: ir.Expr) -> str | None:
        """A value before it is rounded to its narrow format, where it is rounded at all."""
        if isinstance(value, ir.Const):
            return None
        text = self._e.unrounded(value)
        prefix = f"{self._e.convert(FLOAT32, value.dtype)}("
        return text[len(prefix) : -1] if text.startswith(prefix) else None

    def _row_of(self, stmt: ir.Store) -> _Access | None:
        for row in self._rows:
            if row.stored and row.buffer is stmt.buffer:
                return row
        return None

    def _store(self, stmt: ir.Store) -> None:
        row = self._row_of(stmt)
        if row is None:
            self._p.stmt(stmt)
            return
        name = self._e.names(self._node.var)
        floats = self._floats.get(id(row))
        if floats is not None:
            self._p.line(f"{floats}[{name}] = {self._unpacked(stmt.value)};")
        else:
            self._p.line(f"{self._vectors[id(row)]}.v[{name}] = {self._e.stored(stmt.value)};")

    def _close(self, row: _Access) -> None:
        """Write a vector to memory."""
        vector, floats = self._vectors[id(row)], self._floats.get(id(row))
        if floats is not None:
            piece = pair_piece(self._e.arch.number, row.buffer.dtype, "pack")
            self._p.line(f"{self._e.piece(f'{piece}_{self._count}')}({vector}.v, {floats});")
        self._p.line(f"*({self._type(row)} *){self._address(row)} = {vector};")


def _any_of(guards: list[tuple[ir.Expr, ...]]) -> ir.Expr | None:
    """The condition under which a row is read; None if it always is."""
    if any(not g for g in guards):
        return None
    terms = []
    seen: set[Any] = set()
    for guard in guards:
        term: Any = guard[0]
        for more in guard[1:]:
            term = ir.binary(ir.BinOp.AND, term, more)
        key = tuple(ir.tokens(term))
        if key not in seen:
            seen.add(key)
            terms.append(term)
    whole: Any = terms[0]
    for term in terms[1:]:
        whole = ir.binary(ir.BinOp.OR, whole, term)
    return whole  # type: ignore[no-any-return]


def storage_suffix(dtype: ir.DType) -> str:
    """The suffix of the type that stores an element."""
    if is_small_float(dtype):
        return f"u{dtype.bits}"
    return SHORT[str(dtype)]


def pair_piece(number: int, dtype: ir.DType, what: str) -> str | None:
    """The piece that converts elements in pairs on an architecture, or None."""
    short = SHORT.get(str(dtype), "")
    if what == "pack" and short in ("f16", "bf16") and number >= 80:
        return f"pack_{short}"
    if short == "bf16" and what == "unpack":
        return "unpack_bf16"
    if short in ("e4m3", "e5m2") and number >= 89:
        return f"{what}_{short}"
    return None
