"""A Python number re-bound under a run-time condition."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
    with T.Kernel(16, threads=32) as bx:
        scale = 1.0
        if A[bx] > 0.0:
            scale = 2.0
        B[bx] = A[bx] * scale
