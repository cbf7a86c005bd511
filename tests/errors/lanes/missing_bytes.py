"""A barrier waits for more bytes than the copy brings."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            ready = T.alloc_barrier(1)
            if t == 0:
                T.mbarrier_arrive_expect_tx(ready[0], 512 if wrong else 256)
                T.bulk_load(s, B, ready[0])
            T.mbarrier_wait_parity(ready[0], 0)
            A[t] = s[t]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), np.zeros(64, np.float32), check=True)
