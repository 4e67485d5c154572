#!/usr/bin/env python3
"""Compares native with remote runs on a machine with an NVIDIA GPU.

    tests/gpu/run.py [--prefix FOLDER] [--out FOLDER] [--only NAME,...] [--minutes N] [--url URL]
                     [--frameworks] [--transport shm|tcp|both] [--jobs N]

Names: conformance, nvml, samples, runtime, cublas, torch (all of it) or torch:CASE, node (both
modes) or node:MODE, recovery, hostile, bench, and only when asked for, sweep and frameworks (all
of it, as --frameworks) or frameworks:ITEM. Every run's output is a file under --out; summary.json
and the table, printed last, tell the results. A failure or a time-out of one never stops the
others.
"""

import argparse
import concurrent.futures
import dataclasses
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, 'tools')]
import framework_steps  # noqa: E402
import node_steps  # noqa: E402
import server_test_steps  # noqa: E402
from flyt_process import Server, ServerError  # noqa: E402
from nvcc import find_nvcc, nvcc_command, runtime_folder  # noqa: E402

TORCH_CASES = ('first_tensor', 'elementwise', 'matmul_fp32', 'matmul_fp16', 'matmul_bf16', 'train',
               'convolution', 'resnet50', 'gpt2', 'autocast', 'copies', 'streams', 'attention')
CASE_SECONDS = 45
CONFORMANCE_SECONDS = 240
SWEEP_SECONDS = 900
SWEEP = ('--sweep', '--deadline', '20')
LISTS = os.path.join(ROOT, 'tests', 'conformance', 'lists')
BENCH_SECONDS = 90
NEAR = 1e-3


@dataclasses.dataclass
class Row:
    """One comparison: what happened natively and remotely, and whether they agree."""
    name: str
    native: str = '-'
    remote: str = '-'
    equal: str = '-'
    note: str = ''
    times: dict = dataclasses.field(default_factory=dict)

    def good(self):
        return self.equal == 'yes' and self.remote == 'ok'

    def skipped(self):
        """Says nothing about remoting on this machine."""
        return self.equal == 'skipped'


@dataclasses.dataclass
class Outcome:
    status: str  # ok, failed, timeout, absent
    output: str = ''
    seconds: float = 0.0
    pid: int = 0


class Runner:
    def __init__(self, arguments):
        self.prefix = os.path.abspath(arguments.prefix)
        self.out = os.path.abspath(arguments.out)
        self.deadline = time.monotonic() + arguments.minutes * 60
        self.url = arguments.url
        self.driver = arguments.driver
        self.nvcc = find_nvcc()
        self.rows = []
        self.built = {}
        self._servers = {}  # By URL; `shm` is a Unix socket of its own.
        self._servers_lock = threading.Lock()
        os.makedirs(self.out, exist_ok=True)

    def remaining(self):
        return self.deadline - time.monotonic()

    def log_path(self, name):
        return os.path.join(self.out, name.replace(':', '_').replace('/', '_') + '.log')

    def run(self, name, command, seconds, environment=None):
        """Runs a command in its own process group; its output goes to NAME.log."""
        seconds = min(seconds, self.remaining())
        if seconds < 2:
            return Outcome('no time')
        started = time.monotonic()
        path = self.log_path(name)
        environment = dict(environment or os.environ, FLYT_CASE_SECONDS=str(seconds))
        with open(path, 'wb') as log:
            log.write((' '.join(command) + '\n').encode())
            log.flush()
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, env=environment, start_new_session=True)
            except OSError as error:
                return Outcome('absent', str(error))
            try:
                status = process.wait(seconds)
                state = 'ok' if status == 0 else f'failed ({status})'
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                state = f'timeout ({seconds:.0f} s)'
        with open(path, encoding='utf-8', errors='replace') as log:
            output = log.read().split('\n', 1)[1]
        return Outcome(state, output, time.monotonic() - started, process.pid)

    def server(self, url):
        """A server over the NVIDIA driver; a new one if the last has died."""
        with self._servers_lock:
            server = self._servers.get(url)
            if server and not server.alive():
                print(f'the server died; its log is {server.log_path}', flush=True)
                self._servers.pop(url).__exit__(None, None, None)
            if url not in self._servers:
                count = len(glob.glob(os.path.join(self.out, 'server*.log')))
                server = Server(self.prefix, self.driver, None if url == 'shm' else url,
                                os.path.join(self.out, f'server{count}.log'))
                server.__enter__()
                self._servers[url] = server
            return self._servers[url]

    def remote(self, name, command, seconds, environment=None, url=None):
        try:
            server = self.server(url or self.url)
        except ServerError as error:
            return Outcome('no server', str(error))
        before = len(server.log())
        environment = dict(environment or os.environ)
        outcome = self.run(name, server.run_command(command), seconds, environment)
        session = server.session_of(outcome.pid, before, 0.5)
        if session:
            outcome.output += (f'\n[session: {session.get("posted", "?")} posted, '
                               f'{session.get("waited", "?")} waited]\n')
        return outcome

    def add(self, row):
        self.rows.append(row)
        print(f'  {row.name}: native {row.native}, remote {row.remote}, equal {row.equal} '
              f'{row.note}'.rstrip(), flush=True)

    def end_servers(self):
        """Nobody else has memory of the GPU then; the next remote run starts another one."""
        with self._servers_lock:
            while self._servers:
                self._servers.popitem()[1].__exit__(None, None, None)


