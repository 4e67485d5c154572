"""Sessions whose process is killed, over this machine's driver: the recovery tests, some at once.

Each test that failed is a row, with its output in recovery-SHARD.log under --out; one row more
tells how many there were.
"""

import concurrent.futures
import os
import re

SECONDS = 600
# Each runs a server with a session or two, which share the GPU in turns.
SHARDS = 6
RAN = re.compile(r'^\[==========\] (\d+) tests? from .* ran', re.M)
FAILED = re.compile(r'^\[  FAILED  \] ([\w/.]+)(?:, where .*)? \(\d+ ms\)$', re.M)
SKIPPED = re.compile(r'^\[  SKIPPED \] [\w/.]+ \(\d+ ms\)$', re.M)


def run(runner, make_row):
    program = os.path.join(runner.prefix, 'tests', 'flyt_recovery_tests')
    runner.end_servers()

    def run_shard(shard):
        environment = dict(os.environ, FLYT_TEST_DRIVER=runner.driver,
                           FLYT_TEST_SERVER=os.path.join(runner.prefix, 'bin', 'flyt-server'),
                           GTEST_TOTAL_SHARDS=str(SHARDS), GTEST_SHARD_INDEX=str(shard))
        return runner.run(f'recovery-{shard}', [program], SECONDS, environment)

    with concurrent.futures.ThreadPoolExecutor(SHARDS) as pool:
        outcomes = list(pool.map(run_shard, range(SHARDS)))
    ran = skipped = failures = 0
    for shard, outcome in enumerate(outcomes):
        failed = FAILED.findall(outcome.output)
        for name in failed:
            runner.add(make_row(f'recovery {name}', remote='failed', equal='NO'))
        told = RAN.search(outcome.output)
        if outcome.status != 'ok' and not (told and failed):
            runner.add(make_row(f'recovery, part {shard}', remote=outcome.status, equal='NO',
                                note=f'not ended: see {runner.log_path(f"recovery-{shard}")}'))
        failures += len(failed)
        skipped += len(SKIPPED.findall(outcome.output))
        ran += int(told.group(1)) if told else 0
    passed = ran - skipped - failures
    runner.add(make_row('recovery', remote='ok' if passed > 0 else 'failed',
                        equal='yes' if passed > 0 else 'NO',
                        note=f'{passed} of {ran - skipped} tests passed, {skipped} of the software '
                             'GPU alone skipped'))
