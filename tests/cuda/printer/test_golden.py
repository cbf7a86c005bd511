"""The text of a few kernels, whole: what a reader of generated code sees.

After a change run `pytest tests/cuda/printer --update-golden` and read the difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cuda_programs import INT32, check_compiles, const, effect, loop, source, split
from intrinsic_cases import cases, group_mma
from vector_cases import cases as vector_cases, module

from tilec import ir
from tilec.diagnostics import Span
from tilec.ir import DType

GOLDEN = Path(__file__).parent / "golden"


def dynamic_rows() -> ir.Module:
    """Rows of a tensor with two extents and a stride that are known at run time only."""
    n, stride, scale = (
        ir.Var("n", INT32),
        ir.Var("stride", INT32),
        ir.Var("scale", DType("float32")),
    )
    a = ir.Buffer("A", (n, 64), DType("float16"), ir.GLOBAL, (stride, 1))
    out = ir.Buffer("out", (n, 64), DType("float32"))

    def body(bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        row = bx * 4 + tx // 32
        store = ir.Store(out, (row, tx % 32 * 2), ir.cast(a[row, tx % 32 * 2], "float32") * scale)
        return ir.If(row < n, store)

    return split(body, [a, out, n, scale], grid=(n + 3) // 4)


def block_sum() -> ir.Module:
    """A sum over a block: registers, shuffles, shared memory, a barrier."""
    a = ir.Buffer("A", (64, 1024), DType("float32"))
    out = ir.Buffer("out", (64,), DType("float32"))
    acc = ir.Buffer("acc", (1,), DType("float32"), ir.LOCAL_VAR)
    parts = ir.Buffer("parts", (4,), DType("float32"), ir.SHARED)

    def body(bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        def add(value: Any) -> ir.Stmt:
            return ir.Store(acc, (const(0),), acc[0] + value)

        steps = [
            add(ir.Call("shfl_xor", (acc[0], const(m), const(32)), acc.dtype))
            for m in (16, 8, 4, 2, 1)
        ]
        return ir.seq(
            ir.Alloc(parts), ir.Alloc(acc),
            loop(8, lambda i: add(a[bx, i * 128 + tx]), "unroll"),
            *steps,
            ir.If(tx % 32 == 0, ir.Store(parts, (tx // 32,), acc[0])),
            effect("sync"),
            ir.If(tx == 0, ir.Store(out, (bx,), parts[0] + parts[1] + parts[2] + parts[3])),
        )  # fmt: skip

    return split(body, [a, out], grid=64)


def special_names() -> ir.Module:
    """Names that mean something to the device compiler."""
    names = ["half", "__shared__", "threadIdx", "float4", "tilec_shared", "int8_t", "größe", "expf"]
    buffers = [ir.Buffer(name, (128,), DType("float32")) for name in names]

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        warp = ir.Var("warpSize", INT32)
        stores = [ir.Store(b, (tx,), ir.cast(warp, "float32")) for b in buffers]
        return ir.seq(ir.Bind(warp, tx // 32), *stores)

    return split(body, buffers)


def checked() -> ir.Module:
    """An assertion."""
    a = ir.Buffer("A", (128,), DType("int32"))

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        return ir.Assert(a[tx] >= 0, '100 % of "A" is positive')

    return split(body, [a])


_BY_NAME = {case.name: case for case in cases()}
_VECTORS = {case.name: case for case in vector_cases()}
KERNELS = {
    "dynamic_rows": dynamic_rows,
    "block_sum": block_sum,
    "special_names": special_names,
    "checked": checked,
    "sum_bf16": lambda: module(_VECTORS["sum-bfloat16-float32-bfloat16-8"])[0],
    "two_guards": lambda: module(_VECTORS["two-guards"])[0],
    "cp_async": _BY_NAME["cp_async-float16-8-True"].make,
    "bulk_panels": _BY_NAME["bulk-panels-128"].make,
    "wgmma": lambda: group_mma("bfloat16", "float32", 16, 32),
}


@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str, request: pytest.FixtureRequest) -> None:
    text = source(KERNELS[name]())
    golden = GOLDEN / f"{name}.cu"
    if request.config.getoption("--update-golden", default=False):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert golden.exists(), "no golden file: run pytest tests/cuda/printer --update-golden"
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", KERNELS)
def test_compiles(name: str) -> None:
    check_compiles(KERNELS[name](), "sm_90a")


def test_line_directives_lead_to_the_source() -> None:
    a = ir.Buffer("A", (128,), DType("int32"))

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        stores = [
            ir.Store(a, (tx,), ir.cast(tx, "int32"), span=Span('a "b".py', line, 1, line, 2))
            for line in (7, 7, 12)
        ]
        return ir.seq(*stores)

    made = split(body, [a])
    text = source(made, line_directives=True)
    lines = [line for line in text.splitlines() if line.startswith("#line")]
    assert lines == ['#line 7 "a \\"b\\".py"', '#line 12 "a \\"b\\".py"']
    assert [x for x in text.splitlines() if x not in lines] == source(made).splitlines()


@pytest.mark.parametrize(
    ("outer", "inner", "wanted"), [(4, 64, ""), (128, 64, " 4"), (600, 64, " 1")]
)
def test_loops_in_unrolled_loops_stay_loops(outer: int, inner: int, wanted: str) -> None:
    a, out = (ir.Buffer(n, (outer, inner), DType("float32")) for n in ("a", "out"))

    def body(_bx: ir.Var, tx: ir.Var) -> ir.Stmt:
        def row(i: Any) -> ir.Stmt:
            return loop(inner, lambda j: ir.Store(out, (i, j), a[i, j] + 1.0), name="j")

        return loop(outer, row, "unroll")

    text = source(split(body, [a, out]))
    found = [line.strip() for line in text.splitlines() if line.strip().startswith("#pragma")]
    assert found == ["#pragma unroll", *([f"#pragma unroll{wanted}"] if wanted else [])]
