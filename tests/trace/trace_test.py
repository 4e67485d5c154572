#!/usr/bin/env python3
"""Tests of `flyt trace`: what it tells of programs, however they end. trace_test.py BUILD."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'tools'))
import flyt_process  # noqa: E402

BUILD = ''
KINDS = ('posted', 'waited', 'local', 'refused')


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = flyt_process.Server(BUILD, driver='soft').__enter__()
        cls.flyt = os.path.join(BUILD, 'bin', 'flyt')
        cls.subject = os.path.join(BUILD, 'tests', 'trace_subject')

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix='flyt-trace-test-')
        self.folder = self._folder.name
        self.addCleanup(self._folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder, name)

    def trace(self, *words, status=0, options=''):
        """Runs the command under flyt trace; the report's processes."""
        command = [self.flyt, 'trace', '--server', self.server.url + options, '--json', '--output',
                   self.path('report.json'), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        self.assertEqual(done.returncode, status, done.stderr)
        with open(self.path('report.json'), encoding='utf-8') as file:
            return json.load(file)['processes']

    def check_sums(self, process):
        """Each call is of one kind; the totals are the calls'."""
        totals = process['totals']
        calls = [call for call in process['calls'] if not call['name'].startswith('(')]
        self.assertEqual(totals['calls'], sum(totals[kind] for kind in KINDS))
        for kind in KINDS:
            self.assertEqual(totals[kind], sum(call[kind] for call in calls), kind)
        self.assertEqual(totals['own_waits'] + totals['our_waits'],
                         sum(call['waits'] for call in process['calls']))
        self.assertEqual(sum(call['bytes_sent'] for call in process['calls']),
                         sum(command['bytes_sent'] for command in process['commands']))

    def check_work(self, process, fills, times=1):
        calls = {call['name']: call for call in process['calls']}
        self.assertEqual(calls['cuMemsetD8Async']['posted'], fills * times)
        self.assertEqual(calls['cuMemsetD8Async']['wait_ns'], 0)
        self.assertEqual(calls['cuCtxSynchronize']['waited'], times)
        self.assertTrue(calls['cuCtxSynchronize']['sync_point'])
        self.assertEqual(calls['cuMemcpyDtoH_v2']['waited'], times)
        self.assertEqual(calls['cuMemAlloc_v2']['waits'], times)
        self.assertFalse(calls['cuMemAlloc_v2']['sync_point'])
        self.assertEqual(calls['cuCheckpointProcessUnlock']['refused'], times)
        self.assertEqual(calls['cuCheckpointProcessUnlock']['failed'], times)
        # One more where the GPU tells of the end of work: the memory for that is shared first.
        self.assertIn(process['totals']['own_waits'] - 2 * times, (0, 1))
        self.check_sums(process)

    def events(self):
        with open(self.path('chrome.json'), encoding='utf-8') as file:
            return json.load(file)['traceEvents']

    def test_tells_what_a_program_called(self):
        processes = self.trace('--', self.subject)
        self.assertEqual(len(processes), 1)
        self.assertEqual(processes[0]['program'], 'trace_subject')
        self.check_work(processes[0], 10)
        self.assertEqual(processes[0]['totals']['unended'], 0)

    def test_tells_what_a_killed_program_called(self):
        processes = self.trace('--chrome', self.path('chrome.json'), '--', self.subject, 'killed',
                               status=128 + signal.SIGKILL)
        self.check_work(processes[0], 10)
        names = [event['name'] for event in self.events() if event['ph'] == 'X']
        self.assertEqual(names.count('cuMemsetD8Async'), 10)

    def test_the_call_in_which_a_program_hung_is_named(self):
        process, = self.trace('--', self.subject, 'hangs', status=128 + signal.SIGKILL)
        calls = {call['name']: call for call in process['calls']}
        self.assertEqual(calls['cuCtxSynchronize']['unended'], 1)
        self.assertEqual(process['totals']['unended'], 1)

    def test_a_forked_child_is_a_process_of_its_own(self):
        processes = self.trace('--chrome', self.path('chrome.json'), '--', self.subject, 'forks')
        self.assertEqual(len(processes), 2)
        self.check_work(processes[0], 10)
        child = {call['name']: call for call in processes[1]['calls']}
        self.assertEqual(list(child), ['cuDeviceGetCount'])
        self.assertEqual(child['cuDeviceGetCount']['failed'], 3)
        self.assertEqual({event['pid'] for event in self.events()},
                         {process['process'] for process in processes})

    def test_threads_are_counted_together_and_drawn_apart(self):
        processes = self.trace('--chrome', self.path('chrome.json'), '--', self.subject, 'threads')
        self.check_work(processes[0], 50, 4)
        slices = [event for event in self.events() if event['ph'] == 'X']
        self.assertEqual(len(slices), processes[0]['totals']['calls'])
        self.assertEqual(len({event['tid'] for event in slices}), 5)
        waits = [event for event in slices if event['name'] == 'cuCtxSynchronize']
        self.assertTrue(all(0 < event['args']['wait_us'] <= event['dur'] for event in waits))
        self.check_arrows(slices)

    def check_arrows(self, slices):
        """Each has one beginning and one end, as Perfetto wants it: in the slice of a posted call,
        and later in the one of a synchronisation."""
        posted = {(event['tid'], event['ts']) for event in slices if event['cat'] == 'posted'}
        waits = [event for event in slices if event['name'] == 'cuCtxSynchronize']
        begun = {}
        ended = {}
        for event in self.events():
            if event['ph'] in 'sf':
                ends = begun if event['ph'] == 's' else ended
                self.assertNotIn(event['id'], ends)
                ends[event['id']] = event
        self.assertEqual(set(begun), set(ended))
        for name, event in begun.items():
            self.assertIn((event['tid'], event['ts']), posted)
            end = ended[name]
            self.assertGreaterEqual(end['ts'], event['ts'])
            self.assertTrue(any(wait['tid'] == end['tid'] and
                                wait['ts'] <= end['ts'] < wait['ts'] + wait['dur']
                                for wait in waits), end)
        fills = [event for event in slices if event['name'] == 'cuMemsetD8Async']
        starts = {(event['tid'], event['ts']) for event in begun.values()}
        self.assertTrue(starts.issuperset((event['tid'], event['ts']) for event in fills))

    def test_the_chrome_trace_is_bounded(self):
        processes = self.trace('--chrome', self.path('chrome.json'), '--events', '5', '--',
                               self.subject)
        slices = [event for event in self.events() if event['ph'] == 'X']
        self.assertEqual(len(slices), 5)
        self.assertEqual(processes[0]['events_dropped'], processes[0]['totals']['calls'] - 5)

    def test_programs_without_cuda_keep_their_status(self):
        self.assertEqual(self.trace('--', self.subject, 'nothing', status=3), [])

    def test_questions_that_the_server_need_not_answer_are_local(self):
        process, = self.trace('--', self.subject, 'polls')
        calls = {call['name']: call for call in process['calls']}
        asked = calls['cuEventQuery']
        self.assertEqual(asked['local'] + asked['waited'], 101)
        self.assertLessEqual(asked['waited'], 2)
        self.assertEqual(asked['waits'], asked['waited'])
        self.check_sums(process)

    def test_data_counts_where_it_travels(self):
        process, = self.trace('--', self.subject, options='?shm=off')
        self.check_work(process, 10)
        calls = {call['name']: call for call in process['calls']}
        self.assertGreaterEqual(calls['cuMemcpyDtoH_v2']['bytes_received'], 4096)

    def test_managed_memory_is_sent_only_where_it_is_not_shared(self):
        for options, sent in (('', False), ('?shm=off', True)):
            process, = self.trace('--', self.subject, 'managed', options=options)
            commands = {command['name'] for command in process['commands']}
            self.assertEqual('write_host' in commands, sent, options)
            self.assertEqual('share_host' in commands, not sent, options)

    def test_a_wait_right_after_a_copy_that_waited_asks_nothing(self):
        # On a busy machine some come too late to be right after.
        with unittest.mock.patch.dict(os.environ, FLYT_FENCE_US='20000'):
            process, = self.trace('--', self.subject, 'waits_twice')
        calls = {call['name']: call for call in process['calls']}
        copies, waits = calls['cuMemcpyHtoD_v2'], calls['cuCtxSynchronize']
        self.assertEqual(copies['posted'] + copies['waited'], 200)
        self.assertGreater(waits['local'], 0)
        self.check_sums(process)

    def test_signals_reach_the_program(self):
        command = [self.flyt, 'trace', '--server', self.server.url, '--', self.subject,
                   'signalled']
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            self.assertEqual(process.stdout.readline(), 'ready\n')
            process.send_signal(signal.SIGTERM)
            report = process.communicate(timeout=200)[1]
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertIn('1 refused', report)
        self.assertIn('cuMemsetD8Async', report)

    def test_a_program_that_cannot_start_is_told(self):
        command = [self.flyt, 'trace', '--server', self.server.url, '--', self.path('none')]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        self.assertEqual(done.returncode, 127)
        self.assertIn('cannot run', done.stderr)

    def report_at(self, place, *words, **more):
        command = [self.flyt, 'trace', '--server', self.server.url, '--output', place, '--', *words]
        return subprocess.run(command, text=True, check=False, timeout=200, **more)

    def test_a_report_goes_where_a_pipe_or_a_link_leads_and_leaves_them_there(self):
        os.mkfifo(self.path('pipe'))
        with subprocess.Popen(['cat', self.path('pipe')], stdout=subprocess.PIPE,
                              text=True) as reader:
            done = self.report_at(self.path('pipe'), 'true')
            self.assertEqual(done.returncode, 0)
            self.assertIn('no process called CUDA', reader.communicate(timeout=200)[0])
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path('pipe')).st_mode))
        os.symlink('report', self.path('link'))
        with open(self.path('report'), 'w', encoding='utf-8') as file:
            file.write('an older one')
        self.assertEqual(self.report_at(self.path('link'), 'true').returncode, 0)
        self.assertTrue(os.path.islink(self.path('link')))
        with open(self.path('report'), encoding='utf-8') as file:
            self.assertEqual(file.read(), 'no process called CUDA\n')

    def test_a_report_at_our_standard_output_follows_what_the_program_wrote(self):
        with open(self.path('all'), 'w', encoding='utf-8') as file:
            done = self.report_at(self.path('all'), 'echo', 'hi', stdout=file)
        self.assertEqual(done.returncode, 0)
        with open(self.path('all'), encoding='utf-8') as file:
            self.assertEqual(file.read(), 'hi\nno process called CUDA\n')

    def test_a_place_that_cannot_be_looked_at_is_told(self):
        done = self.report_at(self.path('x' * 300), 'true', stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 127)
        self.assertIn('File name too long', done.stderr)
        self.assertEqual(done.stderr.count('\n'), 1)

    def test_programs_started_otherwise_leave_recordings(self):
        environment = dict(os.environ, FLYT_SERVER=self.server.url,
                           FLYT_TRACE=self.path('recording'),
                           LD_LIBRARY_PATH=os.path.join(BUILD, 'lib', 'client'))
        with subprocess.Popen([self.subject], env=environment) as process:
            self.assertEqual(process.wait(timeout=200), 0)
        command = [self.flyt, 'trace', '--json', '--read', self.path(f'recording.{process.pid}')]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
        self.check_work(json.loads(done.stdout)['processes'][0], 10)

    def test_a_recording_that_cannot_be_made_harms_nobody(self):
        environment = dict(os.environ, FLYT_SERVER=self.server.url,
                           FLYT_TRACE=self.path('no/such/folder'),
                           LD_LIBRARY_PATH=os.path.join(BUILD, 'lib', 'client'))
        done = subprocess.run([self.subject], env=environment, capture_output=True, text=True,
                              check=False, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('calls are not traced', done.stderr)


if __name__ == '__main__':
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
