"""A lane reads what its copy may not have written yet."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64, 4), "float32")
            T.cp_async(s[t, 0], A[t, 0], 4)
            T.cp_async_commit()
            if not wrong:
                T.cp_async_wait(0)
            A[t, 1] = s[t, 0]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros((64, 4), np.float32), check=True)
