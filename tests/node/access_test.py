#!/usr/bin/env python3
"""Who may ask a node, and who may use a lease. access_test.py BUILD."""

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon_process import free_port  # noqa: E402
from node_process import GROUP, Node, NodeTest, main  # noqa: E402


ILLEGAL_ADDRESS = 700


class Certificates:
    """An authority, and certificates that it or another one signed."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix='flyt-certs-')
        self.folder = self._folder.name
        for authority in ('ca', 'other'):
            self._openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256',
                          '-nodes', '-days', '2', '-subj', f'/CN={authority}',
                          '-keyout', f'{authority}.key', '-out', f'{authority}.crt')
        self._sign('node', 'ca')
        self._sign('user', 'ca')
        self._sign('stranger', 'other')

    def _openssl(self, *words):
        subprocess.run(['openssl', *words], cwd=self.folder, check=True, capture_output=True)

    def _sign(self, name, authority):
        self._openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                      '-subj', f'/CN={name}', '-keyout', f'{name}.key', '-out', f'{name}.csr')
        with open(self.path('names'), 'w', encoding='utf-8') as file:
            file.write('subjectAltName=DNS:localhost,IP:127.0.0.1\n')
        self._openssl('x509', '-req', '-in', f'{name}.csr', '-CA', f'{authority}.crt', '-CAkey',
                      f'{authority}.key', '-CAcreateserial', '-days', '2', '-extfile', 'names',
                      '-out', f'{name}.crt')

    def path(self, name):
        return os.path.join(self.folder, name)

    def options(self, name, authority='ca'):
        return ['--cert', self.path(f'{name}.crt'), '--key', self.path(f'{name}.key'), '--ca',
                self.path(f'{authority}.crt')]


class Access(NodeTest):
    soft = 1

    @classmethod
    def setUpClass(cls):
        cls.certificates = Certificates()
        cls.tcp = f'127.0.0.1:{free_port()}'
        cls.pages = f'127.0.0.1:{free_port()}'
        cls.gpu_port = free_port()
        certificates = cls.certificates
        cls.extra = (f'[api]\ntcp = "{cls.tcp}"\ncert = "{certificates.path("node.crt")}"\n'
                     f'key = "{certificates.path("node.key")}"\n'
                     f'ca = "{certificates.path("ca.crt")}"\n'
                     f'[metrics]\nlisten = "{cls.pages}"\n'
                     f'token = "{certificates.path("metrics.token")}"\n'
                     f'[leases]\ntcp_host = "127.0.0.1"\n'
                     f'tcp_ports = "{cls.gpu_port}-{cls.gpu_port}"\nadvertise = "127.0.0.1"\n')
        with open(certificates.path('metrics.token'), 'w', encoding='utf-8') as file:
            file.write('0123456789abcdef\n')
        super().setUpClass()

    def page(self, path):
        try:
            request = urllib.request.Request(f'http://{self.pages}{path}',
                                             headers={'Authorization': 'Bearer 0123456789abcdef'})
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_tcp_wants_a_certificate_of_the_authority(self):
        self.node.ctl(*self.certificates.options('user'), 'leases', node=self.tcp)
        self.assertIn('allowed', self.node.ctl(*self.certificates.options('stranger'), 'leases',
                                               node=self.tcp, status=3))
        # A node that somebody else signed is not believed.
        self.node.ctl(*self.certificates.options('user', 'other'), 'leases', node=self.tcp,
                      status=3)
        self.assertIn('--cert', self.node.ctl('leases', node=self.tcp, status=2))

    def test_tcp_speaks_to_nobody_without_tls(self):
        host, port = self.tcp.split(':')
        with socket.create_connection((host, int(port)), timeout=30) as plain:
            plain.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
            self.assertNotIn(b'\x00\x00', plain.recv(100)[:2])

    @unittest.skipIf(os.geteuid() != 0, 'only root can become somebody else')
    def test_other_users_are_refused_at_the_unix_socket(self):
        folder = tempfile.mkdtemp(prefix='flyt-open-')
        os.chmod(folder, 0o755)
        node = Node(self.build, 1, f'[api]\nunix = "{folder}/node.sock"\n')
        # The build may be where nobody else can look.
        flytctl = shutil.copy(node.program('flytctl'), folder)
        try:
            node.address = f'unix://{folder}/node.sock'
            node.start()
            os.chmod(f'{folder}/node.sock', 0o777)
            node.ctl('leases')
            done = subprocess.run([flytctl, '--node', node.address, 'leases'],
                                  capture_output=True, text=True, check=False, user=65534,
                                  group=65534)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn('another user', node.log())
        finally:
            node.remove()
            shutil.rmtree(folder)

    @unittest.skipIf(os.geteuid() != 0, 'only root can become somebody else')
    def test_programs_of_other_users_need_a_token_and_nothing_else(self):
        node = self.node
        os.chmod(node.folder, 0o711)
        node.create('a', GROUP, '128M')

        def run(environment):
            return subprocess.run([node.program('flyt'), 'run', '--', node.subject()],
                                  env=environment, capture_output=True, text=True, check=False,
                                  timeout=200, user=65534, group=65534, extra_groups=[])
        environment = dict(node.settings('a'), HOME='/')
        self.assertTrue(environment['FLYT_SERVER'].startswith('unix://'), environment)
        try:
            done = run(environment)
        except PermissionError:
            self.skipTest('another user cannot run the build')
        if done.returncode in (126, 127):
            self.skipTest(f'another user cannot run the build: {done.stderr}')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(run({name: value for name, value in environment.items()
                                 if name != 'FLYT_TOKEN'}).returncode, 0)
        # They reach that socket alone, and cannot look round.
        open_to_all = [path for path in glob.glob(f'{node.run}/**', recursive=True)
                       if os.stat(path).st_mode & 0o066]
        self.assertEqual([os.path.basename(path) for path in open_to_all], ['gpu.sock'])

    def test_clients_need_a_token_of_their_lease(self):
        self.node.create('a', GROUP, '128M')
        environment = self.node.settings('a')
        self.assertEqual(self.node.run_tenant(environment, self.node.subject()).returncode, 0)
        without = {name: value for name, value in environment.items() if name != 'FLYT_TOKEN'}
        self.assertNotEqual(self.node.run_tenant(without, self.node.subject()).returncode, 0)
        self.node.ctl('release', 'a')
        self.node.create('a', GROUP, '128M')
        again = dict(environment, FLYT_SERVER=self.node.settings('a')['FLYT_SERVER'])
        self.assertNotEqual(self.node.run_tenant(again, self.node.subject()).returncode, 0)

    def test_a_token_expires(self):
        self.node.create('a', GROUP, '128M')
        token = self.node.ask('token', 'a', '--lasts', '1s')
        environment = dict(self.node.settings('a'), FLYT_TOKEN=token['token'])
        self.node.wait_for(lambda: self.node.run_tenant(environment,
                                                        self.node.subject()).returncode != 0)

    def test_clients_come_over_tcp(self):
        lease = self.node.create('a', GROUP, '128M')
        self.assertIn(f'tcp://127.0.0.1:{self.gpu_port}', lease['urls'])
        self.assertIn('all ports', self.node.ctl('create', 'b', '--sms', '8', '--memory', '128M',
                                                 status=5))
        exports = self.node.ctl('token', 'a', '--export', '--tcp')
        environment = dict(os.environ, **dict(re.findall(r"export (\w+)='(.*)'", exports)))
        self.assertTrue(environment['FLYT_SERVER'].startswith('tcp://127.0.0.1'))
        done = self.node.run_tenant(environment, self.node.subject())
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_pages_tell_metrics_and_health(self):
        self.node.create('a', GROUP, '128M')
        # Nothing is wrong, and something will be.
        self.assertEqual(self.page('/healthz'), (200, 'ok\n'))
        self.assertIn('ends in 1d', self.node.ctl('health', status=1))
        status, metrics = self.page('/metrics')
        self.assertEqual(status, 200)
        self.assertIn('flyt_lease_memory_bytes{', metrics)
        self.assertRegex(metrics, r'flyt_lease_up\{.*name="a".*\} 1\n')
        for line in metrics.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) \w+ .+|\w+(\{[^}]*\})? \d+)$')
        self.assertEqual(self.page('/leases')[0], 404)

    def test_metrics_tell_what_leases_of_a_gpu_have_done(self):
        def value(metric, **labels):
            wanted = ''.join(rf'.*{name}="{value}"' for name, value in labels.items())
            found = re.findall(rf'^{metric}{{{wanted}.*}} (\d+)$', self.page('/metrics')[1], re.M)
            return sum(map(int, found))

        totals = ('launches', 'posted', 'waited', 'received_bytes', 'faults', 'recoveries')
        before = {one: value(f'flyt_gpu_{one}_total', gpu=0) for one in totals}
        self.node.create('a', GROUP, '128M')
        tenant, _ = self.node.start_tenant(self.node.settings('a'), 'fault')
        for count in (1, 2):
            self.assertEqual(self.node.poke(tenant).get('fault'), ILLEGAL_ADDRESS)
            self.assertEqual(value('flyt_lease_faults_total', name='a'), count)
            self.assertEqual(value('flyt_gpu_faults_total', gpu=0), before['faults'] + count)
            # A fault leaves its process no GPU: the session goes on in another one.
            self.assertEqual(value('flyt_gpu_recoveries_total', gpu=0),
                             before['recoveries'] + count)
        self.node.wait_for(lambda: 'gpu-fault' in [event['kind'] for event in self.node.events()])
        self.assertEqual(value('flyt_gpu_leases', gpu=0), 1)
        self.assertEqual(value('flyt_gpu_sessions', gpu=0), 1)
        lease = self.node.ask('describe', 'a')
        self.assertEqual(lease['launches'], 2)
        # Its process is killed, and another one goes on, with or without an error.
        killed = self.node.ask('sessions', 'a')['sessions'][0]['server_pid']
        os.kill(killed, signal.SIGKILL)
        self.node.wait_for(lambda: value('flyt_gpu_recoveries_total', gpu=0) ==
                           before['recoveries'] + 3)
        self.node.end_tenants()
        self.node.wait_for(lambda: value('flyt_gpu_sessions', gpu=0) == 0)
        self.node.ctl('release', 'a')
        # What was done stays counted when the lease is gone.
        after = {one: value(f'flyt_gpu_{one}_total', gpu=0) for one in totals}
        self.assertEqual(after['launches'], before['launches'] + 2)
        self.assertEqual(after['faults'], before['faults'] + 2)
        self.assertEqual(after['recoveries'], before['recoveries'] + 3)
        for one in ('posted', 'waited', 'received_bytes'):
            self.assertGreater(after[one], before[one])

    def test_the_configuration_is_checked_without_starting(self):
        def check(text):
            with tempfile.NamedTemporaryFile('w', suffix='.toml') as file:
                file.write(text)
                file.flush()
                return subprocess.run(
                    [self.node.program('flyt-node-manager'), '--config', file.name,
                     '--check-config'], capture_output=True, text=True, check=False)
        self.assertEqual(check('[gpus]\nsoft = 1\n').returncode, 0)
        bad = check('[gpus]\nsoft = 1\ncolour = "red"\n')
        self.assertEqual(bad.returncode, 1)
        self.assertRegex(bad.stderr, r'\.toml:3: unknown key gpus\.colour')


if __name__ == '__main__':
    main(__name__)
