#!/usr/bin/env python3
"""VMs get virtual GPUs, wait for them, and lose them. vms_test.py BUILD."""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import GROUP, QUICK, SMS, ClusterTest, main  # noqa: E402


class Vms(ClusterTest):
    extra = QUICK + '[vms]\ngrace = 5\nkeep_wish = 30\n'

    def test_a_program_of_a_vm_runs_on_a_node(self):
        self.cluster.add_vm('a', GROUP - 1, '256M', '--address', '10.0.0.7', '--label', 'team=x')
        gpu = self.cluster.want('a')
        node = self.cluster.nodes[gpu['node']]
        done = node.run_tenant(self.cluster.environment(gpu), node.subject())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)['total'], 256 << 20)
        vm = self.cluster.vm('10.0.0.7')
        self.assertEqual(vm['spec']['name'], 'a')
        self.assertEqual((vm['gpu']['sms_asked'], vm['gpu']['sms_granted']), (GROUP - 1, GROUP))
        lease = self.cluster.list('leases', 'a')[0]
        self.assertEqual(lease['lease']['labels']['team'], 'x')
        self.cluster.settle()

    def test_lists_say_what_there_is(self):
        self.cluster.add_vm('a')
        self.cluster.hold('a', 16)
        self.assertEqual(len(self.cluster.list('sessions')), 1)
        self.assertEqual(self.cluster.list('sessions', 'a')[0]['vm'], 'a')
        for words in (('nodes',), ('nodes', 'n1'), ('gpus',), ('vms',), ('vms', 'a'), ('leases',),
                      ('sessions',), ('describe',), ('describe', 'a'), ('describe', 'n1'),
                      ('explain', 'a'), ('events',), ('audit',),
                      ('top', '--pages', '1')):
            self.assertRegex(self.cluster.ctl(*words), r'a|n1', words)
            for line in self.cluster.ctl('--json', *words).splitlines():
                json.loads(line)
        self.assertEqual(sorted(self.cluster.ask('top', '--pages', '1')), ['nodes', 'vms'])
        # Nothing has been measured of one that has no virtual GPU.
        self.cluster.add_vm('idle')
        self.assertIsNone(self.cluster.vm('idle')['busy_percent'])
        self.assertEqual({entry['peer'] for entry in self.cluster.ask('audit')['entries']},
                         {'unix'})
        self.cluster.wait_for(lambda: '[' not in self.cluster.ctl('health'))
        self.assertIn('explain', self.cluster.ctl('completion', 'bash'))
        for words in (('nodes', 'x'), ('vms', 'x'), ('explain', 'x'), ('release', 'x'),
                      ('vm', 'rm', 'x'), ('drain', 'x'), ('leases', 'x'), ('describe', 'x')):
            self.assertIn('there is no', self.cluster.ctl(*words, status=4))
        for words in (('vm', 'set', 'b'), ('vm', 'set', 'b', '--sms', '0', '--memory', '1G'),
                      ('vm', 'set', 'b', '--sms', '8', '--memory', 'much'), ('resize', 'a'),
                      ('--node', 'unix:///x', 'nodes'), ('nothing',)):
            self.cluster.ctl(*words, status=2)
        self.cluster.ctl('nodes', address=f'unix://{self.cluster.folder}/nobody', status=3)

    def test_lists_and_events_can_be_watched(self):
        def watch(*words):
            watcher = subprocess.Popen(
                [self.cluster.program('flytctl'), '--cluster', self.cluster.address, '--json',
                 *words], stdout=subprocess.PIPE, text=True)
            self.cluster.watchers.append(watcher)
            return watcher.stdout
        vms = watch('vms', '--watch')
        self.assertEqual(json.loads(vms.readline())['vms'], [])
        last = max(event['number'] for event in self.cluster.events())
        events = watch('events', '--follow', '--after', str(last))
        self.cluster.add_vm('a')
        while not json.loads(vms.readline())['vms']:
            pass
        self.assertEqual(json.loads(events.readline())['kind'], 'vm-added')
        self.cluster.want('a')
        kinds = [json.loads(events.readline())['kind'] for _ in range(2)]
        self.assertEqual(kinds, ['gpu-placed', 'gpu-ready'])

    def test_a_full_cluster_lets_vms_wait_in_turn(self):
        names = ['a', 'b', 'c', 'd']
        for name in names:
            self.cluster.add_vm(name, SMS)
        tenants = {name: self.cluster.hold(name, 16)[0] for name in names[:2]}
        watcher = self.cluster.watch('c')
        seen = [json.loads(watcher.stdout.readline())]
        self.cluster.speak('request', 'c')
        self.assertEqual(self.cluster.speak('request', 'd')['ahead'], 1)
        self.assertIn('1 ahead', self.cluster.ctl('explain', 'd'))
        self.assertRegex(self.cluster.ctl('explain', 'd'), r'n1: .*it needs 4 groups')
        self.cluster.ctl('vm', 'set', 'd', '--priority', '5')
        self.assertEqual(self.cluster.speak('request', 'd')['ahead'], 0)
        self.cluster.add_vm('e', SMS)
        self.cluster.speak('request', 'e')
        self.assertEqual(self.cluster.ctl('release', 'e'),
                         'VM e held no virtual GPU; it waits for one no longer\n')
        self.assertEqual(self.cluster.phase('e'), 'none')
        # Programs that end make room, after the grace period.
        tenants['a'].stdin.close()
        self.cluster.want('d')
        tenants['b'].stdin.close()
        while seen[-1]['phase'] != 'ready':
            seen.append(json.loads(watcher.stdout.readline()))
        phases = [gpu['phase'] for gpu in seen]
        # Who watches is told the newest: a phase that was short may have passed before.
        self.assertEqual(phases, sorted(phases, key=('none', 'waiting', 'starting', 'ready').index))
        self.assertEqual((phases[0], 'waiting' in phases), ('none', True))
        self.cluster.settle()

    def test_an_unused_virtual_gpu_is_taken_back_and_a_used_one_is_not(self):
        self.cluster.add_vm('a')
        self.cluster.add_vm('b', GROUP, '256M', '--keep')
        tenant, _ = self.cluster.hold('a', 16)
        self.cluster.want('b')
        pause = subprocess.Popen(['sleep', '8'])
        pause.wait()
        self.assertIn('kept', self.cluster.poke(tenant))
        tenant.stdin.close()
        tenant.wait(120)
        self.cluster.wait_for(lambda: self.cluster.phase('a') == 'none')
        self.assertIn('gpu-freed', self.cluster.kinds('a'))
        self.assertEqual(self.cluster.phase('b'), 'ready')

    def test_a_virtual_gpu_changes_while_a_program_runs(self):
        self.cluster.add_vm('a')
        tenant, _ = self.cluster.hold('a', 64)
        self.cluster.ctl('resize', 'a', '--sms', str(GROUP * 2), '--memory', '512M')
        self.assertEqual(self.cluster.poke(tenant)['total'], 512 << 20)
        self.assertEqual(self.cluster.vm('a')['spec']['sms'], GROUP * 2)
        self.cluster.ctl('resize', 'a', '--memory', '9G', status=5)
        self.cluster.ctl('resize', 'a', '--sms', '4096', status=2)
        # Less than is used is the node's to refuse.
        self.assertIn('node n', self.cluster.ctl('resize', 'a', '--memory', '32M', status=5))
        self.assertEqual(self.cluster.vm('a')['gpu']['memory_bytes'], 512 << 20)
        # Flyt's spelling, in megabytes.
        self.cluster.ctl('change-config', '-i', 'a', '-m', '600', '-s', str(GROUP * 3))
        self.assertEqual(self.cluster.poke(tenant)['total'], 600 << 20)
        self.cluster.settle()

    def test_a_draining_node_empties_as_programs_end(self):
        self.cluster.add_vm('a', GROUP, '256M', '--keep')
        tenant, _ = self.cluster.hold('a', 16)
        name = self.cluster.vm('a')['gpu']['node']
        self.assertIn('draining', self.cluster.ctl('drain', name))
        self.cluster.add_vm('b')
        self.assertNotEqual(self.cluster.want('b')['node'], name)
        self.assertIn('kept', self.cluster.poke(tenant))
        tenant.stdin.close()
        self.cluster.wait_for(lambda: not self.cluster.list('leases', '--on', name))
        self.cluster.ctl('cordon', name)
        self.assertEqual({node['name']: node['state'] for node in self.cluster.list('nodes')}[name],
                         'cordoned')
        self.cluster.ctl('uncordon', name)

    def test_a_released_virtual_gpu_is_gone_and_can_be_had_again(self):
        self.cluster.add_vm('a')
        tenant, _ = self.cluster.hold('a', 16)
        first = self.cluster.vm('a')['gpu']['generation']
        self.cluster.ctl('release', 'a')
        # Its node hears of it a little later.
        self.cluster.wait_for(lambda: 'failed' in self.cluster.poke(tenant))
        self.assertGreater(self.cluster.want('a')['generation'], first)
        self.assertEqual(self.cluster.speak('release', 'a')['phase'], 'none')
        self.cluster.settle()
        told = self.cluster.ctl('release', 'a', status=4)
        self.assertEqual(told, 'flytctl: VM a holds no virtual GPU, and waits for none\n')
        self.assertEqual(self.cluster.list('leases'), [])

    def test_leases_of_a_node_itself_take_room(self):
        for node in self.cluster.nodes.values():
            node.create('own', SMS)
        self.cluster.add_vm('a')
        self.cluster.wait_for(lambda: len(self.cluster.list('leases')) == 2)
        self.assertEqual({lease['state'] for lease in self.cluster.list('leases')}, {'foreign'})
        self.assertEqual(self.cluster.speak('request', 'a')['phase'], 'waiting')
        for node in self.cluster.nodes.values():
            self.assertRegex(node.ctl('describe'), r'\nMAP .*\nA +own +- +[0-9a-f]+\n')
            node.ctl('release', 'own')
        place = self.cluster.want('a')['node']
        self.assertRegex(self.cluster.nodes[place].ctl('describe'), r'\nA +a\.\S+ +a +[0-9a-f]+\n')

    def test_vms_come_from_flyts_database(self):
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            file.write('{"_id": {"$oid": "5"}, "vm_ip": "10.0.0.9", "host_ip": "n2-host",'
                       ' "compute_units": 8, "memory": 256}\n')
            file.flush()
            self.assertIn('set 1 VM\n', self.cluster.ctl('vm', 'import', file.name))
        # Its own host first.
        self.assertEqual(self.cluster.want('10.0.0.9')['node'], 'n2')
        self.assertRegex(self.cluster.ctl('list-vms'), r'VM IP.*\n10\.0\.0\.9 +n2/0 +8 +256 +true')
        self.assertRegex(self.cluster.ctl('list-servernodes'), r'n2-host +0 .* 256 +32 +8\n')
        self.assertRegex(self.cluster.ctl('list-virt-servers'), r'n2 .*10\.0\.0\.9 +8 +256')
        said = self.cluster.ctl('migrate', '-i', '10.0.0.9', '--dstsnodeip', 'n1', status=6)
        self.assertIn('migrate', said)
        self.cluster.ctl('migrate-auto', '-i', 'x', status=6)
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            file.write('[{"name": "x", "colour": "red"}]')
            file.flush()
            self.assertIn('object 1: colour', self.cluster.ctl('vm', 'import', file.name, status=2))


if __name__ == '__main__':
    main(__name__)
