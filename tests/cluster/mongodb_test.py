#!/usr/bin/env python3
"""VMs' requirements from MongoDB: mongodb_test.py BUILD. The manager's MongoDB library talks to a
responder of the tests' own, which is no MongoDB. FLYT_TEST_MONGODB=HOST:PORT names a real server,
too, of which the database flyt_test is used and dropped.

Nearly all of it waits until the manager reads again, a second later: tests have a cluster each and
some run at once."""

import concurrent.futures
import io
import os
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import QUICK, Cluster  # noqa: E402
from daemon_process import free_port  # noqa: E402
from mongodb_wire import Client, Responder, encode  # noqa: E402

BUILD = ''
SERVER = os.environ.get('FLYT_TEST_MONGODB', '')
# What is silent is noticed soon, and a slow machine is not silent.
OPTIONS = '?connectTimeoutMS=1500&socketTimeoutMS=1500&serverSelectionTimeoutMS=1500'
TOKEN = '0123456789abcdef' * 4
AT_ONCE = 4


def row(vm, units=8, memory=256):
    return {'vm_ip': vm, 'host_ip': 'n1-host', 'compute_units': units, 'memory': memory}


def section(uri, **more):
    lines = ''.join(f'{key} = "{value}"\n' for key, value in more.items())
    return f'[requirements]\nmongodb = "{uri}"\npoll = 1\n{lines}'


