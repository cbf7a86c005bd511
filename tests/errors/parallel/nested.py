"""T.Parallel inside T.Parallel."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        for i in T.Parallel(64):
            for j in T.Parallel(64):
                A[i, j] = 0.0