def real_driver():
    """The path of NVIDIA's libcuda.so.1 on this machine."""
    listed = subprocess.run(['ldconfig', '-p'], capture_output=True, text=True, check=False).stdout
    paths = [line.split('=> ')[1].strip() for line in listed.splitlines()
             if 'libcuda.so.1 ' in line]
    for pattern in ('/usr/lib/x86_64-linux-gnu', '/usr/local/nvidia/lib64', '/usr/lib64',
                    '/usr/local/nvidia/lib', '/usr/lib/wsl/lib'):
        paths.append(os.path.join(pattern, 'libcuda.so.1'))
    for folder in os.environ.get('LD_LIBRARY_PATH', '').split(':'):
        paths.append(os.path.join(folder, 'libcuda.so.1'))
    return next((path for path in paths if os.path.exists(path)), None)


def payload(outcome):
    """What a program said, without our session line and its own timing lines."""
    # Rates and durations differ from run to run.
    output = re.sub(r'\b[\d.,]+ ?(ns|us|ms|s|[\w ]*/s)\b', '#', outcome.output)
    return [line for line in output.splitlines()
            if line.strip() and not line.startswith(('[session', 'time '))
            and not (' flyt' in line and 'Z ' in line[:30])]


def times_of(outcome):
    found = {}
    for line in outcome.output.splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[0] == 'time':
            found[parts[1]] = float(parts[2])
    return found


def ratios(native, remote):
    return {name: {'native': round(native[name], 4), 'remote': round(remote[name], 4),
                   'ratio': round(remote[name] / native[name], 3) if native[name] else None}
            for name in native if name in remote}


def compare_outputs(runner, name, native, remote, extra_equal=True):
    same = payload(native) == payload(remote) and extra_equal
    row = Row(name, native.status, remote.status, 'yes' if same else 'NO',
              times=ratios(times_of(native), times_of(remote)))
    if 'no time' in (native.status, remote.status):
        row.equal = '-'
    elif native.status != 'ok' and remote.status == native.status:
        row.note = '(fails natively too)'
    runner.add(row)


def run_conformance(runner, name, kind, seconds, more=()):
    """One run of the suite, native or remote by its kind: what came of it, and its transcript; None
    where something is missing."""
    program = os.path.join(runner.prefix, 'tests', 'flyt_conformance')
    driver = real_driver()
    if not os.access(program, os.X_OK) or not driver:
        runner.add(Row(name, note=f'program {program}, driver {driver}'))
        return None
    transcript = os.path.join(runner.out, f'{name}-{kind}.transcript')
    library = driver
    if kind.startswith('remote'):
        library = os.path.join(runner.prefix, 'lib', 'client', 'libcuda.so.1')
        socket = f'unix:///tmp/flyt-{name}-{os.getpid()}.sock'
        more = [*more, '--listen', socket, '--server-driver', driver]
    environment = dict(os.environ,
                       FLYT_TEST_SERVER=os.path.join(runner.prefix, 'bin', 'flyt-server'))
    return runner.run(f'{name}-{kind}', [
        program, '--library', library, '--driver', kind, '--lists', LISTS,
        '--transcript', transcript, *more], seconds, environment), transcript


