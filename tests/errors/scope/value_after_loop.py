"""A value bound in a loop and used after it."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32"), B: T.Tensor((1,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.serial(16):
            last = A[i] * 2.0
        B[0] = last
