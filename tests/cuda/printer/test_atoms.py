"""Every matrix instruction of the table is printed with the registers that its layouts say."""

from __future__ import annotations

import random

import pytest
from cuda_programs import ARCHES, check_compiles, const, effect, loop, split
from intrinsic_cases import buffer

from tilec import ir
from tilec.backend import MatrixAtom

atoms = pytest.importorskip("tilec_cuda.atoms")
WARP = [
    (arch, number)
    for arch in ("sm_75", *ARCHES)
    for number, atom in enumerate(atoms.matrix_atoms(arch))
    if atom.lanes == 32
]


def program(atom: MatrixAtom) -> ir.Module:
    """One instruction on registers that come from memory."""
    dtypes = (atom.accumulator, atom.a_dtype, atom.b_dtype)
    layouts = (atom.layouts[2], atom.layouts[0], atom.layouts[1])
    counts = [layout.register_extent for layout in layouts]
    held = [
        buffer(f"r{n}", c, d, ir.LOCAL) for n, (c, d) in enumerate(zip(counts, dtypes, strict=True))
    ]
    given = [
        buffer(f"in{n}", (32, c), d) for n, (c, d) in enumerate(zip(counts, dtypes, strict=True))
    ]

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        regions = [ir.BufferRegion(r, (const(0),), r.shape) for r in held]
        fills = [
            loop(r.shape[0], lambda i, r=r, g=g: ir.Store(r, (i,), g[tx, i]), "unroll")
            for r, g in zip(held, given, strict=True)
        ]
        back = loop(counts[0], lambda i: ir.Store(given[0], (tx, i), held[0][i]), "unroll")
        return ir.seq(*map(ir.Alloc, held), *fills, effect("mma", *regions, atom=atom), back)

    return split(body, given, threads=(32,))


def check(arch: str, number: int) -> None:
    check_compiles(program(atoms.matrix_atoms(arch)[number]), arch)


@pytest.mark.parametrize(("arch", "number"), random.Random(3).sample(WARP, 16))
def test_compiles(arch: str, number: int) -> None:
    check(arch, number)


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "number"), WARP)
def test_compiles_everywhere(arch: str, number: int) -> None:
    check(arch, number)
