"""Framework item: kernels in Triton's language, compiled here."""

import torch
import triton as triton_
import triton.language as tl

from fw_torch import DEVICE, normal, whole


@triton_.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton_.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, other=-float('inf'))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), at < columns)


@triton_.jit
def matmul_kernel(a, b, c, m, n, k, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * k + inner[None, :],
                       (rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :],
                        (inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total,
             (rows[:, None] < m) & (columns[None, :] < n))


@triton_.jit
def count_kernel(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.atomic_add(counts + tl.load(x + at, inside, other=0), 1, inside)


@triton_.autotune([triton_.Config({'BLOCK': 256}, num_warps=4),
                   triton_.Config({'BLOCK': 1024}, num_warps=8)], key=['n'])
@triton_.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 3.0, at < n)


def triton(found):
    x, y = normal(100_003), normal(100_003, seed=2)

    def add():
        out = torch.empty_like(x)
        add_kernel[(triton_.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out

    def softmax():
        rows = normal(100, 700)
        out = torch.empty_like(rows)
        softmax_kernel[(100,)](rows, out, 700, BLOCK=1024)
        return out

    def matmul(dtype):
        a, b = normal(200, 300, dtype=dtype), normal(300, 100, seed=2, dtype=dtype)
        out = torch.empty(200, 100, device=DEVICE)
        matmul_kernel[(triton_.cdiv(200, 64), triton_.cdiv(100, 64))](a, b, out, 200, 100, 300,
                                                                    BLOCK=64)
        return out

    def count():
        values = whole(100_003, dtype=torch.int32).abs()
        counts = torch.zeros(16, dtype=torch.int32, device=DEVICE)
        grid = (triton_.cdiv(values.numel(), 512),)
        count_kernel[grid](values, counts, values.numel(), BLOCK=512)
        return counts

    def autotuned():
        out = torch.empty_like(x)
        scale_kernel[lambda meta: (triton_.cdiv(x.numel(), meta['BLOCK']),)](x, out, x.numel())
        return out

    found.keep('add', add)
    found.keep('softmax', softmax)
    found.keep('matmul fp16', lambda: matmul(torch.float16))
    found.keep('matmul fp32', lambda: matmul(torch.float32))
    found.keep('atomics', count)
    found.keep('autotuned', autotuned)
