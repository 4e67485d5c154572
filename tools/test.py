#!/usr/bin/env python3
"""What CI runs: lint, then each preset built and tested.  The last line is 'N passed, N failed'.

    tools/test.py                            lint, dev (ASan + UBSan), release
    tools/test.py --quick                    lint and dev
    tools/test.py --preset tsan              lint and that preset
    tools/test.py --quick --filter 'rpc|wire'
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Test programs mostly wait: two at a time left the cores idle for 60 % of the optimised build's.
JOBS = 2 * (os.cpu_count() or 2)
GTEST_LINE = re.compile(r'^\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+)(?:, where .*)? \(\d+ ms\)$', re.M)
GTEST_END = re.compile(r'^\[==========\] .* ran\.', re.M)
ENTRY = re.compile(r'^\d+/\d+ Testing: (\S+)$', re.M)
# Of an entry that failed; the whole of it is in ctest's log.
LINES_OF_A_CASE = 120
LINES_OF_THE_END = 100
# For thousands of short processes: each would keep 256 MiB of what it freed, and note 30 frames
# for each piece of memory. Undefined behaviour traps: ASan tells where.
ASAN_OPTIONS = 'quarantine_size_mb=16:malloc_context_size=12:handle_sigill=1'
# With ThreadSanitizer: where threads of the client library, the server and the software GPU meet.
PARTS = {'tsan': (
    ['flyt_rpc_test', 'flyt_transport_test', 'client_test', 'server_test', 'flyt_conformance',
     'flyt_libcuda', 'flyt_libsoftgpu', 'flyt-server', 'flyt_recovery_tests', 'flyt_kill'],
    '^(flyt_rpc_test|flyt_transport_test|client_test|server_test|conformance_.*|flyt_recovery.*'
    '|flyt_kill)$')}
RACE = re.compile(r'^SUMMARY: ThreadSanitizer: (.*)$', re.M)
CTEST_LINE = re.compile(r'^\s*\d+/\d+ Test\s+#\d+: (\S+) \.*\s*(\*\*\*)?(\w+)')


def what_failed(text):
    """Of what a test program printed, what tells why it failed: its failed cases, each from its
    first line on, and its end where it did not come to an orderly one."""
    lines = text.rstrip().splitlines()
    parts = []
    started = 0
    for at, line in enumerate(lines):
        if line.startswith('[ RUN      ] '):
            started = at
        elif line.startswith('[  FAILED  ] ') and GTEST_LINE.match(line):
            case = lines[started:at + 1]
            if len(case) > LINES_OF_A_CASE:
                half = LINES_OF_A_CASE // 2
                case = case[:half] + [f'... {len(case) - 2 * half} lines ...'] + case[-half:]
            parts.append(case)
    if not parts or not GTEST_END.search(text):
        parts.append(lines[-LINES_OF_THE_END:])
    return '\n'.join(line for part in parts for line in part)


class Totals:
    """Counts of single tests: a gtest binary counts as the tests in it, anything else as one."""

    def __init__(self):
        self.passed = 0
        self.failures = []
        self.skipped = 0

    def add(self, what, passed):
        if passed:
            self.passed += 1
        else:
            self.failures.append(what)

    def add_log(self, preset, log, failed_entries, skipped_entries=()):
        """Reads ctest's LastTest.log; failed_entries tells which entries failed, and why;
        skipped_entries, which said that they cannot run here."""
        parts = ENTRY.split(log)[1:]
        for name, text in zip(parts[0::2], parts[1::2]):
            if name in skipped_entries:
                self.skipped += 1
                continue
            cases = GTEST_LINE.findall(text)
            # An entry that passed expects the failures it prints (conformance lists them).
            bad = [case for verdict, case in cases
                   if verdict == 'FAILED' and name in failed_entries]
            self.passed += sum(verdict == 'OK' for verdict, _ in cases)
            self.skipped += sum(verdict == 'SKIPPED' for verdict, _ in cases)
            self.failures += [f'{preset}: {name}: {case}' for case in dict.fromkeys(bad)]
            if name in failed_entries and not bad:
                self.failures.append(f'{preset}: {name}: {failed_entries[name]}')
            elif name not in failed_entries and not cases:
                self.passed += 1


def say(text):
    print(text, flush=True)


def run(command, **more):
    return subprocess.run(command, cwd=ROOT, check=False, **more).returncode


class Aside:
    """A check that goes on beside others. What it says is said in one piece, once it is done."""

    def __init__(self, name, command):
        self.name = name
        self.passed = False
        self.thread = threading.Thread(target=self.work, args=(command,))
        self.thread.start()

    def work(self, command):
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace')
        self.passed = done.returncode == 0
        seconds = time.monotonic() - started
        say(f'== {self.name}\n{done.stdout.rstrip()}\n== {self.name}: {seconds:.0f} s')

    def wait(self, totals):
        self.thread.join()
        totals.add(self.name, self.passed)


def build(preset, totals):
    started = time.monotonic()
    say(f'== {preset}: building')
    built = run(['tools/build.sh', preset, *PARTS.get(preset, ([], ''))[0]]) == 0
    totals.add(f'{preset}: build', built)
    say(f'== {preset}: {"built" if built else "NOT BUILT"} in {time.monotonic() - started:.0f} s')
    return built


class Races:
    """What ThreadSanitizer reports, in whatever process: of a server a test sees neither the exit
    status nor what it prints."""

    def __init__(self, folder, environment):
        self.folder = os.path.join(folder, 'races')
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        environment.setdefault('TSAN_OPTIONS', ':'.join((
            f'suppressions={ROOT}/tests/tsan.supp', f'log_path={self.folder}/of', 'exitcode=0',
            'history_size=4', 'die_after_fork=0')))

    def tell(self, totals):
        """Each kind of report once: where it is, by its summary, and one file that has it whole."""
        seen = {}
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            with open(path, encoding='utf-8', errors='replace') as file:
                text = file.read()
            for summary in RACE.findall(text) or ([text[:200]] if text.strip() else []):
                seen.setdefault(summary, []).append(path)
        for summary, paths in seen.items():
            totals.failures.append(f'tsan: {summary} ({len(paths)} times, as in {paths[0]})')
        say(f'== tsan: {len(seen)} kinds of races')


class BuildAhead:
    """The next preset's build, in time that nobody else has a use for: tests wait a lot. What it
    has not made by the end is left to the build itself."""

    def __init__(self, preset):
        self.process = None
        if preset and hasattr(os, 'SCHED_IDLE'):
            self.process = subprocess.Popen(
                ['tools/build.sh', preset], cwd=ROOT, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=self.be_idle)

    @staticmethod
    def be_idle():
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is None:
            return
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait()


def ctest(preset, name_filter, totals):
    folder = os.path.join(ROOT, 'build', preset)
    command = ['ctest', '--test-dir', folder, '-j', str(JOBS), '--no-tests=ignore']
    name_filter = name_filter or PARTS.get(preset, ([], ''))[1]
    if name_filter:
        command += ['-R', name_filter]
    started = time.monotonic()
    failed = {}
    skipped = set()
    environment = dict(os.environ, GTEST_COLOR='no')
    environment.pop('CTEST_OUTPUT_ON_FAILURE', None)
    environment.setdefault('ASAN_OPTIONS', ASAN_OPTIONS)
    races = Races(folder, environment) if preset == 'tsan' else None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment, errors='replace') as process:
        for line in process.stdout:
            match = CTEST_LINE.match(line)
            if match and match.group(3) == 'Skipped':
                skipped.add(match.group(1))
            elif match and match.group(2):
                failed[match.group(1)] = match.group(3)
            if not line.startswith(('    Start ', 'Internal ctest', 'Test project')):
                print(line, end='', flush=True)
    log_path = os.path.join(folder, 'Testing', 'Temporary', 'LastTest.log')
    ran = 0
    if os.path.exists(log_path):
        with open(log_path, encoding='utf-8', errors='replace') as file:
            log = file.read()
        totals.add_log(preset, log, failed, skipped)
        tell_failures(preset, log, failed)
        ran = len(ENTRY.findall(log))
    if races:
        races.tell(totals)
    if process.returncode != 0 and not failed:
        totals.failures.append(f'{preset}: ctest ended with {process.returncode}')
    say(f'== {preset}: {ran} test programs in {time.monotonic() - started:.0f} s, '
        f'{len(failed)} failed')


def tell_failures(preset, log, failed):
    parts = ENTRY.split(log)[1:]
    for name, text in zip(parts[0::2], parts[1::2]):
        if name in failed:
            say(f'== {preset}: {name} failed ({failed[name]}); the whole of what it printed is in '
                f'build/{preset}/Testing/Temporary/LastTest.log')
            say(what_failed(text))


def check_release(totals):
    """What only the optimised build can show: the library that goes into other people's
    processes, whole programs through a server, and the archive."""
    for name, command in (
            ('client library', ['python3', 'tools/lint.py', '--library', 'build/release',
                                'README.md']),
            ('demo', ['python3', 'tools/demo.py', '--prefix', 'build/release']),
            ('bundle', ['python3', 'packaging/bundle.py']),
            ('bundle elsewhere', ['python3', 'packaging/bundle_test.py'])):
        say(f'== release: {name}')
        totals.add(f'release: {name}', run(command) == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--quick', action='store_true', help='only lint and the dev preset')
    parser.add_argument('--preset', action='append', help='only lint and this preset (repeatable)')
    parser.add_argument('--filter', help='ctest -R: only test programs whose names match')
    parser.add_argument('--keep-going', action='store_true', help='go on after a failed build')
    arguments = parser.parse_args()
    presets = arguments.preset or (['dev'] if arguments.quick else ['dev', 'release'])
    totals = Totals()
    started = time.monotonic()
    lint = Aside('lint', ['tools/lint.sh'])
    for preset, following in zip(presets, presets[1:] + [None]):
        if build(preset, totals):
            with BuildAhead(following):
                ctest(preset, arguments.filter, totals)
            if preset == 'release' and not arguments.filter:
                check_release(totals)
        elif not arguments.keep_going:
            break
    lint.wait(totals)
    say(f'== all: {time.monotonic() - started:.0f} s')
    for failure in totals.failures:
        say(f'FAILED {failure}')
    skipped = f', {totals.skipped} skipped' if totals.skipped else ''
    say(f'{totals.passed} passed, {len(totals.failures)} failed{skipped}')
    return 1 if totals.failures else 0


if __name__ == '__main__':
    sys.exit(main())
