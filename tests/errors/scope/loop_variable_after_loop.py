"""A loop variable used after its loop."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32"), B: T.Tensor((1,), "int32")):
    with T.Kernel(1, threads=32):
        for i in T.serial(16):
            A[i] = 0.0
        B[0] = i
