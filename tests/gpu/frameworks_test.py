#!/usr/bin/env python3
"""Tests of the framework items' runner: what it judges, and a run.  frameworks_test.py [BUILD]

With a build folder, programs that only pretend run natively and over the software GPU.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import framework_steps  # noqa: E402
import frameworks  # noqa: E402
import run  # noqa: E402

BUILD = ''

# Takes the arguments of frameworks.py; FLYT_SERVER tells that it is remote.
PRETENDER = '''import json, os, sys, time
item, path = sys.argv[1:]
remote = 'FLYT_SERVER' in os.environ
print(item, 'says something')
if item == 'fft' and remote or item == 'sparse':
    sys.exit(4)
found = {'a': 1, 'b': 'raises ValueError'}
if item == 'linalg' and remote:
    found['a'] = 2
if item == 'triton':
    found['a'] = time.monotonic_ns()
if item == 'gpt2':
    json.dump({'skipped': 'no such thing'}, open(path, 'w'))
elif not (item == 'cupy' and remote):
    drivers = ['/usr/lib/libcuda.so.1'] if item == 'jax' else []
    json.dump({'equal': found, 'drivers': drivers}, open(path, 'w'))
'''


class Items(unittest.TestCase):
    def test_each_has_a_function_in_its_module(self):
        for item, module in (frameworks.ITEMS | frameworks.PARTS).items():
            with open(os.path.join(HERE, f'{module}.py'), encoding='utf-8') as file:
                tree = ast.parse(file.read())
            functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
            self.assertIn((item, ['found']),
                          [(one.name, [a.arg for a in one.args.args]) for one in functions])

    def test_are_chosen_by_name_or_all(self):
        self.assertEqual(framework_steps.selected(['frameworks']), list(frameworks.ITEMS))
        self.assertEqual(framework_steps.selected(['torch', 'frameworks:jax']), ['jax'])

    def test_a_module_that_is_missing_skips_an_item(self):
        frameworks.ITEMS['nonsense'] = 'no_such_module'
        self.addCleanup(frameworks.ITEMS.pop, 'nonsense')
        self.assertEqual(frameworks.run('nonsense'), {'skipped': 'no_such_module is not installed'})

    def test_what_raises_is_kept_as_that(self):
        found = frameworks.Found()
        stderr, sys.stderr = sys.stderr, open(os.devnull, 'w', encoding='utf-8')
        try:
            found.keep('division', lambda: 1 / 0)
        finally:
            sys.stderr.close()
            sys.stderr = stderr
        found.keep('numbers', lambda: [1, (0.1, None), {'a': True}])
        self.assertEqual(found.equal, {'division': 'raises ZeroDivisionError',
                                       'numbers': [1, ['0.1', None], {'a': True}]})


class Judgement(unittest.TestCase):
    def judge(self, native, remote, again=None):
        return framework_steps.judge(*({'equal': one} if one is not None else None
                                       for one in (native, remote)),
                                     lambda: again and {'equal': again})

    def test_equal_results_pass(self):
        self.assertEqual(self.judge({'a': 1}, {'a': 1}), ('yes', '1 results'))

    def test_what_raises_in_both_is_told(self):
        self.assertEqual(self.judge({'a': 'raises E', 'b': 2}, {'a': 'raises E', 'b': 2}),
                         ('yes', '2 results; raise in both: a'))

    def test_results_that_differ_only_remotely_fail(self):
        self.assertEqual(self.judge({'a': 1, 'b': 2}, {'a': 1, 'b': 3}, {'a': 1, 'b': 2}),
                         ('NO', 'differs: b'))
        self.assertEqual(self.judge({'a': 1}, {'a': 'raises E'}, {'a': 1}),
                         ('NO', 'differs: a (raises E)'))

    def test_a_result_that_is_missing_on_either_side_differs(self):
        self.assertEqual(self.judge({'a': 1, 'b': 2}, {'a': 1}, {'a': 1, 'b': 2})[0], 'NO')
        self.assertEqual(self.judge({'a': 1}, {'a': 1, 'c': 2}, {'a': 1})[0], 'NO')

    def test_what_native_cannot_repeat_is_no_fault_of_ours(self):
        self.assertEqual(self.judge({'a': 1}, {'a': 2}, {'a': 3}),
                         ('skipped', 'native is not reproducible: a'))
        # But the rest still counts, and a second run that failed excuses nothing.
        self.assertEqual(self.judge({'a': 1, 'b': 1}, {'a': 2, 'b': 2}, {'a': 3, 'b': 1}),
                         ('NO', 'differs: b'))
        self.assertEqual(self.judge({'a': 1}, {'a': 2}, None)[0], 'NO')

    def test_a_little_that_native_cannot_repeat_leaves_the_rest(self):
        self.assertEqual(self.judge({'a': 1, 'b': 1, 'c': 1}, {'a': 2, 'b': 1, 'c': 1},
                                    {'a': 3, 'b': 1, 'c': 1}),
                         ('yes', '2 results; native is not reproducible: a'))

    def test_what_comes_out_differently_natively_in_some_process_is_no_fault_of_ours(self):
        asked = []

        def tried(values):
            def native_values(names):
                asked.append(list(names))
                return values.pop(0) if values else None
            return native_values

        def judge(*values):
            asked.clear()
            return framework_steps.judge(
                {'equal': {'a': 1, 'b': 1, 'c': 1}}, {'equal': {'a': 2, 'b': 2, 'c': 1}},
                lambda: {'equal': {'a': 1, 'b': 1, 'c': 1}}, tried(list(values)))

        self.assertEqual(judge({'a': [1, 5], 'b': [1]}, {'b': [3]}),
                         ('skipped', 'native is not reproducible: a, b'))
        self.assertEqual(asked, [['a', 'b'], ['b']])
        self.assertEqual(judge({'a': [1, 5], 'b': [1]}), ('NO', 'differs: b'))
        self.assertEqual(judge(), ('NO', 'differs: a, b'))
        # No name is tried for ever.
        always = [{'a': [1], 'b': [1]}] * (framework_steps.NATIVE_PROCESSES_MAX + 1)
        self.assertEqual(judge(*always), ('NO', 'differs: a, b'))
        self.assertEqual(len(asked), framework_steps.NATIVE_PROCESSES_MAX)

    def test_names_alone_are_worked_out_several_times(self):
        count = iter(range(1000))
        found = frameworks.Found(['b', 'c'])
        for name, make in {'a': lambda: self.fail(), 'b': lambda: next(count) % 3,
                           'c': lambda: 7}.items():
            found.keep(name, make)
        self.assertEqual(found.equal, {'b': [0, 1, 2], 'c': [7]})

    def test_skipping_only_remotely_fails(self):
        self.assertEqual(framework_steps.judge({'equal': {}}, {'skipped': 'x'}, dict),
                         ('NO', 'only remotely: x'))


class Options(unittest.TestCase):
    def test_frameworks_are_a_group(self):
        self.assertEqual(run.parse(['--frameworks']).names, ['frameworks'])
        self.assertEqual(run.parse(['--frameworks', '--only', 'nvml']).names,
                         ['nvml', 'frameworks'])
        self.assertEqual(run.parse([]).names, [])


class Help(unittest.TestCase):
    def test_each_item_is_in_the_help(self):
        shown = subprocess.run([os.path.join(ROOT, 'dev'), 'gpu-test', '--help'], text=True,
                               capture_output=True, check=True, timeout=60).stdout
        items = shown.partition('--frameworks runs')[2].partition('--only takes')[0]
        self.assertEqual(set(framework_steps.selected(['frameworks'])) - set(items.split()), set())


class WholeRun(unittest.TestCase):
    def setUp(self):
        if not BUILD:
            self.skipTest('no build folder')
        folder = tempfile.TemporaryDirectory(prefix='flyt-frameworks-test-')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        script = os.path.join(self.folder, 'pretender.py')
        with open(script, 'w', encoding='utf-8') as file:
            file.write(PRETENDER)
        self.addCleanup(setattr, framework_steps, 'SCRIPT', framework_steps.SCRIPT)
        framework_steps.SCRIPT = script

    def test_compares_over_both_transports(self):
        sys.argv = ['run.py', '--prefix', BUILD, '--out', self.folder, '--driver', 'soft',
                    '--transport', 'both', '--jobs', '2', '--only', ','.join(
                        f'frameworks:{item}' for item in
                        ('attention', 'fft', 'sparse', 'linalg', 'triton', 'gpt2', 'cupy', 'jax'))]
        self.assertEqual(run.main(), 1)
        with open(os.path.join(self.folder, 'summary.json'), encoding='utf-8') as file:
            rows = {row['name']: types.SimpleNamespace(**row) for row in json.load(file)}
        for transport in ('shm', 'tcp'):
            self.assertEqual(rows[f'attention {transport}'].equal, 'yes')
            self.assertIn('process, s', rows[f'attention {transport}'].times)
            self.assertEqual(rows[f'fft {transport}'].remote, 'failed (4)')
            self.assertEqual(rows[f'fft {transport}'].equal, 'NO')
            self.assertEqual(rows[f'linalg {transport}'].note, 'differs: a')
            self.assertEqual(rows[f'triton {transport}'].equal, 'skipped')
            self.assertEqual(rows[f'cupy {transport}'].equal, 'NO')
            self.assertEqual(rows[f'jax {transport}'].note,
                             'not remote: used /usr/lib/libcuda.so.1')
        self.assertEqual((rows['gpt2'].equal, rows['gpt2'].note), ('skipped', 'no such thing'))
        self.assertEqual((rows['sparse'].equal, rows['sparse'].native), ('skipped', 'failed (4)'))
        self.assertEqual(len(rows), 14)


if __name__ == '__main__':
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        BUILD = sys.argv.pop(1)
    unittest.main()
