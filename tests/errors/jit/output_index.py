"""out_idx names a parameter that is not there."""

import tilec
import tilec.language as T


@tilec.jit(out_idx=[2])
def factory(N: int):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            T.copy(A, B)

    return main


factory(64)
