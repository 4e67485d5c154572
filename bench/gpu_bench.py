#!/usr/bin/env python3
"""Native against remote on a machine with an NVIDIA GPU: launches, waits, copies and PyTorch.

    bench/gpu_bench.py --elastic ...    what gpu_elastic.py says
    bench/gpu_bench.py [--prefix FOLDER] [--out FOLDER] [--only NAME,...] [--transports WAY,...]
                       [--repeat N] [--quick] [--minutes N] [--driver auto|soft]

Names: launches, copies, small_op, item, resnet_1, resnet_64, resnet_1_stream, resnet_64_stream,
gpt2, train, start, idle, waits, raw.
Ways: shm, unix, tcp, each with +TIME behind it for a delay in each direction, such as tcp+1ms.

Each way has its server and its client process; they live through the whole run and take turns, so
that what else the machine does meets all of them. Rounds of PyTorch whose processor was slow
meanwhile do not count. The table goes to gpu-bench.md, every round's figures to gpu-bench.json.
"""

import argparse
import concurrent.futures
import contextlib
import glob
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(ROOT, 'tools')]
import gpu_report  # noqa: E402
from flyt_process import Server, ServerError  # noqa: E402

TORCH = ('small_op', 'item', 'resnet_1', 'resnet_64', 'resnet_1_stream', 'resnet_64_stream', 'gpt2',
         'train')
DRIVER = ('launches', 'copies')
NAMES = (*DRIVER, *TORCH, 'start', 'idle', 'waits', 'raw')
WAYS = ('shm', 'tcp', 'tcp+1ms')
PREPARE_SECONDS = 90
ROUND_SECONDS = 45
# What takes long gets fewer rounds.
TURNS_SECONDS = 25
# A warm server makes the next process ready meanwhile.
REWARM_SECONDS = 1.0
# What a process of each way takes, to import PyTorch for the most part.
START_SECONDS = 15


class WorkerError(Exception):
    """A worker died, fell silent or refused; the message says which and why."""


class Worker:
    """A process that is told what to measure and answers with figures."""

    def __init__(self, name, command, log, environment=None):
        self.name = name
        self.log_path = log
        with open(log, 'ab') as file:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=file, env=environment, start_new_session=True)
        self._unread = b''

    def ask(self, request, seconds):
        """The figures that answer one request."""
        try:
            self.process.stdin.write(f'{request}\n'.encode())
            self.process.stdin.flush()
        except OSError as error:
            raise self._error(request, f'is gone; {self._last_words()}') from error
        figures = {}
        deadline = time.monotonic() + seconds
        while 'done' not in figures:
            name, _, value = self._line(request, deadline).partition(' ')
            figures[name] = json.loads(value)
        if figures.pop('done') != 1:
            raise self._error(request, figures.get('error', 'refused'))
        return figures

    def _line(self, request, deadline):
        while b'\n' not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.kill()
                raise self._error(request, f'took too long; {self._last_words()}')
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                status = self.process.wait()
                raise self._error(request, f'ended with status {status}; {self._last_words()}')
            self._unread += more
        line, self._unread = self._unread.split(b'\n', 1)
        return line.decode(errors='replace')

    def _error(self, request, why):
        return WorkerError(f'{self.name}: {request}: {why}')

    def _last_words(self):
        """What the log ends with, if anything."""
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            lines = [line.strip() for line in file if line.strip()]
        log = os.path.basename(self.log_path)
        return f'{log}: {lines[-1][:160]}' if lines else f'{log} is empty'

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        if self.alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()


def cpu_seconds(pid):
    """Processor time of a process so far, all its threads together; 0 if it is gone."""
    try:
        exact = 0
        for path in glob.glob(f'/proc/{pid}/task/*/schedstat'):
            with open(path, encoding='utf-8') as file:
                exact += int(file.read().split()[0])
        if exact:
            return exact / 1e9
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
            fields = file.read().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
    except (OSError, ValueError, IndexError):
        return 0.0


