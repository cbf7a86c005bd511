"""A register that only some lanes have written."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            r = T.alloc_local((2,), "float32")
            r[0] = A[t]
            if t < (63 if wrong else 64):
                r[1] = 1.0
            A[t] = r[1]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
