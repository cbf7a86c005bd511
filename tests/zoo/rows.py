"""Row-wise kernels: norms, softmax, losses and their gradients, quantisation of rows."""

from __future__ import annotations

import math

import numpy as np

import tilec.language as T
from tilec import ir

from .registry import Entry

LOG2E = math.log2(math.e)
EPS = 1e-5


def rms_norm(N, dtype, block_M=4, threads=128) -> ir.PrimFunc:
    M = T.dynamic("m")

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), W: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            for i, j in T.Parallel(block_M, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, total, dim=1)
            for i in T.Parallel(block_M):
                total[i] = T.rsqrt(total[i] / N + EPS)
            for i, j in T.Parallel(block_M, N):
                x[i, j] *= total[i] * W[j]
            T.copy(x, Y[bx * block_M, 0])

    return main


def rms_norm_residual(N, dtype) -> ir.PrimFunc:
    """The sum of input and residual is kept (in place), its norm is returned."""
    M = T.dynamic("m")

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        residual: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(M, threads=128) as bx:
            x = T.alloc_fragment((N,), "float32")
            square = T.alloc_fragment((1, N), "float32")
            total = T.alloc_fragment((1,), "float32")
            for j in T.Parallel(N):
                x[j] = T.cast(X[bx, j], "float32") + residual[bx, j]
                square[0, j] = x[j] * x[j]
            T.copy(x, residual[bx, :])
            T.reduce_sum(square, total, dim=1)
            for j in T.Parallel(N):
                Y[bx, j] = x[j] * T.rsqrt(total[0] / N + EPS) * W[j]

    return main


def residual_reference(c, xp, X, residual, W):
    total = xp.f64(X) + xp.f64(residual)
    norm = total / xp.sqrt((total * total).mean(axis=1, keepdims=True) + EPS)
    return [norm * xp.f64(W), total]