def conformance(runner):
    transcripts = []
    for kind in ('nvidia', 'remote-nvidia'):
        ran = run_conformance(runner, 'conformance', kind, CONFORMANCE_SECONDS)
        if ran is None:
            return
        outcome, transcript = ran
        transcripts.append(transcript)
        lines = [line for line in outcome.output.splitlines() if line.strip()]
        runner.add(Row(f'conformance {kind}', *(
            (outcome.status, '-') if kind == 'nvidia' else ('-', outcome.status)),
            equal='yes' if outcome.status == 'ok' else 'NO', note=lines[-1][:70] if lines else ''))
    runner.rows[-2].remote = runner.rows[-2].native
    # What fails on one side, or is known to differ, is not compared.
    outcome = compare_transcripts(runner, 'conformance-transcripts', transcripts, (
        'nvidia.never', 'nvidia.not_yet', 'remote-nvidia.not_yet', 'remote-nvidia.differs'))
    runner.add(Row('conformance transcripts', 'ok', outcome.status,
                   'yes' if outcome.status == 'ok' else 'NO', last_line(outcome)))


def sweep(runner):
    """Every call with one argument after the other changed. What the driver itself dies of is not
    compared, and no failure of ours."""
    native = run_conformance(runner, 'sweep', 'nvidia', SWEEP_SECONDS, SWEEP)
    remote = native and run_conformance(runner, 'sweep', 'remote-nvidia', SWEEP_SECONDS, SWEEP)
    if not remote:
        return
    outcome = compare_transcripts(runner, 'sweep-transcripts', (native[1], remote[1]),
                                  ('remote-nvidia.sweep',))
    for line in outcome.output.splitlines()[:-1]:
        print(f'  {line}', flush=True)
    runner.add(Row('sweep', native[0].status, remote[0].status,
                   'yes' if outcome.status == 'ok' else 'NO', last_line(outcome)))


def last_line(outcome):
    lines = outcome.output.splitlines()
    return lines[-1][:90] if lines else ''


def compare_transcripts(runner, name, transcripts, lists):
    """Return codes call by call."""
    tool = os.path.join(ROOT, 'tests', 'conformance', 'compare_transcripts.py')
    return runner.run(name, [sys.executable, tool, *transcripts,
                             *(os.path.join(LISTS, each) for each in lists)], 30)


def build_cuda(runner, source, cudart, libraries=()):
    """The program that nvcc makes of a source, or None."""
    name = os.path.splitext(os.path.basename(source))[0]
    program = os.path.join(runner.out, f'{name}-{cudart}')
    if program in runner.built:
        return runner.built[program]
    built = runner.run(f'nvcc-{name}-{cudart}', [
        *nvcc_command(runner.nvcc or 'nvcc', source, cudart, program), *libraries], 90)
    runner.built[program] = program if built.status == 'ok' else None
    return runner.built[program]


def build_all(runner):
    """nvcc is slow: everything is compiled at once, before the first comparison."""
    sources = sorted(glob.glob(os.path.join(ROOT, 'tests', 'apps', 'rt_*.cu')))
    jobs = [(source, cudart, ()) for source in sources + [os.path.join(HERE, 'runtime_mix.cu')]
            for cudart in ('static', 'shared')]
    jobs.append((os.path.join(HERE, 'gemm.cu'), 'shared', ('-lcublas',)))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: build_cuda(runner, *job), jobs))


def cuda_environment(runner):
    environment = dict(os.environ)
    if runner.nvcc:
        parts = [environment.get('LD_LIBRARY_PATH'), runtime_folder(runner.nvcc)]
        environment['LD_LIBRARY_PATH'] = ':'.join(part for part in parts if part)
    return environment


def cuda_programs(runner, sources):
    for source in sources:
        for cudart in ('static', 'shared'):
            name = f'{os.path.basename(source)} {cudart}'
            program = build_cuda(runner, source, cudart)
            if program is None:
                runner.add(Row(name, note='nvcc refused it or is missing'))
                continue
            environment = cuda_environment(runner)
            label = f'{os.path.splitext(os.path.basename(source))[0]}-{cudart}'
            native = runner.run(f'{label}-native', [program], CASE_SECONDS, environment)
            remote = runner.remote(f'{label}-remote', [program], CASE_SECONDS, environment)
            compare_outputs(runner, name, native, remote)


