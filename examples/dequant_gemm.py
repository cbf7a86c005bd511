"""C = A @ W.T where W is stored in 4 bits.

Each byte of `packed` holds two weights (the even column in the low half) and each group of
`group` weights along K has one scale: W[n, k] = (q[n, k] - 8) * scales[n, k // group].
A block unpacks a tile of W into shared memory and multiplies it.
python examples/dequant_gemm.py
"""

import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def make_kernel(
    M: int,
    N: int,
    K: int,
    group: int = 32,
    block_M: int = 64,
    block_N: int = 64,
    block_K: int = 64,
    num_stages: int = 2,
    dtype: str = "float32",
):
    assert group % 2 == 0, "a group holds whole bytes"
    assert K % group == 0, "a row holds whole groups"
    assert block_K % group == 0, "a tile holds whole groups"
    accum_dtype = "float32"
    tile_groups = block_K // group

    @T.prim_func
    def dequant_gemm(
        A: T.Tensor((M, K), dtype),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            packed_shared = T.alloc_shared((block_N, block_K // 2), "uint8")
            scales_shared = T.alloc_shared((block_N, tile_groups), dtype)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(packed[bx * block_N, k * block_K // 2], packed_shared)
                T.copy(scales[bx * block_N, k * tile_groups], scales_shared)
                for i, j in T.Parallel(block_N, block_K):
                    q = (packed_shared[i, j // 2] >> (j % 2 * 4)) & 15
                    W_shared[i, j] = T.cast(q - 8, accum_dtype) * scales_shared[i, j // group]
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return dequant_gemm


def quantize(W: np.ndarray, group: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Pack float weights (N, K) into bytes (N, K // 2) and scales (N, K // group)."""
    N, K = W.shape
    grouped = W.reshape(N, K // group, group)
    scales = (np.abs(grouped).max(axis=-1) / 7).astype(dtype)
    q = np.rint(grouped / scales.astype(np.float32)[..., None]).clip(-8, 7).astype(np.int8) + 8
    q = q.reshape(N, K).astype(np.uint8)
    return q[:, 0::2] | (q[:, 1::2] << 4), scales


def dequantize(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Undo `quantize`, in float32."""
    N, half = packed.shape
    q = np.stack([packed & 15, packed >> 4], axis=-1).reshape(N, 2 * half)
    group = 2 * half // scales.shape[1]
    return (q.astype(np.float32) - 8) * np.repeat(scales.astype(np.float32), group, axis=1)


def reference(A: np.ndarray, packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return A.astype(np.float32) @ dequantize(packed, scales).T


def run(M: int, N: int, K: int, dtype: str, group: int = 32, seed: int = 0) -> bool:
    rng = np.random.default_rng(seed)
    A = normal(rng, (M, K), dtype)
    packed, scales = quantize(rng.standard_normal((N, K), dtype=np.float32), group, A.dtype)
    kernel = make_kernel(M, N, K, group=group, dtype=dtype)
    C = kernel(A, packed, scales)
    ms = best_ms(lambda: kernel(A, packed, scales))
    what = f"int4 gemm M={M} N={N} K={K} group={group}"
    return report(what, dtype, C, reference(A, packed, scales), ms)


def main(M: int = 200, N: int = 300, K: int = 480) -> int:
    results = [run(M, N, K, dtype) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
