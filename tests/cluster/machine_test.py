#!/usr/bin/env python3
"""Plain programs on machines with a client manager, over a cluster. machine_test.py BUILD."""

import json
import os
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import GROUP, QUICK, SMS, ClusterTest, Node, main  # noqa: E402


class Machine:
    """A client manager, as it runs in a VM."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name
        self.folder = f'{cluster.folder}/{name}'
        self.socket = f'{self.folder}/client.sock'
        self.programs = []
        os.mkdir(self.folder)
        with open(f'{self.folder}/client.toml', 'w', encoding='utf-8') as file:
            file.write(f'[cluster]\naddresses = ["{cluster.address}"]\n'
                       f'[vm]\nname = "{name}"\nhost = "n1-host"\n'
                       f'[programs]\nsocket = "{self.socket}"\n[lease]\ngrace = 2\n'
                       f'[client]\nstate = "{self.folder}/state"\n')
        self.start()

    def start(self):
        with open(f'{self.folder}/client.log', 'ab') as log:
            self.process = subprocess.Popen(
                [self.cluster.program('flyt-client-manager'), '--config',
                 f'{self.folder}/client.toml'], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        Node.wait_for(self.listens)

    def listens(self):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self.socket)
            except OSError:
                return False
        return True

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        self.process.wait(120)

    def remove(self):
        for program in self.programs:
            program.kill()
            program.wait()
            for pipe in (program.stdin, program.stdout, program.stderr):
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)

    def environment(self):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith('FLYT_')}
        environment['LD_LIBRARY_PATH'] = os.path.join(self.cluster.build, 'lib', 'client')
        environment['FLYT_CLIENT_SOCKET'] = self.socket
        return environment

    def begin(self, *words):
        """A program as anybody starts it."""
        program = subprocess.Popen(
            [os.path.join(self.cluster.build, 'tests', 'node_subject'), *words],
            env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.programs.append(program)
        return program


class Machines(ClusterTest):
    # Client managers of one machine reach nodes by their Unix sockets.
    nodes = ('n1',)
    extra = QUICK

    def setUp(self):
        self.machines = []

    def machine(self, name):
        machine = Machine(self.cluster, f'{self.id().rpartition("_")[2]}-{name}')
        self.machines.append(machine)
        return machine

    def tearDown(self):
        for machine in self.machines:
            machine.remove()
        super().tearDown()

    def test_a_plain_program_has_its_machines_gpu(self):
        machine = self.machine('a')
        self.cluster.add_vm(machine.name, GROUP, '256M')
        program = machine.begin('hold', str(16 << 20))
        self.assertEqual(json.loads(program.stdout.readline())['total'], 256 << 20)
        sessions = self.cluster.wait_for(lambda: self.cluster.list('sessions', machine.name))
        self.assertEqual(sessions[0]['session']['client_pid'], program.pid)
        self.cluster.settle()
        # It is given back after the last program.
        program.stdin.close()
        program.wait(120)
        self.cluster.wait_for(lambda: self.cluster.phase(machine.name) == 'none')
        self.cluster.settle()

    def test_a_program_waits_until_there_is_room(self):
        first, second = self.machine('a'), self.machine('b')
        for machine in (first, second):
            self.cluster.add_vm(machine.name, SMS, '256M')
        holds = first.begin('hold', str(16 << 20))
        self.assertTrue(holds.stdout.readline())
        waits = second.begin()
        self.cluster.wait_for(lambda: self.cluster.phase(second.name) == 'waiting')
        self.assertIsNone(waits.poll())
        holds.stdin.close()
        out, said = waits.communicate(timeout=60)
        self.assertIn('sees', json.loads(out))
        self.assertIn('waiting for a GPU ahead=0', said)

    def test_programs_outlive_every_manager(self):
        machine = self.machine('a')
        self.cluster.add_vm(machine.name, GROUP, '256M')
        program = machine.begin('hold', str(16 << 20))
        self.assertTrue(program.stdout.readline())
        for stop in (machine.stop, self.cluster.stop, self.cluster.nodes['n1'].stop):
            stop(signal.SIGKILL)
            self.assertIn('kept', Node.poke(program))
        self.cluster.start()
        self.cluster.nodes['n1'].start()
        machine.start()
        self.assertIn('kept', Node.poke(program))
        again = machine.begin('hold', str(16 << 20))
        self.assertIn('holds', json.loads(again.stdout.readline()))
        self.assertIn('kept', Node.poke(program))
        self.cluster.settle()

    def test_a_machine_that_nobody_knows_is_told_so(self):
        program = self.machine('a').begin()
        out, said = program.communicate(timeout=60)
        self.assertIn('failed', json.loads(out))
        self.assertIn('there is no VM', said)


if __name__ == '__main__':
    main(__name__)
