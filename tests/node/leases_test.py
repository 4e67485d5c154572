#!/usr/bin/env python3
"""Leases: what they give, what programs in them see, what is refused. leases_test.py BUILD."""

import os
import random
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from node_process import GROUP, MEMORY, SMS, Node, NodeTest, main  # noqa: E402

SAMPLES = ('vector_add', 'matmul_tiled', 'reduction', 'streams_events')


class Leases(NodeTest):
    def test_the_node_tells_its_gpus(self):
        node = self.node.ask('describe')
        self.assertEqual(node['name'], 'test-node')
        self.assertEqual([gpu['index'] for gpu in node['gpus']], [0, 1])
        for gpu in node['gpus']:
            self.assertEqual(gpu['sms'], SMS)
            self.assertEqual(gpu['sms_free'], SMS)
            self.assertEqual(sum(group['sms'] for group in gpu['groups']), SMS)
            self.assertEqual(gpu['memory_bytes'], MEMORY)
            self.assertEqual(gpu['memory_free_bytes'], MEMORY)
        self.assertIn('GROUPS', self.node.ctl('describe'))

    def test_programs_run_in_leases_and_see_their_quota(self):
        small = self.node.create('small', GROUP - 1, '256M', '--label', 'team=blue')
        large = self.node.create('large', GROUP * 2, '512M')
        self.assertEqual((small['sms_asked'], small['sms_granted']), (GROUP - 1, GROUP))
        self.assertEqual(small['labels'], {'team': 'blue'})
        self.assertEqual(large['state'], 'running')
        self.assertFalse(set(small['groups']) & set(large['groups']))
        for lease, sms, memory in (('small', GROUP, 256 << 20), ('large', GROUP * 2, 512 << 20)):
            environment = self.node.settings(lease)
            for sample in SAMPLES:
                path = os.path.join(self.node.build, 'samples', sample)
                done = self.node.run_tenant(environment, path)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            tenant, seen = self.node.hold(lease, 64)
            self.assertEqual(seen['devices'], 1)
            confined = self.node.leases()[lease]['confined']
            self.assertEqual(seen['sms'], sms if confined else SMS)
            self.assertEqual((seen['total'], seen['device_total']), (memory, memory))
            self.assertLessEqual(seen['free'], memory - (64 << 20))
            tenant.stdin.close()
            self.assertEqual(tenant.wait(120), 0)

    def test_a_program_may_be_called_anything(self):
        """What it calls itself is told to operators, and to no terminal as a command."""
        self.node.create('odd', GROUP, '256M')
        odd = f'{self.node.folder}/' + os.fsdecode(b'odd\xff\x1b[31m')
        os.symlink(self.node.subject(), odd)
        tenant, _ = self.node.start_tenant(self.node.settings('odd'), 'hold', str(16 << 20),
                                           subject=odd)
        sessions = self.node.ask('sessions', 'odd')['sessions']
        self.assertEqual([session['client'] for session in sessions], ['odd??[31m'])
        self.assertEqual(sessions[0]['client_pid'], tenant.pid)
        self.assertIn('odd??[31m', self.node.ctl('sessions', 'odd'))

    def test_sessions_of_a_lease_share_its_memory(self):
        def sessions():
            return self.node.ask('sessions', 'shared')['sessions']

        self.node.create('shared', GROUP, '256M')
        self.node.create('other', GROUP, '256M')
        first, _ = self.node.hold('shared', 160)
        _, second = self.node.hold('shared', 160)
        self.assertIn('full', second)
        self.assertIn('holds', self.node.hold('other', 160)[1])
        lease = self.node.ask('describe', 'shared')
        self.assertGreaterEqual(lease['memory_used_bytes'], 160 << 20)
        # The second one's session ends a little later than its program.
        self.node.wait_for(lambda: [session['client_pid'] for session in sessions()] == [first.pid])
        self.assertGreaterEqual(sessions()[0]['memory_bytes'], 160 << 20)
        first.stdin.close()
        first.wait(120)
        self.node.wait_for(lambda: self.node.leases()['shared']['memory_used_bytes'] == 0)
        self.assertIn('holds', self.node.hold('shared', 160)[1])

    def test_a_lease_changes_while_a_program_runs(self):
        self.node.create('a', GROUP, '256M')
        self.node.create('b', GROUP, '256M')
        tenant, seen = self.node.hold('a', 160)
        grown = self.node.ask('resize', 'a', '--sms', str(GROUP * 3), '--memory', '512M')
        self.assertEqual((grown['sms_granted'], grown['memory_bytes']), (GROUP * 3, 512 << 20))
        self.assertFalse(set(grown['groups']) & set(self.node.leases()['b']['groups']))
        self.assertEqual(self.node.poke(tenant)['total'], 512 << 20)
        # Less than is used is refused, and nothing has changed.
        self.node.ctl('resize', 'a', '--memory', '100M', '--sms', str(GROUP), status=5)
        self.assertEqual(self.node.leases()['a']['sms_granted'], GROUP * 3)
        self.assertEqual(self.node.leases()['a']['memory_bytes'], 512 << 20)
        # The other lease's groups and memory are not to be had.
        self.node.ctl('resize', 'a', '--sms', str(SMS), status=5)
        self.node.ctl('resize', 'a', '--memory', '900M', status=5)
        self.node.ctl('resize', 'a', '--memory', '230M')
        self.assertEqual(self.node.poke(tenant)['total'], 230 << 20)
        # The program gives its multiprocessors up, so that others can have them.
        shrunk = self.node.ask('resize', 'a', '--sms', '1')
        self.assertEqual((shrunk['sms_granted'], len(shrunk['groups'])), (GROUP, 1))
        if grown['confined']:
            self.assertEqual((shrunk['moves'], shrunk['sessions_behind']), (2, 0))
            self.assertGreater(shrunk['last_move_microseconds'], 0)
            self.assertIn('the last in', self.node.ctl('describe', 'a'))
        self.assertIn('kept', self.node.poke(tenant))
        tenant.stdin.close()
        tenant.wait(120)
        self.node.wait_for(lambda: not self.node.ask('sessions', 'a')['sessions'])
        self.assertEqual(self.node.ask('resize', 'a', '--sms', '1')['sms_granted'], GROUP)

    def test_memory_shrinks_when_it_is_free(self):
        self.node.create('a', GROUP, '600M')
        tenant, _ = self.node.hold('a', 400)
        self.node.ctl('resize', 'a', '--memory', '200M', status=5)
        self.node.ctl('resize', 'a', '--memory', '200M', '--sms', '1', '--when-free', status=2)
        waits = self.node.ask('resize', 'a', '--memory', '200M', '--when-free')
        self.assertEqual((waits['memory_bytes'], waits['memory_pending_bytes']),
                         (600 << 20, 200 << 20))
        self.assertIn('shrinks to 200', self.node.ctl('describe', 'a'))
        # Nobody gets what is used, and the lease gets no more either.
        self.node.ctl('create', 'b', '--gpu', '0', '--sms', '1', '--memory', '500M', status=5)
        self.assertIn('full', self.node.hold('a', 16)[1])
        self.assertIn('kept', self.node.poke(tenant))
        # A change of something else does not forget it.
        self.node.ask('resize', 'a', '--sms', str(GROUP * 2))
        self.assertEqual(self.node.leases()['a']['memory_pending_bytes'], 200 << 20)
        tenant.stdin.close()
        tenant.wait(120)
        self.node.wait_for(lambda: self.node.leases()['a']['memory_bytes'] == 200 << 20)
        self.assertEqual(self.node.leases()['a']['memory_pending_bytes'], 0)
        self.node.create('b', 1, '500M')
        kinds = [event['kind'] for event in self.node.events()]
        self.assertIn('lease-shrinking', kinds)

    def test_a_shrink_that_waits_is_given_up_for_the_present_quota(self):
        lease = self.node.create('a', GROUP, '600M')
        tenant, _ = self.node.hold('a', 400)
        self.node.ask('resize', 'a', '--memory', '200M', '--when-free')
        again = self.node.ask('resize', 'a', '--memory', '600M')
        self.assertEqual((again['memory_bytes'], again['memory_pending_bytes']), (600 << 20, 0))
        self.assertNotIn('shrinks', self.node.ctl('describe', 'a'))
        told = [event for event in self.node.events() if event['lease_id'] == lease['id']][-1]
        self.assertEqual(told['kind'], 'lease-resized')
        self.assertIn('; shrinks no more to 200 MiB', told['text'])
        # The lease's programs have the rest of it again, and it is theirs when they are gone.
        self.assertIn('holds', self.node.hold('a', 16)[1])
        self.node.end_tenants()
        self.node.wait_for(lambda: not self.node.ask('sessions', 'a')['sessions'])
        self.node.stop(signal.SIGKILL)
        self.node.start()
        again = self.node.leases()['a']
        self.assertEqual((again['memory_bytes'], again['memory_pending_bytes']), (600 << 20, 0))

    def test_a_shrink_that_waits_outlives_manager_and_server(self):
        self.node.create('a', GROUP, '600M')
        tenant, _ = self.node.hold('a', 400)
        self.node.ask('resize', 'a', '--memory', '200M', '--when-free')
        self.node.stop(signal.SIGKILL)
        self.node.start()
        again = self.node.leases()['a']
        self.assertEqual((again['memory_bytes'], again['memory_pending_bytes']),
                         (600 << 20, 200 << 20))
        # The server has not been given the whole quota again.
        self.assertIn('full', self.node.hold('a', 16)[1])
        self.assertIn('kept', self.node.poke(tenant))
        tenant.stdin.close()
        tenant.wait(120)
        self.node.wait_for(lambda: self.node.leases()['a']['memory_bytes'] == 200 << 20)
        self.node.stop(signal.SIGKILL)
        self.node.start()
        again = self.node.leases()['a']
        self.assertEqual((again['memory_bytes'], again['memory_pending_bytes']), (200 << 20, 0))

    def test_leases_are_moved_together_while_programs_run(self):
        for name in 'abc':
            self.node.ctl('create', name, '--gpu', '0', '--sms', '1', '--memory', '64M')
        self.assertEqual(self.node.ask('resize', 'a', '--sms', str(GROUP * 2))['groups'], [0, 3])
        self.assertIn('nothing to move', self.node.ctl('defrag'))
        self.node.ctl('release', 'b')
        tenant, _ = self.node.hold('a', 16)
        moved = self.node.ask('defrag')['leases']
        self.assertEqual([(lease['name'], lease['groups']) for lease in moved], [('a', [0, 1])])
        self.assertEqual(self.node.leases()['c']['groups'], [2])
        self.assertIn('kept', self.node.poke(tenant))
        self.assertIn('lease-moved', self.node.kinds(moved[0]))
        self.assertIn('nothing to move', self.node.ctl('defrag'))
        tenant.stdin.close()

    def test_a_released_lease_ends_its_programs(self):
        self.node.create('a')
        tenant, _ = self.node.hold('a', 16)
        self.node.ctl('release', 'a')
        self.assertIn('failed', self.node.poke(tenant))
        self.node.ctl('describe', 'a', status=4)
        self.node.check_nothing_left()

    def test_bad_requests_say_what_is_wrong(self):
        self.node.create('taken', GROUP, '256M', '--gpu', '0')

        def refused(status, words, part):
            error = self.node.ctl(*words.split(), status=status)
            self.assertIn(part, error)
        refused(2, 'create x --sms 0 --memory 1G', 'at least 1 multiprocessor')
        refused(2, 'create x --sms 8 --memory 0', 'at least 16 MiB')
        refused(2, 'create x --sms 33 --memory 256M', 'has 32 multiprocessors')
        refused(2, 'create x --sms 8 --memory 2G', 'at most 1 GiB')
        refused(2, 'create x --sms 8 --memory 256M --gpu 2', 'no GPU 2')
        refused(2, 'create x --sms 8 --memory 256M --mode shared', 'mode isolated')
        refused(2, 'create x --sms 8 --memory 256M --expires-in 0', 'expired already')
        refused(2, 'create x/y --sms 8 --memory 256M', "a lease's name")
        refused(2, 'create x --sms 8 --memory 1apple', 'is no size')
        refused(2, 'create x --sms 8 --memory 256M --label x', 'KEY=VALUE')
        refused(2, 'create x --sms 8 --memory 256M --priority 1001', 'priority')
        refused(6, 'create taken --sms 8 --memory 256M', 'a lease named taken')
        refused(5, 'create x --sms 32 --memory 256M --gpu 0', '3 groups of 8 free')
        refused(5, 'create x --sms 8 --memory 800M --gpu 0', '768 MiB of memory free')
        refused(4, 'resize nobody --sms 8', 'no lease nobody')
        refused(2, 'resize taken', 'takes --sms')
        refused(2, 'resize taken --sms 0', 'at least 1')
        refused(4, 'release nobody', 'no lease nobody')
        refused(4, 'sessions nobody', 'no lease nobody')
        refused(4, 'token nobody', 'no lease nobody')
        refused(2, 'token taken --lasts 2d', 'a token lasts at most')
        refused(2, 'token taken --lasts soon', 'is no time')
        refused(2, 'fly', '')
        self.assertEqual(list(self.node.leases()), ['taken'])

    def test_a_draining_node_makes_no_leases(self):
        self.node.create('a')
        try:
            self.assertEqual(self.node.ask('drain'), {'draining': True, 'leases': 1})
            self.assertIn('undrain', self.node.ctl('create', 'b', '--sms', '8', '--memory', '256M',
                                                   status=6))
            tenant, _ = self.node.hold('a', 16)
            self.assertIn('kept', self.node.poke(tenant))
            self.node.stop()
            self.node.start()
            self.assertTrue(self.node.ask('describe')['draining'])
        finally:
            self.node.ctl('undrain')
        self.node.create('b')

    def test_a_lease_expires(self):
        self.node.create('brief', GROUP, '256M', '--expires-in', '3s')
        tenant = self.node.tenants
        self.assertEqual(tenant, [])
        watch = subprocess.Popen(
            [self.node.program('flytctl'), '--node', self.node.address, 'events', '--follow'],
            stdout=subprocess.PIPE, text=True)
        try:
            for line in watch.stdout:
                if 'lease-expired  brief' in line:
                    break
            else:
                self.fail('the watch ended')
        finally:
            watch.kill()
            watch.communicate()
        self.node.check_nothing_left()

    def test_what_a_node_does_not_have_is_refused_and_not_left_out(self):
        self.node.create('a')
        for words in (['leases', 'a'], ['leases', '--watch'], ['sessions', '--on', 'test-node']):
            self.assertIn('--cluster', self.node.ctl(*words, status=2))
        told = self.node.ctl('token', 'a', '--export', '--tcp', status=6)
        self.assertIn('leases.tcp_host', told)

    def test_who_is_not_let_in_is_not_told_that_nobody_is_there(self):
        environment = dict(self.node.settings(self.node.create('a')['name']), FLYT_TOKEN='none')
        done = subprocess.run([self.node.program('flyt'), 'server-info'], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('the GPU server at unix://', done.stderr)
        self.assertIn('is no token', done.stderr)

    def test_top_shows_pages(self):
        self.node.create('a')
        pages = self.node.ctl('top', '--interval', '1', '--pages', '2')
        self.assertEqual(pages.count('SMS LEASED'), 2)
        self.assertEqual(pages.count('256 MiB'), 4, pages)
        told = self.node.ask('top', '--pages', '1')
        self.assertEqual([lease['name'] for lease in told['leases']], ['a'])
        self.assertEqual(told['node'], self.node.ask('describe'))

    def test_health_and_completion(self):
        self.assertEqual(self.node.ctl('health'), 'healthy\n')
        script = self.node.ctl('completion', 'bash')
        for words, expected in ((['flytctl', 'und'], 'undrain'),
                                (['flytctl', 'create', '--exp'], '--expires-in')):
            line = (f'{script}\nCOMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; '
                    '_flytctl; echo "${COMPREPLY[@]}"')
            done = subprocess.run(['bash', '-c', line], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.strip(), expected)


class LastGroups(NodeTest):
    """A GPU that is cut as an H200: 15 groups of 8 multiprocessors, and a last one of 12."""
    soft = 1
    sms = 132
    extra = '[leases]\nwarm = 0\n'

    def granted(self):
        return {name: lease['sms_granted'] for name, lease in self.node.leases().items()}

    def test_the_node_tells_of_it(self):
        gpu = self.node.ask('describe')['gpus'][0]
        self.assertEqual([group['sms'] for group in gpu['groups']], [GROUP] * 15 + [12])
        self.assertTrue(gpu['rest_is_group'])
        self.assertIn('its last group has 12 multiprocessors', self.node.ctl('describe'))

    def test_two_halves_have_room_and_outlive_their_manager(self):
        self.node.create('a', 64, '128M')
        self.node.create('b', 64, '128M')
        halves = {'a': 64, 'b': 68}
        self.assertEqual(self.granted(), halves)
        tenants = []
        for lease, sms in halves.items():
            tenant, seen = self.node.hold(lease, 16)
            tenants.append(tenant)
            self.assertEqual(seen['sms'], sms)
        self.node.ctl('create', 'c', '--sms', '1', '--memory', '64M', status=5)
        self.node.stop(signal.SIGKILL)
        self.node.start()
        self.assertEqual(self.granted(), halves)
        groups = {name: lease['groups'] for name, lease in self.node.leases().items()}
        self.assertEqual(groups, {'a': list(range(8)), 'b': list(range(8, 16))})
        for tenant in tenants:
            self.assertIn('kept', self.node.poke(tenant))
            tenant.stdin.close()

    def test_four_quarters_have_room(self):
        for name in 'abcd':
            self.node.create(name, 32, '64M')
        self.assertEqual(sorted(self.granted().values()), [32, 32, 32, 36])
        self.assertEqual(self.node.ask('describe')['gpus'][0].get('sms_free', 0), 0)

    def test_it_comes_and_goes_under_running_programs(self):
        self.node.create('a', 64, '64M')
        self.node.create('b', 8, '64M')
        tenant, _ = self.node.hold('b', 16)
        for sms, granted in ((64, 68), (20, 20), (16, 16), (68, 68), (8, 8)):
            resized = self.node.ask('resize', 'b', '--sms', str(sms))
            self.assertEqual(resized['sms_granted'], granted)
            self.assertEqual(15 in resized['groups'], granted in (20, 68))
            self.assertEqual(resized.get('sessions_behind', 0), 0)
            self.assertIn('kept', self.node.poke(tenant))
        # Memory alone moves nothing.
        before = self.node.ask('resize', 'b', '--sms', '68')['groups']
        self.node.ctl('release', 'a')
        self.assertEqual(self.node.ask('resize', 'b', '--memory', '80M')['groups'], before)
        whole = self.node.ask('resize', 'b', '--sms', '132')
        self.assertEqual((whole['sms_granted'], len(whole['groups'])), (132, 16))
        tenant.stdin.close()


class Ports(NodeTest):
    """A range of two ports, the first of which somebody else has."""
    soft = 1

    @classmethod
    def setUpClass(cls):
        for _ in range(100):
            cls.others = socket.create_server(('127.0.0.1', 0))
            first = cls.others.getsockname()[1]
            try:
                socket.create_server(('127.0.0.1', first + 1)).close()
                break
            except OSError:
                cls.others.close()
        cls.first = first
        cls.extra = ('[leases]\nwarm = 0\ntcp_host = "127.0.0.1"\n'
                     f'tcp_ports = "{first}-{first + 1}"\n')
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.others.close()

    def test_a_port_that_somebody_else_has_is_passed_over(self):
        self.assertIn(f'tcp://127.0.0.1:{self.first + 1}', self.node.create('a')['urls'])
        told = self.node.ctl('create', 'b', '--sms', '1', '--memory', '64M', status=5)
        self.assertIn('all ports of leases.tcp_ports are taken', told)


class NoAddress(NodeTest):
    """Servers are to listen at an address that no machine has."""
    soft = 1
    extra = '[leases]\nwarm = 0\ntcp_host = "192.0.2.1"\ntcp_ports = "7710-7711"\n'

    def test_a_server_that_does_not_start_is_told_with_its_reason(self):
        told = self.node.ctl('create', 'a', '--sms', '1', '--memory', '64M', status=1)
        self.assertIn("the lease's server did not start", told)
        self.assertIn('tcp://192.0.2.1:7710', told)


class ManyLeases(NodeTest):
    """Quick cycles: no warm processes."""
    extra = '[leases]\nwarm = 0\n'
    CYCLES = 100

    def test_nothing_is_left_of_a_hundred_leases(self):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        alive = []
        made = 0
        with self.subTest(seed=seed):
            while made < self.CYCLES or alive:
                wanted = made < self.CYCLES and (not alive or chance.random() < 0.6)
                if wanted and len(alive) < 6:
                    name = f'lease-{made}'
                    self.node.create(name, chance.randint(1, GROUP), f'{chance.randint(16, 128)}M')
                    alive.append(name)
                    made += 1
                else:
                    self.node.ctl('release', alive.pop(chance.randrange(len(alive))))
            self.node.check_nothing_left()
            gpus = self.node.ask('describe')['gpus']
            self.assertTrue(all(gpu['memory_free_bytes'] == MEMORY for gpu in gpus))
            self.assertTrue(all(gpu['sms_free'] == SMS for gpu in gpus))
            pipes = os.listdir(f'/proc/{self.node.process.pid}/fd')
            self.assertLess(len(pipes), 64, 'descriptors leak')


if __name__ == '__main__':
    main(__name__)
