"""A lane waits for its own copies, and reads what another one copies."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64, 4), "float32"), B: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64, 4), "float32")
            T.cp_async(s[t, 0], B[t, 0], 4)
            T.cp_async_commit()
            T.cp_async_wait(0)
            if not wrong:
                T.sync_threads()
            A[t, 1] = s[63 - t, 0]

    return main


for wrong in (False, True):
    interp.run(
        program(wrong), np.zeros((64, 4), np.float32), np.zeros((64, 4), np.float32), check=True
    )
