"""sync_warp orders one warp; the values come from another one."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            s[t] = A[t]
            if wrong:
                T.sync_warp()
            else:
                T.sync_threads()
            A[t] = s[63 - t]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
