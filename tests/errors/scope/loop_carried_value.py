"""A running total kept in a plain name."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32"), B: T.Tensor((1,), "float32")):
    with T.Kernel(1, threads=32):
        total = A[0]
        for i in T.serial(1, 16):
            total = total + A[i]
        B[0] = total
