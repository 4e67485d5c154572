"""Framework items: what PyTorch computes without a model."""

import torch

DEVICE = 'cuda'

torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False


def normal(*shape, seed=1, dtype=torch.float32):
    """Numbers that are made on the CPU, so that they do not depend on the GPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def whole(*shape, seed=1, dtype=torch.float32, limit=8):
    """Small whole numbers: their sums and products are exact, in whatever order they are made."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-limit, limit, shape, generator=generator).to(DEVICE, dtype)


def torch_eager(found):
    a, b = normal(513, 301), normal(513, 301, seed=2)
    indices = torch.arange(300, -1, -1, device=DEVICE)
    functional = torch.nn.functional
    makers = {
        'arithmetic': lambda: (a + b) * a - b / (a.abs() + 1),
        'transcendental': lambda: [torch.sin(a), torch.exp(a), torch.log1p(a.abs()), torch.erf(a),
                                   torch.lgamma(a.abs() + 1), torch.pow(a.abs(), 1.5)],
        'types': lambda: [a.half(), a.bfloat16(), a.double(), a.int(), a > 0, a.to(torch.uint8)],
        'fp8': lambda: a.to(torch.float8_e4m3fn).to(torch.float32),
        'reductions': lambda: [a.sum(), a.sum(0), a.mean(1), a.amax(1), a.argmin(0), a.std(1),
                               a.norm(), a.prod(1), a.logsumexp(0)],
        'scans': lambda: [a.cumsum(1), a.cumprod(1), a.cummax(0), a.logcumsumexp(1)],
        'sorting': lambda: [a.sort(1), a.topk(9, 1), a.median(1), a.kthvalue(7, 1), a.msort()],
        'unique': lambda: torch.unique((a * 3).int(), return_counts=True),
        'indexing': lambda: [a[:, indices], a[a > 1], a.index_select(1, indices), a.gather(
            1, (b * 10).long() % 301), a.masked_fill(a > 0, 1), torch.where(a > 0, a, b),
                             a.nonzero()],
        'scatter': lambda: [torch.zeros_like(a).scatter_(1, (b * 10).long() % 301, 1.0),
                            torch.zeros(40, device=DEVICE).index_add_(
                                0, torch.arange(513, device=DEVICE) % 40, whole(513))],
        'shapes': lambda: [a.t().contiguous(), torch.cat([a, b]), torch.stack([a, b], 2),
                           a.flip(0), a.roll(7, 1), a.unfold(1, 5, 3), a.repeat(2, 1), a.tril(),
                           torch.nn.functional.pad(a, (1, 2, 3, 4))],
        'complex': lambda: torch.complex(a, b) * torch.complex(b, a).conj(),
        'bits': lambda: (a * 100).int() ^ (b * 100).int() << 2,
        'histogram': lambda: [torch.histc(a, 50), torch.bincount((a.abs() * 9).long().flatten())],
        'matmul': lambda: [a @ b.t(), (a.half() @ b.half().t()), torch.einsum('ij,ij->j', a, b),
                           torch.baddbmm(normal(4, 30, 30), normal(4, 30, 20), normal(4, 20, 30))],
        'int8 matmul': lambda: torch._int_mm(whole(64, 64, dtype=torch.int8),
                                             whole(64, 64, seed=3, dtype=torch.int8)),
        'norms': lambda: [functional.layer_norm(a, (301,)), functional.softmax(a, 1),
                          functional.group_norm(normal(4, 12, 9, 9), 3),
                          functional.rms_norm(a, (301,)), functional.log_softmax(b, 0)],
        'activations': lambda: [functional.gelu(a), functional.silu(a), functional.mish(a),
                                functional.glu(normal(32, 64))],
        'embedding': lambda: functional.embedding((a.abs() * 50).long() % 512, normal(512, 32)),
        'pooling': lambda: [functional.max_pool2d(normal(4, 8, 33, 33), 3, 2),
                            functional.adaptive_avg_pool2d(normal(4, 8, 33, 33), 5)],
        'resampling': lambda: [
            functional.interpolate(normal(2, 3, 17, 19), scale_factor=2.5, mode='bilinear'),
            functional.grid_sample(normal(2, 3, 17, 19), normal(2, 9, 9, 2).tanh(),
                                   align_corners=False)],
        'losses': lambda: [functional.cross_entropy(a, (b[:, 0].abs() * 9).long()),
                           functional.mse_loss(a, b), functional.kl_div(a, b.softmax(1))],
        'text': lambda: str(a[:3, :5]),
    }
    for name, make in makers.items():
        found.keep(name, make)
    torch.cuda.manual_seed(5)
    for name, make in {
            'rand': lambda: torch.rand(4099, device=DEVICE),
            'randn': lambda: torch.randn(4099, device=DEVICE, dtype=torch.float16),
            'randint': lambda: torch.randint(0, 99, (4099,), device=DEVICE),
            'randperm': lambda: torch.randperm(70001, device=DEVICE),
            'multinomial': lambda: torch.multinomial(a.abs(), 5),
            'dropout': lambda: torch.nn.functional.dropout(a, 0.3),
            'exponential': lambda: torch.empty(4099, device=DEVICE).exponential_()}.items():
        found.keep(name, make)
    found.keep('generator state', lambda: torch.cuda.get_rng_state())


