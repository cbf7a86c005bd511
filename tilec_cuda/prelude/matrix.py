"""Matrix instructions and the moves of their operands."""

from __future__ import annotations

import re

from tilec_cuda.prelude.base import DEVICE, Piece, function

_MOVE = re.compile(r"(ldmatrix|stmatrix)_x([124])(_trans)?\Z")
_MMA = re.compile(r"mma_m(\d+)n(\d+)k(\d+)_([a-z0-9]+)_([a-z0-9]+)_([a-z0-9]+)\Z")
_GROUP = re.compile(
    r"wgmma_m64n(\d+)k(\d+)_([a-z0-9]+)_([a-z0-9]+)_([a-z0-9]+)(_ra)?(_ta)?(_tb)?\Z"
)
WIDTH = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8,
    "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4,
}  # fmt: skip


def make(name: str) -> Piece | None:
    """The piece of that name, or None."""
    if name in _FIXED:
        return _FIXED[name]
    move = _MOVE.match(name)
    if move is not None:
        return _move(name, move[1], int(move[2]), move[3] is not None)
    mma = _MMA.match(name)
    if mma is not None:
        return _mma(name, (int(mma[1]), int(mma[2]), int(mma[3])), mma[4], mma[5], mma[6])
    group = _GROUP.match(name)
    if group is None:
        return None
    return _group(name, int(group[1]), int(group[2]), group.groups()[2:5], group.groups()[5:])


_FIXED: dict[str, Piece] = {
    "matrix_descriptor": Piece(
        function("uint64_t", "matrix_descriptor", "const void *p, uint64_t form",
                 "return form | (tilec_shared_address(p) & 0x3ffff) >> 4;"),
        ("shared_address",),
    ),
}  # fmt: skip


def _move(name: str, what: str, count: int, transposed: bool) -> Piece:
    trans = ".trans" if transposed else ""
    if what == "ldmatrix":
        registers = ", ".join(f"%{i}" for i in range(count))
        outputs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
        text = (
            f"{DEVICE} void tilec_{name}(uint32_t *r, const void *p) {{\n"
            f'  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 '
            f'{{{registers}}}, [%{count}];"\n'
            f"               : {outputs}\n"
            '               : "r"(tilec_shared_address(p)) : "memory");\n}\n'
        )
    else:
        registers = ", ".join(f"%{i + 1}" for i in range(count))
        inputs = ", ".join(f'"r"(r[{i}])' for i in range(count))
        text = (
            f"{DEVICE} void tilec_{name}(void *p, const uint32_t *r) {{\n"
            f'  asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], '
            f'{{{registers}}};"\n'
            f'               : : "r"(tilec_shared_address(p)), {inputs} : "memory");\n}}\n'
        )
    return Piece(text, ("shared_address",))


def _kind(suffix: str) -> tuple[str, str]:
    """C type and constraint of a register of operands of a type."""
    return {"f64": ("double", "d"), "f32": ("float", "f")}.get(suffix, ("uint32_t", "r"))


def registers(elements: int, lanes: int, suffix: str) -> int:
    """Registers of one lane."""
    width = WIDTH[suffix]
    return max(1, elements // lanes * width // max(32, width))


def _mma(name: str, shape: tuple[int, int, int], acc: str, a: str, b: str) -> Piece:
    m, n, k = shape
    counts = registers(m * n, 32, acc), registers(m * k, 32, a), registers(n * k, 32, b)
    (ct, cc), (at, ac), (bt, bc) = _kind(acc), _kind(a), _kind(b)
    first = [0, counts[0], counts[0] + counts[1]]
    lists = [
        "{" + ", ".join(f"%{f + i}" for i in range(c)) + "}"
        for f, c in zip(first, counts, strict=True)
    ]
    outputs = ", ".join(f'"+{cc}"(c[{i}])' for i in range(counts[0]))
    inputs = ", ".join(
        [f'"{ac}"(a[{i}])' for i in range(counts[1])]
        + [f'"{bc}"(b[{i}])' for i in range(counts[2])]
    )
    text = (
        f"{DEVICE} void tilec_{name}({ct} *c, const {at} *a, const {bt} *b) {{\n"
        f'  asm volatile("mma.sync.aligned.m{m}n{n}k{k}.row.col.{acc}.{a}.{b}.{acc}"\n'
        f'               " {lists[0]}, {lists[1]}, {lists[2]}, {lists[0]};"\n'
        f"               : {outputs}\n"
        f"               : {inputs});\n}}\n"
    )
    return Piece(text)


def _group(
    name: str, n: int, k: int, types: tuple[str, ...], flags: tuple[str | None, ...]
) -> Piece:
    """The asynchronous instruction of four warps; `more` says whether it adds to C."""
    acc, a, b = types
    from_registers, ta, tb = (flag is not None for flag in flags)
    count = registers(64 * n, 128, acc)
    kind, constraint = _kind(acc)
    outputs = [f'"+{constraint}"(c[{i}])' for i in range(count)]
    place = count
    if from_registers:
        own = registers(64 * k, 128, a)
        param = "const uint32_t *a"
        left = "{" + ", ".join(f"%{place + i}" for i in range(own)) + "}"
        inputs = [f'"r"(a[{i}])' for i in range(own)]
        place += own
    else:
        param, left = "uint64_t a", f"%{place}"
        inputs = ['"l"(a)']
        place += 1
    inputs += ['"l"(b)', '"r"(more)']
    signs = ", 1, 1" if acc in ("f32", "f16") else ""
    if WIDTH[a] == 16:
        signs += ("" if from_registers else f", {int(ta)}") + f", {int(tb)}"
    c_list = _lines([f"%{i}" for i in range(count)])
    text = (
        f"{DEVICE} void tilec_{name}({kind} *c, {param}, uint64_t b, uint32_t more) {{\n"
        '  asm volatile("{ .reg .pred p; '
        f'setp.ne.b32 p, %{place + 1}, 0;"\n'
        f'               " wgmma.mma_async.sync.aligned.m64n{n}k{k}.{acc}.{a}.{b}"\n'
        f'               " {{{c_list}}},"\n'
        f'               " {left}, %{place}, p{signs}; }}"\n'
        f"               : {_lines(outputs, quoted=False)}\n"
        f"               : {', '.join(inputs)});\n}}\n"
    )
    return Piece(text)


def _lines(items: list[str], *, quoted: bool = True) -> str:
    """A long list, eight items a line; within a string literal if `quoted`."""
    rows = [", ".join(items[i : i + 8]) for i in range(0, len(items), 8)]
    return (',"\n               "   ' if quoted else ",\n                 ").join(rows)
