#!/usr/bin/env python3
"""PyTorch workloads for gpu_bench.py, one process a way of reaching the GPU.

Standard input has a command a line: `hello`, `prepare_start`, `start` behind it, `prepare NAME`,
`round NAME`, `waits NAME`, `release NAME`, `losses STEPS`. Each is answered on standard output by
lines `figure VALUE`, the value as JSON, and then `done 1`, or `error "why"` and `done 0`.
Everything is seeded; no file is downloaded. What libraries print goes to standard error. The end
of the input ends the process.

`round` and `start` answer with `processor` as well: how long a fixed loop takes where they run, in
milliseconds, the slower of before and after. On a virtual machine a processor may be half as fast
for seconds, as another machine works on the same core; what is CPU-bound takes twice as long then.

`waits` needs FLYT_TRACE in the environment and FLYT_BENCH_FLYT, the path of our `flyt`: it counts
what the client waited for while some units of work ran, without what came before.
"""

import gc
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
import traceback

from gpu_report import SLOW

os.environ.setdefault('HF_HUB_OFFLINE', '1')
os.environ.setdefault('TRANSFORMERS_OFFLINE', '1')
# Reductions in a fixed order, so that results can be compared.
os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')

DEVICE = 'cuda'
GPT2_TOKENS = 64


def digest(tensor):
    """A short name of a tensor's exact bytes."""
    flat = tensor.detach().contiguous().cpu().reshape(-1)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def loop_ms():
    """What this processor takes for a fixed piece of Python; the best of a few tries."""
    best = float('inf')
    for _ in range(3):
        started = time.perf_counter()
        found = {}
        total = 0
        for i in range(20000):
            total += i
            found[i & 255] = total
        best = min(best, time.perf_counter() - started)
    return best * 1e3


class Processors:
    """Finds one that runs at its full speed, before something is timed."""

    def __init__(self):
        self.all = os.sched_getaffinity(0)
        self.quietest = min(self.try_out(processor) for processor in sorted(self.all))

    def try_out(self, processor):
        """This thread goes on where it is put, until the system has a reason to move it."""
        os.sched_setaffinity(0, {processor})
        took = loop_ms()
        os.sched_setaffinity(0, self.all)
        return took

    def settle(self):
        """Moves this thread if its processor is slow at present; what the loop takes then."""
        took = loop_ms()
        for processor in random.sample(sorted(self.all), len(self.all)):
            if took <= SLOW * self.quietest:
                break
            took = self.try_out(processor)
        self.quietest = min(self.quietest, took)
        return took


class Workload:
    """One kind of work. `step` does `per_step` units of it and ends when the GPU has done them."""
    unit = ''
    per_step = 1
    steps = 1     # of one sample
    samples = 3   # of one round
    scale = 1e3   # of a figure, from seconds for one `figure_units` units
    figure_units = 1

    def __init__(self, torch):
        self.torch = torch
        self.check = None  # What natively and remotely must be equal.

    def step(self):
        raise NotImplementedError

    def warm(self):
        for _ in range(3):
            self.step()

    def for_counting(self):
        """Makes a step shorter, where fewer units tell as much."""

    def round(self):
        """The figure of one round: the median of its samples."""
        found = []
        for _ in range(self.samples):
            self.torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(self.steps):
                self.step()
            took = time.perf_counter() - started
            found.append(took / (self.steps * self.per_step) * self.figure_units * self.scale)
        return statistics.median(found)


class SmallOp(Workload):
    # So many that the wait at the end does not count, even for a distant server.
    unit, per_step, scale = 'operation', 10000, 1e6

    def __init__(self, torch):
        super().__init__(torch)
        self.value = torch.zeros(16, device=DEVICE)

    def step(self):
        b = self.value
        for _ in range(self.per_step):
            b = b + 1
        self.torch.cuda.synchronize()
        self.last = b

    def warm(self):
        self.step()
        self.check = self.last[3].item()


class Item(Workload):
    unit, per_step, scale = 'item()', 100, 1e6

    def __init__(self, torch):
        super().__init__(torch)
        self.value = torch.full((16,), 2.5, device=DEVICE)

    def step(self):
        a = self.value
        for _ in range(self.per_step):
            self.check = a[0].item()


