"""Convolutions and pooling."""

from __future__ import annotations

import tilec.language as T
from tilec import ir

from .registry import Entry


def conv2d(b, h, w, ci, co, k, stride, pad, dtype, block_M=32, block_N=32, block_K=16):
    """Implicit matrix product; NHWC image, (k, k, ci, co) weights."""
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    pixels, inner = b * oh * ow, k * k * ci

    @T.prim_func
    def main(
        X: T.Tensor((b, h, w, ci), dtype),
        W: T.Tensor((inner, co), dtype),
        Y: T.Tensor((pixels, co), dtype),
    ):
        with T.Kernel(T.ceildiv(co, block_N), T.ceildiv(pixels, block_M), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_K), dtype)
            weight = T.alloc_shared((block_K, block_N), dtype)
            y = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(y)
            for step in T.Pipelined(T.ceildiv(inner, block_K), num_stages=2):
                for i, j in T.Parallel(block_M, block_K):
                    m, at = by * block_M + i, step * block_K + j
                    row = m % (oh * ow) // ow * stride - pad + at // (k * ci)
                    column = m % ow * stride - pad + at // ci % k
                    inside = m < pixels and at < inner and 0 <= row < h and 0 <= column < w
                    x[i, j] = T.if_then_else(inside, X[m // (oh * ow), row, column, at % ci], 0)
                T.copy(W[step * block_K, bx * block_N], weight)
                T.gemm(x, weight, y)
            T.copy(y, Y[by * block_M, bx * block_N])

    return main


def padded(c, xp, X):
    """The image with zeros around."""
    full = xp.zeros((c.b, c.h + 2 * c.pad, c.w + 2 * c.pad, X.shape[3]))
    full[:, c.pad : c.pad + c.h, c.pad : c.pad + c.w] = xp.f64(X)
    return full


def windows(c, xp, X):
    """(row, column, strided view) for every tap of the window."""
    oh, ow = (c.h + 2 * c.pad - c.k) // c.stride + 1, (c.w + 2 * c.pad - c.k) // c.stride + 1
    for y in range(c.k):
        for x in range(c.k):
            rows = slice(y, y + (oh - 1) * c.stride + 1, c.stride)
            yield y, x, X[:, rows, x : x + (ow - 1) * c.stride + 1 : c.stride]


def conv2d_reference(c, xp, X, W):
    W = xp.f64(W).reshape(c.k, c.k, c.ci, c.co)
    parts = [view @ W[y, x] for y, x, view in windows(c, xp, padded(c, xp, X))]
    return [sum(parts).reshape(-1, c.co)]


def depthwise_conv2d(b, h, w, ci, k, stride, pad, dtype, block=32) -> ir.PrimFunc:
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1

    @T.prim_func
    def main(
        X: T.Tensor((b, h, w, ci), dtype),
        W: T.Tensor((k, k, ci), dtype),
        Y: T.Tensor((b, oh, ow, ci), dtype),
    ):
        with T.Kernel(T.ceildiv(ci, block), oh, b, threads=128) as (bx, by, bz):
            y = T.alloc_fragment((ow, block), "float32")
            T.clear(y)
            for r, s in T.grid(k, k):
                for i, j in T.Parallel(ow, block):
                    row, column = by * stride - pad + r, i * stride - pad + s
                    if 0 <= row < h and 0 <= column < w and bx * block + j < ci:
                        value = T.cast(X[bz, row, column, bx * block + j], "float32")
                        y[i, j] += value * W[r, s, bx * block + j]
            T.copy(y, Y[bz, by, 0, bx * block])

    return main


def depthwise_reference(c, xp, X, W):
    W = xp.f64(W)
    return [sum(view * W[y, x] for y, x, view in windows(c, xp, padded(c, xp, X)))]


def max_pool(b, h, w, ci, k, stride, dtype, pad=0) -> ir.PrimFunc:
    oh, ow = (h - k) // stride + 1, (w - k) // stride + 1

    @T.prim_func
    def main(X: T.Tensor((b, h, w, ci), dtype), Y: T.Tensor((b, oh, ow, ci), dtype)):
        with T.Kernel(oh, b, threads=128) as (bx, by):
            y = T.alloc_fragment((ow, ci), dtype)
            T.fill(y, -T.infinity(dtype))
            for r, s in T.grid(k, k):
                for i, j in T.Parallel(ow, ci):
                    y[i, j] = T.max(y[i, j], X[by, bx * stride + r, i * stride + s, j])
            T.copy(y, Y[by, bx, :, :])

    return main


def max_pool_reference(c, xp, X):
    views = [view for *_, view in windows(c, xp, xp.f64(X))]
    return [xp.amax(xp.stack(views), axis=0)]


def causal_conv1d(D, k, dtype, block=32) -> ir.PrimFunc:
    """Each channel with its own k taps, looking back, with a SiLU behind."""
    B, L = T.dynamic("b, l")

    @T.prim_func
    def main(
        X: T.Tensor((B, L, D), dtype), W: T.Tensor((D, k), "float32"), Y: T.Tensor((B, L, D), dtype)
    ):
        with T.Kernel(T.ceildiv(L, block), B, threads=128) as (bx, by):
            for i, j in T.Parallel(block, D):
                total = T.alloc_var("float32", init=0.0)
                for tap in T.serial(k):
                    at = bx * block + i - (k - 1) + tap
                    if 0 <= at < L:
                        total += T.cast(X[by, at, j], "float32") * W[j, tap]
                Y[by, bx * block + i, j] = total * T.sigmoid(total)

    return main


def causal_conv1d_reference(c, xp, X, W):
    full = xp.zeros((c.B, c.L + c.k - 1, c.D))
    full[:, c.k - 1 :] = xp.f64(X)
    total = sum(full[:, tap : tap + c.L] * xp.f64(W)[:, tap] for tap in range(c.k))
    return [total / (1 + xp.exp(-total))]


IMAGE = {"b": 2, "h": 9, "w": 7, "ci": 5, "k": 3}


LARGE_IMAGE = {"b": 16, "h": 56, "w": 56, "k": 3, "stride": 1, "pad": 1, "dtype": "float16"}


ENTRIES = (
    Entry(
        conv2d,
        lambda c, draw: [
            draw.normal((c.b, c.h, c.w, c.ci), c.dtype),
            draw.normal((c.k * c.k * c.ci, c.co), c.dtype),
        ],
        conv2d_reference,
        small=[{**IMAGE, "co": 20, "stride": 2, "pad": 1, "dtype": "float16"}],
        large={**LARGE_IMAGE, "ci": 128, "co": 256, "block_M": 128, "block_N": 128, "block_K": 32},
    ),
    Entry(
        depthwise_conv2d,
        lambda c, draw: [
            draw.normal((c.b, c.h, c.w, c.ci), c.dtype),
            draw.normal((c.k, c.k, c.ci), c.dtype),
        ],
        depthwise_reference,
        small=[{**IMAGE, "stride": 1, "pad": 1, "dtype": "float16"}],
        large={**LARGE_IMAGE, "ci": 256, "block": 64},
    ),
    Entry(
        max_pool,
        lambda c, draw: [draw.normal((c.b, c.h, c.w, c.ci), c.dtype)],
        max_pool_reference,
        small=[{**IMAGE, "stride": 2, "dtype": "float16"}],
        large={"b": 32, "h": 112, "w": 112, "ci": 64, "k": 3, "stride": 2, "dtype": "float16"},
    ),
    Entry(
        causal_conv1d,
        lambda c, draw: [draw.normal((c.B, c.L, c.D), c.dtype), draw.normal((c.D, c.k))],
        causal_conv1d_reference,
        small=[{"B": 2, "L": 40, "D": 12, "k": 4, "dtype": "float16"}],
        large={"B": 8, "L": 4096, "D": 1024, "k": 4, "dtype": "bfloat16"},
        call_sizes=("B", "L"),
    ),
)
