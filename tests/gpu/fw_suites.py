"""Framework items: the tests that a framework brings along, one result for each.

As a program: fw_suites.py PACKAGE PART PARTS RESULT.json runs a share of a package's test modules.
"""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROCESSES = 6


class Outcomes(unittest.TextTestResult):
    """Test -> what it ended with. Tests check their values themselves."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.found = {}

    def addSuccess(self, test):
        super().addSuccess(test)
        self.found.setdefault(test.id(), 'passed')

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.found[test.id()] = 'failed'

    def addError(self, test, err):
        super().addError(test, err)
        self.found[test.id()] = f'raises {err[0].__name__}'

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.found[test.id()] = 'failed'

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.found[test.id()] = 'skipped'

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.found[test.id()] = 'fails, as expected'


def modules_of(package):
    paths = importlib.import_module(package).__path__
    return sorted(one.name for one in pkgutil.iter_modules(paths, f'{package}.')
                  if one.name.rpartition('.')[2].startswith('test_'))


def run_part(package, part, parts):
    found = {}
    for name in modules_of(package)[part::parts]:
        try:
            tests = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name))
        except Exception as error:  # Not to be had natively either, or else that differs.
            found[name] = f'raises {type(error).__name__}: {error}'[:200]
            continue
        runner = unittest.TextTestRunner(stream=sys.stderr, resultclass=Outcomes, verbosity=2)
        found |= runner.run(tests).found
    return found


def suite(found, package):
    """Runs the tests of an installed package in several processes."""
    import old_numpy  # noqa: F401
    names = modules_of(package)
    with tempfile.TemporaryDirectory(prefix='flyt-suite-') as folder:
        started = []
        for part in range(PROCESSES):
            path = os.path.join(folder, f'{part}.json')
            command = [sys.executable, os.path.abspath(__file__), package, str(part),
                       str(PROCESSES), path]
            started.append((part, path, subprocess.Popen(command, stdout=sys.stderr)))
        for part, path, process in started:
            status = process.wait()
            if os.path.exists(path):
                with open(path, encoding='utf-8') as file:
                    for name, outcome in json.load(file).items():
                        found.keep(name, outcome)
            else:
                found.keep(f'{package} part {part}', f'raises: ended with status {status}')
        found.keep(f'{package} modules', len(names))


def numba_driver(found):
    suite(found, 'numba.cuda.tests.cudadrv')


def numba_kernels(found):
    suite(found, 'numba.cuda.tests.cudapy')


def main():
    import old_numpy  # noqa: F401
    package, part, parts, path = sys.argv[1:]
    result = run_part(package, int(part), int(parts))
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(result, file)
    sys.stderr.flush()
    # Some of these tests leave contexts and threads behind.
    os._exit(0)


if __name__ == '__main__':
    main()
