"""Quickstart: relu(A @ B) as a tile kernel, run on this machine and checked against NumPy.

python examples/quickstart.py
"""

import sys
import time

import numpy as np

import tilec
import tilec.language as T


@tilec.jit
def matmul_relu(
    A, B, block_M: int = 128, block_N: int = 128, block_K: int = 64, dtype: T.dtype = T.float32
):
    """C = relu(A @ B) with float32 accumulation; any M, N and K."""
    M, N, K = T.const("M, N, K")  # taken from the arrays at the call, constants of the kernel
    A: T.Tensor[[M, K], dtype]
    B: T.Tensor[[K, N], dtype]
    C = T.empty((M, N), dtype)

    # One block for each block_M x block_N tile of C.
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), dtype)
        B_shared = T.alloc_shared((block_K, block_N), dtype)
        C_local = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(C_local)

        # Walk along K; loads of the next tiles may overlap the multiplication of this one.
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(B[k * block_K, bx * block_N], B_shared)
            T.gemm(A_shared, B_shared, C_local)

        for i, j in T.Parallel(block_M, block_N):
            C_local[i, j] = T.max(C_local[i, j], 0)

        T.copy(C_local, C[by * block_M, bx * block_N])

    return C


def reference(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.maximum(A.astype(np.float32) @ B.astype(np.float32), 0)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    difference = actual.astype(np.float32) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected))


def main(M: int = 1000, N: int = 900, K: int = 800) -> int:
    rng = np.random.default_rng()
    A = rng.standard_normal((M, K), dtype=np.float32)
    B = rng.standard_normal((K, N), dtype=np.float32)

    start = time.perf_counter()
    C = matmul_relu(A, B)  # the first call compiles
    first = time.perf_counter() - start
    times = []
    for _ in range(10):
        start = time.perf_counter()
        C = matmul_relu(A, B)
        times.append(time.perf_counter() - start)

    error = relative_error(C, reference(A, B))
    gflops = 2 * M * N * K / min(times) / 1e9
    print(f"C = relu(A @ B), M={M} N={N} K={K}, float32, random input")
    print(f"first call, with compilation: {first:.2f} s")
    print(f"best of {len(times)} calls: {min(times) * 1e3:.2f} ms ({gflops:.1f} GFLOP/s)")
    good = error < 1e-5
    print(f"relative error against NumPy: {error:.1e} {'(ok)' if good else '(WRONG)'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
