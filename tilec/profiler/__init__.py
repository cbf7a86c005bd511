"""Measuring kernels, and checking their results on generated inputs.

>>> from tilec.profiler import do_bench
>>> milliseconds = do_bench(lambda: kernel(a, b))  # doctest: +SKIP
"""

from __future__ import annotations

from tilec.profiler.bench import do_bench
from tilec.profiler.profiler import Profiler
from tilec.profiler.supply import TensorSupplyType, close_enough, make_inputs

__all__ = ["Profiler", "TensorSupplyType", "close_enough", "do_bench", "make_inputs"]
