"""A node manager on this machine's GPU, its leases and programs, and what may die meanwhile.

Each mode is a list of steps, of which each is a row; a failed one ends its mode. What was asked
and answered goes to node-MODE.log under --out, with what nvidia-smi said; the manager's folder,
with its log, its servers' and MPS's, to node-MODE.
"""

import collections
import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'node'))
from daemon_process import free_ports  # noqa: E402
from node_process import Node  # noqa: E402

MODES = ('shared', 'isolated')
LEASES = '[leases]\nsessions = 3\nrecover_seconds = 30\nhandover_seconds = 60\n'
MPS_CONTROL = 'nvidia-cuda-mps-control'
# Only a failure takes as long.
ANSWER_SECONDS = 60
FREED_SECONDS = 30
# What a mode takes at most, if nothing fails.
MODE_SECONDS = 30
# Of the memory that nvidia-smi tells: less than a context or an MPS server has.
MEMORY_TOLERANCE_MIB = 48
LAUNCH_FAILED = 719
ILLEGAL_ADDRESS = 700
FAULTS = 3
# What the driver calls them: MMU fault, and graphics engine exception.
FAULT_XIDS = (31, 13)
TAIL_LINES = 25
MIB = 1 << 20
HELD = 64 * MIB


class StepFailed(Exception):
    """A step did not come out as it should; the message says how."""


def need(condition, what):
    if not condition:
        raise StepFailed(what)


