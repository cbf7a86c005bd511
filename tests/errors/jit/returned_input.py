"""An eager kernel returns its input."""

import numpy as np

import tilec
import tilec.language as T


@tilec.jit
def clear(A):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    with T.Kernel(1, threads=128):
        T.clear(A)
    return A


clear(np.ones(16, np.float32))
