"""A vector where a matrix is needed."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64, 32), "float16"), x: T.Tensor((32,), "float16")):
    with T.Kernel(1, threads=128):
        A_shared = T.alloc_shared((64, 32), "float16")
        x_shared = T.alloc_shared((32,), "float16")
        y_local = T.alloc_fragment((64,), "float32")
        T.copy(A, A_shared)
        T.copy(x, x_shared)
        T.gemm(A_shared, x_shared, y_local)