def layer_norm(M, N, dtype, block_M=4) -> ir.PrimFunc:
    """Also mean and reciprocal deviation, for the gradient."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        B: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
        mean: T.Tensor((M,), "float32"),
        rstd: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            center = T.alloc_fragment((block_M,), "float32")
            spread = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_sum(x, center, dim=1)
            for i in T.Parallel(block_M):
                center[i] /= N
            for i, j in T.Parallel(block_M, N):
                x[i, j] -= center[i]
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, spread, dim=1)
            for i in T.Parallel(block_M):
                spread[i] = T.rsqrt(spread[i] / N + EPS)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * spread[i] * W[j] + B[j]
            T.copy(x, Y[bx * block_M, 0])
            T.copy(center, mean[bx * block_M : (bx + 1) * block_M])
            T.copy(spread, rstd[bx * block_M : (bx + 1) * block_M])

    return main


def layer_norm_reference(c, xp, X, W, B):
    X = xp.f64(X)
    mean = X.mean(axis=1, keepdims=True)
    rstd = 1 / xp.sqrt(((X - mean) ** 2).mean(axis=1, keepdims=True) + EPS)
    return [(X - mean) * rstd * xp.f64(W) + xp.f64(B), mean[:, 0], rstd[:, 0]]


def layer_norm_welford(N, dtype, block_M=8, block_N=16) -> ir.PrimFunc:
    """Mean and variance of rows in one pass over tiles, merged as Welford and Chan do."""
    M = T.dynamic("m")

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        mean: T.Tensor((M,), "float32"),
        variance: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            tile_mean = T.alloc_fragment((block_M,), "float32")
            tile_m2 = T.alloc_fragment((block_M,), "float32")
            center = T.alloc_fragment((block_M,), "float32")
            m2 = T.alloc_fragment((block_M,), "float32")
            T.clear(center)
            T.clear(m2)
            for k in T.serial(T.ceildiv(N, block_N)):
                count = T.min(block_N, N - k * block_N)
                T.copy(X[bx * block_M, k * block_N], x)
                T.reduce_sum(x, tile_mean, dim=1)
                for i in T.Parallel(block_M):
                    tile_mean[i] /= count
                for i, j in T.Parallel(block_M, block_N):
                    delta = x[i, j] - tile_mean[i]
                    x[i, j] = T.if_then_else(j < count, delta * delta, 0.0)
                T.reduce_sum(x, tile_m2, dim=1)
                before = k * block_N
                for i in T.Parallel(block_M):
                    delta = tile_mean[i] - center[i]
                    share = T.cast(count, "float32") / T.cast(before + count, "float32")
                    m2[i] += tile_m2[i] + delta * delta * before * share
                    center[i] += delta * share
            for i in T.Parallel(block_M):
                m2[i] /= N
            T.copy(center, mean[bx * block_M : (bx + 1) * block_M])
            T.copy(m2, variance[bx * block_M : (bx + 1) * block_M])

    return main


def welford_reference(c, xp, X):
    X = xp.f64(X)
    mean = X.mean(axis=1, keepdims=True)
    return [mean[:, 0], ((X - mean) ** 2).mean(axis=1)]


def group_norm(batch, channels, space, groups, dtype) -> ir.PrimFunc:
    size = channels // groups

    @T.prim_func
    def main(
        X: T.Tensor((batch, channels, space), dtype),
        W: T.Tensor((channels,), "float32"),
        Y: T.Tensor((batch, channels, space), dtype),
    ):
        with T.Kernel(groups, batch, threads=128) as (bx, by):
            x = T.alloc_fragment((size, space), "float32")
            square = T.alloc_fragment((size, space), "float32")
            rows = T.alloc_fragment((size,), "float32")
            total = T.alloc_fragment((1,), "float32")
            spread = T.alloc_fragment((1,), "float32")
            T.copy(X[by, bx * size : (bx + 1) * size, :], x)
            T.reduce_sum(x, rows, dim=1)
            T.reduce_sum(rows, total, dim=0)
            for i, j in T.Parallel(size, space):
                x[i, j] -= total[0] / (size * space)
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, rows, dim=1)
            T.reduce_sum(rows, spread, dim=0)
            for i, j in T.Parallel(size, space):
                Y[by, bx * size + i, j] = (
                    x[i, j] * T.rsqrt(spread[0] / (size * space) + EPS) * W[bx * size + i]
                )

    return main


def group_norm_reference(c, xp, X, W):
    grouped = xp.f64(X).reshape(c.batch, c.groups, -1)
    centered = grouped - grouped.mean(axis=2, keepdims=True)
    normed = centered / xp.sqrt((centered**2).mean(axis=2, keepdims=True) + EPS)
    return [normed.reshape(c.batch, c.channels, c.space) * xp.f64(W)[None, :, None]]


def softmax(M, N, dtype, block_M=4, threads=128) -> ir.PrimFunc:
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2E)
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] /= total[i]
            T.copy(x, Y[bx * block_M, 0])

    return main


def softmax_reference(xp, X):
    E = xp.exp(X - xp.amax(X, axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def log_softmax_online(dtype, block_M=4, block_N=32) -> ir.PrimFunc:
    """Rows of any length: one walk for maximum and sum, one for the results."""
    M, N = T.dynamic("m, n")

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.if_then_else(
                        k * block_N + j < N,
                        T.cast(X[bx * block_M + i, k * block_N + j], "float32"),
                        -T.infinity("float32"),
                    )
                T.copy(top, before)
                T.reduce_max(x, top, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2E)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp2((before[i] - top[i]) * LOG2E) + part[i]
            for i in T.Parallel(block_M):
                top[i] += T.log(total[i])
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] -= top[i]
                T.copy(x, Y[bx * block_M, k * block_N])

    return main


def softmax_backward(M, N, dtype, block_M=4) -> ir.PrimFunc:
    @T.prim_func
    def main(Y: T.Tensor((M, N), dtype), dY: T.Tensor((M, N), dtype), dX: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            y = T.alloc_fragment((block_M, N), "float32")
            dy = T.alloc_fragment((block_M, N), "float32")
            product = T.alloc_fragment((block_M, N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Y[bx * block_M, 0], y)
            T.copy(dY[bx * block_M, 0], dy)
            for i, j in T.Parallel(block_M, N):
                product[i, j] = y[i, j] * dy[i, j]
            T.reduce_sum(product, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                dy[i, j] = y[i, j] * (dy[i, j] - total[i])
            T.copy(dy, dX[bx * block_M, 0])

    return main


def softmax_backward_reference(c, xp, Y, dY):
    Y, dY = xp.f64(Y), xp.f64(dY)
    return [Y * (dY - (Y * dY).sum(axis=1, keepdims=True))]


def cross_entropy(N, dtype) -> ir.PrimFunc:
    """Loss of each row for its label (-1: none), and the gradient of the logits."""
    M = T.dynamic("m")

    @T.prim_func
    def main(
        logits: T.Tensor((M, N), dtype),
        labels: T.Tensor((M,), "int32"),
        loss: T.Tensor((M,), "float32"),
        gradient: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(M, threads=128) as bx:
            x = T.alloc_fragment((1, N), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            label = labels[bx]
            T.copy(logits[bx, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = T.exp2((x[i, j] - top[i]) * LOG2E)
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(1):
                chosen = T.cast(logits[bx, T.max(label, 0)], "float32")
                loss[bx + i] = T.if_then_else(label < 0, 0.0, T.log(total[i]) + top[i] - chosen)
            for i, j in T.Parallel(1, N):
                hit = T.if_then_else(j == label, 1.0, 0.0)
                gradient[bx, j] = T.if_then_else(label < 0, 0.0, x[i, j] / total[i] - hit)

    return main


def cross_entropy_reference(c, xp, logits, labels):
    logits, labels = xp.f64(logits), xp.i64(labels)
    p = softmax_reference(xp, logits)
    safe = xp.clip(labels, 0, None)[:, None]
    hit = xp.arange(c.N)[None, :] == safe
    known = (labels >= 0)[:, None]
    zero = xp.zeros(logits.shape)
    loss = xp.where(known, -xp.log(xp.pick(p, safe, 1)), zero[:, :1])[:, 0]
    return [loss, xp.where(known, p - xp.f64(hit), zero)]


def quantize_rows(M, N, dtype) -> ir.PrimFunc:
    """int8 values with one scale for each row, from the largest absolute value."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype), Q: T.Tensor((M, N), "int8"), scales: T.Tensor((M,), "float32")
    ):
        with T.Kernel(M, threads=128) as bx:
            x = T.alloc_fragment((1, N), "float32")
            top = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            T.reduce_absmax(x, top, dim=1)
            for i in T.Parallel(1):
                top[i] = T.max(top[i], 1e-8) / 127.0
                scales[bx + i] = top[i]
            for i, j in T.Parallel(1, N):
                Q[bx, j] = T.cast(T.clamp(T.round(x[i, j] / top[i]), -127.0, 127.0), "int8")

    return main


