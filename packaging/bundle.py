#!/usr/bin/env python3
"""Packs a relocatable archive: programs, libraries, tests, samples.  packaging/bundle.py

It unpacks into one folder that runs from anywhere on x86-64 Linux with glibc 2.36 or newer; this
program refuses to pack what would not.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

import bundle_libraries

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, 'build', 'release')
ARCHIVE_BYTES_MAX = 40 * 1024 * 1024
# (pattern under the build folder, folder in the bundle)
BUILT = [('bin/*', 'bin'), ('lib/*.so*', 'lib'), ('lib/client/*.so*', 'lib/client'),
         ('tests/flyt_conformance', 'tests'), ('tests/node_subject', 'tests'),
         ('tests/flyt_recovery_tests', 'tests'), ('tests/flyt_hostile', 'tests'),
         ('samples/*', 'samples')]
# Measure Flyt's own parts, on the machine that builds them.
LEFT_OUT = {'flyt-cluster-bench', 'flyt-placement-bench', 'flyt-rpc-bench'}
# (pattern under the source folder, folder in the bundle)
SOURCES = [('dev', '.'), ('README.md', '.'), ('LICENSE', '.'), ('NOTICE', '.'),
           ('CHANGELOG.md', '.'), ('ARCHITECTURE.md', '.'), ('STYLE.md', '.'),
           ('CONTRIBUTING.md', '.'), ('tools/demo.py', 'tools'), ('tools/bench.py', 'tools'),
           ('tools/flyt_process.py', 'tools'), ('tools/nvcc.py', 'tools'),
           ('tools/quietly.sh', 'tools'), ('tools/completion.bash', 'tools'),
           ('tests/apps/rt_*.cu', 'tests/apps'),
           ('tests/gpu/*.cu', 'tests/gpu'), ('tests/gpu/*.py', 'tests/gpu'),
           ('tests/node/*_process.py', 'tests/node'),
           ('bench/gpu_bench.py', 'bench'), ('bench/gpu_elastic.py', 'bench'),
           ('bench/gpu_report.py', 'bench'),
           ('bench/gpu_workloads.py', 'bench'),
           ('tests/conformance/compare_transcripts.py', 'tests/conformance'), ('docs/*.md', 'docs'),
           ('docs/*.png', 'docs'), ('docs/adr/*.md', 'docs/adr'), ('bench/RESULTS.md', 'bench')]
FOLDERS = [('tests/conformance/lists', 'tests/conformance/lists'),
           ('packaging/monitoring', 'examples/monitoring')]
# Where the units of a bundle look for it.
PLACE = '/opt/flyt'


def version():
    with open(os.path.join(ROOT, 'CMakeLists.txt'), encoding='utf-8') as file:
        return re.search(r'project\(flyt VERSION ([\d.]+)', file.read()).group(1)


def is_elf(path):
    with open(path, 'rb') as file:
        return file.read(4) == b'\x7fELF'


def copy(source, folder):
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, os.path.basename(source))
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    if not os.path.isfile(source):
        return
    shutil.copy2(source, target)
    if is_elf(target):
        subprocess.run(['strip', '--strip-unneeded', target], check=True)


def fill(bundle):
    for base, rows in ((BUILD, BUILT), (ROOT, SOURCES)):
        for pattern, folder in rows:
            for source in sorted(glob.glob(os.path.join(base, pattern))):
                if os.path.basename(source) in LEFT_OUT:
                    continue
                copy(source, os.path.join(bundle, folder))
    for source, target in FOLDERS:
        if os.path.isdir(os.path.join(ROOT, source)):
            shutil.copytree(os.path.join(ROOT, source), os.path.join(bundle, target))
    fill_examples(bundle)
    bundle_libraries.bring(BUILD, bundle)


def fill_examples(bundle):
    """Configurations, and units for a bundle in /opt/flyt."""
    for folder in ('examples', 'systemd'):
        os.makedirs(os.path.join(bundle, folder), exist_ok=True)
    for source in glob.glob(os.path.join(ROOT, 'packaging', '*.toml.example')):
        name = os.path.basename(source).removesuffix('.example')
        shutil.copy(source, os.path.join(bundle, 'examples', name))
    for source in glob.glob(os.path.join(ROOT, 'packaging', '*.service')):
        with open(source, encoding='utf-8') as file:
            unit = file.read()
        unit = unit.replace('/usr/bin/', f'{PLACE}/bin/')
        unit = re.sub(r'/usr/share/doc/[\w-]+/', f'{PLACE}/docs/', unit)
        with open(os.path.join(bundle, 'systemd', os.path.basename(source)), 'w',
                  encoding='utf-8') as file:
            file.write(unit)


def files_of(bundle):
    """Paths of all its files, relative to it."""
    return {os.path.relpath(os.path.join(folder, name), bundle)
            for folder, _, names in os.walk(bundle) for name in names}


def problems(bundle):
    files = files_of(bundle)
    for name in sorted(files):
        path = os.path.join(bundle, name)
        if not os.path.islink(path) and is_elf(path):
            yield from bundle_libraries.elf_problems(bundle_libraries.read_elf(path), name, files)
    yield from bundle_libraries.missing_licences(bundle, files)
    for needed in ('dev', 'bin/flyt', 'bin/flyt-server', 'lib/libflyt-softgpu.so',
                   'lib/client/libcuda.so.1', 'lib/client/libnvidia-ml.so.1',
                   *(f'bin/{manager}' for manager in bundle_libraries.MANAGERS),
                   'systemd/flyt-node-manager.service', 'examples/node.toml',
                   'tests/flyt_conformance', 'tests/node_subject', 'tests/flyt_recovery_tests',
                   'tests/flyt_hostile', 'tests/gpu/run.py', 'bench/gpu_bench.py'):
        if not os.path.exists(os.path.join(bundle, needed)):
            yield f'{needed} is missing'


def pack(bundle, out):
    """The path of the archive. gzip: a minimal system unpacks it. All may read what is in it,
    whatever the builder's files are like: it may become a folder of many users. Half of an
    archive is none: who is interrupted leaves the one before."""
    archive = os.path.join(out, os.path.basename(bundle) + '.tar.gz')
    subprocess.run(['tar', '--use-compress-program=gzip -9', '--sort=name',
                    '--owner=0', '--group=0', '--numeric-owner', '--mode=u+rwX,go+rX,go-w',
                    '-cf', archive + '.new', '-C', out, os.path.basename(bundle)], check=True)
    os.replace(archive + '.new', archive)
    return archive


def main():
    out = os.path.join(ROOT, 'out')
    bundle = os.path.join(out, f'flyt-{version()}-linux-x86_64')
    shutil.rmtree(bundle, ignore_errors=True)
    try:
        fill(bundle)
        found = list(problems(bundle))
    except bundle_libraries.BundleError as error:
        found = [error]
    for problem in found:
        print(f'bundle: {problem}', file=sys.stderr)
    if found:
        return 1
    archive = pack(bundle, out)
    size = os.path.getsize(archive)
    print(f'{os.path.relpath(archive, ROOT)}: {size / 1024 / 1024:.1f} MiB')
    if size > ARCHIVE_BYTES_MAX:
        print(f'bundle: larger than {ARCHIVE_BYTES_MAX >> 20} MiB', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
