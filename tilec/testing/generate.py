"""Random well-formed tile programs, as Python text.

A program is deterministic (one seed, one text) and has one meaning: every on-chip buffer is filled
before it is read, parallel iterations write elements of their own, blocks write their own slice of
the outputs, and numbers stay small integers in float types wherever a sum's order could show. What
is left to chance is everything else: shapes, dtypes, scopes, nesting, control flow, indices inside
and (for global reads) outside, conversions, mutable variables, re-bound names, dynamic extents.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
FLOATS = ("float16", "bfloat16", "float32", "float64")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 33)
_INDENT = "    "


@dataclass
class Tile:
    """A buffer that programs may use.

    Attributes:
        name, shape, dtype: as in the program.
        scope: "global", "shared", "fragment" or "local".
        writable: whether the program may store to it (inputs are read only).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str
    writable: bool = True


@dataclass
class Scope:
    """What is visible at a place of the program."""

    tiles: list[Tile] = field(default_factory=list)
    loops: dict[str, int] = field(default_factory=dict)
    """Integer names with the number of values they take, from 0 on."""
    lets: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def inner(self) -> Scope:
        """A copy for a nested block."""
        return Scope(list(self.tiles), dict(self.loops), dict(self.lets), dict(self.variables))


class Generator:
    """Writes one program.

    Args:
        seed: any int.
        size: about how many statements.
    """

    def __init__(self, seed: int, size: int = 14) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.budget = size
        self._names = 0
        self._depth = 0
        self.inputs: list[Tile] = []
        self.outputs: list[Tile] = []
        self.grid = 1
        self.fixed: set[str] = set()
        """Names that are not bound again."""

    # text

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append(_INDENT * self._depth + text)

    def name(self, stem: str) -> str:
        """A fresh name."""
        self._names += 1
        return f"{stem}{self._names}"

    def pick(self, items: object) -> object:
        """One of several."""
        return self.rng.choice(list(items))  # type: ignore[call-overload]

    def dtype(self) -> str:
        """A random element type, the common ones more often."""
        return str(self.pick(("int32", "float32", "float32", *INTS, *FLOATS)))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A small random shape."""
        rank = rank or self.rng.choice((1, 1, 2, 2, 3))
        extents = EXTENTS if rank < 3 else EXTENTS[:7]
        return tuple(self.rng.choice(extents) for _ in range(rank))

    # expressions

    def literal(self, dtype: str) -> str:
        """A constant of a type."""
        if dtype in FLOATS:
            return f'T.Const({self.rng.choice((0.0, 1.0, -1.0, 2.0, 3.0, -4.0, 7.0))!r}, "{dtype}")'
        low = 0 if dtype.startswith("u") else -9
        return f'T.Const({self.rng.randint(low, 9)}, "{dtype}")'

    def index(self, scope: Scope, extent: int, *, inside: bool) -> str:
        """An int32 index into a dimension; inside it, or (global reads) perhaps outside."""
        names = [n for n, count in scope.loops.items() if count <= extent]
        anything = list(scope.loops)
        choice = self.rng.random()
        if names and choice < 0.6:
            return str(self.pick(names))
        if anything and choice < 0.8:
            name = self.pick(anything)
            return f"({name} * {self.rng.randint(1, 3)} + {self.rng.randint(0, 5)}) % {extent}"
        if not inside and anything and choice < 0.9:
            return f"{self.pick(anything)} + {self.rng.randint(-3, 3)}"
        return str(self.rng.randrange(extent))

    def load(self, scope: Scope, tile: Tile) -> str:
        """An element of a buffer."""
        inside = tile.scope != "global"
        return f"{tile.name}[{', '.join(self.index(scope, e, inside=inside) for e in tile.shape)}]"

    def number(self, scope: Scope, dtype: str, depth: int = 2, *, loads: bool = True) -> str:
        """An expression of a type; nothing it contains can trap or depend on an order."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.25:
            leaves = [self.literal(dtype)]
            leaves += [n for n, t in {**scope.lets, **scope.variables}.items() if t == dtype] * 2
            if dtype == "int32":
                leaves += list(scope.loops)
            same = [t for t in scope.tiles if t.dtype == dtype]
            if same and loads:
                leaves += [self.load(scope, rng.choice(same)) for _ in range(3)]
            return rng.choice(leaves)
        a = self.number(scope, dtype, depth - 1, loads=loads)
        kind = rng.randrange(10)
        if kind == 0:
            other = self.dtype()
            return f'T.cast({self.number(scope, other, depth - 1, loads=loads)}, "{dtype}")'
        if kind == 1:
            cond = self.condition(scope, depth - 1, loads=loads)
            b = self.number(scope, dtype, depth - 1, loads=loads)
            return str(
                self.pick((f"T.if_then_else({cond}, {a}, {b})", f"({a} if {cond} else {b})"))
            )
        if kind == 2:
            return f"T.abs({a})"
        if kind == 3:
            return f"(-{a})"
        b = self.number(scope, dtype, depth - 1, loads=loads)
        if kind in (4, 5):
            return f"T.{self.pick(('min', 'max'))}({a}, {b})"
        if dtype in INTS:
            op = self.pick(("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "trunc"))
            if op == "trunc":
                return f"T.{self.pick(('truncdiv', 'truncmod'))}({a}, {b})"
            return f"({a} {op} {b})"
        return f"({a} {self.pick(('+', '-', '*'))} {b})"

    def condition(self, scope: Scope, depth: int = 1, *, loads: bool = True) -> str:
        """A boolean expression."""
        dtype = self.dtype()
        a = self.number(scope, dtype, depth, loads=loads)
        b = self.number(scope, dtype, depth, loads=loads)
        text = f"{a} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {b}"
        kind = self.rng.randrange(6)
        if kind == 0:
            return f"({text} and {self.condition(scope, 0, loads=loads)})"
        if kind == 1:
            return f"({text} or {self.condition(scope, 0, loads=loads)})"
        return f"(not {text})" if kind == 2 else f"({text})"

    # the program

    def program(self) -> str:
        """The whole text."""
        rng = self.rng
        self.grid = rng.choice((1, 1, 2, 3))
        for _ in range(rng.randint(1, 3)):
            self.inputs.append(Tile(self.name("A"), self.shape(), self.dtype(), "global", False))
        for _ in range(rng.randint(1, 2)):
            shape = (self.grid, *self.shape(rng.choice((1, 2))))
            self.outputs.append(Tile(self.name("B"), shape, self.dtype(), "global"))
        params = ", ".join(
            f'{t.name}: T.Tensor({t.shape}, "{t.dtype}")' for t in (*self.inputs, *self.outputs)
        )
        self.line("@T.prim_func")
        self.line(f"def main({params}):")
        self._depth = 1
        threads = rng.choice((1, 16, 32, 48, 128))
        self.line(f"with T.Kernel({self.grid}, threads={threads}) as bx:")
        self._depth = 2
        scope = Scope(list(self.inputs), {"bx": self.grid})
        for _ in range(rng.randint(1, 3)):
            self.allocate(scope)
        while self.budget > 0:
            self.statement(scope)
        for tile in self.outputs:
            self.publish(scope, tile)
        return "\n".join(self.lines) + "\n"

    def allocate(self, scope: Scope) -> Tile:
        """A new on-chip buffer, filled."""
        kind = str(self.pick(("shared", "fragment", "fragment", "local")))
        tile = Tile(self.name("t"), self.shape(), self.dtype(), kind)
        self.line(f'{tile.name} = T.alloc_{kind}({tile.shape}, "{tile.dtype}")')
        self.line(f"T.fill({tile.name}, {self.literal(tile.dtype)})")
        scope.tiles.append(tile)
        return tile

    def on_chip(self, scope: Scope, *, local: bool = True) -> list[Tile]:
        """Buffers that may be written."""
        return [t for t in scope.tiles if t.scope != "global" and (local or t.scope != "local")]

    def statement(self, scope: Scope) -> None:
        """One random statement with everything in it."""
        self.budget -= 1
        options = [
            self.allocate, self.parallel, self.parallel, self.parallel, self.copy, self.copy,
            self.fill, self.reduction, self.gemm, self.let, self.variable, self.assign,
            self.atomic, self.scalar_store,
        ]  # fmt: skip
        if self._depth < 5:
            options += [self.loop, self.loop, self.branch, self.while_loop]
        self.rng.choice(options)(scope)

    def block(self, scope: Scope, count: int) -> None:
        """Statements one level deeper."""
        self._depth += 1
        mark = len(self.lines)
        for _ in range(count):
            self.statement(scope)
        if len(self.lines) == mark:
            self.line("pass")
        self._depth -= 1

    def loop(self, scope: Scope) -> None:
        """A sequential loop of some kind."""
        name, trips = self.name("i"), self.rng.choice((0, 1, 2, 3, 5))
        kind = self.pick(("serial", "range", "unroll", "pipelined", "step"))
        header = {
            "serial": f"T.serial({trips})",
            "range": f"range({trips})",
            "unroll": f"T.unroll({trips})",
            "pipelined": f"T.Pipelined({trips}, num_stages={self.rng.randint(0, 3)})",
            "step": f"range({2 * trips - 2}, -1, -2)" if trips else "range(0)",
        }[str(kind)]
        self.line(f"for {name} in {header}:")
        inner = scope.inner()
        inner.loops[name] = max(trips if kind != "step" else 2 * trips - 1, 1)
        self.block(inner, self.rng.randint(1, 3))

    def branch(self, scope: Scope) -> None:
        """An if on a value that is the same for the whole block."""
        self.line(f"if {self.condition(scope)}:")
        self.block(scope.inner(), self.rng.randint(1, 2))
        if self.rng.random() < 0.5:
            self.line("else:")
            self.block(scope.inner(), self.rng.randint(1, 2))

    def while_loop(self, scope: Scope) -> None:
        """A while loop that ends."""
        counter = self.name("n")
        self.line(f'{counter} = T.alloc_var("int32", init=0)')
        self.line(f"while {counter} < {self.rng.randint(0, 4)}:")
        self._depth += 1
        self.line(f"{counter} += 1")
        if self.rng.random() < 0.3:
            self.line(f"if {self.condition(scope)}:")
            self.line(f"{_INDENT}{self.pick(('break', 'continue'))}")
        self._depth -= 1
        self.block(scope.inner(), self.rng.randint(1, 2))

    def parallel(self, scope: Scope) -> None:
        """An elementwise nest that writes one buffer, each iteration its own element."""
        targets = self.on_chip(scope, local=False)
        if not targets:
            return
        tile = self.rng.choice(targets)
        names = [self.name("p") for _ in tile.shape]
        limits = [self.rng.choice((e, e, max(e - 1, 0))) for e in tile.shape]
        self.line(f"for {', '.join(names)} in T.Parallel({', '.join(map(str, limits))}):")
        inner = scope.inner()
        # Its own element may be read; any other element of the buffer belongs to somebody else.
        inner.tiles = [t for t in inner.tiles if t is not tile and t.scope != "local"]
        inner.loops.update({n: max(e, 1) for n, e in zip(names, limits, strict=True)})
        own = f"{tile.name}[{', '.join(names)}]"
        self._depth += 1
        if self.rng.random() < 0.4:
            name, dtype = self.name("x"), self.dtype()
            self.line(f"{name} = {self.number(inner, dtype)}")
            inner.lets[name] = dtype
        if self.rng.random() < 0.3:
            total = self.name("s")
            self.line(f'{total} = T.alloc_var("{tile.dtype}", init={self.literal(tile.dtype)})')
            step = self.name("k")
            self.line(f"for {step} in T.serial({self.rng.randint(0, 4)}):")
            deeper = inner.inner()
            deeper.loops[step] = 4
            update = self.number(deeper, tile.dtype, 1)
            self.line(f"{_INDENT}{total} = {total} + {update}")
            inner.variables[total] = tile.dtype
        value = self.number(inner, tile.dtype)
        if self.rng.random() < 0.4:
            value = f"{own} + {value}"
        if self.rng.random() < 0.3:
            self.line(f"if {self.condition(inner)}:")
            self.line(f"{_INDENT}{own} = {value}")
        else:
            self.line(f"{own} = {value}")
        self._depth -= 1

    def copy(self, scope: Scope) -> None:
        """A tile copy between regions of one shape."""
        targets = self.on_chip(scope)
        if not targets:
            return
        dst = self.rng.choice(targets)
        sources = [t for t in scope.tiles if t is not dst and len(t.shape) == len(dst.shape)]
        if not sources:
            return
        src = self.rng.choice(sources)
        left, right = [], []
        for a, b in zip(src.shape, dst.shape, strict=True):
            size = self.rng.randint(1, min(a, b))
            left.append(self.slice(a, size))
            right.append(self.slice(b, size))
        self.line(f"T.copy({src.name}[{', '.join(left)}], {dst.name}[{', '.join(right)}])")

    def slice(self, extent: int, size: int) -> str:
        """A slice of a size inside an extent."""
        start = self.rng.randint(0, extent - size)
        return f"{start}:{start + size}"

    def fill(self, scope: Scope) -> None:
        """A fill of a buffer or a part of it."""
        targets = self.on_chip(scope)
        if targets:
            tile = self.rng.choice(targets)
            part = [self.slice(e, self.rng.randint(1, e)) for e in tile.shape]
            where = self.pick((tile.name, f"{tile.name}[{', '.join(part)}]"))
            self.line(f"T.fill({where}, {self.literal(tile.dtype)})")

    def tame(self, tile: Tile) -> None:
        """Make a float buffer hold small integers, so that any order of a sum is exact."""
        if tile.dtype in FLOATS:
            names = [self.name("q") for _ in tile.shape]
            at = f"{tile.name}[{', '.join(names)}]"
            self.line(f"for {', '.join(names)} in T.Parallel({', '.join(map(str, tile.shape))}):")
            inner = f"T.trunc(T.clamp({at}, -4, 4))"
            self.line(f"{_INDENT}{at} = T.if_then_else({at} == {at}, {inner}, 1)")

    def reduction(self, scope: Scope) -> None:
        """A reduction of a fragment or shared buffer along a dimension."""
        sources = [t for t in self.on_chip(scope, local=False) if len(t.shape) > 1]
        if not sources:
            return
        src = self.rng.choice(sources)
        dim = self.rng.randrange(len(src.shape))
        kinds = ["sum", "abssum", "max", "min", "absmax"]
        if src.dtype in INTS:
            kinds += ["bitand", "bitor", "bitxor"]
        kind = str(self.pick(kinds))
        shape = list(src.shape)
        if self.rng.random() < 0.5:
            shape[dim] = 1
        else:
            del shape[dim]
        dtype = (
            src.dtype if self.rng.random() < 0.7 else ("int64" if src.dtype in INTS else "float32")
        )
        dst = Tile(self.name("r"), tuple(shape), dtype, "fragment")
        self.line(f'{dst.name} = T.alloc_fragment({dst.shape}, "{dtype}")')
        self.line(f"T.fill({dst.name}, {self.literal(dtype)})")
        if kind in ("sum", "abssum"):
            self.tame(src)
        clear = "" if kind == "abssum" else f", clear={self.rng.random() < 0.7}"
        self.line(f"T.reduce_{kind}({src.name}, {dst.name}, dim={dim}{clear})")
        scope.tiles.append(dst)

    def gemm(self, scope: Scope) -> None:
        """A matrix product of fresh tiles."""
        m, n, k = (self.rng.choice((1, 3, 4, 8, 16, 17)) for _ in range(3))
        dtype = str(self.pick(("float16", "float32", "int8", "bfloat16", "float64")))
        acc = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
        flags = [self.rng.random() < 0.5 for _ in range(3)]
        shapes = ((k, m) if flags[0] else (m, k), (n, k) if flags[1] else (k, n), (m, n))
        tiles = []
        for shape, kind, scope_name in zip(
            shapes, (dtype, dtype, acc), ("shared", "shared", "fragment"), strict=True
        ):
            tile = Tile(self.name("g"), shape, kind, scope_name)
            self.line(f'{tile.name} = T.alloc_{scope_name}({shape}, "{kind}")')
            self.line(f"T.fill({tile.name}, {self.literal(kind)})")
            tiles.append(tile)
        for tile in tiles[:2]:
            names = (self.name("q"), self.name("q"))
            self.line(f"for {', '.join(names)} in T.Parallel({tile.shape[0]}, {tile.shape[1]}):")
            self.line(
                f"{_INDENT}{tile.name}[{', '.join(names)}] = "
                f"({names[0]} * 3 + {names[1]} * 5 + bx) % 7 - 3"
            )
        text = [t for t, on in (("transpose_A=True", flags[0]), ("transpose_B=True", flags[1]),
                                ("clear_accum=True", flags[2])) if on]  # fmt: skip
        self.line(f"T.gemm({', '.join([*(t.name for t in tiles), *text])})")
        scope.tiles += tiles

    def let(self, scope: Scope) -> None:
        """A scalar let; sometimes of a name that is bound already."""
        dtype = self.dtype()
        old = [n for n in scope.lets if self._depth == 2 and n not in self.fixed]
        name = self.rng.choice(old) if old and self.rng.random() < 0.4 else self.name("v")
        self.line(f"{name} = {self.number(scope, dtype)}")
        scope.lets[name] = dtype

    def variable(self, scope: Scope) -> None:
        """A mutable scalar."""
        name, dtype = self.name("m"), self.dtype()
        self.line(f'{name} = T.alloc_var("{dtype}", init={self.number(scope, dtype, 1)})')
        scope.variables[name] = dtype

    def assign(self, scope: Scope) -> None:
        """A store to a mutable scalar."""
        if scope.variables:
            name = str(self.pick(scope.variables))
            dtype = scope.variables[name]
            op = self.pick(("=", "+=", "-=", "*="))
            self.line(f"{name} {op} {self.number(scope, dtype)}")

    def scalar_store(self, scope: Scope) -> None:
        """One element written outside of a parallel nest."""
        targets = self.on_chip(scope)
        if targets:
            tile = self.rng.choice(targets)
            at = ", ".join(self.index(scope, e, inside=True) for e in tile.shape)
            self.line(f"{tile.name}[{at}] = {self.number(scope, tile.dtype)}")

    def atomic(self, scope: Scope) -> None:
        """Atomic additions of integers, in any order the same."""
        targets = [t for t in self.on_chip(scope, local=False) if t.dtype in ("int32", "uint32")]
        if targets:
            tile = self.rng.choice(targets)
            name, trips = self.name("p"), self.rng.randint(0, 9)
            self.line(f"for {name} in T.Parallel({trips}):")
            inner = scope.inner()
            inner.loops = {name: max(trips, 1)}
            inner.tiles = [t for t in inner.tiles if t is not tile and t.scope != "local"]
            at = ", ".join(self.index(inner, e, inside=True) for e in tile.shape)
            value = self.number(inner, tile.dtype, 1)
            self.line(f"{_INDENT}T.atomic_add({tile.name}[{at}], {value})")

    def publish(self, scope: Scope, tile: Tile) -> None:
        """Write a block's slice of an output."""
        names = [self.name("o") for _ in tile.shape[1:]]
        self.line(f"for {', '.join(names)} in T.Parallel({', '.join(map(str, tile.shape[1:]))}):")
        inner = scope.inner()
        inner.tiles = [t for t in inner.tiles if t.scope != "local"]
        inner.loops.update(zip(names, tile.shape[1:], strict=True))
        value = self.number(inner, tile.dtype, 3)
        self.line(f"{_INDENT}{tile.name}[bx, {', '.join(names)}] = {value}")


def random_program(seed: int, size: int = 14) -> str:
    """The text of random program number `seed`; it defines a prim_func called ``main``."""
    return Generator(seed, size).program()
