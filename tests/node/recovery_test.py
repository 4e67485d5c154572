#!/usr/bin/env python3
"""Managers and servers that die, disks that fill, databases that rot. recovery_test.py BUILD."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon_process import free_ports  # noqa: E402
from node_process import GROUP, NodeTest, main  # noqa: E402


LAUNCH_FAILED = 719
ILLEGAL_ADDRESS = 700
UNAVAILABLE = 46


class Recovery(NodeTest):
    # Longer than the slowest machine takes.
    extra = '[leases]\nrecover_seconds = 30\nhandover_seconds = 60\n'

    def kill_manager(self):
        self.node.stop(signal.SIGKILL)

    def refuse_to_start(self, *arguments):
        """What a manager says that does not start."""
        before = len(self.node.log())
        self.assertEqual(self.node.launch(*arguments).wait(60), 1)
        return self.node.log()[before:]

    def test_a_killed_manager_finds_its_leases_again(self):
        created = {name: self.node.create(name) for name in ('a', 'b')}
        tenant, _ = self.node.hold('a', 64)
        self.kill_manager()
        self.assertIn('kept', self.node.poke(tenant))
        self.node.start()
        leases = self.node.leases()
        for name, lease in created.items():
            self.assertEqual(leases[name]['server_pid'], lease['server_pid'])
            self.assertEqual(leases[name]['groups'], lease['groups'])
            self.assertEqual(leases[name]['state'], 'running')
            self.assertIn('lease-adopted', self.node.kinds(lease))
        self.assertIn('kept', self.node.poke(tenant))
        self.assertEqual(len(self.node.ask('sessions')['sessions']), 1)
        # What was adopted can be changed and ended.
        self.assertEqual(self.node.ask('resize', 'a', '--memory', '300M')['memory_bytes'],
                         300 << 20)
        self.assertEqual(self.node.poke(tenant)['total'], 300 << 20)
        for name in created:
            self.node.ctl('release', name)
        self.node.check_nothing_left()

    def test_a_stopped_manager_leaves_its_leases_running(self):
        lease = self.node.create('a')
        tenant, _ = self.node.hold('a', 16)
        self.assertEqual(self.node.stop(), 0)
        self.assertIn('kept', self.node.poke(tenant))
        self.node.start()
        self.assertEqual(self.node.leases()['a']['server_pid'], lease['server_pid'])
        self.assertIn('kept', self.node.poke(tenant))

    def test_a_manager_ends_servers_if_it_is_asked_to(self):
        self.node.create('a')
        self.node.stop()
        self.node.start('--end-leases')
        self.node.stop()
        self.assertEqual(self.node.servers(), {})
        self.node.start()
        self.node.wait_for(lambda: self.node.leases()['a']['state'] == 'running')
        self.assertIn('holds', self.node.hold('a', 16)[1])

    def process_of(self, lease):
        """The process of the lease's only session."""
        sessions = self.node.wait_for(lambda: self.node.ask('sessions', lease)['sessions'])
        self.assertEqual(len(sessions), 1)
        return sessions[0]['server_pid']

    def survivor(self, lease, kill):
        """A program whose process was killed, and that noticed nothing. One that still worked may
        fail: another one tries."""
        for _ in range(10):
            tenant, first = self.node.hold(lease, 64)
            self.assertIn('holds', first)
            self.node.wait_for(self.node.all_work_is_done)
            kill(lease)
            answer = self.node.poke(tenant)
            if answer.get('error') != LAUNCH_FAILED:
                self.assertIn('kept', answer)
                return tenant
            # Others go on.
            tenant.kill()
            tenant.wait()
            self.node.wait_for(lambda: not self.node.ask('sessions', lease)['sessions'])
        raise AssertionError('it never survived')

    def kill_session(self, lease):
        """Kills its process, and returns once it is gone."""
        killed = self.process_of(lease)
        os.kill(killed, signal.SIGKILL)
        self.node.wait_for(lambda: killed not in self.node.servers())
        return killed

    def test_a_program_goes_on_when_its_process_is_killed(self):
        lease = self.node.create('a')
        tenant = self.survivor('a', self.kill_session)
        # It counts once to the quota, whichever process has it.
        self.node.wait_for(lambda: self.node.leases()['a']['memory_used_bytes'] < 128 << 20)
        # The next manager finds the process that the session goes on in.
        self.kill_manager()
        self.node.start()
        self.assertIn('kept', self.node.poke(tenant))
        self.assertEqual(self.node.leases()['a']['server_pid'], lease['server_pid'])
        self.node.end_tenants()
        self.node.wait_for(lambda: not self.node.ask('sessions', 'a')['sessions'])
        tenant = self.survivor('a', self.kill_session)
        self.assertEqual(self.node.leases()['a']['restarts'], 0)
        self.node.ctl('release', 'a')
        self.assertIn('failed', self.node.poke(tenant))
        self.node.check_nothing_left()

    def kill_server(self, lease):
        """Kills it and all its sessions' processes, and waits for another one."""
        before = self.node.leases()[lease]
        os.kill(before['server_pid'], signal.SIGKILL)
        self.node.wait_for(lambda: self.node.leases()[lease]['restarts'] > before['restarts'])

    def test_a_killed_server_is_started_again_and_programs_go_on(self):
        first = self.node.create('a')
        self.node.create('b')
        other, _ = self.node.hold('b', 16)
        tenant = self.survivor('a', self.kill_server)
        again = self.node.leases()['a']
        self.assertNotEqual(again['server_pid'], first['server_pid'])
        self.assertEqual(again['groups'], first['groups'])
        self.assertEqual(self.node.kinds(first)[:3],
                         ['lease-created', 'server-died', 'server-restarted'])
        self.assertIn('kept', self.node.poke(other))
        self.assertIn('holds', self.node.hold('a', 16)[1])
        # What went on counts as before, and is gone when its program is.
        self.node.wait_for(lambda: 64 << 20 <= self.node.leases()['a']['memory_used_bytes'] <
                           128 << 20)
        tenant.stdin.close()
        tenant.wait(120)
        self.node.end_tenants()
        self.node.wait_for(lambda: self.node.leases()['a']['memory_used_bytes'] == 0)
        self.node.ctl('release', 'a')
        self.node.ctl('release', 'b')
        self.node.check_nothing_left()

    def test_what_a_killed_server_had_goes_with_its_lease(self):
        lease = self.node.create('a', GROUP, '256M')
        tenant, _ = self.node.hold('a', 64)
        # Its server cannot be started again: a file is where its folder has to be.
        folder = f'{self.node.state}/leases'
        os.rename(folder, f'{self.node.state}/elsewhere')
        with open(folder, 'w', encoding='utf-8'):
            pass
        os.kill(lease['server_pid'], signal.SIGKILL)
        self.node.wait_for(lambda: self.node.leases()['a']['state'] == 'restarting')
        self.node.ctl('release', 'a')
        self.node.wait_for(lambda: not self.node.servers())
        os.remove(folder)
        os.rename(f'{self.node.state}/elsewhere', folder)
        shutil.rmtree(f'{folder}/{lease["id"]}')
        tenant.kill()
        self.node.check_nothing_left()

    def keeper(self, lease):
        """The process of the lease's keeper; None: there is none."""
        mark = f'unix://{self.node.run}/leases/{lease["id"]}/'.encode()
        for pid in self.node.servers():
            try:
                with open(f'/proc/{pid}/comm', encoding='utf-8') as file:
                    name = file.read().strip()
                with open(f'/proc/{pid}/cmdline', 'rb') as file:
                    ours = mark in file.read()
            except OSError:
                continue
            if name == 'flyt-keeper' and ours:
                return pid
        return None

    def test_a_keepers_death_is_told_until_nobody_suffers_from_it(self):
        lease = self.node.create('a')
        tenant, _ = self.node.hold('a', 16)
        # One that has just begun is not started again; and the program began before the next one.
        self.node.wait_for(lambda: self.node.ask('sessions', 'a')['sessions'][0]['seconds'] >= 2)
        dead = self.keeper(lease)
        os.kill(dead, signal.SIGKILL)
        self.node.wait_for(lambda: 'keeper-died' in self.node.kinds(lease))
        self.node.wait_for(lambda: self.keeper(lease) not in (None, dead))
        self.node.wait_for(lambda: self.node.leases()['a']['state_reason'])
        self.assertIn('lease a: running, degraded: its keeper is another one than 1 program began',
                      self.node.ctl('health', status=1))
        self.assertIn('running: degraded', self.node.ctl('describe', 'a'))
        # The next manager sees it as well.
        self.kill_manager()
        self.node.start()
        self.node.wait_for(lambda: self.node.leases()['a']['state_reason'])
        self.assertIn('kept', self.node.poke(tenant))
        tenant.kill()
        tenant.wait()
        self.node.wait_for(lambda: not self.node.leases()['a']['state_reason'])
        self.assertEqual(self.node.ctl('health'), 'healthy\n')
        # Whoever comes now goes on.
        self.survivor('a', self.kill_session)

    def test_a_lease_without_a_keeper_says_so_until_its_server_is_another_one(self):
        lease = self.node.create('a')
        # Where the next one would listen is a folder.
        place = f'{self.node.run}/leases/{lease["id"]}/keeper.sock'
        os.remove(place)
        os.mkdir(place)
        os.kill(self.keeper(lease), signal.SIGKILL)
        self.node.wait_for(lambda: 'keeper-died' in self.node.kinds(lease))
        self.node.wait_for(lambda: self.node.leases()['a']['state_reason'])
        said = self.node.ctl('health', status=1)
        self.assertIn('lease a: running, degraded: it has no keeper', said)
        self.assertIn('kill its server', said)
        # Programs run all the same.
        self.assertIn('holds', self.node.hold('a', 16)[1])
        self.node.end_tenants()
        os.rmdir(place)
        os.kill(lease['server_pid'], signal.SIGKILL)
        self.node.wait_for(lambda: self.node.leases()['a']['restarts'] == 1)
        self.node.wait_for(lambda: not self.node.leases()['a']['state_reason'])
        self.assertEqual(self.node.ctl('health'), 'healthy\n')
        self.survivor('a', self.kill_session)

    def test_a_server_that_dies_with_its_keeper_is_not_told_of_twice(self):
        lease = self.node.create('a')
        os.kill(lease['server_pid'], signal.SIGKILL)
        self.node.wait_for(lambda: self.node.leases()['a']['restarts'] == 1)
        self.node.wait_for(lambda: self.keeper(lease))
        self.assertNotIn('keeper-died', self.node.kinds(lease))
        self.assertEqual(self.node.ctl('health'), 'healthy\n')

    def test_servers_are_replaced_under_running_programs(self):
        first = {name: self.node.create(name) for name in ('a', 'b')}
        tenants = [self.node.hold(name, 16)[0] for name in ('a', 'a', 'b')]
        counter, _ = self.node.start_tenant(self.node.settings('a'), 'count')
        events = self.node.replace_servers('a', 'b')
        for name, lease in first.items():
            self.assertEqual(events[name]['kind'], 'server-upgraded', events)
            again = self.node.leases()[name]
            self.assertNotEqual(again['server_pid'], lease['server_pid'])
            self.assertEqual((again['state'], again['restarts']), ('running', 0))
        for tenant in tenants:
            self.assertIn('kept', self.node.poke(tenant))
        # What its code remembers is in another place, and the same.
        self.assertIn('counts', self.node.poke(counter))
        self.assertNotIn('server-died', [kind for lease in first.values()
                                         for kind in self.node.kinds(lease)])

    def test_a_program_that_never_stops_goes_on_in_another_build(self):
        lease = self.node.create('a')
        program = os.path.realpath(self.node.program('flyt-server'))
        copy = f'{self.node.folder}/bin/flyt-server'
        os.makedirs(os.path.dirname(copy))
        shutil.copy(program, copy)
        os.symlink(os.path.dirname(os.path.dirname(program)) + '/lib', f'{self.node.folder}/lib')
        tenant = subprocess.Popen(
            [self.node.program('flyt'), 'run', '--', self.node.subject(), 'compute'],
            env=self.node.settings('a'), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.node.tenants.append(tenant)
        self.assertIn('computes', json.loads(tenant.stdout.readline()))
        # The manager starts what the name stands for by then.
        with open(self.node.config, encoding='utf-8') as file:
            config = file.read()
        link = f'{self.node.folder}/server'
        os.symlink(program, link)
        with open(self.node.config, 'w', encoding='utf-8') as file:
            file.write(config.replace('[gpus]', f'server = "{link}"\n[gpus]', 1))
        self.node.stop()
        self.node.start()
        os.remove(link)
        os.symlink(copy, link)
        try:
            event = self.node.replace_servers('a')['a']
            self.assertEqual(event['kind'], 'server-upgraded', event)
            self.assertIn(copy, event['text'])
            pid = self.node.leases()['a']['server_pid']
            self.assertNotEqual(pid, lease['server_pid'])
            self.assertEqual(os.readlink(f'/proc/{pid}/exe'), copy)
            tenant.stdin.close()
            # It has gone on all the time, and every result was right.
            self.assertIn('rounds', json.loads(tenant.stdout.readline()))
            self.assertEqual(tenant.wait(60), 0)
        finally:
            self.node.stop()
            with open(self.node.config, 'w', encoding='utf-8') as file:
                file.write(config)
            self.node.start()

    def test_servers_that_died_with_the_manager_are_started_again(self):
        self.node.create('a')

        def kill_both(lease):
            server = self.node.leases()[lease]['server_pid']
            self.kill_manager()
            os.kill(server, signal.SIGKILL)
            self.node.start()
            self.node.wait_for(lambda: self.node.leases()[lease]['state'] == 'running')

        self.survivor('a', kill_both)
        self.assertIn('holds', self.node.hold('a', 16)[1])

    def test_servers_that_nobody_knows_are_ended(self):
        self.node.create('a')
        self.kill_manager()
        with sqlite3.connect(f'{self.node.state}/node.db') as database:
            database.execute('PRAGMA foreign_keys = ON')
            database.execute('DELETE FROM leases')
        database.close()
        self.node.start()
        self.assertIn('orphan-ended', [event['kind'] for event in self.node.events()])
        self.node.check_nothing_left()

    def test_a_lease_whose_gpu_is_gone_says_so(self):
        self.node.create('a')
        self.kill_manager()
        with sqlite3.connect(f'{self.node.state}/node.db') as database:
            database.execute("UPDATE leases SET gpu_uuid = 'SOFT-9'")
        database.close()
        self.node.start()
        self.assertEqual(self.node.leases()['a']['state'], 'lost')
        self.assertIn('SOFT-9 is not here', self.node.ctl('health', status=1) +
                      self.node.ctl('describe', 'a'))

    def test_a_corrupt_database_is_refused_and_kept(self):
        lease = self.node.create('a')
        self.node.stop()
        with self.node.damaged(f'{self.node.state}/node.db'):
            said = self.refuse_to_start()
            self.assertIn('cannot be used', said)
            self.assertIn('move it away', said)
            self.assertIn(lease['server_pid'], self.node.servers())
        self.node.start()
        self.assertEqual(self.node.leases()['a']['server_pid'], lease['server_pid'])

    def test_a_database_that_is_none_of_ours_ends_no_server(self):
        lease = self.node.create('a')
        tenant, _ = self.node.hold('a', 16)
        self.node.stop()
        database, saved = f'{self.node.state}/node.db', f'{self.node.folder}/saved'
        os.rename(database, saved)
        key = f'{self.node.state}/leases/{lease["id"]}/token.key'

        def check_refusal(why):
            said = self.refuse_to_start()
            self.assertIn(why, said)
            self.assertIn('Put a backup of it there', said)
            self.assertEqual(len(said.strip().splitlines()), 1, said)
            self.assertIn(lease['server_pid'], self.node.servers())
            self.assertTrue(os.path.exists(key))

        def change(statement):
            with sqlite3.connect(database) as changed:
                changed.execute(statement)
            changed.close()

        try:
            check_refusal('it is missing, and there are leases in')
            with open(database, 'w', encoding='utf-8'):
                pass
            check_refusal('it is empty')
            change('CREATE TABLE other (a TEXT)')
            check_refusal('it has no table leases')
            shutil.copy(saved, database)
            change('UPDATE lease_groups SET number = 999')
            check_refusal('cannot have group 999')
        finally:
            os.rename(saved, database)
        self.node.start()
        self.assertEqual(self.node.leases()['a']['server_pid'], lease['server_pid'])
        self.assertIn('kept', self.node.poke(tenant))

    def test_a_full_disk_refuses_leases_and_leaves_nothing(self):
        self.node.create('before')
        groups = set(self.node.servers().values())
        # A limit on the size of files makes every write of the state fail, as a full disk does.
        resource.prlimit(self.node.process.pid, resource.RLIMIT_FSIZE, (0, -1))
        error = self.node.ctl('create', 'a', '--sms', '8', '--memory', '256M', status=1)
        self.assertRegex(error, 'disk full|File too large')
        self.assertEqual(list(self.node.leases()), ['before'])
        self.assertIn('before', {row[1] for row in self.node.rows('leases')})
        self.assertEqual(len(self.node.rows('leases')), 1)
        self.assertEqual(set(self.node.servers().values()), groups)
        resource.prlimit(self.node.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        self.node.create('a')
        self.assertEqual(self.node.ctl('health'), 'healthy\n')

    def test_a_second_manager_is_refused(self):
        self.assertIn('another node manager', self.refuse_to_start())

    def test_a_second_manager_with_another_state_ends_no_server_of_the_first(self):
        lease = self.node.create('a')
        said = self.refuse_to_start('--state', f'{self.node.folder}/another')
        self.assertIn('another node manager', said)
        self.assertIn('set node.run', said)
        self.assertEqual(self.node.leases()['a']['server_pid'], lease['server_pid'])
        self.assertIn(lease['server_pid'], self.node.servers())

    def test_a_server_that_hangs_holds_nobody_else_up(self):
        stuck = self.node.create('stuck')['server_pid']
        self.node.create('fine')
        group = [pid for pid, leader in self.node.servers().items() if leader == stuck]
        for pid in group:
            os.kill(pid, signal.SIGSTOP)
        try:
            self.assertIn('holds', self.node.hold('fine', 16)[1])
            self.node.leases()
            self.assertIn('stuck: its server does not answer', self.node.ctl('health', status=1) +
                          self.node.log())
        finally:
            for pid in group:
                os.kill(pid, signal.SIGCONT)
        self.node.wait_for(lambda: subprocess.run(
            [self.node.program('flytctl'), '--node', self.node.address, 'health'],
            capture_output=True, check=False).returncode == 0)

    def health_while_it_ends(self):
        """Of a lease whose server hangs, what `health` said while it was seen to end."""
        slow = self.node.create('slow')['server_pid']
        for pid, leader in self.node.servers().items():
            if leader == slow:
                os.kill(pid, signal.SIGSTOP)
        said = []
        with subprocess.Popen([self.node.program('flytctl'), '--node', self.node.address,
                               'release', 'slow'], stdout=subprocess.DEVNULL) as release:
            while release.poll() is None:
                lease = self.node.leases().get('slow')
                health = subprocess.run(
                    [self.node.program('flytctl'), '--node', self.node.address, 'health'],
                    capture_output=True, text=True, check=False)
                if lease and lease['state'] == 'ending':
                    said.append(health.stdout)
            self.assertEqual(release.wait(), 0)
        return said

    def test_a_lease_that_ends_is_no_problem(self):
        # Its server is killed after two seconds, which a busy machine may need for one look.
        for _ in range(10):
            said = self.health_while_it_ends()
            if said:
                break
        self.assertTrue(said, 'it always ended at once')
        self.assertFalse([one for one in said if 'ending' in one], said)
        self.assertEqual(self.node.leases(), {})


class KilledAgainAndAgain(NodeTest):
    """Servers that start well and die: sessions are kept for the default time."""

    KILLS = 9  # By the seventh a pause that doubles each time would have been too long.

    def test_a_program_outlives_server_after_server(self):
        self.node.create('a')
        tenant, first = self.node.hold('a', 16)
        self.assertIn('holds', first)
        for _ in range(self.KILLS):
            self.node.wait_for(self.node.all_work_is_done)
            before = self.node.leases()['a']
            os.kill(before['server_pid'], signal.SIGKILL)
            self.node.wait_for(lambda seen=before: self.node.leases()['a']['restarts'] >
                               seen['restarts'])
            answer = self.node.poke(tenant)
            if answer.get('error') == LAUNCH_FAILED:
                # It still worked. Another one goes on with the rest.
                tenant.kill()
                tenant.wait()
                tenant, answer = self.node.hold('a', 16)
                self.assertIn('holds', answer)
            else:
                self.assertIn('kept', answer)


class LostGpus(NodeTest):
    """GPUs that fail for good."""

    extra = '[leases]\nrecover_seconds = 30\n'

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='flyt-lost-')
        os.environ['FLYT_SOFTGPU_LOST'] = cls.folder
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        del os.environ['FLYT_SOFTGPU_LOST']
        shutil.rmtree(cls.folder)

    def lose(self, gpu):
        with open(f'{self.folder}/lost-{gpu}', 'w', encoding='utf-8'):
            pass

    def lost(self, name):
        lease = self.node.leases()[name]
        return lease if lease['state'] == 'lost' else None

    def test_its_leases_are_lost_and_nothing_is_started_there_again(self):
        first = self.node.create('a', GROUP, '64M', '--gpu', '0')
        self.node.create('b', GROUP, '64M', '--gpu', '1')
        idle, _ = self.node.hold('a', 16)
        busy, _ = self.node.start_tenant(self.node.settings('a'), 'compute')
        other, _ = self.node.hold('b', 16)
        self.lose(0)
        # Whoever works there hears of it, and whoever asks.
        self.assertEqual(json.loads(busy.stdout.readline() or '{}').get('error'), UNAVAILABLE)
        self.assertEqual(self.node.poke(idle).get('error'), UNAVAILABLE)
        lease = self.node.wait_for(lambda: self.lost('a'))
        self.assertIn('its GPU has failed', lease['state_reason'])
        self.assertEqual(lease['restarts'], 0)
        self.node.wait_for(lambda: first['server_pid'] not in self.node.servers().values())
        gpus = self.node.ask('describe')['gpus']
        self.assertEqual([bool(gpu['failed']) for gpu in gpus], [True, False])
        self.assertEqual((gpus[0]['sms_free'], gpus[0]['memory_free_bytes']), (0, 0))
        self.assertIn('GPU 0 has failed', self.node.ctl('describe'))
        self.assertIn('GPU 0 has failed', self.node.ctl('health', status=1))
        self.assertIn('GPU 0 has failed', self.node.ctl(
            'create', 'c', '--gpu', '0', '--sms', str(GROUP), '--memory', '64M', status=5))
        self.assertEqual(self.node.create('c', GROUP, '64M')['gpu'], 1)
        self.assertIn('kept', self.node.poke(other))
        # The next manager finds it as it is, and its other GPUs as they were.
        self.node.stop(signal.SIGKILL)
        self.node.start()
        self.assertIn('its GPU has failed', self.lost('a')['state_reason'])
        self.assertEqual(self.node.leases()['b']['state'], 'running')
        self.assertIn('kept', self.node.poke(other))
        self.assertNotIn('server-restarted', self.node.kinds(first))
        self.assertEqual(self.node.kinds(first).count('gpu-failed'), 1)
        # Once it is there again, so is the lease.
        os.remove(f'{self.folder}/lost-0')
        self.node.stop(signal.SIGKILL)
        self.node.start()
        self.node.wait_for(lambda: self.node.leases()['a']['state'] == 'running')
        self.assertIn('holds', self.node.hold('a', 16)[1])


class FarPrograms(NodeTest):
    """Programs of other machines have no shared memory with their server, and come by a port."""

    PORTS = 4

    @classmethod
    def setUpClass(cls):
        first = free_ports(cls.PORTS)
        cls.extra = (f'{Recovery.extra}tcp_host = "127.0.0.1"\n'
                     f'tcp_ports = "{first}-{first + cls.PORTS - 1}"\n')
        super().setUpClass()

    def environment(self, lease, options=''):
        environment = self.node.settings(lease, '--tcp')
        self.assertTrue(environment['FLYT_SERVER'].startswith('tcp://'))
        environment['FLYT_SERVER'] += options
        return environment

    def replace_twice(self):
        for _ in range(2):
            before = self.node.leases()
            events = self.node.replace_servers(*before)
            for name, lease in self.node.leases().items():
                self.assertEqual(events[name]['kind'], 'server-upgraded', events)
                self.assertNotEqual(lease['server_pid'], before[name]['server_pid'])
                self.assertEqual((lease['state'], lease['urls']),
                                 ('running', before[name]['urls']))

    def test_servers_are_replaced_under_them(self):
        for name in ('a', 'b'):
            self.node.create(name)
        tenants = [self.node.start_tenant(self.environment(name), 'hold', str(16 << 20))[0]
                   for name in ('a', 'a', 'b')]
        near, _ = self.node.hold('b', 16)
        self.replace_twice()
        for tenant in (*tenants, near):
            self.assertIn('kept', self.node.poke(tenant))
        # Others come at the same port.
        self.assertIn('holds', self.node.start_tenant(self.environment('a'), 'hold', '4096')[1])

    def test_a_token_stays_its_users_when_its_server_is_another_one(self):
        self.node.create('a')
        owner = self.node.settings('a')
        # The same token, from an address and no user of this machine.
        stranger = dict(owner, FLYT_SERVER=self.environment('a')['FLYT_SERVER'])
        keeps, _ = self.node.start_tenant(owner, 'hold', '4096')

        def refused():
            done = self.node.run_tenant(stranger, self.node.subject(), 'hold', '4096')
            self.assertNotEqual(done.returncode, 0)
            self.assertIn('the token is used from elsewhere', done.stdout + done.stderr)

        refused()
        self.replace_twice()
        refused()
        # Also without a session, so that no keeper has a reason to stay.
        keeps.kill()
        keeps.wait()
        self.node.wait_for(lambda: not self.node.ask('sessions', 'a')['sessions'])
        before = self.node.leases()['a']
        os.kill(before['server_pid'], signal.SIGKILL)
        self.node.wait_for(lambda: self.node.leases()['a']['restarts'] > before['restarts'])
        refused()
        self.assertIn('holds', self.node.start_tenant(owner, 'hold', '4096')[1])

    def test_servers_are_replaced_while_large_copies_come_by_lanes(self):
        self.node.create('a')
        for _ in range(5):
            tenant, first = self.node.start_tenant(self.environment('a', '?lanes=2'), 'compute',
                                                   str(1 << 20))
            self.assertIn('computes', first)
            files = f'/proc/{tenant.pid}/fd'
            self.assertGreaterEqual(sum(os.readlink(f'{files}/{one}').startswith('socket:')
                                        for one in os.listdir(files)), 3)
            self.replace_twice()
            tenant.stdin.close()
            answer = json.loads(tenant.stdout.readline())
            # Who sends in the very moment in which the server ends has lost that (ADR 38).
            if answer.get('error') != LAUNCH_FAILED:
                break
        self.assertIn('rounds', answer)
        self.assertEqual(tenant.wait(60), 0)


class SharedFaults(NodeTest):
    """A GPU whose processes share faults, as under MPS."""

    soft = 1
    gpus = 'mode = "shared"'
    extra = '[leases]\nrecover_seconds = 30\n'

    def fault(self, tenant):
        self.node.wait_for(self.node.all_work_is_done)
        return self.node.poke(tenant).get('fault')

    def faults(self, lease):
        return [event['text'] for event in self.node.events()
                if event['lease_id'] == lease['id'] and event['kind'] == 'gpu-fault']

    def test_a_fault_is_told_of_who_caused_it_and_others_go_on(self):
        innocent, offender = self.node.create('innocent'), self.node.create('offender')
        holder, _ = self.node.hold('innocent', 16)
        bad, _ = self.node.start_tenant(self.node.settings('offender'), 'fault')
        for count in (1, 2, 3):
            self.assertEqual(self.fault(bad), ILLEGAL_ADDRESS)
            self.assertIn('kept', self.node.poke(holder))
            self.node.wait_for(lambda count=count: len(self.faults(offender)) == count)
        self.node.stop(signal.SIGKILL)
        self.node.start()
        self.assertEqual(self.fault(bad), ILLEGAL_ADDRESS)
        self.node.wait_for(lambda: len(self.faults(offender)) == 4)
        self.assertIn('kept', self.node.poke(holder))
        for text in self.faults(offender):
            self.assertIn('CUDA_ERROR_ILLEGAL_ADDRESS on GPU 0, caused by ', text)
            self.assertIn(f'process {bad.pid}', text)
            self.assertNotIn('one of', text)
        self.assertEqual(self.faults(innocent), [])


if __name__ == '__main__':
    main(__name__)
