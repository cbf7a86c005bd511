"""A constant that int8 cannot hold."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "int8")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(16):
            A[i] = 200
