#!/usr/bin/env python3
"""Programs of VMs, from nothing to a GPU of a cluster. cluster_test.py BUILD.

Cluster manager, node manager, two client managers and the programs are the real ones.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'node'))
from node_process import SMS, Node, NodeTest, main  # noqa: E402


class Clusters(NodeTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='flyt-vms-')
        cls.address = f'unix://{cls.folder}/run/cluster.sock'
        cls.processes = {}
        cls.node = Node(cls.build, 1, f'[cluster]\naddress = "{cls.address}"\nhost = "host"\n')
        try:
            cls.start_cluster()
            cls.node.start()
            for vm in ('vm-a', 'vm-b'):
                cls.node.wait_for(lambda: 'ready' in cls.ctl('nodes'))
                cls.ctl('vm', 'set', vm, '--sms', str(SMS), '--memory', '128M', '--host', 'host')
                cls.start_client(vm)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        for process in cls.processes.values():
            process.kill()
            process.wait()
        cls.node.remove()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def tearDown(self):
        self.node.end_tenants()

    @classmethod
    def launch(cls, name, program, text, ready):
        config = f'{cls.folder}/{name}.toml'
        with open(config, 'w', encoding='utf-8') as file:
            file.write(text)
        with open(f'{cls.folder}/{name}.log', 'ab') as log:
            cls.processes[name] = subprocess.Popen(
                [cls.node.program(program), '--config', config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        cls.node.wait_for(lambda: os.path.exists(ready) or cls.processes[name].poll() is not None)

    @classmethod
    def start_cluster(cls):
        run = f'{cls.folder}/run'
        os.makedirs(run, exist_ok=True)
        if os.path.exists(f'{run}/cluster.sock'):
            os.unlink(f'{run}/cluster.sock')
        cls.launch('cluster', 'flyt-cluster-manager',
                   f'[cluster]\nstate = "{cls.folder}/state"\nrun = "{run}"\n'
                   '[nodes]\nlost_after = 60\n',
                   f'{run}/cluster.sock')

    @classmethod
    def start_client(cls, vm, host='host = "host"\n'):
        cls.launch(vm, 'flyt-client-manager',
                   f'[vm]\nname = "{vm}"\n{host}[cluster]\naddresses = ["{cls.address}"]\n'
                   f'[programs]\nsocket = "{cls.folder}/{vm}.sock"\n[lease]\ngrace = 0\n'
                   f'[client]\nstate = "{cls.folder}/{vm}-state"\n', f'{cls.folder}/{vm}.sock')

    @classmethod
    def ctl(cls, *words):
        done = subprocess.run([cls.node.program('flytctl'), '--cluster', cls.address, *words],
                              capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def environment(self, vm):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith('FLYT_')}
        environment['FLYT_CLIENT_SOCKET'] = f'{self.folder}/{vm}.sock'
        return environment

    def program(self, vm, *words):
        environment = self.environment(vm)
        environment['LD_LIBRARY_PATH'] = os.path.join(self.node.build, 'lib', 'client')
        program = subprocess.Popen([self.node.subject(), *words], env=environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.node.tenants.append(program)
        return program

    def test_two_vms_take_turns_on_one_gpu(self):
        holder = self.program('vm-a', 'hold', str(16 << 20))
        seen = json.loads(holder.stdout.readline())
        self.assertEqual((seen['sms'], seen['total']), (SMS, 128 << 20))
        run = subprocess.Popen([self.node.program('flyt'), 'run', '--', self.node.subject()],
                               env=self.environment('vm-b'), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.node.tenants.append(run)
        self.assertIn('flyt: waiting for a GPU: 0 ahead of you', run.stderr.readline())
        self.assertTrue(self.node.poke(holder).get('kept'))
        self.assertIn('vm-b', self.ctl('explain', 'vm-b') + self.ctl('vms'))
        holder.kill()
        holder.wait()
        self.assertTrue(json.loads(run.stdout.readline()).get('sees'))
        self.assertEqual(run.wait(60), 0)
        # The last program has ended: nothing is left of either.
        self.node.wait_for(lambda: self.node.leases() == {})

    def test_a_lease_that_somebody_ended_at_its_node_is_no_error_of_the_next_program(self):
        holder = self.program('vm-a', 'hold', str(16 << 20))
        self.assertTrue(json.loads(holder.stdout.readline()).get('holds'))
        (lease,) = self.node.leases()
        self.node.ctl('release', lease)
        second = self.program('vm-a')
        self.assertTrue(json.loads(second.stdout.readline() or '{}').get('sees'), second.poll())
        holder.kill()

    def test_a_vm_that_reaches_no_node_is_refused_at_once_and_no_lease_is_made_for_it(self):
        self.ctl('vm', 'set', 'far', '--sms', '8', '--memory', '64M')
        self.start_client('far', host='')
        for _ in range(2):
            done = subprocess.run([self.node.program('flyt'), 'run', '--', 'true'],
                                  env=self.environment('far'), capture_output=True, text=True,
                                  check=False, timeout=60)
            self.assertEqual(done.returncode, 127)
            for part in ('node test-node', 'leases.tcp_host', 'node.toml', 'vm.host = "host"'):
                self.assertIn(part, done.stderr)
            self.assertNotIn('waiting', done.stderr)
        self.assertNotIn('placed', ''.join(line for line in self.ctl('events').splitlines(True)
                                           if 'far' in line))
        self.assertEqual([name for name in self.node.leases() if name.startswith('far.')], [])

    def test_a_program_goes_on_when_all_managers_are_killed(self):
        holder = self.program('vm-a', 'hold', str(16 << 20))
        self.assertTrue(json.loads(holder.stdout.readline()).get('holds'))
        for name in ('cluster', 'vm-a'):
            self.processes[name].send_signal(signal.SIGKILL)
            self.processes[name].wait()
        self.node.stop(signal.SIGKILL)
        self.assertTrue(self.node.poke(holder).get('kept'))
        os.unlink(f'{self.folder}/vm-a.sock')
        self.start_cluster()
        self.node.start()
        self.start_client('vm-a')
        second = self.program('vm-a')
        self.assertTrue(json.loads(second.stdout.readline()).get('sees'))
        self.assertTrue(self.node.poke(holder).get('kept'))
        self.assertEqual(len(self.node.leases()), 1)


if __name__ == '__main__':
    main('__main__')
