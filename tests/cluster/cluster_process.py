"""Starts a flyt-cluster-manager and node managers over software GPUs, and audits them."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'node'))
from daemon_process import Daemon  # noqa: E402
from node_process import GROUP, MEMORY, SMS, Node  # noqa: E402,F401

# Nodes report often, and none is lost because its machine is busy.
QUICK = '[nodes]\nreport_every = 1\nlost_after = 60\n'


class Cluster(Daemon):
    """A cluster manager's folders, the manager while it runs, and its nodes."""

    def __init__(self, build, nodes=('n1', 'n2'), soft=1, extra=QUICK, node_extra='',
                 node_gpus=''):
        super().__init__(build, 'flyt-cluster-manager', 'cluster')
        self.watchers = []
        self.shares = 'sm_percent' in node_gpus
        self.configure(extra)
        self.nodes = {name: Node(build, soft, f'[cluster]\naddress = "{self.address}"\n'
                                 f'host = "{name}-host"\n{node_extra}', name, node_gpus)
                      for name in nodes}

    def configure(self, extra):
        with open(self.config, 'w', encoding='utf-8') as file:
            file.write(f'[cluster]\nstate = "{self.state}"\nrun = "{self.run}"\n{extra}')

    def start_all(self):
        """With all nodes ready. If that fails, nothing is left."""
        try:
            self.start()
            for node in self.nodes.values():
                if node.process is None:
                    node.start()
            self.wait_for(lambda: all(node['state'] == 'ready' for node in self.list('nodes')) and
                          len(self.list('nodes')) == len(self.nodes))
        except BaseException:
            self.remove()
            raise
        return self

    def end_rest(self):
        for watcher in self.watchers:
            watcher.kill()
            watcher.wait()
            watcher.stdout.close()
        for node in self.nodes.values():
            node.remove()

    def ctl(self, *words, status=0, address=None):
        return self.flytctl(['--cluster', address or self.address], words, status)

    def ask(self, *words):
        return json.loads(self.ctl('--json', *words))

    def list(self, what, *more):
        key = {'nodes': 'nodes', 'gpus': 'nodes', 'vms': 'vms', 'leases': 'leases',
               'sessions': 'sessions'}[what]
        return self.ask(what, *more)[key]

    def vm(self, name):
        return self.list('vms', name)[0]

    def phase(self, name):
        return self.vm(name)['gpu']['phase']

    def add_vm(self, name, sms=GROUP, memory='256M', *more):
        return self.ctl('vm', 'set', name, '--sms', str(sms), '--memory', memory, *more)

    def events(self):
        return [json.loads(line) for line in self.ctl('--json', 'events').splitlines()]

    def kinds(self, vm):
        return [event['kind'] for event in self.events() if event['vm'] == vm]

    def vm_command(self, word, vm, address=None, files=('', '', '')):
        return [os.path.join(self.build, 'tests', 'cluster_vm'), address or self.address, *files,
                word, vm]

    def speak(self, word, vm, **more):
        """What the manager answers a VM; None if it does not."""
        done = subprocess.run(self.vm_command(word, vm, **more), capture_output=True, text=True,
                              check=False, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def want(self, vm, **more):
        """The VM's virtual GPU with a token, once it has one."""
        def ready():
            gpu = self.speak('request', vm, **more)
            return gpu if gpu and gpu['phase'] == 'ready' and gpu['token'] else None
        return self.wait_for(ready)

    def watch(self, vm):
        watcher = subprocess.Popen(self.vm_command('watch', vm), stdout=subprocess.PIPE, text=True)
        self.watchers.append(watcher)
        return watcher

    def node_of(self, vm):
        return self.nodes[self.vm(vm)['gpu']['node']]

    @staticmethod
    def environment(gpu, kind='unix:'):
        url = next(url for url in gpu['urls'] if url.startswith(kind))
        return dict(os.environ, FLYT_SERVER=url, FLYT_TOKEN=gpu['token'])

    def run_program(self, vm, *words):
        """A VM's program that goes on until it is told to end."""
        gpu = self.want(vm)
        return self.nodes[gpu['node']].start_tenant(self.environment(gpu), *words)

    def hold(self, vm, megabytes):
        """One that holds memory."""
        return self.run_program(vm, 'hold', str(megabytes << 20))

    poke = staticmethod(Node.poke)

    def audit(self):
        """What is wrong, from what every daemon says; empty: nothing."""
        wrong = []
        leases = self.list('leases')
        own = {(lease['node'], lease['lease']['name']): lease for lease in leases
               if lease['state'] != 'foreign'}
        ready = [lease['vm'] for lease in leases if lease['state'] in ('ready', 'starting')]
        if len(ready) != len(set(ready)):
            wrong.append(f'a VM has two virtual GPUs: {ready}')
        for name, node in self.nodes.items():
            if node.process is None:
                continue
            there = node.leases()
            for lease in there.values():
                if 'flyt/vm' in lease['labels'] and (name, lease['name']) not in own:
                    wrong.append(f'{name} has {lease["name"]}, which nobody knows')
            for (where, lease), one in own.items():
                if where == name and one['state'] == 'ready' and lease not in there:
                    wrong.append(f'{lease} is not on {name}')
            groups = [(lease['gpu'], group) for lease in there.values()
                      for group in lease['groups']]
            if len(groups) != len(set(groups)) and not self.shares:
                wrong.append(f'{name} gave a group to two leases')
            if node.parents() != {lease['server_pid'] for lease in there.values()}:
                wrong.append(f'{name} has servers that are no leases\'')
        return wrong

    def settle(self):
        """Until what the daemons say agrees, with nothing ending."""
        last = []

        def agreed():
            last[:] = self.audit()
            return not last and not any(lease['state'] == 'ending'
                                        for lease in self.list('leases'))
        try:
            self.wait_for(agreed)
        except AssertionError as error:
            raise AssertionError(f'{last} {self.ctl("leases")}\n{self.log()[-3000:]}') from error


class ClusterTest(unittest.TestCase):
    """One cluster for all tests of a class."""

    build = ''
    nodes = ('n1', 'n2')
    soft = 1
    extra = QUICK
    node_gpus = ''

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(cls.build, cls.nodes, cls.soft, cls.extra, node_gpus=cls.node_gpus)
        cls.cluster.start_all()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.remove()

    def tearDown(self):
        cluster = self.cluster
        for node in cluster.nodes.values():
            node.end_tenants()
        if cluster.process is None:
            cluster.start()
        for node in cluster.nodes.values():
            if node.process is None:
                node.start()
        cluster.wait_for(lambda: all(node['state'] not in ('lost', 'unknown')
                                     for node in cluster.list('nodes')))
        for name in cluster.nodes:
            cluster.ctl('uncordon', name)
        for vm in cluster.list('vms'):
            cluster.ctl('vm', 'rm', vm['spec']['name'], '--force')
        cluster.settle()
        for node in cluster.nodes.values():
            node.check_nothing_left()


def main(module):
    ClusterTest.build = sys.argv.pop(1)
    unittest.main(module=module, verbosity=2)
