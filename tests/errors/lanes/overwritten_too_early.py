"""A loop fills a tile again while other lanes may still read it."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            for _ in T.serial(2):
                s[t] = A[t]
                T.sync_threads()
                A[t] = s[63 - t]
                if not wrong:
                    T.sync_threads()

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
