#!/usr/bin/env python3
"""flytctl config: checks and imports without any manager. configs_test.py BUILD."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = ''

CLUSTER = '''[vm-resource-db]
host = "db.example.org"
port = 27017
user = "adminUser"
password = "hunter2"
dbname = "flyt"
[ports]
node = 12401
client = 12402
[virt-server-auto-deallocate]
enabled = true
grace-period = 45
'''
NODE = '[resource-manager]\naddress = "10.0.0.1"\nport = 12401\n[virt-server]\nthread-mode = 0\n'
CLIENT = ('[resource-manager]\naddress = "10.0.0.1"\nport = 12402\n'
          '[vcuda-client]\nprocess-monitor-period = 5\n')


class Configs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='flyt-configs-')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = f'{self.folder}/{name}'
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    def ctl(self, *words):
        return subprocess.run([f'{BUILD}/bin/flytctl', *words], capture_output=True, text=True,
                              check=False, timeout=60)

    def helps(self, *front):
        """The help of each command behind `front`, by its words."""
        done = self.ctl(*front, '--help')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        yield front, done.stdout
        _, _, rest = done.stdout.partition('\nSubcommands:\n')
        for line in rest.partition('\n\n')[0].splitlines():
            yield from self.helps(*front, line.split()[0])

    def test_the_help_of_each_command_has_examples_of_it(self):
        helps = dict(self.helps())
        self.assertGreater(len(helps), 45)
        for words, text in helps.items():
            with self.subTest(words):
                examples = text.partition('Examples')[2].partition('Exit status')[0]
                self.assertIn('flytctl', examples)
                if len(words) and not words[0].startswith('migrate'):
                    self.assertRegex(examples, r'flytctl( -[^|&]*)* ' + ' '.join(words) + r'\b')

    def test_every_command_is_completed_by_every_shell(self):
        commands = [words[0] for words in dict(self.helps()) if len(words) == 1]
        for shell in ('bash', 'zsh', 'fish'):
            script = self.ctl('completion', shell).stdout
            self.assertEqual([word for word in commands if word not in script], [], shell)

    def test_what_bash_completes(self):
        script = self.write('flytctl.bash', self.ctl('completion', 'bash').stdout)

        def completed(*words):
            done = subprocess.run(
                ['bash', '-c', f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                 '_flytctl; printf "%s\\n" "${COMPREPLY[@]}"', 'bash', 'flytctl', *words],
                capture_output=True, text=True, check=True, timeout=60,
                env=dict(os.environ, FLYT_CLUSTER=f'unix://{self.folder}/nobody'))
            return done.stdout.split()
        self.assertEqual(completed('expl'), ['explain'])
        self.assertEqual(completed('migr'), ['migrate', 'migrate-auto'])
        self.assertIn('--sms-max', completed('vm', 'set', 'x', '--sm'))
        self.assertEqual(completed('ca', 'issue', 'x', '--role', 'n'), ['node'])
        self.assertEqual(completed('completion', 'z'), ['zsh'])

    @unittest.skipUnless(shutil.which('zsh'), 'zsh is not installed')
    def test_what_zsh_completes(self):
        script = self.write('_flytctl', self.ctl('completion', 'zsh').stdout)

        def completed(*words):
            done = subprocess.run(
                ['zsh', '-f', '-c', 'compdef() {}; compadd() { shift; print -l -- "$@" }; '
                 '_values() { shift; print -l -- "$@" }; '
                 '_describe() { print -l -- ${${(P)2}%%:*} }; '
                 f'source {script}; words=("$@"); CURRENT=$#; _flytctl', 'zsh', 'flytctl', *words],
                capture_output=True, text=True, check=True, timeout=60,
                env=dict(os.environ, FLYT_CLUSTER=f'unix://{self.folder}/nobody'))
            self.assertEqual(done.stderr, '')
            return done.stdout.split()
        self.assertIn('enrol', completed(''))
        self.assertIn('--sms-max', completed('vm', ''))
        self.assertIn('issue', completed('ca', ''))
        self.assertIn('node', completed('ca', 'issue', 'x', '--role', ''))
        self.assertIn('enrol', completed('--cluster', 'cluster-host:7700', ''))
        self.assertIn('--sms-max', completed('--cluster', 'cluster-host:7700', 'vm', ''))
        self.assertEqual(completed('completion', ''), ['bash', 'zsh', 'fish'])

    @unittest.skipUnless(shutil.which('fish'), 'fish is not installed')
    def test_what_fish_completes(self):
        script = self.write('flytctl.fish', self.ctl('completion', 'fish').stdout)

        def completed(line):
            done = subprocess.run(
                ['fish', '--no-config', '-c', f'source {script}; complete -C "{line}"'],
                capture_output=True, text=True, check=True, timeout=60,
                env=dict(os.environ, FLYT_CLUSTER=f'unix://{self.folder}/nobody',
                         HOME=self.folder, PATH=f'{BUILD}/bin:' + os.environ['PATH']))
            self.assertEqual(done.stderr, '')
            return [one.split('\t')[0] for one in done.stdout.splitlines()]
        self.assertEqual(completed('flytctl expl'), ['explain'])
        self.assertIn('--sms-max', completed('flytctl vm set x --sm'))
        self.assertIn('issue', completed('flytctl ca i'))

    def test_a_file_is_checked_for_whom_it_is(self):
        for name, text in (('cluster.toml', '[nodes]\nlost_after = 30\n'),
                           ('node.toml', '[gpus]\nsoft = 1\n'),
                           ('client.toml', '[cluster]\naddresses = ["unix:///run/c.sock"]\n')):
            done = self.ctl('config', 'check', self.write(name, text))
            self.assertEqual((done.returncode, done.stderr), (0, ''))
        done = self.ctl('config', 'check', self.write('x.toml', '[gpus]\nsoft = 1\n'), '--of',
                        'node')
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_wrong_is_told_with_file_and_line(self):
        path = self.write('cluster.toml', '[vms]\ngrace = 5\ncolour = "red"\n')
        done = self.ctl('config', 'check', path)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f'{path}:3: unknown key vms.colour', done.stderr)
        done = self.ctl('config', 'check', self.write('node.toml', '[gpus]\nsoft = "x"\n'))
        self.assertRegex(done.stderr, r'node\.toml:2: gpus\.soft: expected a number')
        done = self.ctl('config', 'check', self.write('client.toml', '[cluster\n'))
        self.assertRegex(done.stderr, r'client\.toml:1: ')
        done = self.ctl('config', 'check', self.write('cluster.toml', '[api]\ntcp = "a:1"\n'))
        self.assertIn('api.tcp needs api.cert', done.stderr)
        self.assertNotEqual(self.ctl('config', 'check', f'{self.folder}/none').returncode, 0)

    def test_whose_a_file_is_taken_for_is_told(self):
        done = self.ctl('config', 'check', self.write('gpu-1.toml', '[gpus]\nsoft = 1\n'))
        self.assertEqual(done.returncode, 2)
        self.assertIn('--of node', done.stderr)
        done = self.ctl('config', 'check', self.write('cluster.toml', '[gpus]\nsoft = 1\n'))
        self.assertNotIn('--of node', done.stderr)

    def test_a_check_is_also_told_as_json(self):
        path = self.write('cluster.toml', '[vms]\ngrace = "x"\n')
        done = self.ctl('--json', 'config', 'check', path)
        told = json.loads(done.stdout)
        self.assertEqual((told['file'], told['of'], told['right']), (path, 'cluster', False))
        self.assertIn('cluster.toml:2: vms.grace: expected a time', told['why'])
        self.assertEqual(done.returncode, 2)

    def test_the_ancestors_files_become_ours(self):
        out = f'{self.folder}/new'
        done = self.ctl('config', 'import', self.write('cluster-mgr.toml', CLUSTER),
                        self.write('servnode.toml', NODE), self.write('client-mgr.toml', CLIENT),
                        '--out', out, '--host', 'gpu-1', '--port', '7000')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertRegex(done.stdout, r'cluster-mgr\.toml:5: not carried over: '
                         r'vm-resource-db\.password: .*requirements\.password_file')
        self.assertEqual(sorted(os.listdir(out)), ['client.toml', 'cluster.toml', 'node.toml'])
        for name in os.listdir(out):
            done = self.ctl('config', 'check', f'{out}/{name}')
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            with open(f'{out}/{name}', encoding='utf-8') as file:
                text = file.read()
            self.assertNotIn('hunter2', text)
            self.assertIn(':7000"', text)

    def test_nothing_is_written_over_and_nothing_of_what_is_wrong(self):
        path = self.write('a.toml', CLUSTER)
        bad = self.write('b.toml', NODE.replace('12401', '"x"'))
        out = f'{self.folder}/new'
        done = self.ctl('config', 'import', path, bad, '--out', out)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f'{bad}:3: resource-manager.port: expected a number from 1 to 65535',
                      done.stderr)
        self.assertFalse(os.path.exists(out))
        self.assertEqual(self.ctl('config', 'import', path, '--out', out).returncode, 0)
        done = self.ctl('config', 'import', path, '--out', out)
        self.assertEqual(done.returncode, 6)
        self.assertIn('is there already', done.stderr)
        done = self.ctl('config', 'import', path, self.write('c.toml', CLUSTER), '--out', out)
        self.assertIn("are both a cluster's", done.stderr)

    def test_an_import_is_also_told_as_json(self):
        path = self.write('a.toml', CLIENT + 'colour = 1\n')
        done = self.ctl('--json', 'config', 'import', path, '--out', self.folder)
        told = json.loads(done.stdout)
        self.assertEqual(told['of'], 'client')
        self.assertIn({'line': 6, 'key': 'vcuda-client.colour',
                       'why': 'unknown: no Flyt has had it'}, told['not_carried'])


if __name__ == '__main__':
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
