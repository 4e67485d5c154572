#!/usr/bin/env python3
"""Cluster managers that were replaced, and go on asking nodes. epochs_test.py BUILD."""

import os
import signal
import sqlite3
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import GROUP, Cluster, main  # noqa: E402
from cluster_process import ClusterTest as Base  # noqa: E402

REFUSED = 6
# Nobody is lost because he reports to another one.
PATIENT = '[nodes]\nreport_every = 1\nlost_after = 600\n'
IN_2100 = 4102444800000
GONE = 'does not decide any more'


class Epochs(unittest.TestCase):
    def setUp(self):
        self.first = Cluster(Base.build, ('n1',), 1, PATIENT)
        self.addCleanup(self.first.remove)
        self.second = Cluster(Base.build, (), 1, PATIENT)
        self.addCleanup(self.second.remove)
        self.first.start_all()
        self.node = self.first.nodes['n1']
        self.first.add_vm('vm-a')
        self.first.want('vm-a')

    def copy(self):
        """As a backup of the first one's state that is put back elsewhere."""
        os.makedirs(self.second.state, 0o700, exist_ok=True)
        for name in ('cluster.db', 'cluster.db-wal', 'cluster.db-shm'):
            path = f'{self.second.state}/{name}'
            if os.path.exists(path):
                os.unlink(path)
        source = sqlite3.connect(f'{self.first.state}/cluster.db')
        target = sqlite3.connect(f'{self.second.state}/cluster.db')
        with source, target:
            source.backup(target)
        source.close()
        target.close()

    def report_to(self, cluster):
        self.node.stop()
        with open(self.node.config, encoding='utf-8') as file:
            text = file.read()
        for other in (self.first, self.second):
            text = text.replace(other.address, cluster.address)
        with open(self.node.config, 'w', encoding='utf-8') as file:
            file.write(text)
        self.node.start()
        cluster.wait_for(lambda: cluster.list('nodes')[0]['state'] == 'ready')

    def sms(self):
        (lease,) = self.node.leases().values()
        return lease['sms_granted']

    def refusals(self):
        return self.node.log().count(GONE)

    def test_a_manager_that_was_replaced_changes_no_lease(self):
        self.copy()
        self.second.start()
        self.report_to(self.second)
        self.assertEqual([event['kind'] for event in self.node.events()].count('leader'), 2)
        said = self.first.ctl('resize', 'vm-a', '--sms', str(2 * GROUP), status=REFUSED)
        self.assertIn(GONE, said)
        self.assertIn('forget-leaders', said)
        self.assertEqual(self.sms(), GROUP)
        # It believes that it gives the GPU back, and asks again and again.
        self.first.ctl('release', 'vm-a')
        before = self.refusals()
        self.node.wait_for(lambda: self.refusals() > before)
        self.second.wait_for(lambda: GONE in self.second.ctl('nodes', 'n1'))
        # A node remembers it.
        self.node.stop(signal.SIGKILL)
        before = self.refusals()
        self.node.start()
        self.node.wait_for(lambda: self.refusals() > before)
        self.assertEqual(self.sms(), GROUP)
        # The one that decides is not disturbed, and people at the node are not either.
        self.second.ctl('resize', 'vm-a', '--sms', str(2 * GROUP))
        self.assertEqual(self.sms(), 2 * GROUP)
        self.node.create('by-hand', GROUP)
        self.node.ctl('release', 'by-hand')

    def test_an_old_state_that_is_put_back_is_no_old_manager(self):
        # Without anything done, whatever has happened meanwhile.
        self.copy()
        self.first.stop()
        self.first.start()
        self.first.stop()
        self.second.start()
        self.report_to(self.second)
        self.second.ctl('resize', 'vm-a', '--sms', str(2 * GROUP))
        self.assertEqual(self.sms(), 2 * GROUP)

    def test_where_a_clock_was_wrong_nodes_are_told_to_forget(self):
        self.copy()
        self.second.start()
        self.second.stop()
        number = bytearray(b'\x08')
        rest = IN_2100
        while rest > 127:
            number.append(rest & 127 | 128)
            rest >>= 7
        number.append(rest)
        with sqlite3.connect(f'{self.second.state}/cluster.db') as database:
            changed = database.execute("UPDATE entries SET value = ? WHERE key = 'epoch'",
                                       (bytes(number),)).rowcount
        database.close()
        self.assertEqual(changed, 1)
        self.second.start()
        self.report_to(self.second)
        self.second.stop()
        self.copy()
        self.second.start()
        self.second.wait_for(lambda: self.second.list('nodes')[0]['state'] == 'ready')
        said = self.second.ctl('resize', 'vm-a', '--sms', str(2 * GROUP), status=REFUSED)
        self.assertIn('flytctl --node ADDR forget-leaders', said)
        self.assertIn('1 clusters', self.node.ctl('forget-leaders'))
        self.second.ctl('resize', 'vm-a', '--sms', str(2 * GROUP))
        self.assertEqual(self.sms(), 2 * GROUP)


if __name__ == '__main__':
    main('__main__')
