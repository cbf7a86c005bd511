"""Two whole buffers of different shapes."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float32")
        T.copy(A, tile)
        T.copy(tile, B[0:64, :])
