#!/usr/bin/env python3
"""Servers with somebody else's certificate: nobody asks them anything. posers_test.py BUILD."""

import os
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from authority import Authority  # noqa: E402
from cluster_process import GROUP, QUICK, Cluster, Node, main  # noqa: E402
from cluster_process import ClusterTest as Base  # noqa: E402
from daemon_process import free_port  # noqa: E402

NO_ANSWER = 3
HERE = ('127.0.0.1', 'localhost')


def resolves(name):
    """Not even localhost does where nobody has written /etc/hosts, in a bare chroot for example."""
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


class Posers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.authority = Authority(Base.build)
        for name, role, hosts in (('cluster', 'admin', HERE), ('vm-a', 'vm', HERE),
                                  ('n1', 'node', HERE), ('eve', 'viewer', HERE),
                                  ('anna', 'admin', ()),
                                  ('cluster-elsewhere', 'admin', ('other.example.org', '10.0.0.9')),
                                  ('n1-elsewhere', 'node', ('other.example.org', '10.0.0.9')),
                                  ('cluster-old', 'admin', HERE), ('n1-old', 'node', HERE),
                                  ('n1-late', 'node', HERE)):
            cls.authority.issue(name, role, *hosts)
        for name in ('cluster-old', 'n1-old'):
            cls.authority.revoke(name)
        cls.crl = f'crl = "{cls.authority.folder}/crl.pem"\n'

    @classmethod
    def tearDownClass(cls):
        cls.authority.remove()

    def cluster(self, name, more=''):
        """A cluster manager that serves with this certificate; and where."""
        port = free_port()
        tcp = f'127.0.0.1:{port}'
        cluster = Cluster(Base.build, (), 1,
                          QUICK + more +
                          self.authority.section('api', name, f'tcp = "0.0.0.0:{port}"\n'))
        self.addCleanup(cluster.remove)
        return cluster.start(), tcp

    def options(self, who):
        cert, key, ca = self.authority.files(who)
        return ('--cert', cert, '--key', key, '--ca', ca)

    def test_a_cluster_manager_is_who_has_its_name_and_a_managers_role(self):
        words = (*self.options('anna'), 'vm', 'set', 'x', '--sms', '8', '--memory', '256M')
        for name, why in (('vm-a', "role 'vm'"), ('n1', "role 'node'"), ('eve', "role 'viewer'"),
                          ('cluster-elsewhere', '')):
            with self.subTest(name):
                cluster, tcp = self.cluster(name)
                self.assertIn(why, cluster.ctl(*words, address=tcp, status=NO_ANSWER))
                self.assertIsNone(cluster.speak('request', 'vm-a', address=tcp,
                                                files=self.authority.files('vm-a')))
                # It has not even heard that somebody wants something.
                self.assertEqual(cluster.list('vms'), [])
                self.assertNotIn('anna', cluster.ctl('audit'))
        cluster, tcp = self.cluster('cluster')
        cluster.ctl(*words, address=tcp)
        self.assertRegex(cluster.ctl('audit'), r'anna .*vm set')
        # It is there, too, but under an address that is not in its certificate.
        if resolves('localhost'):
            cluster.ctl(*words, address=tcp.replace('127.0.0.1', 'localhost'))
        cluster.ctl(*words, address=tcp.replace('127.0.0.1', '127.0.0.2'), status=NO_ANSWER)

    def test_machines_tell_a_poser_nothing(self):
        self.tells_nothing('vm-a', "role 'vm'", '')

    def test_machines_tell_a_manager_nothing_that_was_revoked(self):
        self.tells_nothing('cluster-old', 'of cluster-old was revoked', self.crl)

    def tells_nothing(self, name, why, crl):
        poser, tcp = self.cluster(name)
        node = Node(Base.build, 1, self.authority.section(
            'cluster', 'n1', f'address = "{tcp}"\nadvertise = "127.0.0.1:1"\n{crl}'), 'n1')
        self.addCleanup(node.remove)
        node.start()
        config = f'{poser.folder}/vm.toml'
        with open(config, 'w', encoding='utf-8') as file:
            file.write(self.authority.section('cluster', 'vm-a', f'addresses = ["{tcp}"]\n{crl}') +
                       f'[programs]\nsocket = "{poser.folder}/vm.sock"\n'
                       f'[client]\nstate = "{poser.folder}/vm"\n')
        with open(f'{poser.folder}/vm.log', 'wb') as log:
            client = subprocess.Popen(
                [poser.program('flyt-client-manager'), '--config', config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(client.wait)
        self.addCleanup(client.send_signal, signal.SIGKILL)

        def away():
            done = subprocess.run(
                [poser.program('flyt'), 'client', 'status'], capture_output=True, text=True,
                env=dict(os.environ, FLYT_CLIENT_SOCKET=f'{poser.folder}/vm.sock'), check=False)
            return why in done.stdout
        poser.wait_for(away)
        poser.wait_for(lambda: why in node.log())
        self.assertEqual(poser.list('nodes'), [])

    def test_a_token_to_enrol_is_not_told_to_a_poser(self):
        at = f'127.0.0.1:{free_port()}'
        poser, _ = self.cluster('vm-a', f'[enrol]\nlisten = "{at}"\n'
                                f'key = "{self.authority.folder}/ca.key"\n')
        token = poser.ctl('enrol-token', 'create', 'vm-b', '--role', 'vm').strip()
        done = subprocess.run(
            [poser.program('flytctl'), 'enrol', 'vm-b', '--role', 'vm', '--at', at, '--dir',
             poser.folder, '--token-file', '-'], input=token, capture_output=True, text=True,
            check=False, timeout=60)
        self.assertEqual(done.returncode, NO_ANSWER, done.stderr)
        self.assertIn("role 'vm'", done.stderr)
        self.assertEqual(poser.ask('enrol-token', 'list')['tokens'][0]['state'], 'unused')

    def node(self, name, more=''):
        """A node that serves with this certificate; and where."""
        tcp = f'127.0.0.1:{free_port()}'
        node = Node(Base.build, 1, self.authority.section('api', name, f'tcp = "{tcp}"\n') +
                    more.replace('TCP', tcp), 'n1')
        self.addCleanup(node.remove)
        return node.start(), tcp

    def test_a_node_is_who_has_its_name_and_a_nodes_role(self):
        options = self.options('anna')
        for name, why in (('vm-a', "role 'vm'"), ('eve', "role 'viewer'"),
                          ('cluster', "role 'admin'"), ('n1-elsewhere', '')):
            with self.subTest(name):
                node, tcp = self.node(name)
                self.assertIn(why, node.ctl(*options, 'leases', node=tcp, status=NO_ANSWER))
                node.ctl(*options, 'drain', node=tcp, status=NO_ANSWER)
                self.assertFalse(node.ask('describe')['draining'])
                node.remove()

    def test_a_cluster_manager_asks_a_poser_for_nothing(self):
        cluster, cluster_tcp = self.cluster('cluster')
        for vm in ('vm-a', 'vm-b'):
            cluster.add_vm(vm, GROUP)
        node, _ = self.node('vm-a', self.authority.section(
            'cluster', 'n1', f'address = "{cluster_tcp}"\nadvertise = "TCP"\n'))
        self.is_asked_for_nothing(cluster, node, "role 'vm'")
        # The same node with its own certificate.
        self.change_files(node, 'vm-a', 'n1')
        cluster.want('vm-b')

    def is_asked_for_nothing(self, cluster, node, why):
        cluster.wait_for(lambda: 'ready' in cluster.ctl('nodes'))
        cluster.speak('request', 'vm-a')
        cluster.wait_for(lambda: 'gpu-refused' in cluster.kinds('vm-a'))
        self.assertIn(why, cluster.ctl('events'))
        self.assertEqual(node.leases(), {})

    @staticmethod
    def change_files(node, old, new):
        node.stop()
        with open(node.config, encoding='utf-8') as file:
            text = file.read()
        with open(node.config, 'w', encoding='utf-8') as file:
            file.write(text.replace(f'/{old}.', f'/{new}.'))
        node.start()

    def test_a_cluster_manager_asks_a_node_for_nothing_that_was_revoked(self):
        port = free_port()
        tcp = f'127.0.0.1:{port}'
        cluster = Cluster(Base.build, (), 1, QUICK + self.authority.section(
            'api', 'cluster', f'tcp = "{tcp}"\n{self.crl}'))
        self.addCleanup(cluster.remove)
        cluster.start()
        for vm in ('vm-a', 'vm-b'):
            cluster.add_vm(vm, GROUP)
        # What it reports with is good, and what it serves with is not.
        node, _ = self.node('n1-old', self.authority.section(
            'cluster', 'n1', f'address = "{tcp}"\nadvertise = "TCP"\n'))
        self.is_asked_for_nothing(cluster, node, 'of n1-old was revoked')
        # On a connection that is open it holds from the next question on.
        self.change_files(node, 'n1-old', 'n1-late')
        cluster.want('vm-b')
        self.authority.revoke('n1-late')
        self.assertIsNone(cluster.speak('request', 'vm-b'))


if __name__ == '__main__':
    main('__main__')
