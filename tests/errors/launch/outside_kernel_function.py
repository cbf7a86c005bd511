"""An allocation that no kernel function surrounds."""

import tilec.language as T

tile = T.alloc_shared((64, 64), "float32")
