#!/usr/bin/env python3
"""Compares two transcripts of flyt_conformance call by call.

A transcript line is "Suite.Test thread call result". Threads of one test are numbered as they
happen to come, so the sequences of a test are compared without regard to their numbers. Tests that
only one side ran (skipped for want of a feature) are counted, not compared; so are those that one
of the lists names, whose difference is known.
"""
import sys


def read(path):
    tests = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            test, thread, call, result = line.split()
            tests.setdefault(test, {}).setdefault(thread, []).append(f"{call} {result}")
    return {test: sorted(threads.values()) for test, threads in tests.items()}


def first_difference(left, right):
    for one, other in zip(left, right):
        for index, (a, b) in enumerate(zip(one, other)):
            if a != b:
                return f"call {index + 1}: {a} against {b}"
        if len(one) != len(other):
            return f"{len(one)} calls against {len(other)}"
    return f"{len(left)} threads against {len(right)}"


def listed(paths):
    names = set()
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            names |= {line.split()[0] for line in lines if line.strip() and line[0] != "#"}
    return names


def main(left_path, right_path, *lists):
    left, right = read(left_path), read(right_path)
    both = sorted((left.keys() & right.keys()) - listed(lists))
    different = [test for test in both if left[test] != right[test]]
    for test in different:
        print(f"{test}: {first_difference(left[test], right[test])}")
    alone = len(left.keys() ^ right.keys())
    calls = sum(len(thread) for test in both for thread in left[test])
    print(f"{len(both)} tests, {calls} calls compared, {len(different)} tests differ, "
          f"{alone} ran on one side only, {len(listed(lists))} are listed")
    return 1 if different or not both else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: compare_transcripts.py LEFT RIGHT [LIST...]")
    sys.exit(main(*sys.argv[1:]))
