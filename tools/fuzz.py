#!/usr/bin/env python3
"""Fuzzes every target for a share of the time.  tools/fuzz.py [--minutes N] [--target NAME]"""

import argparse
import glob
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def targets(build):
    found = glob.glob(os.path.join(build, 'fuzz', '*'))
    return sorted(p for p in found if os.path.isfile(p) and os.access(p, os.X_OK))


def libfuzzer_command(program, seconds, corpus, seeds, crashes):
    return [program, f'-max_total_time={seconds}', '-timeout=10', '-rss_limit_mb=4096',
            '-print_final_stats=1', '-verbosity=0', f'-artifact_prefix={crashes}/',
            f'-jobs={os.cpu_count()}' if seconds > 120 else '-jobs=0', corpus, *seeds]


def replay_command(program, seconds, seeds):
    return [program, f'--seconds={seconds}', f'--runs={2 ** 62}',
            f'--seed={int.from_bytes(os.urandom(4), "little")}', *seeds]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--minutes', type=float, default=5, help='for all targets together')
    parser.add_argument('--target', action='append', help='only this target (repeatable)')
    parser.add_argument('--replay', action='store_true', help='mutate seeds without libFuzzer')
    arguments = parser.parse_args()
    replay = arguments.replay or shutil.which('clang++') is None
    preset = 'dev' if replay else 'fuzz'
    command = ['tools/build.sh', preset, 'flyt_fuzz_programs']
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        return 1
    build = os.path.join(ROOT, 'build', preset)
    programs = [p for p in targets(build)
                if not arguments.target or os.path.basename(p) in arguments.target]
    if not programs:
        print('fuzz: no such target; there are: '
              + ' '.join(os.path.basename(p) for p in targets(build)), file=sys.stderr)
        return 1
    seconds = max(1, int(arguments.minutes * 60 / len(programs)))
    crashes = os.path.join(build, 'crashes')
    os.makedirs(crashes, exist_ok=True)
    failed = []
    for program in programs:
        name = os.path.basename(program)
        corpus = os.path.join(build, 'corpus', name)
        os.makedirs(corpus, exist_ok=True)
        seeds = [p for p in (os.path.join(ROOT, 'tests', 'fuzz', 'seeds', name),
                             os.path.join(build, 'generated', 'seeds', name)) if os.path.isdir(p)]
        print(f'fuzz: {name}, {seconds} s', flush=True)
        command = (replay_command(program, seconds, seeds + [corpus]) if replay else
                   libfuzzer_command(program, seconds, corpus, seeds, crashes))
        if subprocess.run(command, cwd=crashes, check=False).returncode != 0:
            failed.append(name)
    for name in failed:
        print(f'fuzz: FAILED {name}; its input is in {crashes}')
    print(f'{len(programs) - len(failed)} passed, {len(failed)} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