def nvml(runner):
    """What NVML says, asked through ctypes and by NVIDIA's own program."""
    commands = {'nvml facts': [sys.executable, os.path.join(HERE, 'nvml_facts.py')]}
    if shutil.which('nvidia-smi'):
        commands['nvidia-smi -L'] = ['nvidia-smi', '-L']
        commands['nvidia-smi query'] = [
            'nvidia-smi', '--format=csv',
            '--query-gpu=index,name,uuid,pci.bus_id,driver_version,memory.total,compute_mode']
    for name, command in commands.items():
        native = runner.run(f'{name}-native', command, CASE_SECONDS)
        remote = runner.remote(f'{name}-remote', command, CASE_SECONDS)
        compare_outputs(runner, name, native, remote)
    if not shutil.which('nvidia-smi'):
        return
    # Their values change and some are not offered; that they end well is what is asked.
    for name, command in (('nvidia-smi', ['nvidia-smi']), ('nvidia-smi -q', ['nvidia-smi', '-q'])):
        remote = runner.remote(f'{name}-remote', command, CASE_SECONDS)
        runner.add(Row(name, '-', remote.status, 'yes' if remote.status == 'ok' else 'NO'))


def samples(runner):
    for program in sorted(glob.glob(os.path.join(runner.prefix, 'samples', '*'))):
        if os.access(program, os.X_OK) and os.path.isfile(program):
            name = os.path.basename(program)
            native = runner.run(f'{name}-native', [program], CASE_SECONDS)
            remote = runner.remote(f'{name}-remote', [program], CASE_SECONDS)
            compare_outputs(runner, name, native, remote)
    cuda_programs(runner, sorted(glob.glob(os.path.join(ROOT, 'tests', 'apps', 'rt_*.cu'))))


def runtime(runner):
    cuda_programs(runner, [os.path.join(HERE, 'runtime_mix.cu')])


def cublas(runner):
    program = build_cuda(runner, os.path.join(HERE, 'gemm.cu'), 'shared', ('-lcublas',))
    if program is None:
        runner.add(Row('cublas gemm', note='nvcc refused it or is missing'))
        return
    environment = cuda_environment(runner)
    files = [os.path.join(runner.out, f'gemm-{kind}.bytes') for kind in ('native', 'remote')]
    native = runner.run('gemm-native', [program, files[0]], CASE_SECONDS, environment)
    remote = runner.remote('gemm-remote', [program, files[1]], CASE_SECONDS, environment)
    contents = []
    for path in files:
        if os.path.exists(path):
            with open(path, 'rb') as file:
                contents.append(file.read())
            os.unlink(path)
    same = len(contents) == 2 and contents[0] == contents[1] and len(contents[0]) > 0
    compare_outputs(runner, 'cublas gemm', native, remote, same)


def near(a, b):
    return abs(a - b) <= NEAR * max(abs(a), abs(b), 1e-9)


def torch_case(runner, case):
    script = os.path.join(HERE, 'torch_cases.py')
    found = {}
    outcomes = {}
    for kind in ('native', 'remote'):
        path = os.path.join(runner.out, f'torch-{case}-{kind}.json')
        command = [sys.executable, script, case, path]
        do = runner.run if kind == 'native' else runner.remote
        outcomes[kind] = do(f'torch-{case}-{kind}', command, CASE_SECONDS)
        if outcomes[kind].status == 'ok' and os.path.exists(path):
            with open(path, encoding='utf-8') as file:
                found[kind] = json.load(file)
    row = Row(f'torch {case}', outcomes['native'].status, outcomes['remote'].status)
    if len(found) == 2:
        native, remote = found['native'], found['remote']
        different = [name for name in native['equal']
                     if native['equal'][name] != remote['equal'].get(name)]
        different += [name for name, value in native['near'].items()
                      if not near(value, remote['near'].get(name, float('nan')))]
        row.equal = 'yes' if not different else 'NO'
        row.note = ', '.join(different)[:80]
        row.times = ratios(native['times'], remote['times'])
    else:
        said = [line for line in outcomes['remote'].output.splitlines() if 'rror' in line]
        row.note = said[-1].strip()[:90] if said else ''
    runner.add(row)


def bench(runner):
    program = os.path.join(runner.prefix, 'bin', 'flyt-bench')
    path = os.path.join(runner.out, 'bench.json')
    outcome = runner.run('bench', [program, '--json', path], BENCH_SECONDS)
    print(outcome.output, flush=True)
    runner.add(Row('bench', '-', outcome.status, 'yes' if outcome.status == 'ok' else 'NO'))


