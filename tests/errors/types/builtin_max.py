"""Python's max on run-time values."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(16):
            A[i] = max(A[i], 0.0)
