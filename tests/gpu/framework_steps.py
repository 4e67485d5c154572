"""Runs the framework items natively and through `flyt run`, and compares what they found."""

import concurrent.futures
import json
import os
import shutil
import sys
import threading
import time

from frameworks import ITEMS, REPEATABLE

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, 'frameworks.py')
# They ask for more than there is: whoever runs beside them may get nothing.
FILL_THE_GPU = {'memory', 'memory_expandable', 'memory_async'}
ITEM_SECONDS = 75
# Compilers take their time.
SECONDS = {'torch_compile': 150, 'nccl_two': 120, 'shared_tensors': 100, 'jax': 100,
           'torch_ops_0': 200, 'torch_ops_1': 200, 'torch_ops_2': 200, 'torch_ops_3': 200,
           'numba_driver': 150, 'numba_kernels': 300}
# Processes that try natively what has differed, until each has come out in two ways.
NATIVE_PROCESSES_MAX = 6
TAIL_LINES = 15
URLS = {'shm': None, 'tcp': 'tcp://127.0.0.1:0'}


def selected(only):
    """Items that the words of --only ask for; `frameworks` means all of them."""
    if 'frameworks' in only:
        return list(ITEMS)
    return [item for item in ITEMS if f'frameworks:{item}' in only]


def differences(native, remote):
    """Names whose values differ, or that one of the two has not."""
    return [name for name in {**native, **remote} if native.get(name) != remote.get(name)]


def steady(wanted, native, tried):
    """Those of the names that come out in one way natively, as far as `tried` goes: it gives for
    names what each is worth in one more process, or None."""
    for _ in range(NATIVE_PROCESSES_MAX):
        if not wanted:
            break
        values = tried(wanted)
        if values is None:
            break
        wanted = [name for name in wanted
                  if all(value == native.get(name) for value in values.get(name, ()))]
    return wanted


def judge(native, remote, native_again, native_values=None):
    """(equal, note) of what two runs found. `native_again` runs natively once more: what differs
    there, too, is no fault of remoting. `native_values`, where there is one, is as in steady()."""
    if remote is None:
        return 'NO', ''
    if 'skipped' in remote:
        return 'NO', f'only remotely: {remote["skipped"]}'
    raising = [name for name, value in native['equal'].items()
               if isinstance(value, str) and value.startswith('raises ')]
    different = differences(native['equal'], remote['equal'])
    if not different:
        note = f'{len(native["equal"])} results'
        return 'yes', note + (f'; raise in both: {", ".join(raising)}' if raising else '')
    again = native_again() or {}
    unsteady = differences(native['equal'], again['equal']) if 'equal' in again else []
    wrong = [name for name in different if name not in unsteady]
    if native_values:
        left = steady(wrong, native['equal'], native_values)
        unsteady += [name for name in wrong if name not in left]
        wrong = left
    if wrong:
        return 'NO', 'differs: ' + ', '.join(
            f'{name} ({remote["equal"].get(name)})' if 'raises' in str(remote['equal'].get(name))
            else name for name in wrong)
    note = 'native is not reproducible: ' + ', '.join(unsteady)
    if len(unsteady) * 2 < len(native['equal']):
        return 'yes', f'{len(native["equal"]) - len(unsteady)} results; {note}'
    return 'skipped', note


