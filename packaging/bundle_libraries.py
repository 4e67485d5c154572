"""What the managers need of the distribution: their bundle has copies, with their licences.

`flyt`, `flyt-server` and the client libraries need none of it.
"""

import dataclasses
import glob
import os
import re
import shutil
import subprocess

MANAGERS = ('flyt-node-manager', 'flyt-client-manager', 'flyt-cluster-manager', 'flytctl')
# In a bundle. cmake/flyt_control.cmake names it, too.
FOLDER = 'lib/control'
PATH = '$ORIGIN/../lib/control'
LICENCES = f'{FOLDER}/licences'
# Part of glibc, without which no program of a machine runs, or of a GPU's driver.
SYSTEM = re.compile(
    r'(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|libresolv|libutil)\.so\.\d+'
    r'|libcuda\.so\.1|libnvidia-ml\.so\.1|libflyt-softgpu\.so')
GLIBC_MAX = (2, 36)
COMMON_LICENCES = '/usr/share/common-licenses'


class BundleError(Exception):
    """Something that a bundle needs is not on this machine."""


@dataclasses.dataclass
class Elf:
    """What an ELF file says to the loader."""
    needed: list
    rpath: list = dataclasses.field(default_factory=list)
    runpath: list = dataclasses.field(default_factory=list)
    glibc: tuple = (0,)
    private: bool = False  # Needs what belongs to one build of glibc.


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def read_elf(path):
    dynamic = output_of('readelf', '-dW', path)
    versions = output_of('readelf', '-VW', path)

    def folders(tag):
        return [part for value in re.findall(rf'\({tag}\).*\[(.*)\]', dynamic)
                for part in value.split(':') if part]

    newest = max((tuple(map(int, found.split('.')))
                  for found in re.findall(r'Name: GLIBC_([\d.]+)', versions)), default=(0,))
    return Elf(re.findall(r'\(NEEDED\).*\[(.+)\]', dynamic), folders('RPATH'), folders('RUNPATH'),
               newest, 'Name: GLIBC_PRIVATE' in versions)


def elf_problems(elf, name, files):
    """Reasons why one ELF file, `name` in a bundle with these files, would not run elsewhere."""
    manager = name in {f'bin/{one}' for one in MANAGERS}
    brought = os.path.dirname(name) == FOLDER
    for needed in elf.needed:
        if SYSTEM.fullmatch(needed):
            continue
        if not (manager or brought) or f'{FOLDER}/{needed}' not in files:
            yield f'{name} needs {needed}'
    if manager and (elf.rpath != [PATH] or elf.runpath):
        yield f'{name} does not look for libraries in {FOLDER} first: {elf.rpath} {elf.runpath}'
    if brought and (elf.rpath or elf.runpath):
        yield f'{name} looks for libraries elsewhere than its program: {elf.rpath} {elf.runpath}'
    for part in elf.rpath + elf.runpath:
        if not part.startswith('$ORIGIN'):
            yield f'{name} looks for libraries in {part}'
    if elf.glibc > GLIBC_MAX:
        yield f'{name} needs glibc {".".join(map(str, elf.glibc))}'
    if elf.private:
        yield f'{name} needs the very glibc that it was built with'


def loaded_by(program):
    """{name: path} of all libraries that the loader takes for a program, but for the system's."""
    if not os.path.exists(program):
        raise BundleError(f'{program} is not built')
    said = subprocess.run([program], capture_output=True, text=True, check=True,
                          env={'LD_TRACE_LOADED_OBJECTS': '1'}).stdout
    found = {}
    for line in said.splitlines():
        name, arrow, rest = line.strip().partition(' => ')
        if not arrow or SYSTEM.fullmatch(name):
            continue
        path = re.sub(r' \(0x[\da-f]+\)$', '', rest)
        if not path.startswith('/'):
            raise BundleError(f'{program} needs {name}, which is {path}')
        found[name] = path
    return found


def package_of(path):
    """The Debian package that a file is of."""
    # It may be listed as below / or /usr, which are the same folders.
    real = os.path.realpath(path)
    for one in (real, real.removeprefix('/usr'), '/usr' + real):
        said = subprocess.run(['dpkg-query', '-S', one], capture_output=True, text=True,
                              check=False)
        if said.returncode == 0:
            return said.stdout.split(':')[0]
    raise BundleError(f'{path} is of no package, so that its licence is not known')


def licence_texts(package):
    """The package's licence, and what it refers to."""
    own = f'/usr/share/doc/{package}/copyright'
    if not os.path.exists(own):
        raise BundleError(f'{own} is missing')
    with open(own, encoding='utf-8', errors='replace') as file:
        named = re.findall(rf'{COMMON_LICENCES}/([\w.-]*[\w-])', file.read())
    return own, [path for path in {os.path.join(COMMON_LICENCES, name) for name in named}
                 if os.path.exists(path)]


def bring(build, bundle):
    """Copies libraries, a list of them and their licences into the bundle."""
    libraries = {}
    for manager in MANAGERS:
        libraries |= loaded_by(os.path.join(build, 'bin', manager))
    licences = os.path.join(bundle, LICENCES)
    os.makedirs(os.path.join(licences, 'common'))
    rows = []
    for name, path in sorted(libraries.items()):
        shutil.copy(path, os.path.join(bundle, FOLDER, name), follow_symlinks=True)
        package = package_of(path)
        version = output_of('dpkg-query', '-W', '-f', '${Version}', f'{package}')
        rows.append(f'{name:<56} {package} {version}\n')
        own, common = licence_texts(package)
        shutil.copy(own, os.path.join(licences, package), follow_symlinks=True)
        for text in common:
            shutil.copy(text, os.path.join(licences, 'common'), follow_symlinks=True)
    with open(os.path.join(bundle, FOLDER, 'README'), 'w', encoding='utf-8') as file:
        file.write('Libraries of the distribution that this was built on, unchanged, for managers\n'
                   'and flytctl alone. Folder licences has each package\'s licence, and in common\n'
                   f'what these refer to as {COMMON_LICENCES}.\n\n')
        file.writelines(rows)


def missing_licences(bundle, files):
    """Problems: libraries without a licence."""
    if not glob.glob(os.path.join(bundle, FOLDER, '*.so*')):
        yield f'{FOLDER} has no libraries'
        return
    with open(os.path.join(bundle, FOLDER, 'README'), encoding='utf-8') as file:
        listed = dict(re.findall(r'^(\S+\.so\S*) +(\S+) ', file.read(), re.M))
    for path in sorted(files):
        name = os.path.basename(path)
        if os.path.dirname(path) == FOLDER and '.so' in name and (
                f'{LICENCES}/{listed.get(name)}' not in files):
            yield f'{path} is without a licence'
