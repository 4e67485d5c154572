#!/usr/bin/env python3
"""Virtual GPUs grow and shrink by how much they are used. scaling_test.py BUILD."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_process import GROUP, QUICK, ClusterTest, main  # noqa: E402


class Scaling(ClusterTest):
    nodes = ('n1',)
    extra = QUICK + '[scaling]\nwindow = 2\ncool_down = 1\ngrow_above = 50\nshrink_below = 10\n'

    def becomes(self, sms):
        self.cluster.wait_for(lambda: self.cluster.vm('a')['gpu']['sms_granted'] == sms)

    def test_a_busy_programs_gpu_grows_and_an_idle_ones_shrinks(self):
        self.cluster.add_vm('a', GROUP, '256M', '--sms-min', str(GROUP),
                            '--sms-max', str(3 * GROUP), '--keep')
        tenant, first = self.cluster.run_program('a', 'work')
        self.assertEqual(first['sms'], GROUP)
        self.becomes(3 * GROUP)
        self.assertEqual(self.cluster.kinds('a').count('gpu-grown'), 2)
        lease = self.cluster.list('leases', 'a')[0]['lease']
        self.assertGreater(lease['launches'], 0)
        self.assertGreater(lease['busy_microseconds'], 0)
        self.assertLessEqual(lease['queued_microseconds'], lease['busy_microseconds'])
        said = self.cluster.ctl('explain', 'a')
        self.assertIn(f'it has {GROUP} to {3 * GROUP} multiprocessors, by its use', said)
        self.assertIn(f'last: {2 * GROUP} -> {3 * GROUP} multiprocessors: busy for', said)
        self.assertIn('by use', self.cluster.ctl('vms', 'a'))
        # Its program goes on in all of them, and has what it gave up again.
        self.assertIn('rests', self.cluster.poke(tenant))
        self.becomes(GROUP)
        self.assertIn('gpu-shrunk', self.cluster.kinds('a'))
        self.assertEqual(self.cluster.vm('a')['spec']['sms'], GROUP)
        self.assertIn('rests', self.cluster.poke(tenant))
        self.cluster.settle()

    def test_a_range_that_cannot_be_is_refused(self):
        self.cluster.add_vm('a')
        for least, most in (('0', '16'), ('16', '8'), ('9', '16'), ('8', '5000')):
            self.assertIn('in this order', self.cluster.ctl(
                'vm', 'set', 'a', '--sms-min', least, '--sms-max', most, status=2))
        self.cluster.ctl('vm', 'set', 'a', '--sms-min', '4', '--sms-max', '16')
        self.cluster.ctl('vm', 'set', 'a', '--sms-min', '0', '--sms-max', '0')
        self.assertEqual(self.cluster.vm('a')['spec'].get('sms_max', 0), 0)


if __name__ == '__main__':
    main(__name__)
