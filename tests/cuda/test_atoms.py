"""The matrix instructions as data, and gemms that use them in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_programs import check_gemm, inputs, lowered

from tilec import ir
from tilec.interp import run
from tilec.layout import Fragment
from tilec_cuda.arch import Arch
from tilec_cuda.atoms import matrix_atoms
from tilec_cuda.capabilities import capabilities

ARCHES = ("sm_75", "sm_80", "sm_89", "sm_90a")
ATOMS = {a.name: a for arch in ARCHES for a in matrix_atoms(arch)}
WARP_ATOMS = [a for a in ATOMS.values() if a.lanes == 32]


@pytest.mark.parametrize("name", ATOMS)
def test_fragments_cover_every_element_once(name: str) -> None:
    atom = ATOMS[name]
    shapes = ((atom.m, atom.k), (atom.n, atom.k), (atom.m, atom.n))
    for layout, shape, home in zip(atom.layouts, shapes, atom.homes, strict=True):
        assert (layout is None) is (home == "shared")
        if layout is None:
            continue
        assert isinstance(layout, Fragment)
        assert layout.input_shape == shape
        assert layout.is_complete
        assert layout.is_balanced
        assert layout.thread_extent == atom.lanes
        assert layout.register_extent * atom.lanes == shape[0] * shape[1]


@pytest.mark.parametrize(
    ("name", "operand", "element", "place"),
    [  # (lane, register), read off the figures of the PTX ISA
        ("mma_m16n8k16_f32_f16_f16", 0, (9, 11), (5, 7)),
        ("mma_m16n8k16_f32_f16_f16", 1, (3, 12), (14, 2)),
        ("mma_m16n8k16_f32_f16_f16", 2, (10, 5), (10, 3)),
        ("mma_m16n8k8_f32_tf32_tf32", 0, (12, 6), (18, 3)),
        ("mma_m16n8k32_s32_s8_s8", 0, (8, 21), (1, 13)),
        ("mma_m16n8k32_s32_s8_s8", 1, (7, 30), (31, 6)),
        ("mma_m8n8k4_f64_f64_f64", 1, (5, 2), (22, 0)),
        ("mma_m8n8k16_s32_s8_s8", 2, (6, 7), (27, 1)),
        ("wgmma_m64n16k16_f32_f16_f16", 2, (41, 13), (70, 7)),
    ],
)
def test_fragments_are_those_of_the_manual(
    name: str, operand: int, element: tuple[int, int], place: tuple[int, int]
) -> None:
    layout = ATOMS[name].layouts[operand]
    assert (layout.map_forward_thread(element), layout.map_forward_index(element)) == place


@pytest.mark.parametrize("atom", WARP_ATOMS, ids=lambda a: a.name)
def test_an_instruction_multiplies(atom: object) -> None:
    """Registers filled by the tables, one instruction, and the result read by the tables."""
    m, n, k = atom.m, atom.n, atom.k
    shapes = {"A": (m, k), "B": (n, k), "C": (m, n)}
    types = {"A": atom.a_dtype, "B": atom.b_dtype, "C": atom.accumulator}
    tensors = {x: ir.Buffer(x, s, ir.DType(types[x])) for x, s in shapes.items()}
    threads = tuple(ir.Var(t, ir.DType("int32")) for t in ("tx", "ty", "tz"))
    body: list[ir.Stmt] = []
    regions, after = {}, []
    for (x, tensor), layout in zip(tensors.items(), atom.layouts, strict=True):
        regs = ir.Buffer(f"{x}_regs", (layout.register_extent,), tensor.dtype, ir.LOCAL)
        regions[x] = regs.region()
        body.append(ir.Alloc(regs))
        for index in np.ndindex(*tensor.shape):
            at = tuple(map(ir.as_expr, index))
            register = (ir.as_expr(int(layout.register_table[(*index, 0)])),)
            mine = threads[0] == int(layout.thread_table[(*index, 0)])
            body.append(ir.If(mine, ir.Store(regs, register, ir.Load(tensor, at, tensor.dtype))))
            if x == "C":
                load = ir.Load(regs, register, regs.dtype)
                after.append(ir.If(mine, ir.Store(tensor, at, load)))
    args = (regions["C"], regions["A"], regions["B"])
    call = ir.Call("mma", args, ir.DType("int32"), {"atom": atom})
    one = ir.Const(1, ir.DType("int32"))
    launch = ir.Launch(
        (ir.Var("bx", ir.DType("int32")),), (one,), threads, (32, 1, 1), {"warp": 32},
        ir.seq(*body, ir.Evaluate(call), *after),
    )  # fmt: skip
    func = ir.PrimFunc("one", tuple(tensors.values()), launch)
    rng = np.random.default_rng(3)
    a, b, c = (inputs(shapes[x], types[x], rng) for x in "ABC")
    expected = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T
    run(func, a, b, c, check=True, form="thread")
    np.testing.assert_array_equal(c.astype(np.float64), expected)


@pytest.mark.parametrize("swapped", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(
    ("arch", "dtypes"),
    [
        ("sm_80", ("float16", "float32")),
        ("sm_80", ("float16", "float16")),
        ("sm_80", ("bfloat16", "float32")),
        ("sm_80", ("tfloat32", "float32")),
        ("sm_80", ("float64", "float64")),
        ("sm_80", ("int8", "int32")),
        ("sm_89", ("float8_e4m3", "float32")),
        ("sm_75", ("float16", "float32")),
        ("sm_75", ("uint8", "int32")),
    ],
)
def test_gemms(arch: str, dtypes: tuple[str, str], swapped: tuple[bool, bool]) -> None:
    notes = check_gemm(
        capabilities(Arch.parse(arch)), (48, 32, 64), (48, 32, 32), dtypes, swapped, threads=64
    )
    assert "T.gemm: matrix instructions" in notes


@pytest.mark.parametrize("policy", [0, 1, 2])
@pytest.mark.parametrize(
    ("block", "threads"),
    [((16, 8, 16), 128), ((64, 64, 32), 128), ((48, 40, 16), 96), ((32, 128, 32), 256)],
)
def test_partitions(block: tuple[int, int, int], threads: int, policy: int) -> None:
    check_gemm(
        capabilities(Arch.parse("sm_80")), block, block, ("float16", "float32"),
        (False, True), threads, policy=policy,
    )  # fmt: skip


def test_what_is_no_multiple_is_multiplied_all_the_same() -> None:
    caps = capabilities(Arch.parse("sm_80"))
    notes = check_gemm(caps, (24, 20, 10), (24, 20, 10), ("float16", "float32"))
    assert "T.gemm: multiply-add" in notes
    assert any("no multiple" in n for n in notes) or "T.gemm: matrix instructions" not in notes


def test_float32_is_never_rounded() -> None:
    notes = check_gemm(
        capabilities(Arch.parse("sm_90a")), (64, 64, 32), (64, 64, 32), ("float32", "float32")
    )
    assert "T.gemm: multiply-add" in notes


def test_accumulators_become_operands_in_registers() -> None:
    import tilec.language as T  # noqa: PLC0415

    @T.prim_func
    def program(
        Q: T.Tensor((64, 32), "float16"),
        K: T.Tensor((32, 32), "float16"),
        V: T.Tensor((32, 16), "float16"),
        O: T.Tensor((64, 16), "float32"),  # noqa: E741
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 32), "float16")
            k = T.alloc_shared((32, 32), "float16")
            v = T.alloc_shared((32, 16), "float16")
            s = T.alloc_fragment((64, 32), "float32")
            p = T.alloc_fragment((64, 32), "float16")
            o = T.alloc_fragment((64, 16), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.clear(s)
            T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(s, p)
            T.gemm(p, v, o, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(o, O)

    func, notes = lowered(program, capabilities(Arch.parse("sm_80")))
    assert notes.count("T.gemm: matrix instructions") == 2
    assert not any("shared memory" in n for n in notes)
    rng = np.random.default_rng(5)
    q, k, v = (rng.integers(-2, 3, s).astype("float16") for s in ((64, 32), (32, 32), (32, 16)))
    o = np.zeros((64, 16), "float32")
    run(func, q, k, v, o, check=True, form="thread")
    wide = [x.astype("float32") for x in (q, k, v)]
    np.testing.assert_array_equal(o, wide[0] @ wide[1].T @ wide[2])