class ResNet(Workload):
    unit = 'inference'
    batch = 1
    steps = 10

    def __init__(self, torch):
        super().__init__(torch)
        import torchvision
        torch.manual_seed(6)
        torch.backends.cudnn.deterministic = True
        self.model = torchvision.models.resnet50(weights=None).eval().to(DEVICE)
        self.input = torch.randn(self.batch, 3, 224, 224).to(DEVICE)

    def step(self):
        with self.torch.no_grad():
            self.output = self.model(self.input)
        self.torch.cuda.synchronize()

    def warm(self):
        super().warm()
        self.check = digest(self.output)


class ResNetBatch(ResNet):
    batch = 64
    steps = 5


class ResNetStream(ResNet):
    """As who works through many pictures does it: the inputs are there, and it waits once."""
    per_step, steps = 20, 1

    def step(self):
        with self.torch.no_grad():
            for _ in range(self.per_step):
                self.output = self.model(self.input)
        self.torch.cuda.synchronize()

    def warm(self):
        self.step()
        self.check = digest(self.output)


class ResNetBatchStream(ResNetStream):
    batch = 64


class Gpt2(Workload):
    unit, per_step, samples, figure_units = 'token', GPT2_TOKENS, 1, GPT2_TOKENS

    def __init__(self, torch):
        super().__init__(torch)
        from transformers import GPT2Config, GPT2LMHeadModel
        torch.manual_seed(7)
        self.model = GPT2LMHeadModel(GPT2Config()).eval().to(DEVICE, torch.float16)
        self.prompt = torch.tensor([[464, 3290, 318, 257, 845]], device=DEVICE)
        self.mask = torch.ones_like(self.prompt)

    def step(self):
        with self.torch.no_grad():
            self.output = self.model.generate(
                self.prompt, attention_mask=self.mask, do_sample=False,
                min_new_tokens=self.per_step, max_new_tokens=self.per_step, pad_token_id=50256)
        self.torch.cuda.synchronize()

    def for_counting(self):
        self.per_step = 16

    def warm(self):
        self.step()
        self.check = digest(self.output)


class Train(Workload):
    """The loss is not read in each step; the scaler looks for infinities in each."""
    unit, per_step, samples = 'training step', 5, 2

    def __init__(self, torch):
        super().__init__(torch)
        import torchvision
        torch.manual_seed(8)
        torch.backends.cudnn.deterministic = True
        self.model = torchvision.models.resnet50(weights=None).to(DEVICE)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.scaler = torch.amp.GradScaler('cuda')
        self.input = torch.randn(64, 3, 224, 224).to(DEVICE)
        self.labels = torch.randint(0, 1000, (64,)).to(DEVICE)

    def step(self):
        torch = self.torch
        for _ in range(self.per_step):
            with torch.autocast('cuda', dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(self.model(self.input), self.labels)
            self.optimiser.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimiser)
            self.scaler.update()
        torch.cuda.synchronize()
        self.loss = loss

    def warm(self):
        self.step()
        self.check = f'{self.loss.item():.4f}'


