"""A tile operation before the launch."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32")):
    tile = T.alloc_shared((64, 64), "float32")
    with T.Kernel(1, threads=128):
        T.copy(A, tile)
