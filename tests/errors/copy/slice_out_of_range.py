"""A slice that ends after the buffer does."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float32")
        T.copy(A[0:64, 0:64], tile)
        T.copy(tile[0:32, 48:80], B)