class TrainGpt2:
    """A transformer's training, for its losses; `dtype` is what its matrices are multiplied in."""

    def __init__(self, torch, dtype):
        from transformers import GPT2Config, GPT2LMHeadModel
        self.torch = torch
        self.dtype = dtype
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(9)
        config = GPT2Config(n_layer=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        config._attn_implementation = 'eager'
        self.model = GPT2LMHeadModel(config).to(DEVICE)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.tokens = torch.randint(0, config.vocab_size, (4, 128)).to(DEVICE)

    def step(self):
        half = self.dtype != self.torch.float32
        with self.torch.autocast('cuda', dtype=self.torch.bfloat16, enabled=half):
            self.loss = self.model(self.tokens, labels=self.tokens).loss
        self.optimiser.zero_grad()
        self.loss.backward()
        self.optimiser.step()


WORKLOADS = {'small_op': SmallOp, 'item': Item, 'resnet_1': ResNet, 'resnet_64': ResNetBatch,
             'resnet_1_stream': ResNetStream, 'resnet_64_stream': ResNetBatchStream,
             'gpt2': Gpt2, 'train': Train}


def wait_counters(flyt, recording):
    """Totals, and {call: waits so far}, of a recording, of this process or another."""
    environment = {name: value for name, value in os.environ.items() if name != 'FLYT_TRACE'}
    done = subprocess.run([flyt, 'trace', '--json', '--read', recording], capture_output=True,
                          text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f'flyt trace: {done.stderr.strip()}')
    process = json.loads(done.stdout)['processes'][0]
    # What the program itself waits for is marked as `flyt trace` does.
    calls = {call['name'] + ('*' if call['sync_point'] else ''): call['waits']
             for call in process['calls']}
    return process['totals'], calls


def count_waits(work):
    """Waits for one unit of work, and which calls they were."""
    flyt = os.environ['FLYT_BENCH_FLYT']
    recording = f'{os.environ["FLYT_TRACE"]}.{os.getpid()}'
    work.for_counting()
    steps = max(1, 10 // work.per_step)
    work.torch.cuda.synchronize()
    totals, calls = wait_counters(flyt, recording)
    for _ in range(steps):
        work.step()
    totals_after, calls_after = wait_counters(flyt, recording)
    units = steps * work.per_step

    def per_unit(name):
        return (totals_after[name] - totals[name]) / units

    by_call = {name: (waits - calls.get(name, 0)) / units for name, waits in calls_after.items()
               if waits != calls.get(name, 0)}
    return {'unit': work.unit, 'own_waits': per_unit('own_waits'),
            'our_waits': per_unit('our_waits'), 'posted': per_unit('posted'),
            'by_call': dict(sorted(by_call.items(), key=lambda pair: -pair[1])[:8])}


class Worker:
    def __init__(self):
        import torch
        self.torch = torch
        self.live = {}
        self.model = None  # On the CPU, for the first uses of the GPU.
        self.processors = Processors()

    def timed(self, measure):
        """The figures that `measure` finds, and how fast the processor was meanwhile."""
        before = self.processors.settle()
        figures = measure()
        return {**figures, 'processor': max(before, loop_ms())}

    def work(self, name):
        if name not in self.live:
            self.live[name] = WORKLOADS[name](self.torch)
            self.live[name].warm()
            self.torch.cuda.synchronize()
        return self.live[name]

    def prepare_start(self):
        import torchvision
        self.model = torchvision.models.resnet50(weights=None).eval()

    def start(self):
        """The first uses of the GPU in a process."""
        started = time.perf_counter()
        self.torch.ones(4, device=DEVICE).sum().item()
        first = time.perf_counter()
        with self.torch.no_grad():
            self.model.to(DEVICE)(self.torch.zeros(1, 3, 224, 224, device=DEVICE))
        self.torch.cuda.synchronize()
        return {'first_tensor': (first - started) * 1e3,
                'first_inference': (time.perf_counter() - first) * 1e3}

    def losses(self, training, steps):
        """Those of a training from its beginning, to the last bit; each is read."""
        if training == 'resnet':
            work = Train(self.torch)
            work.per_step = 1
        else:
            work = TrainGpt2(self.torch, getattr(self.torch, training.partition('_')[2]))
        found = []
        for _ in range(steps):
            work.step()
            found.append(float(work.loss.item()).hex())
        return found

    def answer(self, command, name):
        if command == 'hello':
            return {'torch': self.torch.__version__, 'cuda': self.torch.version.cuda}
        if command == 'prepare_start':
            self.prepare_start()
            return {}
        if command == 'start':
            return self.timed(self.start)
        if command == 'prepare':
            return {'check': self.work(name).check}
        if command == 'round':
            work = self.work(name)
            return self.timed(lambda: {name: work.round()})
        if command == 'waits':
            return {name: count_waits(self.work(name))}
        if command == 'losses':
            training, steps = name.split(':')
            return {'losses': self.losses(training, int(steps))}
        if command == 'release':
            self.live.pop(name, None)
            gc.collect()
            self.torch.cuda.empty_cache()
            return {}
        raise ValueError(f'no command {command}')


def main():
    # What anything prints must not come between the answers.
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        words = line.split()
        try:
            figures = worker.answer(words[0], words[1] if len(words) > 1 else None)
            figures['done'] = 1
        except Exception as error:  # The next command may work.
            traceback.print_exc()
            figures = {'error': f'{type(error).__name__}: {error}'[:300], 'done': 0}
        for name, value in figures.items():
            answers.write(f'{name} {json.dumps(value)}\n')
        answers.flush()
    return 0


if __name__ == '__main__':
    sys.exit(main())
