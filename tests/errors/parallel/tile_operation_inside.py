"""A tile operation in the body of T.Parallel."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        row = T.alloc_shared((64,), "float32")
        for i in T.Parallel(64):
            T.copy(A[i, :], row)
            T.copy(row, B[i, :])
