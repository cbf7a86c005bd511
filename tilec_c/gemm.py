"""Matrix multiplication of tiles that live in a block's scratch memory: a C micro-kernel generator.

:func:`emit_gemm` writes one ``static void name(const A *, const B *, Acc *)`` with every size a
constant, that computes ``C[m, n] (+)= op(A) @ op(B)``.

How it works, and why:

* The inner kernel keeps ``mr x nv`` vector accumulators in registers and runs over all of k, with
  one vector load per column vector of B and one broadcast per row of A. GCC's vector extensions
  express that; the compiler allocates registers and folds the broadcasts into the multiply-adds.
* **Operands are read where they are**, as plain row-major arrays: A in either orientation (a
  broadcast does not mind), B when it is not transposed. Where the rows of a column panel of B fall
  into different sets of the cache, packing them gains nothing.
* What cannot be read in place is packed into thread-private scratch by one pass: other element
  types (widened), a transposed B (transposed 8 by 8 in registers), the last few columns where
  n is not a multiple of the vector (padded with zeros), and panels whose rows would drive each
  other out of a set of the cache.
* The C tile is prefetched before the loop over k; where it has left the cache between two steps of
  the outer k loop, its stores would wait otherwise.
* Multiply-adds are fused here although the rest of a kernel is built with ``-ffp-contract=off``:
  by a function attribute for gcc and a pragma for clang. On processors without the instruction the
  same code multiplies and adds.

Element types: float32, float64, float16, bfloat16 and integers of 8 to 64 bits, mixed freely.
Products and sums are formed in the accumulator's type, except that float16 and bfloat16
accumulators are summed in float32 over the whole call and rounded once at its end. Integer sums
wrap.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilec_c.cpu import Isa
from tilec_c.prelude import C_TYPE, SUFFIX, convert_call
from tilec_c.prelude.base import HALVES

# Rows of k that one packed panel holds: 32 KB of 32 float32 columns, a first-level cache's worth.
_KC = 256
# A first-level cache: bytes of a line, sets, and the lines that a set surely holds.
_LINE, _SETS, _WAYS = 64, 64, 8
# Strips of rows that have to read a panel before a copy of it pays.
_WORTH_PACKING = 4
# Independent multiply-adds that hide their latency: two a cycle, each five cycles at most.
_IN_FLIGHT = 10
# Side of the squares transposed in registers, and how far along k rows are widened at a time.
_TRANSPOSE = 8
_WIDEN = 32


@dataclass(frozen=True, slots=True)
class GemmSpec:
    """One tile multiplication.

    Attributes:
        m, n, k: Sizes of ``C[m, n] (+)= op(A)[m, k] @ op(B)[k, n]``; each at least 1.
        dtype_a, dtype_b, dtype_acc: Element types by name.
        trans_a: A is stored as ``[k, m]``.
        trans_b: B is stored as ``[n, k]``.
        lda, ldb, ldc: Distance between stored rows in elements; None: rows follow each other.
        clear: Overwrite C instead of adding to it.
    """

    m: int
    n: int
    k: int
    dtype_a: str = "float32"
    dtype_b: str = "float32"
    dtype_acc: str = "float32"
    trans_a: bool = False
    trans_b: bool = False
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    clear: bool = False


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """A generated function: its name, its C text, and the prelude features the text needs."""

    name: str
    source: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TileLayout:
    """How a shared tile is best stored: row-major with this distance between rows, in elements."""

    rows: int
    columns: int
    pitch: int


def supports(spec: GemmSpec) -> bool:
    """Whether :func:`emit_gemm` knows the spec's element types."""
    known = all(d in SUFFIX and d != "bool" for d in (spec.dtype_a, spec.dtype_b, spec.dtype_acc))
    if not known:
        return False
    floats = ("float", "bfloat")
    narrow = spec.dtype_acc.startswith(("int", "uint"))
    return not (narrow and any(d.startswith(floats) for d in (spec.dtype_a, spec.dtype_b)))


