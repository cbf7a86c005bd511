"""Two warps disagree about the lanes of a named barrier."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            if t < 32:
                T.sync_threads(1, 64)
            else:
                T.sync_threads(1, 32 if wrong else 64)
            A[t] = 1.0

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
