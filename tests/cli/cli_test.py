#!/usr/bin/env python3
"""Command lines: help and completion agree, mistakes have their status. cli_test.py BUILD."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = ''
DAEMONS = ('flyt-server', 'flyt-node-manager', 'flyt-cluster-manager', 'flyt-client-manager')
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../docs')
COMPLETE = {'flyt': '_flyt', 'flytctl': '_flytctl'}


def program(name):
    return os.path.join(BUILD, 'bin', name)


def there(*names):
    return [name for name in names if os.path.exists(program(name))]


class Cli(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='flyt-cli-')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # Nobody of this machine is asked.
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith('FLYT')}
        self.environment.update(FLYT_CLIENT_SOCKET=f'{self.folder}/nobody.sock',
                                FLYT_CLUSTER=f'unix://{self.folder}/nobody.sock')

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_program(self, *words, status=0, **more):
        done = subprocess.run([program(words[0]), *words[1:]], capture_output=True, text=True,
                              check=False, timeout=120, env=dict(self.environment, **more))
        self.assertEqual(done.returncode, status, f'{words}: {done.stdout}{done.stderr}')
        return done

    def helps(self, *front):
        """The help of a program and of each command behind it, by its words."""
        text = self.run_program(*front, '--help').stdout
        yield front, text
        _, _, rest = text.partition('\nSubcommands:\n')
        for line in rest.partition('\n\n')[0].splitlines():
            yield from self.helps(*front, line.split()[0])


class Help(Cli):
    def test_each_program_has_examples_and_a_version(self):
        for name in there('flyt', 'flytctl', *DAEMONS):
            self.assertIn('Examples', self.run_program(name, '--help').stdout)
            self.assertRegex(self.run_program(name, '--version').stdout, r'^\d+\.\d+\.\d+\n$')

    def test_the_pages_name_each_command_and_option_of_the_help(self):
        pages = {'flyt': ('flyt-run', 'flyt-trace', 'nvml')}
        for name in there('flyt', 'flytctl', *DAEMONS):
            text = ''
            for page in pages.get(name, (name,)):
                with open(f'{DOCS}/{page}.md', encoding='utf-8') as file:
                    text += file.read()
            named = set(re.findall(r'(?<![\w-])--[a-z][a-z-]+', text))
            for words, shown in self.helps(name):
                options = shown.partition('\nOptions:\n')[2].partition('\n\n')[0]
                # change-config has a short form of each, as it had.
                found = set(re.findall(r'(?<![\w-])(?<!-\w,)--[a-z][a-z-]+', options))
                with self.subTest(' '.join(words)):
                    self.assertEqual(found - named - {'--help', '--version'}, set())
                    for word in words[1:]:
                        self.assertRegex(text, rf'\b{word}\b')

    def test_the_help_says_what_holds_where_an_option_is_missing(self):
        for name in there('flyt', 'flytctl', *DAEMONS):
            for words, text in self.helps(name):
                options = text.partition('\nOptions:\n')[2].partition('\n\n')[0]
                for option in re.split(r'\n  (?=-)', f'\n{options}')[1:]:
                    # All of vm set stays as it is, and what can be repeated need not be there.
                    takes = re.match(r'[-\w,]+ [A-Z]', option) and words[1:] != ('vm', 'set')
                    if not takes or re.search(r'REQUIRED|Env:|repeatable', option):
                        continue
                    with self.subTest(' '.join(words)):
                        self.assertRegex(option, r'^\S+ \S+( in \[.*\])?=|if missing|instead of')

    def completed(self, name, script, *words):
        line = (f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); {COMPLETE[name]}; '
                'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(['bash', '-c', line, 'bash', name, *words], capture_output=True,
                              text=True, check=True, timeout=60, env=self.environment)
        self.assertEqual(done.stderr, '')
        return done.stdout.split()

    def test_bash_completes_each_option_that_the_help_of_a_command_shows(self):
        for name in there(*COMPLETE):
            script = self.path(name)
            with open(script, 'w', encoding='utf-8') as file:
                file.write(self.run_program(name, 'completion', 'bash').stdout)
            for words, text in self.helps(name):
                # Those of the program itself stand before a command.
                options = text.partition('\nOptions:\n')[2].partition('\n\n')[0]
                shown = set(re.findall(r'(?<![\w-])--[a-z][a-z-]+', options)) - {'--version'}
                if len(words) == 1:
                    continue
                found = set(self.completed(name, script, *words[1:], '--'))
                with self.subTest(' '.join(words)):
                    self.assertEqual(shown - found, set())

    def values(self):
        """Options of flytctl that take one of a few values: a command, an option, its values."""
        found = [(words[1:], option, values.split(','))
                 for words, text in self.helps('flytctl')
                 for option, values in re.findall(r'(--[a-z-]+) TEXT:\{([^}]*)\}', text)]
        self.assertGreater(len(found), 5)
        return found

    def test_bash_completes_the_values_that_the_help_of_an_option_shows(self):
        if not there('flytctl'):
            self.skipTest('flytctl is not built')
        script = self.path('flytctl')
        with open(script, 'w', encoding='utf-8') as file:
            file.write(self.run_program('flytctl', 'completion', 'bash').stdout)
        for words, option, values in self.values():
            with self.subTest(f'{words} {option}'):
                self.assertEqual(self.completed('flytctl', script, *words, option, ''), values)

    @unittest.skipUnless(shutil.which('fish'), 'fish is not installed')
    def test_fish_completes_the_values_that_the_help_of_an_option_shows(self):
        if not there('flytctl'):
            self.skipTest('flytctl is not built')
        with open(self.path('flytctl.fish'), 'w', encoding='utf-8') as file:
            file.write(self.run_program('flytctl', 'completion', 'fish').stdout)
        for words, option, values in self.values():
            done = subprocess.run(
                ['fish', '--no-config', '-c', f'source {self.path("flytctl.fish")}; '
                 f'complete -C "flytctl {" ".join(words)} {option} "'], capture_output=True,
                text=True, check=True, timeout=60, env=dict(self.environment, HOME=self.folder))
            with self.subTest(f'{words} {option}'):
                self.assertEqual(sorted(done.stdout.split()), sorted(values))

    def test_bash_completes_commands_files_and_programs(self):
        script = self.path('flyt')
        with open(script, 'w', encoding='utf-8') as file:
            file.write(self.run_program('flyt', 'completion', 'bash').stdout)
        os.mkdir(self.path('tokens'))
        for words, expected in (
                (['ru'], ['run']), (['run'], ['run']), (['client', 'st'], ['status']),
                (['completion', 'f'], ['fish']), (['run', '--tok'], ['--token-file']),
                (['run', '--token-file', self.path('tok')], [self.path('tokens')]),
                (['client', 'install', '--root', self.path('tok')], [self.path('tokens')]),
                (['run', '--wait', ''], []),
                (['run', '--', self.path('tok')], [self.path('tokens')])):
            self.assertEqual(sorted(set(self.completed('flyt', script, *words))), expected, words)

    @unittest.skipUnless(shutil.which('zsh'), 'zsh is not installed')
    def test_what_zsh_completes(self):
        with open(self.path('_flyt'), 'w', encoding='utf-8') as file:
            file.write(self.run_program('flyt', 'completion', 'zsh').stdout)

        def completed(*words):
            # The name of each spec, or the command line behind --, for which zsh has to know the
            # commands there are.
            done = subprocess.run(
                ['zsh', '-f', '-c', 'compdef() {}; _arguments() { print -l -- "${(@)@%%\\[*}" }; '
                 '_normal() { print -l -- $words $CURRENT $+commands[ls] }; '
                 '_describe() { print -l -- ${${(P)2}%%:*} }; '
                 f'source {self.path("_flyt")}; words=("$@"); CURRENT=$#; _flyt', 'zsh', 'flyt',
                 *words], capture_output=True, text=True, check=True, timeout=60,
                env=self.environment)
            self.assertEqual(done.stderr, '')
            return done.stdout.splitlines()
        self.assertIn('server-info', completed(''))
        self.assertIn('--token-file', completed('run', '--t'))
        self.assertIn('*--read', completed('trace', '--read', 'a', '--'))
        self.assertIn('1:what:(install restore status)', completed('client', ''))
        self.assertEqual(completed('run', '--server', 'x', '--', 'ls', 'a'), ['ls', 'a', '2', '1'])

    @unittest.skipUnless(shutil.which('fish'), 'fish is not installed')
    def test_what_fish_completes(self):
        with open(self.path('flyt.fish'), 'w', encoding='utf-8') as file:
            file.write(self.run_program('flyt', 'completion', 'fish').stdout)

        def completed(line):
            done = subprocess.run(
                ['fish', '--no-config', '-c',
                 f'source {self.path("flyt.fish")}; complete -C "{line}"'],
                capture_output=True, text=True, check=True, timeout=60,
                env=dict(self.environment, HOME=self.folder))
            self.assertEqual(done.stderr, '')
            return [one.split('\t')[0] for one in done.stdout.splitlines()]
        self.assertEqual(completed('flyt server'), ['server-info'])
        self.assertIn('--token-file', completed('flyt run --t'))
        self.assertEqual(completed('flyt client res'), ['restore'])
        os.mkdir(self.path('tokens'))
        for front in ('flyt run --server x --', 'flyt trace --', 'flyt run -- ls -l'):
            self.assertEqual(completed(f'{front} {self.path("tok")}'), [self.path('tokens') + '/'])
        self.assertIn('fish', completed('flyt run -- fis'))


class Mistakes(Cli):
    def test_wrong_options_have_a_status_that_no_program_has(self):
        for words, status in ((['run', '--sever', 'x', '--', 'true'], 127),
                              (['run'], 127), (['trace', '--events', 'x', '--', 'true'], 127),
                              (['smi', '--jason'], 2), (['smi'], 2), (['client'], 2),
                              (['completion', 'csh'], 2), (['nothing'], 2), ([], 2)):
            done = self.run_program('flyt', *words, status=status)
            self.assertIn('--help', done.stderr, words)

    def test_what_is_misspelled_is_named(self):
        for words, status, said in (
                (['flyt', 'rnu'], 2, 'there is no command rnu; there are: run, '),
                (['flyt'], 2, 'a command is missing; there are: run, '),
                (['flyt', 'client', 'stat'], 2, 'there is no command stat; there are: install, '),
                (['flyt', 'smi', '--jason'], 2, 'there is no option --jason'),
                (['flyt', 'run', '--sever', 'x', '--', 'true'], 127, 'there is no option --sever'),
                (['flyt-server', '--lsten', 'x'], 1, 'there is no option --lsten'),
                (['flyt-server', '--listen', 'unix:///a', 'unix:///b'], 1, 'unix:///b'),
                (['flyt-server', '--listen', 'unix:///a', '--memory', 'lots'], 1,
                 "'lots' is no size; sizes are bytes, or like 512M or 1.5G"),
                (['flyt', 'run', '--server', 'x', '--'], 127, 'command is required'),
                (['flyt', 'client', '--'], 2, 'a command is missing; there are: install, '),
                (['flytctl', 'events', '--after', '-1'], 2, "'-1' is no number from 0 on"),
                (['flytctl', 'create', 'x', '--sms', '-8', '--memory', '1G'], 2,
                 "--sms: '-8' is no number"),
                (['flytctl', '--node', 'unix:///a', 'vms'], 2, 'vms asks a cluster: name it with'),
                (['flytctl', '--node', 'unix:///a', 'vm', 'rm', 'a'], 2, 'vm asks a cluster'),
                (['flytctl', '--cluster', 'unix:///a', 'token', 'a'], 2, 'token asks a node'),
                (['flytctl', 'lease'], 2, 'there is no command lease; there are: '),
                (['flytctl', 'create', 'x', '--sm', '4'], 2, 'there is no option --sm'),
                (['flytctl', '--node', 'tcp://a:1', 'leases'], 2, 'unix:///PATH or HOST:PORT'),
                (['flytctl', '--cluster', '/a', 'vms'], 2, 'unix:///PATH or HOST:PORT')):
            if there(words[0]):
                self.assertIn(said, self.run_program(*words, status=status).stderr, words)

    def test_what_gets_nowhere_is_no_success(self):
        check = ['--config', self.path('x.toml'), '--check-config']
        with open(self.path('x.toml'), 'w', encoding='utf-8') as file:
            file.write('[events]\nmax = 10\n')
        for words in (['flyt', 'version'], ['flyt', 'completion', 'bash'], ['flyt', '--help'],
                      ['flytctl', 'completion', 'bash'], ['flytctl', 'vms', '--help'],
                      ['flytctl', 'config', 'check', self.path('x.toml')],
                      ['flyt-server', '--version'], ['flyt-node-manager', *check],
                      ['flyt-cluster-manager', *check]):
            if not there(words[0]):
                continue
            with open('/dev/full', 'w', encoding='utf-8') as full:
                done = subprocess.run([program(words[0]), *words[1:]], stdout=full,
                                      stderr=subprocess.PIPE, text=True, check=False, timeout=120,
                                      env=self.environment)
            self.assertEqual((done.returncode, done.stderr.count('\n')), (1, 1), words)
            self.assertRegex(done.stderr, 'cannot write to the standard output(: No space left on'
                             ' device|; is the disk full\\?)\n')

    def test_an_authority_that_is_no_certificate_is_named(self):
        if not there('flyt-cluster-manager'):
            self.skipTest('the control plane is not built')
        self.authority()
        with open(self.path('none.crt'), 'w', encoding='utf-8') as file:
            file.write('nothing\n')
        pair = ['--cert', self.path('ca/cluster.crt'), '--key', self.path('ca/cluster.key')]
        done = self.run_program('flytctl', '--cluster', '127.0.0.1:1', *pair, '--ca',
                                self.path('none.crt'), 'vms', status=2)
        self.assertIn(f'{self.path("none.crt")}: the certificate cannot be read', done.stderr)

    def test_two_client_managers_do_not_share_what_they_keep(self):
        if not there('flyt-client-manager'):
            self.skipTest('the control plane is not built')
        words = self.configured(
            'flyt-client-manager', f'[cluster]\naddresses = ["unix://{self.folder}/none"]\n'
            f'[programs]\nsocket = "{self.path("one.sock")}"\n'
            f'[client]\nstate = "{self.path("state")}"\n')
        with subprocess.Popen([program(words[0]), *words[1:]], stderr=subprocess.PIPE, text=True,
                              env=self.environment) as first:
            self.addCleanup(first.wait)
            self.addCleanup(first.terminate)
            told = ''
            while 'nothing comes from the cluster' not in told:
                told = first.stderr.readline()
                self.assertNotEqual(told, '')
            # Without what gRPC puts before it.
            self.assertRegex(told, r'why="unix://[^ ]*/none: unix:[^ ]*/none: No such file')
            done = self.run_program(*words, '--socket', self.path('two.sock'), status=1)
            self.assertIn(f'runs with the folder {self.path("state")}; stop it, or set client',
                          done.stderr)
            first.terminate()

    def test_an_option_that_can_be_repeated_leaves_what_stands_behind_it(self):
        # The name of the VM, and not another label.
        done = self.run_program('flytctl', 'vm', 'set', '--label', 'a=b', 'train', status=3) \
            if there('flytctl') else self.skipTest('flytctl is not built')
        self.assertIn('does flyt-cluster-manager run there', done.stderr)

    def test_a_report_that_cannot_be_written_is_told_before_the_program_runs(self):
        for option in ('--output', '--chrome'):
            ran = self.path('ran')
            done = self.run_program('flyt', 'trace', option, self.path('none/report'), '--',
                                    'touch', ran, status=127)
            self.assertIn(f'cannot write {self.path("none/report")}: No such file', done.stderr)
            self.assertFalse(os.path.exists(ran))
        self.assertIn('No such file', self.run_program('flyt', 'trace', '--read', ran,
                                                       status=127).stderr)

    def test_a_user_that_there_is_not_is_found_by_a_check(self):
        with open(self.path('x.toml'), 'w', encoding='utf-8') as file:
            file.write('[access]\noperators = ["nobody-at-all"]\n')
        for name in there('flyt-cluster-manager'):
            done = self.run_program(name, '--config', self.path('x.toml'), '--check-config',
                                    status=1)
            self.assertIn('there is no user nobody-at-all', done.stderr)

    def test_files_that_cannot_be_read_are_all_found_by_a_check(self):
        for name, text in (
                ('flyt-cluster-manager', '[cluster]\nstore = "etcd:a:1"\nadvertise = "a:4"\n'
                 '[api]\ncert\nkey\nca\ncrl\n[metrics]\ntoken\n[etcd]\ncert\nkey\nca\n'
                 '[enrol]\nlisten = "a:2"\nkey\n'
                 '[requirements]\nmongodb = "mongodb://ann@a:3/"\npassword_file\n'),
                ('flyt-node-manager', '[api]\ncert\nkey\nca\ncrl\n[metrics]\ntoken\n'
                 '[cluster]\ncert\nkey\nca\ncrl\n'),
                ('flyt-client-manager', '[cluster]\naddresses = ["a:1"]\ncert\nkey\nca\ncrl\n')):
            if not there(name):
                continue
            files, section, config = {}, '', ''
            for line in text.splitlines():
                section = line.strip('[]') if line.startswith('[') else section
                if line.islower() and line.replace('_', '').isalpha():
                    path = files[f'{section}.{line}'] = self.path(f'{name}.{section}.{line}')
                    line = f'{line} = "{path}"'
                config += f'{line}\n'
            words = [*self.configured(name, config), '--check-config']
            told = self.run_program(*words, status=1).stderr
            for key, path in files.items():
                self.assertIn(f'{key}: cannot read {path}: No such file', told)
            self.assertEqual((told.count('cannot read'), told.count('\n')), (len(files), 1))
            first, *others = files.values()
            for path in others:
                with open(path, 'w', encoding='utf-8') as file:
                    file.write('something\n')
            open(others[0], 'w', encoding='utf-8').close()
            told = self.run_program(*words, status=1).stderr
            self.assertIn(f'cannot read {first}: No such file', told)
            self.assertIn(f'{others[0]} is empty', told)
            self.assertEqual(told.count(self.folder), 3)

    def test_daemons_say_how_they_are_used(self):
        for name in there(*DAEMONS):
            done = self.run_program(name, '--no-such-option', status=1)
            self.assertIn('--help', done.stderr)

    def test_who_has_no_server_is_told_what_to_do(self):
        done = self.run_program('flyt', 'run', '--', 'true', status=127)
        self.assertIn('--server URL', done.stderr)
        self.assertIn('flyt-client-manager', done.stderr)
        self.assertEqual(done.stderr.count('\n'), 1)

    def test_who_finds_no_client_manager_at_its_socket_is_told_what_to_do(self):
        path = self.path('left.sock')
        left = socket.socket(socket.AF_UNIX)
        left.bind(path)
        left.close()
        for words, status in ((['run', '--', 'true'], 127), (['client', 'status'], 1)):
            done = self.run_program('flyt', *words, status=status, FLYT_CLIENT_SOCKET=path)
            self.assertIn('refused; start flyt-client-manager', done.stderr)
            self.assertIn(f'FLYT_CLIENT_SOCKET: it is {path} now', done.stderr)
            self.assertEqual(done.stderr.count('\n'), 1)

    def test_an_address_that_is_none_is_told_with_those_that_are(self):
        for url in ('gpu-host:7700', 'tpc://gpu-host:7700', 'tcp://gpu-host', 'unix://x.sock'):
            done = self.run_program('flyt', 'run', '--server', url, '--', 'true', status=127)
            self.assertIn('tcp://host:port', done.stderr)
            self.assertIn(url, done.stderr)

    def test_where_nobody_listens_the_address_and_the_reason_are_told(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            tcp = f'tcp://127.0.0.1:{taken.getsockname()[1]}'
            for url in (tcp, f'unix://{self.path("none.sock")}'):
                for words in (['run', '--server', url, '--', 'true'], ['smi', '--server', url],
                              ['server-info', '--server', url, '--json']):
                    done = self.run_program('flyt', *words, status=127 if words[0] == 'run' else 1)
                    self.assertEqual(done.stderr.count(url), 1)
                    self.assertRegex(done.stderr, 'refused|No such file')
                    self.assertIn('does flyt-server listen there?', done.stderr)
                    self.assertEqual(done.stdout, '')

    def test_a_place_to_listen_that_is_taken_is_told(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            taken.listen()
            url = f'tcp://127.0.0.1:{taken.getsockname()[1]}'
            done = self.run_program('flyt-server', '--listen', url, '--driver', 'soft',
                                    '--log-level', 'off', status=1)
            self.assertIn(url, done.stderr)
            self.assertIn('in use; another process listens there', done.stderr)
            self.assertIn('--listen', done.stderr)
        control = f'unix://{self.listening("control.sock")}'
        done = self.run_program('flyt-server', '--listen', f'unix://{self.path("own.sock")}',
                                '--driver', 'soft', '--log-level', 'off', '--control', control,
                                status=1)
        self.assertIn(control, done.stderr)
        self.assertIn('another address with --control', done.stderr)

    def listening(self, name):
        taken = socket.socket(socket.AF_UNIX)
        self.addCleanup(taken.close)
        taken.bind(self.path(name))
        taken.listen()
        return self.path(name)

    def authority(self):
        """Settings of a certificate that lets its owner serve on TCP."""
        self.run_program('flytctl', 'ca', 'init', '--dir', self.path('ca'))
        self.run_program('flytctl', 'ca', 'issue', 'cluster', '--role', 'admin', '--host',
                         '127.0.0.1', '--dir', self.path('ca'))
        return (f'cert = "{self.path("ca/cluster.crt")}"\nkey = "{self.path("ca/cluster.key")}"\n'
                f'ca = "{self.path("ca/ca.crt")}"\n')

    def configured(self, name, text):
        with open(self.path(f'{name}.toml'), 'w', encoding='utf-8') as file:
            file.write(text)
        return [name, '--config', self.path(f'{name}.toml')]

    def test_a_place_of_a_daemon_that_is_taken_is_told_with_its_setting(self):
        if not there('flyt-cluster-manager'):
            self.skipTest('the control plane is not built')
        taken = socket.socket()
        self.addCleanup(taken.close)
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        tcp = f'127.0.0.1:{taken.getsockname()[1]}'
        unix = self.listening('taken.sock')
        own = f'unix = "{self.path("own.sock")}"\n'
        files = self.authority()
        own_folders = f'state = "{self.folder}/state"\nrun = "{self.folder}/run"\n'
        cluster, node = f'[cluster]\n{own_folders}', f'[node]\n{own_folders}[gpus]\nsoft = 1\n'
        for name, text, place, key in (
                ('flyt-cluster-manager', f'{cluster}[api]\nunix = "{unix}"\n', unix, 'api.unix'),
                ('flyt-cluster-manager', f'{cluster}[api]\n{own}tcp = "{tcp}"\n{files}', tcp,
                 'api.tcp'),
                ('flyt-cluster-manager', f'{cluster}[api]\n{own}[metrics]\nlisten = "{tcp}"\n', tcp,
                 'metrics.listen'),
                ('flyt-cluster-manager', f'{cluster}[api]\n{own}{files}[page]\nlisten = "{tcp}"\n',
                 tcp, 'page.listen'),
                ('flyt-cluster-manager', f'{cluster}[api]\n{own}{files}[enrol]\nlisten = "{tcp}"\n'
                 f'key = "{self.path("ca/ca.key")}"\n', tcp, 'enrol.listen'),
                ('flyt-node-manager', f'{node}[api]\nunix = "{unix}"\n', unix, 'api.unix'),
                ('flyt-node-manager', f'{node}[api]\n{own}tcp = "{tcp}"\n{files}', tcp, 'api.tcp'),
                ('flyt-node-manager', f'{node}[api]\n{own}[metrics]\nlisten = "{tcp}"\n', tcp,
                 'metrics.listen'),
                ('flyt-client-manager', f'[cluster]\naddresses = ["unix:///{self.folder}/none"]\n'
                 f'[programs]\nsocket = "{unix}"\n[client]\nstate = "{self.folder}/state"\n', unix,
                 'programs.socket or --socket')):
            with self.subTest(f'{name} {key}'):
                told = self.run_program(*self.configured(name, text), status=1).stderr
                reason = told.splitlines()[-1]
                self.assertIn(place, reason)
                self.assertIn('Address already in use; another process listens there', reason)
                self.assertEqual('or a file has that name' in reason, place == unix)
                self.assertTrue(reason.endswith(f' another address with {key}'), reason)

    def test_who_lets_everybody_in_is_warned(self):
        warning = 'whoever reaches this address can use the GPU'
        for url, warned in (('tcp://0.0.0.0:0', True), ('tcp://127.0.0.1:0', False),
                            (f'unix://{self.path("own.sock")}', False)):
            ready, told = os.pipe()
            with open(self.path('server.log'), 'w+b') as log:
                server = subprocess.Popen(
                    [program('flyt-server'), '--listen', url, '--driver', 'soft',
                     '--ready-fd', str(told)], stderr=log, pass_fds=[told])
                os.close(told)
                with os.fdopen(ready, 'rb') as until:
                    until.read(5)
                server.terminate()
                server.wait()
                log.seek(0)
                self.assertEqual(warning in log.read().decode(), warned, url)

    def test_who_has_no_token_is_told_how_to_get_one(self):
        with open(self.path('key'), 'wb', opener=lambda *at: os.open(*at, 0o600)) as file:
            file.write(bytes(32))
        url = f'unix://{self.path("lease.sock")}'
        ready, told = os.pipe()
        server = subprocess.Popen(
            [program('flyt-server'), '--listen', url, '--driver', 'soft', '--lease', 'a',
             '--token-key', self.path('key'), '--ready-fd', str(told)],
            stderr=subprocess.DEVNULL, pass_fds=[told])
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        os.close(told)
        with os.fdopen(ready, 'rb') as until:
            until.read(5)
        done = self.run_program('flyt', 'run', '--server', url, '--', 'true', status=127)
        self.assertIn('a token is needed; `flytctl token LEASE` issues one', done.stderr)

    def test_a_keeper_without_recovery_is_refused(self):
        done = self.run_program('flyt-server', '--listen', f'unix://{self.path("a.sock")}',
                                '--driver', 'soft', '--keeper', self.path('keeper'), status=1)
        self.assertIn('--keeper needs --recover', done.stderr)

    def test_options_of_a_server_that_could_do_nothing_are_refused(self):
        server = ['flyt-server', '--listen', f'unix://{self.path("a.sock")}', '--driver', 'soft']
        done = self.run_program(*server, '--gpu-sessions', '4', status=1)
        self.assertIn('--gpu-sessions needs --gpu-room', done.stderr)
        for fd in ('99', '-1'):
            done = self.run_program(*server, '--ready-fd', fd, status=1)
            self.assertIn(f'--ready-fd {fd}: no such descriptor is open', done.stderr)
        with open('/dev/null', 'rb') as reads:
            done = subprocess.run([program(server[0]), *server[1:], '--ready-fd', '0'],
                                  stdin=reads, stderr=subprocess.PIPE, text=True, check=False,
                                  timeout=120)
        self.assertEqual(done.returncode, 1)
        self.assertIn('--ready-fd 0: the descriptor cannot be written to', done.stderr)

    def test_options_of_clients_are_refused_where_a_server_listens(self):
        server = ['flyt-server', '--driver', 'soft', '--log-level', 'off']
        listen = [*server, '--listen', f'unix://{self.path("a.sock")}']
        for name, words in (('lanes', [*server, '--listen', 'tcp://127.0.0.1:0?lanes=3']),
                            ('delay', [*server, '--listen', 'tcp://127.0.0.1:0?delay=1ms']),
                            ('code', [*listen[:-1], f'{listen[-1]}?shm=off&code=pack']),
                            ('recover', [*listen, '--control',
                                         f'unix://{self.path("b.sock")}?recover=off'])):
            self.assertIn(f'{name} is for clients', self.run_program(*words, status=1).stderr)

    def test_who_is_refused_again_and_again_does_not_fill_the_log(self):
        path = self.path('a.sock')
        ready, told = os.pipe()
        server = subprocess.Popen(
            [program('flyt-server'), '--listen', f'unix://{path}', '--driver', 'soft',
             '--ready-fd', str(told)], stderr=subprocess.PIPE, text=True, pass_fds=[told])
        self.addCleanup(server.kill)
        os.close(told)
        with os.fdopen(ready, 'rb') as until:
            until.read(5)
        begun = time.monotonic()
        times = 400
        for _ in range(times):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(path)
                stranger.settimeout(60)
                stranger.sendall(b'GET / HTTP/1.1\r\n' * 40)
                # What it has not read when it hangs up is an error here.
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(4096):
                        pass
        periods = int((time.monotonic() - begun) / 10) + 2
        server.terminate()
        log = server.communicate(timeout=120)[1]
        told = log.count('client refused')
        self.assertLessEqual(told, 50 * periods)
        self.assertEqual(told + sum(map(int, re.findall('too many lines=(\\d+)', log))), times)

    def test_a_server_that_keeps_no_code_says_so_when_it_starts(self):
        server = ['flyt-server', '--listen', f'unix://{self.path("a.sock")}', '--driver', 'soft']
        done = self.run_program(*server, '--module-cache-bytes', '0', status=1)
        self.assertIn('--module-cache off', done.stderr)
        with open(self.path('file'), 'w', encoding='utf-8') as file:
            file.write('in the way')
        log = self.stopped_by(signal.SIGTERM, *server[1:], '--module-cache', self.path('file'))
        self.assertIn('code will not be kept', log)
        self.assertIn('--module-cache', log)

    def stopped_by(self, number, *words):
        """The log of a server whose whole process group gets a signal once it is ready."""
        ready, told = os.pipe()
        server = subprocess.Popen([program('flyt-server'), *words, '--ready-fd', str(told)],
                                  stderr=subprocess.PIPE, text=True, pass_fds=[told],
                                  start_new_session=True)
        self.addCleanup(server.kill)
        os.close(told)
        with os.fdopen(ready, 'rb') as until:
            until.read(5)
        os.killpg(server.pid, number)
        return server.communicate(timeout=120)[1]

    def test_a_server_stopped_from_a_terminal_reports_no_trouble(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            log = self.stopped_by(number, '--listen', f'unix://{self.path("a.sock")}', '--driver',
                                  'soft', '--recover', '5')
            self.assertIn('stopped', log)
            self.assertNotRegex(log, ' (warn|error) ')

    def test_a_server_does_not_start_without_what_it_is_to_have(self):
        server = ['flyt-server', '--listen', f'unix://{self.path("a.sock")}', '--driver', 'soft']
        nowhere = self.path('no/such')
        for wanted in (['--recover', '5', '--keeper', nowhere], ['--gpu-room', nowhere]):
            done = self.run_program(*server, *wanted, status=1)
            self.assertIn(nowhere, done.stderr)

    def test_a_server_that_stops_counts_its_sessions_alone(self):
        url = f'unix://{self.path("a.sock")}'
        ready, told = os.pipe()
        server = subprocess.Popen(
            [program('flyt-server'), '--listen', url, '--driver', 'soft', '--recover', '5',
             '--warm', '1', '--ready-fd', str(told)],
            stderr=subprocess.PIPE, text=True, pass_fds=[told])
        os.close(told)
        with os.fdopen(ready, 'rb') as until:
            until.read(5)
        server.terminate()
        self.assertIn('stopping sessions=0', server.communicate()[1])

    def test_json_of_flyt_is_json(self):
        self.assertIn('version', json.loads(self.run_program('flyt', 'version', '--json').stdout))


if __name__ == '__main__':
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
