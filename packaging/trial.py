#!/usr/bin/env python3
"""Tries the Debian packages or the bundle on a machine with systemd: a container over this system,
which sees nothing of what happens in it. Needs root and systemd-nspawn (apt-get install
systemd-container).

trial.py             the packages in out/; ./dev package makes them
trial.py --bundle    the bundle in out/; ./dev bundle makes it"""

import argparse
import contextlib
import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECONDS_MAX = 900
UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash -c '/bin/bash /opt/trial/trial.sh {kind} >/opt/trial/found 2>&1'
ExecStopPost=/bin/systemctl poweroff
"""
# Networks are the host's business.
MASKED = ('systemd-resolved', 'systemd-networkd', 'systemd-timesyncd')


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def machine():
    """This system, and a folder above it for what changes."""
    folder = tempfile.mkdtemp(prefix='flyt-trial-')
    run('mount', '-t', 'tmpfs', 'none', folder)
    try:
        upper, work, whole = (f'{folder}/{name}' for name in ('upper', 'work', 'machine'))
        for name in (upper, work, whole):
            os.mkdir(name)
        run('mount', '-t', 'overlay', 'overlay', '-o',
            f'lowerdir=/,upperdir={upper},workdir={work}', whole)
        try:
            yield whole
        finally:
            run('umount', whole)
    finally:
        run('umount', folder)
        os.rmdir(folder)


def prepare(whole, kind, archives):
    here = os.path.join(ROOT, 'packaging')
    trial, units = f'{whole}/opt/trial', f'{whole}/etc/systemd/system'
    os.makedirs(trial)
    os.makedirs(f'{units}/multi-user.target.wants', exist_ok=True)
    shutil.copy(f'{here}/trial.sh', trial)
    shutil.copy(f'{here}/trial_program.py', f'{trial}/program.py')
    os.chmod(f'{trial}/program.py', 0o644)
    os.makedirs(f'{trial}/{kind}')
    for archive in archives:
        shutil.copy(archive, f'{trial}/{kind}')
    with open(f'{units}/flyt-trial.service', 'w', encoding='utf-8') as file:
        file.write(UNIT.format(kind=kind))
    os.symlink('/etc/systemd/system/flyt-trial.service',
               f'{units}/multi-user.target.wants/flyt-trial.service')
    for name in MASKED:
        with contextlib.suppress(FileExistsError):
            os.symlink('/dev/null', f'{units}/{name}.service')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nspawn', default='systemd-nspawn', metavar='PROGRAM')
    parser.add_argument('--bundle', action='store_true')
    options = parser.parse_args()
    kind, pattern = ('bundle', 'flyt-*.tar.gz') if options.bundle else ('packages', 'flyt-*.deb')
    archives = glob.glob(f'{ROOT}/out/{pattern}')
    if not archives:
        sys.exit(f'trial: no {kind} in out/: ./dev {kind.removesuffix("s")}')
    if os.geteuid() != 0 or shutil.which(options.nspawn) is None:
        sys.exit('trial: needs root, and systemd-nspawn: apt-get install systemd-container')
    with machine() as whole:
        prepare(whole, kind, archives)
        environment = dict(os.environ)
        if not os.path.exists('/sys/fs/cgroup/cgroup.controllers'):
            environment['SYSTEMD_NSPAWN_UNIFIED_HIERARCHY'] = '0'
        booted = subprocess.run([options.nspawn, '-D', whole, '--register=no', '--keep-unit',
                                 '--private-network', '-b'], env=environment, check=False,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=SECONDS_MAX)
        found = ''
        if os.path.exists(f'{whole}/opt/trial/found'):
            with open(f'{whole}/opt/trial/found', encoding='utf-8') as file:
                found = file.read()
    print(found, end='')
    if 'WRONG' in found or not found.endswith('the end\n'):
        sys.exit(f'trial: not as it should be\n{"" if found else booted.stdout[-2000:]}')


if __name__ == '__main__':
    main()
