#!/usr/bin/env python3
"""Tests of a packed archive, unpacked elsewhere.  packaging/bundle_test.py [ARCHIVE]

Its managers use their own libraries and glibc's, also where nothing else is: a folder with glibc,
which is the root of processes for which the rest of this machine does not exist.
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bundle_libraries  # noqa: E402

PLACE = '/opt/flyt'
SECONDS = 90
# $1 is the root, the rest is what to run in it. Mounts end with the process.
ENTER = '''set -e
root="$1"
shift
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot "$root" "$@"
'''
# RUN is a folder that no other such machine has: they have all processes in common, and a node
# manager ends servers of its folder that it does not know.
CLUSTER = 'unix://RUN/cluster/cluster.sock'
NODE_TOML = f'''[node]
state = "/state/node"
run = "RUN/node"
[gpus]
soft = 1
[cluster]
address = "{CLUSTER}"
host = "here"
'''
VM_TOML = f'''[cluster]
addresses = ["{CLUSTER}"]
[vm]
name = "vm-7"
host = "here"
[programs]
socket = "RUN/vm.sock"
[client]
state = "/state/vm"
'''


def wait_for(condition, what):
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f'it never came to that: {what}')
        time.sleep(0.02)


class BareMachine:
    """A folder with a bundle and glibc, and processes that see nothing else."""

    def __init__(self, folder, archive):
        self.root = os.path.join(folder, 'root')
        self.daemons = []
        self.run_folder = f'/run/{os.getpid()}-{os.urandom(4).hex()}'
        for path in ('proc', 'dev', 'run', 'state', 'etc', 'tmp', 'opt', 'lib64'):
            os.makedirs(os.path.join(self.root, path))
        subprocess.run(['tar', '-xzf', archive, '-C', os.path.join(self.root, 'opt')], check=True)
        os.makedirs(self.root + self.run_folder)
        unpacked, = glob.glob(os.path.join(self.root, 'opt', '*'))
        self.bundle = self.root + PLACE
        os.rename(unpacked, self.bundle)
        self.add_glibc()
        # Who may make namespaces may be root in them, and needs that for the rest.
        self.enter = ['unshare', '--mount', *([] if os.geteuid() == 0 else ['--map-root-user']),
                      'sh', '-c', ENTER, 'enter', self.root]

    def add_glibc(self):
        """The loader, and what programs have of it."""
        said = subprocess.run(['ldd', os.path.join(self.bundle, 'bin', 'flyt-node-manager')],
                              capture_output=True, text=True, check=True).stdout
        paths = [path for path in re.findall(r'(/\S+) \(0x', said)
                 if bundle_libraries.SYSTEM.fullmatch(os.path.basename(path))]
        for beside in ('libpthread.so.0', 'libdl.so.2', 'librt.so.1', 'libresolv.so.2'):
            paths += glob.glob(os.path.join(os.path.dirname(paths[0]), beside))
        for path in paths:
            target = self.root + ('/lib64/' if 'ld-linux' in path else '/lib/x86_64-linux-gnu/')
            os.makedirs(target, exist_ok=True)
            shutil.copy(path, target + os.path.basename(path))

    def why_not(self):
        """Why this machine cannot have such a root."""
        try:
            done = subprocess.run([*self.enter, f'{PLACE}/bin/flyt', '--version'],
                                  capture_output=True, text=True, check=False)
        except OSError as error:
            return str(error)
        if done.returncode and re.search(r'unshare|mount|chroot: cannot change root', done.stderr):
            return done.stderr.strip()
        return ''

    def write(self, path, text):
        with open(self.root + path, 'w', encoding='utf-8') as file:
            file.write(self.here(text))

    def here(self, text):
        return text.replace('RUN', self.run_folder)

    def read(self, path):
        with open(self.root + path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def logs(self):
        """What daemons and servers said."""
        return '\n'.join(f'--- {path}:\n{self.read(path.removeprefix(self.root))}' for path in
                         glob.glob(f'{self.root}/state/**/*.log', recursive=True))

    def run(self, program, *words):
        done = subprocess.run([*self.enter, f'{PLACE}/bin/{program}', *words], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, timeout=SECONDS,
                              env={'FLYT_CLUSTER': self.here(CLUSTER),
                                   'FLYT_CLIENT_SOCKET': f'{self.run_folder}/vm.sock'})
        return done.returncode, done.stdout

    def start(self, program, *words):
        """A daemon, once it serves."""
        log = f'/state/{program}.log'
        with open(self.root + log, 'wb') as file:
            daemon = subprocess.Popen([*self.enter, f'{PLACE}/bin/{program}', *words], env={},
                                      stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.daemons.append(daemon)
        wait_for(lambda: 'serving' in self.read(log) or daemon.poll() is not None,
                 f'{program} serves')
        if daemon.poll() is not None:
            raise AssertionError(f'{program} ended: {self.read(log)}')
        return daemon

    def close(self):
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.terminate()
                try:
                    daemon.wait(SECONDS)
                except subprocess.TimeoutExpired:
                    daemon.send_signal(signal.SIGKILL)
                    daemon.wait()


def libraries_in(pid):
    """Paths of the libraries that a process has mapped, and of the loader."""
    with open(f'/proc/{pid}/maps', encoding='utf-8') as file:
        return {line.split(None, 5)[5].strip() for line in file if '.so' in line}


class Unpacked(unittest.TestCase):
    archive = ''

    @classmethod
    def setUpClass(cls):
        # Unix sockets below it have short paths, wherever temporary files are.
        cls.folder = tempfile.TemporaryDirectory(prefix='flyt bundle ')
        cls.machine = BareMachine(cls.folder.name, cls.archive)
        cls.bundle = cls.machine.bundle

    @classmethod
    def tearDownClass(cls):
        cls.machine.close()
        cls.folder.cleanup()

    def loaded(self, path, **environment):
        """{name: path} of what the loader would take for a program or library."""
        loader = glob.glob('/lib64/ld-linux-x86-64.so.2')[0]
        said = subprocess.run([loader, os.path.join(self.bundle, path)], capture_output=True,
                              text=True, check=True,
                              env=dict(environment, LD_TRACE_LOADED_OBJECTS='1')).stdout
        self.assertNotIn('not found', said)
        return dict(re.findall(r'^\t(\S+) => (.+) \(0x[\da-f]+\)$', said, re.M))

    def test_managers_take_their_own_libraries_before_the_distributions(self):
        for manager in bundle_libraries.MANAGERS:
            for environment in ({}, {'LD_LIBRARY_PATH': '/usr/lib/x86_64-linux-gnu'}):
                loaded = self.loaded(f'bin/{manager}', **environment)
                self.assertIn('libprotobuf.so', ' '.join(loaded))
                for name, path in loaded.items():
                    if not bundle_libraries.SYSTEM.fullmatch(name):
                        self.assertEqual(os.path.realpath(path), os.path.realpath(
                            f'{self.bundle}/lib/control/{name}'), manager)

    def test_all_else_takes_none_of_them(self):
        for path in ('bin/flyt', 'bin/flyt-server', 'lib/client/libcuda.so.1',
                     'lib/client/libnvidia-ml.so.1', 'lib/libflyt-softgpu.so'):
            for name in self.loaded(path):
                self.assertRegex(name, bundle_libraries.SYSTEM, path)

    def test_managers_run(self):
        for manager in bundle_libraries.MANAGERS:
            done = subprocess.run([f'{self.bundle}/bin/{manager}', '--help'], env={},
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertIn(manager, done.stdout)

    def test_a_node_manager_does_what_it_is_asked_to_on_gpu_machines(self):
        out = f'{self.machine.root}/tmp/gpu-test'
        done = subprocess.run(
            [f'{self.bundle}/dev', 'gpu-test', '--only', 'node', '--driver', 'soft', '--out', out],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=500)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r'[1-9]\d passed, 0 failed')
        # And tells how.
        with open(f'{out}/node-shared.log', encoding='utf-8') as file:
            said = file.read()
        for what in ('SIGKILL to node manager', 'lease-adopted', 'server-upgraded',
                     'flytctl --json resize'):
            self.assertTrue(what in said, what)
        self.assertEqual(len(glob.glob(f'{out}/node-shared/state/leases/*/server.log')), 2)

    def test_everybody_may_read_it_and_nobody_write(self):
        with tarfile.open(self.archive) as archive:
            for member in archive:
                wanted = 0o555 if member.isdir() else 0o444
                self.assertEqual(member.mode & wanted, wanted, member.name)
                self.assertTrue(member.issym() or not member.mode & 0o022, member.name)
                self.assertEqual((member.uid, member.gid), (0, 0), member.name)

    def test_units_and_configurations_are_of_the_bundle(self):
        for unit in glob.glob(f'{self.bundle}/systemd/*.service'):
            with open(unit, encoding='utf-8') as file:
                paths = re.findall(rf'(?:=|file:)({PLACE}/\S+)', file.read())
            self.assertEqual(len(paths), 2, unit)
            for path in paths:
                self.assertTrue(os.path.exists(self.machine.root + path), path)
        self.assertEqual(len(glob.glob(f'{self.bundle}/systemd/*')), 3)

    def test_a_cluster_runs_where_there_is_nothing_but_glibc(self):
        machine = self.machine
        if reason := machine.why_not():
            self.skipTest(f'no such root here: {reason}')
        machine.write('/state/node.toml', NODE_TOML)
        machine.write('/state/vm.toml', VM_TOML)
        daemons = [
            machine.start('flyt-cluster-manager', '--state', '/state/cluster', '--run',
                          f'{machine.run_folder}/cluster'),
            machine.start('flyt-node-manager', '--config', '/state/node.toml', '--end-leases'),
            machine.start('flyt-client-manager', '--config', '/state/vm.toml')]
        wait_for(lambda: '"ready"' in machine.run('flytctl', '--json', 'nodes')[1], 'a node')
        self.assertEqual(
            machine.run('flytctl', 'vm', 'set', 'vm-7', '--sms', '8', '--memory', '256M')[0], 0)
        for sample in ('vector_add', 'reduction'):
            status, said = machine.run('flyt', 'run', '--', f'{PLACE}/samples/{sample}')
            self.assertEqual(status, 0, said + machine.logs())
        for daemon in daemons:
            for path in libraries_in(daemon.pid):
                self.assertIn(machine.root, path)
            self.assertIn('libgrpc.so', ' '.join(libraries_in(daemon.pid)))
        self.check_servers()

    def check_servers(self):
        """The lease's server knows nothing of the libraries of the manager that started it."""
        node = f'unix://{self.machine.run_folder}/node/node.sock'
        status, said = self.machine.run('flytctl', '--node', node, '--json', 'leases')
        self.assertEqual(status, 0, said)
        servers = re.findall(r'"server_pid": ?"?(\d+)', said)
        self.assertEqual(len(servers), 1, said)
        with open(f'/proc/{servers[0]}/environ', encoding='utf-8') as file:
            self.assertNotIn('LD_', file.read())
        libraries = ' '.join(libraries_in(servers[0]))
        self.assertIn('/libc.so.6', libraries)
        self.assertNotIn('lib/control', libraries)


if __name__ == '__main__':
    if len(sys.argv) > 1 and not sys.argv[1].startswith('-'):
        Unpacked.archive = os.path.abspath(sys.argv.pop(1))
    else:
        packed = glob.glob(os.path.join(os.path.dirname(HERE), 'out', 'flyt-*-linux-x86_64.tar.gz'))
        Unpacked.archive = max(packed, key=os.path.getmtime, default='')
    unittest.main(verbosity=2)
