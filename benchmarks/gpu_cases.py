"""The contenders of `gpu.py`: tilec's kernels in the configurations to try, and their peers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

TARGET = "cuda"

Call = Callable[[], Any]
Builder = Callable[[Any], Call]


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        title: as it stands in the table.
        work: of one call, and the unit of its rate: floating point operations for TFLOP/s,
            bytes times 1000 for GB/s.
        data: makes the operands.
        expected: the result in higher precision.
        configurations: builders of tilec's call; each call gives its result.
        peers: builders of what it is compared with.
        tolerance: largest relative error of tilec's result.
    """

    title: str
    work: tuple[float, str]
    data: Callable[[], Any]
    expected: Callable[[Any], Any]
    configurations: dict[str, Builder]
    peers: dict[str, Builder] = field(default_factory=dict)
    tolerance: float = 5e-3


def _torch() -> Any:
    import torch  # noqa: PLC0415 - optional

    return torch


def _normal(*shape: int, dtype: str = "bfloat16") -> Any:
    torch = _torch()
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(getattr(torch, dtype))


# --- matrix products -----------------------------------------------------------------------------


def gemm_kernel(
    M: int, N: int, K: int, dtype: str, out_dtype: str, trans_B: bool, blocks: tuple[int, ...]
) -> Any:
    """The kernel of examples/matmul.py; `blocks` are M, N, K, stages and threads."""
    import matmul  # noqa: PLC0415 - an example

    from tilec.options import options  # noqa: PLC0415 - beside its only use

    with options(target=TARGET):
        return matmul.make_kernel(M, N, K, trans_B, *blocks, dtype, out_dtype)


BF16_BLOCKS = {
    "128x256x64, 4 stages, 256 threads": (128, 256, 64, 4, 256),
    "128x256x64, 3 stages, 256 threads": (128, 256, 64, 3, 256),
    "128x128x64, 4 stages, 256 threads": (128, 128, 64, 4, 256),
    "128x128x64, 4 stages, 128 threads": (128, 128, 64, 4, 128),
}
FP8_BLOCKS = {
    "128x256x128, 4 stages, 256 threads": (128, 256, 128, 4, 256),
    "128x256x128, 3 stages, 256 threads": (128, 256, 128, 3, 256),
    "128x128x128, 4 stages, 256 threads": (128, 128, 128, 4, 256),
}


def _gemm_call(size: int, dtype: str, out_dtype: str, trans_B: bool, blocks: Any) -> Builder:
    def build(data: Any) -> Call:
        A, B, C = data
        kernel = gemm_kernel(size, size, size, dtype, out_dtype, trans_B, blocks)

        def call() -> Any:
            kernel(A, B, C)
            return C

        return call

    return build


def _gemm_data(size: int, dtype: str) -> Callable[[], Any]:
    def data() -> Any:
        C = _torch().empty((size, size), device="cuda", dtype=_torch().bfloat16)
        return _normal(size, size, dtype=dtype), _normal(size, size, dtype=dtype), C

    return data


def _product(trans_B: bool) -> Callable[[Any], Any]:
    """A @ B in float32; TF32 is off unless somebody turned it on."""

    def expected(data: Any) -> Any:
        _torch().backends.cuda.matmul.allow_tf32 = False
        A, B = data[0].float(), data[1].float()
        return A @ (B.T if trans_B else B)

    return expected


def _cublas(trans_B: bool) -> Builder:
    def build(data: Any) -> Call:
        torch = _torch()
        A, B, _ = data
        C = torch.empty_like(data[2])
        right = B.T if trans_B else B
        return lambda: torch.matmul(A, right, out=C)

    return build


