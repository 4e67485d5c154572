"""What all daemons under test have: a folder, a configuration, a log, and a life."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time


# Ports that the system hands to no connection by itself. Processes beside each other begin at
# different ones.
_PORTS = range(20000, 32000)
_PORTS_PER_PROCESS = 16
_next_port = os.getpid() * _PORTS_PER_PROCESS % len(_PORTS)
_next_port_lock = threading.Lock()


def free_ports(count):
    """The first of some ports side by side; nobody else is told the same soon. From any thread."""
    global _next_port
    while True:
        with _next_port_lock:
            first = _PORTS[min(_next_port, len(_PORTS) - count)]
            _next_port = (_next_port + count) % len(_PORTS)
        try:
            with contextlib.ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(('127.0.0.1', port))
            return first
        except OSError:
            continue


def free_port():
    return free_ports(1)


class Daemon:
    """A daemon's folder, and the daemon while it runs. `program`: "flyt-node-manager"."""

    # A limit for what has gone wrong: a busy machine with sanitizers takes half a minute for what
    # others do at once.
    PATIENCE_SECONDS = 120

    def __init__(self, build, program, name):
        self.build = os.path.abspath(build)
        self.daemon = program
        self.folder = tempfile.mkdtemp(prefix=f'flyt-{name}-')
        self.run = f'{self.folder}/run'
        self.state = f'{self.folder}/state'
        self.address = f'unix://{self.run}/{name}.sock'
        self.config = f'{self.folder}/{name}.toml'
        self.log_path = f'{self.folder}/{name}.log'
        self.process = None
        self.tenants = []

    def program(self, name):
        return os.path.join(self.build, 'bin', name)

    def launch(self, *arguments):
        """The daemon as it is started; nothing is waited for."""
        with open(self.log_path, 'ab') as log:
            return subprocess.Popen(
                [self.program(self.daemon), '--config', self.config, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def start(self, *arguments):
        before = len(self.log())
        self.process = self.launch(*arguments)
        self.wait_for(lambda: 'serving' in self.log()[before:] or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(f'{self.daemon} did not start: {self.log()[before:]}')
        return self

    def log(self):
        if not os.path.exists(self.log_path):
            return ''
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        status = self.process.wait(self.PATIENCE_SECONDS)
        self.process = None
        return status

    def remove(self):
        """Ends whatever is left."""
        self.end_tenants()
        if self.process is not None:
            self.stop(signal.SIGKILL)
        self.end_rest()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end_rest(self):
        """What has started meanwhile, and outlives the daemon."""

    @staticmethod
    @contextlib.contextmanager
    def damaged(path):
        """Meanwhile a file is damaged behind its first page; whoever writes to it is found out."""
        with open(path, 'rb') as file:
            whole = file.read()
        damaged = whole[:4096] + b'x' * (len(whole) - 4096)
        with open(path, 'wb') as file:
            file.write(damaged)
        yield
        with open(path, 'rb') as file:
            if file.read() != damaged:
                raise AssertionError(f'{path} was written to')
        with open(path, 'wb') as file:
            file.write(whole)

    @staticmethod
    def wait_for(condition, seconds=PATIENCE_SECONDS):
        """The condition's value once it is true; an error if it never is. Whoever asks by a program
        of its own leaves the cores to others most of the time."""
        deadline = time.monotonic() + seconds
        while True:
            asked = time.monotonic()
            value = condition()
            if value:
                return value
            now = time.monotonic()
            if now > deadline:
                raise AssertionError('what should have happened did not')
            time.sleep(min(max(0.02, 2 * (now - asked)), 0.5))

    def flytctl(self, options, words, status, environment=None):
        """flytctl's output; its exit status must be `status`."""
        done = subprocess.run([self.program('flytctl'), *options, *words], capture_output=True,
                              text=True, check=False, timeout=self.PATIENCE_SECONDS,
                              env=environment)
        if done.returncode != status:
            raise AssertionError(f'flytctl {words}: exit status {done.returncode}, not {status}: '
                                 f'{done.stdout}{done.stderr}\n{self.log()[-3000:]}')
        return done.stdout if status == 0 else done.stdout + done.stderr

    def start_tenant(self, environment, *words, subject=None):
        """A tenant's program that goes on until it is told to end; and what it says first."""
        tenant = subprocess.Popen(
            [self.program('flyt'), 'run', '--', subject or self.subject(), *words],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.tenants.append(tenant)
        first = tenant.stdout.readline()
        if not first:
            raise AssertionError(f'no tenant: {tenant.communicate()[1]}')
        return tenant, json.loads(first)

    def subject(self):
        return os.path.join(self.build, 'tests', 'node_subject')

    def end_tenants(self):
        for tenant in self.tenants:
            tenant.kill()
            tenant.wait()
            for pipe in (tenant.stdin, tenant.stdout, tenant.stderr):
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        self.tenants.clear()
