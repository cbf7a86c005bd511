"""2-D convolution as an implicit matrix multiplication.

The image is (batch, height, width, channels) and the weight (kh, kw, channels, filters). Output
pixels are the rows of a matrix product, (kh, kw, channels) its inner dimension: a block gathers
the pixels that its rows need into shared memory, with zeros for the padding.
python examples/conv2d.py
"""

import sys

import numpy as np
from common import best_ms, normal, report, storage_dtypes

import tilec
import tilec.language as T


def output_size(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@tilec.jit(out_idx=[-1])
def make_kernel(
    batch: int,
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 1,
    block_M: int = 64,
    block_N: int = 64,
    block_K: int = 32,
    num_stages: int = 2,
    dtype: str = "float32",
):
    accum_dtype = "float32"
    out_h = output_size(height, kernel, stride, dilation, padding)
    out_w = output_size(width, kernel, stride, dilation, padding)
    pixels = batch * out_h * out_w
    inner = kernel * kernel * channels

    @T.prim_func
    def conv2d(
        image: T.Tensor((batch, height, width, channels), dtype),
        weight: T.Tensor((inner, filters), dtype),
        out: T.Tensor((pixels, filters), dtype),
    ):
        grid = (T.ceildiv(filters, block_N), T.ceildiv(pixels, block_M))
        with T.Kernel(*grid, threads=128) as (bx, by):
            image_shared = T.alloc_shared((block_M, block_K), dtype)
            weight_shared = T.alloc_shared((block_K, block_N), dtype)
            out_local = T.alloc_fragment((block_M, block_N), accum_dtype)

            T.clear(out_local)
            for k_iter in T.Pipelined(T.ceildiv(inner, block_K), num_stages=num_stages):
                for i, j in T.Parallel(block_M, block_K):
                    m = by * block_M + i  # output pixel
                    k = k_iter * block_K + j  # (kernel row, kernel column, channel)
                    y = m % (out_h * out_w) // out_w * stride - padding
                    x = m % out_w * stride - padding
                    row = y + k // (kernel * channels) * dilation
                    col = x + k // channels % kernel * dilation
                    inside = m < pixels and k < inner and 0 <= row < height and 0 <= col < width
                    image_shared[i, j] = T.if_then_else(
                        inside, image[m // (out_h * out_w), row, col, k % channels], 0
                    )
                T.copy(weight[k_iter * block_K, bx * block_N], weight_shared)
                T.gemm(image_shared, weight_shared, out_local)
            T.copy(out_local, out[by * block_M, bx * block_N])

    return conv2d


def reference(
    image: np.ndarray, weight: np.ndarray, stride: int, dilation: int, padding: int
) -> np.ndarray:
    """(batch, height, width, channels) and (kh, kw, channels, filters), in float32."""
    image, weight = image.astype(np.float32), weight.astype(np.float32)
    kernel_h, kernel_w = weight.shape[:2]
    out_h = output_size(image.shape[1], kernel_h, stride, dilation, padding)
    out_w = output_size(image.shape[2], kernel_w, stride, dilation, padding)
    pad = (padding, padding)
    padded = np.pad(image, ((0, 0), pad, pad, (0, 0)))
    out = np.zeros((image.shape[0], out_h, out_w, weight.shape[3]), np.float32)
    for y in range(kernel_h):
        for x in range(kernel_w):
            rows = slice(y * dilation, y * dilation + (out_h - 1) * stride + 1, stride)
            cols = slice(x * dilation, x * dilation + (out_w - 1) * stride + 1, stride)
            out += padded[:, rows, cols] @ weight[y, x]
    return out


def run(
    shape: tuple[int, int, int, int, int],
    dtype: str,
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 1,
    seed: int = 0,
) -> bool:
    """`shape` is (batch, height, width, channels, filters)."""
    batch, height, width, channels, filters = shape
    rng = np.random.default_rng(seed)
    image = normal(rng, (batch, height, width, channels), dtype)
    weight = normal(rng, (kernel, kernel, channels, filters), dtype)
    conv = make_kernel(*shape, kernel, stride, dilation, padding, dtype=dtype)
    flat = weight.reshape(-1, filters)  # a view: rows are (kernel row, kernel column, channel)
    out = conv(image, flat)
    ms = best_ms(lambda: conv(image, flat))
    expected = reference(image, weight, stride, dilation, padding)
    what = f"conv2d {batch}x{height}x{width}x{channels} -> {filters}, {kernel}x{kernel}"
    what += f" stride {stride}"
    return report(what, dtype, out.reshape(expected.shape), expected, ms)


def main(shape: tuple[int, int, int, int, int] = (2, 30, 45, 24, 50)) -> int:
    results = [run(shape, dtype, stride=stride) for stride in (1, 2) for dtype in storage_dtypes()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
