#!/usr/bin/env python3
"""Lint: refuses what STYLE.md marks with (*) and includes that ARCHITECTURE.md's table forbids.

    tools/lint.py [PATH ...]         all files of the tree, or the given ones
    tools/lint.py --library BUILD    also the built client library of a build folder

A finding that is right as it is carries its reason, on its line or on the line before:
    // lint: allow(RULE): the reason, for example: CUDA's caller frees this with free(3).
"""

import argparse
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from flyt_lint import library, links, rules  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ALLOW = re.compile(r'(?://|#|<!--)\s*lint: allow\(([a-z_, -]+)\)(?::\s*(\S.{5,}))?')
SUFFIXES = rules.CPP + ('.py', '.sh', '.cmake', '.api', '.md', '.json', '.txt', '.ptx')
# Generated, or somebody else's words.
SKIPPED = re.compile(r'LICENSE|docs/coverage\.md|api/api\.lock|tests/fuzz/seeds/|codegen/golden/')
# Files that are bad on purpose.
REFUSED_SAMPLES = re.compile(r'tools/lint_test\.py|codegen/(tests/)?refused/')


def tree_files(root):
    """Paths that git tracks or would track; without git, every file outside build folders."""
    listed = subprocess.run(['git', '-C', root, 'ls-files', '-co', '--exclude-standard'],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return sorted(set(listed.stdout.splitlines()))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in ('build', 'out', '.git', '__pycache__')]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def is_linted(path):
    if SKIPPED.match(path) or REFUSED_SAMPLES.match(path):
        return False
    name = os.path.basename(path)
    return path.endswith(SUFFIXES) or path in ('dev', '.ci/run') or name == 'CMakeLists.txt'


def suppressions(lines):
    """({line: rule names}, [malformed lines]). A comment on its own line covers the next one."""
    covered, malformed = {}, []
    for number, line in enumerate(lines, 1):
        match = _ALLOW.search(line)
        if not match:
            continue
        if not match.group(2):
            malformed.append(number)
            continue
        names = {name.strip() for name in match.group(1).split(',')}
        target = number
        if not line[:match.start()].strip():
            target += 1
            # The reason may run over several comment lines.
            while target <= len(lines) and re.match(r'\s*(//|#)', lines[target - 1]):
                target += 1
        covered.setdefault(target, set()).update(names)
    return covered, malformed


def lint_file(root, path):
    """(findings, number of suppressions used) of one file."""
    try:
        with open(os.path.join(root, path), encoding='utf-8') as file:
            text = file.read()
    except UnicodeDecodeError:
        return [(path, 1, 'encoding', 'the file is not UTF-8')], 0
    except FileNotFoundError:
        return [], 0
    covered, malformed = suppressions(text.split('\n'))
    findings, used = [], set()
    for line, rule, message in rules.check_file(
            path, text, lambda other: os.path.exists(os.path.join(root, other))):
        if rule in covered.get(line, ()):
            used.add((line, rule))
            continue
        findings.append((path, line, rule, message))
    for line in malformed:
        findings.append((path, line, 'allow', 'a suppression needs a reason: allow(RULE): why'))
    for line, names in covered.items():
        for name in sorted(names - {rule for at, rule in used if at == line}):
            findings.append((path, line, 'allow', f'allow({name}) suppresses nothing here'))
    return findings, len(used)


def dead_links(root, path):
    """Findings of one document."""
    def read(other):
        full = os.path.join(root, other)
        if not os.path.exists(full):
            return None
        if not other.endswith('.md'):
            return ''
        with open(full, encoding='utf-8') as file:
            return file.read()

    text = read(path) if path.endswith('.md') else None
    return [(path, line, 'links', message) for line, message in links.check(path, text or '', read)]


def dead_commands(root, path):
    """The same."""
    def runs(other):
        full = os.path.join(root, other)
        return os.access(full, os.X_OK) if os.path.exists(full) else None

    if not path.endswith('.md'):
        return []
    with open(os.path.join(root, path), encoding='utf-8') as file:
        text = file.read()
    return [(path, line, 'commands', message)
            for line, message in links.commands_that_cannot_run(text, runs)]


def only_below(files, places):
    """Those files that are or lie below one of some places; all where none is named."""
    if not places:
        return files
    # Who misspells a place shall not hear that all is well there.
    for place in places:
        os.stat(place)
    folders = [os.path.relpath(os.path.abspath(place), ROOT) for place in places]
    return [p for p in files
            if any(f in ('.', p) or p.startswith(f + '/') for f in folders)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('paths', nargs='*', help='files or folders, relative to the root')
    parser.add_argument('--library', metavar='BUILD', help='check the libraries of a build folder')
    arguments = parser.parse_args()
    started = time.monotonic()
    paths = [path for path in tree_files(ROOT) if is_linted(path)]
    try:
        paths = only_below(paths, arguments.paths)
    except FileNotFoundError as error:
        parser.error(f'no such file or folder: {error.filename}')
    findings, suppressed = [], 0
    for path in paths:
        found, used = lint_file(ROOT, path)
        findings += found + dead_links(ROOT, path) + dead_commands(ROOT, path)
        suppressed += used
    if arguments.library:
        findings += library.check(arguments.library)
    for path, line, rule, message in findings:
        print(f'{path}:{line}: {rule}: {message}')
    print(f'lint: {len(paths)} files, {len(findings)} findings, {suppressed} suppressions, '
          f'{time.monotonic() - started:.1f} s')
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main())
