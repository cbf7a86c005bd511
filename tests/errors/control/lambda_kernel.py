"""A lambda as a kernel."""

import tilec
import tilec.language as T

kernel = tilec.jit(lambda A: T.clear(A))
kernel(1)
