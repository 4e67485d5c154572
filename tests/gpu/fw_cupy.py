"""Framework item: CuPy, its own kernels and ours, and CUDA's libraries behind it."""

import cupy as cp
import numpy as np

RAW = r'''
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void reversed(const int* x, int* y, int n) {
  extern __shared__ int tile[];
  int i = threadIdx.x;
  tile[i] = x[i];
  __syncthreads();
  y[i] = tile[n - 1 - i];
}
'''
TEMPLATES = r'''
__constant__ float weights[4];
template <typename T> __global__ void power(T* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * x[i] + T(weights[i % 4]);
}
'''


def host(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kernels(found):
    x, y = cp.asarray(host(5000)), cp.asarray(host(5000, seed=2))

    def raw_kernel():
        out = y.copy()
        cp.RawKernel(RAW, 'saxpy')((20,), (256,), (np.float32(2.5), x, out, np.int32(5000)))
        return out

    def raw_shared():
        out = cp.empty(512, cp.int32)
        module = cp.RawModule(code=RAW)
        arguments = (cp.arange(512, dtype=cp.int32), out, np.int32(512))
        module.get_function('reversed')((1,), (512,), arguments, shared_mem=2048)
        return out

    def raw_templates():
        module = cp.RawModule(code=TEMPLATES, options=('-std=c++17',),
                              name_expressions=['power<float>', 'power<double>'])
        pointer = module.get_global('weights')
        weights = cp.ndarray((4,), cp.float32, pointer)
        weights[...] = cp.asarray([1, 2, 3, 4], cp.float32)
        results = []
        for name, dtype in (('power<float>', cp.float32), ('power<double>', cp.float64)):
            values = x.astype(dtype)
            module.get_function(name)((20,), (256,), (values, np.int32(5000)))
            results.append(values)
        return results

    found.keep('RawKernel', raw_kernel)
    found.keep('RawModule, shared memory', raw_shared)
    found.keep('RawModule, templates and a global', raw_templates)
    found.keep('ElementwiseKernel', lambda: cp.ElementwiseKernel(
        'float32 a, float32 b', 'float32 c', 'c = a > b ? a * b : a - b', 'mixed')(x, y))
    found.keep('ReductionKernel', lambda: cp.ReductionKernel(
        'float32 x', 'float32 y', 'x * x', 'max(a, b)', 'y = a', '0', 'largest')(x))

    @cp.fuse()
    def fused(a, b):
        return cp.sqrt(a * a + b * b) + 1

    found.keep('fuse', lambda: fused(x, y))


def cupy(found):
    x, m = cp.asarray(host(4000)), cp.asarray(host(300, 200))
    makers = {
        'elementwise': lambda: [cp.sin(x) + x ** 2, cp.exp(-cp.abs(x)), x > 0,
                                x.astype(cp.float16)],
        'reductions': lambda: [x.sum(), x.mean(), x.std(), m.argmax(1), m.max(0), cp.cumsum(x)],
        'sorting': lambda: [cp.sort(x), cp.argsort(x), cp.unique(cp.round(x)), cp.partition(x, 99)],
        'indexing': lambda: [x[::-3], x[x > 1], m[:, [3, 1, 2]], cp.where(m > 0, m, 0)],
        'matmul': lambda: [m @ m.T, cp.dot(m.T, m), cp.einsum('ij,kj->ik', m, m),
                           m.astype(cp.float64) @ m.T.astype(cp.float64)],
        'fft': lambda: [cp.fft.fft(x), cp.fft.irfft(cp.fft.rfft(x)), cp.fft.fft2(m)],
        'linalg': lambda: [cp.linalg.qr(m), cp.linalg.svd(m, compute_uv=False),
                           cp.linalg.solve(m.T @ m + cp.eye(200, dtype=cp.float32), m.T)],
        'generator': lambda: [cp.random.default_rng(5).random(3000),
                              cp.random.default_rng(6).integers(0, 99, 3000)],
        'histogram': lambda: cp.histogram(x, bins=30),
        'convolve': lambda: cp.convolve(cp.round(x), cp.ones(9, cp.float32)),
        'to numpy': lambda: cp.asnumpy(m),
    }
    for name, make in makers.items():
        found.keep(name, make)
    kernels(found)
    memory_and_streams(found, x, m)
    found.keep('pool', lambda: cp.get_default_memory_pool().used_bytes() > 0)
    found.keep('attributes', lambda: [cp.cuda.Device(0).compute_capability,
                                      cp.cuda.runtime.getDeviceProperties(0)['totalGlobalMem']])


def memory_and_streams(found, x, m):
    def old_random():
        cp.random.seed(4)
        return [cp.random.rand(1000), cp.random.randn(1000), cp.random.permutation(500)]

    def streams():
        first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream()
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        with first:
            begin.record()
            a = cp.sin(x) * 2
            end.record()
        with second:
            second.wait_event(end)
            b = a + 1
        second.synchronize()
        return [b, cp.cuda.get_elapsed_time(begin, end) >= 0]

    def captured():
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            out = cp.zeros_like(x)
            cp.add(out, x, out=out)
            stream.synchronize()
            stream.begin_capture()
            cp.add(out, x, out=out)
            graph = stream.end_capture()
            for _ in range(3):
                graph.launch(stream=stream)
            stream.synchronize()
        return out

    def pinned():
        memory = cp.cuda.alloc_pinned_memory(16000)
        page_locked = np.frombuffer(memory, np.float32, 4000)
        x.get(out=page_locked)
        return page_locked.copy()

    def managed():
        with cp.cuda.using_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc):
            return cp.arange(1000) * 3

    def sparse():
        from cupyx.scipy import sparse as matrices
        whole = cp.round(m)
        return [(matrices.csr_matrix(whole) @ whole.T), matrices.coo_matrix(whole).data]

    for name, make in {'old random': old_random, 'streams': streams, 'capture': captured,
                       'pinned': pinned, 'managed': managed, 'sparse': sparse}.items():
        found.keep(name, make)
