#!/usr/bin/env python3
"""Leases on a GPU: how well they are kept apart, and how fast their multiprocessors change.

    bench/gpu_elastic.py [--prefix FOLDER] [--out FOLDER] [--only NAME,...] [--resizes N] [--quick]
                         [--driver auto|soft] [--mps PROGRAM|off]

isolation   arithmetic of leases together against alone, and of leases of n multiprocessors against
            n of the whole GPU's
resize      changes of groups under a stream of kernels and a loop of graphs: from the command
            to its answer, which comes when all sessions have moved, and to the end of the first
            kernel that ran nowhere but in the new groups
train       the losses of a PyTorch training during such changes, against native ones
start       the first CUDA call of a program on a warm server; launches with and without a quota

Servers are controlled directly, by their control sockets. On a real GPU all run under an MPS daemon
of their own, without which processes take turns. The table goes to gpu-elastic.md, all figures to
gpu-elastic.json.
"""

import argparse
import concurrent.futures
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(ROOT, 'tools')]
import gpu_bench  # noqa: E402
from flyt_process import Server, ServerError  # noqa: E402

NAMES = ('isolation', 'resize', 'train', 'start')
SIZES = (8, 16, 32, 64, 96)
ASK_SECONDS = 600
TRAININGS = {'resnet': 'ResNet-50 autocast training', 'gpt2_float32': 'GPT-2 fp32 training',
             'gpt2_bfloat16': 'GPT-2 bf16 training'}


