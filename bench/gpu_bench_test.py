#!/usr/bin/env python3
"""Tests of gpu_bench.py: its report, its workers, and a whole run.  gpu_bench_test.py [BUILD]

With a build folder the run goes over the software GPU, with workloads that only pretend.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gpu_bench  # noqa: E402
import gpu_report  # noqa: E402
import gpu_workloads  # noqa: E402
from flyt_process import Server  # noqa: E402

BUILD = ''

# Speaks as gpu_workloads.py does and needs no PyTorch; FLYT_SERVER tells that it is remote.
PRETENDER = '''import os, sys
remote = 'FLYT_SERVER' in os.environ
for line in sys.stdin:
    command, _, name = line.strip().partition(' ')
    print('noise that is no answer', file=sys.stderr)
    if command == 'hello':
        print('torch "0"'), print('cuda "0"')
    elif command == 'start':
        before = f'{__file__}.{remote}.{os.environ.get("FLYT_SERVER", "").find("delay")}'
        known = os.path.exists(before)
        open(before, 'w').close()
        print('first_tensor', 200 if remote else 100)
        print('first_inference', 300 if known else 900)
    elif command == 'prepare':
        print('check', '"other"' if remote and name == 'train' else '"same"')
    elif command == 'round' and name == 'gpt2' and remote:
        print('error "no such kernel"'), print('done 0', flush=True)
        continue
    elif command == 'round' and name == 'item' and not remote:
        sys.exit(3)
    elif command == 'round':
        print(name, 3 if remote else 2), print('processor', 4 if name == 'resnet_1' else 2)
    elif command == 'waits':
        print(name, '{"unit": "thing", "own_waits": 1.0, "our_waits": 0.5, "posted": 2,'
              ' "by_call": {"cuStreamSynchronize*": 1.0}}')
    print('done 1', flush=True)
'''


class Report(unittest.TestCase):
    def results(self):
        results = gpu_report.Results(['native', 'tcp', 'tcp+1ms'])
        for value in (1000, 3000, 2000):
            results.add('native', {'post_ns': value, 'done': 1})
            results.add('tcp', {'post_ns': value / 10})
        results.add('native', {'h2d_pinned_268435456_us': 5000.0})
        results.add('tcp', {'h2d_pinned_268435456_us': 50000.0})
        return results

    def test_shows_medians_ratios_and_noise(self):
        text = gpu_report.report(self.results())
        launch = next(line for line in text.splitlines() if 'posted launch' in line)
        self.assertEqual([cell.strip() for cell in launch.split('|')[2:-1]],
                         ['2000', '100%', '200', '0.10', '-', '-'])

    def test_shows_copies_as_rates_and_their_share(self):
        rows = gpu_report.figure_rows(self.results())
        self.assertEqual(rows[-1], ['to device, pinned, 256 MiB, GB/s', '53.69', '-', '5.37',
                                    '0.10', '-', '-'])

    def test_every_row_has_as_many_cells_as_the_head(self):
        for rows in (gpu_report.figure_rows(self.results()),):
            self.assertEqual({len(row) for row in rows}, {len(rows[0])})

    def test_waits_of_ways_that_counted_nothing_are_left_open(self):
        results = self.results()
        results.waits = {'tcp': {'gpt2': {'unit': 'token', 'own_waits': 2.0, 'our_waits': 0.015625,
                                          'by_call': {'cuMemcpyDtoHAsync_v2*': 2.0}}}}
        self.assertEqual(gpu_report.wait_rows(results)[1],
                         ['token (gpt2)', '2.000 + 0.016', 'cuMemcpyDtoHAsync_v2* 2'])

    def test_results_that_differ_are_named(self):
        results = self.results()
        results.checks = {'gpt2': {'native': 'a', 'tcp': 'a', 'tcp+1ms': 'b'},
                          'train': {'tcp': 'c'}}
        self.assertEqual(results.different(), ['gpt2 (tcp+1ms)'])
        self.assertIn('differ from native: gpt2 (tcp+1ms)', gpu_report.report(results))

    def test_is_json(self):
        stored = json.loads(json.dumps(self.results().as_json()))
        self.assertEqual(stored['medians']['tcp']['post_ns'], 200)
        self.assertEqual(stored['rounds']['native']['post_ns'], [1000, 3000, 2000])

    def disturbed(self, native, shm):
        """Results of rounds with (figure, processor)."""
        results = gpu_report.Results(['native', 'shm'])
        for way, rounds in (('native', native), ('shm', shm)):
            for value, processor in rounds:
                results.add(way, {'gpt2': value, 'processor': processor})
        return results

    def test_rounds_on_slow_processors_do_not_count(self):
        quiet = [(800, 2.0), (820, 2.1), (810, 2.3)]
        results = self.disturbed([*quiet, (1500, 4.0), (1600, 4.1), (1550, 3.9), (1500, 4.2)],
                                 quiet)
        self.assertEqual(results.median('native', 'gpt2'), 810)
        self.assertEqual(results.disturbed(), {'gpt2': {'native': '4 of 7'}})
        self.assertIn('They were: gpt2 native 4 of 7.', gpu_report.report(results))
        stored = json.loads(json.dumps(results.as_json()))
        self.assertEqual(stored['medians']['native']['gpt2'], 810)
        self.assertEqual(stored['processors']['native']['gpt2'][3], 4.0)
        self.assertEqual(len(stored['rounds']['native']['gpt2']), 7)

    def test_all_count_where_too_few_are_left(self):
        results = self.disturbed([(800, 2.0), (820, 2.1), (1500, 4.0), (1600, 4.1)], [(700, 4.0)])
        self.assertEqual(results.median('native', 'gpt2'), 1160)
        self.assertEqual(results.median('shm', 'gpt2'), 700)
        self.assertEqual(results.disturbed(), {'gpt2': {'native': '2 of 4, counted',
                                                        'shm': '1 of 1, counted'}})

    def test_what_counts_of_one_way_counts_of_all(self):
        results = self.disturbed([(800, 2.0)] * 3 + [(1500, 4.0)] * 4, [(700, 4.0)] * 3)
        self.assertEqual(results.median('native', 'gpt2'), 1500)
        self.assertEqual(results.median('shm', 'gpt2'), 700)

    def test_raw_sockets(self):
        results = self.results()
        results.raw = {'tcp_rtt_us': [10.0, 30.0, 20.0], 'tcp_streams_4_us': [26843.5456]}
        self.assertEqual(gpu_report.raw_rows(results)[1:],
                         [['tcp round trip of 64 bytes, us', '20.0'],
                          ['tcp, 256 MiB over 4 connections, GB/s', '10.00']])

    def test_copies_have_a_share_of_what_sockets_as_far_away_carry(self):
        results = gpu_report.Results(['native', 'tcp', 'tcp+1ms'])
        for way, us in (('native', 5000), ('tcp', 20000), ('tcp+1ms', 40000)):
            results.add(way, {'h2d_pinned_268435456_us': us})
        results.raw = {'tcp_streams_4_us': [30000.0], 'tcp_streams_8_us': [18000.0],
                       'tcp+1ms_streams_8_us': [36000.0]}
        self.assertEqual(gpu_report.share_rows(results),
                         [['tcp: to device, pinned, 256 MiB, of the fastest of these', '0.90'],
                          ['tcp+1ms: to device, pinned, 256 MiB, of the fastest of these',
                           '0.90']])


class Options(unittest.TestCase):
    def test_refuses_what_it_does_not_know(self):
        for words in (['--only', 'gpt3'], ['--transports', 'udp'], ['--repeat', 'x']):
            with self.assertRaises(SystemExit), open(os.devnull, 'w', encoding='utf-8') as nowhere:
                stderr, sys.stderr = sys.stderr, nowhere
                try:
                    gpu_bench.parse(words)
                finally:
                    sys.stderr = stderr

    def test_takes_delays(self):
        self.assertEqual(gpu_bench.parse(['--transports', 'unix,tcp+5ms']).transports,
                         'unix,tcp+5ms')


class Workers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='flyt-bench-test-')
        self.addCleanup(folder.cleanup)
        self.log = os.path.join(folder.name, 'log')

    def worker(self, program):
        worker = gpu_bench.Worker('subject', [sys.executable, '-c', program], self.log)
        self.addCleanup(worker.close)
        return worker

    def test_reads_figures_up_to_done(self):
        worker = self.worker('input(); print("a 1.5\\nb {\\"c\\": 2}\\ndone 1", flush=True)')
        self.assertEqual(worker.ask('go', 20), {'a': 1.5, 'b': {'c': 2}})

    def test_says_why_one_refused(self):
        worker = self.worker('input(); print("error \\"no\\"\\ndone 0", flush=True); input()')
        with self.assertRaisesRegex(gpu_bench.WorkerError, 'subject: go: no'):
            worker.ask('go', 20)
        self.assertTrue(worker.alive())

    def test_says_that_one_died(self):
        with self.assertRaisesRegex(gpu_bench.WorkerError, 'status 7; log: it hurts'):
            self.worker('import sys; input(); print("it hurts", file=sys.stderr); sys.exit(7)').ask(
                'go', 20)

    def test_ends_one_that_is_silent(self):
        worker = self.worker('import signal; input(); signal.pause()')
        with self.assertRaisesRegex(gpu_bench.WorkerError, 'too long'):
            worker.ask('go', 0.5)
        self.assertFalse(worker.alive())


class Processes(unittest.TestCase):
    def test_a_busy_process_uses_processor_time_and_has_a_family(self):
        before = gpu_bench.cpu_seconds(os.getpid())
        sum(range(3_000_000))
        self.assertGreater(gpu_bench.cpu_seconds(os.getpid()), before)
        self.assertIn(os.getpid(), gpu_bench.family(os.getppid()))
        self.assertEqual(gpu_bench.cpu_seconds(2 ** 22 + 1), 0)


class Yardstick(unittest.TestCase):
    def test_a_thread_that_looks_for_a_quiet_processor_may_run_on_all_afterwards(self):
        allowed = os.sched_getaffinity(0)
        processors = gpu_workloads.Processors()
        processors.quietest /= 1000  # None is that fast: it tries all.
        self.assertGreater(processors.settle(), 0)
        self.assertEqual(os.sched_getaffinity(0), allowed)


class WholeRun(unittest.TestCase):
    def setUp(self):
        if not BUILD:
            self.skipTest('no build folder')
        folder = tempfile.TemporaryDirectory(prefix='flyt-bench-test-')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_bench(self, *words):
        pretender = os.path.join(self.folder, 'pretender.py')
        with open(pretender, 'w', encoding='utf-8') as file:
            file.write(PRETENDER)
        sys.argv = ['gpu_bench.py', '--prefix', BUILD, '--out', os.path.join(self.folder, 'out'),
                    '--driver', 'soft', '--repeat', '2', '--minutes', '5', '--workloads', pretender,
                    *words]
        status = gpu_bench.main()
        with open(os.path.join(self.folder, 'out', 'gpu-bench.json'), encoding='utf-8') as file:
            return status, json.load(file)

    def test_the_driver_over_every_transport(self):
        status, found = self.run_bench('--quick', '--only', 'launches,idle', '--transports',
                                       'shm,unix,tcp,tcp+1ms')
        self.assertEqual((status, found['troubles']), (0, []))
        for way in ('native', 'shm', 'unix', 'tcp', 'tcp+1ms'):
            for figure in ('post_ns', 'post_cpu_ns', 'launch_sync_us', 'wait_us'):
                self.assertEqual(len(found['rounds'][way][figure]), 2, (way, figure))
                self.assertGreater(found['medians'][way][figure], 0, (way, figure))
            self.assertEqual(set(found['idle'][way]),
                             {'client'} if way == 'native' else {'client', 'server'})
        # A delay of 1 ms each way is in every wait and in no posted call.
        self.assertGreater(found['medians']['tcp+1ms']['wait_us'], 2000)
        self.assertLess(found['medians']['tcp+1ms']['post_ns'], 1_000_000)

    def test_copies(self):
        status, found = self.run_bench('--only', 'copies', '--transports', 'shm')
        self.assertEqual((status, found['troubles']), (0, []))
        for way in ('native', 'shm'):
            for figure, _ in gpu_report.COPIES:
                self.assertEqual(len(found['rounds'][way][figure]), 2, (way, figure))

    def test_waits_are_read_from_a_recording(self):
        with Server(BUILD, driver='soft') as server:
            prefix = os.path.join(self.folder, 'trace')
            library = os.path.join(BUILD, 'lib', 'client', 'libcuda.so.1')
            process = subprocess.Popen(
                [os.path.join(BUILD, 'bin', 'flyt-bench'), '--worker', 'start', '--library',
                 library], stdout=subprocess.DEVNULL,
                env=dict(os.environ, FLYT_TRACE=prefix, FLYT_SERVER=server.url))
            self.assertEqual(process.wait(60), 0)
            totals, calls = gpu_workloads.wait_counters(os.path.join(BUILD, 'bin', 'flyt'),
                                                        f'{prefix}.{process.pid}')
        self.assertGreaterEqual(calls['cuMemAlloc_v2'], 1)
        self.assertEqual(totals['own_waits'] + totals['our_waits'], sum(calls.values()))

    def test_work_that_fails_costs_only_its_own_figures(self):
        status, found = self.run_bench('--only', 'small_op,item,resnet_1,gpt2,start,waits',
                                       '--transports', 'shm,tcp+1ms')
        self.assertEqual(status, 1)
        self.assertEqual(found['medians']['shm']['small_op'], 3)
        self.assertEqual(found['medians']['native']['first_tensor'], 100)
        for way in ('native', 'shm', 'tcp+1ms'):
            self.assertEqual(found['rounds'][way]['first_inference'], [300] * 4)
        self.assertNotIn('gpt2', found['medians']['shm'])
        self.assertNotIn('item', found['medians']['native'])
        self.assertEqual(found['medians']['native']['resnet_1'], 2)
        self.assertEqual(found['different'], [])
        self.assertTrue(any('gpt2: no such kernel' in text for text in found['troubles']))
        self.assertTrue(any('status 3' in text for text in found['troubles']))
        self.assertEqual(list(found['waits']), ['shm'])

    def test_there_are_more_rounds_where_processors_were_slow(self):
        status, found = self.run_bench('--only', 'small_op,resnet_1', '--transports', 'shm',
                                       '--repeat', '3')
        self.assertEqual(status, 0)
        self.assertEqual(len(found['rounds']['native']['small_op']), 3)
        self.assertEqual(len(found['rounds']['native']['resnet_1']), 6)
        self.assertEqual(found['disturbed'], {'resnet_1': {'native': '6 of 6, counted',
                                                           'shm': '6 of 6, counted'}})

    def test_results_that_differ_fail_the_run(self):
        status, found = self.run_bench('--only', 'train', '--transports', 'shm')
        self.assertEqual((status, found['different']), (1, ['train (shm)']))


class Elastic(unittest.TestCase):
    def test_measures_leases_over_the_software_gpu(self):
        if not BUILD:
            self.skipTest('needs a build folder')
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [sys.executable, os.path.join(HERE, 'gpu_bench.py'), '--elastic', '--driver',
                 'soft', '--prefix', BUILD, '--out', out, '--quick', '--resizes', '20', '--only',
                 'isolation,resize,train'],
                env=dict(os.environ, FLYT_SOFTGPU_SMS='50'), capture_output=True, text=True,
                check=False, timeout=240)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(os.path.join(out, 'gpu-elastic.json'), encoding='utf-8') as file:
                found = json.load(file)
        self.assertEqual((found['groups'], found['group_sms'], found['last_sms']), (5, 8, 10))
        resize = found['resize']
        self.assertEqual((resize['resizes'], resize['late']), (20, 0))
        self.assertEqual((resize['kernels_equal'], resize['graphs_equal']), (1, 1))
        self.assertGreater(resize['effect_median_ms'], 0)
        self.assertEqual(len(found['isolation']['4_leases']['shares']), 4)
        self.assertEqual(found['isolation']['2_leases']['sms'], [24, 26])
        self.assertIn('2 leases of 24 or 26 multiprocessors', done.stdout)
        self.assertIn('5 groups of 8 multiprocessors and one of 10', done.stdout)


if __name__ == '__main__':
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        BUILD = sys.argv.pop(1)
    unittest.main()
