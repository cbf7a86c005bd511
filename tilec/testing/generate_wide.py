"""Random programs with more of the language than `tilec.testing.generate` has.

Run-time extents and strides, numbers as arguments, grids of two dimensions, several launches,
vectorized loops, `break` in loops, tiles placed by their first element, products of slices, atomic
updates of shared and global elements and of whole tiles, lanes, and flags.
"""

from __future__ import annotations

from tilec.testing.generate import INTS, Generator, Scope, Tile

_INDENT = "    "
_DYNAMIC = 20  # run-time extents are smaller


class WideGenerator(Generator):
    """Writes one program; see `Generator`."""

    def __init__(self, seed: int, size: int = 14) -> None:
        super().__init__(seed, size)
        self._annotations: dict[str, str] = {}
        self._sizes: list[str] = []
        self._scalars: dict[str, str] = {}
        self._counters: list[tuple[Tile, str]] = []
        self._inner: dict[str, tuple[int | str, ...]] = {}
        """Extents of outputs as declared, without those of the grid."""
        self._rows = 1
        self._block = "bx"
        self._lane, self._threads = "", 1

    # the program

    def program(self) -> str:
        """The whole text."""
        rng = self.rng
        self.grid, self._rows = rng.choice((1, 2, 3)), rng.choice((1, 1, 2))
        self._sizes = [self.name("n") for _ in range(rng.choice((0, 1, 1, 2)))]
        for _ in range(rng.randint(1, 3)):
            self._input()
        for _ in range(rng.randint(1, 2)):
            self._output()
        for _ in range(rng.choice((0, 1, 1))):
            tile = Tile(
                self.name("H"), self.shape(1), str(self.pick(("int32", "uint32"))), "global"
            )
            self._declare(tile, tile.shape)
            self._counters.append((tile, str(self.pick(("add", "max", "min")))))
        for _ in range(rng.choice((0, 1, 2))):
            name = self.name("c")
            self._scalars[name] = str(self.pick(("int32", "float32", "int64", "uint8")))
            self._annotations[name] = f"T.{self._scalars[name]}"
        self.fixed.update(self._scalars)
        launches = rng.choice((1, 1, 2))
        for name in self._sizes:
            self.line(f'{name} = T.dynamic("{name}")')
        params = ", ".join(f"{name}: {text}" for name, text in self._annotations.items())
        self.line("@T.prim_func")
        self.line(f"def main({params}):")
        budget = self.budget
        for number in range(launches):
            self.budget = budget // launches
            self._launch(self.outputs[number::launches], self.outputs[:number])
        return "\n".join(self.lines) + "\n"

    def _declare(self, tile: Tile, shape: tuple[int | str, ...], strides: str = "") -> None:
        text = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
        kind = "StridedTensor" if strides else "Tensor"
        self._annotations[tile.name] = f'T.{kind}({text}, {strides}"{tile.dtype}")'

    def _extents(self, shape: tuple[int, ...]) -> tuple[int | str, ...]:
        """Some of them replaced by run-time sizes."""
        return tuple(
            self.rng.choice(self._sizes) if self._sizes and self.rng.random() < 0.4 else e
            for e in shape
        )

    def _input(self) -> None:
        tile = Tile(self.name("A"), self.shape(), self.dtype(), "global", False)
        strides = ""
        if len(tile.shape) == 2 and self.rng.random() < 0.4:
            step = self.name("d")
            self.line(f'{step} = T.dynamic("{step}")')
            strides = f"({step}, 1), "
        self._declare(tile, self._extents(tile.shape), strides)
        self.inputs.append(tile)

    def _output(self) -> None:
        shape = self.shape(self.rng.choice((1, 2)))
        full = (self._rows, self.grid, *shape)
        tile = Tile(self.name("B"), full, self.dtype(), "global")
        declared = self._extents(shape)
        self._declare(tile, (self._rows, self.grid, *declared))
        self._inner[tile.name] = declared
        self.outputs.append(tile)

    def _launch(self, outputs: list[Tile], earlier: list[Tile]) -> None:
        """One kernel; what earlier ones wrote may be read."""
        rng = self.rng
        self._depth = 1
        threads = rng.choice((1, 16, 32, 48, 128))
        bx, by = self.name("bx"), self.name("by")
        self.line(f"with T.Kernel({self.grid}, {self._rows}, threads={threads}) as ({bx}, {by}):")
        self._depth = 2
        self._block = bx
        scope = Scope([*self.inputs, *earlier], {bx: self.grid, by: self._rows})
        scope.lets.update(self._scalars)
        used = " ".join(self._annotations.values())
        for name in self._sizes:
            if name in used:
                scope.loops[name] = _DYNAMIC
        self._lane, self._threads = "", threads
        if rng.random() < 0.3:
            self._lane = self.name("tx")
            self.line(f"{self._lane} = T.get_thread_binding()")
        for _ in range(rng.randint(1, 3)):
            self.allocate(scope)
        while self.budget > 0:
            self.statement(scope)
        for tile in outputs:
            names = [self.name("o") for _ in tile.shape[2:]]
            extents = ", ".join(map(str, self._inner[tile.name]))
            self.line(f"for {', '.join(names)} in T.Parallel({extents}):")
            inner = scope.inner()
            inner.tiles = [t for t in inner.tiles if t.scope != "local" and t is not tile]
            inner.loops.update(dict.fromkeys(names, _DYNAMIC + 20))
            value = self.number(inner, tile.dtype, 3)
            self.line(f"{_INDENT}{tile.name}[{by}, {bx}, {', '.join(names)}] = {value}")
        self._depth = 0

    def statement(self, scope: Scope) -> None:
        """One random statement; every third is of a kind that only this class has."""
        if self.rng.random() < 0.65:
            super().statement(scope)
            return
        self.budget -= 1
        options = [
            self.vectorized, self.placed_copy, self.sliced_gemm, self.global_atomic,
            self.shared_atomic, self.tile_atomic, self.lane_store, self.lane_store, self.flag,
            self.bit_reduction, self.reduction, self.let,
        ]  # fmt: skip
        if self._depth < 5:
            options += [self.run_time_loop, self.broken_loop]
        self.rng.choice(options)(scope)

    def gemm(self, scope: Scope) -> None:
        """As in the base class, whose program calls its block index bx."""
        mark = len(self.lines)
        super().gemm(scope)
        self.lines[mark:] = [
            line.replace(" + bx)", f" + {self._block})") for line in self.lines[mark:]
        ]

    # what is new

    def vectorized(self, scope: Scope) -> None:
        """A vectorized loop over a row, each iteration its own element."""
        rows = [t for t in self.on_chip(scope, local=False) if len(t.shape) == 1]
        if not rows:
            return
        tile, name = self.rng.choice(rows), self.name("u")
        self.line(f"for {name} in T.vectorized({tile.shape[0]}):")
        inner = scope.inner()
        inner.tiles = [t for t in inner.tiles if t is not tile]
        inner.loops[name] = tile.shape[0]
        self.line(f"{_INDENT}{tile.name}[{name}] = {self.number(inner, tile.dtype)}")

    def run_time_loop(self, scope: Scope) -> None:
        """A loop whose bounds are known at run time only."""
        bounds = [n for n in scope.loops if n in self._sizes] or list(scope.loops)
        name, stop = self.name("i"), str(self.pick(bounds))
        self.line(f"for {name} in T.serial({stop} % 4, {stop} % 4 + {self.rng.randint(0, 3)}):")
        inner = scope.inner()
        inner.loops[name] = 7
        self.block(inner, self.rng.randint(1, 2))

    def broken_loop(self, scope: Scope) -> None:
        """A loop that may end early, or skip the rest of a trip."""
        name = self.name("i")
        self.line(f"for {name} in T.serial({self.rng.randint(1, 5)}):")
        inner = scope.inner()
        inner.loops[name] = 5
        self._depth += 1
        self.line(f"if {self.condition(inner)}:")
        self.line(f"{_INDENT}{self.pick(('break', 'continue'))}")
        self._depth -= 1
        self.block(inner, self.rng.randint(1, 2))

    def placed_copy(self, scope: Scope) -> None:
        """A copy of a whole tile from a place in global memory, perhaps partly outside of it."""
        pairs = [
            (a, b) for a in scope.tiles if a.scope == "global" and not a.writable
            for b in self.on_chip(scope) if len(a.shape) == len(b.shape)
        ]  # fmt: skip
        if pairs:
            src, dst = self.rng.choice(pairs)
            at = ", ".join(self.index(scope, e, inside=False) for e in src.shape)
            self.line(f"T.copy({src.name}[{at}], {dst.name})")

    def sliced_gemm(self, scope: Scope) -> None:
        """A product of slices of larger tiles."""
        m, n, k = (self.rng.choice((1, 4, 8, 16)) for _ in range(3))
        parts = []
        for rows, columns in ((m, k), (k, n)):
            tile = Tile(self.name("g"), (rows + 3, columns + 5), "float32", "shared")
            self.line(f'{tile.name} = T.alloc_shared({tile.shape}, "float32")')
            self.line(f"T.fill({tile.name}, {self.rng.randint(-2, 3)})")
            row, column = self.rng.randint(0, 3), self.rng.randint(0, 5)
            at = ", ".join(self.index(scope, e, inside=True) for e in tile.shape)
            self.line(f"{tile.name}[{at}] = {self.rng.randint(1, 5)}")
            parts.append(f"{tile.name}[{row}:{row + rows}, {column}:{column + columns}]")
            scope.tiles.append(tile)
        out = Tile(self.name("g"), (m, n), "float32", "fragment")
        self.line(f'{out.name} = T.alloc_fragment(({m}, {n}), "float32")')
        self.line(f"T.clear({out.name})")
        self.line(f"T.gemm({parts[0]}, {parts[1]}, {out.name})")
        scope.tiles.append(out)

    def global_atomic(self, scope: Scope) -> None:
        """Updates of a counter by all blocks, always of one kind."""
        if not self._counters:
            return
        tile, kind = self.rng.choice(self._counters)
        name, trips = self.name("p"), self.rng.randint(0, 9)
        self.line(f"for {name} in T.Parallel({trips}):")
        self._update(scope, tile, kind, name, trips)

    def shared_atomic(self, scope: Scope) -> None:
        """Greatest and least values of what iterations have."""
        tiles = [t for t in self.on_chip(scope, local=False) if t.dtype in ("int32", "uint32")]
        if tiles:
            name, trips = self.name("p"), self.rng.randint(0, 9)
            self.line(f"for {name} in T.Parallel({trips}):")
            tile, kind = self.rng.choice(tiles), str(self.pick(("max", "min")))
            self._update(scope, tile, kind, name, trips)

    def _update(self, scope: Scope, tile: Tile, kind: str, name: str, trips: int) -> None:
        inner = scope.inner()
        inner.loops = {name: max(trips, 1)}
        inner.tiles = [t for t in inner.tiles if t is not tile and t.scope != "local"]
        at = ", ".join(self.index(inner, e, inside=True) for e in tile.shape)
        value = self.number(inner, tile.dtype, 1)
        self.line(f"{_INDENT}T.atomic_{kind}({tile.name}[{at}], {value})")

    def tile_atomic(self, scope: Scope) -> None:
        """A whole tile added to a counter."""
        counters = [t for t, kind in self._counters if kind == "add"]
        if counters:
            tile = self.rng.choice(counters)
            part = Tile(self.name("t"), tile.shape, tile.dtype, "fragment")
            self.line(f'{part.name} = T.alloc_fragment({part.shape}, "{part.dtype}")')
            self.line(f"T.fill({part.name}, {self.literal(part.dtype)})")
            self.line(f"T.atomic_add({tile.name}, {part.name})")
            scope.tiles.append(part)

    def lane_store(self, scope: Scope) -> None:
        """Lanes that write elements of their own."""
        rows = [t for t in self.on_chip(scope, local=False) if len(t.shape) == 1]
        rows = [t for t in rows if t.scope == "shared"]
        if not self._lane or not rows:
            return
        tile = self.rng.choice(rows)
        inner = scope.inner()
        inner.tiles = [t for t in inner.tiles if t is not tile and t.scope == "shared"]
        inner.loops[self._lane] = self._threads
        self.line(f"if {self._lane} < {min(tile.shape[0], self._threads)}:")
        self.line(f"{_INDENT}{tile.name}[{self._lane}] = {self.number(inner, tile.dtype)}")

    def bit_reduction(self, scope: Scope) -> None:
        """A reduction of bits of a fresh tile."""
        dtype, shape = str(self.pick(INTS)), self.shape(2)
        src = Tile(self.name("t"), shape, dtype, "shared")
        self.line(f'{src.name} = T.alloc_shared({shape}, "{dtype}")')
        self.line(f"T.fill({src.name}, {self.literal(dtype)})")
        at = ", ".join(self.index(scope, e, inside=True) for e in shape)
        self.line(f"{src.name}[{at}] = {self.number(scope, dtype)}")
        dst = Tile(self.name("r"), shape[:1], dtype, "fragment")
        self.line(f'{dst.name} = T.alloc_fragment({dst.shape}, "{dtype}")')
        kind = self.pick(("bitand", "bitor", "bitxor"))
        self.line(f"T.reduce_{kind}({src.name}, {dst.name}, dim=1)")
        scope.tiles += [src, dst]

    def flag(self, scope: Scope) -> None:
        """A condition that has a name, and a choice by it."""
        name = self.name("f")
        self.line(f"{name} = {self.condition(scope)}")
        dtype = str(self.pick(INTS))
        chosen = self.name("v")
        a, b = (self.number(scope, dtype, 1) for _ in range(2))
        self.line(f"{chosen} = T.if_then_else({name}, {a}, {b})")
        scope.lets[chosen] = dtype


def wide_program(seed: int, size: int = 14) -> str:
    """The text of wide random program number `seed`; it defines a prim_func called ``main``."""
    return WideGenerator(seed, size).program()
