#!/usr/bin/env python3
"""A GPU that gives out more multiprocessors than it has. sharing_test.py BUILD."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import GROUP, SMS, ClusterTest, main  # noqa: E402


class Sharing(ClusterTest):
    nodes = ('n1',)
    node_gpus = 'sm_percent = 200'

    def holders(self):
        gpu = self.cluster.list('gpus')[0]['description']['gpus'][0]
        self.assertEqual(gpu['sm_percent'], 200)
        return [group['leases'] for group in gpu['groups']]

    def test_those_who_agree_share_multiprocessors_and_nobody_shares_memory(self):
        for name in ('a', 'b'):
            self.cluster.add_vm(name, SMS, '256M', '--share-sms')
        programs = [self.cluster.run_program(name, 'work') for name in ('a', 'b')]
        self.assertEqual([first['sms'] for _, first in programs], [SMS, SMS])
        self.assertEqual([first['total'] for _, first in programs], [256 << 20, 256 << 20])
        # As the node's next report has it.
        self.cluster.wait_for(lambda: self.holders() == [2] * (SMS // GROUP))
        self.assertIn(f'0 of {2 * SMS}', self.cluster.ctl('gpus'))
        # All is given out twice; and whoever does not agree gets nothing there.
        for name, more in (('c', ['--share-sms']), ('d', [])):
            self.cluster.add_vm(name, GROUP, '256M', *more)
            self.assertEqual(self.cluster.speak('request', name)['phase'], 'waiting')
        self.assertIn('share', self.cluster.ctl('explain', 'd'))
        # A smaller one makes room, for who agrees.
        self.cluster.ctl('resize', 'a', '--sms', str(SMS - GROUP))
        self.cluster.want('c')
        self.assertEqual(self.cluster.vm('c')['gpu']['sms_granted'], GROUP)
        self.assertEqual(self.cluster.speak('request', 'd')['phase'], 'waiting')
        self.cluster.ctl('resize', 'b', '--memory', '1G', status=5)
        for tenant, _ in programs:
            self.assertIn('rests', self.cluster.poke(tenant))
        self.cluster.settle()

    def test_what_shares_is_found_again(self):
        for name in ('a', 'b'):
            self.cluster.add_vm(name, SMS, '256M', '--share-sms')
            self.cluster.want(name)
        node = self.cluster.nodes['n1']
        node.stop()
        node.start()
        leases = node.leases().values()
        self.assertEqual([len(lease['groups']) for lease in leases], [SMS // GROUP] * 2)
        self.cluster.settle()


if __name__ == '__main__':
    main(__name__)
