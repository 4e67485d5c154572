#!/usr/bin/env python3
"""PyTorch workloads, one a run.  torch_cases.py CASE RESULT.json

RESULT.json then holds `equal` (what a remote run must reproduce exactly), `near` (numbers that must
agree to a relative 1e-3) and `times` in milliseconds. Everything is seeded; no file is downloaded.
"""

import faulthandler
import hashlib
import json
import os
import statistics
import sys
import time

os.environ.setdefault('HF_HUB_OFFLINE', '1')
os.environ.setdefault('TRANSFORMERS_OFFLINE', '1')
os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')

START = time.perf_counter()
import torch  # noqa: E402

DEVICE = 'cuda'


def digest(tensor):
    """A short name of a tensor's exact bytes."""
    flat = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def milliseconds(step, repeats, warm=3):
    """The median time of a step that ends with a synchronisation."""
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    took = []
    for _ in range(repeats):
        started = time.perf_counter()
        step()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - started) * 1e3)
    return statistics.median(took)


def result(equal, times, near=None):
    return {'equal': equal, 'near': near or {}, 'times': times}


def first_tensor():
    started = time.perf_counter()
    value = torch.ones(4, device=DEVICE).sum().item()
    return result({'sum': value, 'device': torch.cuda.get_device_name(0),
                   'capability': list(torch.cuda.get_device_capability(0))},
                  {'first_tensor': (time.perf_counter() - started) * 1e3})


def elementwise():
    torch.manual_seed(1)
    a = torch.randn(1000, 1003).to(DEVICE)
    b = torch.randn(1000, 1003, device='cpu').to(DEVICE)
    values = {
        'add': a + b, 'fma': torch.addcmul(a, a, b), 'sin': torch.sin(a), 'exp': torch.exp(b),
        'where': torch.where(a > 0, a, b), 'sum': a.sum(1), 'mean': b.mean(0),
        'cumsum': torch.cumsum(a.double(), 1), 'sort': torch.sort(a, 1).values,
        'topk': torch.topk(b, 10).values, 'half': (a.half() * b.half()), 'bf16': a.bfloat16() + 1,
        'index': a[torch.arange(999, -1, -1, device=DEVICE)], 'cat': torch.cat([a, b], 1),
        'int': (a * 100).int() % 7, 'softmax': torch.softmax(a, 1), 'any': (a > 3).any(1),
        'nonzero': torch.nonzero(a > 2), 'cumsum_bool': torch.cumsum(a > 0, 0),
    }
    equal = {name: digest(value) for name, value in values.items()}
    torch.cuda.manual_seed(5)
    equal['randn'] = digest(torch.randn(4096, device=DEVICE))
    equal['dropout'] = digest(torch.nn.functional.dropout(a, 0.5))
    small = torch.zeros(16, device=DEVICE)

    def steps():
        nonlocal small
        for _ in range(1000):
            small = small + 1

    times = {'small_op': milliseconds(steps, 5) / 1000,
             'item': milliseconds(lambda: [small[0].item() for _ in range(200)], 5) / 200}
    return result(equal, times)


def matmul(dtype):
    torch.manual_seed(2)
    equal, times = {}, {}
    for m, k, n in ((64, 64, 64), (512, 768, 256), (1024, 1024, 1024), (333, 77, 1001),
                    (4096, 4096, 4096)):
        a = torch.randn(m, k).to(DEVICE, dtype)
        b = torch.randn(k, n).to(DEVICE, dtype)
        equal[f'{m}x{k}x{n}'] = digest(a @ b)
        times[f'{m}x{k}x{n}'] = milliseconds(lambda a=a, b=b: a @ b, 20)
    a = torch.randn(16, 128, 64).to(DEVICE, dtype)
    equal['batched'] = digest(torch.bmm(a, a.transpose(1, 2)))
    layer = torch.nn.Linear(256, 512).to(DEVICE, dtype)
    equal['linear'] = digest(layer(torch.randn(32, 256).to(DEVICE, dtype)))
    return result(equal, times)


