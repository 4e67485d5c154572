"""Framework item: kernels that numba compiles."""

import math

import old_numpy  # noqa: F401
import numba as numba_
import numpy as np
from numba import cuda


def numbers(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@cuda.jit
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit(device=True)
def squashed(value):
    return value / (1 + math.fabs(value))


@cuda.jit
def calls_device(x, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = squashed(x[i]) + math.sin(x[i])


@cuda.jit
def block_sums(x, out):
    tile = cuda.shared.array(256, numba_.float32)
    i = cuda.grid(1)
    lane = cuda.threadIdx.x
    tile[lane] = x[i] if i < x.size else 0
    cuda.syncthreads()
    step = 128
    while step > 0:
        if lane < step:
            tile[lane] += tile[lane + step]
        cuda.syncthreads()
        step //= 2
    if lane == 0:
        out[cuda.blockIdx.x] = tile[0]


@cuda.jit
def counts(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, x[i] % 16, 1)


@cuda.jit
def transpose(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[j, i] = x[i, j]


def numba(found):
    x, y = numbers(10_000), numbers(10_000, seed=2)

    def simple():
        out = cuda.device_array_like(x)
        saxpy[40, 256](np.float32(2.5), cuda.to_device(x), cuda.to_device(y), out)
        return out.copy_to_host()

    def copied_for_us():
        out = np.zeros_like(x)
        saxpy[40, 256](np.float32(0.5), x, y, out)
        return out

    def device_functions():
        out = cuda.device_array_like(x)
        calls_device[7, 128](cuda.to_device(x), out)
        return out.copy_to_host()

    def sums():
        out = cuda.device_array(40, np.float32)
        block_sums[40, 256](cuda.to_device(x), out)
        return out.copy_to_host()

    def atomics():
        out = cuda.to_device(np.zeros(16, np.int32))
        counts[40, 256](cuda.to_device(np.arange(10_000, dtype=np.int32)), out)
        return out.copy_to_host()

    def two_dimensions():
        matrix = numbers(70, 90)
        out = cuda.device_array((90, 70), np.float32)
        transpose[(5, 6), (16, 16)](cuda.to_device(matrix), out)
        return out.copy_to_host()

    def streams():
        stream = cuda.stream()
        page_locked = cuda.pinned_array(10_000, np.float32)
        page_locked[:] = x
        start, end = cuda.event(), cuda.event()
        start.record(stream)
        there = cuda.to_device(page_locked, stream=stream)
        out = cuda.device_array(10_000, np.float32, stream=stream)
        saxpy[40, 256, stream](np.float32(3), there, there, out)
        end.record(stream)
        back = out.copy_to_host(stream=stream)
        stream.synchronize()
        return [back, cuda.event_elapsed_time(start, end) >= 0]

    def ufunc():
        @numba_.vectorize(['float32(float32, float32)'], target='cuda')
        def mixed(a, b):
            return a * b + 1

        return mixed(x, y)

    def mapped():
        shared = cuda.mapped_array(1000, np.float32)
        shared[:] = 2
        saxpy[4, 256](np.float32(3), shared, shared, shared)
        cuda.synchronize()
        return np.array(shared)

    for name, make in {'simple': simple, 'copied for us': copied_for_us,
                       'device functions': device_functions, 'shared memory': sums,
                       'atomics': atomics, 'two dimensions': two_dimensions, 'streams': streams,
                       'ufunc': ufunc, 'mapped': mapped}.items():
        found.keep(name, make)
    found.keep('device', lambda: [str(cuda.get_current_device().compute_capability),
                                  cuda.current_context().get_memory_info()[1]])
