"""Registers are written and then used by an asynchronous mma."""

import numpy as np

import tilec.language as T
from tilec import interp
from tilec.layout import Fragment
from tilec.transform.capabilities import MatrixAtom

ATOM = MatrixAtom(
    "m64n16k16", 64, 16, 16, "float16", "float16", "float32",
    homes=("shared", "shared", "local"), lanes=128, asynchronous=True,
    layouts=(None, None, Fragment((64, 16), lambda i, j: (i // 16 * 32 + i % 8 * 4 + j % 8 // 2,
             j // 8 * 4 + i % 16 // 8 * 2 + j % 2))),
)  # fmt: skip


def program(wrong: bool):
    @T.prim_func
    def main(A: T.Tensor((64, 16), "float16"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128, warp=32):
            t = T.get_thread_binding()
            a = T.alloc_shared((64, 16), "float16")
            b = T.alloc_shared((16, 16), "float16")
            c = T.alloc_local((8,), "float32")
            for i in T.serial(8):
                a[i * 8 + t // 16, t % 16] = A[i * 8 + t // 16, t % 16]
            for i in T.serial(2):
                b[i * 8 + t // 16, t % 16] = A[i * 8 + t // 16, t % 16]
            T.fence_proxy_async()
            T.sync_threads()
            for i in T.serial(8):
                c[i] = 0.0
            if not wrong:
                T.mma_fence()
            T.mma(c, a, b, True, atom=ATOM)
            T.mma_commit()
            T.mma_wait(0)
            C[t] = c[0]

    return main


for wrong in (False, True):
    interp.run(program(wrong), np.ones((64, 16), np.float16), np.zeros(128, np.float32), check=True)