def family(pid):
    """A process and all that descend from it."""
    parents = {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(path, encoding='utf-8', errors='replace') as file:
                parents[int(path.split('/')[2])] = int(file.read().rpartition(')')[2].split()[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def machine():
    processor = 'unknown processor'
    with contextlib.suppress(OSError), open('/proc/cpuinfo', encoding='utf-8') as file:
        processor = next((line.split(':')[1].strip() for line in file
                          if line.startswith('model name')), processor)
    return f'{processor}, {os.cpu_count()} cores, Linux {platform.release()}'


def said_by(command):
    """The first line that a program prints, or nothing."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip().splitlines()[0]
    return ''


class Way:
    """One way of reaching the GPU: native, or a server at a URL."""

    def __init__(self, name, bench):
        self.name = name
        self.bench = bench
        self.server = None
        self.url = None
        if name == 'native':
            return
        kind, _, delay = name.partition('+')
        log = os.path.join(bench.out, f'server-{name}.log')
        folder = bench.stack.enter_context(tempfile.TemporaryDirectory(prefix='flyt-bench-'))
        address = {'shm': f'unix://{folder}/server.sock',
                   'unix': f'unix://{folder}/server.sock?shm=off',
                   'tcp': 'tcp://127.0.0.1:0'}[kind]
        self.server = Server(bench.prefix, bench.driver, address, log, ['--warm', '1'])
        bench.stack.enter_context(self.server)
        self.url = self.server.url
        if delay:
            self.url += ('&' if '?' in self.url else '?') + f'delay={delay}'

    def driver_worker(self):
        """flyt-bench, over this way's libcuda."""
        program = os.path.join(self.bench.prefix, 'bin', 'flyt-bench')
        library = self.bench.native_library
        environment = dict(os.environ)
        if self.url:
            library = os.path.join(self.bench.prefix, 'lib', 'client', 'libcuda.so.1')
            environment['FLYT_SERVER'] = self.url
        return self._worker('driver', [program, '--worker', 'rounds', '--library', library],
                            environment)

    def torch_worker(self, label='torch', **more):
        command = [sys.executable, self.bench.workloads]
        if self.url:
            flyt = os.path.join(self.bench.prefix, 'bin', 'flyt')
            command = [flyt, 'run', '--server', self.url, '--', *command]
        return self._worker(label, command, dict(os.environ, **more))

    def _worker(self, label, command, environment):
        log = os.path.join(self.bench.out, f'{label}-{self.name}.log')
        worker = Worker(f'{label} {self.name}', command, log, environment)
        self.bench.stack.callback(worker.close)
        return worker


class Bench:
    def __init__(self, arguments, stack):
        self.prefix = os.path.abspath(arguments.prefix)
        self.out = os.path.abspath(arguments.out)
        self.stack = stack
        self.driver = arguments.driver
        self.native_library = 'libcuda.so.1'
        if self.driver == 'soft':
            self.native_library = os.path.join(self.prefix, 'lib', 'libflyt-softgpu.so')
        self.workloads = arguments.workloads
        self.quick = arguments.quick
        self.rounds = arguments.repeat or (3 if arguments.quick else 7)
        self.started = time.monotonic()
        self.deadline = self.started + 60 * (arguments.minutes or (3 if arguments.quick else 6))
        self.only = set(arguments.only.split(',') if arguments.only else NAMES)
        os.makedirs(self.out, exist_ok=True)
        for old in glob.glob(os.path.join(self.out, '*.log')):
            os.unlink(old)
        names = ('native', *arguments.transports.split(','))
        self.results = gpu_report.Results(names)
        self.ways = {name: Way(name, self) for name in names}
        self.workers = {}  # Of PyTorch, by way.
        self.without_torch = set()

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, text):
        print(f'[{time.monotonic() - self.started:5.1f} s] {text}', file=sys.stderr, flush=True)

    def trouble(self, text):
        self.say(text)
        self.results.troubles.append(str(text))

    def ask(self, way, worker, request, seconds):
        """The answer, or None; a worker that failed to answer is asked nothing more."""
        if worker is None or not worker.alive():
            return None
        if self.left() < 1:
            return None
        try:
            return worker.ask(request, min(seconds, self.left()))
        except (WorkerError, ValueError) as error:
            self.trouble(error)
            return None

    def all_at_once(self, workers, request, seconds):
        """{way: answer} of workers that are asked at the same time."""
        with concurrent.futures.ThreadPoolExecutor(len(workers) or 1) as pool:
            asked = {way: pool.submit(self.ask, way, worker, request, seconds)
                     for way, worker in workers.items()}
            return {way: one.result() for way, one in asked.items()}

    def enough(self, ways, figure):
        """Each way has had rounds at full speed, or never will, as it does not answer."""
        return all(len(self.results.undisturbed(way, figure)) >= gpu_report.ROUNDS_MIN or
                   len(self.results.rounds[way].get(figure, [])) < gpu_report.ROUNDS_MIN
                   for way in ways)

    def take_turns(self, workers, request, what):
        """Rounds; each begins with another way. More of them where processors were disturbed."""
        ways = list(workers)
        self.say(f'{what}: {self.rounds} rounds')
        started = time.monotonic()
        for turn in range(2 * self.rounds):
            if turn >= self.rounds and self.enough(ways, what):
                return
            first = turn % len(ways)
            if turn >= gpu_report.ROUNDS_MIN and time.monotonic() - started > TURNS_SECONDS:
                self.say(f'{what}: {turn} rounds are enough')
                return
            if self.left() < 20:
                self.trouble(f'{what}: out of time after {turn} rounds')
                return
            for way in ways[first:] + ways[:first]:
                figures = self.ask(way, workers[way], request, ROUND_SECONDS)
                if figures:
                    self.results.add(way, figures)

    def measure_driver(self):
        workers = {name: way.driver_worker() for name, way in self.ways.items()}
        for request in DRIVER:
            if request in self.only:
                # The first is slower everywhere, and counts for nobody.
                self.all_at_once(workers, request, PREPARE_SECONDS)
                self.take_turns(workers, request, request)
        for worker in workers.values():
            worker.close()

    def measure_raw(self):
        self.say('raw sockets')
        program = [os.path.join(self.prefix, 'bin', 'flyt-bench'), '--worker', 'raw']
        delays = sorted({way.partition('+')[2] for way in self.ways if way.startswith('tcp+')})
        for delay in [['--delay', delay] for delay in delays] or [[]]:
            for _ in range(2 if self.quick else 3):
                done = subprocess.run(program + delay, capture_output=True, text=True,
                                      check=False, timeout=ROUND_SECONDS)
                if done.returncode != 0:
                    self.trouble(f'raw sockets: {done.stderr.strip()}')
                    return
                self.results.add_raw({name: float(value) for name, value in
                                      (line.split() for line in done.stdout.splitlines())})

    def start_torch(self):
        """Workers of all ways that have none; importing PyTorch takes seconds, so all do it at
        once. One that cannot is not asked again."""
        missing = {name: way for name, way in self.ways.items()
                   if name not in self.without_torch
                   and not (name in self.workers and self.workers[name].alive())}
        if not missing:
            return
        self.say('starting PyTorch: ' + ', '.join(missing))
        started = {name: way.torch_worker() for name, way in missing.items()}
        for way, answer in self.all_at_once(started, 'hello', PREPARE_SECONDS).items():
            self.workers.pop(way, None)
            if answer is None:
                started[way].close()
                self.without_torch.add(way)
            else:
                self.workers[way] = started[way]
                self.results.facts['torch'] = f'{answer["torch"]} (CUDA {answer["cuda"]})'

    def measure_torch(self, name):
        self.start_torch()
        self.say(f'{name}: preparing')
        said = self.all_at_once(self.workers, f'prepare {name}', PREPARE_SECONDS)
        ready = {way: self.workers[way] for way, answer in said.items() if answer}
        self.results.checks[name] = {way: answer['check'] for way, answer in said.items()
                                     if answer}
        if not ready:
            return
        self.take_turns(ready, f'round {name}', name)
        self.all_at_once(ready, f'release {name}', ROUND_SECONDS)

    def measure_start(self):
        """Processes that have imported PyTorch and not touched the GPU yet, one after the other.
        The first of each way counts for nobody: it reads files that are not in memory yet, and its
        server may not have the code."""
        count = 2 if self.quick else 4
        ways = {name: way for name, way in self.ways.items() if name not in self.without_torch}
        self.say(f'start: {count} processes of each, and one before them')
        for turn in range(count + 1):
            if self.left() < START_SECONDS:
                self.trouble(f'start: out of time after {turn} processes of each')
                return
            workers = {name: way.torch_worker('start') for name, way in ways.items()}
            said = self.all_at_once(workers, 'prepare_start', PREPARE_SECONDS)
            ready = [way for way in ways if said[way] is not None]
            time.sleep(REWARM_SECONDS)
            first = turn % max(1, len(ready))
            for way in ready[first:] + ready[:first]:
                figures = self.ask(way, workers[way], 'start', ROUND_SECONDS)
                if turn and figures:
                    self.results.add(way, figures)
            for worker in workers.values():
                worker.close()

    def measure_idle(self):
        """What clients and servers use while nobody asks them for anything."""
        workers = dict(self.workers)
        for name, way in self.ways.items():
            if name not in workers:
                workers[name] = way.driver_worker()
        self.all_at_once({name: worker for name, worker in workers.items()
                          if name not in self.workers}, 'launches', ROUND_SECONDS)
        seconds = 3 if self.quick else 5
        self.say(f'idle for {seconds} s')
        # Work has just ended: patience that is meant to end has its time to.
        time.sleep(1)
        pids = {(name, 'client'): family(worker.process.pid) for name, worker in workers.items()}
        for name, way in self.ways.items():
            if way.server:
                pids[name, 'server'] = family(way.server.pid())
        before = {pid: cpu_seconds(pid) for group in pids.values() for pid in group}
        started = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - started
        for (name, side), group in pids.items():
            used = sum(max(0.0, cpu_seconds(pid) - before[pid]) for pid in group)
            self.results.idle.setdefault(name, {})[side] = used / took

    def measure_waits(self):
        """Counted, not timed, and by processes of their own: recording costs time."""
        flyt = os.path.join(self.prefix, 'bin', 'flyt')
        # A delay changes no count, but for what gives up waiting in time.
        ways = {name: way for name, way in self.ways.items()
                if way.server and '+' not in name and name not in self.without_torch}
        self.say('counting waits: ' + ', '.join(ways))
        workers = {name: way.torch_worker(
            'waits', FLYT_BENCH_FLYT=flyt, FLYT_TRACE=os.path.join(self.out, f'trace-{name}'))
            for name, way in ways.items()}
        for work in TORCH:
            if work not in self.only:
                continue
            for way, said in self.all_at_once(workers, f'waits {work}', PREPARE_SECONDS).items():
                if said:
                    self.results.waits.setdefault(way, {}).update(said)
            self.all_at_once(workers, f'release {work}', ROUND_SECONDS)
        for worker in workers.values():
            worker.close()
        for recording in glob.glob(os.path.join(self.out, 'trace-*')):
            os.unlink(recording)

    def gather_facts(self):
        gpu, _, driver = said_by(['nvidia-smi', '--query-gpu=name,driver_version',
                                  '--format=csv,noheader']).partition(', ')
        if self.driver == 'soft':
            gpu, driver = 'Software GPU', '-'
        commit = said_by(['git', '-C', ROOT, 'rev-parse', '--short', 'HEAD'])
        version = said_by([os.path.join(self.prefix, 'bin', 'flyt'), 'version'])
        self.results.facts.update(
            gpu=gpu or 'unknown GPU', driver=driver, machine=machine(), rounds=self.rounds,
            date=time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime()),
            flyt=' '.join(filter(None, (version.removeprefix('flyt '), commit))))

    def run(self):
        self.gather_facts()
        if self.only & set(DRIVER):
            self.measure_driver()
        if 'raw' in self.only:
            self.measure_raw()
        for name in TORCH:
            if name in self.only and len(self.without_torch) < len(self.ways):
                self.measure_torch(name)
        if 'idle' in self.only:
            self.measure_idle()
        for worker in self.workers.values():
            worker.close()
        if 'waits' in self.only and self.only & set(TORCH):
            self.measure_waits()
        if 'start' in self.only:
            self.measure_start()
        self.results.facts['seconds'] = round(time.monotonic() - self.started, 1)

    def write(self):
        with open(os.path.join(self.out, 'gpu-bench.json'), 'w', encoding='utf-8') as file:
            json.dump(self.results.as_json(), file, indent=1)
        text = gpu_report.report(self.results)
        with open(os.path.join(self.out, 'gpu-bench.md'), 'w', encoding='utf-8') as file:
            file.write(text)
        print(text, flush=True)


def names_of(text, known, what):
    names = text.split(',')
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f'no {what} {", ".join(unknown)}')
    return text


