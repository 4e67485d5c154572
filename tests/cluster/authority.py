"""Certificates as an operator makes them: `flytctl ca`, in a folder of their own."""

import os
import shutil
import subprocess
import tempfile


class Authority:
    def __init__(self, build, folder=None):
        self.flytctl = os.path.join(os.path.abspath(build), 'bin', 'flytctl')
        self.own = tempfile.mkdtemp(prefix='flyt-ca-') if folder is None else None
        self.folder = f'{folder or self.own}/ca'
        self.run('init')

    def run(self, *words, status=0):
        """What it says; its exit status must be `status`."""
        done = subprocess.run([self.flytctl, 'ca', *words, '--dir', self.folder], text=True,
                              capture_output=True, check=False, timeout=60)
        if done.returncode != status:
            raise AssertionError(f'flytctl ca {words}: {done.returncode}, not {status}: '
                                 f'{done.stdout}{done.stderr}')
        return done.stdout + done.stderr

    def issue(self, name, role, *hosts):
        self.run('issue', name, '--role', role, *(f'--host={host}' for host in hosts))

    def revoke(self, name):
        self.run('revoke', name)

    def files(self, name):
        """Certificate, key and authority, as programs want them."""
        return (f'{self.folder}/{name}.crt', f'{self.folder}/{name}.key', f'{self.folder}/ca.crt')

    def section(self, section, name, more):
        """A part of a daemon's configuration."""
        cert, key, ca = self.files(name)
        return f'[{section}]\n{more}cert = "{cert}"\nkey = "{key}"\nca = "{ca}"\n'

    def remove(self):
        if self.own:
            shutil.rmtree(self.own, ignore_errors=True)
