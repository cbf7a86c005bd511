"""A row reduction into a buffer with one entry per column."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64, 32), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_fragment((64, 32), "float32")
        sums = T.alloc_fragment((32,), "float32")
        T.copy(A, tile)
        T.reduce_sum(tile, sums, dim=1)
