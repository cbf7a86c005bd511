"""A T.const dimension that nothing gives a value."""

import tilec
import tilec.language as T


@tilec.jit
def double(A):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = A[bx * 128 + i] * 2.0
    return B


double.compile()