def health(cluster):
    """What is wrong."""
    done = subprocess.run([cluster.program('flytctl'), '--cluster', cluster.address, 'health'],
                          capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


class Follows:
    """What holds with any server; `put` makes the collection's rows."""

    def names(self):
        return sorted(vm['spec']['name'] for vm in self.cluster.list('vms'))

    def wait_for_names(self, *names):
        try:
            self.cluster.wait_for(lambda: self.names() == sorted(names))
        except AssertionError as error:
            raise AssertionError(f'{self.names()}, not {names}\n{self.cluster.log()}') from error

    def spec(self, vm):
        return self.cluster.vm(vm)['spec']

    def health(self):
        return health(self.cluster)

    def wait_for_health(self, text):
        try:
            self.cluster.wait_for(lambda: text in self.health())
        except AssertionError as error:
            raise AssertionError(f'{self.health()}\n{self.cluster.log()}') from error

    def test_rows_become_vms_and_vms_follow_them(self):
        names = [f'10.1.0.{i}' for i in range(1, 8)]
        self.put([row(names[0], 16, 512), row(names[1], 8.0, 300.0), row(names[2], 8, 1 << 20),
                  *(row(name) for name in names[3:])])
        self.wait_for_names(*names)
        self.assertEqual((self.spec(names[0])['sms'], int(self.spec(names[0])['memory_bytes'])),
                         (16, 512 << 20))
        self.assertEqual(int(self.spec(names[1])['memory_bytes']), 300 << 20)
        self.assertEqual(int(self.spec(names[2])['memory_bytes']), 1 << 40)
        self.assertEqual(self.spec(names[3])['host'], 'n1-host')
        self.assertEqual(self.spec(names[3])['source'], 'mongodb')
        self.cluster.want(names[0])
        self.assertEqual(self.cluster.vm(names[0])['gpu']['sms_granted'], 16)
        # As they change.
        self.put([row(names[0], 8, 512), row(names[1], 24), row('10.1.0.9')])
        self.wait_for_names(names[0], names[1], '10.1.0.9')
        self.cluster.wait_for(lambda: self.spec(names[1])['sms'] == 24)
        # The library would leave counters there, if the manager is killed.
        self.assertFalse(os.path.exists(f'/dev/shm/mongoc-{self.cluster.process.pid}'))
        self.assertEqual(self.cluster.vm(names[0])['gpu']['sms_granted'], 16)
        # Who is gone keeps what he has until it is given back.
        self.put([row(names[1])])
        self.wait_for_names(names[0], names[1])
        self.cluster.ctl('release', names[0])
        self.wait_for_names(names[1])
        self.cluster.settle()

    def test_rows_that_make_no_vm_are_named_once_and_the_others_taken(self):
        self.put([row('10.1.0.1'), row('10.1.0.2', -1), row('10.1.0.3', '8'), row('fe80::1'),
                  {'host_ip': 'x'}, row('10.1.0.4', 8, 1), row('10.1.0.1', 24), row('10.1.0.5')])
        self.wait_for_names('10.1.0.1', '10.1.0.5')
        self.wait_for_health('MongoDB: 10.1.0.2')
        self.assertEqual(self.spec('10.1.0.1')['sms'], 8)
        self.assertIn('MongoDB: 1 rows more are skipped', self.health())
        log = self.cluster.log()
        self.assertIn('vm_ip is missing', log)
        skipped = log.count('row skipped')
        # Another change shows that it was read again meanwhile.
        self.put([row('10.1.0.2', -1), row('10.1.0.7')])
        self.wait_for_names('10.1.0.7')
        self.wait_for_health('MongoDB: 10.1.0.2')
        # Its ObjectId is another one now, and so it is another row.
        self.assertLessEqual(self.cluster.log().count('row skipped'), skipped + 1)
        self.put([row('10.1.0.2'), row('10.1.0.7')])
        self.wait_for_names('10.1.0.2', '10.1.0.7')
        self.wait_for_health('healthy\n')


class WithResponder(Follows, unittest.TestCase):
    def setUp(self):
        self.responder = Responder()
        self.addCleanup(self.responder.stop)
        self.page = free_port()
        self.cluster = Cluster(BUILD, ('n1',))
        self.addCleanup(self.cluster.remove)
        token = f'{self.cluster.folder}/token'
        with open(token, 'w', encoding='utf-8') as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(TOKEN)
        self.cluster.configure(
            QUICK + section(f'mongodb://127.0.0.1:{self.responder.port}/{OPTIONS}') +
            f'[metrics]\nlisten = "127.0.0.1:{self.page}"\ntoken = "{token}"\n')
        self.put([row('a')])
        self.cluster.start_all()
        self.wait_for_names('a')
        self.wait_for_health('healthy\n')

    def put(self, rows):
        self.responder.documents = rows

    def ready(self):
        request = urllib.request.Request(f'http://127.0.0.1:{self.page}/readyz',
                                         headers={'Authorization': f'Bearer {TOKEN}'})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()

    def test_rows_become_vms_and_vms_follow_them(self):
        batches = self.responder.batches
        super().test_rows_become_vms_and_vms_follow_them()
        # Seven documents are three batches.
        self.assertGreaterEqual(self.responder.batches, batches + 2)
        asked = self.responder.asked
        self.assertEqual((asked['find'], asked['$db'], asked['sort']),
                         ('vm_required_resources', 'flyt', {'_id': 1}))
        self.assertEqual(asked['projection'],
                         dict.fromkeys(('vm_ip', 'host_ip', 'compute_units', 'memory'), 1))

    def test_documents_that_are_none_take_no_vm_away(self):
        self.put([row('a'), encode(row('x'))[:-1] + b'x',
                  encode(row('y')).replace(b'\x10', b'\x7e'), encode(row('z' * 17000)), row('b')])
        self.wait_for_names('a', 'b')
        self.wait_for_health('the document is too large')
        self.assertIn('the document is damaged', self.health())
        self.assertEqual(self.health().count('MongoDB: row'), 3)

    def test_operators_set_what_mongodb_does_not_say(self):
        for words in (('vm', 'set', 'a', '--sms', '16'), ('vm', 'set', 'a', '--host', 'x'),
                      ('vm', 'rm', 'a'), ('vm', 'rm', 'a', '--force'),
                      ('resize', 'a', '--sms', '16')):
            self.assertIn('MongoDB', self.cluster.ctl(*words, status=6))
        self.cluster.ctl('vm', 'set', 'a', '--priority', '7')
        self.cluster.ctl('vm', 'set', 'mine', '--sms', '8', '--memory', '64M')
        self.put([row('a', 24)])
        self.cluster.wait_for(lambda: self.spec('a')['sms'] == 24)
        self.assertEqual(self.spec('a')['priority'], 7)
        self.assertEqual(self.names(), ['a', 'mine'])
        self.cluster.want('a')
        self.cluster.ctl('resize', 'a', '--sms', '8')
        self.assertEqual(self.cluster.vm('a')['gpu']['sms_granted'], 8)
        self.assertEqual(self.spec('a')['sms'], 24)
        self.assertIn('come from MongoDB', self.cluster.ctl('explain', 'a'))
        self.cluster.ctl('vm', 'rm', 'mine')
        self.cluster.ctl('release', 'a')
        self.cluster.settle()

    def test_while_mongodb_is_away_what_is_known_is_served(self):
        self.responder.stop()
        self.wait_for_health('cannot be read')
        self.assertIn('VMs keep what they had', self.health())
        status, said = self.ready()
        self.assertEqual((status, said.split('\n')[0]), (200, 'ok'))
        self.assertIn('cannot be read', said)
        self.cluster.want('a')
        self.cluster.ctl('release', 'a')
        # The next manager knows as much.
        self.cluster.stop()
        self.cluster.start()
        self.wait_for_health('cannot be read')
        self.assertEqual(self.names(), ['a'])
        self.cluster.want('a')
        self.cluster.ctl('release', 'a')
        self.put([row('a'), row('b')])
        self.responder.start()
        self.wait_for_names('a', 'b')
        self.cluster.wait_for(lambda: self.ready() == (200, 'ok\n'))
        kinds = [event['kind'] for event in self.cluster.events()
                 if event['kind'].startswith('requirements')]
        self.assertIn('requirements-old', kinds)
        self.assertEqual(kinds[-1], 'requirements-read')


class WithResponders(Follows, unittest.TestCase):
    """Each that goes wrong has a manager of its own."""

    MODES = ('cut later', 'garbage', 'short', 'refuse', 'no more', 'silent')

    # These need no more than one.
    test_rows_become_vms_and_vms_follow_them = None
    test_rows_that_make_no_vm_are_named_once_and_the_others_taken = None

    def each(self):
        for mode, (self.responder, self.cluster) in self.pairs.items():
            yield mode

    def test_whatever_a_server_does_wrong_changes_no_vm_and_is_got_over(self):
        self.pairs = {}
        for mode in self.MODES:
            responder = Responder()
            self.addCleanup(responder.stop)
            responder.documents = [row(name) for name in 'abcde']
            cluster = Cluster(BUILD, (), 1, QUICK + section(
                f'mongodb://127.0.0.1:{responder.port}/{OPTIONS}'))
            self.addCleanup(cluster.remove)
            self.pairs[mode] = (responder, cluster.start())
        for mode in self.each():
            self.wait_for_names(*'abcde')
            self.responder.mode = mode
        for mode in self.each():
            self.cluster.wait_for(lambda: self.responder.wrong > 0)
            self.wait_for_health('cannot be read')
            self.assertEqual(self.names(), list('abcde'), mode)
            self.responder.mode = 'right'
            self.responder.documents = [row(name) for name in 'abcdef']
        for _ in self.each():
            self.wait_for_names(*'abcdef')
            self.wait_for_health('healthy\n')


class Secrets(unittest.TestCase):
    def run_program(self, name, *words):
        done = subprocess.run([os.path.join(BUILD, 'bin', name), *words], capture_output=True,
                              text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    def test_passwords_are_nowhere_to_be_read(self):
        responder = Responder()
        self.addCleanup(responder.stop)
        cluster = Cluster(BUILD, ())
        self.addCleanup(cluster.remove)
        place = f'127.0.0.1:{responder.port}/{OPTIONS}'
        password = f'{cluster.folder}/password'
        with open(password, 'w', encoding='utf-8') as file:
            file.write('hunter3\n')
        for uri, more in ((f'mongodb://ann:hunter2@{place}', {}),
                          (f'mongodb://ann@{place}', {'password_file': password})):
            cluster.configure(QUICK + section(uri, **more))
            said = self.run_program('flyt-cluster-manager', '--config', cluster.config,
                                    '--check-config')
            said += self.run_program('flytctl', 'config', 'check', cluster.config)
            cluster.start()
            # The log and the events are still those of the manager before, too.
            cluster.wait_for(lambda: 'cannot be read' in health(cluster))
            said += health(cluster) + cluster.ctl('--json', 'events')
            cluster.stop()
            self.assertIn('cannot be read', said)
            self.assertNotIn('hunter', said + cluster.log())

    def test_a_uri_that_cannot_be_is_told_without_its_password(self):
        cluster = Cluster(BUILD, (), extra=section('mongodb://ann:hunter2%zz@db/'))
        self.addCleanup(cluster.remove)
        with self.assertRaises(AssertionError):
            cluster.start()
        self.assertIn('requirements.mongodb: the URI of mongodb://db', cluster.log())
        self.assertNotIn('hunter', cluster.log())


class WithAServer(Follows, unittest.TestCase):
    """The same over the MongoDB that FLYT_TEST_MONGODB names."""

    @classmethod
    def setUpClass(cls):
        if not SERVER:
            raise unittest.SkipTest('no MongoDB server: FLYT_TEST_MONGODB=HOST:PORT names one')
        host, port = SERVER.rsplit(':', 1)
        cls.client = Client(host, int(port))
        cls.put([row('first')])
        cls.cluster = Cluster(BUILD, ('n1',), extra=QUICK + section(f'mongodb://{SERVER}/',
                                                                    database='flyt_test'))
        cls.cluster.start_all()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.remove()
        cls.client.command({'dropDatabase': 1, '$db': 'flyt_test'})
        cls.client.close()

    @classmethod
    def put(cls, rows):
        collection = 'vm_required_resources'
        cls.client.command({'delete': collection, 'deletes': [{'q': {}, 'limit': 0}],
                            '$db': 'flyt_test'})
        cls.client.command({'insert': collection, 'documents': rows, '$db': 'flyt_test'})


def run_at_once(suites):
    """Whether all is well; what a suite has to say is printed when it has ended."""
    def run(suite):
        stream = io.StringIO()
        return unittest.TextTestRunner(stream, verbosity=2).run(suite), stream.getvalue()
    good = True
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, one) for one in suites]):
            result, said = done.result()
            print(said, file=sys.stderr, flush=True)
            good = good and result.wasSuccessful()
    return good


def suites_of(words):
    """Each test by itself, but those that share a server."""
    loader = unittest.TestLoader()
    if words:
        return [loader.loadTestsFromNames(words, sys.modules[__name__])]
    each = [unittest.TestSuite([case(name)]) for case in (WithResponder, WithResponders, Secrets)
            for name in loader.getTestCaseNames(case)]
    return [loader.loadTestsFromTestCase(WithAServer), *each]


if __name__ == '__main__':
    BUILD = os.path.abspath(sys.argv.pop(1))
    sys.exit(0 if run_at_once(suites_of(sys.argv[1:])) else 1)
