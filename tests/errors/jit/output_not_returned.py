"""An eager kernel forgets one of its outputs."""

import numpy as np

import tilec
import tilec.language as T


@tilec.jit
def split(A):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(1, threads=128):
        T.copy(A, B)
        T.copy(A, C)
    return B


split(np.ones(16, np.float32))
