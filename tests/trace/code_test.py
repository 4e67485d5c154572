#!/usr/bin/env python3
"""Tests of the server's store of code: what is sent the first time, and not again.
code_test.py BUILD."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'tools'))
import flyt_process  # noqa: E402

BUILD = ''
TCP = 'tcp://127.0.0.1:0'
# vector_add loads one module, PTX of about 30 KB, which packs to less than half of that. On a busy
# machine any server may seem far away.
CODE_BYTES = 16 * 1024
PACKED_BYTES_MIN = 1024


class Code(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix='flyt-code-test-')
        self.folder = self._folder.name
        self.addCleanup(self._folder.cleanup)
        self.store = os.path.join(self.folder, 'modules')

    def server(self, url=None, store=None):
        server = flyt_process.Server(BUILD, driver='soft', url=url,
                                     arguments=('--module-cache', store or self.store))
        server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        return server

    def trace(self, url):
        """What one run of the sample sent: commands by name, and the call that loads its module."""
        report = os.path.join(self.folder, 'report.json')
        command = [os.path.join(BUILD, 'bin', 'flyt'), 'trace', '--server', url, '--json',
                   '--output', report, '--', os.path.join(BUILD, 'samples', 'vector_add')]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(report, encoding='utf-8') as file:
            process = json.load(file)['processes'][0]
        loads = [call for call in process['calls'] if call['name'] == 'cuModuleLoadData']
        return {command['name']: command for command in process['commands']}, loads[0]

    def assert_sent(self, url):
        commands, load = self.trace(url)
        self.assertGreater(commands['upload']['bytes_sent'], PACKED_BYTES_MIN)
        return commands, load

    def assert_not_sent(self, url):
        commands, load = self.trace(url)
        self.assertNotIn('upload', commands)
        self.assertEqual(load['waits'], 1)
        self.assertLess(load['bytes_sent'], 400)

    def entries(self, tenant='tcp-127.0.0.1'):
        return glob.glob(os.path.join(self.store, tenant, '[0-9a-f]*'))

    def test_a_second_start_sends_no_code(self):
        url = self.server(TCP).url
        self.assertEqual(self.assert_sent(url)[1]['waits'], 2)
        self.assert_not_sent(url)
        self.assertEqual(len(self.entries()), 1)

    def test_code_outlives_the_server(self):
        self.assert_sent(self.server(TCP).url)
        self.assert_not_sent(self.server(TCP).url)

    def test_within_a_machine_it_is_the_same_unless_asked_otherwise(self):
        url = self.server().url
        for _ in range(2):
            commands, load = self.assert_sent(url + '?code=send')
            self.assertNotIn('describe_upload', commands)
            self.assertGreater(commands['upload']['bytes_sent'], CODE_BYTES)
            self.assertEqual(load['waits'], 1)
        self.assertEqual(self.assert_sent(url)[1]['waits'], 2)
        self.assert_not_sent(url)

    def test_tenants_do_not_share(self):
        self.assert_sent(self.server(TCP).url)
        url = self.server().url
        self.assertEqual(self.assert_sent(url)[1]['waits'], 2)
        self.assertEqual(len(self.entries(f'unix-{os.getuid()}')), 1)

    def test_a_server_without_a_store_is_asked_once_only(self):
        url = self.server(TCP, 'off').url
        for _ in range(2):
            commands, load = self.assert_sent(url)
            # Once more where the code was packed.
            self.assertLessEqual(commands['describe_upload']['sent'], 2)
            self.assertEqual(load['waits'], 2)

    def test_damaged_code_is_sent_again(self):
        url = self.server(TCP).url
        self.assert_sent(url)
        with open(self.entries()[0], 'r+b') as file:
            file.seek(1000)
            file.write(b'damaged, no doubt')
        self.assert_sent(url)
        self.assert_not_sent(url)

    def test_a_store_that_cannot_be_used_harms_nobody(self):
        with open(self.store, 'w', encoding='utf-8') as file:
            file.write('in the way')
        server = self.server(TCP)
        for _ in range(2):
            self.assert_sent(server.url)
        self.assertIn('code is not kept', server.log())

    def test_code_can_be_packed(self):
        url = self.server(TCP).url
        commands, _ = self.trace(url + '?code=pack')
        self.assertLess(commands['upload']['bytes_sent'], CODE_BYTES)
        self.assert_not_sent(url)

    def test_code_is_packed_where_the_server_is_far(self):
        url = self.server(TCP).url
        commands, _ = self.trace(url + '?delay=20ms')
        self.assertLess(commands['upload']['bytes_sent'], CODE_BYTES)
        self.assert_not_sent(url)

    def test_many_programs_fill_it_at_once(self):
        url = self.server(TCP).url
        command = [os.path.join(BUILD, 'bin', 'flyt'), 'run', '--server', url, '--',
                   os.path.join(BUILD, 'samples', 'vector_add')]
        programs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(4)]
        self.assertEqual([program.wait(timeout=200) for program in programs], [0] * 4)
        self.assertEqual(len(self.entries()), 1)


if __name__ == '__main__':
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
