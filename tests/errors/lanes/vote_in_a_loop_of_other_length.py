"""Lanes of a warp make different numbers of trips with a vote in them."""

import numpy as np

import tilec.language as T
from tilec import interp


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, warp=32):
            t = T.get_thread_binding()
            x = T.alloc_var("int32", init=0)
            for _ in T.serial(t % 2 + 2 if wrong else t // 32 + 2):
                x = x + T.any_sync(A[t] > 0)
            A[t] = T.cast(x, "float32")

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.zeros(64, np.float32), check=True)
