"""What the built client library must look like: only the ABI exported, nothing run at load."""

import glob
import os
import re
import subprocess

GUEST_ARCHIVES = ('base', 'cuda', 'nvml', 'wire', 'transport', 'rpc', 'commands', 'trace', 'client',
                  'nvml_client')
CLIENT_BYTES_MAX = 5 * 1024 * 1024
# flyt_client_library tells a server that it was given this library as its own driver.
_EXPORT = re.compile(r'cu[A-Z]\w*|cudbg\w*|nvml[A-Z]\w*|flyt_client_library')
# What a C library, and nothing else, brings with it.
_NEEDED = re.compile(r'(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so\.\d+')


def _lines(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def bad_exports(nm_lines):
    """Names that `nm -D --defined-only` shows and the ABI does not have."""
    names = {line.split()[-1].split('@')[0] for line in nm_lines if line.strip()}
    return sorted(name for name in names if not _EXPORT.fullmatch(name))


def global_constructors(nm_lines):
    """Objects of `nm -A` that run code before main."""
    return sorted({line.split(':')[1] for line in nm_lines
                   if '_GLOBAL__sub_I_' in line or '__cxx_global_var_init' in line})


def foreign_libraries(readelf_lines):
    """Shared libraries that `readelf -d` says are needed and a host may not have."""
    matches = [re.search(r'NEEDED.*\[(.+)\]', line) for line in readelf_lines]
    return [m.group(1) for m in matches if m and not _NEEDED.fullmatch(m.group(1))]


def check(build):
    """Findings (path, line, rule, message) over the client library of a build folder."""
    findings = []
    for path in glob.glob(os.path.join(build, 'lib', 'client', '*.so.1')):
        for name in bad_exports(_lines('nm', '-D', '--defined-only', path)):
            findings.append((path, 0, 'guest-exports', f'{name} is not part of the ABI'))
        for name in foreign_libraries(_lines('readelf', '-d', path)):
            findings.append((path, 0, 'guest-needs', f'a client may lack {name}'))
        size = os.path.getsize(path)
        if size > CLIENT_BYTES_MAX:
            findings.append((path, 0, 'guest-size', f'{size} bytes; at most {CLIENT_BYTES_MAX}'))
    for name in GUEST_ARCHIVES:
        path = os.path.join(build, 'archive', f'libflyt_{name}.a')
        for member in global_constructors(_lines('nm', '-A', path)):
            findings.append((path, 0, 'guest-constructors',
                             f'{member} has a global constructor; make it constinit or local'))
    return findings
