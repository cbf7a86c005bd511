"""A barrier object on a target that has none."""

import tilec
import tilec.language as T


@T.prim_func
def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=32):
        ready = T.alloc_barrier(32)
        T.copy(A, B)


tilec.compile(main, target="c")