def profiler(found):
    """What a program computes while it is profiled, and the operations seen on the CPU. Kernels on
    the GPU are seen natively only: that takes CUPTI, which works with NVIDIA's own driver."""
    a = normal(300, 300)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]

    def profiled():
        with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
            with torch.profiler.record_function('ours'):
                result = torch.softmax(a @ a, 1)
            torch.cuda.synchronize()
        names = {event.key for event in profile.key_averages()
                 if event.key.startswith(('aten::', 'ours'))}
        return [sorted(names), result]

    found.keep('profiled', profiled)
    found.keep('a second time', profiled)

    def ranges():
        torch.cuda.profiler.start()
        torch.cuda.nvtx.range_push('outer')
        result = torch.tanh(a)
        torch.cuda.nvtx.range_pop()
        torch.cuda.profiler.stop()
        return result

    found.keep('ranges', ranges)


def streams_events(found):
    a = normal(700, 700)
    streams = [torch.cuda.Stream(priority=priority) for priority in (0, -1, 0, -2)]
    events = []
    results = []
    for turn in range(8):
        stream = streams[turn % 4]
        with torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.default_stream())
            if events:
                stream.wait_event(events[-1])
                previous = results[-1]
                previous.record_stream(stream)
            else:
                previous = a
            # A chain through all the streams is only right if each waits for the one before.
            torch.cuda._sleep(2_000_000)
            results.append(torch.tanh(previous @ a) * 0.5)
            events.append(torch.cuda.Event(enable_timing=True, blocking=turn % 2 == 1))
            events[-1].record()
    events[-1].synchronize()
    found.keep('chain', lambda: results)
    found.keep('events', lambda: [event.query() for event in events])
    found.keep('time passes', lambda: [x.elapsed_time(y) > 0 for x, y in zip(events, events[1:])])
    late = torch.cuda.Event()
    torch.cuda._sleep(500_000_000)
    late.record()
    found.keep('not yet done', lambda: late.query())
    late.synchronize()
    found.keep('done', lambda: (late.query(), torch.cuda.current_stream().query()))
    host = torch.empty(700, 700, pin_memory=True)
    with torch.cuda.stream(streams[0]):
        host.copy_(results[-1], non_blocking=True)
        copied = streams[0].record_event()
    copied.synchronize()
    found.keep('asynchronous copy', lambda: host.clone())
    external = torch.cuda.ExternalStream(streams[1].cuda_stream)
    with torch.cuda.stream(external):
        found.keep('external stream', lambda: a.sum(0) + 1)
    found.keep('priorities', lambda: [stream.priority for stream in streams])


def attention(found):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    attend = torch.nn.functional.scaled_dot_product_attention
    backends = {'math': SDPBackend.MATH, 'flash': SDPBackend.FLASH_ATTENTION,
                'efficient': SDPBackend.EFFICIENT_ATTENTION, 'cudnn': SDPBackend.CUDNN_ATTENTION}
    for dtype in (torch.float16, torch.bfloat16):
        for name, backend in backends.items():
            q, k, v = (normal(2, 8, 333, 64, seed=seed, dtype=dtype).requires_grad_()
                       for seed in (1, 2, 3))
            label = f'{name} {str(dtype).rpartition(".")[2]}'

            def forward(causal, q=q, k=k, v=v, backend=backend):
                with sdpa_kernel(backend):
                    return attend(q, k, v, is_causal=causal)

            # The flash kernel adds up the query's gradient in no fixed order.
            def backward(name=name, q=q, k=k, v=v, forward=forward):
                forward(True).float().square().sum().backward()
                return [k.grad, v.grad] if name == 'flash' else [q.grad, k.grad, v.grad]

            found.keep(label, lambda forward=forward: [forward(False), forward(True)])
            if name in ('math', 'flash'):
                found.keep(f'{label} backward', backward)
    layer = torch.nn.TransformerEncoderLayer(128, 4, batch_first=True).eval()
    torch.manual_seed(4)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    layer = layer.to(DEVICE)
    with torch.no_grad():
        found.keep('encoder layer', lambda: layer(normal(3, 50, 128)))


