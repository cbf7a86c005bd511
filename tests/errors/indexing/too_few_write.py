"""One index for a buffer of two dimensions, writing."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16, 16), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(16):
            B[i] = A[i] * 2.0
