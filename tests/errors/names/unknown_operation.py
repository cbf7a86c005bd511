"""A misspelt name of the language."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_fragmnet((64, 64), "float32")
        T.copy(A, tile)