def print_table(runner):
    print(f'\n{"what":<34}{"native":<14}{"remote":<14}{"equal":<9}note')
    for row in runner.rows:
        print(f'{row.name:<34}{row.native:<14}{row.remote:<14}{row.equal:<9}{row.note}')
    print(f'\n{"time":<50}{"native":>12}{"remote":>12}{"ratio":>8}')
    for row in runner.rows:
        for name, time_row in row.times.items():
            print(f'{row.name + " " + name:<50}{time_row["native"]:>12.3f}'
                  f'{time_row["remote"]:>12.3f}{time_row["ratio"] or 0:>8.2f}')
    good = sum(row.good() for row in runner.rows)
    skipped = sum(row.skipped() for row in runner.rows)
    failed = len(runner.rows) - good - skipped
    print(f'\n{good} passed, {failed} failed' + (f', {skipped} skipped' if skipped else ''))
    return 0 if good and not failed else 1


def write_summary(runner):
    with open(os.path.join(runner.out, 'summary.json'), 'w', encoding='utf-8') as file:
        json.dump([dataclasses.asdict(row) for row in runner.rows], file, indent=1)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    in_tree = os.path.exists(os.path.join(ROOT, 'CMakeLists.txt'))
    parser.add_argument('--prefix', default=os.path.join(ROOT, 'build/release' if in_tree else '.'))
    parser.add_argument('--out', default=os.path.join(ROOT, 'out', 'gpu-test'))
    parser.add_argument('--only', help='comma-separated names')
    parser.add_argument('--frameworks', action='store_true',
                        help='frameworks, beside what --only names')
    parser.add_argument('--transport', choices=('shm', 'tcp', 'both'), default='shm',
                        help='for frameworks')
    parser.add_argument('--jobs', type=int, default=max(1, min(4, (os.cpu_count() or 1) // 4)),
                        help='framework items at once')
    parser.add_argument('--minutes', type=float, default=8.0, help='time for everything together')
    parser.add_argument('--url', default='tcp://127.0.0.1:0', help='where the server listens')
    parser.add_argument('--driver', default='auto', help='of the server')
    arguments = parser.parse_args(words)
    arguments.names = arguments.only.split(',') if arguments.only else []
    if arguments.frameworks:
        arguments.names.append('frameworks')
    return arguments


def run_steps(runner, steps, names):
    started = time.monotonic()
    if {'runtime', 'cublas', 'samples'} & set(names):
        build_all(runner)
    for name, step in steps.items():
        if name not in names and name.split(':')[0] not in names:
            continue
        print(f'== {name} ({time.monotonic() - started:.0f} s)', flush=True)
        try:
            step(runner)
        except Exception as error:  # One broken step must not cost the others.
            runner.add(Row(name, note=f'{type(error).__name__}: {error}'))
        write_summary(runner)


def main():
    arguments = parse(sys.argv[1:])
    steps = {'runtime': runtime, 'cublas': cublas, 'conformance': conformance, 'nvml': nvml,
             'samples': samples}
    for case in TORCH_CASES:
        steps[f'torch:{case}'] = lambda r, case=case: torch_case(r, case)
    for mode in node_steps.MODES:
        steps[f'node:{mode}'] = lambda r, mode=mode: node_steps.run_mode(r, mode, Row)
    steps['recovery'] = lambda r: server_test_steps.recovery(r, Row)
    steps['hostile'] = lambda r: server_test_steps.hostile(r, Row)
    steps['bench'] = bench
    names = arguments.names or list(steps)
    steps['sweep'] = sweep
    items = framework_steps.selected(names)
    known = {*steps, 'torch', 'node', 'frameworks', *(f'frameworks:{item}' for item in items)}
    unknown = set(names) - known
    if unknown:
        print(f'gpu-test: no {", ".join(sorted(unknown))}; `./dev gpu-test --help` has the names',
              file=sys.stderr)
        return 2
    runner = Runner(arguments)
    try:
        run_steps(runner, steps, names)
        if items:
            transports = ('shm', 'tcp') if arguments.transport == 'both' else (
                arguments.transport,)
            framework_steps.run_items(runner, items, transports, arguments.jobs, Row)
    finally:
        runner.end_servers()
        write_summary(runner)
    return print_table(runner)


if __name__ == '__main__':
    sys.exit(main())
