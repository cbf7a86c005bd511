"""break under a run-time condition in a loop that Python runs."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=32):
        for n in [0, 1, 2, 3]:
            if A[n] > 0:
                break
            A[n] = 1
