"""A negative number of threads."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((16,), "float32")):
    with T.Kernel(1, threads=-128):
        T.clear(A)
