"""A grid of four dimensions."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((2, 2, 2, 2), "float32")):
    with T.Kernel(2, 2, 2, 2, threads=32) as (a, b, c, d):
        A[a, b, c, d] = 0.0
