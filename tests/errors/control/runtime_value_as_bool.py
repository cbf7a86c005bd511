"""A run-time value in a list comprehension's condition."""

import tilec.language as T


@T.prim_func
def main(A: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=32):
        positive = [n for n in [0, 1, 2, 3] if A[n] > 0]
        A[0] = len(positive)
