#!/usr/bin/env python3
"""Who may do what, over TCP with certificates. roles_test.py BUILD."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from authority import Authority  # noqa: E402
from cluster_process import GROUP, QUICK, Cluster, Node, main  # noqa: E402
from cluster_process import ClusterTest as Base  # noqa: E402
from daemon_process import free_port  # noqa: E402
from half_messages import HalfMessages  # noqa: E402


class Roles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.authority = Authority(Base.build)
        cls.ca = cls.authority.folder
        for name, role in (('cluster', 'admin'), ('n1', 'node'), ('n2', 'node'), ('vm-a', 'vm'),
                           ('vm-b', 'vm'), ('eve', 'viewer'), ('oscar', 'operator'),
                           ('anna', 'admin'), ('left', 'admin')):
            cls.authority.issue(name, role, '127.0.0.1', 'localhost')
        cls.authority.revoke('left')
        cls.tcp = f'127.0.0.1:{free_port()}'
        cls.pages = f'127.0.0.1:{free_port()}'
        node_port = free_port()
        node_tcp = f'127.0.0.1:{node_port}'
        extra = (QUICK + cls.authority.section('api', 'cluster', f'tcp = "{cls.tcp}"\n'
                                 f'crl = "{cls.ca}/crl.pem"\n') +
                 f'[metrics]\nlisten = "{cls.pages}"\ntoken = "{cls.ca}/metrics.token"\n')
        with open(f'{cls.ca}/metrics.token', 'w', encoding='utf-8') as file:
            file.write('0123456789abcdef\n')
        cls.cluster = Cluster(Base.build, ('n1',), 1, extra)
        # The node reports over TCP, and is asked over TCP.
        node = cls.cluster.nodes['n1']
        with open(node.config, encoding='utf-8') as file:
            text = file.read().partition('[cluster]')[0]
        with open(node.config, 'w', encoding='utf-8') as file:
            file.write(text + cls.authority.section('cluster', 'n1', f'address = "{cls.tcp}"\n'
                                      f'advertise = "{node_tcp}"\n') +
                       cls.authority.section('api', 'n1', f'tcp = "{node_tcp}"\n'
                                             f'crl = "{cls.ca}/crl.pem"\n'))
        cls.node_tcp = node_tcp
        cls.cluster.start_all()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.remove()
        cls.authority.remove()

    def files(self, name):
        return self.authority.files(name)

    def ctl(self, who, *words, status=0):
        cert, key, ca = self.files(who)
        return self.cluster.ctl('--cert', cert, '--key', key, '--ca', ca, *words, status=status,
                                address=self.tcp)

    def speak(self, who, vm, word='request'):
        return self.cluster.speak(word, vm, address=self.tcp, files=self.files(who))

    def test_each_role_does_its_own(self):
        self.assertIn('eve', self.ctl('eve', 'describe'))
        self.ctl('eve', 'nodes')
        words = ('vm', 'set', 'x', '--sms', '8', '--memory', '256M')
        self.assertIn('needs operator', self.ctl('eve', *words, status=6))
        self.ctl('oscar', *words)
        self.assertIn('needs admin', self.ctl('oscar', 'audit', status=6))
        audit = self.ctl('anna', 'audit')
        self.assertRegex(audit, r'eve .*vm set .*needs operator')
        self.assertRegex(audit, r'oscar .*vm set .*ok')
        self.ctl('oscar', 'vm', 'rm', 'x')
        for machine in ('vm-a', 'n1'):
            self.assertIn('needs viewer', self.ctl(machine, 'nodes', status=6))

    def test_a_vm_speaks_for_itself_alone(self):
        self.ctl('oscar', 'vm', 'set', 'vm-a', '--sms', str(GROUP), '--memory', '256M')
        self.ctl('oscar', 'vm', 'set', 'vm-b', '--sms', str(GROUP), '--memory', '256M')
        gpu = self.cluster.wait_for(
            lambda: (lambda gpu: gpu if gpu and gpu['token'] else None)(self.speak('vm-a', '')))
        self.assertEqual(gpu['vm'], 'vm-a')
        self.assertIsNone(self.speak('vm-b', 'vm-a'))
        self.assertIsNone(self.speak('vm-b', 'vm-a', 'release'))
        self.assertIsNone(self.speak('oscar', 'vm-a'))
        self.assertIsNone(self.speak('n1', 'vm-a'))
        self.assertEqual(self.cluster.phase('vm-a'), 'ready')
        node = self.cluster.nodes['n1']
        done = node.run_tenant(self.cluster.environment(gpu), node.subject())
        self.assertEqual(done.returncode, 0, done.stderr)

    def ask_node(self, who, status, *words):
        cert, key, ca = self.files(who)
        done = subprocess.run([self.authority.flytctl, '--node', self.node_tcp, '--cert', cert,
                               '--key', key, '--ca', ca, *(words or ('leases',))],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def renew(self, name, role, *more):
        """As operate.md says it; the daemon still has the old one."""
        for end in ('crt', 'key'):
            os.replace(f'{self.ca}/{name}.{end}', f'{self.ca}/{name}.old.{end}')
        self.authority.run('issue', name, '--role', role, '--host=127.0.0.1', '--host=localhost',
                           *more)

    def health(self):
        return subprocess.run([self.authority.flytctl, '--cluster', self.cluster.address, 'health'],
                              capture_output=True, text=True, check=False, timeout=60).stdout

    def test_certificates_are_renewed_and_programs_do_not_notice(self):
        self.ctl('oscar', 'vm', 'set', 'vm-b', '--sms', str(GROUP), '--memory', '256M')
        node = self.cluster.nodes['n1']
        tenant, _ = self.cluster.hold('vm-b', 16)
        before = self.cluster.vm('vm-b')['gpu']['lease_id']
        # One that ends soon is told of until it is another one.
        for days, told in (('5', True), ('365', False)):
            self.renew('n1', 'node', '--days', days)
            node.stop()
            node.start()
            self.cluster.wait_for(lambda told=told: self.cluster.list('nodes')[0]['state'] ==
                                  'ready' and told == ('n1.crt ends in' in self.health()))
        self.renew('cluster', 'admin', '--days', '5')
        self.cluster.stop()
        self.cluster.start()
        self.assertIn('cluster.crt ends in', self.health())
        # What was stolen meanwhile is worth nothing.
        for name in ('n1', 'cluster'):
            self.authority.revoke(f'{name}.old')
        self.cluster.wait_for(lambda: self.cluster.list('nodes')[0]['state'] == 'ready')
        self.cluster.wait_for(lambda: self.speak('vm-b', ''))
        self.assertEqual(self.cluster.vm('vm-b')['gpu']['lease_id'], before)
        self.cluster.poke(tenant)
        self.assertIsNone(tenant.poll())
        node.end_tenants()
        self.ctl('oscar', 'vm', 'rm', 'vm-b', '--force')

    def test_a_vm_cannot_ask_a_node(self):
        for who, status in (('vm-a', 6), ('n2', 6), ('eve', 6), ('anna', 0)):
            self.ask_node(who, status)

    def test_a_node_looks_at_the_list_of_the_revoked_as_it_is_now(self):
        self.assertIn('of left was revoked', self.ask_node('left', 6))
        self.authority.issue('goes', 'admin')
        self.ask_node('goes', 0)
        self.authority.revoke('goes')
        self.assertIn('of goes was revoked', self.ask_node('goes', 6))
        self.assertIn('of goes was revoked', self.ask_node('goes', 6, 'drain'))
        self.ask_node('anna', 0)
        # Without a list that can be believed nobody is let in, and with one again at once.
        path = f'{self.ca}/crl.pem'
        with open(path, encoding='utf-8') as file:
            good = file.read()
        self.addCleanup(self.put, path, good)
        for bad in (good[:40], ''):
            self.put(path, bad)
            self.assertIn('nobody is trusted', self.ask_node('anna', 6))
        os.unlink(path)
        self.assertIn('nobody is trusted', self.ask_node('anna', 6))
        self.put(path, good)
        self.ask_node('anna', 0)
        self.ask_node('goes', 6)

    @staticmethod
    def put(path, text):
        with open(path + '.new', 'w', encoding='utf-8') as file:
            file.write(text)
        os.replace(path + '.new', path)

    def test_a_node_from_afar_cannot_mean_a_socket_of_this_machine(self):
        settings = f'address = "{self.tcp}"\nadvertise = "unix:///run/flyt/node.sock"\n'
        node = Node(Base.build, 1, self.authority.section('cluster', 'n2', settings), 'n2')
        try:
            node.start()
            node.wait_for(lambda: 'set cluster.advertise' in node.log())
            self.assertEqual(len(self.cluster.list('nodes')), 1)
        finally:
            node.remove()

    def fill(self, daemon, address, who, method, size):
        """By how much the daemon has grown at most, for messages of so many bytes in all."""
        def resident(key):
            with open(f'/proc/{daemon.process.pid}/status', encoding='utf-8') as file:
                return next(int(line.split()[1]) for line in file if line.startswith(key)) << 10
        before = resident('VmRSS')
        half = HalfMessages(address, self.files(who), method)
        for _ in range(4):
            half.begin(size // 4)
        half.pump()
        self.assertTrue(half.refused or half.closed)
        grown = resident('VmHWM') - before
        half.close()
        # A sanitizer keeps for a while what was freed.
        sanitized = resident('VmSize') > 1 << 40
        return 0 if sanitized else grown

    def test_messages_that_never_end_do_not_fill_the_memory(self):
        self.ctl('oscar', 'vm', 'set', 'vm-b', '--sms', str(GROUP), '--memory', '256M')
        grown = self.fill(self.cluster, self.tcp, 'vm-a', '/flyt.cluster.v1.Vms/Request', 600 << 20)
        self.assertLess(grown, 400 << 20)
        self.cluster.wait_for(lambda: self.speak('vm-b', ''))
        grown = self.fill(self.cluster.nodes['n1'], self.node_tcp, 'anna',
                          '/flyt.node.v1.Node/CreateLease', 300 << 20)
        self.assertLess(grown, 160 << 20)
        self.cluster.wait_for(lambda: self.cluster.list('nodes')[0]['state'] == 'ready')
        self.ask_node('anna', 0)
        self.ctl('oscar', 'vm', 'rm', 'vm-b', '--force')

    def test_a_node_cannot_say_that_it_is_where_another_one_is(self):
        leases = '[leases]\ntcp_host = "127.0.0.1"\ntcp_ports = "27700-27709"\n'
        told = ''
        for advertise, more, why in (
                (self.node_tcp, '', f'node n1 is at {self.node_tcp} already'),
                (self.node_tcp.replace('127.0.0.1', 'localhost'), leases,
                 'sent to 127.0.0.1, where node n1 is'),
                ('127.0.0.2:7701', '', 'the certificate of n2 is not for 127.0.0.2')):
            settings = f'address = "{self.tcp}"\nadvertise = "{advertise}"\n'
            node = Node(Base.build, 1,
                        more + self.authority.section('cluster', 'n2', settings), 'n2')
            try:
                node.start()
                node.wait_for(lambda node=node, why=why: why in node.log())
                self.assertEqual([one['name'] for one in self.cluster.list('nodes')], ['n1'])
                # Who tries no more is forgotten after a while.
                told += self.health()
            finally:
                node.remove()
        self.assertRegex(self.cluster.ctl('events'), r'node-refused +n2 .*node n1 is at')
        self.assertIn('node n2 is refused: ', told)

    @unittest.skipIf(os.geteuid() != 0, 'only root can become somebody else')
    def test_users_of_the_machine_have_their_roles(self):
        folder = tempfile.mkdtemp(prefix='flyt-open-')
        os.chmod(folder, 0o755)
        # The build may be where nobody else can look.
        flytctl = shutil.copy(self.authority.flytctl, folder)
        cluster = Cluster(Base.build, (), 1, f'[api]\nunix = "{folder}/cluster.sock"\n'
                          '[access]\noperators = ["65533"]\nviewers = ["65534"]\n')

        def status(user, *words):
            return subprocess.run(
                [flytctl, '--cluster', f'unix://{folder}/cluster.sock', *words],
                capture_output=True, check=False, user=user, group=user, timeout=60,
                env={'HOME': folder}).returncode
        try:
            cluster.start()
            words = ('vm', 'set', 'x', '--sms', '8', '--memory', '256M')
            self.assertEqual([status(user, 'vms') for user in (0, 65533, 65534, 65532)],
                             [0, 0, 0, 3])
            self.assertEqual([status(user, *words) for user in (65534, 65533, 65532)], [6, 0, 3])
            self.assertEqual([status(user, 'audit') for user in (0, 65533)], [0, 6])
            self.assertIn('a user without a role', cluster.log())
        finally:
            cluster.remove()
            shutil.rmtree(folder)

    def test_a_revoked_certificate_is_nobodys(self):
        self.assertIn('revoked', self.ctl('left', 'nodes', status=6))
        self.authority.issue('late', 'admin')
        self.ctl('late', 'nodes')
        self.authority.revoke('late')
        self.assertIn('revoked', self.ctl('late', 'nodes', status=6))

    def test_strangers_and_those_without_tls_get_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Authority(Base.build, folder)
            other.issue('x', 'admin')
            cert, key, _ = other.files('x')
            self.cluster.ctl('--cert', cert, '--key', key, '--ca',
                             f'{self.ca}/ca.crt', 'nodes', address=self.tcp, status=3)
        host, port = self.tcp.split(':')
        with socket.create_connection((host, int(port)), timeout=30) as plain:
            plain.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
            self.assertNotIn(b'\x00\x00', plain.recv(100)[:2])
        self.cluster.ctl('nodes', address=self.tcp, status=2)

    def test_the_authority_never_writes_over_what_there_is(self):
        self.assertIn('already', self.authority.run('init', status=6))
        self.assertIn('already', self.authority.run('issue', 'n1', '--role', 'vm', status=6))

    def test_pages_tell_metrics_and_health(self):
        def page(path):
            try:
                request = urllib.request.Request(
                    f'http://{self.pages}{path}',
                    headers={'Authorization': 'Bearer 0123456789abcdef'})
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
        self.assertEqual(page('/healthz'), (200, 'ok\n'))
        self.assertEqual(page('/readyz'), (200, 'ok\n'))
        status, metrics = page('/metrics')
        self.assertEqual(status, 200)
        self.assertIn('flyt_cluster_node_up{node="n1"} 1\n', metrics)
        for line in metrics.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) \w+ .+|\w+(\{[^}]*\})? \d+)$')
        self.cluster.ctl('cordon', 'n1')
        self.assertEqual(page('/readyz')[0], 503)
        self.cluster.ctl('uncordon', 'n1')
        self.assertEqual(page('/vms')[0], 404)


if __name__ == '__main__':
    main(__name__)
