"""An element is read while other lanes update it."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((1,), "float32")
            if t == 0:
                s[0] = 0.0
            T.sync_threads()
            T.atomic_add(s[0], A[t])
            if not wrong:
                T.sync_threads()
            A[t] = s[0]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
