"""The contenders of `cpu.py`. Each builder gives a call and, for tilec, the error of its result."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

Call = Callable[[], object]
Builder = Callable[[int], tuple[Call, float]]


@dataclass(frozen=True)
class Case:
    """One comparison; the first contender is tilec.

    Attributes:
        title: as it stands in the table.
        work: floating point operations or bytes of one call, and the unit of their rate.
        contenders: builders by name; they get the number of threads.
        tolerance: largest relative error of tilec's result.
    """

    title: str
    work: tuple[float, str]
    contenders: dict[str, Builder]
    tolerance: float = 1e-5

    def available(self) -> bool:
        return "torch" not in self.contenders or importlib.util.find_spec("torch") is not None


def _error(actual: Any, expected: np.ndarray) -> float:
    difference = np.asarray(actual, np.float64) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected))


def _torch(threads: int) -> Any:
    import torch  # noqa: PLC0415 - only in the process of the contender

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


# --- matrix products -----------------------------------------------------------------------------

GEMM_BLOCKS = (256, 256, 256)


def gemm_function(size: int, dtype: str, blocks: tuple[int, int, int] = GEMM_BLOCKS) -> Any:
    """C = A @ B with the output given by the caller."""
    import tilec.language as T  # noqa: PLC0415 - only in the process of the contender

    block_M, block_N, block_K = blocks

    @T.prim_func
    def gemm(
        A: T.Tensor((size, size), dtype),
        B: T.Tensor((size, size), dtype),
        C: T.Tensor((size, size), dtype),
    ):
        with T.Kernel(T.ceildiv(size, block_N), T.ceildiv(size, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(size, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm


def _gemm_operands(size: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from common import numpy_dtype  # noqa: PLC0415 - the examples' helper

    kind = numpy_dtype(dtype)
    A, B = _normal(size, size).astype(kind), _normal(size, size, seed=1).astype(kind)
    return A, B, np.empty((size, size), kind)


def gemm_tilec(size: int, dtype: str) -> Builder:
    def build(_threads: int) -> tuple[Call, float]:
        import tilec  # noqa: PLC0415 - only in the process of the contender

        A, B, C = _gemm_operands(size, dtype)
        kernel = tilec.compile(gemm_function(size, dtype))
        kernel(A, B, C)
        expected = A.astype(np.float64) @ B.astype(np.float64)
        return lambda: kernel(A, B, C), _error(C, expected)

    return build


def gemm_numpy(size: int) -> Builder:
    def build(_threads: int) -> tuple[Call, float]:
        A, B, C = _gemm_operands(size, "float32")
        return lambda: np.matmul(A, B, out=C), 0.0

    return build


def gemm_torch(size: int, dtype: str) -> Builder:
    def build(threads: int) -> tuple[Call, float]:
        torch = _torch(threads)
        kind = getattr(torch, dtype)
        A, B = (torch.from_numpy(_normal(size, size, seed=seed)).to(kind) for seed in (0, 1))
        C = torch.empty((size, size), dtype=kind)
        return lambda: torch.matmul(A, B, out=C), 0.0

    return build


def gemm_case(size: int, dtype: str) -> Case:
    peer = ("numpy", gemm_numpy(size)) if dtype == "float32" else ("torch", gemm_torch(size, dtype))
    return Case(
        f"GEMM {size}, {dtype}",
        (2.0 * size**3, "GFLOP/s"),
        {"tilec": gemm_tilec(size, dtype), peer[0]: peer[1]},
        1e-5 if dtype == "float32" else 5e-3,
    )


# --- row operations ------------------------------------------------------------------------------

ROWS = 4096


def _row_inputs(name: str) -> list[np.ndarray]:
    vectors = {"softmax": 0, "rms_norm": 1, "layer_norm": 2}[name]
    return [_normal(ROWS, ROWS), *(_normal(ROWS, seed=1 + i) for i in range(vectors))]


def rows_tilec(name: str, given: bool) -> Builder:
    def build(_threads: int) -> tuple[Call, float]:
        module = importlib.import_module(name)
        inputs = _row_inputs(name)
        expected = module.reference(*inputs)
        if given:
            import tilec  # noqa: PLC0415 - only in the process of the contender

            kernel = tilec.compile(module.make_kernel.get_tir(ROWS, ROWS))
            out = np.empty((ROWS, ROWS), np.float32)
            kernel(*inputs, out)
            return lambda: kernel(*inputs, out), _error(out, expected)
        kernel = module.make_kernel(ROWS, ROWS)
        return lambda: kernel(*inputs), _error(kernel(*inputs), expected)

    return build


def rows_torch(name: str, given: bool) -> Builder:
    def build(threads: int) -> tuple[Call, float]:
        torch = _torch(threads)
        inputs = [torch.from_numpy(array) for array in _row_inputs(name)]
        functional = torch.nn.functional
        X, shape = inputs[0], (ROWS,)
        if name == "softmax":
            if given:
                out = torch.empty_like(X)
                return lambda: torch.softmax(X, 1, out=out), 0.0
            return lambda: torch.softmax(X, 1), 0.0
        if name == "rms_norm":
            return lambda: functional.rms_norm(X, shape, inputs[1], 1e-6), 0.0
        return lambda: functional.layer_norm(X, shape, inputs[1], inputs[2], 1e-5), 0.0

    return build


def rows_case(name: str, given: bool) -> Case:
    how = "output given" if given else "output allocated"
    return Case(
        f"{name} {ROWS}x{ROWS}, float32, {how}",
        (2.0 * 4 * ROWS * ROWS, "GB/s"),
        {"tilec": rows_tilec(name, given), "torch": rows_torch(name, given)},
    )


# --- attention -----------------------------------------------------------------------------------

HEADS, SEQ_LEN, DIM = 8, 2048, 64


def attention_tilec(causal: bool) -> Builder:
    def build(_threads: int) -> tuple[Call, float]:
        import flash_attention  # noqa: PLC0415 - from the examples

        Q, K, V = (_normal(1, SEQ_LEN, HEADS, DIM, seed=seed) for seed in range(3))
        kernel = flash_attention.make_kernel(
            1, HEADS, SEQ_LEN, DIM, causal=causal, block_M=128, block_N=128
        )
        expected = flash_attention.reference(Q, K, V, causal)
        return lambda: kernel(Q, K, V), _error(kernel(Q, K, V), expected)

    return build


def attention_torch(causal: bool) -> Builder:
    def build(threads: int) -> tuple[Call, float]:
        torch = _torch(threads)
        arrays = (_normal(1, HEADS, SEQ_LEN, DIM, seed=seed) for seed in range(3))
        Q, K, V = (torch.from_numpy(array) for array in arrays)
        attend = torch.nn.functional.scaled_dot_product_attention
        return lambda: attend(Q, K, V, is_causal=causal), 0.0

    return build


def attention_case(causal: bool) -> Case:
    operations = 4.0 * HEADS * SEQ_LEN * SEQ_LEN * DIM / (2 if causal else 1)
    return Case(
        f"attention b1 h{HEADS} s{SEQ_LEN} d{DIM}, float32, {'causal' if causal else 'full'}",
        (operations, "GFLOP/s"),
        {"tilec": attention_tilec(causal), "torch": attention_torch(causal)},
    )


CASES: dict[str, Case] = {
    "gemm1024": gemm_case(1024, "float32"),
    "gemm2048": gemm_case(2048, "float32"),
    **{
        f"{name}{'' if given else '_allocating'}": rows_case(name, given)
        for name in ("softmax", "rms_norm", "layer_norm")
        for given in (True, False)
    },
    "attention": attention_case(causal=False),
    "attention_causal": attention_case(causal=True),
    "gemm1024_float16": gemm_case(1024, "float16"),
    "gemm1024_bfloat16": gemm_case(1024, "bfloat16"),
}
