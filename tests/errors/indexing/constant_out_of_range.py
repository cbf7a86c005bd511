"""A constant index past the end."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
    with T.Kernel(1, threads=32):
        B[0] = A[4]
