#!/usr/bin/env python3
"""Compares two transcripts of flyt_conformance call by call.

A transcript line is "Suite.Test thread call result". Threads of one test are numbered as they
happen to come, so the sequences of a test are compared without regard to their numbers. Tests that
only one side ran (skipped for want of a feature) are counted, not compared; so are those that one
of the lists names, whose difference is known.

Of an argument sweep, in which a line's call is what was changed, all that differs is printed.

Lists may name many tests by a pattern, and one line of a sweep's test: "Suite.Test:changed=value".
"""
import fnmatch
import sys


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def read(path):
    tests = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            test, thread, call, result = line.split()
            tests.setdefault(test, {}).setdefault(thread, []).append(f"{call} {result}")
    return {test: sorted(threads.values()) for test, threads in tests.items()}


LATER = ">synchronize"


def differences_of_sweep(test, left, right, known):
    """Of one test, but for those known; a line is named by what was changed. A side may lack lines
    because the driver died there, or could make all that the call needs. What a wait found
    afterwards is told only if it was something."""
    one, other = (dict(line.split() for thread in side for line in thread)
                  for side in (left, right))
    one = {what: result for what, result in one.items() if result != "CRASHED"}
    for what in [key for key in {**one, **other} if key.endswith(LATER)]:
        if what[:-len(LATER)] in one and what[:-len(LATER)] in other:
            one.setdefault(what, "CUDA_SUCCESS")
            other.setdefault(what, "CUDA_SUCCESS")
    return ", ".join(f"{what}: {one[what]} against {other[what]}" for what in one
                     if what in other and one[what] != other[what]
                     and not matches(f"{test}:{what}", known))


def first_difference(test, left, right, known):
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
    left, right, known = read(left_path), read(right_path), listed(lists)
    both = sorted(test for test in left.keys() & right.keys() if not matches(test, known))
    different = 0
    for test in both:
        tell = differences_of_sweep if "Sweep" in test else first_difference
        if left[test] != right[test]:
            if difference := tell(test, left[test], right[test], known):
                different += 1
                print(f"{test}: {difference}")
    alone = len(left.keys() ^ right.keys())
    calls = sum(len(thread) for test in both for thread in left[test])
    print(f"{len(both)} tests, {calls} calls compared, {different} tests differ, "
          f"{alone} ran on one side only, {len(known)} are listed")
    return 1 if different or not both else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: compare_transcripts.py LEFT RIGHT [LIST...]")
    sys.exit(main(*sys.argv[1:]))
