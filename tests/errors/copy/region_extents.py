"""A region of one size copied to a region of another."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128, 64), "float32")):
    with T.Kernel(4, threads=128) as bx:
        tile = T.alloc_shared((32, 64), "float32")
        T.copy(A[bx * 16 : bx * 16 + 16, :], tile)
        T.copy(tile, B[bx * 32 : (bx + 1) * 32, :])