def quantize_inputs(c, draw):
    # Multiples of the row's scale: no value lies near the middle between two steps.
    q = draw.integers((c.M, c.N), -127, 128)
    q[:, 0] = 127
    return [(q * 2.0 ** draw.integers((c.M, 1), -3, 3)).astype(np.float32).astype(c.dtype)]


def quantize_reference(c, xp, X):
    X = xp.f64(X)
    scale = xp.amax(xp.abs(X), axis=1, keepdims=True) / 127
    return [xp.round(X / scale), scale[:, 0]]


def dequantize_rows(N, dtype, block_M=4, block_N=64) -> ir.PrimFunc:
    M = T.dynamic("m")

    @T.prim_func
    def main(
        Q: T.Tensor((M, N), "int8"), scales: T.Tensor((M,), "float32"), X: T.Tensor((M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                X[row, column] = T.cast(Q[row, column], "float32") * scales[row]

    return main


def matrix(c, draw):
    """One (M, N) matrix."""
    return [draw.normal((c.M, c.N), c.dtype)]


SHAPE = {"M": 13, "N": 100}
LARGE = {"M": 16384, "N": 4096, "dtype": "bfloat16"}

ENTRIES = (
    Entry(
        rms_norm,
        lambda c, draw: [*matrix(c, draw), draw.normal((c.N,), c.dtype)],
        lambda c, xp, X, W: [
            xp.f64(X) / xp.sqrt((xp.f64(X) ** 2).mean(axis=1, keepdims=True) + EPS) * xp.f64(W)
        ],
        small=[{**SHAPE, "dtype": "float16"}, {**SHAPE, "dtype": "float32", "block_M": 1}],
        large={**LARGE, "block_M": 1},
        call_sizes=("M",),
    ),
    Entry(
        rms_norm_residual,
        lambda c, draw: [
            *matrix(c, draw),
            draw.normal((c.M, c.N), c.dtype),
            draw.normal((c.N,)),
        ],
        residual_reference,
        small=[{**SHAPE, "dtype": "bfloat16"}],
        large=LARGE,
        updates=(1,),
        call_sizes=("M",),
    ),
    Entry(
        layer_norm,
        lambda c, draw: [
            *matrix(c, draw),
            draw.normal((c.N,), c.dtype),
            draw.normal((c.N,), c.dtype),
        ],
        layer_norm_reference,
        small=[{**SHAPE, "dtype": "float16"}, {**SHAPE, "dtype": "float32"}],
        large={**LARGE, "block_M": 1},
        out=(-3, -2, -1),
        limits={"float32": 1e-4, "float16": 1e-4, "bfloat16": 1e-4},
    ),
    Entry(
        layer_norm_welford,
        matrix,
        welford_reference,
        small=[{**SHAPE, "dtype": "float32"}],
        large={**LARGE, "block_N": 256},
        out=(-2, -1),
        call_sizes=("M",),
        limits={"float32": 1e-4, "bfloat16": 1e-4},
    ),
    Entry(
        group_norm,
        lambda c, draw: [
            draw.normal((c.batch, c.channels, c.space), c.dtype),
            draw.normal((c.channels,)),
        ],
        group_norm_reference,
        small=[{"batch": 2, "channels": 12, "space": 35, "groups": 3, "dtype": "float16"}],
        large={"batch": 64, "channels": 256, "space": 1024, "groups": 32, "dtype": "float16"},
    ),
    Entry(
        softmax,
        matrix,
        lambda c, xp, X: [softmax_reference(xp, xp.f64(X))],
        small=[{**SHAPE, "dtype": "float32"}, {**SHAPE, "dtype": "bfloat16", "block_M": 1}],
        large={**LARGE, "block_M": 1},
    ),
    Entry(
        log_softmax_online,
        matrix,
        lambda c, xp, X: [xp.log(softmax_reference(xp, xp.f64(X)))],
        small=[{**SHAPE, "dtype": "float16"}, {**SHAPE, "dtype": "float32", "N": 7}],
        large={**LARGE, "N": 50257, "M": 2048, "block_N": 1024},
        call_sizes=("M", "N"),
    ),
    Entry(
        softmax_backward,
        lambda c, draw: [draw.uniform((c.M, c.N), c.dtype), draw.normal((c.M, c.N), c.dtype)],
        softmax_backward_reference,
        small=[{**SHAPE, "dtype": "float32"}],
        large={**LARGE, "block_M": 1},
        limits={"float32": 1e-5},
    ),
    Entry(
        cross_entropy,
        lambda c, draw: [*matrix(c, draw), draw.integers((c.M,), -1, c.N)],
        cross_entropy_reference,
        small=[{**SHAPE, "dtype": "float32"}, {**SHAPE, "dtype": "bfloat16"}],
        large={"M": 4096, "N": 16384, "dtype": "bfloat16"},
        out=(-2, -1),
        call_sizes=("M",),
    ),
    Entry(
        quantize_rows,
        quantize_inputs,
        quantize_reference,
        small=[{**SHAPE, "dtype": "float32"}, {**SHAPE, "dtype": "float16"}],
        large={"M": 16384, "N": 4096, "dtype": "float16"},
        out=(-2, -1),
    ),
    Entry(
        dequantize_rows,
        lambda c, draw: [draw.normal((c.M, c.N), "int8"), draw.uniform((c.M,), low=0.01)],
        lambda c, xp, Q, scales: [xp.f64(Q) * xp.f64(scales)[:, None]],
        small=[{**SHAPE, "dtype": "float16"}],
        large={**LARGE, "block_N": 512},
        call_sizes=("M",),
    ),
)
