"""Starts flyt-node-manager over software GPUs, asks it through flytctl, and runs tenants."""

import glob
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

MEMORY = 1 << 30
SMS = 32
GROUP = 8


class Node:
    """A node manager's folders, and the manager while it runs."""

    START_SECONDS_MAX = 90

    def __init__(self, build, soft=2, extra='', name='test-node'):
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix='flyt-node-')
        self.run = f'{self.folder}/run'
        self.state = f'{self.folder}/state'
        self.address = f'unix://{self.run}/node.sock'
        self.config = f'{self.folder}/node.toml'
        self.log_path = f'{self.folder}/node.log'
        self.process = None
        self.tenants = []
        with open(self.config, 'w', encoding='utf-8') as file:
            file.write(f'[node]\nname = "{name}"\nstate = "{self.state}"\nrun = "{self.run}"\n'
                       f'[gpus]\nsoft = {soft}\n[soft]\nsms = {SMS}\nmemory = {MEMORY}\n{extra}')

    def program(self, name):
        return os.path.join(self.build, 'bin', name)

    def launch(self, *arguments):
        """The manager as it is started; nothing is waited for."""
        with open(self.log_path, 'ab') as log:
            return subprocess.Popen(
                [self.program('flyt-node-manager'), '--config', self.config, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def start(self, *arguments):
        before = len(self.log())
        self.process = self.launch(*arguments)
        self.wait_for(lambda: 'serving' in self.log()[before:] or self.process.poll() is not None,
                      self.START_SECONDS_MAX)
        if self.process.poll() is not None:
            raise AssertionError(f'the manager did not start: {self.log()[before:]}')
        return self

    def log(self):
        if not os.path.exists(self.log_path):
            return ''
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        status = self.process.wait(30)
        self.process = None
        return status

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

    def remove(self):
        """Ends whatever is left."""
        self.end_tenants()
        if self.process is not None:
            self.stop(signal.SIGKILL)
        for pid in self.servers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def wait_for(condition, seconds=30.0):
        """The condition's value once it is true; an error if it never is."""
        deadline = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError('what should have happened did not')
            time.sleep(0.02)

    def ctl(self, *words, status=0, node=None, environment=None):
        """flytctl's output; its exit status must be `status`."""
        done = subprocess.run([self.program('flytctl'), '--node', node or self.address, *words],
                              capture_output=True, text=True, check=False, timeout=120,
                              env=environment)
        if done.returncode != status:
            raise AssertionError(f'flytctl {words}: exit status {done.returncode}, not {status}: '
                                 f'{done.stdout}{done.stderr}\n{self.log()[-3000:]}')
        return done.stdout if status == 0 else done.stdout + done.stderr

    def ask(self, *words):
        return json.loads(self.ctl('--json', *words))

    def create(self, name, sms=GROUP, memory='256M', *more):
        return self.ask('create', name, '--sms', str(sms), '--memory', str(memory), *more)

    def leases(self):
        return {lease['name']: lease for lease in self.ask('leases')['leases']}

    def events(self):
        return [json.loads(line) for line in self.ctl('--json', 'events').splitlines()]

    def kinds(self, lease):
        return [event['kind'] for event in self.events() if event['lease_id'] == lease['id']]

    def settings(self, lease):
        """The environment of a tenant's program."""
        environment = dict(os.environ)
        for line in self.ctl('token', lease, '--export').splitlines():
            name, value = line.removeprefix('export ').split('=', 1)
            environment[name] = value.strip("'")
        return environment

    def run_tenant(self, environment, *command):
        return subprocess.run([self.program('flyt'), 'run', '--', *command], env=environment,
                              capture_output=True, text=True, check=False, timeout=200)

    def subject(self):
        return os.path.join(self.build, 'tests', 'node_subject')

    def hold(self, lease, megabytes):
        """A tenant's program that holds memory until it is told to end."""
        tenant = subprocess.Popen(
            [self.program('flyt'), 'run', '--', self.subject(), 'hold', str(megabytes << 20)],
            env=self.settings(lease), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.tenants.append(tenant)
        first = tenant.stdout.readline()
        if not first:
            raise AssertionError(f'no tenant: {tenant.communicate()[1]}')
        return tenant, json.loads(first)

    @staticmethod
    def poke(tenant):
        """What the holding program says now."""
        tenant.stdin.write('\n')
        tenant.stdin.flush()
        return json.loads(tenant.stdout.readline() or '{}')

    def servers(self):
        """Processes of servers that this node started, sessions' among them: {pid: group}."""
        found = {}
        for folder in glob.glob('/proc/[0-9]*'):
            try:
                with open(f'{folder}/cmdline', 'rb') as file:
                    words = file.read().split(b'\0')
                with open(f'{folder}/stat', encoding='utf-8', errors='replace') as file:
                    fields = file.read().rpartition(')')[2].split()
            except OSError:
                continue
            wanted = f'unix://{self.run}/leases/'.encode()
            if fields[0] != 'Z' and any(word.startswith(wanted) for word in words):
                found[int(os.path.basename(folder))] = int(fields[2])
        return found

    def rows(self, table):
        with sqlite3.connect(f'file:{self.state}/node.db?mode=ro', uri=True) as database:
            return database.execute(f'SELECT * FROM {table}').fetchall()

    def left_over(self):
        """What should be gone once there are no leases."""
        files = glob.glob(f'{self.run}/leases/*') + glob.glob(f'{self.state}/leases/*')
        return [list(self.servers()), files, self.rows('leases'), self.rows('lease_groups'),
                self.rows('labels')]


class NodeTest(unittest.TestCase):
    """One node for all tests of a class."""

    build = ''
    soft = 2
    extra = ''

    @classmethod
    def setUpClass(cls):
        cls.node = Node(cls.build, cls.soft, cls.extra)
        try:
            cls.node.start()
        except BaseException:
            cls.node.remove()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.node.remove()

    def tearDown(self):
        self.node.end_tenants()
        if self.node.process is None:
            self.node.start()
        for name in self.node.leases():
            self.node.ctl('release', name)


def main(module):
    import sys
    NodeTest.build = sys.argv.pop(1)
    unittest.main(module=module, verbosity=2)
