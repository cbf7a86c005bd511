"""Two lanes store different values to one element."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            s[t // 2 if wrong else t] = A[t]
            T.sync_threads()
            A[t] = s[t // 2]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.arange(64, dtype=np.float32), check=True)
