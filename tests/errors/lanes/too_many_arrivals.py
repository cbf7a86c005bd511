"""All lanes arrive at a barrier that counts warps."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            ready = T.alloc_barrier(2)
            if wrong or t % 32 == 0:
                T.mbarrier_arrive(ready[0])
            T.mbarrier_wait_parity(ready[0], 0)
            A[t] = 1.0

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