def ways_of(text):
    names_of(','.join(way.partition('+')[0] for way in text.split(',')), ('shm', 'unix', 'tcp'),
             'transport')
    return text


def parse(words):
    in_tree = os.path.exists(os.path.join(ROOT, 'CMakeLists.txt'))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--prefix', default=os.path.join(ROOT, 'build/release' if in_tree else '.'))
    parser.add_argument('--out', default=os.path.join(ROOT, 'out', 'gpu-bench'))
    parser.add_argument('--only', type=lambda text: names_of(text, NAMES, 'figure'),
                        help='comma-separated names')
    parser.add_argument('--transports', type=ways_of, default=','.join(WAYS), help='ways, commas')
    parser.add_argument('--repeat', type=int, help='rounds; 7, or 3 with --quick')
    parser.add_argument('--quick', action='store_true', help='fewer rounds')
    parser.add_argument('--minutes', type=float, help='at most; 6, or 3 with --quick')
    parser.add_argument('--driver', choices=('auto', 'soft'), default='auto')
    parser.add_argument('--workloads', default=os.path.join(HERE, 'gpu_workloads.py'),
                        help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main():
    if '--elastic' in sys.argv[1:]:
        import gpu_elastic
        return gpu_elastic.main([word for word in sys.argv[1:] if word != '--elastic'])
    arguments = parse(sys.argv[1:])
    # Who is told to end still writes what it has.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        try:
            bench = Bench(arguments, stack)
        except ServerError as error:
            print(f'gpu-bench: {error}', file=sys.stderr)
            return 1
        try:
            bench.run()
        finally:
            bench.write()
    return 1 if bench.results.troubles or bench.results.different() else 0


if __name__ == '__main__':
    sys.exit(main())
