"""Starts flyt-node-manager over software GPUs, asks it through flytctl, and runs tenants."""

import glob
import json
import os
import signal
import sqlite3
import struct
import subprocess
import unittest

from daemon_process import Daemon

MEMORY = 1 << 30
SMS = 32
GROUP = 8


class Node(Daemon):
    """A node manager's folders, and the manager while it runs."""

    def __init__(self, build, soft=2, extra='', name='test-node', gpus='', sms=SMS):
        super().__init__(build, 'flyt-node-manager', 'node')
        with open(self.config, 'w', encoding='utf-8') as file:
            file.write(f'[node]\nname = "{name}"\nstate = "{self.state}"\nrun = "{self.run}"\n'
                       f'[gpus]\nsoft = {soft}\n{gpus}\n'
                       f'[soft]\nsms = {sms}\nmemory = {MEMORY}\n{extra}')

    def end_rest(self):
        for pid in self.servers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def ctl(self, *words, status=0, node=None, environment=None):
        return self.flytctl(['--node', node or self.address], words, status, environment)

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

    def settings(self, lease, *more):
        """The environment of a tenant's program; `--tcp`: on another machine."""
        environment = dict(os.environ)
        for line in self.ctl('token', lease, '--export', *more).splitlines():
            name, value = line.removeprefix('export ').split('=', 1)
            environment[name] = value.strip("'")
        return environment

    def run_tenant(self, environment, *command):
        return subprocess.run([self.program('flyt'), 'run', '--', *command], env=environment,
                              capture_output=True, text=True, check=False, timeout=200)

    def hold(self, lease, megabytes):
        """A tenant's program that holds memory until it is told to end."""
        return self.start_tenant(self.settings(lease), 'hold', str(megabytes << 20))

    @staticmethod
    def poke(tenant):
        """What the holding program says now."""
        tenant.stdin.write('\n')
        tenant.stdin.flush()
        return json.loads(tenant.stdout.readline() or '{}')

    def replace_servers(self, *leases):
        """By SIGHUP; the events that tell what became of these leases' servers."""
        before = len(self.events())
        self.process.send_signal(signal.SIGHUP)

        def told():
            found = {event['lease_name']: event for event in self.events()[before:]
                     if event['kind'] in ('server-upgraded', 'server-kept')}
            return found if set(leases) <= set(found) else None

        return self.wait_for(told, 120)

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

    def all_work_is_done(self):
        """Whether sessions' processes have found all work of their programs done."""
        for pid in self.servers():
            for file in glob.glob(f'/proc/{pid}/fd/*'):
                try:
                    if 'memfd:flyt-marks' not in os.readlink(file):
                        continue
                    with open(file, 'rb') as marks:
                        _, work, done = struct.unpack('3Q', marks.read(24))
                except OSError:
                    continue
                if work != done:
                    return False
        return True

    def parents(self):
        """The first processes of servers, one a lease; their keepers outlive them."""
        found = set()
        for pid, group in self.servers().items():
            try:
                with open(f'/proc/{pid}/comm', encoding='utf-8') as file:
                    name = file.read().strip()
            except OSError:
                continue
            if pid == group and name != 'flyt-keeper':
                found.add(pid)
        return found

    def rows(self, table):
        with sqlite3.connect(f'file:{self.state}/node.db?mode=ro', uri=True) as database:
            return database.execute(f'SELECT * FROM {table}').fetchall()

    def left_over(self):
        """What should be gone once there are no leases."""
        files = glob.glob(f'{self.run}/leases/*') + glob.glob(f'{self.state}/leases/*')
        return [list(self.servers()), files, self.rows('leases'), self.rows('lease_groups'),
                self.rows('labels')]

    def check_nothing_left(self):
        """Waits for it: a keeper, for one, is killed and not waited for."""
        left = []

        def nothing():
            left[:] = self.left_over()
            return not any(left)
        try:
            self.wait_for(nothing)
        except AssertionError as error:
            raise AssertionError(f'left over: {left}') from error


class NodeTest(unittest.TestCase):
    """One node for all tests of a class."""

    build = ''
    soft = 2
    extra = ''
    gpus = ''
    sms = SMS

    @classmethod
    def setUpClass(cls):
        cls.node = Node(cls.build, cls.soft, cls.extra, gpus=cls.gpus, sms=cls.sms)
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