def _cublaslt(data: Any) -> Call:
    torch = _torch()
    A, B, _ = data
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(
        A, B.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def gemm_case(size: int, dtype: str, trans_B: bool) -> Case:
    fp8 = dtype.startswith("float8")
    blocks = FP8_BLOCKS if fp8 else BF16_BLOCKS
    return Case(
        f"GEMM {dtype} {size}³, B as {'(N, K)' if trans_B else '(K, N)'}",
        (2.0 * size**3, "TFLOP/s"),
        _gemm_data(size, dtype),
        _product(trans_B),
        {
            label: _gemm_call(size, dtype, "bfloat16", trans_B, sizes)
            for label, sizes in blocks.items()
        },
        {"cuBLASLt": _cublaslt} if fp8 else {"cuBLAS": _cublas(trans_B)},
        # Products of fp8 values may be summed with fewer bits by the hardware.
        1e-2 if fp8 else 5e-3,
    )


# --- attention -----------------------------------------------------------------------------------

ATTENTION = (4, 32, 4096, 128)  # batch, heads, sequence length, head dimension
ATTENTION_BLOCKS = {
    "128x128, 2 stages": (128, 128, 2),
    "128x128, 1 stage": (128, 128, 1),
    "64x128, 2 stages": (64, 128, 2),
    "128x64, 2 stages": (128, 64, 2),
}


def _attention_data() -> Any:
    """(batch, sequence, heads, dimension), as the example takes them."""
    batch, heads, length, dim = ATTENTION
    return [_normal(batch, length, heads, dim) for _ in range(3)]


def _attention_call(causal: bool, blocks: tuple[int, int, int]) -> Builder:
    def build(data: Any) -> Call:
        import flash_attention  # noqa: PLC0415 - an example

        from tilec.options import options  # noqa: PLC0415 - beside its only use

        block_M, block_N, stages = blocks
        with options(target=TARGET):
            kernel = flash_attention.make_kernel(
                *ATTENTION, causal=causal, block_M=block_M, block_N=block_N, num_stages=stages,
                dtype="bfloat16",
            )  # fmt: skip
        return lambda: kernel(*data)

    return build


def _attention_expected(causal: bool) -> Callable[[Any], Any]:
    def expected(data: Any) -> Any:
        torch = _torch()
        torch.backends.cuda.matmul.allow_tf32 = False
        out = torch.empty(data[0].shape, device="cuda", dtype=torch.float32)
        length, dim = ATTENTION[2:]
        hidden = torch.ones((length, length), device="cuda", dtype=torch.bool).triu(1)
        for b in range(ATTENTION[0]):
            q, k, v = (x[b].float().transpose(0, 1) for x in data)
            scores = q @ k.transpose(1, 2) / math.sqrt(dim)
            if causal:
                scores.masked_fill_(hidden, -math.inf)
            out[b] = (scores.softmax(-1) @ v).transpose(0, 1)
        return out

    return expected


def _sdpa(causal: bool, backend: str) -> Builder:
    def build(data: Any) -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415 - optional

        attend = _torch().nn.functional.scaled_dot_product_attention
        q, k, v = (x.transpose(1, 2).contiguous() for x in data)
        chosen = getattr(SDPBackend, backend)

        def call() -> Any:
            with sdpa_kernel(chosen):
                return attend(q, k, v, is_causal=causal)

        return call

    return build


def attention_case(causal: bool) -> Case:
    batch, heads, length, dim = ATTENTION
    work = 4.0 * batch * heads * length * length * dim / (2 if causal else 1)
    return Case(
        f"attention forward bf16 b{batch} h{heads} s{length} d{dim}, "
        f"{'causal' if causal else 'full'}",
        (work, "TFLOP/s"),
        _attention_data,
        _attention_expected(causal),
        {label: _attention_call(causal, blocks) for label, blocks in ATTENTION_BLOCKS.items()},
        {
            "cuDNN": _sdpa(causal, "CUDNN_ATTENTION"),
            "torch flash": _sdpa(causal, "FLASH_ATTENTION"),
        },
        1e-2,
    )


# --- what memory limits --------------------------------------------------------------------------


def _copy(total_bytes: int) -> Builder:
    """Reads and writes as many bytes as the case, half of them each."""

    def build(_data: Any) -> Call:
        torch = _torch()
        source = torch.randint(0, 127, (total_bytes // 2,), device="cuda", dtype=torch.int8)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    return build


def add_function(n: int, dtype: str, block: int, threads: int) -> Any:
    """C = A + B."""
    import tilec.language as T  # noqa: PLC0415 - beside its only use

    @T.prim_func
    def add(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return add


ADD_SIZE = 2**28
ADD_BLOCKS = {
    f"{block} elements, {threads} threads": (block, threads)
    for block, threads in ((1024, 128), (2048, 256), (4096, 256))
}


def _add_call(blocks: tuple[int, int]) -> Builder:
    def build(data: Any) -> Call:
        import tilec  # noqa: PLC0415 - beside its only use

        A, B = data
        C = _torch().empty_like(A)
        kernel = tilec.compile(add_function(ADD_SIZE, "float16", *blocks), target=TARGET)

        def call() -> Any:
            kernel(A, B, C)
            return C

        return call

    return build


def _torch_add(data: Any) -> Call:
    C = _torch().empty_like(data[0])
    return lambda: _torch().add(*data, out=C)


ROWS, COLUMNS = 16384, 4096


def _row_call(name: str, block_M: int) -> Builder:
    def build(data: Any) -> Call:
        module = __import__(name)  # an example
        from tilec.options import options  # noqa: PLC0415 - beside its only use

        with options(target=TARGET):
            kernel = module.make_kernel(ROWS, COLUMNS, block_M=block_M, dtype="bfloat16")
        return lambda: kernel(*data)

    return build


def row_case(name: str, title: str, vectors: int, expected: Any, peer: Builder) -> Case:
    total = 2 * 2 * ROWS * COLUMNS
    return Case(
        f"{title} bf16 {ROWS}x{COLUMNS}",
        (1e3 * total, "GB/s"),
        lambda: [_normal(ROWS, COLUMNS), *(_normal(COLUMNS) for _ in range(vectors))],
        expected,
        {f"{rows} row(s) a block": _row_call(name, rows) for rows in (1, 2, 4)},
        {"copy": _copy(total), "torch": peer},
        1e-2,
    )


def _rms_expected(data: Any) -> Any:
    x, w = (t.double() for t in data)
    return x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt() * w


def _rms_torch(data: Any) -> Call:
    x, w = data
    return lambda: _torch().nn.functional.rms_norm(x, (COLUMNS,), w, 1e-6)


CASES: dict[str, Case] = {
    "gemm-bf16-8192-kn": gemm_case(8192, "bfloat16", False),
    "gemm-bf16-8192-nk": gemm_case(8192, "bfloat16", True),
    "gemm-bf16-4096-kn": gemm_case(4096, "bfloat16", False),
    "gemm-bf16-4096-nk": gemm_case(4096, "bfloat16", True),
    "gemm-e4m3-8192": gemm_case(8192, "float8_e4m3fn", True),
    "attention-full": attention_case(False),
    "attention-causal": attention_case(True),
    "add": Case(
        "add fp16 2^28",
        (3e3 * 2 * ADD_SIZE, "GB/s"),
        lambda: [_normal(ADD_SIZE, dtype="float16") for _ in range(2)],
        lambda data: data[0].float() + data[1].float(),
        {label: _add_call(blocks) for label, blocks in ADD_BLOCKS.items()},
        {"copy": _copy(3 * 2 * ADD_SIZE), "torch": _torch_add},
        1e-3,
    ),
    "rms_norm": row_case("rms_norm", "RMSNorm", 1, _rms_expected, _rms_torch),
    "softmax": row_case(
        "softmax",
        "softmax",
        0,
        lambda data: data[0].double().softmax(1),
        lambda data: lambda: _torch().softmax(data[0], 1),
    ),
}


# --- the host ------------------------------------------------------------------------------------


def host_calls() -> dict[str, Call]:
    """Calls whose kernels are too short to matter."""
    import tilec  # noqa: PLC0415 - beside its only use

    torch = _torch()
    A, B = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
    C, D = torch.empty_like(A), torch.empty_like(A)
    function = add_function(1024, "float32", 1024, 128)
    given = tilec.compile(function, target=TARGET)
    allocating = tilec.compile(function, out_idx=[-1], target=TARGET)
    given(A, B, C)
    if not torch.equal(C, A + B) or not torch.equal(allocating(A, B), A + B):
        raise RuntimeError("add gives a wrong result")
    return {
        "tilec, 3 fp32 tensors of 1024, output given": lambda: given(A, B, C),
        "torch.add, output given": lambda: torch.add(A, B, out=D),
        "tilec, output allocated": lambda: allocating(A, B),
        "torch.add, output allocated": lambda: torch.add(A, B),
    }


COLD = ("GEMM", "attention", "add")

_COLD_PROGRAM = """
import json, sys, time
sys.path.insert(0, {folder!r})
import torch
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
start = time.perf_counter()
import tilec, tilec.language
imported = time.perf_counter()
import gpu_cases
gpu_cases.cold_run({name!r})
torch.cuda.synchronize()
end = time.perf_counter()
print(json.dumps({{"import": imported - start, "total": end - start}}))
"""


def cold_run(name: str) -> None:
    """Compile and run one kernel, as the first thing a process does."""
    if name == "GEMM":
        A, B = _normal(1024, 1024), _normal(1024, 1024)
        blocks = next(iter(BF16_BLOCKS.values()))
        kernel = gemm_kernel(1024, 1024, 1024, "bfloat16", "bfloat16", False, blocks)
        kernel(A, B, _torch().empty_like(A))
    elif name == "attention":
        _attention_call(False, next(iter(ATTENTION_BLOCKS.values())))(_attention_data())()
    else:
        import tilec  # noqa: PLC0415 - beside its only use

        A, B = _normal(1024, dtype="float32"), _normal(1024, dtype="float32")
        kernel = tilec.compile(add_function(1024, "float32", 1024, 128), target=TARGET)
        kernel(A, B, _torch().empty_like(A))


def cold(name: str) -> dict[str, float]:
    """Seconds of `cold_run` in a new process, after torch has found the device."""
    program = _COLD_PROGRAM.format(folder=str(Path(__file__).parent), name=name)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
