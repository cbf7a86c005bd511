"""A barrier is used that nobody has initialised."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            ready = T.alloc_buffer((2,), "uint64", scope="shared.barrier")
            if t == 0:
                T.mbarrier_init(ready[0], 64)
                T.fence_barrier_init()
            T.sync_threads()
            T.mbarrier_arrive(ready[1 if wrong else 0])
            A[t] = 1.0

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
