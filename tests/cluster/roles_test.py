#!/usr/bin/env python3
"""Who may do what, over TCP with certificates. roles_test.py BUILD."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import GROUP, QUICK, Cluster, Node, main  # noqa: E402
from cluster_process import ClusterTest as Base  # noqa: E402


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Roles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='flyt-ca-')
        cls.ca = f'{cls.folder}/ca'
        cls.flytctl = os.path.join(os.path.abspath(Base.build), 'bin', 'flytctl')
        cls.authority('init')
        for name, role in (('cluster', 'admin'), ('n1', 'node'), ('n2', 'node'), ('vm-a', 'vm'),
                           ('vm-b', 'vm'), ('eve', 'viewer'), ('oscar', 'operator'),
                           ('anna', 'admin'), ('left', 'admin')):
            cls.authority('issue', name, '--role', role, '--host', '127.0.0.1', '--host',
                          'localhost')
        cls.authority('revoke', 'left')
        cls.tcp = f'127.0.0.1:{free_port()}'
        cls.pages = f'127.0.0.1:{free_port()}'
        node_port = free_port()
        node_tcp = f'127.0.0.1:{node_port}'
        extra = (QUICK + cls.tls('api', 'cluster', f'tcp = "{cls.tcp}"\n'
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
            file.write(text + cls.tls('cluster', 'n1', f'address = "{cls.tcp}"\n'
                                      f'advertise = "{node_tcp}"\n') +
                       cls.tls('api', 'n1', f'tcp = "{node_tcp}"\n'))
        cls.node_tcp = node_tcp
        try:
            cls.cluster.start_all()
        except BaseException:
            cls.cluster.remove()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.cluster.remove()

    @classmethod
    def authority(cls, *words, status=0):
        done = subprocess.run([cls.flytctl, 'ca', *words, '--dir', cls.ca], capture_output=True,
                              text=True, check=False)
        if done.returncode != status:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout + done.stderr

    @classmethod
    def tls(cls, section, name, more):
        return (f'[{section}]\n{more}cert = "{cls.ca}/{name}.crt"\nkey = "{cls.ca}/{name}.key"\n'
                f'ca = "{cls.ca}/ca.crt"\n')

    def files(self, name):
        return (f'{self.ca}/{name}.crt', f'{self.ca}/{name}.key', f'{self.ca}/ca.crt')

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

    def test_a_vm_cannot_ask_a_node(self):
        for who, status in (('vm-a', 6), ('n2', 6), ('eve', 6), ('anna', 0)):
            cert, key, ca = self.files(who)
            done = subprocess.run([self.flytctl, '--node', self.node_tcp, '--cert', cert, '--key',
                                   key, '--ca', ca, 'leases'], capture_output=True, text=True,
                                  check=False, timeout=60)
            self.assertEqual(done.returncode, status, done.stderr)

    def test_a_node_from_afar_cannot_mean_a_socket_of_this_machine(self):
        node = Node(Base.build, 1, self.tls('cluster', 'n2', f'address = "{self.tcp}"\n'
                                            'advertise = "unix:///run/flyt/node.sock"\n'), 'n2')
        try:
            node.start()
            node.wait_for(lambda: 'set cluster.advertise' in node.log())
            self.assertEqual(len(self.cluster.list('nodes')), 1)
        finally:
            node.remove()

    @unittest.skipIf(os.geteuid() != 0, 'only root can become somebody else')
    def test_users_of_the_machine_have_their_roles(self):
        folder = tempfile.mkdtemp(prefix='flyt-open-')
        os.chmod(folder, 0o755)
        cluster = Cluster(Base.build, (), 1, f'[api]\nunix = "{folder}/cluster.sock"\n'
                          '[access]\noperators = ["65533"]\nviewers = ["65534"]\n')

        def status(user, *words):
            return subprocess.run(
                [self.flytctl, '--cluster', f'unix://{folder}/cluster.sock', *words],
                capture_output=True, check=False, user=user, group=user, timeout=60,
                env={'HOME': folder}).returncode
        try:
            cluster.start()
            if status(65534, '--version') != 0:
                self.skipTest('another user cannot run the build')
            words = ('vm', 'set', 'x', '--sms', '8', '--memory', '256M')
            self.assertEqual([status(user, 'vms') for user in (0, 65533, 65534, 65532)],
                             [0, 0, 0, 3])
            self.assertEqual([status(user, *words) for user in (65534, 65533, 65532)], [6, 0, 3])
            self.assertEqual([status(user, 'audit') for user in (0, 65533)], [0, 6])
            self.assertIn('a user without a role', cluster.log())
        finally:
            cluster.remove()
            if os.path.exists(f'{folder}/cluster.sock'):
                os.unlink(f'{folder}/cluster.sock')
            os.rmdir(folder)

    def test_a_revoked_certificate_is_nobodys(self):
        self.assertIn('revoked', self.ctl('left', 'nodes', status=6))
        self.authority('issue', 'late', '--role', 'admin')
        self.ctl('late', 'nodes')
        self.authority('revoke', 'late')
        self.assertIn('revoked', self.ctl('late', 'nodes', status=6))

    def test_strangers_and_those_without_tls_get_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            other = f'{folder}/ca'
            for words in (('init',), ('issue', 'x', '--role', 'admin')):
                subprocess.run([self.flytctl, 'ca', *words, '--dir', other], check=True,
                               capture_output=True)
            self.cluster.ctl('--cert', f'{other}/x.crt', '--key', f'{other}/x.key', '--ca',
                             f'{self.ca}/ca.crt', 'nodes', address=self.tcp, status=3)
        host, port = self.tcp.split(':')
        with socket.create_connection((host, int(port)), timeout=30) as plain:
            plain.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
            self.assertNotIn(b'\x00\x00', plain.recv(100)[:2])
        self.cluster.ctl('nodes', address=self.tcp, status=2)

    def test_the_authority_never_writes_over_what_there_is(self):
        self.assertIn('already', self.authority('init', status=6))
        self.assertIn('already', self.authority('issue', 'n1', '--role', 'vm', status=6))

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
