#!/usr/bin/env python3
"""Formats the C++ sources, or tells which are not formatted.  tools/format.py [--check] [PATH ...]

One version of clang-format, so that two machines never disagree about a file.
"""

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402

VERSION = '14'
# CUDA samples are shown to be ordinary programs; golden files are what the generator writes.
SKIPPED = ('codegen/', 'third_party/')


def clang_format():
    """The path of the right clang-format, or None."""
    for name in (f'clang-format-{VERSION}', 'clang-format'):
        path = shutil.which(name)
        if not path:
            continue
        done = subprocess.run([path, '--version'], capture_output=True, text=True, check=False)
        if f'version {VERSION}.' in done.stdout:
            return path
    return None


def sources(paths):
    found = [p for p in lint.tree_files(lint.ROOT) if p.endswith(('.h', '.cc', '.c', '.cu'))]
    found = [p for p in found
             if not p.startswith(SKIPPED) and os.path.exists(os.path.join(lint.ROOT, p))]
    return lint.only_below(found, paths)


def run_batch(tool, mode, batch):
    return subprocess.run([tool, *mode, *batch], cwd=lint.ROOT, capture_output=True, text=True,
                          check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='change nothing; fail if it would')
    parser.add_argument('--list', action='store_true', help='print the files and do nothing')
    parser.add_argument('paths', nargs='*')
    arguments = parser.parse_args()
    try:
        files = sources(arguments.paths)
    except FileNotFoundError as error:
        parser.error(f'no such file or folder: {error.filename}')
    if arguments.list:
        print('\n'.join(files))
        return 0
    tool = clang_format()
    if tool is None:
        print(f'format: no clang-format {VERSION}; ./dev setup installs it', file=sys.stderr)
        return 1
    mode = ['--dry-run', '-Werror'] if arguments.check else ['-i']
    batches = [files[i:i + 12] for i in range(0, len(files), 12)]
    wrong = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(lambda batch: run_batch(tool, mode, batch), batches):
            for line in done.stderr.splitlines():
                if ': error: code should be clang-formatted' in line:
                    wrong.add(line.split(':')[0])
                elif ': error:' in line or done.returncode not in (0, 1):
                    print(line, file=sys.stderr)
    for path in sorted(wrong):
        print(f'{path}: not formatted; ./dev fmt does it')
    print(f'format: {len(files)} files, {len(wrong)} not formatted')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
