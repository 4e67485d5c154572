#!/usr/bin/env python3
"""From `flyt run` in a VM to a first CUDA call that was answered. vm_start.py BUILD [--rounds N]
[--check]

A cluster manager, a node manager over the software GPU and a client manager, each a process of its
own on this machine; the program takes a context and asks for its memory, so that what is told is an
upper bound. `warm`: the VM has its virtual GPU, and no program. `new`: it has none, so that it is
placed, a lease is made and a server started. --check: fails if half of the warm ones take longer
than promised."""

import argparse
import json
import os
import subprocess
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
sys.path.insert(0, os.path.join(ROOT, 'tests', 'cluster'))
from cluster_process import GROUP, QUICK, Cluster  # noqa: E402
from machine_test import Machine  # noqa: E402

WARM_MS = 150


def run_once(machine):
    """Milliseconds from the start of `flyt run` to the program's first word."""
    program = machine.cluster.program
    started = time.monotonic()
    with subprocess.Popen([program('flyt'), 'run', '--', machine.cluster.subject()],
                          env=machine.environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        first = running.stdout.readline()
        took = (time.monotonic() - started) * 1000
        if 'devices' not in json.loads(first or '{}'):
            raise SystemExit(f'vm_start: {first}{running.communicate()[1]}')
    return took


def tell(what, times):
    times = sorted(times)
    half = times[len(times) // 2]
    print(f'{what:6} {half:8.1f} ms half, {times[0]:.1f} least, {times[-1]:.1f} most'
          f' of {len(times)}')
    return half


def measure(cluster, rounds):
    cluster.start_all()
    cluster.add_vm('vm', GROUP, '256M')
    machine = Machine(cluster, 'vm')
    try:
        new, warm = [], []
        for _ in range(rounds):
            new.append(run_once(machine))
            warm += [run_once(machine) for _ in range(5)]
            cluster.ctl('release', 'vm')
            cluster.wait_for(lambda: not cluster.list('leases'))
        tell('new', new)
        return tell('warm', warm)
    finally:
        machine.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build')
    parser.add_argument('--rounds', type=int, default=10)
    parser.add_argument('--check', action='store_true')
    options = parser.parse_args()
    cluster = Cluster(os.path.abspath(options.build), ('n1',), extra=QUICK)
    try:
        half = measure(cluster, options.rounds)
    finally:
        cluster.remove()
    return 1 if options.check and half > WARM_MS else 0


if __name__ == '__main__':
    sys.exit(main())
