#!/usr/bin/env python3
"""Programs and servers of leases killed at random moments: nothing leaks, nobody else is disturbed,
and who is hit goes on or gets the error that docs/recovery.md promises. kill_test.py BUILD.

FLYT_KILL_CLIENTS=N, FLYT_KILL_SERVERS=N how often (8 and 4), FLYT_KILL_SEED=S as printed."""

import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from node_process import GROUP, MEMORY, SMS, NodeTest, main  # noqa: E402

CLIENTS = int(os.environ.get('FLYT_KILL_CLIENTS', '8'))
SERVERS = int(os.environ.get('FLYT_KILL_SERVERS', '4'))
SEED = int(os.environ.get('FLYT_KILL_SEED', random.randrange(1 << 32)))
AT_ONCE = 4
# Of one lease: one that ends again and again is started later and later.
KILLS_OF_A_LEASE = 2
LAUNCH_FAILED = 719
SLOW = 120


class Kills(NodeTest):
    # Longer than the slowest machine takes; what a program leaves whose process died first is gone
    # after that.
    extra = '[leases]\nrecover_seconds = 30\n'

    def setUp(self):
        self.random = random.Random(SEED)
        print(f'FLYT_KILL_SEED={SEED}', flush=True)
        # Of another lease, on the same GPU: it must notice nothing.
        self.node.create('witness', GROUP, '128M', '--gpu', '0')
        self.witness, _ = self.node.hold('witness', 32)
        self.witness_process = self.session('witness')
        self.files = self.manager_files()

    def manager_files(self):
        return len(os.listdir(f'/proc/{self.node.process.pid}/fd'))

    def session(self, lease):
        sessions = self.node.wait_for(lambda: self.node.ask('sessions', lease)['sessions'])
        return sessions[0]['server_pid']

    def check_witness(self):
        self.assertIn('kept', self.node.poke(self.witness))

    def check_nothing_is_left(self, lease):
        self.node.wait_for(lambda: not self.node.ask('sessions', lease)['sessions'], SLOW)
        self.node.wait_for(lambda: self.node.leases()[lease]['memory_used_bytes'] == 0, SLOW)

    def check_the_end(self):
        self.check_witness()
        self.assertEqual(self.session('witness'), self.witness_process)
        self.node.end_tenants()
        for name in self.node.leases():
            self.node.ctl('release', name)
        self.node.check_nothing_left()
        for gpu in self.node.ask('describe')['gpus']:
            self.assertEqual((gpu['sms_free'], gpu['memory_free_bytes']), (SMS, MEMORY))
        self.node.wait_for(lambda: self.manager_files() <= self.files, SLOW)

    def test_killed_programs_leave_nothing(self):
        self.node.create('a', GROUP, '512M', '--gpu', '0')
        environment = self.node.settings('a')
        command = [self.node.program('flyt'), 'run', '--', self.node.subject(), 'hold',
                   str(16 << 20)]
        done = 0
        while done < CLIENTS:
            count = min(AT_ONCE, CLIENTS - done)
            programs = [subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        for _ in range(count)]
            # From before it has a session until it is idle.
            time.sleep(self.random.uniform(0, 0.15))
            for program in programs:
                program.kill()
                time.sleep(self.random.uniform(0, 0.005))
            for program in programs:
                program.wait()
                program.stdin.close()
            done += count
            if done % 100 < AT_ONCE:
                environment = self.node.settings('a')
                self.check_witness()
                self.check_nothing_is_left('a')
                print(f'{done} programs killed', flush=True)
        self.check_nothing_is_left('a')
        self.assertEqual(self.node.leases()['a']['restarts'], 0)
        self.check_the_end()
        print(f'{done} programs killed: nothing is left', flush=True)

    def kill_a_server(self, name):
        """Its parent with all its processes, or the process of one session."""
        if self.random.random() < 0.5:
            victim, what = self.node.leases()[name]['server_pid'], 'server'
        else:
            victim, what = self.session(name), 'session'
        os.kill(victim, signal.SIGKILL)
        return what

    def test_killed_servers_lose_nobody(self):
        done = 0
        counts = {}
        while done < SERVERS:
            name = f'lease-{done}'
            lease = self.node.create(name, GROUP, '256M', '--gpu', '0')
            for _ in range(min(KILLS_OF_A_LEASE, SERVERS - done)):
                tenant, first = self.node.hold(name, 32)
                self.assertIn('holds', first)
                time.sleep(self.random.uniform(0, 0.1))
                what = self.kill_a_server(name)
                answer = self.node.poke(tenant)
                # What it asked first may still have been answered by who was about to die.
                if 'kept' in answer:
                    answer = self.node.poke(tenant)
                went_on = 'kept' in answer
                self.assertTrue(went_on or answer.get('error') == LAUNCH_FAILED, answer)
                key = f'{what} killed: {"went on" if went_on else "failed as it should"}'
                counts[key] = counts.get(key, 0) + 1
                tenant.kill()
                tenant.wait()
                self.check_nothing_is_left(name)
                done += 1
            self.check_witness()
            self.node.ctl('release', name)
            self.assertNotIn(lease['id'], {row[0] for row in self.node.rows('leases')})
        self.check_the_end()
        print(f'{done} servers killed: {counts}', flush=True)


if __name__ == '__main__':
    main(__name__)