def fft(found):
    for size in (64, 1000, 1009, 4096, 100_003, 1 << 20):
        x = normal(3, size)
        found.keep(f'fft {size}', lambda x=x: torch.fft.fft(x))
        found.keep(f'rfft, irfft {size}',
                   lambda x=x, n=size: torch.fft.irfft(torch.fft.rfft(x), n=n))
    y = normal(5, 96, 70)
    found.keep('fft2', lambda: torch.fft.fft2(y))
    found.keep('fftn double', lambda: torch.fft.fftn(y.double()))
    found.keep('ifft2', lambda: torch.fft.ifft2(torch.complex(y, y.flip(1))))
    found.keep('half', lambda: torch.fft.rfft(normal(4, 256, dtype=torch.float16)))
    found.keep('stft', lambda: torch.stft(normal(2, 9000), 400, 160, window=torch.hann_window(
        400, device=DEVICE), return_complex=True))
    x = normal(8, 128).requires_grad_()

    def gradient():
        torch.fft.rfft(x).abs().square().sum().backward()
        return x.grad

    found.keep('gradient', gradient)


def sparse(found):
    """Whole numbers: cuSPARSE may add in any order."""
    dense = whole(200, 300) * (whole(200, 300, seed=2) > 5)
    other = whole(300, 40, seed=3)
    coo, csr = dense.to_sparse(), dense.to_sparse_csr()
    makers = {
        'coo': lambda: [coo.coalesce().indices(), coo.coalesce().values()],
        'csr': lambda: [csr.crow_indices(), csr.col_indices(), csr.values()],
        'csc': lambda: dense.to_sparse_csc().values(),
        'coo @ dense': lambda: torch.sparse.mm(coo, other),
        'csr @ dense': lambda: csr @ other,
        'csr @ vector': lambda: csr @ other[:, 0],
        'sparse @ sparse': lambda: torch.sparse.mm(csr, other.to_sparse_csr()).to_dense(),
        'sum': lambda: torch.sparse.sum(coo, 0).to_dense(),
        'addmm': lambda: torch.sparse.addmm(whole(200, 40, seed=4), coo, other),
        'sampled': lambda: torch.sparse.sampled_addmm(
            csr, whole(200, 7, seed=5), whole(7, 300, seed=6)).values(),
        'add': lambda: (coo + coo).to_dense(),
        'bsr': lambda: whole(64, 64).to_sparse_bsr((16, 16)).values(),
    }
    for name, make in makers.items():
        found.keep(name, make)

    def semi_structured():
        pattern = torch.tensor([0, 0, 1, 1], device=DEVICE).tile((128, 32)).bool()
        pruned = whole(128, 128, dtype=torch.float16).masked_fill(~pattern, 0)
        return torch.sparse.to_sparse_semi_structured(pruned) @ whole(128, 64, seed=2,
                                                                      dtype=torch.float16)

    found.keep('2:4', semi_structured)


def linalg(found):
    for batch, size in (((), 64), ((), 700), ((9,), 33)):
        a = normal(*batch, size, size)
        positive = a @ a.mT + size * torch.eye(size, device=DEVICE)
        label = f'{size}' + (f' x {batch[0]}' if batch else '')
        makers = {
            'cholesky': lambda p=positive: torch.linalg.cholesky(p),
            'lu': lambda a=a: torch.linalg.lu_factor(a), 'qr': lambda a=a: torch.linalg.qr(a),
            'svd': lambda a=a: torch.linalg.svdvals(a),
            'inv': lambda p=positive: torch.linalg.inv(p),
            'eigh': lambda p=positive: torch.linalg.eigvalsh(p),
            'solve': lambda p=positive, a=a: torch.linalg.solve(p, a),
            'det': lambda p=positive: torch.linalg.slogdet(p),
            'lstsq': lambda a=a, p=positive: torch.linalg.lstsq(p, a).solution,
            'triangular': lambda a=a, p=positive: torch.linalg.solve_triangular(
                torch.linalg.cholesky(p), a, upper=False),
            'matrix_exp': lambda a=a, n=size: torch.linalg.matrix_exp(a / n),
        }
        for name, make in makers.items():
            found.keep(f'{name} {label}', make)
    found.keep('eig', lambda: torch.linalg.eigvals(normal(40, 40)))
    found.keep('double', lambda: torch.linalg.inv(normal(100, 100).double()))
