"""Several cluster managers on one etcd, node managers and client managers, each on a machine of its
own where this user may make network namespaces; otherwise all on this one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'node'))
from authority import Authority  # noqa: E402
from cluster_process import Cluster  # noqa: E402
from daemon_process import Daemon, free_port  # noqa: E402
from node_process import GROUP, MEMORY, SMS, Node  # noqa: E402,F401

ETCD = next((path for path in ('/usr/bin/etcd', '/usr/local/bin/etcd') if os.access(path, os.X_OK)),
            None)
NOWHERE = '02:00:00:00:00:99'  # Nobody's: what is sent there is lost, and nobody says so.


class Network:
    """Machines on one switch: network namespaces, if that is allowed."""

    def __init__(self):
        self.front = f'flyt{os.getpid()}'
        self.addresses = {}
        self.real = os.geteuid() == 0 and shutil.which('ip') is not None and self.make_switch()

    @staticmethod
    def ip(*words):
        return subprocess.run(['ip', *words], capture_output=True, text=True, check=False)

    def need(self, *words):
        done = self.ip(*words)
        if done.returncode != 0:
            raise AssertionError(f'ip {" ".join(words)}: {done.stderr}')

    def make_switch(self):
        made = self.ip('netns', 'add', f'{self.front}-sw').returncode == 0
        if made and self.ip('-n', f'{self.front}-sw', 'link', 'add', 'br0', 'type',
                            'bridge').returncode == 0:
            self.need('-n', f'{self.front}-sw', 'link', 'set', 'br0', 'up')
            return True
        if made:
            self.ip('netns', 'del', f'{self.front}-sw')
        return False

    def space(self, name):
        return f'{self.front}-{name}'

    def add(self, name):
        """A machine; its address."""
        if not self.real:
            self.addresses[name] = '127.0.0.1'
            return '127.0.0.1'
        number = len(self.addresses) + 1
        space, switch = self.space(name), f'{self.front}-sw'
        self.need('netns', 'add', space)
        self.addresses[name] = f'10.213.0.{number}'
        self.need('link', 'add', f'v{number}', 'netns', switch, 'type', 'veth', 'peer', 'name',
                  'eth0', 'netns', space)
        self.need('-n', switch, 'link', 'set', f'v{number}', 'master', 'br0', 'up')
        self.need('-n', space, 'addr', 'add', f'{self.addresses[name]}/24', 'dev', 'eth0')
        self.need('-n', space, 'link', 'set', 'eth0', 'up')
        self.need('-n', space, 'link', 'set', 'lo', 'up')
        return self.addresses[name]

    def on(self, name, command):
        """The command as it is run on that machine."""
        return ['ip', 'netns', 'exec', self.space(name), *command] if self.real else list(command)

    def cut(self, one, other):
        """Nothing comes through between the two, and nobody is told."""
        for here, there in ((one, other), (other, one)):
            self.need('-n', self.space(here), 'neigh', 'replace', self.addresses[there], 'lladdr',
                      NOWHERE, 'nud', 'permanent', 'dev', 'eth0')

    def heal(self, one, other):
        for here, there in ((one, other), (other, one)):
            self.ip('-n', self.space(here), 'neigh', 'del', self.addresses[there], 'dev', 'eth0')

    def remove(self):
        if self.real:
            for name in [*self.addresses, 'sw']:
                self.ip('netns', 'del', self.space(name))


class OnMachine:
    """What a daemon needs to run on a machine of a network."""

    def place(self, network, machine):
        self.network = network
        self.machine = machine

    def launch(self, *arguments):
        with open(self.log_path, 'ab') as log:
            return subprocess.Popen(
                self.network.on(self.machine, [self.program(self.daemon), '--config', self.config,
                                               *arguments]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def configure(self, text):
        with open(self.config, 'w', encoding='utf-8') as file:
            file.write(text)


class Etcd:
    def __init__(self, network, folder):
        self.network = network
        self.folder = folder
        self.host = network.add('etcd')
        self.client, self.peer = free_port(), free_port()
        self.url = f'etcd:{self.host}:{self.client}'
        self.process = None
        # In memory where that can be: it waits for its disk at every change.
        memory = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
        self.data = tempfile.mkdtemp(prefix='flyt-etcd-', dir=memory)

    def start(self):
        client, peer = f'http://{self.host}:{self.client}', f'http://127.0.0.1:{self.peer}'
        with open(f'{self.folder}/etcd.log', 'ab') as log:
            self.process = subprocess.Popen(self.network.on('etcd', [
                ETCD, '--name=one', f'--data-dir={self.data}/etcd',
                f'--listen-client-urls={client}', f'--advertise-client-urls={client}',
                f'--listen-peer-urls={peer}', f'--initial-advertise-peer-urls={peer}',
                f'--initial-cluster=one={peer}', '--logger=zap']), stdout=log, stderr=log)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def remove(self):
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.data, ignore_errors=True)


class Manager(OnMachine, Daemon):
    def __init__(self, council, name):
        super().__init__(council.build, 'flyt-cluster-manager', 'cluster')
        self.place(council.network, name)
        host = council.network.add(name)
        council.authority.issue(name, 'admin', host)
        self.name = name
        self.tcp = f'{host}:{free_port()}'
        self.enrol = f'{host}:{free_port()}'
        self.configure(f'[cluster]\nname = "{name}"\nstore = "{council.etcd.url}"\n'
                       f'state = "{self.state}"\nrun = "{self.run}"\n' +
                       council.authority.section('api', name, f'tcp = "{self.tcp}"\n') +
                       f'[etcd]\nlease = {council.lease}\n'
                       f'[enrol]\nlisten = "{self.enrol}"\n'
                       f'key = "{council.authority.folder}/ca.key"\n'
                       '[nodes]\nreport_every = 1\nlost_after = 8\n[vms]\ngrace = 60\n')

    def describe(self):
        """What it says of itself; none if it says nothing."""
        done = subprocess.run([self.program('flytctl'), '--cluster', self.address, '--json',
                               'describe'], capture_output=True, text=True, check=False, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None


class GpuNode(OnMachine, Node):
    def __init__(self, council, name):
        super().__init__(council.build, 1, '', name)
        self.place(council.network, name)
        host = council.network.add(name)
        council.authority.issue(name, 'node', host)
        tcp = f'{host}:{free_port()}'
        port = free_port()
        with open(self.config, encoding='utf-8') as file:
            text = file.read()
        managers = json.dumps([manager.tcp for manager in council.managers.values()])
        # What programs ask for is never more than a few of these.
        self.configure(text + council.authority.section('api', name, f'tcp = "{tcp}"\n') +
                       council.authority.section('cluster', name, f'addresses = {managers}\n'
                                   f'advertise = "{tcp}"\nhost = "{name}-host"\n') +
                       f'[leases]\ntcp_host = "{host}"\ntcp_ports = "{port}-{port + 30}"\n'
                       f'advertise = "{host}"\n')


class Vm(OnMachine, Daemon):
    """A client manager and the programs beside it."""

    def __init__(self, council, name):
        super().__init__(council.build, 'flyt-client-manager', 'client')
        self.place(council.network, name)
        host = council.network.add(name)
        council.authority.issue(name, 'vm', host)
        self.name = name
        self.socket = f'{self.folder}/desk.sock'
        managers = json.dumps([manager.tcp for manager in council.managers.values()])
        self.configure(council.authority.section('cluster', name, f'addresses = {managers}\n') +
                       f'[vm]\nname = "{name}"\nhost = "{name}-host"\n'
                       f'[programs]\nsocket = "{self.socket}"\n[lease]\ngrace = 1\n'
                       f'[client]\nstate = "{self.state}"\n')

    def begin(self, megabytes=16):
        """A program that holds memory of the machine's GPU until it is told to end."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith('FLYT_')}
        environment['LD_LIBRARY_PATH'] = os.path.join(self.build, 'lib', 'client')
        environment['FLYT_CLIENT_SOCKET'] = self.socket
        environment['FLYT_WAIT_MS'] = '60000'
        program = subprocess.Popen(
            self.network.on(self.machine, [self.subject(), 'hold', str(megabytes << 20)]),
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.tenants.append(program)
        return program

    def hold(self, megabytes=16):
        program = self.begin(megabytes)
        first = program.stdout.readline()
        if not first or 'holds' not in json.loads(first):
            program.kill()
            raise AssertionError(f'{self.name}: no GPU: {first} {program.communicate()[1]}'
                                 f'\n{self.log()[-2000:]}')
        return program

    def try_hold(self):
        try:
            return self.hold()
        except AssertionError:
            return None


class Council:
    """All of it."""

    def __init__(self, build, managers=('m1', 'm2'), nodes=('n1', 'n2', 'n3'),
                 vms=('v1', 'v2', 'v3', 'v4'), lease=2):
        self.lease = lease
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix='flyt-council-')
        self.network = Network()
        self.daemons = []
        self.cuts = set()
        try:
            self.authority = Authority(build, self.folder)
            self.etcd = Etcd(self.network, self.folder)
            self.managers = {name: self.keep(Manager(self, name)) for name in managers}
            self.nodes = {name: self.keep(GpuNode(self, name)) for name in nodes}
            self.vms = {name: self.keep(Vm(self, name)) for name in vms}
        except BaseException:
            self.remove()
            raise

    def keep(self, daemon):
        self.daemons.append(daemon)
        return daemon

    def start_all(self):
        self.etcd.start()
        for daemon in self.daemons:
            if not isinstance(daemon, Vm):
                daemon.process = daemon.launch()
        self.wait_for(self.leader, 60)
        for vm in self.vms.values():
            self.add_vm(vm.name)
            vm.process = vm.launch()
        self.wait_for_nodes()
        for vm in self.vms.values():
            self.wait_for(lambda vm=vm: os.path.exists(vm.socket), 60)
        return self

    def remove(self):
        for daemon in self.daemons:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGCONT)
            daemon.remove()
        if getattr(self, 'etcd', None):
            self.etcd.remove()
        self.network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    wait_for = staticmethod(Daemon.wait_for)

    def leader(self):
        """The manager that decides, as it says itself."""
        for manager in self.managers.values():
            said = manager.describe() if manager.process is not None else None
            if said and said.get('decides') and said.get('manager') == manager.name:
                return manager
        return None

    def follower(self):
        leader = self.wait_for(self.leader, 60)
        return next(manager for manager in self.managers.values() if manager is not leader)

    @property
    def address(self):
        """Of a manager that runs."""
        return ','.join(manager.address for manager in self.managers.values()
                        if manager.process is not None)

    def ctl(self, *words, status=0, address=None):
        one = next(iter(self.managers.values()))
        return one.flytctl(['--cluster', address or self.address], words, status)

    def try_ctl(self, *words, address=None):
        """Whether it was done."""
        return subprocess.run([os.path.join(self.build, 'bin', 'flytctl'), '--cluster',
                               address or self.address, *words], capture_output=True, text=True,
                              check=False, timeout=120).returncode == 0

    def ask(self, *words, address=None):
        return json.loads(self.ctl('--json', *words, address=address))

    def list(self, what, *more, address=None):
        return self.ask(what, *more, address=address)[
            {'gpus': 'nodes'}.get(what, what)]

    def try_events(self):
        """All that have happened; none if nobody can tell."""
        try:
            return [json.loads(line) for line in self.ctl('--json', 'events').splitlines()]
        except AssertionError:
            return None

    def add_vm(self, name, sms=GROUP, memory='256M'):
        self.ctl('vm', 'set', name, '--sms', str(sms), '--memory', memory)

    def gpu(self, vm):
        return self.list('vms', vm)[0]['gpu']

    def wait_for_nodes(self):
        """Until all that run are ready; meanwhile nobody may decide."""
        wanted = sum(node.process is not None for node in self.nodes.values())

        def ready():
            try:
                return [node['state'] for node in self.list('nodes')].count('ready') >= wanted
            except AssertionError:
                return False
        self.wait_for(ready, 60)

    def cut(self, one, other):
        self.network.cut(one, other)
        self.cuts.add((one, other))

    def heal_all(self):
        for one, other in self.cuts:
            self.network.heal(one, other)
        self.cuts.clear()

    def log(self):
        return '\n'.join(f'--- {name}\n{daemon.log()[-2500:]}'
                         for name, daemon in {**self.managers, **self.nodes}.items())

    audit = Cluster.audit

    def settle(self, seconds=60.0):
        """Until what the daemons say agrees, with nothing ending."""
        last = []

        def agreed():
            if not self.leader():
                last[:] = ['nobody decides']
                return False
            try:
                last[:] = self.audit()
            except AssertionError as error:
                last[:] = [str(error)]
            last.extend(f'{lease["node"]} still has a lease of {lease["vm"]}'
                        for lease in self.list('leases') if lease['state'] == 'ending')
            return not last
        try:
            self.wait_for(agreed, seconds)
        except AssertionError as error:
            raise AssertionError(f'{last}\n{self.log()}') from error

    def seconds_until(self, condition, most=60.0):
        started = time.monotonic()
        self.wait_for(condition, most)
        return time.monotonic() - started
