#!/usr/bin/env python3
"""Runs flyt-bench of a build or bundle; the figures also go to out/bench.json.

tools/bench.py --prefix FOLDER [OPTIONS of flyt-bench]
tools/bench.py --prefix FOLDER placement [OPTIONS of flyt-placement-bench]
"""

import argparse
import os
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument('--prefix', default='build/release')
    parser.add_argument('--help-bench', action='store_true')
    arguments, rest = parser.parse_known_args()
    placement = rest[:1] == ['placement']
    program = os.path.join(arguments.prefix, 'bin',
                           'flyt-placement-bench' if placement else 'flyt-bench')
    if not os.path.exists(program):
        print(f'bench: {program} is not there; a bundle brings flyt-bench alone', file=sys.stderr)
        return 1
    if placement:
        rest = ['--help'] if arguments.help_bench else rest[1:]
    elif arguments.help_bench:
        rest = ['--help']
    elif not any(word.startswith('--json') for word in rest):
        os.makedirs('out', exist_ok=True)
        rest += ['--json', 'out/bench.json']
    return subprocess.run([program, *rest], check=False).returncode


if __name__ == '__main__':
    sys.exit(main())
