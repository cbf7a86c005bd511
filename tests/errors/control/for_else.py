"""An else branch on a loop."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.serial(16):
            A[i] = 1.0
        else:
            A[0] = 0.0