class Program:
    """A program in a lease, which says a line of JSON when it is asked."""

    def __init__(self, node, name, environment, words):
        self.node = node
        self.name = f'{name} {" ".join(words)}'
        self.log = f'{node.folder}/program-{name}-{words[0]}-{len(node.programs)}.log'
        with open(self.log, 'wb') as log:
            self.process = subprocess.Popen(
                [node.program('flyt'), 'run', '--', node.subject(), *words], env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        node.programs.append(self)

    def heard(self):
        """The next line that it says."""
        started = time.monotonic()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        line = self.process.stdout.readline() if ready else ''
        self.node.say(f'{self.name} (pid {self.process.pid}): {line.strip() or "nothing"} '
                      f'after {time.monotonic() - started:.2f} s')
        need(ready, f'{self.name} said nothing for {ANSWER_SECONDS} s')
        return json.loads(line or '{}')

    def poke(self):
        try:
            self.process.stdin.write('\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.heard()

    def keeps(self):
        """It still has what it wrote, through all that happened."""
        answer = self.poke()
        need('kept' in answer, f'{self.name} has not kept its memory: {answer}')
        return answer

    def end(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


class GpuNode(Node):
    """A node manager over the machine's GPUs, or one software GPU, that tells a log everything."""

    def __init__(self, runner, mode):
        self.real = runner.driver != 'soft'
        self.began = time.monotonic()
        self.programs = []
        self.transcript = os.path.join(runner.out, f'node-{mode}.log')
        with open(self.transcript, 'w', encoding='utf-8'):
            pass
        ports = free_ports(3)
        self.pages = f'127.0.0.1:{ports + 2}'
        leases = f'{LEASES}tcp_host = "127.0.0.1"\ntcp_ports = "{ports}-{ports + 1}"\n'
        super().__init__(runner.prefix, 0 if self.real else 1, leases, f'gpu-test-{mode}',
                         f'mode = "{mode}"')
        self.token = f'{self.folder}/metrics.key'
        with open(self.token, 'w', encoding='utf-8') as file:
            file.write(os.urandom(16).hex())
        with open(self.config, 'a', encoding='utf-8') as file:
            file.write(f'[metrics]\nlisten = "{self.pages}"\ntoken = "{self.token}"\n')

    def say(self, text):
        with open(self.transcript, 'a', encoding='utf-8') as log:
            log.write(f'{time.monotonic() - self.began:8.3f} {text}\n')

    def flytctl(self, options, words, status, environment=None):
        started = time.monotonic()
        try:
            answer = super().flytctl(options, words, status, environment)
        except AssertionError as error:
            self.say(f'flytctl {" ".join(words)}: {error}')
            raise
        # Tokens admit; keep them out of what people send each other.
        self.say(f'flytctl {" ".join(words)}, {time.monotonic() - started:.3f} s: '
                 f'{"..." if words[0] == "token" else answer.strip()}')
        return answer

    def begin(self, lease, *words):
        """A program in a lease, and what it says first; in b as from another machine."""
        settings = self.settings(lease, *(['--tcp'] if lease == 'b' else []))
        program = Program(self, lease, settings, words)
        return program, program.heard()

    def smi(self, query):
        if not self.real or not shutil.which('nvidia-smi'):
            return ''
        done = subprocess.run(['nvidia-smi', query, '--format=csv,noheader,nounits'],
                              capture_output=True, text=True, check=False, timeout=60)
        return done.stdout.strip() or done.stderr.strip()

    def memory_used(self):
        """MiB in use of each GPU, whoever uses them; none without nvidia-smi."""
        said = self.smi('--query-gpu=memory.used')
        return [int(line) for line in said.splitlines() if line.strip().isdigit()]

    def launch(self, *arguments):
        # Software GPUs have the errors that are written there.
        if not self.real:
            os.environ['FLYT_SOFTGPU_LOST'] = self.folder
        try:
            return super().launch(*arguments)
        finally:
            os.environ.pop('FLYT_SOFTGPU_LOST', None)

    def xids(self):
        """How many errors of each number (Xid) the manager has counted, of those that came."""
        with open(self.token, encoding='utf-8') as file:
            request = urllib.request.Request(f'http://{self.pages}/metrics', headers={
                'Authorization': f'Bearer {file.read()}'})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            found = re.findall(r'^flyt_gpu_xid_total{.*xid="(\d+)"} (\d+)$',
                               answer.read().decode(), re.M)
        counts = collections.Counter()
        for number, count in found:
            counts[int(number)] += int(count)
        return +counts

    def look(self, when):
        """What there is now, for the log."""
        self.say(f'{when}: processes of the node: {self.processes() or "none"}')
        if self.real:
            self.say(f'{when}: MiB used {self.memory_used()}; processes on GPUs: '
                     f'{self.smi("--query-compute-apps=pid,name,used_memory") or "none"}')

    def processes(self):
        """{pid: name} of all whose words or environment name this node's folder."""
        found = {}
        for folder in glob.glob('/proc/[0-9]*'):
            try:
                with open(f'{folder}/cmdline', 'rb') as words, \
                        open(f'{folder}/environ', 'rb') as environment, \
                        open(f'{folder}/comm', encoding='utf-8', errors='replace') as name:
                    if self.folder.encode() in words.read() + environment.read():
                        found[int(os.path.basename(folder))] = name.read().strip()
            except OSError:
                continue
        return found

    def mps(self):
        return sorted(pid for pid, name in self.processes().items()
                      if name.startswith(MPS_CONTROL[:15]))

    def end_tenants(self):
        for program in self.programs:
            program.end()

    def end_rest(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def keep_logs(self, folder):
        secret_or_large = shutil.ignore_patterns('run', '*.key', 'modules')
        shutil.copytree(self.folder, folder, symlinks=True, ignore_dangling_symlinks=True,
                        dirs_exist_ok=True, ignore=secret_or_large)


class NodeRun:
    """The steps in one mode, in order; each returns what there is to tell."""

    STEPS = ('start', 'lease', 'run', 'resize', 'fault', 'xid', 'kill_server', 'kill_manager',
             'replace_servers', 'release', 'stop')

    def __init__(self, runner, mode):
        self.prefix = runner.prefix
        self.folder = os.path.join(runner.out, f'node-{mode}')
        shutil.rmtree(self.folder, ignore_errors=True)
        self.node = GpuNode(runner, mode)
        self.shares = mode == 'shared' and self.node.real
        self.memory = '2G' if self.node.real else '256M'
        self.group = 0
        self.before = self.node.memory_used()
        self.programs = {}

    def start(self):
        self.node.look('before')
        self.node.start()
        described = self.node.ask('describe')
        gpu = described['gpus'][0]
        self.group = gpu['groups'][0]['sms']
        sizes = collections.Counter(group['sms'] for group in gpu['groups'])
        cut = ' and '.join(f'{count} of {size}' for size, count in sizes.items())
        note = f'{gpu["name"]}, groups: {cut}'
        need(self.group and len(gpu['groups']) >= 4, f'too few groups for two leases: {note}')
        if self.shares:
            need(gpu['mps'] == 'running' and self.node.mps(), f'MPS is "{gpu["mps"]}"')
            note += f', MPS {self.node.mps()}'
        else:
            need(not self.node.mps(), f'there is an MPS daemon: {self.node.mps()}')
        return note

    def lease(self):
        leases = [self.node.create(name, self.group, self.memory) for name in ('a', 'b')]
        need(not set(leases[0]['groups']) & set(leases[1]['groups']), 'both have the same groups')
        self.node.look('leased')
        # Programs cannot be kept apart on a GPU whose driver cannot confine them.
        need(all(lease['confined'] for lease in leases), 'programs are not confined to groups')
        return f'{leases[0]["sms_granted"]} multiprocessors, {self.memory} each'

    def run(self):
        wanted = self.node.leases()['a']
        for name in ('a', 'b'):
            for sample in ('vector_add', 'reduction', 'streams_events'):
                done = self.node.run_tenant(self.node.settings(name), os.path.join(
                    self.prefix, 'samples', sample))
                self.node.say(f'{sample} in {name}: {done.returncode} {done.stdout}{done.stderr}')
                need(done.returncode == 0, f'{sample} in {name} failed: {done.stderr.strip()}')
            self.programs[name], seen = self.node.begin(name, 'hold', str(HELD))
            need('holds' in seen and seen['devices'] == 1, f'in {name}: {seen}')
            need(seen['total'] == wanted['memory_bytes'], f'{name} sees another quota: {seen}')
            need(seen['sms'] == wanted['sms_granted'], f'{name} sees other processors: {seen}')
        self.node.look('programs run')
        return f'3 samples and a program that holds {HELD // MIB} MiB in each; in b over TCP'

    def resize(self):
        """Of a lease whose GPU is never idle; the other one notices nothing."""
        busy, first = self.node.begin('a', 'work')
        need('works' in first, f'it does not work: {first}')
        moves = []
        quota = self.node.leases()['a']['memory_bytes']
        for groups, memory in ((2, quota + 64 * MIB), (3, quota + 64 * MIB), (1, quota)):
            lease = self.node.ask('resize', 'a', '--sms', str(groups * self.group), '--memory',
                                  str(memory))
            need((lease['sms_granted'], lease['memory_bytes'], lease['sessions_behind']) ==
                 (groups * self.group, memory, 0), f'resized otherwise: {lease}')
            moves.append(lease['last_move_microseconds'] / 1000)
            self.programs['b'].keeps()
        rests = busy.poke()
        need('rests' in rests, f'the program did not go on: {rests}')
        busy.end()
        self.programs['a'].keeps()
        return f'3 under load, {", ".join(f"{one:.1f}" for one in moves)} ms'

    def fault(self):
        """A program of lease a writes where nothing is: it gets its error, and idle programs, of
        the same lease and of the other, go on."""
        offender, first = self.node.begin('a', 'fault')
        need('waits' in first, f'it does not wait: {first}')
        times = []
        for _ in range(FAULTS):
            self.node.wait_for(self.node.all_work_is_done, ANSWER_SECONDS)
            answer = offender.poke()
            need(answer.get('fault') == ILLEGAL_ADDRESS, f'the program got another error: {answer}')
            started = time.monotonic()
            for program in self.programs.values():
                program.keeps()
            times.append(time.monotonic() - started)
        offender.end()
        self.node.wait_for(lambda: len(self.faults('a')) == FAULTS, ANSWER_SECONDS)
        need(all(f'caused by node_subject, process {offender.process.pid}' in text
                 for text in self.faults('a')), f'otherwise attributed: {self.faults("a")}')
        need(not self.faults('b'), f'attributed to the other lease: {self.faults("b")}')
        self.node.look('faulted')
        return f'{FAULTS} survived, both others answer after {max(times):.2f} s at most'

    def xid(self):
        """The driver has a number for these faults, and the manager has heard it."""
        if not self.node.real:
            with open(f'{self.node.folder}/xid-0', 'a', encoding='utf-8') as file:
                file.write(f'{FAULT_XIDS[0]}\n' * FAULTS)
        deaf = re.findall(r'Xids are not read gpu=0 why="([^"]*)"', self.node.log())
        if deaf:
            return f'NOT TESTED, Xids are not read here: {deaf[-1]}'
        try:
            self.node.wait_for(lambda: any(one in self.node.xids() for one in FAULT_XIDS),
                               ANSWER_SECONDS)
        except AssertionError as error:
            raise StepFailed(f'no Xid of {FAULT_XIDS} came, but {self.node.xids()}') from error
        told = [event['text'] for event in self.node.events() if event['kind'] == 'gpu-xid']
        need(any(f'Xid {one} (' in text for text in told for one in FAULT_XIDS),
             f'no event tells of it: {told}')
        need(self.node.ctl('health') == 'healthy\n', 'the node is not healthy')
        need(all(lease['state'] == 'running' for lease in self.node.leases().values()),
             'a lease does not run')
        counts = ', '.join(f'Xid {number}: {count}' for number, count in self.node.xids().items())
        return f'counted after {FAULTS} faults: {counts}'

    def faults(self, name):
        lease = self.node.leases()[name]['id']
        return [event['text'] for event in self.node.events()
                if event['lease_id'] == lease and event['kind'] == 'gpu-fault']

    def survive(self, kill):
        """`kill` under an idle program of lease a, which notices nothing. How soon a session knows
        that its work is done depends on the machine: who was too quick tries again."""
        for attempt in range(8):
            time.sleep(0.2 * (attempt + 1))
            kill()
            answer = self.programs['a'].poke()
            if answer.get('error') != LAUNCH_FAILED:
                need('kept' in answer, f'the program did not go on: {answer}')
                return attempt + 1
            self.programs['a'].end()
            self.programs['a'], first = self.node.begin('a', 'hold', str(HELD))
            need('holds' in first, f'no other program can: {first}')
        raise StepFailed('the program never survived it')

    def kill_server(self):
        times = []

        def kill():
            before = self.node.leases()['a']
            started = time.monotonic()
            self.node.say(f'SIGKILL to server {before["server_pid"]}')
            os.kill(before['server_pid'], signal.SIGKILL)
            self.node.wait_for(lambda: (lease := self.node.leases()['a'])['state'] == 'running' and
                               lease['restarts'] > before['restarts'], ANSWER_SECONDS)
            times.append(time.monotonic() - started)

        attempts = self.survive(kill)
        self.programs['b'].keeps()
        self.node.look('server killed')
        return f'another one after {times[-1]:.2f} s, at attempt {attempts}; both programs go on'

    def kill_manager(self):
        before = {name: lease['server_pid'] for name, lease in self.node.leases().items()}
        mps = self.node.mps()
        self.node.say(f'SIGKILL to node manager {self.node.process.pid}')
        self.node.stop(signal.SIGKILL)
        for program in self.programs.values():
            program.keeps()
        started = time.monotonic()
        self.node.start('--end-leases')
        seconds = time.monotonic() - started
        leases = self.node.leases()
        need({name: lease['server_pid'] for name, lease in leases.items()} == before,
             f'other servers than {before}')
        need(all(lease['state'] == 'running' for lease in leases.values()), 'a lease does not run')
        for lease in leases.values():
            need('lease-adopted' in self.node.kinds(lease), f'{lease["name"]} was not adopted')
        need(self.node.mps() == mps, f'MPS was {mps}, is {self.node.mps()}')
        for program in self.programs.values():
            program.keeps()
        grown = self.node.ask('resize', 'a', '--sms', str(2 * self.group))
        need(grown['sms_granted'] == 2 * self.group, 'an adopted lease does not grow')
        return f'both adopted in {seconds:.2f} s, programs go on'

    def replace_servers(self):
        """SIGHUP: servers end at a moment in which nothing is lost, others take their place."""
        before = {name: lease['server_pid'] for name, lease in self.node.leases().items()}
        events = self.node.replace_servers(*before)
        kinds = {name: event['kind'] for name, event in events.items()}
        need(set(kinds.values()) == {'server-upgraded'}, f'{kinds}')
        after = self.node.leases()
        need(all(after[name]['server_pid'] != pid for name, pid in before.items()), 'the same pids')
        for program in self.programs.values():
            program.keeps()
        return 'both upgraded, programs go on'

    def release(self):
        # Leases take their servers' logs with them.
        self.node.keep_logs(self.folder)
        for name in ('a', 'b'):
            self.node.ctl('release', name)
            answer = self.programs[name].poke()
            need('kept' not in answer, f'{name} goes on without its lease: {answer}')
            self.programs[name].end()
        self.node.check_nothing_left()
        need(self.node.ctl('health') == 'healthy\n', 'the node is not healthy')
        self.node.look('released')
        gpu = self.node.ask('describe')['gpus'][0]
        need(gpu['sms_free'] == gpu['sms'], f'{gpu["sms_free"]} of {gpu["sms"]} are free')
        return 'no server, file or row is left'

    def stop(self):
        self.node.say('events:\n' + self.node.ctl('events'))
        status = self.node.stop()
        need(status == 0, f'the manager ended with {status}')
        try:
            self.node.wait_for(lambda: not self.node.processes(), FREED_SECONDS)
        except AssertionError as error:
            raise StepFailed(f'processes are left: {self.node.processes()}') from error
        after = self.node.memory_used()
        deadline = time.monotonic() + FREED_SECONDS
        while any(now > before + MEMORY_TOLERANCE_MIB
                  for now, before in zip(after, self.before)):
            need(time.monotonic() < deadline, f'MiB of GPUs: before {self.before}, after {after}')
            time.sleep(0.2)
            after = self.node.memory_used()
        self.node.look('after')
        return 'no process is left' + (f'; MiB of GPUs: before {self.before}, after {after}'
                                       if after else '')


def tail(path):
    """The end of a log, for those who only see the screen."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            lines = file.read().splitlines()[-TAIL_LINES:]
    except OSError as error:
        lines = [str(error)]
    print(f'--- the end of {path}', *lines, sep='\n', flush=True)


def run_mode(runner, mode, make_row):
    """Adds a row for each step."""
    if mode == 'shared' and runner.driver != 'soft' and not shutil.which(MPS_CONTROL):
        runner.add(make_row(f'node {mode}', equal='skipped', note=f'{MPS_CONTROL} is not there'))
        return
    if runner.remaining() < MODE_SECONDS:
        runner.add(make_row(f'node {mode}', remote='no time'))
        return
    runner.end_servers()
    steps = NodeRun(runner, mode)
    failed = True
    try:
        for name in NodeRun.STEPS:
            steps.node.say(f'== {name}')
            started = time.monotonic()
            note = getattr(steps, name)()
            runner.add(make_row(f'node {mode}: {name}', remote='ok', equal='yes',
                                note=f'{note} ({time.monotonic() - started:.1f} s)'))
        failed = False
    except (StepFailed, AssertionError, subprocess.SubprocessError, ValueError, LookupError,
            OSError) as error:
        text = f'{type(error).__name__}: {error}'
        steps.node.say(f'FAILED {text}')
        steps.node.look('failed')
        runner.add(make_row(f'node {mode}: {name}', remote='failed', equal='NO',
                            note=text.splitlines()[0][:160]))
    finally:
        steps.node.end_tenants()
        steps.node.keep_logs(steps.folder)
        steps.node.remove()
    if failed:
        for path in (steps.node.transcript, *sorted(
                glob.glob(os.path.join(steps.folder, '*.log'))), *sorted(
                glob.glob(os.path.join(steps.folder, 'state', '**', '*.log'), recursive=True))):
            tail(path)
