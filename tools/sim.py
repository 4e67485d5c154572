#!/usr/bin/env python3
"""Runs the simulations over many seeds.  tools/sim.py [--seeds N] [--first N] [--preset NAME]"""

import argparse
import glob
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = ('flyt_sim', 'flyt_sim_lanes', 'flyt_sim_rpc', 'flyt_hostile', 'cluster_sim_test')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', type=int, default=200, help='how many seeds (default 200)')
    parser.add_argument('--first', type=int, default=1, help='the first seed (default 1)')
    parser.add_argument('--preset', default='dev', help='which build runs them (default dev)')
    arguments = parser.parse_args()
    if subprocess.run(['./dev', 'build', '--preset', arguments.preset], cwd=ROOT,
                      check=False).returncode != 0:
        return 1
    built = glob.glob(os.path.join(ROOT, 'build', arguments.preset, 'tests', '*'))
    programs = sorted(p for p in built
                      if os.path.basename(p) in PROGRAMS and os.access(p, os.X_OK))
    if not programs:
        print('sim: no simulation was built', file=sys.stderr)
        return 1
    environment = dict(os.environ, FLYT_SIM_SEEDS=str(arguments.seeds),
                       FLYT_SIM_FIRST_SEED=str(arguments.first))
    failed = []
    for program in programs:
        started = time.monotonic()
        command = [program, '--gtest_brief=1']
        status = subprocess.run(command, env=environment, check=False).returncode
        name = os.path.basename(program)
        print(f'sim: {name}: {"ok" if status == 0 else f"FAILED ({status})"}, '
              f'{arguments.seeds} seeds from {arguments.first}, {time.monotonic() - started:.1f} s')
        if status != 0:
            failed.append(name)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
