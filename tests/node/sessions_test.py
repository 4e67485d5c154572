#!/usr/bin/env python3
"""How many sessions a GPU takes: the node's limit, and the driver's. sessions_test.py BUILD."""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from node_process import NodeTest, main  # noqa: E402

FULL = 808  # CUDA_ERROR_MPS_MAX_CLIENTS_REACHED
CONTEXTS = 'FLYT_SOFTGPU_SHARED_CONTEXTS'


class Sessions(NodeTest):
    """What the tests of a GPU with few sessions have in common."""

    soft = 1
    gpus = 'mode = "shared"'
    extra = '[leases]\nrecover_seconds = 30\nwarm = 0\n'

    def gpu(self):
        return self.node.ask('describe')['gpus'][0]

    def admitted(self, lease):
        tenant, first = self.node.hold(lease, 16)
        self.assertIn('holds', first)
        return tenant

    def refused(self, lease, *reasons):
        """One more program gets the error, and its user one line that says why."""
        tenant, first = self.node.hold(lease, 16)
        self.assertEqual(first, {'failed': 'cuInit', 'error': FULL})
        said = tenant.communicate()[1].splitlines()
        self.assertEqual(len(said), 1, said)
        for reason in ('the GPU is full', 'try again when a program on it has ended', *reasons):
            self.assertIn(reason, said[0])

    def end(self, tenant):
        tenant.stdin.close()
        self.assertEqual(tenant.wait(self.node.PATIENCE_SECONDS), 0)

    def told(self, text):
        return [event['text'] for event in self.node.events()
                if event['kind'] == 'gpu-full' and text in event['text']]


class NodesLimit(Sessions):
    gpus = 'mode = "shared"\nsessions = 4'

    def test_one_more_than_the_limit_is_refused_until_another_ends(self):
        self.node.create('a')
        self.node.create('b')
        tenants = [self.admitted(lease) for lease in 'aabb']
        self.assertEqual((self.gpu()['sessions'], self.gpu()['sessions_max']), (4, 4))
        self.assertIn(' 4 of 4 ', self.node.ctl('describe'))
        before = self.gpu()['sessions_refused']
        self.refused('a', 'all of the 4 sessions that are allowed there')
        self.refused('b', 'all of the 4 sessions')
        self.assertEqual(self.gpu()['sessions_refused'] - before, 2)
        self.node.wait_for(lambda: self.told('all of the 4 that gpus.sessions allows'))
        self.assertIn('kept', self.node.poke(tenants[0]))
        self.end(tenants.pop())
        tenants.append(self.admitted('a'))
        self.refused('b')
        for tenant in tenants:
            self.assertIn('kept', self.node.poke(tenant))
            self.end(tenant)
        self.node.wait_for(lambda: self.gpu()['sessions'] == 0)

    def test_who_goes_on_in_another_process_is_never_refused(self):
        a, b = self.node.create('a'), self.node.create('b')
        tenants = [self.admitted(lease) for lease in 'aabb']
        for session in self.node.ask('sessions', 'a')['sessions']:
            os.kill(session['server_pid'], signal.SIGKILL)
            self.refused('b')
        # Both servers are replaced, and others are killed.
        self.assertEqual({event['kind'] for event in self.node.replace_servers('a', 'b').values()},
                         {'server-upgraded'})
        self.refused('a')
        for lease in (a, b):
            os.kill(self.node.leases()[lease['name']]['server_pid'], signal.SIGKILL)
            self.node.wait_for(lambda lease=lease: 'server-restarted' in self.node.kinds(lease))
        self.refused('b')
        for tenant in tenants:
            self.assertIn('kept', self.node.poke(tenant))
        self.assertEqual(self.gpu()['sessions'], 4)

    def test_a_released_lease_leaves_its_room(self):
        self.node.create('a')
        self.node.create('b')
        for _ in range(4):
            self.admitted('a')
        self.refused('b')
        self.node.ctl('release', 'a')
        self.node.wait_for(lambda: self.gpu()['sessions'] == 0)
        self.admitted('b')


class Ready(Sessions):
    gpus = 'mode = "shared"\nsessions = 3'
    extra = '[leases]\nrecover_seconds = 30\nwarm = 1\n'

    def test_processes_that_are_kept_ready_count_and_make_room(self):
        self.node.create('a')
        self.node.create('b')
        self.node.wait_for(lambda: self.gpu()['sessions_ready'] == 2)
        self.assertIn('2 of 3, 2 ready', self.node.ctl('describe'))
        tenants = [self.admitted('a') for _ in range(3)]
        self.assertEqual(self.gpu()['sessions_ready'], 0)
        self.refused('b')
        for tenant in tenants:
            self.end(tenant)
        self.node.wait_for(lambda: self.gpu()['sessions_ready'] == 2)
        self.admitted('b')


class DriversLimit(Sessions):
    """The GPU's driver takes fewer than the node allows."""

    TEXT = 'its driver takes no further session (no primary context: ' \
           'CUDA_ERROR_MPS_MAX_CLIENTS_REACHED)'

    @classmethod
    def setUpClass(cls):
        os.environ[CONTEXTS] = '3'
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        del os.environ[CONTEXTS]

    def test_what_the_driver_refuses_is_told_alike(self):
        self.node.create('a')
        self.node.create('b')
        tenants = [self.admitted(lease) for lease in 'aab']
        self.refused('b', self.TEXT, 'it has only 3 of the 46 that are allowed there')
        self.node.wait_for(lambda: self.told('its driver takes no more'))
        self.end(tenants.pop())
        self.admitted('b')

    def test_others_may_have_all_there_is_when_a_server_starts(self):
        environment = {**os.environ, 'FLYT_SOFTGPU_SHARED_FAULTS': self.node.run}
        url = f'unix://{self.node.folder}/other.sock'
        command = [self.node.program('flyt-server'), '--listen', url, '--driver', 'soft',
                   '--ready-fd', '1', '--module-cache', 'off', '--log-level', 'off']
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as other:
            try:
                self.assertEqual(other.stdout.readline(), b'ready\n')
                for _ in range(3):
                    _, first = self.node.start_tenant({**os.environ, 'FLYT_SERVER': url}, 'hold',
                                                      '4096')
                    self.assertIn('holds', first)
                lease = self.node.create('a')
                self.refused('a', self.TEXT, 'only 0 of the 46')
                self.assertEqual(self.node.kinds(lease), ['lease-created'])
            finally:
                other.kill()
        self.admitted('a')


class Isolated(Sessions):
    gpus = ''

    def test_a_gpu_whose_programs_take_turns_has_no_limit(self):
        self.node.create('a')
        self.admitted('a')
        self.assertEqual(self.gpu()['sessions_max'], 0)
        self.assertNotIn(' of 46', self.node.ctl('describe'))


if __name__ == '__main__':
    main(__name__)
