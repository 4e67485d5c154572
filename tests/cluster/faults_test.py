#!/usr/bin/env python3
"""Managers and nodes that die, disks that fill, databases that rot. faults_test.py BUILD."""

import json
import os
import random
import resource
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import GROUP, QUICK, SMS, ClusterTest, main  # noqa: E402

VMS = '[vms]\ngrace = 60\nkeep_wish = 60\n'


class Faults(ClusterTest):
    extra = QUICK + VMS

    def kill_manager(self):
        self.cluster.stop(signal.SIGKILL)

    def refuse_to_start(self):
        before = len(self.cluster.log())
        self.assertEqual(self.cluster.launch().wait(60), 1)
        return self.cluster.log()[before:]

    def test_a_killed_manager_disturbs_no_program_and_knows_everything(self):
        self.cluster.add_vm('a')
        self.cluster.add_vm('b', SMS)
        self.cluster.add_vm('c', SMS)
        tenant, _ = self.cluster.hold('a', 64)
        before = self.cluster.vm('a')['gpu']
        self.cluster.want('b')
        self.assertEqual(self.cluster.speak('request', 'c')['phase'], 'waiting')
        self.kill_manager()
        self.assertIn('kept', self.cluster.poke(tenant))
        self.cluster.start()
        after = self.cluster.vm('a')['gpu']
        for key in ('lease_id', 'generation', 'node', 'phase'):
            self.assertEqual(after[key], before[key])
        self.assertEqual(self.cluster.phase('c'), 'waiting')
        self.cluster.wait_for(lambda: all(node['state'] == 'ready'
                                          for node in self.cluster.list('nodes')))
        self.cluster.settle()
        self.assertIn('kept', self.cluster.poke(tenant))
        self.assertEqual(self.cluster.stop(), 0)
        self.assertIn('kept', self.cluster.poke(tenant))
        self.cluster.start()
        self.cluster.ctl('release', 'b')
        self.cluster.want('c')

    def test_kills_in_the_middle_of_anything_grant_nothing_twice(self):
        chance = random.Random(4711)
        vms = [f'vm-{i}' for i in range(6)]
        for vm in vms:
            self.cluster.add_vm(vm, GROUP * chance.randint(1, 2))
        for turn in range(12):
            busy = []
            for _ in range(4):
                vm = chance.choice(vms)
                words = chance.choice((['request'], ['request'], ['release'],
                                       ['resize', '--sms', str(GROUP * chance.randint(1, 3))]))
                command = (self.cluster.vm_command(words[0], vm) if len(words) == 1 else
                           [self.cluster.program('flytctl'), '--cluster', self.cluster.address,
                            words[0], vm, *words[1:]])
                busy.append(subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL))
            pause = subprocess.Popen(['sleep', str(chance.random() * 0.6)])
            pause.wait()
            self.kill_manager()
            for process in busy:
                process.wait(60)
            self.cluster.start()
            with self.subTest(turn=turn):
                self.cluster.settle()
        for vm in vms:
            self.cluster.ctl('release', vm, status=4 if self.cluster.phase(vm) == 'none' else 0)
        self.cluster.settle()
        self.assertEqual(self.cluster.list('leases'), [])

    def test_both_managers_killed_together_come_to_the_same_mind(self):
        self.cluster.add_vm('a')
        first = self.cluster.want('a')
        self.kill_manager()
        self.cluster.nodes[first['node']].stop(signal.SIGKILL)
        self.cluster.start()
        self.cluster.nodes[first['node']].start()
        self.cluster.settle()
        self.assertEqual(self.cluster.want('a')['generation'], first['generation'])

    def test_a_full_disk_refuses_changes_and_is_told(self):
        self.cluster.add_vm('a')
        resource.prlimit(self.cluster.process.pid, resource.RLIMIT_FSIZE, (0, -1))
        self.assertIsNone(self.cluster.speak('request', 'a'))
        self.cluster.ctl('vm', 'set', 'b', '--sms', '8', '--memory', '256M', status=1)
        self.assertIn('cannot be written', self.cluster.ctl('health', status=1))
        self.assertEqual([vm['spec']['name'] for vm in self.cluster.list('vms')], ['a'])
        resource.prlimit(self.cluster.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        self.cluster.want('a')
        self.cluster.settle()

    def test_a_corrupt_database_is_refused_and_kept(self):
        self.cluster.add_vm('a')
        tenant, _ = self.cluster.hold('a', 16)
        self.cluster.stop()
        with self.cluster.damaged(f'{self.cluster.state}/cluster.db'):
            said = self.refuse_to_start()
            self.assertIn('cannot be used', said)
            self.assertIn('move it away', said)
            self.assertIn('kept', self.cluster.poke(tenant))
        self.cluster.start()
        self.cluster.settle()

    def test_a_second_manager_is_refused(self):
        self.assertIn('another cluster manager', self.refuse_to_start())


class LostNodes(ClusterTest):
    # Longer than a busy machine is silent, and no longer than a test can wait.
    extra = '[nodes]\nreport_every = 1\nlost_after = 8\n' + VMS

    def lose(self, name):
        """A node that cannot be reached: its manager is gone, its servers are not."""
        self.cluster.nodes[name].stop(signal.SIGKILL)

    def test_a_lost_nodes_vms_are_told_and_placed_anew(self):
        self.cluster.add_vm('a')
        first = self.cluster.want('a')
        watcher = self.cluster.watch('a')
        self.assertEqual(json.loads(watcher.stdout.readline())['phase'], 'ready')
        self.lose(first['node'])
        second = self.cluster.wait_for(
            lambda: (lambda gpu: gpu if gpu['phase'] == 'ready' and gpu['node'] != first['node']
                     else None)(self.cluster.vm('a')['gpu']))
        self.assertGreater(second['generation'], first['generation'])
        self.assertNotEqual(json.loads(watcher.stdout.readline())['phase'], 'ready')
        self.assertIn('is lost', self.cluster.ctl('health', status=1))
        self.assertIn('lost', self.cluster.ctl('nodes'))
        # The old one ends when its node is back.
        self.cluster.nodes[first['node']].start()
        self.cluster.settle()
        self.assertEqual(len(self.cluster.list('leases')), 1)
        self.assertEqual(self.cluster.vm('a')['gpu']['node'], second['node'])

    def test_a_node_that_comes_back_keeps_its_vms_if_nobody_else_could_take_them(self):
        self.cluster.add_vm('a', SMS)
        self.cluster.add_vm('b', SMS)
        first = self.cluster.want('a')
        self.cluster.want('b')
        tenant, _ = self.cluster.hold('a', 16)
        self.lose(first['node'])
        self.cluster.wait_for(lambda: self.cluster.phase('a') == 'waiting')
        self.assertIn('kept', self.cluster.poke(tenant))
        self.cluster.nodes[first['node']].start()
        self.cluster.wait_for(lambda: self.cluster.phase('a') == 'ready')
        self.assertEqual(self.cluster.vm('a')['gpu']['generation'], first['generation'])
        self.assertIn('kept', self.cluster.poke(tenant))
        self.cluster.settle()

    def test_a_node_that_is_gone_can_be_forgotten(self):
        self.cluster.add_vm('a')
        name = self.cluster.want('a')['node']
        self.cluster.ctl('node', 'rm', name, status=6)
        self.cluster.ctl('cordon', 'n1' if name == 'n2' else 'n2')
        self.lose(name)
        self.cluster.wait_for(lambda: self.cluster.phase('a') == 'waiting')
        self.cluster.ctl('node', 'rm', name)
        self.assertEqual([node['name'] for node in self.cluster.list('nodes')],
                         ['n1' if name == 'n2' else 'n2'])
        # It comes back as a new one, with what it had.
        self.cluster.nodes[name].start()
        self.cluster.wait_for(lambda: self.cluster.phase('a') == 'ready')
        self.cluster.settle()

    def test_a_node_that_hangs_holds_nobody_else_up(self):
        self.cluster.ctl('cordon', 'n2')
        self.cluster.add_vm('a')
        self.cluster.want('a')
        stuck = self.cluster.nodes['n1'].process.pid
        os.kill(stuck, signal.SIGSTOP)
        try:
            self.cluster.ctl('uncordon', 'n2')
            self.cluster.add_vm('b')
            self.cluster.wait_for(lambda: self.cluster.phase('a') in ('waiting', 'ready') and
                                  self.cluster.vm('a')['gpu']['node'] != 'n1')
            self.assertEqual(self.cluster.want('b')['node'], 'n2')
            # Nor does it keep the manager from stopping.
            self.assertEqual(self.cluster.stop(), 0)
            self.cluster.start()
        finally:
            os.kill(stuck, signal.SIGCONT)
        self.cluster.settle()


if __name__ == '__main__':
    main(__name__)
