#!/usr/bin/env python3
"""Errors that a GPU's driver has numbered (Xids), on software GPUs. xid_test.py BUILD."""

import os
import re
import shutil
import signal
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon_process import free_port  # noqa: E402
from node_process import GROUP, NodeTest, main  # noqa: E402

TOKEN = '0123456789abcdef'
OFF_THE_BUS = 'Xid 79 (the GPU has fallen off the bus)'


class Xids(NodeTest):
    """Each is counted and told of; after some of them a GPU has failed."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='flyt-xid-')
        os.environ['FLYT_SOFTGPU_LOST'] = cls.folder
        cls.pages = f'127.0.0.1:{free_port()}'
        with open(f'{cls.folder}/token', 'w', encoding='utf-8') as file:
            file.write(TOKEN)
        cls.extra = (f'[leases]\nrecover_seconds = 30\n'
                     f'[metrics]\nlisten = "{cls.pages}"\ntoken = "{cls.folder}/token"\n')
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        del os.environ['FLYT_SOFTGPU_LOST']
        shutil.rmtree(cls.folder)

    def tearDown(self):
        # A manager that was stopped in order trusts its GPUs again.
        if self.node.process is not None:
            self.node.stop()
        super().tearDown()

    def cause(self, gpu, *numbers):
        with open(f'{self.folder}/xid-{gpu}', 'a', encoding='utf-8') as file:
            file.write(''.join(f'{number}\n' for number in numbers))

    def counts(self, gpu):
        request = urllib.request.Request(f'http://{self.pages}/metrics',
                                         headers={'Authorization': f'Bearer {TOKEN}'})
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = re.findall(rf'^flyt_gpu_xid_total{{gpu="{gpu}",uuid="SOFT-{gpu}",'
                               rf'xid="(\w+)"}} (\d+)$', answer.read().decode(), re.M)
        return {number: int(count) for number, count in found}

    def count(self, gpu, number):
        return self.counts(gpu).get(str(number))

    def told(self, since=0):
        return [event['text'] for event in self.node.events()[since:]
                if event['kind'] == 'gpu-xid']

    def state(self, name):
        return self.node.leases()[name]['state']

    def test_what_programs_cause_is_counted_and_told_of_and_costs_nobody_his_gpu(self):
        before = len(self.node.events())
        lease = self.node.create('a', GROUP, '64M', '--gpu', '0')
        tenant, _ = self.node.hold('a', 16)
        self.assertIsNone(self.count(0, 31))
        self.cause(0, 31, 31, 45)
        self.node.wait_for(lambda: self.count(0, 45))
        self.assertEqual(self.count(0, 31), 2)
        self.assertIsNone(self.count(1, 31))
        # However many there are of a number, they are told of once a minute; others at once.
        self.cause(0, *[31] * 500)
        self.node.wait_for(lambda: self.count(0, 31) == 502)
        self.cause(0, 63)
        self.node.wait_for(lambda: len(self.told(before)) == 2)
        self.assertEqual(self.told(before), [
            'GPU 0: Xid 31 (access to memory that is not mapped: MMU fault), 2 times; '
            'Xid 45 (a channel was cleaned up: its program has ended, or there was an error)',
            'GPU 0: Xid 63 (a row of memory will be remapped at the next reset)'])
        self.assertRegex(self.node.log(), r'Xid gpu=0 uuid=SOFT-0 xid=31 times=2 text="Xid 31 ')
        self.assertEqual(self.node.leases()['a']['server_pid'], lease['server_pid'])
        self.assertEqual(self.state('a'), 'running')
        self.assertIn('kept', self.node.poke(tenant))
        self.assertEqual(self.node.ctl('health'), 'healthy\n')

    def test_after_some_the_gpu_has_failed(self):
        first = self.node.create('a', GROUP, '64M', '--gpu', '0')
        self.node.create('b', GROUP, '64M', '--gpu', '1')
        here, _ = self.node.hold('a', 16)
        there, _ = self.node.hold('b', 16)
        self.assertEqual(self.count(0, 79), 0)
        self.cause(0, 79)
        self.node.wait_for(lambda: self.state('a') == 'lost')
        self.assertEqual(self.node.leases()['a']['state_reason'],
                         f'its GPU has failed: {OFF_THE_BUS}')
        self.node.wait_for(lambda: first['server_pid'] not in self.node.servers().values())
        self.assertNotIn('kept', self.node.poke(here))
        self.assertIn(f'GPU 0 has failed: {OFF_THE_BUS}', self.node.ctl('describe'))
        self.assertIn(f'GPU 0 has failed: {OFF_THE_BUS}', self.node.ctl('health', status=1))
        self.assertEqual(self.count(0, 79), 1)
        self.assertIn(f'GPU 0: {OFF_THE_BUS}', self.told())
        self.assertEqual(self.node.kinds(first).count('gpu-failed'), 1)
        self.assertIn('kept', self.node.poke(there))
        # Nobody has repaired it because a manager was killed.
        self.node.stop(signal.SIGKILL)
        self.node.start()
        self.assertEqual(self.node.leases()['a']['state_reason'],
                         f'its GPU has failed: {OFF_THE_BUS}')
        self.assertEqual(self.state('b'), 'running')
        self.assertIn('kept', self.node.poke(there))
        self.assertNotIn('server-restarted', self.node.kinds(first))
        # Who stops it may have.
        self.node.stop()
        self.node.start()
        self.node.wait_for(lambda: self.state('a') == 'running')
        self.assertIn('holds', self.node.hold('a', 16)[1])
        self.assertIn('kept', self.node.poke(there))

    def test_each_that_no_program_causes_has_one_of_the_alerts(self):
        rules = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'packaging',
                             'monitoring', 'prometheus-rules.yml')
        with open(rules, encoding='utf-8') as file:
            patterns = re.findall(r'flyt_gpu_xid_total{xid=~"([^"]*)"}', file.read())
        self.assertEqual(len(patterns), 2)
        counts = self.counts(1)
        self.assertIn('79', counts)
        for number in range(256):
            asked = [pattern for pattern in patterns if re.fullmatch(pattern, str(number))]
            self.assertEqual(len(asked), 1 if str(number) in counts else 0, f'Xid {number}')


if __name__ == '__main__':
    main(__name__)
