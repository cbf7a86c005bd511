"""Lanes exchange values through global memory."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            A[t] = 1.0
            if not wrong:
                T.sync_threads()
            B[t] = A[63 - t]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), np.zeros(64, np.float32), check=True)
