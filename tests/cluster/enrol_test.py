#!/usr/bin/env python3
"""Machines that get their certificates for tokens, and all who should not. enrol_test.py BUILD."""

import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from authority import Authority  # noqa: E402
from cluster_process import QUICK, Cluster, main  # noqa: E402
from cluster_process import ClusterTest as Base  # noqa: E402
from council_process import ETCD, Council  # noqa: E402
from daemon_process import free_port  # noqa: E402

BAD, NO_ANSWER, NO_ROOM, REFUSED = 2, 3, 5, 6
# Until a limit of ten is reached.
TRIES = 100


class Enrolment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.authority = Authority(Base.build)
        for name, role in (('cluster', 'admin'), ('anna', 'admin'), ('oscar', 'operator'),
                           ('mallory', 'vm'), ('trudy', 'vm')):
            cls.authority.issue(name, role, '127.0.0.1', 'localhost')
        cls.tcp = f'127.0.0.1:{free_port()}'
        cls.at = f'127.0.0.1:{free_port()}'
        cls.api = cls.authority.section('api', 'cluster', f'tcp = "{cls.tcp}"\n')
        cls.enrol_section = (f'[enrol]\nlisten = "{cls.at}"\n'
                             f'key = "{cls.authority.folder}/ca.key"\n')
        cls.cluster = Cluster(Base.build, (), 1, QUICK + cls.api + cls.enrol_section)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.remove()
        cls.authority.remove()

    def setUp(self):
        # How many wrong tokens came is forgotten with the process; the tokens are not.
        self.cluster.start()
        self.folder = tempfile.mkdtemp(dir=self.cluster.folder)
        self.addCleanup(lambda: self.cluster.process and self.cluster.stop())

    def token(self, name, role='vm', *more):
        return self.cluster.ctl('enrol-token', 'create', name, '--role', role, *more).strip()

    def try_enrol(self, name, token, role='vm', *more, at=None, folder=None):
        return subprocess.run(
            [self.cluster.program('flytctl'), 'enrol', name, '--role', role,
             '--at', at or self.at, '--dir', folder or self.folder, '--token-file', '-', *more],
            input=token + '\n', capture_output=True, text=True, check=False, timeout=60)

    def enrol(self, name, token, role='vm', *more, status=0, at=None, folder=None):
        done = self.try_enrol(name, token, role, *more, at=at, folder=folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def raw(self, name, token, request, role='vm'):
        """What a machine gets that sends what it likes."""
        done = subprocess.run(
            [os.path.join(self.cluster.build, 'tests', 'cluster_vm'), self.at,
             f'{self.authority.folder}/ca.crt', token, role, 'enrol', name],
            input=request, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def state(self, token):
        (state,) = [one['state'] for one in self.cluster.ask('enrol-token', 'list')['tokens']
                    if one['id'] == token.split('.')[1]]
        return state

    def speak(self, files, vm):
        return subprocess.run(self.cluster.vm_command('request', vm, self.tcp, files),
                              capture_output=True, text=True, check=False, timeout=60)

    def files(self, name):
        return tuple(f'{self.folder}/{file}' for file in (f'{name}.crt', f'{name}.key', 'ca.crt'))

    def test_a_vm_gets_its_certificate_and_is_who_it_says(self):
        token = self.token('vm-a')
        said = self.enrol('vm-a', token)
        self.assertNotIn(token, said)
        modes = {name: stat.S_IMODE(os.stat(f'{self.folder}/{name}').st_mode)
                 for name in os.listdir(self.folder)}
        self.assertEqual(modes, {'vm-a.key': 0o600, 'vm-a.crt': 0o644, 'ca.crt': 0o644})
        self.cluster.add_vm('vm-a')
        self.cluster.add_vm('vm-b')
        own = self.speak(self.files('vm-a'), 'vm-a')
        self.assertEqual(own.returncode, 0, own.stderr)
        self.assertIn('may not speak for', self.speak(self.files('vm-a'), 'vm-b').stderr)
        self.assertEqual(self.state(token), 'used')
        audit = self.cluster.ctl('audit')
        self.assertRegex(audit, r'enrol-token create .*vm vm-a .*ok')
        number = token.split('.')[1]
        self.assertRegex(audit, rf'token {number} .*enrol .*vm vm-a .*certificate .*ok')
        self.assertNotIn(token.split('.')[2], audit + self.cluster.log())
        self.assertIn('machine-enrolled', self.cluster.ctl('events'))
        # Twice is once too often, also for the same machine, and after a restart.
        self.assertIn('not written over', self.enrol('vm-a', token, status=REFUSED))
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        self.assertIn('used already', self.enrol('vm-a', token, status=REFUSED))
        self.cluster.stop()
        self.cluster.start()
        self.assertIn('used already', self.enrol('vm-a', token, status=REFUSED))
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_machine_that_is_known_enrols_again_beside_what_it_has(self):
        self.enrol('vm-a', self.token('vm-a'))
        self.cluster.add_vm('vm-a')
        with open(f'{self.folder}/vm-a.crt', encoding='utf-8') as file:
            old = file.read()
        fresh = f'{self.folder}/new'
        self.enrol('vm-a', self.token('vm-a'), folder=fresh)
        self.assertEqual(os.stat(fresh).st_mode & 0o777, 0o700)
        for end in ('key', 'crt'):
            os.replace(f'{fresh}/vm-a.{end}', f'{self.folder}/vm-a.{end}')
        with open(f'{self.folder}/vm-a.crt', encoding='utf-8') as file:
            self.assertNotEqual(file.read(), old)
        said = self.speak(self.files('vm-a'), 'vm-a')
        self.assertEqual(said.returncode, 0, said.stderr)

    def try_renew(self, name, *more):
        return subprocess.run(
            [self.cluster.program('flytctl'), 'renew', name, '--at', self.at, '--dir',
             self.folder, *more], capture_output=True, text=True, check=False, timeout=60)

    def renew(self, name, *more, status=0):
        done = self.try_renew(name, *more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def read(self, name):
        with open(f'{self.folder}/{name}', encoding='utf-8') as file:
            return file.read()

    def test_a_machine_renews_its_certificate_with_the_one_that_it_has(self):
        token = self.token('n9', 'node', '--host', 'n9.example.org', '--host', 'fd00::9',
                           '--host', '10.0.0.9')
        told = json.loads(self.enrol('n9', token, 'node', '--json'))
        self.assertEqual(told['key'], f'{self.folder}/n9.key')
        os.chmod(f'{self.folder}/n9.key', 0o640)
        old = self.read('n9.crt'), self.read('n9.key')
        self.assertIn('is good until', self.renew('n9', '--then', 'false'))
        told = json.loads(self.renew('n9', '--json'))
        self.assertEqual(told['certificate'], f'{self.folder}/n9.crt')
        self.assertGreater(told['expires'], told['renewed_from'])
        self.assertEqual((self.read('n9.crt'), self.read('n9.key')), old)
        done = f'{self.folder}/done'
        said = json.loads(self.renew('n9', '--json', '--within', '366d', '--then', f'touch {done}'))
        self.assertTrue(os.path.exists(done))
        self.assertNotEqual(self.read('n9.crt'), old[0])
        self.assertNotEqual(self.read('n9.key'), old[1])
        self.assertEqual(stat.S_IMODE(os.stat(f'{self.folder}/n9.key').st_mode), 0o640)
        text = subprocess.run(['openssl', 'x509', '-noout', '-text', '-in',
                               f'{self.folder}/n9.crt'], capture_output=True, text=True,
                              check=True).stdout
        self.assertIn('DNS:n9.example.org, IP Address:FD00:0:0:0:0:0:0:9, IP Address:10.0.0.9',
                      text)
        self.assertRegex(text, r'OU ?= ?node, CN ?= ?n9')
        serial = said['serial']
        self.assertRegex(self.cluster.ctl('audit'), rf'n9 .*renew .*node n9 .*{serial} .*ok')
        # The new one is as good as the old one was.
        failed = self.renew('n9', '--within', '366d', '--then', 'exit 7', status=1)
        self.assertIn('exit status 7', failed)
        self.assertEqual(sorted(os.listdir(self.folder)), ['ca.crt', 'done', 'n9.crt', 'n9.key'])

    def test_what_was_left_half_renewed_is_finished(self):
        self.enrol('vm-a', self.token('vm-a'))
        shutil.copytree(self.folder, f'{self.folder}/old')
        self.renew('vm-a', '--within', '366d')
        # As if it had ended between the two files.
        os.rename(f'{self.folder}/vm-a.crt', f'{self.folder}/vm-a.crt.next')
        shutil.copy(f'{self.folder}/old/vm-a.crt', self.folder)
        wanted = self.read('vm-a.crt.next')
        self.renew('vm-a')
        self.assertEqual(self.read('vm-a.crt'), wanted)
        # What belongs to nothing goes.
        shutil.copy(f'{self.folder}/old/vm-a.crt', f'{self.folder}/vm-a.crt.next')
        self.renew('vm-a')
        self.assertEqual(self.read('vm-a.crt'), wanted)
        self.assertFalse(os.path.exists(f'{self.folder}/vm-a.crt.next'))
        shutil.copy(f'{self.folder}/old/vm-a.crt', self.folder)
        self.assertIn('not that of its certificate', self.renew('vm-a', status=BAD))

    def test_nothing_is_renewed_for_people_for_the_revoked_and_for_nobody(self):
        shutil.copy(f'{self.authority.folder}/ca.crt', self.folder)
        for name, status, why in (('anna', REFUSED, "not of the role 'admin'"), ('trudy', 0, '')):
            for end in ('crt', 'key'):
                shutil.copy(f'{self.authority.folder}/{name}.{end}', self.folder)
            self.assertIn(why, self.renew(name, '--within', '366d', status=status))
        self.authority.run('revoke', f'{self.folder}/trudy.crt')
        self.cluster.stop()
        self.addCleanup(self.cluster.configure, QUICK + self.api + self.enrol_section)
        self.cluster.configure(QUICK + self.api + f'crl = "{self.authority.folder}/crl.pem"\n' +
                               self.enrol_section)
        self.cluster.start()
        self.assertIn('was revoked', self.renew('trudy', '--within', '366d', status=REFUSED))
        # A certificate of another authority does not even come through the handshake.
        other = Authority(Base.build, self.folder)
        other.issue('vm-a', 'vm')
        for end in ('crt', 'key'):
            shutil.copy(f'{other.folder}/vm-a.{end}', self.folder)
        self.renew('vm-a', '--within', '366d', status=NO_ANSWER)
        reply = subprocess.run(
            [os.path.join(self.cluster.build, 'tests', 'cluster_vm'), self.at,
             f'{self.authority.folder}/ca.crt', '-', '-', 'renew', '-'],
            capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(reply.stdout, '7 a certificate is renewed for who shows it')

    def test_who_renews_all_the_time_does_not_fill_the_audit_log(self):
        self.enrol('vm-a', self.token('vm-a'))
        self.renew('vm-a', '--within', '366d')
        # One more is allowed every six seconds, in which a busy machine asks but a few times.
        for _ in range(TRIES):
            last = self.try_renew('vm-a', '--within', '366d')
            if last.returncode == NO_ROOM:
                break
            self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual(last.returncode, NO_ROOM, last.stdout)
        self.assertIn('vm vm-a was renewed too often', last.stderr)

    def test_a_node_gets_names_that_the_operator_gave_it(self):
        token = self.token('n9', 'node', '--host', 'n9.example.org', '--host', '10.0.0.9')
        self.enrol('n9', token, 'node')
        text = subprocess.run(['openssl', 'x509', '-noout', '-text', '-in',
                               f'{self.folder}/n9.crt'], capture_output=True, text=True,
                              check=True).stdout
        self.assertIn('DNS:n9.example.org, IP Address:10.0.0.9', text)
        self.assertRegex(text, r'OU ?= ?node, CN ?= ?n9')
        self.assertIn('CA:FALSE', text)
        done = self.cluster.ctl('--cert', f'{self.folder}/n9.crt', '--key',
                                f'{self.folder}/n9.key', '--ca', f'{self.folder}/ca.crt', 'nodes',
                                address=self.tcp, status=REFUSED)
        self.assertIn('n9 has the role node', done)

    def test_a_token_ends_or_is_revoked(self):
        short = self.token('vm-a', 'vm', '--lasts', '1s')
        other = self.token('vm-a')
        self.cluster.ctl('enrol-token', 'revoke', other.split('.')[1])
        self.assertIn('was revoked', self.enrol('vm-a', other, status=REFUSED))
        self.cluster.wait_for(lambda: self.state(short) == 'expired')
        self.assertIn('has expired', self.enrol('vm-a', short, status=REFUSED))
        self.assertEqual(os.listdir(self.folder), [])
        self.assertRegex(self.cluster.ctl('audit'), r'enrol .*vm vm-a .*the token has expired')

    def test_a_forged_token_is_refused_and_tells_nothing(self):
        token = self.token('vm-a')
        front, number, secret, pin = token.split('.')
        for forged in (f'{front}.{number}.{secret[::-1]}.{pin}',
                       f'{front}.{number[::-1]}.{secret}.{pin}'):
            self.assertIn('the token is not known', self.enrol('vm-a', forged, status=REFUSED))
        for nonsense in ('', 'x', token[:-1], token.upper(), token + '0'):
            self.assertIn('this is no token', self.enrol('vm-a', nonsense, status=BAD))
        self.assertEqual(self.state(token), 'unused')
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_token_is_for_one_machine(self):
        token = self.token('vm-a')
        for name, role in (('vm-b', 'vm'), ('vm-a', 'node')):
            self.assertIn('the token is for vm vm-a',
                          self.enrol(name, token, role, status=REFUSED))
        request = self.request('/O=flyt/OU=admin/CN=anna')
        self.assertIn('another name or role', self.raw('vm-a', token, request)[1])
        self.assertIn('the token is for vm vm-a', self.raw('anna', token, request, 'admin')[1])
        self.assertEqual(self.state(token), 'unused')
        self.enrol('vm-a', token)

    def request(self, subject, *key):
        key = key or ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1')
        return subprocess.run(['openssl', 'req', '-new', '-nodes', '-keyout', '/dev/null',
                               '-subj', subject, *key], capture_output=True, text=True,
                              check=True, timeout=60).stdout

    def test_only_a_decent_request_is_signed_and_others_do_not_spend_the_token(self):
        token = self.token('vm-a')
        good = self.request('/O=flyt/OU=vm/CN=vm-a')
        for request, why in ((self.request('/O=flyt/OU=vm/CN=vm-a', '-newkey', 'rsa:2048'),
                              'P-256 or P-384'),
                             (good + 'x' * 5000, 'more than 4096 bytes'),
                             ('', 'cannot be read'),
                             (good[:200], 'cannot be read'),
                             # More than a message may have.
                             ('x' * 100000, 'larger than max')):
            status, said = self.raw('vm-a', token, request)
            self.assertEqual(status, 1, said)
            self.assertIn(why, said)
        self.assertEqual(self.state(token), 'unused')
        status, said = self.raw('vm-a', token, good)
        self.assertEqual(status, 0, said)
        self.assertEqual(self.state(token), 'used')

    def test_who_guesses_is_not_listened_to_for_a_while(self):
        token = self.token('vm-a')
        front, number, _, pin = token.split('.')
        # A try comes back every six seconds, in which a busy machine asks but a few times. None of
        # these spends a token: not the right one either, as it comes without a request.
        for guess in range(TRIES):
            wrong = f'{front}.{number}.{guess:064x}.{pin}'
            if ('too many wrong tokens' in self.raw('vm-a', wrong, '')[1] and
                    'too many wrong tokens' in self.raw('vm-a', token, '')[1]):
                last = self.try_enrol('vm-a', wrong)
                if last.returncode == NO_ROOM:
                    break
        else:
            self.fail('who guesses is listened to')
        self.assertIn('too many wrong tokens', last.stderr)
        self.assertEqual(self.state(token), 'unused')
        self.assertNotIn('not known', self.cluster.ctl('audit'), 'guesses fill no log for ever')

    def test_the_secret_is_told_to_the_cluster_alone(self):
        token = self.token('vm-a')
        other = Authority(Base.build, self.folder)
        stranger = f'{self.folder}/ca/ca.crt'
        said = self.enrol('vm-a', token, 'vm', '--ca', stranger, status=NO_ANSWER)
        self.assertNotIn('not known', said)
        front, number, secret, pin = token.split('.')
        pinned = f'{front}.{number}.{secret}.{pin[::-1]}'
        self.assertIn('does not show the authority', self.enrol('vm-a', pinned, status=REFUSED))
        # Somebody who has a certificate of his own authority, and copied ours.
        other.issue('liar', 'admin', '127.0.0.1')
        heard = self.listen_as_liar(other)
        self.enrol('vm-a', token, status=NO_ANSWER, at=f'127.0.0.1:{heard.port}')
        heard.end()
        self.assertNotIn(secret.encode(), heard.bytes)
        self.assertEqual(self.state(token), 'unused')
        self.assertEqual(sorted(os.listdir(self.folder)), ['ca'])
        # With the right authority as a file no fingerprint is looked at.
        self.enrol('vm-a', pinned, 'vm', '--ca', f'{self.authority.folder}/ca.crt')

    def listen_as_liar(self, other):
        chain = f'{self.folder}/ca/chain.pem'
        with open(chain, 'w', encoding='utf-8') as out:
            for path in (f'{self.folder}/ca/liar.crt', f'{self.authority.folder}/ca.crt'):
                with open(path, encoding='utf-8') as file:
                    out.write(file.read())
        return Liar(chain, f'{self.folder}/ca/liar.key')

    def test_there_is_nothing_else_at_that_port(self):
        cert, key, ca = self.authority.files('anna')
        said = self.cluster.ctl('--cert', cert, '--key', key, '--ca', ca, 'nodes', address=self.at,
                                status=1)
        self.assertNotIn('STATE', said)
        self.assertIsNone(self.cluster.speak('request', 'vm-a', address=self.at,
                                             files=self.authority.files('anna')))
        host, port = self.at.split(':')
        for nonsense in (b'GET /healthz HTTP/1.1\r\n\r\n', os.urandom(4096)):
            with socket.create_connection((host, int(port)), 30) as plain:
                plain.sendall(nonsense)
                try:
                    self.assertNotIn(b'200', plain.recv(4096))
                except ConnectionResetError:
                    pass
        # And whoever has no certificate is not heard at the other one.
        self.assertNotEqual(self.speak(('', '', ca), 'vm-a').returncode, 0)
        self.enrol('vm-a', self.token('vm-a'))

    def test_only_admins_make_tokens(self):
        for who, status in (('oscar', REFUSED), ('anna', 0)):
            cert, key, ca = self.authority.files(who)
            front = ('--cert', cert, '--key', key, '--ca', ca, 'enrol-token')
            said = self.cluster.ctl(*front, 'create', 'vm-a', '--role', 'vm', status=status,
                                    address=self.tcp)
            listed = self.cluster.ctl(*front, 'list', status=status, address=self.tcp)
            if status == 0:
                self.assertNotIn(said.split('.')[2], listed)
        self.assertIn('seven days', self.cluster.ctl('enrol-token', 'create', 'vm-a', '--role',
                                                     'vm', '--lasts', '8d', status=BAD))

    def test_what_is_refused_harms_neither_the_audit_log_nor_the_next_start(self):
        cert, key, ca = self.authority.files('mallory')
        front = ('--cert', cert, '--key', key, '--ca', ca)
        # Half a character where a name is cut; and far more than anybody reads.
        for words in (('enrol-token', 'create', 'a' * 63 + 'é', '--role', 'vm'),
                      ('enrol-token', 'revoke', 'a' * 63 + 'é'), ('vm', 'rm', 'x' * 100000)):
            self.cluster.ctl(*front, *words, address=self.tcp, status=REFUSED)
        for _ in range(20):
            self.cluster.ctl(*front, 'vm', 'rm', 'a', address=self.tcp, status=REFUSED)
        entries = [one for one in self.cluster.ask('audit')['entries']
                   if one['caller'] == 'mallory']
        self.assertIn('needs admin', entries[0]['result'])
        self.assertEqual(entries[2]['subject'], 'x' * 256)
        self.assertLess(len(entries), 20, 'who tries in vain drives nobody out of the log')
        self.cluster.stop()
        self.cluster.start()
        self.assertIn('mallory', self.cluster.ctl('audit'))

    def refuses_to_start(self, extra):
        self.cluster.configure(extra)
        process = self.cluster.launch()
        self.assertEqual(process.wait(60), 1)
        return self.cluster.log()[-2000:]

    def test_without_the_option_nobody_enrols_and_a_bad_key_is_refused(self):
        self.cluster.stop()
        self.addCleanup(self.cluster.configure, QUICK + self.api + self.enrol_section)
        Authority(Base.build, self.folder)
        foreign = f'{self.folder}/ca/ca.key'
        section = f'[enrol]\nlisten = "{self.at}"\nkey = "{foreign}"\n'
        self.assertIn('not that of its certificate',
                      self.refuses_to_start(QUICK + self.api + section))
        os.chmod(foreign, 0o644)
        self.assertIn('can be read by everybody',
                      self.refuses_to_start(QUICK + self.api + section))
        self.cluster.configure(QUICK + self.api)
        self.cluster.start()
        self.assertIn('set enrol.listen', self.cluster.ctl('enrol-token', 'create', 'vm-a',
                                                           '--role', 'vm', status=REFUSED))
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(tuple(self.at.split(':')), 30)


class EnrolmentWithSeveralManagers(unittest.TestCase):
    """The one that decides enrols, and what is spent is spent for the next one, too."""

    def setUp(self):
        if ETCD is None:
            self.skipTest('there is no etcd: apt install etcd-server')
        self.council = Council(Base.build, nodes=(), vms=(), lease=30)
        self.addCleanup(self.council.remove)
        self.council.start_all()
        self.folder = tempfile.mkdtemp(dir=self.council.folder)

    def enrol(self, name, token, *managers):
        """Its exit status and what it says; each manager in its turn."""
        flytctl = os.path.join(self.council.build, 'bin', 'flytctl')
        at = [word for manager in managers for word in ('--at', manager.enrol)]
        done = subprocess.run(
            self.council.network.on(managers[0].machine, [
                flytctl, 'enrol', name, '--role', 'vm', *at, '--dir', self.folder, '--token-file',
                '-']), input=token + '\n', capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def token(self, name, manager):
        return self.council.ctl('enrol-token', 'create', name, '--role', 'vm',
                                address=manager.address).strip()

    def state(self, token, manager):
        (state,) = [one['state']
                    for one in self.council.ask('enrol-token', 'list',
                                                address=manager.address)['tokens']
                    if one['id'] == token.split('.')[1]]
        return state

    def test_a_machine_enrols_with_whoever_decides(self):
        follower = self.council.follower()
        leader = next(one for one in self.council.managers.values() if one is not follower)
        self.council.wait_for(lambda: (follower.describe() or {}).get('manager') == leader.name)
        # Made by way of the one that does not decide.
        token, later = self.token('vm-a', follower), self.token('vm-b', follower)
        status, said = self.enrol('vm-a', token, follower)
        self.assertEqual(status, NO_ANSWER, said)
        self.assertIn(f'cluster manager {leader.name} decides: enrol there', said)
        self.assertEqual(self.state(token, leader), 'unused')
        self.assertEqual(os.listdir(self.folder), [])
        status, said = self.enrol('vm-a', token, follower, leader)
        self.assertEqual(status, 0, said)
        self.assertEqual(self.state(token, follower), 'used')
        # What one has spent and what it has not, the next one knows.
        self.assertEqual(leader.stop(), 0)
        self.council.wait_for(lambda: self.council.leader() is follower)
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        status, said = self.enrol('vm-a', token, follower)
        self.assertEqual(status, REFUSED, said)
        self.assertIn('used already', said)
        # One that is named does not answer at all.
        status, said = self.enrol('vm-b', later, leader, follower)
        self.assertEqual(status, 0, said)


class Liar:
    """Serves TLS with what it has, and keeps what it is told."""

    def __init__(self, chain, key):
        import threading
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(chain, key)
        self.context.set_alpn_protocols(['h2'])
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.bytes = b''
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            try:
                plain.settimeout(30)
                with self.context.wrap_socket(plain, server_side=True) as heard:
                    while more := heard.recv(4096):
                        self.bytes += more
            except OSError:
                pass

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(60)


if __name__ == '__main__':
    main('__main__')