class Mps:
    """An MPS daemon for the processes that are started while it runs, and for no others."""

    def __init__(self, program, out):
        self.folder = tempfile.TemporaryDirectory(prefix='flyt-mps-')
        pipe = os.path.join(self.folder.name, 'pipe')
        logs = os.path.join(out, 'mps')
        os.makedirs(pipe)
        os.makedirs(logs, exist_ok=True)
        os.environ.update(CUDA_MPS_PIPE_DIRECTORY=pipe, CUDA_MPS_LOG_DIRECTORY=logs,
                          CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING='1')
        with open(os.path.join(logs, 'daemon.log'), 'ab') as log:
            self.process = subprocess.Popen([program, '-f'], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        deadline = time.monotonic() + 10
        while not os.path.exists(os.path.join(pipe, 'control')):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise ServerError(f'{program} did not start; see {logs}')
            time.sleep(0.01)

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for name in ('CUDA_MPS_PIPE_DIRECTORY', 'CUDA_MPS_LOG_DIRECTORY'):
            os.environ.pop(name, None)
        self.folder.cleanup()


class Lease:
    """A server with a control socket and a client of it that measures."""

    def __init__(self, bench, name, arguments):
        folder = bench.stack.enter_context(tempfile.TemporaryDirectory(prefix='flyt-lease-'))
        self.bench = bench
        self.control = f'unix://{folder}/control'
        log = os.path.join(bench.out, f'server-{name}.log')
        self.server = Server(bench.prefix, bench.driver, f'unix://{folder}/server.sock', log,
                             ['--lease', name, '--gpu', '0', '--control', self.control, *arguments])
        bench.stack.enter_context(self.server)
        self.name = name
        self.worker = None

    def start(self, work='elastic'):
        """A worker of flyt-bench over the server."""
        environment = dict(os.environ, FLYT_SERVER=self.server.url)
        command = [os.path.join(self.bench.prefix, 'bin', 'flyt-bench'), '--worker', work,
                   '--library', os.path.join(self.bench.prefix, 'lib', 'client', 'libcuda.so.1'),
                   '--control', self.control]
        worker = gpu_bench.Worker(f'{work} {self.name}', command,
                                  os.path.join(self.bench.out, f'{work}-{self.name}.log'),
                                  environment)
        self.bench.stack.callback(worker.close)
        return worker

    def ask(self, request):
        if self.worker is None:
            self.worker = self.start()
        return self.worker.ask(request, ASK_SECONDS)

    def close(self):
        if self.worker is not None:
            self.worker.close()
        self.server.__exit__(None, None, None)


class Elastic:
    def __init__(self, arguments, stack):
        self.prefix = os.path.abspath(arguments.prefix)
        self.out = os.path.abspath(arguments.out)
        self.driver = arguments.driver
        self.stack = stack
        self.quick = arguments.quick
        self.resizes = arguments.resizes or (50 if arguments.quick else 500)
        self.only = arguments.only.split(',') if arguments.only else NAMES
        self.milliseconds = 300 if arguments.quick else 3000
        self.figures = {}
        self.rows = []
        self.troubles = []
        self.notes = []
        self.group_sms = self.groups = self.last_sms = self.sms = 0
        os.makedirs(self.out, exist_ok=True)
        if self.driver != 'soft' and arguments.mps != 'off':
            program = shutil.which(arguments.mps)
            if program is None:
                raise ServerError(f'{arguments.mps} is not there: leases share a GPU by MPS')
            stack.callback(Mps(program, self.out).close)
        self.learn()

    def say(self, text):
        print(f'gpu-elastic: {text}', file=sys.stderr, flush=True)

    def learn(self):
        """What the GPU can be divided into, as a server tells that is asked for all groups."""
        lease = Lease(self, 'whole', [])
        worker = lease.start()

        def granted(groups):
            worker.ask(f'groups {groups} 5000', ASK_SECONDS)
            said = [line for line in lease.server.log().splitlines()
                    if 'multiprocessors of the lease' in line]
            return int(said[-1].partition('granted=')[2].split()[0])

        self.group_sms = granted('0')
        with contextlib.suppress(gpu_bench.WorkerError):
            while self.groups < 256:
                granted(self.groups)
                self.groups += 1
        # What they leave over is granted with another group, if at all.
        with contextlib.suppress(gpu_bench.WorkerError):
            self.last_sms = granted(f'0,{self.groups}') - self.group_sms
        worker.close()
        lease.close()

    def shares(self, count, wish):
        """Groups for so many leases of so many multiprocessors, or as many as there are; and the
        multiprocessors of each."""
        most = self.groups + (1 if self.last_sms else 0)
        each = min(wish // self.group_sms, most // count)
        if each < 2:
            each = min(each, self.groups // count)
        shares = [range(i * each, (i + 1) * each) for i in range(count)] if each else []
        return shares, [sum(self.last_sms if group == self.groups else self.group_sms
                            for group in share) for share in shares]

    def row(self, what, value, wanted):
        # A processor shows that all works, and no ratio.
        self.rows.append((what, value, wanted if self.driver != 'soft' else '-'))

    def arithmetic(self, leases):
        """Multiply-adds a second of each lease, all at the same time."""
        with concurrent.futures.ThreadPoolExecutor(len(leases)) as pool:
            asked = [pool.submit(lease.ask, f'arithmetic {self.milliseconds}') for lease in leases]
            return [one.result()['fma_per_s'] for one in asked]

    def isolation(self):
        whole = Lease(self, 'all', [])
        speed = whole.ask(f'arithmetic {self.milliseconds}')
        whole.close()
        self.sms = int(speed['sms'])
        found = self.figures['isolation'] = {'whole_fma_per_s': speed['fma_per_s'],
                                             'sms': self.sms}
        for count, wish, least in ((2, 64, 0.98), (4, 32, 0.97)):
            groups, sizes = self.shares(count, wish)
            if not groups:
                self.notes.append(f'{count} leases: there are {self.groups} groups')
                continue
            leases = [Lease(self, f'{count}-{i}', ['--sm-groups', ','.join(map(str, share))])
                      for i, share in enumerate(groups)]
            alone = [self.arithmetic([lease])[0] for lease in leases]
            together = self.arithmetic(leases)
            shares = [both / one for both, one in zip(together, alone)]
            found[f'{count}_leases'] = {'sms': sizes, 'alone': alone, 'together': together,
                                        'shares': shares}
            size = ' or '.join(map(str, sorted(set(sizes))))
            self.row(f'{count} leases of {size} multiprocessors, together/alone, the least',
                     f'{min(shares):.3f}', f'>= {least}')
            for lease in leases:
                lease.close()
        for size in SIZES:
            groups = size // self.group_sms
            if not 0 < groups <= self.groups:
                continue
            lease = Lease(self, f'part-{size}', ['--sms', str(size)])
            own = self.arithmetic([lease])[0]
            lease.close()
            share = own / (speed['fma_per_s'] * groups * self.group_sms / self.sms)
            found[f'part_{size}'] = {'fma_per_s': own, 'share': share}
            self.row(f'a lease of {groups * self.group_sms} multiprocessors against '
                     f'{groups * self.group_sms}/{self.sms} of the whole', f'{share:.3f}',
                     '>= 0.97')

    def resize(self):
        lease = Lease(self, 'resize', [])
        found = self.figures['resize'] = lease.ask(f'resize {self.resizes} {self.groups}')
        lease.close()
        count = int(found['resizes'])
        for name, what in (('answer', 'to its answer'), ('effect', 'to the first kernel there')):
            self.row(f'{count} resizes under load, from the command {what}, median; p99',
                     f'{found[name + "_median_ms"]:.2f}; {found[name + "_p99_ms"]:.2f} ms',
                     '<= 5; <= 20 ms')
        self.row('kernels and graphs meanwhile, in turn and complete',
                 f'{found["kernels"]:.0f}, {found["graphs"]:.0f}: ' + (
                     'equal' if found['kernels_equal'] and found['graphs_equal'] else 'DIFFERENT'),
                 'equal')
        if not (found['kernels_equal'] and found['graphs_equal']) or found['late']:
            self.troubles.append(f'resize: {found}')

    def train(self):
        if importlib.util.find_spec('torch') is None or self.driver == 'soft':
            self.notes.append('train: needs PyTorch and a GPU')
            return
        workloads = [sys.executable, os.path.join(HERE, 'gpu_workloads.py')]
        log = os.path.join(self.out, 'train-{}.log')
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=':4096:8')
        native = gpu_bench.Worker('native', workloads, log.format('native'), environment)
        self.stack.callback(native.close)
        lease = Lease(self, 'train', [])
        flyt = os.path.join(self.prefix, 'bin', 'flyt')
        remote = gpu_bench.Worker('remote', [flyt, 'run', '--server', lease.server.url, '--',
                                             *workloads], log.format('remote'), environment)
        self.stack.callback(remote.close)
        for training, what in TRAININGS.items():
            self.one_training(training, what, native, remote, lease)
        native.close()
        remote.close()
        lease.close()

    def one_training(self, training, what, native, remote, lease):
        steps = 30 if self.quick else 200

        def losses(worker, steps=steps):
            return worker.ask(f'losses {training}:{steps}', ASK_SECONDS)['losses']

        wanted = losses(native)
        # Libraries choose their kernels by what they see first, once: here clusters of 8 blocks at
        # most, natively 16. So each is compared with the same without changes, too.
        losses(remote, 2)
        still = losses(remote)
        half = self.groups // 2
        shapes = [range(half), range(half, 2 * half), range(self.groups), range(1)]
        times = []
        late = 0
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(losses, remote)
            while not asked.done() and len(times) < 100 * self.resizes:
                shape = ','.join(map(str, shapes[len(times) % len(shapes)]))
                said = lease.ask(f'groups {shape} 10000')
                late += said['behind'] != 0
                times.append(said['answer_ms'])
                time.sleep(0.01)
            changed = asked.result()
        times.sort()
        p99 = times[int((len(times) - 1) * 0.99)]
        self.figures.setdefault('train', {})[training] = {
            'steps': steps, 'resizes': len(times), 'late': late, 'equal': changed == still,
            'as_native': changed == wanted, 'native': wanted, 'remote': changed,
            'answer_median_ms': statistics.median(times), 'answer_p99_ms': p99}
        self.row(f'{what}, {steps} losses during {len(times)} resizes, against none',
                 'equal' if changed == still else 'DIFFERENT', 'equal')
        self.row('the same against native', 'equal' if changed == wanted else 'different', 'equal')
        self.row('the same, from the command to its answer, median; p99',
                 f'{statistics.median(times):.2f}; {p99:.2f} ms', '<= 5; <= 20 ms')
        if changed != still or late:
            self.troubles.append(f'{what}: losses equal: {changed == still}; late: {late}')

    def start(self):
        rounds = 3 if self.quick else 7
        lease = Lease(self, 'warm', ['--warm', '1', '--sms', str(self.group_sms),
                                     '--memory', '64M'])
        times = []
        for _ in range(rounds):
            # The server makes the next process ready meanwhile.
            time.sleep(2.5)
            done = subprocess.run(
                [os.path.join(self.prefix, 'bin', 'flyt-bench'), '--worker', 'start', '--library',
                 os.path.join(self.prefix, 'lib', 'client', 'libcuda.so.1')],
                capture_output=True, text=True, check=True, timeout=60,
                env=dict(os.environ, FLYT_SERVER=lease.server.url))
            times.append(float(done.stdout.split()[1]))
        lease.close()
        self.row('first context and allocation of a program, warm server',
                 f'{statistics.median(times):.1f} ms', '<= 60 ms')
        plain = Lease(self, 'plain', [])
        quota = Lease(self, 'quota', ['--memory', '64M', '--sm-groups', ','.join(
            str(i) for i in range(self.groups))])
        # By new processes each time: how fast one posts depends on where its memory lies.
        found = {'plain': [], 'quota': []}
        for turn in range(rounds):
            leases = [('plain', plain), ('quota', quota)]
            for name, lease in leases if turn % 2 else reversed(leases):
                worker = lease.start('rounds')
                worker.ask('launches', ASK_SECONDS)  # The first is slower everywhere.
                found[name].append(worker.ask('launches', ASK_SECONDS))
                worker.close()
        plain.close()
        quota.close()

        def told(figure):
            values = {name: sorted(one[figure] for one in said) for name, said in found.items()}
            middles = '; '.join(f'{statistics.median(each):.1f}' for each in values.values())
            least = '; '.join(f'{each[0]:.1f}' for each in values.values())
            return middles, least

        self.figures['start'] = {'first_ms': times, 'launches': found}
        for figure, what, unit in (('post_ns', 'a posted launch', 'ns'),
                                   ('launch_sync_us', 'launch and wait', 'us')):
            middles, least = told(figure)
            self.row(f'{what}, without a quota and with one, median and least of {rounds}',
                     f'{middles} {unit}, {least}', '+ 1% at most')

    def run(self):
        for name in self.only:
            self.say(name)
            try:
                getattr(self, name)()
            except (gpu_bench.WorkerError, ServerError, subprocess.SubprocessError) as error:
                self.troubles.append(f'{name}: {error}')

    def report(self):
        last = f' and one of {self.last_sms}' if self.last_sms else ''
        lines = ['# Leases', '', f'{gpu_bench.machine()}; {self.groups} groups of '
                 f'{self.group_sms} multiprocessors{last}; {time.strftime("%Y-%m-%d")}', '',
                 '| what | measured | wanted |', '|---|---|---|']
        lines += [f'| {" | ".join(row)} |' for row in self.rows]
        lines += ['', *(f'- {text}' for text in (*self.notes, *self.troubles))]
        return '\n'.join(lines).rstrip() + '\n'

    def write(self):
        figures = {**self.figures, 'rows': self.rows, 'troubles': self.troubles,
                   'notes': self.notes, 'groups': self.groups, 'group_sms': self.group_sms,
                   'last_sms': self.last_sms}
        with open(os.path.join(self.out, 'gpu-elastic.json'), 'w', encoding='utf-8') as file:
            json.dump(figures, file, indent=1)
        with open(os.path.join(self.out, 'gpu-elastic.md'), 'w', encoding='utf-8') as file:
            file.write(self.report())
        print(self.report(), flush=True)


def parse(words):
    in_tree = os.path.exists(os.path.join(ROOT, 'CMakeLists.txt'))
    parser = argparse.ArgumentParser(description=__doc__, prog='gpu_bench.py --elastic',
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--prefix', default=os.path.join(ROOT, 'build/release' if in_tree else '.'))
    parser.add_argument('--out', default=os.path.join(ROOT, 'out', 'gpu-bench'))
    parser.add_argument('--only', type=lambda text: gpu_bench.names_of(text, NAMES, 'figure'))
    parser.add_argument('--resizes', type=int, help='500, or 50 with --quick')
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--driver', choices=('auto', 'soft'), default='auto')
    parser.add_argument('--mps', default='nvidia-cuda-mps-control', metavar='PROGRAM|off')
    return parser.parse_args(words)


def main(words):
    arguments = parse(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        try:
            elastic = Elastic(arguments, stack)
        except (ServerError, gpu_bench.WorkerError) as error:
            print(f'gpu-elastic: {error}', file=sys.stderr)
            return 1
        try:
            elastic.run()
        finally:
            elastic.write()
    return 1 if elastic.troubles else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