def train():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.LayerNorm(256),
                                torch.nn.Linear(256, 10)).to(DEVICE)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(4096, 64)
    labels = (data[:, :10].argmax(1)).to(DEVICE)
    data = data.to(DEVICE)
    losses = []
    started = time.perf_counter()
    for step in range(100):
        rows = slice(step * 32 % 4096, step * 32 % 4096 + 32)
        loss = torch.nn.functional.cross_entropy(model(data[rows]), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(f'{loss.item():.4f}')
    took = (time.perf_counter() - started) * 1e3 / 100
    return result({'losses': losses}, {'step': took})


def convolution():
    torch.manual_seed(4)
    torch.backends.cudnn.deterministic = True
    equal = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        layer = torch.nn.Conv2d(16, 32, 3, padding=1).to(DEVICE, dtype)
        x = torch.randn(8, 16, 56, 56).to(DEVICE, dtype).requires_grad_()
        y = layer(x)
        y.float().square().mean().backward()
        name = str(dtype).split('.')[-1]
        equal[f'{name} forward'] = digest(y)
        equal[f'{name} input gradient'] = digest(x.grad)
        equal[f'{name} weight gradient'] = digest(layer.weight.grad)
    layer = torch.nn.Conv2d(64, 64, 3, padding=1).to(DEVICE)
    x = torch.randn(32, 64, 56, 56).to(DEVICE)
    with torch.no_grad():
        return result(equal, {'forward': milliseconds(lambda: layer(x), 20)})


def copies():
    equal, times = {}, {}
    size = 64 << 20
    pageable = torch.randint(0, 255, (size,), dtype=torch.uint8)
    pinned = pageable.pin_memory()
    device = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    for name, host in (('pageable', pageable), ('pinned', pinned)):
        times[f'h2d_{name}_64MiB'] = milliseconds(lambda h=host: device.copy_(h), 5, 1)
        back = torch.empty_like(host, pin_memory=name == 'pinned')
        times[f'd2h_{name}_64MiB'] = milliseconds(lambda b=back: b.copy_(device), 5, 1)
        equal[name] = bool((back == pageable).all())
        device.zero_()
        device.copy_(host, non_blocking=True)
        back.zero_()
        back.copy_(device, non_blocking=True)
        torch.cuda.synchronize()
        equal[f'{name} asynchronous'] = bool((back == pageable).all())
    return result(equal, times)


def streams():
    torch.manual_seed(5)
    a = torch.randn(512, 512).to(DEVICE)
    pool = [torch.cuda.Stream() for _ in range(4)]
    results = []
    for index, stream in enumerate(pool):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            b = a + index
            for _ in range(20):
                b = torch.tanh(b) * 1.01
            results.append(b)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for stream in pool:
        torch.cuda.current_stream().wait_stream(stream)
    last.record()
    last.synchronize()
    positive = first.elapsed_time(last) >= 0
    return result({'values': [digest(r) for r in results], 'elapsed': positive}, {})


def resnet50():
    import torchvision
    torch.manual_seed(6)
    torch.backends.cudnn.deterministic = True
    model = torchvision.models.resnet50(weights=None).eval().to(DEVICE)
    equal, times = {}, {}
    with torch.no_grad():
        for batch in (1, 64):
            x = torch.randn(batch, 3, 224, 224).to(DEVICE)
            equal[f'batch {batch}'] = digest(model(x))
            times[f'batch_{batch}'] = milliseconds(lambda x=x: model(x), 20)
    return result(equal, times)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config()).eval().to(DEVICE, torch.float16)
    prompt = torch.tensor([[464, 3290, 318, 257, 845]], device=DEVICE)

    def generate():
        with torch.no_grad():
            return model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                  min_new_tokens=64, max_new_tokens=64, pad_token_id=50256)

    tokens = generate()[0].tolist()
    return result({'tokens': tokens}, {'generate_64': milliseconds(generate, 3, 1)})


def autocast():
    import torchvision
    torch.manual_seed(8)
    torch.backends.cudnn.deterministic = True
    model = torchvision.models.resnet50(weights=None).to(DEVICE)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler('cuda')
    x = torch.randn(64, 3, 224, 224).to(DEVICE)
    labels = torch.randint(0, 1000, (64,)).to(DEVICE)
    losses, took = [], []
    for _ in range(8):
        started = time.perf_counter()
        with torch.autocast('cuda', dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), labels)
        optimiser.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        losses.append(f'{loss.item():.4f}')
        took.append((time.perf_counter() - started) * 1e3)
    return result({'losses': losses}, {'step': statistics.median(took[3:])})


def attention():
    torch.manual_seed(9)
    equal = {}
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (torch.randn(2, 8, 256, 64).to(DEVICE, dtype) for _ in range(3))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        equal[str(dtype).split('.')[-1]] = digest(out)
    return result(equal, {})


CASES = {
    'first_tensor': first_tensor, 'elementwise': elementwise, 'copies': copies,
    'matmul_fp32': lambda: matmul(torch.float32), 'matmul_fp16': lambda: matmul(torch.float16),
    'matmul_bf16': lambda: matmul(torch.bfloat16), 'train': train, 'convolution': convolution,
    'streams': streams, 'attention': attention, 'resnet50': resnet50, 'gpt2': gpt2,
    'autocast': autocast,
}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in CASES:
        print(__doc__, '\ncases:', ' '.join(CASES), file=sys.stderr)
        return 2
    limit = float(os.environ.get('FLYT_CASE_SECONDS', '0'))
    if limit > 5:
        # A hang tells where before the runner ends it.
        faulthandler.dump_traceback_later(limit - 3, exit=False)
    found = CASES[sys.argv[1]]()
    found['times']['process'] = (time.perf_counter() - START) * 1e3
    with open(sys.argv[2], 'w', encoding='utf-8') as file:
        json.dump(found, file, indent=1)
    print(json.dumps(found))
    return 0


if __name__ == '__main__':
    sys.exit(main())
