"""An eager kernel called with a keyword it does not have."""

import numpy as np

import tilec
import tilec.language as T


@tilec.jit
def double(A, block: int = 128):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2.0
    return B


double(np.ones(256, np.float32), blocks=64)
