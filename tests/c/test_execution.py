"""Loading and running: threads and processes."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import tilec
import tilec.language as T
from tilec.options import options


@T.prim_func
def increment(A: T.Tensor((64, 256), "float32")):
    with T.Kernel(64) as bx:
        for i in T.Parallel(256):
            A[bx, i] = A[bx, i] + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_kernels_work_in_a_forked_child():
    kernel = tilec.compile(increment, target="c")
    a = np.zeros((64, 256), "float32")
    kernel(a)
    child = os.fork()
    if child == 0:  # must not return into pytest, whatever happens
        signal.alarm(60)
        try:
            kernel(a)
            tilec.compile(increment, target="c")(a)
            os._exit(0 if (a == 3).all() else 1)
        finally:
            os._exit(2)
    _pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    kernel(a)
    assert (a == 2).all()


def test_number_of_threads_is_an_option():
    with options(num_threads=1):
        kernel = tilec.compile(increment, target="c")
    a = np.zeros((64, 256), "float32")
    kernel(a)
    assert (a == 1).all()
