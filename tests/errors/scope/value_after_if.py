"""A value bound in one branch and used after it."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
    with T.Kernel(16, threads=32) as bx:
        if A[bx] > 0.0:
            scaled = A[bx] * 2.0
        B[bx] = scaled
