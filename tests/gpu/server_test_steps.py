"""Test programs that start servers of their own, over this machine's driver: sessions whose process
is killed, and hostile clients.

Each test that failed is a row, with its output in NAME-PART.log under --out; one row more tells how
many there were.
"""

import concurrent.futures
import os
import re

SECONDS = 600
RAN = re.compile(r'^\[==========\] (\d+) tests? from .* ran', re.M)
FAILED = re.compile(r'^\[  FAILED  \] ([\w/.]+)(?:, where .*)? \(\d+ ms\)$', re.M)
SKIPPED = re.compile(r'^\[  SKIPPED \] [\w/.]+ \(\d+ ms\)$', re.M)
# Each part runs a server with a session or two, which share the GPU in turns: (what a part is
# called, its environment).
RECOVERY = [(str(part), {'GTEST_TOTAL_SHARDS': '6', 'GTEST_SHARD_INDEX': str(part)})
            for part in range(6)]
# What any driver has to stand: a session for each command there is, and rows of them. Other hostile
# tests expect what the software GPU answers.
HOSTILE = [('commands', {'GTEST_FILTER': '*NeverKillASessionsProcess', 'FLYT_SIM_SEEDS': '1'}),
           ('monitors', {'GTEST_FILTER': '*NeverKillAMonitor', 'FLYT_SIM_SEEDS': '20'}),
           ('mixture', {'GTEST_FILTER': 'HostileMixture.*', 'FLYT_SIM_SEEDS': '40'})]


def recovery(runner, make_row):
    run(runner, make_row, 'recovery', 'flyt_recovery_tests', RECOVERY)


def hostile(runner, make_row):
    run(runner, make_row, 'hostile', 'flyt_hostile', HOSTILE)


def run(runner, make_row, what, name, parts):
    program = os.path.join(runner.prefix, 'tests', name)
    runner.end_servers()

    def run_part(part):
        label, more = part
        environment = dict(os.environ, FLYT_TEST_DRIVER=runner.driver,
                           FLYT_TEST_SERVER=os.path.join(runner.prefix, 'bin', 'flyt-server'),
                           **more)
        return runner.run(f'{what}-{label}', [program], SECONDS, environment)

    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        outcomes = list(pool.map(run_part, parts))
    ran = skipped = failures = 0
    for (label, _), outcome in zip(parts, outcomes):
        failed = FAILED.findall(outcome.output)
        for test in failed:
            runner.add(make_row(f'{what} {test}', remote='failed', equal='NO'))
        told = RAN.search(outcome.output)
        if outcome.status != 'ok' and not (told and failed):
            runner.add(make_row(f'{what}, part {label}', remote=outcome.status, equal='NO',
                                note=f'not ended: see {runner.log_path(f"{what}-{label}")}'))
        failures += len(failed)
        skipped += len(SKIPPED.findall(outcome.output))
        ran += int(told.group(1)) if told else 0
    passed = ran - skipped - failures
    left_out = f', {skipped} of the software GPU alone skipped' if skipped else ''
    runner.add(make_row(what, remote='ok' if passed > 0 else 'failed',
                        equal='yes' if passed > 0 else 'NO',
                        note=f'{passed} of {ran - skipped} tests passed{left_out}'))
