"""A keyword that the operation does not have."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float32")
        T.copy(A, tile, coalesced_with=4)
