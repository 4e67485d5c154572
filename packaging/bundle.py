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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, 'build', 'release')
GLIBC_MAX = (2, 36)
ARCHIVE_BYTES_MAX = 40 * 1024 * 1024
# What every such machine has; all else we link statically or bring along.
SYSTEM_LIBRARIES = re.compile(
    r'(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|libresolv|libutil)\.so\.\d+'
    r'|libcuda\.so\.1|libnvidia-ml\.so\.1|libflyt-softgpu\.so')

# (pattern under the build folder, folder in the bundle)
BUILT = [('bin/*', 'bin'), ('lib/*.so*', 'lib'), ('lib/client/*.so*', 'lib/client'),
         ('tests/flyt_conformance', 'tests'), ('samples/*', 'samples')]
# These need the distribution's gRPC and SQLite.
LEFT_OUT = {'flyt-node-manager', 'flyt-client-manager', 'flyt-cluster-manager',
            'flyt-cluster-bench', 'flytctl'}
# (pattern under the source folder, folder in the bundle)
SOURCES = [('dev', '.'), ('README.md', '.'), ('LICENSE', '.'), ('NOTICE', '.'),
           ('CHANGELOG.md', '.'), ('tools/demo.py', 'tools'), ('tools/bench.py', 'tools'),
           ('tools/flyt_process.py', 'tools'), ('tools/quietly.sh', 'tools'),
           ('tools/completion.bash', 'tools'), ('tests/apps/rt_*.cu', 'tests/apps'),
           ('tests/gpu/*.cu', 'tests/gpu'), ('tests/gpu/*.py', 'tests/gpu'),
           ('bench/gpu_bench.py', 'bench'), ('bench/gpu_elastic.py', 'bench'),
           ('bench/gpu_report.py', 'bench'),
           ('bench/gpu_workloads.py', 'bench'),
           ('tests/conformance/compare_transcripts.py', 'tests/conformance'), ('docs/*.md', 'docs')]
FOLDERS = [('tests/conformance/lists', 'tests/conformance/lists')]


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


def elf_problems(path, name):
    """Reasons why one ELF file would not run elsewhere."""
    dynamic = subprocess.run(['readelf', '-dW', path], capture_output=True, text=True,
                             check=True).stdout
    for needed in re.findall(r'\(NEEDED\).*\[(.+)\]', dynamic):
        if not SYSTEM_LIBRARIES.fullmatch(needed):
            yield f'{name} needs {needed}'
    for runpath in re.findall(r'\((?:RUNPATH|RPATH)\).*\[(.*)\]', dynamic):
        for part in runpath.split(':'):
            if part and not part.startswith('$ORIGIN'):
                yield f'{name} looks for libraries in {part}'
    symbols = subprocess.run(['readelf', '-VW', path], capture_output=True, text=True,
                             check=True).stdout
    newest = max((tuple(map(int, found.split('.')))
                  for found in re.findall(r'Name: GLIBC_([\d.]+)', symbols)), default=(0,))
    if newest > GLIBC_MAX:
        yield f'{name} needs glibc {".".join(map(str, newest))}'


def problems(bundle):
    for folder, _, names in os.walk(bundle):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and is_elf(path):
                yield from elf_problems(path, os.path.relpath(path, bundle))
    for needed in ('dev', 'bin/flyt', 'bin/flyt-server', 'lib/libflyt-softgpu.so',
                   'lib/client/libcuda.so.1', 'lib/client/libnvidia-ml.so.1',
                   'tests/flyt_conformance', 'tests/gpu/run.py', 'bench/gpu_bench.py'):
        if not os.path.exists(os.path.join(bundle, needed)):
            yield f'{needed} is missing'


def pack(bundle, out):
    """The path of the archive. gzip: a minimal system unpacks it."""
    archive = os.path.join(out, os.path.basename(bundle) + '.tar.gz')
    subprocess.run(['tar', '--gzip', '--owner=0', '--group=0', '--numeric-owner', '--sort=name',
                    '-cf', archive, '-C', out, os.path.basename(bundle)], check=True)
    return archive


def main():
    out = os.path.join(ROOT, 'out')
    bundle = os.path.join(out, f'flyt-{version()}-linux-x86_64')
    shutil.rmtree(bundle, ignore_errors=True)
    fill(bundle)
    found = list(problems(bundle))
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
