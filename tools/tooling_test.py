#!/usr/bin/env python3
"""Tests of the other tools: how test results are counted, logs read, and bundles judged."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), 'packaging')]
import bundle  # noqa: E402
import flyt_process  # noqa: E402
import test as test_tool  # noqa: E402

LOG = '''1/3 Testing: rpc_test
----------
[ RUN      ] Channel.Posts
[       OK ] Channel.Posts (1 ms)
[ RUN      ] Channel.Waits
[  FAILED  ] Channel.Waits (2 ms)
[ RUN      ] All/Pair.Of/3
[       OK ] All/Pair.Of/3 (0 ms)
[  SKIPPED ] Channel.Later (0 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Channel.Waits
Test Failed.
2/3 Testing: script
----------
Test Passed.
3/3 Testing: crashing_test
----------
[ RUN      ] A.B
[       OK ] A.B (0 ms)
Test Failed.
'''


class Totals(unittest.TestCase):
    def test_counts_single_tests_scripts_and_crashes(self):
        totals = test_tool.Totals()
        totals.add_log('dev', LOG, {'rpc_test': 'Failed', 'crashing_test': 'Exception'})
        self.assertEqual(totals.passed, 4)
        self.assertEqual(totals.skipped, 1)
        self.assertEqual(totals.failures, ['dev: rpc_test: Channel.Waits',
                                           'dev: crashing_test: Exception'])

    def test_reads_the_lines_of_ctest(self):
        for line, failed in (('1/3 Test  #1: a_test .....   Passed    0.03 sec', None),
                             ('2/3 Test #10: b_test ....***Failed    0.02 sec', '***'),
                             ('3/3 Test #11: c_test ...***Exception: SegFault  0.1 sec', '***'),
                             (' 4/14 Test  #2: d ....***Timeout 120.01 sec', '***')):
            self.assertEqual(test_tool.CTEST_LINE.match(line).group(2), failed, line)


    def test_an_entry_that_cannot_run_here_is_no_failure(self):
        totals = test_tool.Totals()
        totals.add_log('dev', LOG, {'crashing_test': 'Exception'}, {'rpc_test'})
        self.assertEqual(totals.skipped, 1)
        self.assertEqual(totals.failures, ['dev: crashing_test: Exception'])


class Logs(unittest.TestCase):
    def test_fields_with_and_without_quotes(self):
        line = 'time info server: session ended client_pid=7 device="A \\"b\\" c" x='
        self.assertEqual(flyt_process.fields_of(line), {'client_pid': '7', 'device': 'A "b" c'})


class Bundle(unittest.TestCase):
    def test_judges_libraries(self):
        for name, fits in (('libc.so.6', True), ('libstdc++.so.6', False), ('libzstd.so.1', False),
                           ('libcuda.so.1', True)):
            self.assertEqual(bool(bundle.SYSTEM_LIBRARIES.fullmatch(name)), fits, name)


if __name__ == '__main__':
    unittest.main()