def preferred_layout(spec: GemmSpec) -> tuple[TileLayout, TileLayout]:
    """The storage of A and B that suits the kernel: plain rows.

    Only rows of whole pages are padded by one cache line, so that a column of them does not fall
    into one set of the cache.
    """

    def plain(rows: int, columns: int, dtype: str) -> TileLayout:
        size = _bytes(SUFFIX[dtype])
        pitch = columns + (64 // size if columns * size % 4096 == 0 else 0)
        return TileLayout(rows, columns, pitch)

    a = (spec.k, spec.m) if spec.trans_a else (spec.m, spec.k)
    b = (spec.n, spec.k) if spec.trans_b else (spec.k, spec.n)
    return plain(*a, spec.dtype_a), plain(*b, spec.dtype_b)


def emit_gemm(name: str, spec: GemmSpec, isa: Isa) -> GemmKernel:
    """C text of the function ``static void name(const A *, const B *, Acc *)``.

    Args:
        name: A C identifier, also the prefix of the helper functions in the text.
        spec: What to compute. A and B may be the same memory; C overlaps neither.
        isa: The vector unit to write for (``Toolchain.isa``); the text compiles and is right on
            every other too.

    Raises:
        ValueError: The element types are not supported (see :func:`supports`).
    """
    if not supports(spec):
        types = f"{spec.dtype_a} x {spec.dtype_b} -> {spec.dtype_acc}"
        raise ValueError(f"the C micro-kernel does not multiply {types}")
    return _Emitter(name, spec, isa).emit()


# --- choices -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """Register blocking: vectors of ``lanes`` elements, ``nv`` of them wide, strips of rows."""

    lanes: int
    nv: int
    strips: tuple[tuple[int, int], ...]  # (rows of a strip, number of such strips)

    @property
    def columns(self) -> int:
        return self.lanes * self.nv


def _blocking(m: int, n: int, element: int, isa: Isa) -> _Shape:
    """Accumulators fill the register file, less two for operands and one per column vector."""
    lanes = isa.vector_bytes // element
    while lanes > 2 and lanes // 2 >= n:
        lanes //= 2  # narrow results: a smaller vector wastes less
    vectors = -(-n // lanes)
    nv = 2
    if m < 4:  # few rows: more columns at once, or the multiply-add's latency shows
        nv = max(nv, min(8, (isa.registers - 4) // (m + 1)))
    nv = min(nv, vectors)
    most = max(1, min(24, (isa.registers - 2 - nv) // nv))
    least = max(1, most * 4 // 7, min(most, -(-_IN_FLIGHT // nv)))
    return _Shape(lanes, nv, _strips(m, most, least))


def _strips(m: int, most: int, least: int) -> tuple[tuple[int, int], ...]:
    """Cut m rows into strips of nearly equal height, of one height >= least where possible."""
    for rows in range(min(m, most), least - 1, -1):
        if m % rows == 0:
            return ((rows, m // rows),)
    count = -(-m // most)
    low, more = divmod(m, count)
    return tuple((r, c) for r, c in ((low + 1, more), (low, count - more)) if c)


def _bytes(suffix: str) -> int:
    return {"f16": 2, "bf16": 2}.get(suffix) or int(suffix[1:]) // 8


# --- text ----------------------------------------------------------------------------------------


class _Emitter:
    """Writes one kernel. ``compute`` is the suffix of the type products are formed in."""

    def __init__(self, name: str, spec: GemmSpec, isa: Isa) -> None:
        self.name = name
        self.spec = spec
        self.a, self.b = SUFFIX[spec.dtype_a], SUFFIX[spec.dtype_b]
        self.acc = SUFFIX[spec.dtype_acc]
        self.compute = "f32" if self.acc in HALVES else self.acc
        self.type = C_TYPE[self.compute]
        self.element = _bytes(self.compute)
        self.shape = _blocking(spec.m, spec.n, self.element, isa)
        self.lda = spec.lda or (spec.m if spec.trans_a else spec.k)
        self.ldb = spec.ldb or (spec.k if spec.trans_b else spec.n)
        self.ldc = spec.ldc or spec.n
        self.pack_a = self.a != self.compute
        self.pack_b = self.b != self.compute or spec.trans_b or self._panels_collide()
        self.packs_panels = self.pack_b or spec.n % self.shape.lanes != 0
        packs = self.pack_a or self.packs_panels
        # A half accumulator is rounded when its sum is complete, so all of k is one pass.
        self.kc = min(spec.k, _KC) if packs and self.acc not in HALVES else spec.k
        # Whether kernels add to C: always, never, or in every pass over k but the first.
        self.add = "1" if not spec.clear else "0" if self.kc >= spec.k else "add"
        self.features: dict[str, None] = {"fused": None}
        self.helpers: dict[str, str] = {}  # by function name, in order of first use

    def emit(self) -> GemmKernel:
        driver = self._driver()
        parts = (self._types(), *self.helpers.values(), driver)
        return GemmKernel(self.name, "\n".join(parts) + "\n", tuple(self.features))

    def _types(self) -> str:
        size = self.shape.lanes * self.element
        return f"""\
typedef {self.type} {self.name}_v __attribute__((vector_size({size})));
typedef {self.type} {self.name}_u __attribute__((vector_size({size}), aligned({self.element})));"""

    def _convert(self, source: str, target: str, value: str) -> str:
        names = {suffix: dtype for dtype, suffix in SUFFIX.items()}
        callee = convert_call(names[source], names[target])
        if callee is None:
            return value if source == target else f"({C_TYPE[target]}){value}"
        self.features.update(dict.fromkeys(callee.features))
        return f"{callee.name}({value})"

    def _widened(self, operand: str, index: str) -> str:
        """An element of A or B in the compute type."""
        source = self.a if operand == "A" else self.b
        return self._convert(source, self.compute, f"{operand}[{index}]")

    def _panels_collide(self) -> bool:
        """Whether rows of a panel of B, read in place by several strips, share cache sets."""
        if sum(count for _, count in self.shape.strips) < _WORTH_PACKING:
            return False
        pitch, width = self.ldb * self.element, self.shape.columns * self.element
        lines = (
            (k * pitch + at) // _LINE % _SETS
            for k in range(min(self.spec.k, _KC))
            for at in range(0, width, _LINE)
        )
        return max(Counter(lines).values()) >= _WAYS

    # The inner kernel

    def _kernel(self, rows: int, nv: int, *, packed_b: bool, partial: int | None) -> str:
        """The name of a kernel for ``rows x nv`` vectors; its text is made on first use.

        Args:
            rows: Rows of the strip.
            nv: Vectors of the panel.
            packed_b: B is a packed panel, not the operand itself.
            partial: Columns to store, where the panel is wider than what is left of C.
        """
        suffix = ("_packed" if packed_b else "") + (f"_{partial}" if partial else "")
        name = f"{self.name}_{rows}x{nv}{suffix}"
        if name in self.helpers:
            return name
        lanes, t, v = self.shape.lanes, self.type, f"{self.name}_v"
        a_row, a_step = self._a_strides()
        b_step = nv * lanes if packed_b else self.ldb
        zeros = "\n".join(
            "  " + " ".join(f"{v} c{r}_{j} = {{0}};" for j in range(nv)) for r in range(rows)
        )
        loads = "\n".join(
            f"    const {v} b{j} = *(const {self.name}_u *)(B + {j * lanes});" for j in range(nv)
        )
        steps = "\n".join(
            f"    {{ const {t} a = A[{r * a_row}]; "
            + " ".join(f"c{r}_{j} += a * b{j};" for j in range(nv))
            + " }"
            for r in range(rows)
        )
        whole = partial is None and self.acc == self.compute
        store = self._store(rows, nv) if whole else self._store_by_element(rows, nv, partial)
        add = ", int add" if self.add == "add" else ""
        line = 64 // _bytes(self.acc)
        self.helpers[name] = f"""\
TILEC_FUSED void {name}(
    const {t} *restrict A, const {t} *restrict B, {C_TYPE[self.acc]} *restrict C,
    int64_t depth{add}) {{
  TILEC_FUSE
  for (int64_t r = 0; r < {rows}; ++r)
    for (int64_t j = 0; j < {partial or lanes * nv}; j += {line})
      __builtin_prefetch(C + r * {self.ldc} + j, 1, 3);
{zeros}
  for (int64_t k = 0; k < depth; ++k, A += {a_step}, B += {b_step}) {{
{loads}
{steps}
  }}
{store}
}}"""
        return name

    def _store(self, rows: int, nv: int) -> str:
        cells = [
            (f"*({self.name}_u *)(C + {r * self.ldc + j * self.shape.lanes})", f"c{r}_{j}")
            for r in range(rows)
            for j in range(nv)
        ]
        added = "\n".join(f"  {place} += {value};" for place, value in cells)
        written = "\n".join(f"  {place} = {value};" for place, value in cells)
        both = f"  if (add) {{\n{added}\n  }} else {{\n{written}\n  }}"
        return {"1": added, "0": written}.get(self.add, both)

    def _store_by_element(self, rows: int, nv: int, partial: int | None) -> str:
        """Through a small array: part of a vector, or another element type in C."""
        lanes = self.shape.lanes
        width = lanes * nv
        spill = "\n".join(
            f"  *({self.name}_u *)(tile + {r * width + j * lanes}) = c{r}_{j};"
            for r in range(rows)
            for j in range(nv)
        )
        at = f"C[r * {self.ldc} + j]"
        old = self._convert(self.acc, self.compute, at)
        return f"""\
  TILEC_ALIGNED(64) {self.type} tile[{rows * width}];
{spill}
  for (int64_t r = 0; r < {rows}; ++r)
    for (int64_t j = 0; j < {partial or width}; ++j) {{
      {self.type} x = tile[r * {width} + j];
      if ({self.add}) x += {old};
      {at} = {self._convert(self.compute, self.acc, "x")};
    }}"""

    def _a_strides(self) -> tuple[int, int]:
        """Distance between rows of op(A) and between steps of k, packed or in place."""
        if self.pack_a:
            return (1, self.spec.m) if self.spec.trans_a else (self.kc, 1)
        return (1, self.lda) if self.spec.trans_a else (self.lda, 1)

    # Packing

    def _pack_a(self) -> str:
        """The name of a function that widens A; op(A) keeps its orientation."""
        name = f"{self.name}_pack_a"
        pitch = self.spec.m if self.spec.trans_a else self.kc
        self.helpers[name] = f"""\
TILEC_NOINLINE void {name}(
    const {C_TYPE[self.a]} *restrict A, {self.type} *restrict P, int64_t rows, int64_t columns) {{
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      P[i * {pitch} + j] = {self._widened("A", f"i * {self.lda} + j")};
}}"""
        return name

    def _pack_b(self, width: int, padded: int) -> str:
        """The name of a function that packs ``width`` columns of op(B), padded with zeros."""
        name = f"{self.name}_pack_b{width}"
        if name in self.helpers:
            return name
        if self.spec.trans_b:
            body = self._transposed_columns(width, padded)
        else:
            body = f"""
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < {width}; ++j)
      P[k * {padded} + j] = {self._widened("B", f"k * {self.ldb} + j")};"""
        if padded > width:
            body += f"""
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = {width}; j < {padded}; ++j) P[k * {padded} + j] = 0;"""
        self.helpers[name] = f"""\
TILEC_NOINLINE void {name}(
    const {C_TYPE[self.b]} *restrict B, {self.type} *restrict P, int64_t depth) {{{body}
}}"""
        return name

    def _transposed_columns(self, width: int, padded: int) -> str:
        # Squares of four-byte elements are transposed in registers, the rest one by one.
        side = _TRANSPOSE if self.element == 4 else 1
        squares = width // side * side if side > 1 else 0
        body = ""
        if squares:
            self.features["transpose8"] = None
            run = side if self.b == self.compute else _WIDEN
            body += f"""
  for (int64_t j = 0; j < {squares}; j += {side}) {{
{self._squares(padded)}
    for (int64_t k = depth / {run} * {run}; k < depth; ++k)
      for (int64_t r = 0; r < {side}; ++r)
        P[k * {padded} + j + r] = {self._widened("B", f"(j + r) * {self.ldb} + k")};
  }}"""
        if squares < width:
            body += f"""
  for (int64_t j = {squares}; j < {width}; ++j)
    for (int64_t k = 0; k < depth; ++k)
      P[k * {padded} + j] = {self._widened("B", f"j * {self.ldb} + k")};"""
        return body

    def _squares(self, padded: int) -> str:
        side, run = _TRANSPOSE, _WIDEN
        if self.b == self.compute:
            return f"""\
    for (int64_t k = 0; k + {side} <= depth; k += {side})
      tilec_transpose8(B + j * {self.ldb} + k, {self.ldb}, P + k * {padded} + j, {padded});"""
        # Widen a piece of eight rows first, along k where it is contiguous.
        return f"""\
    TILEC_ALIGNED(64) {self.type} wide[{side * run}];
    for (int64_t k = 0; k + {run} <= depth; k += {run}) {{
      for (int64_t r = 0; r < {side}; ++r)
        for (int64_t i = 0; i < {run}; ++i)
          wide[r * {run} + i] = {self._widened("B", f"(j + r) * {self.ldb} + k + i")};
      for (int64_t i = 0; i < {run}; i += {side})
        tilec_transpose8(wide + i, {run}, P + (k + i) * {padded} + j, {padded});
    }}"""

    # The driver

    def _panels(self) -> list[tuple[int, int, int]]:
        """(first column, columns, vectors) of each kind of panel: full ones, then what is left."""
        shape, n = self.shape, self.spec.n
        full, rest = divmod(n, shape.columns)
        found = [(0, shape.columns, shape.nv)] if full else []
        if rest:
            found.append((full * shape.columns, rest, -(-rest // shape.lanes)))
        return found

    def _driver(self) -> str:
        spec, name = self.spec, self.name
        scratch = {}
        if self.pack_a:
            scratch["a"] = spec.m * self.kc
        if self.packs_panels:
            scratch["b"] = self.kc * self.shape.columns
        memory = "".join(
            f"static _Thread_local TILEC_ALIGNED(64) {self.type} {name}_{which}_panel[{size}];\n"
            for which, size in scratch.items()
        )
        local = "".join(
            f"  {self.type} *{which}_panel = {name}_{which}_panel;\n" for which in scratch
        )
        # Hide where the pointers come from: gcc would pass a thread-private variable itself into
        # the inner kernel and look its address up in every step there.
        pointers = ["A", "B", "C", *(f"{which}_panel" for which in scratch)]
        hidden = ", ".join(f'"+r"({pointer})' for pointer in pointers)
        local += f'  __asm__("" : {hidden});\n'
        full, rest = divmod(spec.k, self.kc)
        end = full * self.kc
        passes = (
            f"  for (int64_t k0 = 0; k0 < {end}; k0 += {self.kc}) {{\n{self._pass(self.kc)}\n  }}"
        )
        if rest:
            passes += f"\n  {{ const int64_t k0 = {end};\n{self._pass(rest)}\n  }}"
        return f"""\
{memory}TILEC_NOINLINE void {name}(
    const {C_TYPE[self.a]} *restrict A, const {C_TYPE[self.b]} *restrict B,
    {C_TYPE[self.acc]} *restrict C) {{
{local}{passes}
}}"""

    def _pass(self, depth: int) -> str:
        """One pass over ``depth`` steps of k from ``k0``: pack, then all panels by all strips."""
        spec = self.spec
        lines = ["    const int add = k0 != 0;"] if self.add == "add" else []
        a_start = f"A + k0 * {self.lda}" if spec.trans_a else "A + k0"
        if self.pack_a:
            rows, columns = (depth, spec.m) if spec.trans_a else (spec.m, depth)
            lines.append(f"    {self._pack_a()}({a_start}, a_panel, {rows}, {columns});")
            a_start = "a_panel"
        a_row = self._a_strides()[0]
        add = ", add" if self.add == "add" else ""
        for first, columns, nv in self._panels():
            last = first + 1 if first else spec.n // columns * columns
            lines.append(f"    for (int64_t j = {first}; j < {last}; j += {columns}) {{")
            b_start = f"B + j * {self.ldb} + k0" if spec.trans_b else f"B + k0 * {self.ldb} + j"
            partial = columns if columns % self.shape.lanes else None
            packed = self.pack_b or partial is not None
            if packed:
                pack = self._pack_b(columns, nv * self.shape.lanes)
                lines.append(f"      {pack}({b_start}, b_panel, {depth});")
                b_start = "b_panel"
            row = 0
            for rows, count in self.shape.strips:
                kernel = self._kernel(rows, nv, packed_b=packed, partial=partial)
                call = f"{kernel}({a_start} + i * {a_row}, {b_start}, C + i * {self.ldc} + j"
                end = row + rows * count
                lines.append(f"      for (int64_t i = {row}; i < {end}; i += {rows})")
                lines.append(f"        {call}, {depth}{add});")
                row = end
            lines.append("    }")
        return "\n".join(lines)
