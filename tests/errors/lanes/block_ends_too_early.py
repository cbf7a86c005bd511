"""The block ends while a copy may still read its shared memory."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            s[t] = 1.0
            T.fence_proxy_async()
            T.sync_threads()
            if t == 0:
                T.bulk_store(A, s)
                T.bulk_commit()
                T.bulk_wait(1 if wrong else 0)

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
