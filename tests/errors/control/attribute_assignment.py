"""An attribute set inside a kernel."""

import tilec.language as T


class Settings:
    scale = 1.0


settings = Settings()


@T.prim_func
def main(A: T.Tensor((4,), "float32")):
    with T.Kernel(1, threads=32):
        settings.scale = 2.0
        A[0] = settings.scale
