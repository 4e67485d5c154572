#!/usr/bin/env python3
"""The demo: sample programs without a GPU run on a server's, and say whether they got it right.

tools/demo.py --prefix FOLDER [--driver auto|soft|PATH] [--url URL] [--keep-log FILE]
"""

import argparse
import concurrent.futures
import glob
import os
import subprocess
import sys
import time

from flyt_process import Server, ServerError
from nvcc import find_nvcc, nvcc_command, runtime_folder

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAMPLE_SECONDS_MAX = 60
COLUMNS = ('sample', 'ran on', 'verified', 'posted', 'waited', 'time')


def compile_cuda(nvcc, source, cudart, folder):
    """(program, error text) of one .cu file; compiled again only if the source is newer."""
    name = os.path.splitext(os.path.basename(source))[0]
    program = os.path.join(folder, f'{name}-{cudart}')
    if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(source):
        return program, ''
    # Under another name, until it is whole: who interrupts this finds no half program next time.
    fresh = f'{program}.new'
    done = subprocess.run(nvcc_command(nvcc, source, cudart, fresh),
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stdout + done.stderr
    os.replace(fresh, program)
    return program, ''


def compile_samples(nvcc, sources, folder):
    """[(name, program or None, error)] for every source, with static and with shared cudart."""
    os.makedirs(folder, exist_ok=True)
    jobs = [(source, cudart) for source in sources for cudart in ('static', 'shared')]
    print(f'nvcc compiles {len(sources)} programs, with static and with shared cudart ...',
          flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(lambda job: compile_cuda(nvcc, *job, folder), jobs))
    return [(f'{os.path.basename(source)}, {cudart} cudart', program, error)
            for (source, cudart), (program, error) in zip(jobs, built)]


def client_environment(nvcc):
    """The environment of a machine that has CUDA's runtime library and no driver settings."""
    environment = dict(os.environ)
    if nvcc:
        environment['LD_LIBRARY_PATH'] = ':'.join(
            part for part in (environment.get('LD_LIBRARY_PATH'), runtime_folder(nvcc)) if part)
    return environment


def run_sample(server, name, program, environment):
    """One row of the table, and what to show if it went wrong."""
    before = len(server.log())
    started = time.monotonic()
    process = subprocess.Popen(server.run_command([program]), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=environment, text=True,
                               errors='replace')
    try:
        output, _ = process.communicate(timeout=SAMPLE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += f'\nended after {SAMPLE_SECONDS_MAX} s'
    seconds = time.monotonic() - started
    session = server.session_of(process.pid, before)
    verified = process.returncode == 0
    row = (name, session.get('device', '?'), 'yes' if verified else 'NO',
           session.get('posted', '?'), session.get('waited', '?'), f'{seconds:.2f} s')
    trouble = '' if verified else f'exit status {process.returncode}\n{output.strip()}'
    return row, trouble


def print_row(row, widths):
    cells = [cell.rjust(width) if i > 2 else cell.ljust(width)
             for i, (cell, width) in enumerate(zip(row, widths))]
    print('  '.join(cells).rstrip(), flush=True)


def collect(prefix, nvcc):
    """[(name, program or None, error)]: driver-API samples that we built, then what nvcc makes."""
    programs = sorted(p for p in glob.glob(os.path.join(prefix, 'samples', '*'))
                      if os.path.isfile(p) and os.access(p, os.X_OK))
    samples = [(os.path.basename(p), p, '') for p in programs]
    sources = sorted(glob.glob(os.path.join(ROOT, 'tests', 'apps', 'rt_*.cu')))
    if nvcc and sources:
        samples += compile_samples(nvcc, sources, os.path.join(prefix, 'demo'))
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--prefix', default='build/release', help='folder with bin/ and lib/')
    parser.add_argument('--driver', default='auto', help='auto, soft or the path of a driver')
    parser.add_argument('--url', help='where the server listens; default: a unix socket of its own')
    parser.add_argument('--keep-log', metavar='FILE', help="keep the server's log")
    arguments = parser.parse_args()
    started = time.monotonic()
    nvcc = find_nvcc()
    samples = collect(arguments.prefix, nvcc)
    if not samples:
        print(f'demo: no samples under {arguments.prefix}/samples', file=sys.stderr)
        return 1
    if not nvcc:
        print('nvcc is not installed: only the samples with PTX of their own run.')
    environment = client_environment(nvcc)
    widths = [max(len(name) for name, _, _ in samples + [(COLUMNS[0], '', '')]), 24, 8, 8, 8, 8]
    troubles = []
    verified = 0
    try:
        with Server(arguments.prefix, arguments.driver, arguments.url,
                    arguments.keep_log) as server:
            print(f'Server at {server.url}; each sample is a process without a GPU of its own.\n')
            print_row(COLUMNS, widths)
            for name, program, error in samples:
                if program is None:
                    row, trouble = (name, '-', 'NO', '-', '-', '-'), error
                else:
                    row, trouble = run_sample(server, name, program, environment)
                print_row(row, widths)
                verified += not trouble
                if trouble:
                    troubles.append((name, trouble))
    except ServerError as error:
        print(f'demo: {error}', file=sys.stderr)
        return 1
    for name, trouble in troubles:
        print(f'\n-- {name}: {trouble}')
    print(f'\n{verified} of {len(samples)} samples verified, {time.monotonic() - started:.1f} s. '
          'posted: calls that nobody waited for; waited: calls that took a round trip.')
    return 1 if troubles else 0


if __name__ == '__main__':
    sys.exit(main())
