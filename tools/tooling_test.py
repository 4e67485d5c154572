#!/usr/bin/env python3
"""Tests of the other tools: how test results are counted, logs read, and bundles judged."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), 'packaging')]
import bundle  # noqa: E402
import bundle_libraries  # noqa: E402
import demo  # noqa: E402
import flyt_process  # noqa: E402
import lint  # noqa: E402
from flyt_lint import links  # noqa: E402
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


class Dev(unittest.TestCase):
    def dev(self, *words, folder=bundle.ROOT):
        return subprocess.run([os.path.join(folder, 'dev'), *words], capture_output=True, text=True,
                              check=False)

    def test_what_the_help_of_a_command_shows_is_completed(self):
        line = ('source tools/completion.bash; COMP_WORDS=(./dev "$@"); COMP_CWORD=$#; _flyt_dev;'
                ' echo "${COMPREPLY[@]}"')
        for command in self.dev('no-such-command').stderr.partition('there are: ')[2].split():
            shown = re.findall(r'(?<![\w-])--[a-z][a-z-]+', self.dev(command, '--help').stdout)
            found = subprocess.run(['bash', '-c', line, 'bash', command, '--'], cwd=bundle.ROOT,
                                   capture_output=True, text=True, check=True).stdout.split()
            self.assertEqual(set(shown) - set(found), set(), command)

    def test_what_it_does_not_know_is_refused_and_named(self):
        for words, said in ((['build', '--preset'], '--preset wants a name'),
                            (['build', '--quick'], "no option '--quick'"),
                            (['package', '--all'], "'package' takes no '--all'"),
                            (['bundle', 'all'], "'bundle' takes no 'all'"),
                            (['packages', '--help'], "no command 'packages'"),
                            (['help', 'packages'], "no command 'packages'"),
                            (['fmt', '--check', 'src/rcp'], 'no such file or folder: src/rcp')):
            done = self.dev(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr)
        done = subprocess.run([sys.executable, 'tools/lint.py', 'src/rcp'], cwd=bundle.ROOT,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn('no such file or folder: src/rcp', done.stderr)

    def test_the_whole_tree_is_a_folder_too(self):
        every = lint.only_below(['dev', 'src/a.cc', 'srcs/b.cc'], ['.'])
        self.assertEqual(every, ['dev', 'src/a.cc', 'srcs/b.cc'])
        self.assertEqual(lint.only_below(['src/a.cc', 'srcs/b.cc'], [f'{bundle.ROOT}/src']),
                         ['src/a.cc'])

    def test_who_reads_only_the_first_line_of_where_is_shown_no_trace(self):
        done = subprocess.run(['bash', '-c', './dev where cuEventQuery | true'], cwd=bundle.ROOT,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, '')

    def test_a_bundle_tells_what_needs_a_source_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(bundle.ROOT, 'dev'), folder)
            for command in ('build', 'test', 'lint', 'sim', 'where'):
                done = self.dev(command, folder=folder)
                self.assertEqual(done.returncode, 2, command)
                self.assertIn('needs a source tree', done.stderr)
            self.assertEqual(self.dev('help', folder=folder).returncode, 0)


class Totals(unittest.TestCase):
    def test_counts_single_tests_scripts_and_crashes(self):
        totals = test_tool.Totals()
        totals.add_log('dev', LOG, {'rpc_test': 'Failed', 'crashing_test': 'Exception'})
        self.assertEqual(totals.passed, 4)
        self.assertEqual(totals.skipped, 1)
        self.assertEqual(totals.failures, ['dev: rpc_test: Channel.Waits',
                                           'dev: crashing_test: Exception'])

    def test_tells_of_a_failure_what_one_needs(self):
        told = test_tool.what_failed('\n'.join(
            ['[ RUN      ] A.Good', 'fine', '[       OK ] A.Good (1 ms)',
             '[ RUN      ] A.Bad', 'why', '[  FAILED  ] A.Bad (1 ms)',
             '[==========] 2 tests from 1 test suite ran. (2 ms total)', '[  FAILED  ] A.Bad']))
        self.assertEqual(told, '[ RUN      ] A.Bad\nwhy\n[  FAILED  ] A.Bad (1 ms)')
        told = test_tool.what_failed('[ RUN      ] A.Crash\n' + 'x\n' * 500 + 'SEGV')
        self.assertTrue(told.endswith('SEGV'))
        self.assertEqual(len(told.splitlines()), test_tool.LINES_OF_THE_END)
        told = test_tool.what_failed('[ RUN      ] A.Long\n' + 'x\n' * 500
                                     + '[  FAILED  ] A.Long (1 ms)\n[ RUN      ] A.Crash\nSEGV')
        self.assertIn('... 382 lines ...', told)
        self.assertTrue(told.endswith('SEGV'))

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
    def test_its_documents_lead_to_what_it_has(self):
        at = {}
        for pattern, folder in bundle.SOURCES:
            for source in glob.glob(os.path.join(bundle.ROOT, pattern)):
                at[os.path.normpath(os.path.join(folder, os.path.basename(source)))] = source
        texts = {}
        for path, source in at.items():
            with open(source, 'rb') as file:
                texts[path] = file.read().decode() if path.endswith('.md') else ''
        dead = [f'{path}:{line}: {message}' for path, text in sorted(texts.items())
                for line, message in links.check(path, text, texts.get)]
        self.assertEqual(dead, [])

    FILES = {'bin/flyt', 'bin/flytctl', 'lib/control/libssl.so.3', 'lib/control/libz.so.1'}

    def problems(self, name, *needed, rpath=(), runpath=(), **more):
        elf = bundle_libraries.Elf(list(needed), list(rpath), list(runpath), **more)
        return list(bundle_libraries.elf_problems(elf, name, self.FILES))

    def test_an_archive_that_was_begun_in_vain_leaves_the_one_before(self):
        with tempfile.TemporaryDirectory() as folder:
            archive = os.path.join(folder, 'flyt-1.tar.gz')
            with open(archive, 'w', encoding='utf-8') as file:
                file.write('the one before')
            with self.assertRaises(subprocess.CalledProcessError):
                bundle.pack(os.path.join(folder, 'flyt-1'), folder)
            with open(archive, encoding='utf-8') as file:
                self.assertEqual(file.read(), 'the one before')
            os.mkdir(os.path.join(folder, 'flyt-1'))
            self.assertEqual(bundle.pack(os.path.join(folder, 'flyt-1'), folder), archive)
            self.assertEqual(sorted(os.listdir(folder)), ['flyt-1', 'flyt-1.tar.gz'])

    def test_judges_libraries(self):
        for name, fits in (('libc.so.6', True), ('libstdc++.so.6', False), ('libzstd.so.1', False),
                           ('libcuda.so.1', True)):
            self.assertEqual(self.problems('bin/flyt', name),
                             [] if fits else [f'bin/flyt needs {name}'])

    def test_only_managers_use_what_was_brought_along(self):
        ours = [bundle_libraries.PATH]
        self.assertEqual(self.problems('bin/flytctl', 'libssl.so.3', 'libc.so.6', rpath=ours), [])
        self.assertEqual(self.problems('lib/control/libssl.so.3', 'libz.so.1'), [])
        for name, rpath in (('bin/flyt', ()), ('lib/client/libcuda.so.1', ours)):
            self.assertEqual(self.problems(name, 'libssl.so.3', rpath=rpath),
                             [f'{name} needs libssl.so.3'])

    def test_refuses_what_was_not_brought_along(self):
        self.assertEqual(self.problems('bin/flytctl', 'libgrpc.so.29',
                                       rpath=[bundle_libraries.PATH]),
                         ['bin/flytctl needs libgrpc.so.29'])
        self.assertEqual(self.problems('lib/control/libssl.so.3', 'libcrypto.so.3'),
                         ['lib/control/libssl.so.3 needs libcrypto.so.3'])

    def test_refuses_paths_by_which_libraries_are_not_found_or_elsewhere(self):
        # RUNPATH is not for what a library needs in turn; one of a library's own hides RPATH.
        ours = [bundle_libraries.PATH]
        self.assertEqual(len(self.problems('bin/flytctl', 'libssl.so.3', runpath=ours)), 1)
        self.assertEqual(len(self.problems('bin/flytctl', 'libssl.so.3')), 1)
        self.assertEqual(len(self.problems('bin/flytctl', rpath=ours + ['$ORIGIN/../lib'])), 1)
        self.assertEqual(len(self.problems('lib/control/libz.so.1', runpath=['$ORIGIN'])), 1)
        self.assertEqual(self.problems('bin/flyt', runpath=['/opt/lib']),
                         ['bin/flyt looks for libraries in /opt/lib'])

    def test_refuses_a_newer_or_private_glibc(self):
        self.assertEqual(self.problems('bin/flyt', glibc=(2, 36)), [])
        self.assertEqual(self.problems('bin/flyt', glibc=(2, 38)), ['bin/flyt needs glibc 2.38'])
        self.assertEqual(len(self.problems('lib/control/libz.so.1', private=True)), 1)

    def test_refuses_libraries_without_a_licence(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(list(bundle_libraries.missing_licences(folder, set()))), 1)
            licences = os.path.join(folder, bundle_libraries.LICENCES)
            os.makedirs(licences)
            for path in ('libssl.so.3', 'libz.so.1', 'licences/zlib1g'):
                with open(os.path.join(folder, 'lib/control', path), 'w', encoding='utf-8'):
                    pass
            with open(os.path.join(folder, 'lib/control/README'), 'w', encoding='utf-8') as file:
                file.write('What is here.\nlibssl.so.3   libssl3 3.0\nlibz.so.1   zlib1g 1.2\n')
            found = bundle_libraries.missing_licences(folder, bundle.files_of(folder))
            self.assertEqual(list(found), ['lib/control/libssl.so.3 is without a licence'])

    def test_reads_what_a_file_says_to_the_loader(self):
        elf = bundle_libraries.read_elf(os.path.realpath('/bin/ls'))
        self.assertIn('libc.so.6', elf.needed)
        self.assertGreater(elf.glibc, (2, 0))
        self.assertEqual((elf.rpath, elf.runpath, elf.private), ([], [], False))


class Demo(unittest.TestCase):
    def test_what_a_compiler_left_half_is_no_program(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, 'a.cu')
            compiler = os.path.join(folder, 'nvcc')
            with open(source, 'w', encoding='utf-8') as file:
                file.write('int main() {}\n')

            def compiles(script):
                with open(compiler, 'w', encoding='utf-8') as file:
                    file.write(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n{script}\n')
                os.chmod(compiler, 0o755)
                os.utime(source, (1, 1))
                return demo.compile_cuda(compiler, source, 'static', folder)
            self.assertEqual(compiles('echo half >"$2"; echo cut off; exit 1'),
                             (None, 'cut off\n'))
            program, error = compiles('echo whole >"$2"')
            self.assertEqual(error, '')
            with open(program, encoding='utf-8') as file:
                self.assertEqual(file.read(), 'whole\n')


if __name__ == '__main__':
    unittest.main()
