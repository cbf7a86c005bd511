"""Each warp waits for the other one before it arrives."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            ready = T.alloc_barrier([32, 32])
            if t < 32:
                if wrong:
                    T.mbarrier_wait_parity(ready[1], 0)
                T.mbarrier_arrive(ready[0])
            else:
                T.mbarrier_wait_parity(ready[0], 0)
                T.mbarrier_arrive(ready[1])
            A[t] = 1.0

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