def tail(path, lines=TAIL_LINES):
    """The end of a log, for those who only see the screen."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return '\n'.join('    ' + line[:200].rstrip() for line in file.readlines()[-lines:])
    except OSError as error:
        return f'    {error}'


class Items:
    """One item after the other in each of several threads."""

    def __init__(self, runner, transports, new_row):
        self.runner = runner
        self.transports = transports
        self.new_row = new_row
        self.troubles = []
        self._lock = threading.Lock()

    def one_run(self, item, kind, url=None, names=()):
        """(outcome, what the item found or None), of some names alone."""
        label = f'fw-{item}-{kind}'
        path = os.path.join(self.runner.out, f'{label}.json')
        caches = os.path.join(self.runner.out, f'{label}-caches')
        if os.path.exists(path):
            os.unlink(path)
        # What one run compiles, another must not find: it is to compile and load it, too.
        environment = dict(
            os.environ, TRITON_CACHE_DIR=f'{caches}/triton', CUPY_CACHE_DIR=f'{caches}/cupy',
            TORCHINDUCTOR_CACHE_DIR=f'{caches}/inductor', CUDA_CACHE_PATH=f'{caches}/nv')
        command = [sys.executable, SCRIPT, item, path, *names]
        seconds = SECONDS.get(item, ITEM_SECONDS)
        if kind.startswith('native'):
            outcome = self.runner.run(label, command, seconds, environment)
        else:
            outcome = self.runner.remote(label, command, seconds, environment, url)
        shutil.rmtree(caches, ignore_errors=True)
        found = None
        if outcome.status == 'ok' and os.path.exists(path):
            with open(path, encoding='utf-8') as file:
                found = json.load(file)
        return outcome, found

    def compare(self, item):
        native, native_found = self.one_run(item, 'native')
        if native_found is None or 'skipped' in native_found:
            self.say_nothing(item, native, native_found)
            return
        again = []

        def native_again():
            if not again:
                again.append(self.one_run(item, 'native2')[1])
            return again[0]

        def native_values(names):
            found = self.one_run(item, 'native-tries', names=names)[1]
            return found and found.get('equal')

        for transport in self.transports:
            remote, remote_found = self.one_run(item, transport, URLS[transport] or 'shm')
            equal, note = judge(native_found, remote_found, native_again,
                                native_values if item in REPEATABLE else None)
            others = self.other_drivers(remote_found)
            if others:
                equal, note = 'NO', f'not remote: used {", ".join(others)}'
            row = self.new_row(f'{item} {transport}', native.status, remote.status, equal, note)
            if native.status == 'ok' and remote.status == 'ok':
                row.times = {'process, s': {
                    'native': round(native.seconds, 2), 'remote': round(remote.seconds, 2),
                    'ratio': round(remote.seconds / native.seconds, 3)}}
            with self._lock:
                self.runner.add(row)
                if equal == 'NO':
                    self.troubles.append((row, self.runner.log_path(f'fw-{item}-{transport}')))

    def other_drivers(self, found):
        """What a remote run had as its libcuda and is not ours."""
        ours = os.path.realpath(os.path.join(self.runner.prefix, 'lib', 'client'))
        return [path for path in (found or {}).get('drivers', ())
                if os.path.dirname(os.path.realpath(path)) != ours]

    def say_nothing(self, item, native, found):
        """An item that this machine cannot run: there is nothing to compare with."""
        if found:
            row = self.new_row(item, 'skipped', '-', 'skipped', found['skipped'])
        elif native.status.startswith('failed'):
            row = self.new_row(item, native.status, '-', 'skipped', 'fails natively')
        else:
            # Out of time: the item could be run, and was not.
            row = self.new_row(item, native.status, '-', 'NO', 'not compared')
        with self._lock:
            self.runner.add(row)
            if not found:
                self.troubles.append((row, self.runner.log_path(f'fw-{item}-native')))

    def run(self, items, jobs):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            futures = {pool.submit(self.compare, item): item for item in items}
            for future in concurrent.futures.as_completed(futures):
                error = future.exception()
                if error:  # One broken item must not cost the others.
                    self.runner.add(self.new_row(futures[future], equal='NO',
                                                 note=f'{type(error).__name__}: {error}'))


def run_items(runner, items, transports, jobs, new_row):
    """All items; prints the end of the log of each that failed."""
    print(f'== frameworks: {len(items)} items, {", ".join(transports)}, {jobs} at once', flush=True)
    started = time.monotonic()
    work = Items(runner, transports, new_row)
    # Long ones first, so that no one is left alone at the end.
    together = [item for item in items if item not in FILL_THE_GPU]
    work.run(sorted(together, key=lambda item: -SECONDS.get(item, 0)), jobs)
    work.run([item for item in items if item in FILL_THE_GPU], 1)
    for row, path in work.troubles:
        print(f'\n-- {row.name}: {row.equal}; {row.note}; the end of {os.path.basename(path)}:')
        print(tail(path), flush=True)
    print(f'== frameworks took {time.monotonic() - started:.0f} s', flush=True)
