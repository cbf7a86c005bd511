"""More lanes arrive at a named barrier than it counts."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128, warp=32):
            t = T.get_thread_binding()
            if t < 64:
                T.sync_threads(1, 96 if wrong else 128)
            else:
                T.named_barrier_arrive(1, 96 if wrong else 128)
            A[t] = 1.0

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(128, np.float32), check=True)
