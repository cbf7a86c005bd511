"""A per-thread array indexed by a T.Parallel variable."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=32):
        mine = T.alloc_local((64,), "float32")
        for i in T.Parallel(64):
            mine[i] = A[i]
        for i in T.Parallel(64):
            A[i] = mine[i] + 1.0
